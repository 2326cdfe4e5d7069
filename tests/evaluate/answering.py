"""Problems, responses to them, and a sampler that gives these, for the tests of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fake_sampler import FakeSampler

from ansatz.rollout.base import Sampling
from ansatz.types import Problem, Prompt, Rollout

TEXTS = {
    # problem: (level, subject, four responses). The gold answer is 5 everywhere.
    "a": ("2", "Algebra", (r"\boxed{5}", r"\boxed{5.0}", "The answer is 5.", "for 5 men")),
    "b": ("2", "Geometry", (r"\boxed{7}", r"\boxed{ 7}", r"\boxed{5}", "I cannot tell")),
    "c": ("10", "Algebra", (r"\boxed{5}",) * 4),
}
SAMPLING = Sampling(num_samples=4, max_response_tokens=16, temperature=0.7, top_p=0.95, seed=3)
SETTINGS = {"suite": {"name": "made up"}, "num_problems": 3, "samples_per_prompt": 4, "seed": 3}


def prompts() -> list[Prompt]:
    return [
        Prompt(
            problem=Problem(
                id=name,
                question="?",
                answers=("5",),
                source="test",
                split="test",
                level=level,
                meta={"subject": subject},
            ),
            text="?",
            token_ids=(1,),
        )
        for name, (level, subject, _) in TEXTS.items()
    ]


class Answering(FakeSampler):
    """Gives TEXTS; after `breaks_after` rollouts it calls `before_break` and raises KeyboardInterrupt. Counts what it
    gave."""

    def __init__(self, *, breaks_after: int | None = None, before_break: Callable[[], None] = lambda: None) -> None:
        super().__init__(lambda prompt, sample: TEXTS[prompt.problem.id][2][sample])
        self.given, self.breaks_after, self.before_break = 0, breaks_after, before_break

    def generate(
        self,
        prompts: Any,
        sampling: Sampling,
        *,
        unfinished: Sequence[Rollout] = (),
        on_finished: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        def count(rollout: Rollout) -> None:
            if self.given == self.breaks_after:
                self.before_break()
                raise KeyboardInterrupt
            self.given += 1
            if on_finished:
                on_finished(rollout)

        return super().generate(prompts, sampling, unfinished=unfinished, on_finished=count)

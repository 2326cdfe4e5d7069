"""Ansatz as one side of the benchmark: only its sampler, or whole steps of the pipeline of `ansatz train`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from rounds import Rounds

from ansatz import process
from ansatz.config.load import check
from ansatz.data.base import load_problems
from ansatz.loop.pipeline import run_pipeline
from ansatz.models.load import cast, compute_dtype, load_policy
from ansatz.models.threads import set_threads
from ansatz.prompts.render import render
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.track.base import Evaluation


class Done(BaseException):
    """No further round is wanted."""


class OnDemand:
    """A console that makes the pipeline wait after each step of one stage until another round is requested."""

    def __init__(self, rounds: Rounds, stage: str) -> None:
        self.rounds, self.wanted, self.stage = rounds, stage, ""

    def note(self, text: str) -> None: ...

    def plan(self, text: str, stages: Mapping[str, int | None]) -> None: ...

    def progress(self, text: str) -> None: ...

    def begin(self, stage: str, *, total_steps: int) -> None:
        self.stage = stage
        self._next()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.stage == self.wanted:
            names = ("train/tokens", "time/rollout_s", "time/grade_s", "time/update_s", "rollout/rewards")
            self.rounds.end(step=step, **{name: metrics[name] for name in names if name in metrics})
        self._next()

    def _next(self) -> None:
        if self.stage == self.wanted and not self.rounds.begin():
            raise Done

    def evaluation(self, row: Evaluation) -> None: ...

    def event(self, step: int, text: str) -> None: ...

    def end(self) -> None: ...


class ToScore(OnDemand):
    """One round from the first step to the evaluation that reaches a pass@1."""

    def __init__(self, rounds: Rounds, target: float) -> None:
        super().__init__(rounds, "rl")
        self.target, self.training_s, self.curve = target, 0.0, list[tuple[int, float]]()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.training_s += metrics["time/step_s"]

    def evaluation(self, row: Evaluation) -> None:
        if self.stage != "rl":
            return
        self.curve.append((row["step"], row["pass@1"]))
        if row["pass@1"] >= self.target:
            self.rounds.end(step=row["step"], training_s=self.training_s, curve=self.curve)
            self._next()


def sample(rounds: Rounds) -> None:
    settings = rounds.settings
    set_threads(0)
    policy = load_policy(settings["model"])
    cast(policy, compute_dtype(settings.get("dtype", "auto"), policy.device))
    problems = load_problems("jsonl", split="train", settings={"path": settings["data"]})
    prompts = [
        render(problem, "tiny", policy.tokenizer, max_prompt_tokens=256) for problem in problems[: settings["prompts"]]
    ]
    sampler = NativeSampler(policy, max_concurrent=settings["prompts"] * settings["samples"])
    sizes = cycle(settings.get("sizes", [[settings["prompts"], settings["samples"]]]))
    step = 0
    while rounds.begin():
        step += 1
        num_prompts, num_samples = next(sizes)
        sampling = Sampling(
            num_samples=num_samples,
            max_response_tokens=settings["max_tokens"],
            min_response_tokens=settings["min_tokens"],
            step=step,
        )
        rollouts = sampler.generate(prompts[:num_prompts], sampling)
        rounds.end(rows=len(rollouts), tokens=sum(rollout.num_tokens for rollout in rollouts))


def pipeline(rounds: Rounds, console: OnDemand) -> None:
    with tempfile.TemporaryDirectory() as out, contextlib.suppress(Done):
        run_pipeline(check({**rounds.settings["recipe"], "out": out}), fresh=True, console=console)


def main() -> None:
    process.configure_process()
    rounds = Rounds()
    works: dict[str, Any] = {
        "sample": lambda: sample(rounds),
        "rl": lambda: pipeline(rounds, OnDemand(rounds, "rl")),
        "sft": lambda: pipeline(rounds, OnDemand(rounds, "sft")),
        "to_score": lambda: pipeline(rounds, ToScore(rounds, rounds.settings["target"])),
    }
    works[rounds.settings["work"]]()


if __name__ == "__main__":
    main()

"""Rejection sampling: a stage that samples, keeps what is right, and teaches it (SFT's objective, SFT's step).

    runs/NAME/rejection_1/responses/      settings.json, rollouts.jsonl: every response with its verdict, as it came
    runs/NAME/rejection_1/selected.jsonl  problems whose solution is a chosen response; selected.report.json counts them
    runs/NAME/rejection_1/                else as sft: metrics, evaluations, checkpoints

One round is RFT (arXiv:2308.01825), several are expert iteration, each from the newest policy; with `from_start` each
is trained from the stage's start, as in STaR (arXiv:2203.14465). With a `teacher` it is distillation of right answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansatz.config.load import check, parse_section
from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import Config
from ansatz.data.hygiene.report import report_path
from ansatz.data.hygiene.select import Candidate, SelectedResponses, selection_counts
from ansatz.data.store import read_problems, write_problems
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.response_store import ResponseStore
from ansatz.evaluate.responses import Response, reward_grader
from ansatz.evaluate.selection import Selection, taught_problems
from ansatz.loop.state import Clock, write_atomically
from ansatz.registry import bind, settings_of, suggest
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.base import ConsoleSink
from ansatz.types import Problem, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionSettings(Selection):
    """What a recipe may say under `rejection`, besides what a `Selection` takes.

    rounds: of sampling and SFT. teacher: the model folder that is sampled from; null: the policy at the start of the
    round. template: the teacher's prompt template; null: data.template. from_start: every round trains the stage's
    start; otherwise the policy of the previous round. problems: number per round, in the order of data.train and from
    the first again after the last; 0: all. batch: problems sampled together; a kill loses at most one batch. sft: keys
    of the recipe's sft section that differ for a round's SFT. The sampling options are added by `rejection_options`.
    """

    rounds: int = 1
    teacher: str | None = None
    template: str | None = None
    from_start: bool = False
    problems: int = 0
    batch: int = 64
    sft: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        for name, least in (("rounds", 1), ("batch", 1), ("problems", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"rejection.{name} = {getattr(self, name)}: expected {least} or more.")
        if self.template is not None and self.teacher is None:
            raise ConfigError("rejection.template is the teacher's; without rejection.teacher it has no effect.")
        if self.from_start and self.rounds == 1:
            raise ConfigError("rejection.from_start has no effect with one round. Leave it out, or give rounds.")

    def sampled(self, problems: Sequence[Problem], number: int) -> Sequence[Problem]:
        """The problems of a round, none of them twice."""
        size = len(problems)
        if not 0 < self.problems < size:
            return problems
        first = (number - 1) * self.problems
        return [problems[(first + index) % size] for index in range(self.problems)]

    def teaching(self, config: Config) -> Config:
        """The recipe with this stage's SFT in place of its own. ConfigError for a wrong key or no steps."""
        taught = check({**config.model_dump(), "sft": {**config.sft.model_dump(), **self.sft}})
        if taught.sft.steps == 0:
            raise ConfigError(
                "rejection: a round of 0 SFT steps learns nothing. Set rejection.sft.steps, or sft.steps."
            )
        return taught

    def asking(self, config: Config) -> Config:
        """The recipe as the teacher is asked by it."""
        return config.model_copy(update={"data": config.data.model_copy(update={"template": self.template_of(config)})})

    def template_of(self, config: Config) -> str:
        return self.template or config.data.template


def rejection_settings(recipe: Mapping[str, Any]) -> RejectionSettings:
    """The settings of a recipe's `rejection`. ConfigError for an unknown or a wrong one."""
    known = {*settings_of(RejectionSettings), *SamplingOptions.model_fields}
    for key in recipe:
        if key not in known:
            raise ConfigError(f"rejection has no setting {key!r}.{suggest(key, known)}")
    settings = {key: value for key, value in recipe.items() if key not in SamplingOptions.model_fields}
    return bind(RejectionSettings, settings, what="rejection")()


def rejection_options(config: Config) -> SamplingOptions:
    """How a round samples: as `rollout` does, with 8 samples per prompt, unless `rejection` gives another value."""
    options = {name: getattr(config.rollout, name) for name in SamplingOptions.model_fields}
    given = {key: value for key, value in (config.rejection or {}).items() if key in options}
    return parse_section(SamplingOptions, {**options, "samples_per_prompt": 8, **given}, name="rejection")


def round_name(number: int) -> str:
    """The folder of a round, and its stage's name; rounds count from 1."""
    return f"rejection_{number}"


def round_sampling(config: Config, number: int) -> Sampling:
    """Rounds use the noise of the steps before the first one, which RL never uses."""
    return Sampling.of(rejection_options(config), seed=config.seed, step=-number)


def sample_and_select(
    folder: Path,
    prompts: Sequence[Prompt],
    *,
    sampler: Sampler,
    sampling: Sampling,
    grader: Grader,
    settings: RejectionSettings,
    fits: Callable[[Problem], bool],
    console: ConsoleSink | None = None,
) -> None:
    """Writes what a round teaches to folder/selected.jsonl, its report first; goes on where it was cut off.

    fits: whether the policy can be taught a problem's solution within the recipe's limits. DataError where nothing is
    left to teach.
    """
    clock = Clock()
    kept = ResponseStore(folder / "responses")
    kept.open_or_check(
        {
            "num_problems": len(prompts),
            "samples_per_prompt": sampling.num_samples,
            "seed": sampling.seed,
            "round": -sampling.step,
        }
    )
    if console is not None:
        console.begin(f"{folder.name}, problems sampled", total_steps=len(prompts))
    try:
        kept.sample(
            prompts,
            sampler=sampler,
            sampling=sampling,
            batch=settings.batch,
            grader=reward_grader(grader),
            on_problem=lambda done: console.step(done, {}) if console is not None and done else None,
        )
    finally:
        if console is not None:
            console.end()
    responses = [one for group in kept.responses() for one in group]
    problems = [prompt.problem for prompt in prompts]
    chosen = settings.choose(responses, seed=sampling.seed, filters=(_unfit(problems, fits),))
    if not chosen.kept:
        raise DataError(
            f"{kept.rollouts}: none of {len(responses)} responses is one to learn from ({_counts(chosen)}). "
            "Start from a better policy or a teacher, take more rejection.samples_per_prompt, or loosen the filters."
        )
    path = folder / "selected.jsonl"
    report = {**selection_counts(chosen), **_rates(responses), "seconds": round(clock.lap(), 3)}
    write_atomically(report_path(path), json.dumps(report, indent=2))
    write_problems(path, taught_problems(chosen, problems))


def selected(folder: Path) -> list[Problem] | None:
    """What the round teaches, None where that is not chosen yet."""
    path = folder / "selected.jsonl"
    return read_problems(path) if path.is_file() else None


def selection_metrics(folder: Path) -> dict[str, float]:
    """The round's counts, as they are tracked at step 0 of its SFT."""
    report = _report(folder)
    return {
        "rejection/pass_rate": report["pass_rate"],
        "rejection/solved_frac": report["solved_frac"],
        "rejection/kept_frac": report["kept"] / report["responses"],
        "rejection/taught_responses": float(report["kept"]),
        "rejection/taught_problems_frac": report["problems_kept"] / report["problems"],
    }


def sampling_seconds(folder: Path) -> float:
    """Seconds that the round's sampling took, 0 where it is not through, or in a stage that does not sample."""
    return float(_report(folder)["seconds"]) if (folder / "selected.jsonl").is_file() else 0.0


def _report(folder: Path) -> dict[str, Any]:
    return json.loads(report_path(folder / "selected.jsonl").read_text(encoding="utf-8"))


def _unfit(problems: Sequence[Problem], fits: Callable[[Problem], bool]) -> Callable[[Candidate], str | None]:
    place = {problem.id: problem for problem in problems}

    def refuse(one: Candidate) -> str | None:
        (problem,) = taught_problems(SelectedResponses(kept=(one,), dropped=()), (place[one.problem_id],))
        return None if fits(problem) else "no_fit"

    return refuse


def _rates(responses: Sequence[Response]) -> dict[str, float]:
    """Share of right responses, and of problems with one or more."""
    right = [one.id for one in responses if one.verdicts["reward"].correct]
    return {
        "pass_rate": len(right) / len(responses),
        "solved_frac": len(set(right)) / len({one.id for one in responses}),
    }


def _counts(chosen: SelectedResponses) -> str:
    return ", ".join(f"{why} {count}" for why, count in chosen.kinds.items())

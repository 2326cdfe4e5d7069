"""The pairs of a preference stage: given rows, or the policy's own graded responses.

responses/           settings.json, rollouts.jsonl: every response with its verdict (of the policy only)
pairs.jsonl          the pairs, as `data.store` writes problems
pairs.report.json    the number of pairs, and of the problems and responses that they come from
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.config.schema import Config
from ansatz.data.given_rows import GivenRows
from ansatz.data.pairs import REJECTED, Answered, PairSettings, make_pairs, rejected_of
from ansatz.data.unfit import collect_lost, collect_unfit, describe_lost
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response
from ansatz.loop.context import RunContext
from ansatz.loop.rendering import LengthChecker
from ansatz.loop.run_sources import Check, RunSources
from ansatz.loop.selection import (
    PAIRS_FILE,
    as_if_graded,
    problems_of_round,
    read_report,
    sample_responses,
    sampling_options,
    write_taught,
)
from ansatz.rollout.base import Sampling
from ansatz.types import Problem, Reason, Verdict

UNGRADED = (Reason.TIMEOUT, Reason.CRASHED)
"""Verdicts on the grader and not on the response. The response is then in no pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPairs(PairSettings):
    """`preference.pairs` with `source: policy`, except the sampling options and the settings of `PairSettings`.

    problems: problems of data.train, each repetition of the stage the next ones, and from the first again after the
        last; 0: all of them.
    batch: problems sampled together; a kill loses at most one batch.
    """

    problems: int = 0
    batch: int = 64

    def __post_init__(self) -> None:
        PairSettings.__post_init__(self)
        for name, minimum in (("problems", 0), ("batch", 1)):
            if getattr(self, name) < minimum:
                raise ConfigError(f"preference.pairs.{name} = {getattr(self, name)}: expected {minimum} or more.")


def check_lengths(lengths: LengthChecker, pairs: Sequence[Problem]) -> None:
    """Check that prompts and responses, of pairs both, are within the limits, with `check_demonstrations`."""
    lengths.check_demonstrations(pairs)
    lengths.check_demonstrations([rejected_of(pair) for pair in pairs if REJECTED in pair.meta])


def usable_rows(
    sources: RunSources,
    read: Callable[[GivenRows], Sequence[Problem | None]],
    given: GivenRows,
    *,
    key: str,
    check: Check,
) -> list[Problem]:
    """Read the rows that a recipe names, for a stage that learns from them as they are.

    key: of the recipe. read: returns None for a pair whose scores are too close. Raise DataError if `read` or `check`
    refuses a row, unless data.unfit leaves it out, and if there are no rows.
    """
    with collect_unfit() as unread, collect_lost() as lost:
        found = read(given)
    problems, total = [problem for problem in found if problem is not None], len(found) + len(unread)
    if lost:
        sources.notes.append(f"{key}: {describe_lost(lost, total=total)}")
    if num_close := len(found) - len(problems):
        sources.notes.append(
            f"{key}: {num_close} of {total} pairs are left out, because the score of the chosen response is not at "
            f"least min_gap = {given.min_gap:g} above that of the rejected one"
        )
    if not problems and not unread:
        raise DataError(f"{key}: {given.place} has no row that can be used. Lower {key}.min_gap, or use other rows.")
    return list(sources.unfit.usable(key, problems, check, unread=unread))


def pair_sampling(config: Config, given: Mapping[str, Any], *, number: int) -> Sampling:
    """Return the sampling of pairs. It uses the noise of the steps before the first one, which RL never uses."""
    return Sampling.of(sampling_options(config, given, name="preference.pairs"), seed=config.seed, step=-number)


def pair_metrics(folder: Path) -> dict[str, float]:
    """Return the counts of the pairs, under the names of the metric table."""
    report = read_report(folder / PAIRS_FILE)
    metrics = {"preference/pairs": float(report["pairs"])}
    if report.get("responses"):
        metrics["preference/pass_rate"] = report["correct"] / report["responses"]
        metrics["preference/paired_frac"] = report["paired_problems"] / report["problems"]
    return metrics


def sample_pairs(
    context: RunContext, folder: Path, settings: PolicyPairs, given: Mapping[str, Any], *, number: int
) -> None:
    """Sample responses with the policy, grade them, and write the pairs. Raise DataError if there are none.

    given: the recipe's `preference.pairs`, with the sampling options. number: counts the repetitions of the stage.
    """
    start, config = time.perf_counter(), context.config
    policy = context.policy(context.model)
    lengths = context.sources.lengths(policy)
    problems = problems_of_round(context.sources.problems("train"), number=number, size=settings.problems)
    prompts = context.sources.renderer(policy).prompts(problems)
    with closing(context.sampler(policy)) as sampler:
        responses = sample_responses(
            context,
            folder,
            prompts,
            sampler=sampler,
            sampling=pair_sampling(config, given, number=number),
            batch=settings.batch,
            tokenizer=None if config.environment is None else policy.tokenizer,
        )
    problems = [prompt.problem for prompt in prompts]
    problem_of = {problem.id: problem for problem in problems}

    def fits(response: Response) -> bool:
        text = response.transcript or response.response
        return lengths.fits_demonstration(
            problem_of[response.id].answered(text, response.observations, response.token_ids)
        )

    by_problem = _answered(filter(fits, responses))
    if config.model.toy and not any(each.correct for group in by_problem.values() for each in group):
        by_problem = _answered(filter(fits, map(_as_if_graded, responses)))  # random weights answer nothing correctly
    made = make_pairs(problems, by_problem, settings, seed=config.seed)
    correct = sum(response.verdicts["reward"].correct for response in responses)
    if not made.pairs:
        raise DataError(
            f"{folder}: {len(responses)} responses to {len(problems)} problems give no pair ({correct} are correct). A "
            "pair needs a correct and a wrong response to the same problem, neither of them cut off. Start from a "
            "policy with a pass rate between 0 and 1, or raise preference.pairs.samples_per_prompt."
        )
    counts = {**made.counts, "responses": len(responses), "correct": correct}
    write_taught(folder / PAIRS_FILE, made.pairs, counts, seconds=time.perf_counter() - start)


def _answered(responses: Iterable[Response]) -> dict[str, list[Answered]]:
    """Return the responses that were graded and ended by themselves, by problem."""
    answered: dict[str, list[Answered]] = {}
    for response in responses:
        verdict = response.verdicts["reward"]
        if not response.truncated and verdict.reason not in UNGRADED:
            answered.setdefault(response.id, []).append(
                Answered(
                    sample=response.sample,
                    text=response.transcript or response.response,
                    tokens=response.tokens,
                    correct=verdict.correct,
                    answer=verdict.extracted,
                    observations=response.observations,
                    token_ids=response.token_ids,
                )
            )
    return answered


def _as_if_graded(response: Response) -> Response:
    """Return a response as if every other response were correct, and all had ended after half of their text."""
    return as_if_graded(response, {"reward": Verdict(correct=response.sample % 2 == 0, reason=Reason.EQUAL)})

"""Sample responses, grade them, and choose some of them to teach: the first half of a round of rejection sampling.

responses/            settings.json, rollouts.jsonl: every response with its verdict
selected.jsonl        problems, each with a chosen response as its solution
selected.report.json  the number of chosen responses, and why the others were not chosen
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansatz.config.load import parse_section
from ansatz.config.sampling import AsRollout, SamplingOptions
from ansatz.config.schema import Config
from ansatz.data.hygiene.report import report_path
from ansatz.data.hygiene.select import Candidate, Reject, SelectedResponses, selection_counts
from ansatz.data.store import write_problems
from ansatz.errors import DataError
from ansatz.evaluate.response_store import ResponseStore
from ansatz.evaluate.responses import Response, reward_grader, with_transcripts
from ansatz.evaluate.selection import Selection, taught_problems
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.loop.context import RunContext
from ansatz.rollout.base import Sampler, Sampling
from ansatz.types import Finish, Problem, Prompt, Verdict

SELECTED_FILE, PAIRS_FILE = "selected.jsonl", "pairs.jsonl"
"""The files that a round teaches from: responses (`rejection`), or pairs of them (`preference`)."""


def problems_of_round(problems: Sequence[Problem], *, number: int, size: int) -> Sequence[Problem]:
    """Return the problems of a round, none of them twice, each round the next ones. size: of a round; 0: all problems.

    Rounds count from 1.
    """
    total = len(problems)
    if not 0 < size < total:
        return problems
    return [problems[((number - 1) * size + index) % total] for index in range(size)]


def sampling_options(config: Config, given: Mapping[str, Any], *, name: str) -> SamplingOptions:
    """Return the sampling of a stage: like `rollout`, with 8 samples per prompt, unless its section sets others.

    given: the section, called `name` in errors; its other keys are ignored.
    """
    options = {key: getattr(config.rollout, key) for key in SamplingOptions.model_fields}
    own = {key: value for key, value in given.items() if key in options}
    return parse_section(AsRollout, {**options, "samples_per_prompt": 8, **own}, name=name)


def sample_responses(
    context: RunContext,
    folder: Path,
    prompts: Sequence[Prompt],
    *,
    sampler: Sampler,
    sampling: Sampling,
    batch: int,
    tokenizer: Any = None,
) -> list[Response]:
    """Sample and grade all responses, or those that an interrupted call left, and store them in folder/responses.

    batch: problems sampled together; an interruption loses at most one batch. tokenizer: of the policy, if responses
    have an environment: they are stored with its answers told apart.
    """
    store, grader, console = ResponseStore(folder / "responses"), reward_grader(context.grader), context.console
    store.open_or_check(
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
        store.sample(
            prompts,
            sampler=sampler,
            sampling=sampling,
            batch=batch,
            grader=grader if tokenizer is None else with_transcripts(grader, tokenizer),
            on_problem=lambda done: console.step(done, {}) if console is not None and done else None,
        )
    finally:
        if console is not None:
            console.end()
    return [response for group in store.responses() for response in group]


def write_selection(
    folder: Path,
    responses: Sequence[Response],
    problems: Sequence[Problem],
    *,
    selection: Selection,
    seed: int,
    fits: Callable[[Problem], bool],
    seconds: float,
    any_will_do: bool = False,
) -> None:
    """Write folder/selected.jsonl and, before it, its report.

    fits: whether a problem with a response as its solution is within the limits of the recipe. seconds: duration of the
    sampling, for the report. any_will_do: if nothing is left to teach, choose as if every response were correct and had
    ended after half of its text. Raise DataError if nothing is left to teach.
    """
    filters = (_unfit(fits, problems),)
    chosen = selection.choose(responses, seed=seed, filters=filters)
    if not chosen.kept and any_will_do:
        chosen = selection.choose([_as_if_correct(response) for response in responses], seed=seed, filters=filters)
    if not chosen.kept:
        counts = ", ".join(f"{reason} {count}" for reason, count in chosen.kinds.items())
        raise DataError(
            f"{folder}: none of {len(responses)} responses can be taught ({counts}). Start from a better policy or a "
            "teacher, raise rejection.samples_per_prompt, or loosen the filters of rejection."
        )
    counts = {**selection_counts(chosen), **_rates(responses)}
    write_taught(folder / SELECTED_FILE, taught_problems(chosen, problems), counts, seconds=seconds)


def write_taught(path: Path, problems: Sequence[Problem], counts: Mapping[str, Any], *, seconds: float) -> None:
    """Write the problems that a round teaches and, before them, its report. seconds: duration of the sampling."""
    write_text(report_path(path), json.dumps({**counts, "seconds": round(seconds, 3)}, indent=2))
    write_problems(path, problems)


def selection_metrics(folder: Path) -> dict[str, float]:
    """Return the counts of a finished selection, under the names of the metric table."""
    report = read_report(folder / SELECTED_FILE)
    return {
        "rejection/pass_rate": report["pass_rate"],
        "rejection/solved_frac": report["solved_frac"],
        "rejection/kept_frac": report["kept"] / report["responses"],
        "rejection/taught_responses": float(report["kept"]),
        "rejection/taught_problems_frac": report["problems_kept"] / report["problems"],
    }


def sampling_seconds(folder: Path) -> float:
    """Return the seconds of a finished selection; 0 for an unfinished one and for a stage without one."""
    files = (folder / name for name in (SELECTED_FILE, PAIRS_FILE))
    return sum(float(read_report(path)["seconds"]) for path in files if path.is_file())


def read_report(path: Path) -> dict[str, Any]:
    """Read the report next to the file that a round teaches."""
    return read_object(report_path(path), error=DataError, advice="Remove the folder: the round is then repeated.")


def _unfit(fits: Callable[[Problem], bool], problems: Sequence[Problem]) -> Reject:
    problem_of = {problem.id: problem for problem in problems}

    def reject(candidate: Candidate) -> str | None:
        (problem,) = taught_problems(
            SelectedResponses(kept=(candidate,), dropped=()), (problem_of[candidate.problem_id],)
        )
        return None if fits(problem) else "no_fit"

    return reject


def as_if_graded(response: Response, verdicts: Mapping[str, Verdict]) -> Response:
    """Return the response with other verdicts, as if it had ended after half of its text."""
    # With its end token, a response that was cut off is too long.
    half = response.response[: len(response.response) // 2]
    return replace(
        response, verdicts=verdicts, finish=Finish.STOP, response=half, transcript="", observations=(), token_ids=()
    )


def _as_if_correct(response: Response) -> Response:
    return as_if_graded(response, {name: replace(each, correct=True) for name, each in response.verdicts.items()})


def _rates(responses: Sequence[Response]) -> dict[str, float]:
    """Return the fraction of responses that are correct, and of problems with at least one correct response."""
    solved = [response.id for response in responses if response.verdicts["reward"].correct]
    return {
        "pass_rate": len(solved) / len(responses),
        "solved_frac": len(set(solved)) / len({response.id for response in responses}),
    }

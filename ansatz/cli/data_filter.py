"""`ansatz data filter`: drop problems that a final answer cannot grade fairly, or that cannot be used at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.option_groups import RowFields, takes_fields
from ansatz.cli.outputs import check_outputs
from ansatz.cli.responses import sample_into
from ansatz.cli.rows import (
    Files,
    Out,
    Work,
    correct_responses,
    named,
    response_store,
    results_of,
    rows_of,
    run_row_filter,
)
from ansatz.cli.sampling_options import NONE, ModelSampling, check_needed, sampling_names, takes_sampling
from ansatz.errors import ConfigError
from ansatz.prompts.answer_only import GUESS, render_guess

if TYPE_CHECKING:
    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.types import Problem

GUESSED, UNREADABLE = "guessed", "unreadable"


@takes_fields()
@takes_sampling(template=GUESS, environment=NONE, max_response_tokens=24)
def filter_rows(
    files: Files,
    out: Out,
    *,
    sampling: ModelSampling,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="multiple_choice, true_false, proof, unreadable (a missing field, or a gold answer that the verifier "
            "cannot read) or guessed (needs --model); can be repeated. Default: all except unreadable."
        ),
    ] = None,
    max_words: Annotated[int | None, typer.Option(help="Drop questions with more words.")] = None,
    max_question_tokens: Annotated[
        int | None, typer.Option(min=1, help="Drop questions with more tokens (needs --tokenizer).")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A model whose tokenizer counts.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model that guesses, for --drop guessed: a folder, or of the hub.")
    ] = None,
    work: Work = None,
    fields: RowFields,
    command_line: typer.Context,
) -> None:
    """Drop problems without a fair final answer: choices, yes or no, proofs, guessable, long or unreadable ones."""
    from ansatz.data.hygiene.filters import FILTERS

    check_needed(command_line, work=["model"], **dict.fromkeys(sampling_names(), ("model",)))
    check_outputs([out], inputs=files, reports=True)
    if drop is not None and (GUESSED in drop) != (model is not None):
        raise ConfigError("--drop guessed and --model belong together: give both or neither.")
    by_text = _text_filter(drop or tuple(FILTERS), max_words, _make_length_test(max_question_tokens, tokenizer))
    settings: dict[str, Any] = {"drop": list(drop or FILTERS), "max_words": max_words}
    if tokenizer is not None:
        settings |= {"max_question_tokens": max_question_tokens, "tokenizer": str(tokenizer)}
    correct: dict[str, int] = {}
    read = results_of if UNREADABLE in (drop or ()) else rows_of
    if model is not None:
        problems = (result for _, result in read(files, fields) if not isinstance(result, Exception))
        remaining = [problem for problem in problems if by_text(problem) is None]
        store = response_store(work, out)
        correct = _correct_guesses(store, model, remaining, sampling, named(files)) if remaining else {}
        settings |= {"model": str(model), "guesses": sampling.options.samples_per_prompt, "responses": str(store.path)}

    def reject(problem: Problem) -> dict[str, Any] | None:
        reason = by_text(problem)
        if reason is None and correct.get(problem.id):
            return {"kind": GUESSED, "correct": correct[problem.id]}
        return reason

    run_row_filter("filter", read(files, fields), reject, files, out, settings)


def _text_filter(
    drop: Sequence[str], max_words: int | None, too_long: Callable[[str], bool]
) -> Callable[[Problem], dict[str, Any] | None]:
    """Return a function from a problem to why its text or its gold answer drops it, or None."""
    from ansatz.data.hygiene.filters import why_dropped
    from ansatz.data.hygiene.row_filter import unreadable
    from ansatz.data.unfit import UnfitRow, short

    names = [name for name in drop if name not in (GUESSED, UNREADABLE)]

    def by_text(problem: Problem) -> dict[str, Any] | None:
        if UNREADABLE in drop and (why := why_unreadable(problem)):
            return unreadable(UnfitRow(problem.id, why, short(problem.answer)))
        reason = why_dropped(problem, drop=names, max_words=max_words)
        reason = "too_long" if reason is None and too_long(problem.dialogue) else reason
        return {"kind": reason} if reason else None

    return by_text


def why_unreadable(problem: Problem) -> str:
    """Return why the gold answer or the tests of a problem cannot be used; empty if they can."""
    from ansatz_verify.gold import gold_problem

    from ansatz.rewards.code_forms import has_tests, read_forms
    from ansatz.rewards.code_safety import UnsafeTest
    from ansatz.rewards.exact_json import golds_are_json

    if has_tests(problem.meta):
        try:
            read_forms(problem.meta, packages=True)
        except UnsafeTest as error:
            return str(error)
        return ""
    return "" if golds_are_json(problem) else gold_problem(problem.answer)


def _make_length_test(limit: int | None, tokenizer: Path | None) -> Callable[[str], bool]:
    """Return a function that says whether a text has more tokens than the limit; always False without a limit."""

    if (limit is None) != (tokenizer is None):
        raise ConfigError("--max-question-tokens and --tokenizer belong together: give both or neither.")
    if limit is None or tokenizer is None:
        return lambda text: False
    from ansatz.models.token_counts import token_counter

    count = token_counter(tokenizer)
    return lambda text: count(text) > limit


def _correct_guesses(
    store: ResponseStore, model: Path, problems: list[Problem], sampling: ModelSampling, source: str
) -> dict[str, int]:
    """Return the number of correct guesses for each problem, by problem id."""
    from ansatz.evaluate.responses import answer_only_grader

    sample_into(store, model, problems, sampling, source=source, to_prompt=render_guess, make_grader=answer_only_grader)
    return correct_responses(store, "guess")

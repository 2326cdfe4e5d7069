"""`ansatz data ...`: inspect problem files, clean them, and filter them with a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.model_filters import difficulty, select
from ansatz.cli.responses import sample_into
from ansatz.cli.rows import (
    AnswerFrom,
    AnswerKey,
    Files,
    IdKey,
    Out,
    QuestionKey,
    Work,
    correct_responses,
    named,
    response_store,
    rows_of,
    run_row_filter,
    with_progress,
)
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.prompts.answer_only import GUESS

if TYPE_CHECKING:
    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.types import Problem

app = typer.Typer(help="Inspect and clean problem files before training on them.", no_args_is_help=True)
app.command()(difficulty)
app.command()(select)


@app.callback()
def data() -> None:
    """Inspect and clean problem files before training on them."""


@app.command()
def check(
    files: Files, question_key: QuestionKey = None, answer_key: AnswerKey = None, answer_from: AnswerFrom = "auto"
) -> None:
    """List the gold answers that the verifier cannot read, with their lines; exit code 1 if there are any."""
    from ansatz.rewards.math_answer.gold import unreadable_golds

    rows = 0

    def problems() -> Iterator[Problem]:
        nonlocal rows
        for _, problem in rows_of(files, question_key, answer_key, answer_from):
            rows += 1
            yield problem

    unreadable = unreadable_golds(with_progress(problems(), "check"))
    for gold in unreadable:
        print(f"{file}:{gold.line}: {gold.id}: {gold.why}")
    print(f"{rows} problems, {len(unreadable)} unreadable gold answers")
    raise typer.Exit(code=1 if unreadable else 0)


@app.command()
def peek(
    files: Files,
    tokenizer: Annotated[Path | None, typer.Option(help="Folder of a tokenizer; lengths are then in tokens.")] = None,
    show: Annotated[int, typer.Option(help="Number of suspicious rows to print.")] = 20,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Summarise problem files: rows, lengths, kinds of answer, levels, and suspicious rows."""
    from ansatz.data.hygiene.peek import QUANTILES, summarize

    length = None
    if tokenizer is not None:
        from ansatz.models.token_counts import token_counter

        length = token_counter(tokenizer)
    pairs = rows_of(files, question_key, answer_key, answer_from, id_key)
    summary = summarize((problem for _, problem in with_progress(pairs, "peek")), length=length)
    unit = "words" if tokenizer is None else "tokens"
    print(f"{summary.rows} problems")
    for name, lengths in (("question", summary.question_lengths), ("solution", summary.solution_lengths)):
        shown = ", ".join(f"{quantile:.0%} {value}" for quantile, value in zip(QUANTILES, lengths, strict=False))
        print(f"{name}, {unit} by quantile: {shown or 'none'}")
    for name, counts in (("answers", summary.answer_kinds), ("levels", summary.levels)):
        shown = ", ".join(f"{kind} {count}" for kind, count in counts.most_common(12))
        print(f"{name}: {shown}" + (f", and {len(counts) - 12} more" if len(counts) > 12 else ""))
    print(f"suspicious: {len(summary.suspicious)}")
    for line, problem_id, reason in summary.suspicious[:show]:
        print(f"  line {line}: {problem_id}: {reason}")


@app.command()
def dedup(
    files: Files,
    out: Out,
    threshold: Annotated[float, typer.Option(help="Overlap from which questions are near duplicates, 0.6 to 1.")] = 0.8,
    ngram: Annotated[int, typer.Option(help="Words per n-gram for the overlap.")] = 3,
    near: Annotated[bool, typer.Option(help="Also drop near duplicates, or only exact ones.")] = True,
    embeddings: Annotated[
        str | None, typer.Option(help="Folder of a sentence-transformers model; also drops paraphrases.")
    ] = None,
    min_cosine: Annotated[float, typer.Option(help="Cosine from which questions are paraphrases, 0.85 to 1.")] = 0.95,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop repeated questions: the same text, or nearly the same text with the same numbers and answer."""
    from ansatz.data.hygiene.dedup import Dedup
    from ansatz.data.hygiene.embeddings import EmbeddingIndex, sentence_encoder

    index = EmbeddingIndex(sentence_encoder(embeddings), threshold=min_cosine) if embeddings else None
    seen = Dedup(threshold=threshold, ngram=ngram, near=near, embeddings=index)
    pairs = rows_of(files, question_key, answer_key, answer_from, id_key)

    def reject(problem: Problem) -> dict[str, Any] | None:
        duplicate = seen.find(problem)
        return duplicate and duplicate._asdict()

    settings: dict[str, Any] = {"threshold": threshold, "ngram": ngram, "near": near}
    if index is not None:
        settings |= {"embeddings": embeddings, "min_cosine": min_cosine}
        pairs = index.encode_ahead(pairs)
    run_row_filter("dedup", pairs, reject, files, out, settings)


@app.command()
def decontaminate(
    files: Files,
    out: Out,
    against: Annotated[list[Path], typer.Option(help="A test file; can be repeated.")],
    min_frac: Annotated[float, typer.Option(help="Keep rows with less than this fraction of a test question.")] = 0.0,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop questions that are copies, reworded copies or paraphrases of test questions; the files are read twice."""
    from ansatz.data.hygiene.decontaminate import NGRAM, BenchmarkTexts
    from ansatz.errors import ConfigError

    if not 0 <= min_frac <= 1:
        raise ConfigError(f"--min-frac = {min_frac}, expected 0 to 1.")
    keys = (question_key, answer_key, answer_from, id_key)
    tests = BenchmarkTexts(problem for path in against for _, problem in rows_of(path))
    for _, problem in with_progress(rows_of(files, *keys), "decontaminate: count words"):
        tests.count(problem)

    def reject(problem: Problem) -> dict[str, Any] | None:
        overlap = tests.overlap(problem, min_frac=min_frac)
        return overlap and overlap._asdict()

    settings = {"against": [str(path) for path in against], "ngram": NGRAM, "min_frac": min_frac}
    settings |= {"test_problems": len(tests), "test_problems_too_short": tests.too_short}
    run_row_filter("decontaminate", rows_of(files, *keys), reject, files, out, settings)


@app.command("filter")
@takes_sampling(template=GUESS, max_response_tokens=24)
def filter_rows(
    files: Files,
    out: Out,
    *,
    sampling: ModelSampling,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="multiple_choice, true_false, proof or guessed (needs --model); can be repeated. "
            "By default all that apply."
        ),
    ] = None,
    max_words: Annotated[int | None, typer.Option(help="Drop questions with more words.")] = None,
    max_question_tokens: Annotated[
        int | None, typer.Option(min=1, help="Drop questions with more tokens (needs --tokenizer).")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Folder of a tokenizer.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model that guesses, for --drop guessed.")] = None,
    work: Work = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop problems without a fair final answer: choices, yes or no, proofs, guessable or long questions."""
    from ansatz.data.hygiene.filters import FILTERS, why_dropped

    text_filters, guessing = _split_filters(drop, tuple(FILTERS), model)
    too_long = _longer_than(max_question_tokens, tokenizer)

    def by_text(problem: Problem) -> str | None:
        reason = why_dropped(problem, drop=text_filters, max_words=max_words)
        return "too_long" if reason is None and too_long(problem.question) else reason

    keys = (question_key, answer_key, answer_from, id_key)
    settings: dict[str, Any] = {"drop": list(drop or text_filters), "max_words": max_words}
    if tokenizer is not None:
        settings |= {"max_question_tokens": max_question_tokens, "tokenizer": str(tokenizer)}
    correct: dict[str, int] = {}
    if guessing:
        assert model is not None
        remaining = [problem for _, problem in rows_of(files, *keys) if by_text(problem) is None]
        store = response_store(work, out)
        correct = _correct_guesses(store, model, remaining, sampling, files) if remaining else {}
        settings |= {"model": str(model), "guesses": sampling.options.samples_per_prompt, "responses": str(store.path)}

    def reject(problem: Problem) -> dict[str, Any] | None:
        reason = by_text(problem)
        if reason is None and correct.get(problem.id):
            return {"kind": "guessed", "correct": correct[problem.id]}
        return {"kind": reason} if reason else None

    run_row_filter("filter", rows_of(files, *keys), reject, files, out, settings)


def _longer_than(limit: int | None, tokenizer: Path | None) -> Callable[[str], bool]:
    """A test whether a text has more tokens than the limit; always False without a limit."""
    from ansatz.errors import ConfigError

    if (limit is None) != (tokenizer is None):
        raise ConfigError("--max-question-tokens and --tokenizer belong together: give both or neither.")
    if limit is None or tokenizer is None:
        return lambda text: False
    from ansatz.models.token_counts import token_counter

    count = token_counter(tokenizer)
    return lambda text: count(text) > limit


def _split_filters(
    drop: list[str] | None, by_text: tuple[str, ...], model: Path | None
) -> tuple[tuple[str, ...], bool]:
    """The filters that use the text, and whether the model guesses as well."""
    from ansatz.errors import ConfigError

    if drop is None:
        return by_text, model is not None
    if ("guessed" in drop) != (model is not None):
        raise ConfigError("--drop guessed and --model belong together: give both or neither.")
    return tuple(name for name in drop if name != "guessed"), model is not None


def _correct_guesses(
    store: ResponseStore, model: Path, problems: list[Problem], sampling: ModelSampling, files: list[Path]
) -> dict[str, int]:
    """The number of correct guesses for each problem, by problem id."""
    from ansatz.evaluate.answer_only import answer_only_grader
    from ansatz.prompts.answer_only import render_guess

    sample_into(
        store,
        model,
        problems,
        sampling,
        about={"data": named(files)},
        source=named(files),
        to_prompt=render_guess,
        make_grader=answer_only_grader,
    )
    return correct_responses(store, "guess")


@app.command()
def split(
    files: Files,
    out: Annotated[Path, typer.Option(help="JSONL file for the training rows.")],
    heldout: Annotated[Path, typer.Option(help="JSONL file for the held-out rows.")],
    heldout_frac: Annotated[float, typer.Option(help="Expected fraction of the rows that is held out.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    by: Annotated[str, typer.Option(help="question (equal questions stay together) or id.")] = "question",
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Split the rows in two by a hash of each question, so that a row's side does not depend on the other rows."""
    from ansatz.data.hygiene.report import history
    from ansatz.data.hygiene.row_filter import split_rows
    from ansatz.data.hygiene.split import held_out

    pairs = with_progress(rows_of(files, question_key, answer_key, answer_from, id_key), "split")
    settings: dict[str, Any] = {"heldout_frac": heldout_frac, "seed": seed, "by": by}

    def is_heldout(problem: Problem) -> bool:
        return held_out(problem, heldout_frac=heldout_frac, seed=seed, by=by)

    about = {
        "verb": "split",
        "file": named(files),
        **settings,
        "before": [head for file in files for head in history(file)],
    }
    kept, held = split_rows(pairs, is_heldout, out, heldout, about=about)
    print(f"{kept} rows in {out}, {held} rows in {heldout}")

"""`ansatz data ...`: looking at problem files, cleaning them, and choosing from what a model makes of them."""

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
    File,
    IdKey,
    Out,
    QuestionKey,
    Work,
    correct_responses,
    responses_folder,
    rows_of,
    run_row_filter,
    with_progress,
)
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.prompts.answer_only import GUESS

if TYPE_CHECKING:
    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.types import Problem

app = typer.Typer(help="Look at problem files, and clean them, before training on them.", no_args_is_help=True)
app.command()(difficulty)
app.command()(select)


@app.callback()
def data() -> None:
    """Look at problem files, and clean them, before training on them."""


@app.command()
def check(
    file: File, question_key: QuestionKey = None, answer_key: AnswerKey = None, answer_from: AnswerFrom = "auto"
) -> None:
    """Report gold answers that the verifier cannot read, with their lines; exit code 1 when there are any."""
    from ansatz.rewards.math_answer.gold import unreadable_golds

    rows = 0

    def problems() -> Iterator[Problem]:
        nonlocal rows
        for _, problem in rows_of(file, question_key, answer_key, answer_from):
            rows += 1
            yield problem

    found = unreadable_golds(with_progress(problems(), "check"))
    for gold in found:
        print(f"{file}:{gold.line}: {gold.id}: {gold.why}")
    print(f"{rows} problems, {len(found)} gold answers that cannot be read")
    raise typer.Exit(code=1 if found else 0)


@app.command()
def peek(
    file: File,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with a tokenizer: lengths in its tokens.")] = None,
    show: Annotated[int, typer.Option(help="Suspicious rows to print.")] = 20,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Print what FILE holds: rows, lengths, kinds of answer, levels, and rows to look at."""
    from ansatz.data.hygiene.peek import QUANTILES
    from ansatz.data.hygiene.peek import peek as look

    length = None
    if tokenizer is not None:
        from ansatz.models.token_counts import token_counter

        length = token_counter(tokenizer)
    pairs = rows_of(file, question_key, answer_key, answer_from, id_key)
    found = look((problem for _, problem in with_progress(pairs, "peek")), length=length)
    unit = "words" if tokenizer is None else "tokens"
    print(f"{found.rows} problems")
    for name, lengths in (("question", found.question_lengths), ("solution", found.solution_lengths)):
        shown = ", ".join(f"{share:.0%} {value}" for share, value in zip(QUANTILES, lengths, strict=False))
        print(f"{name}, {unit} by quantile: {shown or 'none'}")
    for name, counts in (("answers", found.answer_kinds), ("levels", found.levels)):
        shown = ", ".join(f"{kind} {count}" for kind, count in counts.most_common(12))
        print(f"{name}: {shown}" + (f", and {len(counts) - 12} more" if len(counts) > 12 else ""))
    print(f"suspicious: {len(found.suspicious)}")
    for line, problem_id, why in found.suspicious[:show]:
        print(f"  line {line}: {problem_id}: {why}")


@app.command()
def dedup(
    file: File,
    out: Out,
    threshold: Annotated[float, typer.Option(help="Overlap from which questions are near twins, 0.6 to 1.")] = 0.8,
    ngram: Annotated[int, typer.Option(help="Words in a row that overlap is counted in.")] = 3,
    near: Annotated[bool, typer.Option(help="Near twins too, or exact ones alone.")] = True,
    embeddings: Annotated[
        str | None, typer.Option(help="A folder with a sentence-transformers model: twins in other words too.")
    ] = None,
    min_cosine: Annotated[float, typer.Option(help="Cosine from which embeddings are twins, 0.85 to 1.")] = 0.95,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop questions that came before: the same text, or nearly the same with the same numbers and answer."""
    from ansatz.data.hygiene.dedup import Dedup
    from ansatz.data.hygiene.embeddings import Embedded, sentence_encoder

    embedded = Embedded(sentence_encoder(embeddings), threshold=min_cosine) if embeddings else None
    seen = Dedup(threshold=threshold, ngram=ngram, near=near, embedded=embedded)
    pairs = rows_of(file, question_key, answer_key, answer_from, id_key)

    def judge(problem: Problem) -> dict[str, Any] | None:
        twin = seen.twin(problem)
        return twin and twin._asdict()

    settings: dict[str, Any] = {"threshold": threshold, "ngram": ngram, "near": near}
    if embedded is not None:
        settings |= {"embeddings": embeddings, "min_cosine": min_cosine}
        pairs = embedded.reading_ahead(pairs)
    run_row_filter("dedup", pairs, judge, file, out, settings)


@app.command()
def decontaminate(
    file: File,
    out: Out,
    against: Annotated[list[Path], typer.Option(help="A test file; may be given several times.")],
    ngram: Annotated[int, typer.Option(help="Words in a row that may not be shared.")] = 10,
    min_frac: Annotated[float, typer.Option(help="Drop only rows that hold this part of a test text, 0 to 1.")] = 0.0,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop questions that share words in a row with a test question, and say whether the answers agree."""
    from ansatz.data.hygiene.decontaminate import BenchmarkTexts
    from ansatz.errors import ConfigError

    if not 0 <= min_frac <= 1:
        raise ConfigError(f"--min-frac = {min_frac}, expected 0 to 1.")
    tests = BenchmarkTexts((problem for path in against for _, problem in rows_of(path)), ngram=ngram)

    def judge(problem: Problem) -> dict[str, Any] | None:
        overlap = tests.overlap(problem, min_frac=min_frac)
        return overlap and overlap._asdict()

    settings = {"against": [str(path) for path in against], "ngram": ngram, "min_frac": min_frac}
    settings |= {"test_problems": len(tests), "test_problems_too_short": tests.too_short}
    run_row_filter(
        "decontaminate", rows_of(file, question_key, answer_key, answer_from, id_key), judge, file, out, settings
    )


@app.command("filter")
@takes_sampling(template=GUESS, max_response_tokens=24)
def filter_rows(
    file: File,
    out: Out,
    *,
    sampling: ModelSampling,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="multiple_choice, true_false, proof or guessed (needs --model); may be given several times. "
            "All that can be told if not given."
        ),
    ] = None,
    max_words: Annotated[int | None, typer.Option(help="Drop questions with more words than this.")] = None,
    max_question_tokens: Annotated[
        int | None, typer.Option(min=1, help="Drop questions with more tokens than this (needs --tokenizer).")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with a tokenizer.")] = None,
    model: Annotated[Path | None, typer.Option(help="The model that guesses, for --drop guessed.")] = None,
    work: Work = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop what a final answer cannot pay for: choices, yes or no, proofs, what is guessed, and too long questions."""
    from ansatz.data.hygiene.filters import FILTERS, why_dropped

    chosen, guessing = _filters(drop, tuple(FILTERS), model)
    too_many = _longer_than(max_question_tokens, tokenizer)

    def by_text(problem: Problem) -> str | None:
        why = why_dropped(problem, drop=chosen, max_words=max_words)
        return "too_long" if why is None and too_many(problem.question) else why

    keys = (question_key, answer_key, answer_from, id_key)
    settings: dict[str, Any] = {"drop": list(drop or chosen), "max_words": max_words}
    if tokenizer is not None:
        settings |= {"max_question_tokens": max_question_tokens, "tokenizer": str(tokenizer)}
    right: dict[str, int] = {}
    if guessing:
        assert model is not None
        asked = [problem for _, problem in rows_of(file, *keys) if by_text(problem) is None]
        folder = responses_folder(work, out)
        right = _guessed(folder, model, asked, sampling, file) if asked else {}
        settings |= {"model": str(model), "guesses": sampling.options.samples_per_prompt, "responses": str(folder.path)}

    def judge(problem: Problem) -> dict[str, Any] | None:
        why = by_text(problem)
        if why is None and right.get(problem.id):
            return {"kind": "guessed", "right": right[problem.id]}
        return {"kind": why} if why else None

    run_row_filter("filter", rows_of(file, *keys), judge, file, out, settings)


def _longer_than(limit: int | None, tokenizer: Path | None) -> Callable[[str], bool]:
    """Whether a text has more tokens than the limit; False for all where there is none."""
    from ansatz.errors import ConfigError

    if (limit is None) != (tokenizer is None):
        raise ConfigError("--max-question-tokens and --tokenizer go together: give both or none.")
    if limit is None or tokenizer is None:
        return lambda text: False
    from ansatz.models.token_counts import token_counter

    count = token_counter(tokenizer)
    return lambda text: count(text) > limit


def _filters(drop: list[str] | None, by_text: tuple[str, ...], model: Path | None) -> tuple[tuple[str, ...], bool]:
    """The filters that read the text, and whether the model is asked too."""
    from ansatz.errors import ConfigError

    if drop is None:
        return by_text, model is not None
    if ("guessed" in drop) != (model is not None):
        raise ConfigError("--drop guessed and --model go together: give both or none.")
    return tuple(name for name in drop if name != "guessed"), model is not None


def _guessed(
    folder: ResponseStore, model: Path, problems: list[Problem], sampling: ModelSampling, file: Path
) -> dict[str, int]:
    from ansatz.evaluate.answer_only import answer_only_grader
    from ansatz.prompts.answer_only import render_guess

    sample_into(
        folder,
        model,
        problems,
        sampling,
        about={"data": str(file)},
        source=str(file),
        to_prompt=render_guess,
        make_grader=answer_only_grader,
    )
    return correct_responses(folder, "guess")


@app.command()
def split(
    file: File,
    out: Annotated[Path, typer.Option(help="Where the training rows are written, as JSONL.")],
    heldout: Annotated[Path, typer.Option(help="Where the held-out rows are written, as JSONL.")],
    share: Annotated[float, typer.Option(help="Expected part of all rows that is held out.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    by: Annotated[str, typer.Option(help="question (equal ones fall on one side) or id.")] = "question",
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Part FILE in two by a hash of each question, so that a row's side does not depend on the other rows."""
    from ansatz.data.hygiene.report import history
    from ansatz.data.hygiene.row_filter import split_rows
    from ansatz.data.hygiene.split import held_out

    pairs = with_progress(rows_of(file, question_key, answer_key, answer_from, id_key), "split")
    about = {"verb": "split", "file": str(file), "share": share, "seed": seed, "by": by, "before": history(file)}
    kept, held = split_rows(pairs, lambda one: held_out(one, share=share, seed=seed, by=by), out, heldout, about=about)
    print(f"{kept} rows in {out}, {held} rows in {heldout}")

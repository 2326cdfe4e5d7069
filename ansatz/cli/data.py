"""`ansatz data ...`: looking at problem files, and cleaning them, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from ansatz.data.rows import Row
    from ansatz.types import Problem

app = typer.Typer(help="Look at problem files, and clean them, before training on them.", no_args_is_help=True)

T = TypeVar("T")
File = Annotated[Path, typer.Argument(help="A problem file: .jsonl, .json, .csv, .tsv or .parquet.")]
Out = Annotated[Path, typer.Option(help="Where the rows that stay are written, as JSONL; the report stands beside it.")]
QuestionKey = Annotated[
    str | None, typer.Option(help="Field of the question; dots go into nested fields. Recognised if not given.")
]
AnswerKey = Annotated[str | None, typer.Option(help="Field of the answer. Recognised if not given.")]
AnswerFrom = Annotated[
    str, typer.Option(help="auto, field, #### (what follows it) or boxed (the last box): where the answer stands.")
]
IdKey = Annotated[str | None, typer.Option(help="Field of the id; file and line if not given.")]


@app.callback()
def data() -> None:
    """Look at problem files, and clean them, before training on them."""


@app.command()
def check(
    file: File, question_key: QuestionKey = None, answer_key: AnswerKey = None, answer_from: AnswerFrom = "auto"
) -> None:
    """Report gold answers that the verifier cannot read, with their lines; exit code 1 when there are any."""
    from ansatz.rewards.math_answer.gold import unreadable_golds

    rows = [problem for _, problem in _pairs(file, question_key, answer_key, answer_from)]
    found = unreadable_golds(_watched(rows, "check"))
    for gold in found:
        print(f"{file}:{gold.line}: {gold.id}: {gold.why}")
    print(f"{len(rows)} problems, {len(found)} gold answers that cannot be read")
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
    pairs = _pairs(file, question_key, answer_key, answer_from, id_key)
    found = look((problem for _, problem in _watched(pairs, "peek")), length=length)
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
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop questions that came before: the same text, or nearly the same with the same numbers and answer."""
    from ansatz.data.hygiene.dedup import Dedup

    seen = Dedup(threshold=threshold, ngram=ngram, near=near)

    def judge(problem: Problem) -> dict[str, Any] | None:
        twin = seen.twin(problem)
        return twin and twin._asdict()

    settings = {"threshold": threshold, "ngram": ngram, "near": near}
    _sift("dedup", _pairs(file, question_key, answer_key, answer_from, id_key), judge, file, out, settings)


@app.command()
def decontaminate(
    file: File,
    out: Out,
    against: Annotated[list[Path], typer.Option(help="A test file; may be given several times.")],
    ngram: Annotated[int, typer.Option(help="Words in a row that may not be shared.")] = 10,
    min_share: Annotated[float, typer.Option(help="Drop only rows that hold this part of a test text, 0 to 1.")] = 0.0,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop questions that share words in a row with a test question, and say whether the answers agree."""
    from ansatz.data.hygiene.decontaminate import BenchmarkTexts
    from ansatz.errors import ConfigError

    if not 0 <= min_share <= 1:
        raise ConfigError(f"--min-share = {min_share}, expected 0 to 1.")
    tests = BenchmarkTexts((problem for path in against for _, problem in _pairs(path)), ngram=ngram)

    def judge(problem: Problem) -> dict[str, Any] | None:
        overlap = tests.overlap(problem, min_share=min_share)
        return overlap and overlap._asdict()

    settings = {"against": [str(path) for path in against], "ngram": ngram, "min_share": min_share}
    settings |= {"test_problems": len(tests), "test_problems_too_short": tests.too_short}
    _sift("decontaminate", _pairs(file, question_key, answer_key, answer_from, id_key), judge, file, out, settings)


@app.command("filter")
def filter_rows(
    file: File,
    out: Out,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="multiple_choice, true_false or proof; may be given several times. All if not given."),
    ] = None,
    max_words: Annotated[int | None, typer.Option(help="Drop questions with more words than this.")] = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Drop problems that cannot be paid for by their final answer: choices, yes or no, proofs, and too long ones."""
    from ansatz.data.hygiene.filters import FILTERS, why_dropped

    chosen = tuple(drop or FILTERS)

    def judge(problem: Problem) -> dict[str, Any] | None:
        why = why_dropped(problem, drop=chosen, max_words=max_words)
        return {"kind": why} if why else None

    settings = {"drop": list(chosen), "max_words": max_words}
    _sift("filter", _pairs(file, question_key, answer_key, answer_from, id_key), judge, file, out, settings)


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
    from ansatz.data.hygiene.sift import divide
    from ansatz.data.hygiene.split import held_out

    pairs = _watched(_pairs(file, question_key, answer_key, answer_from, id_key), "split")
    kept, held = divide(pairs, lambda one: held_out(one, share=share, seed=seed, by=by), out, heldout)
    print(f"{kept} rows in {out}, {held} rows in {heldout}")


def _pairs(
    file: Path,
    question_key: str | None = None,
    answer_key: str | None = None,
    answer_from: str = "auto",
    id_key: str | None = None,
) -> Iterator[tuple[Row, Problem]]:
    from ansatz.data.files import source_name
    from ansatz.data.formats import open_rows
    from ansatz.data.rows import Reading, rows_with_problems

    reading = Reading(question=question_key, answer=answer_key, answer_from=answer_from, id=id_key)
    return rows_with_problems(open_rows(file), reading, source=source_name(file))


def _sift(verb: str, pairs: Iterable[Any], judge: Any, file: Path, out: Path, settings: dict[str, Any]) -> None:
    from ansatz.data.hygiene.sift import report_path, sift

    report = sift(_watched(pairs, verb), judge, out, about={"verb": verb, "file": str(file), **settings})
    kinds = ", ".join(f"{kind} {count}" for kind, count in report["kinds"].items())
    counts = ", ".join(f"{report[part]} {part}" for part in ("rows", "kept", "dropped"))
    print(counts + (f" ({kinds})" if kinds else ""))
    print(f"kept rows: {out}; report: {report_path(out)}")


def _watched(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a count on stderr while they pass, where a person is there to see it."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, description=what)

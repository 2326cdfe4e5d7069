"""`ansatz data ...`: inspect problem files, clean them, and filter them with a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.data_filter import filter_rows, why_unreadable
from ansatz.cli.data_tag import tag
from ansatz.cli.model_filters import difficulty, select
from ansatz.cli.option_groups import RowFields, takes_fields
from ansatz.cli.outputs import check_outputs
from ansatz.cli.rows import Files, Out, history_of, named, results_of, rows_of, run_row_filter, with_progress
from ansatz.cli.sampling_options import check_needed
from ansatz.errors import ConfigError
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.data.conflicts import GoldsByQuestion
    from ansatz.data.rows import Row
    from ansatz.data.unfit import RowError, UnfitRow
    from ansatz.types import Problem

app = typer.Typer(
    help="Inspect and clean problem files before training on them.", no_args_is_help=True, add_completion=False
)
app.command()(difficulty)
app.command()(select)
app.command("filter")(filter_rows)
app.command()(tag)


@app.callback()
def data() -> None:
    """Inspect and clean problem files before training on them."""


@app.command()
@takes_fields(without=["id_key"])
def check(
    files: Files,
    out: Annotated[Path | None, typer.Option(help="JSONL file for the rows that cannot be used.")] = None,
    *,
    fields: RowFields,
) -> None:
    """List the rows that cannot be used: a missing field, a gold answer that the verifier cannot read, or tests of code
    that could be forged.

    Each is printed with its gold answer; exit code 1 if there are any. `ansatz data filter --drop unreadable` writes a
    file without them.
    """
    from ansatz.data.conflicts import GoldsByQuestion
    from ansatz.data.files import replacing
    from ansatz.data.hygiene.row_filter import json_line
    from ansatz.data.unfit import collect_lost
    from ansatz.rewards.exact_json import golds_are_json

    check_outputs([out], inputs=files)
    num_rows, num_text, num_marked, num_json = 0, 0, 0, 0
    unfit: list[UnfitRow] = []
    golds = GoldsByQuestion(_same)
    with collect_lost() as lost:
        for row, result in with_progress(results_of(files, fields), "check"):
            num_rows += 1
            unfit_row, as_text = _check_row(row, result)
            num_marked += _is_marked(result)
            num_text += as_text
            if unfit_row is not None:
                unfit.append(unfit_row)
            if not isinstance(result, Exception):
                golds.add(result)
                num_json += golds_are_json(result)
    for unfit_row in unfit:
        say(unfit_row)
    if out is not None:
        with replacing(out) as file:
            file.writelines(json_line(unfit_row._asdict()) for unfit_row in unfit)
    say(f"{num_rows} problems, {len(unfit)} cannot be used, {num_text} gold answers are compared as text")
    if num_json:
        say(f"{num_json} gold answers are JSON, which the reward exact_json compares and math_answer does not")
    _say_marked(num_marked)
    _say_lost(lost, num_rows, golds)
    raise typer.Exit(code=1 if unfit else 0)


def _is_marked(result: Problem | RowError) -> bool:
    """Return whether a text of the problem holds something that looks like a special token."""
    from ansatz.special_tokens import has_marker

    if isinstance(result, Exception):
        return False
    said = [turn.get("content") or "" for turn in (*result.earlier_turns, *result.response_turns)]
    return any(map(has_marker, (result.question, result.answer, result.solution or "", *map(str, said))))


def _say_marked(count: int) -> None:
    if count:
        say(f"{count} have text such as <|im_end|>, which is encoded as plain text where it is a special token")


def _same(answer: str, gold: str) -> bool:
    """Return whether two gold answers are the same text, or the verifier calls them equal."""
    from ansatz_verify.grade import equivalent

    from ansatz.data.hygiene.normalize import same_answer

    return same_answer(answer, gold) or equivalent(gold, answer).correct


def _say_lost(lost: Mapping[str, int], num_rows: int, golds: GoldsByQuestion) -> None:
    from ansatz.data.unfit import describe_lost

    for sentence in filter(None, (describe_lost(lost, total=num_rows), golds.sentence())):
        say(sentence)


def _check_row(row: Row, result: Problem | RowError) -> tuple[UnfitRow | None, bool]:
    """Return why the row cannot be used, or None; and whether its gold answer is compared as text."""
    from ansatz_verify.parse import parse_gold
    from ansatz_verify.values import Text

    from ansatz.data.unfit import RowError, UnfitRow, short
    from ansatz.rewards.code_forms import has_tests
    from ansatz.rewards.exact_json import golds_are_json

    if isinstance(result, RowError):
        return result.row, False
    if why := why_unreadable(result):
        return UnfitRow(row.place, why, short(result.answer)), False
    if has_tests(result.meta) or golds_are_json(result):
        return None, False
    return None, any(isinstance(parse_gold(gold).value, Text) for gold in result.answers)


@app.command()
@takes_fields()
def peek(
    files: Files,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A model, whose tokenizer then counts lengths in tokens.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Number of suspicious rows to print.")] = 20,
    rows: Annotated[int, typer.Option(min=0, help="Number of rows to print in full, from the first.")] = 2,
    template: Annotated[
        str, typer.Option(help="With --tokenizer: the prompt template of the first row, as in `ansatz eval`.")
    ] = "auto",
    *,
    fields: RowFields,
    command_line: typer.Context,
) -> None:
    """Summarise problem files: rows, lengths, kinds of answer, levels, and suspicious rows."""
    from ansatz.data.conflicts import GoldsByQuestion
    from ansatz.data.hygiene.peek import QUANTILES, summarize
    from ansatz.data.unfit import collect_lost

    check_needed(command_line, template=["tokenizer"])
    length = None
    if tokenizer is not None:
        from ansatz.models.token_counts import token_counter

        length = token_counter(tokenizer)
    unfit: list[UnfitRow] = []
    marked, golds = Counter[bool](), GoldsByQuestion(_same)
    results = with_progress(results_of(files, fields), "peek")
    problems = _look_through(results, unfit=unfit, marked=marked, golds=golds, num_printed=rows)
    with collect_lost() as lost:
        summary = summarize(problems, length=length, same=_same)
    if tokenizer is not None:
        _say_rendered(files, fields, tokenizer, template)
    unit = "words" if tokenizer is None else "tokens"
    say(f"{summary.rows} problems")
    for name, lengths in (("question", summary.question_lengths), ("solution", summary.solution_lengths)):
        shown = ", ".join(f"{quantile:.0%} {value}" for quantile, value in zip(QUANTILES, lengths, strict=False))
        say(f"{name}, {unit} by quantile: {shown or 'none'}")
    tables = {"answers": summary.answer_kinds, "levels": summary.levels}
    tables |= {"subjects": summary.subjects, "sources": summary.sources}
    for name, counts in tables.items():
        shown = ", ".join(f"{kind} {count}" for kind, count in counts.most_common(12))
        say(f"{name}: {shown}" + (f", and {len(counts) - 12} more" if len(counts) > 12 else ""))
    _say_marked(marked[True])
    _say_lost(lost, summary.rows + len(unfit), golds)
    say(f"suspicious: {len(summary.suspicious)}")
    for line, problem_id, reason in summary.suspicious[:show]:
        say(f"  line {line}: {problem_id}: {reason}")
    if unfit:
        say(f"cannot be read: {len(unfit)}; ansatz data filter --drop unreadable leaves them out")
        for unfit_row in unfit[:show]:
            say(f"  {unfit_row}")


def _say_rendered(files: Files, fields: RowFields, model: Path, given: str) -> None:
    """Print the first problem as a policy would get it, and its solution as SFT would teach it."""
    from ansatz.cli.opened_model import template_of
    from ansatz.config.chat import AUTO
    from ansatz.errors import ModelError
    from ansatz.loop.model_recipe import choose_template
    from ansatz.models.load import load_tokenizer
    from ansatz.prompts.render import render, render_demonstration, show_demonstration, show_prompt

    reader = load_tokenizer(model)
    template, why = template_of(given), "--template"
    if template == AUTO:
        template, why = choose_template(model, has_chat_template=bool(reader.chat_template))
    problem = next((result for _, result in results_of(files, fields) if not isinstance(result, Exception)), None)
    if problem is None:
        return
    try:
        text = show_prompt(render(problem, template, reader), reader)
        if problem.solution is not None:
            text += "\n" + show_demonstration(render_demonstration(problem, template, reader), reader)
    except ModelError as error:
        text = f"problem {problem.id!r} cannot be rendered: {error}"
    say(f"In the prompt template {template} ({why}), the first {text}\n")


def _look_through(
    results: Iterator[tuple[Row, Problem | RowError]],
    *,
    unfit: list[UnfitRow],
    marked: Counter[bool],
    golds: GoldsByQuestion,
    num_printed: int,
) -> Iterator[Problem]:
    """Yield the problems; the first ones are printed as they are read. Rows that have none are appended to `unfit`.

    marked: counts the problems by whether a text looks like a special token. golds: remembers their gold answers.
    """
    for _, problem in results:
        if isinstance(problem, Exception):
            unfit.append(problem.row)
            continue
        marked[_is_marked(problem)] += 1
        golds.add(problem)
        if marked.total() <= num_printed:
            say(problem.id)
            for turn in problem.earlier_turns:
                say(f"  {turn['role']}: {turn['content']}")
            say(f"  question: {problem.question}\n  answer: {' or '.join(problem.answers)}")
            say(f"  solution: {problem.solution or 'none'}\n")
        yield problem


@app.command()
@takes_fields()
def dedup(
    files: Files,
    out: Out,
    threshold: Annotated[float, typer.Option(help="Overlap from which questions are near duplicates, 0.6 to 1.")] = 0.8,
    ngram: Annotated[int, typer.Option(help="Words per n-gram for the overlap.")] = 3,
    near: Annotated[bool, typer.Option(help="Also drop near duplicates, or only exact ones.")] = True,
    embeddings: Annotated[
        str | None, typer.Option(help="A sentence-transformers model, a folder or of the hub; also drops paraphrases.")
    ] = None,
    min_cosine: Annotated[float, typer.Option(help="Cosine from which questions are paraphrases, 0.85 to 1.")] = 0.95,
    *,
    fields: RowFields,
    command_line: typer.Context,
) -> None:
    """Drop repeated questions: the same text, or nearly the same text with the same numbers and answer."""
    from ansatz.data.hygiene.dedup import Dedup
    from ansatz.data.hygiene.embeddings import EmbeddingIndex, sentence_encoder

    check_needed(command_line, min_cosine=["embeddings"])
    check_outputs([out], inputs=files, reports=True)

    index = EmbeddingIndex(sentence_encoder(embeddings), threshold=min_cosine) if embeddings else None
    seen = Dedup(threshold=threshold, ngram=ngram, near=near, embeddings=index)
    pairs = rows_of(files, fields)

    def reject(problem: Problem) -> dict[str, Any] | None:
        duplicate = seen.find(problem)
        return duplicate and duplicate._asdict()

    settings: dict[str, Any] = {"threshold": threshold, "ngram": ngram, "near": near}
    if index is not None:
        settings |= {"embeddings": embeddings, "min_cosine": min_cosine}
        pairs = index.encode_ahead(pairs)
    run_row_filter("dedup", pairs, reject, files, out, settings)


@app.command()
@takes_fields()
def decontaminate(
    files: Files,
    out: Out,
    against: Annotated[list[Path], typer.Option(help="A test file; can be repeated.")],
    rule: Annotated[
        str, typer.Option(help="weighted (near-copies, by rare trigrams) or ngram (any run of --n words in common).")
    ] = "weighted",
    n: Annotated[int | None, typer.Option("--n", help="Words per run of the rule ngram; 10 by default.")] = None,
    min_frac: Annotated[float, typer.Option(help="Keep rows with less than this fraction of a test question.")] = 0.0,
    *,
    fields: RowFields,
) -> None:
    """Drop questions that are copies, reworded copies or paraphrases of test questions; the files are read twice.

    --rule ngram --n 10 drops questions that share a run of 10 words with a test question, or are equal to one of fewer.
    """
    from ansatz.data.hygiene.decontaminate import SHORTEST, BenchmarkTexts, NgramTexts

    check_outputs([out], inputs=[*files, *against], reports=True)
    if not 0 <= min_frac <= 1:
        raise ConfigError(f"--min-frac = {min_frac}, expected 0 to 1.")
    if rule not in ("weighted", "ngram"):
        raise ConfigError(f"--rule {rule!r} is unknown, expected weighted or ngram.")
    if n is not None and rule == "weighted":
        raise ConfigError(f"--n {n} has no effect with --rule weighted, which compares trigrams. Add --rule ngram.")
    problems = (problem for path in against for _, problem in rows_of(path))
    if rule == "ngram":
        tests = NgramTexts(problems, ngram=10 if n is None else n)
    else:
        tests = BenchmarkTexts(problems)
        for _, problem in with_progress(rows_of(files, fields), "decontaminate: count words"):
            tests.count(problem)

    def reject(problem: Problem) -> dict[str, Any] | None:
        overlap = tests.overlap(problem, min_frac=min_frac)
        return overlap and overlap._asdict()

    settings: dict[str, Any] = {"against": [str(path) for path in against], "rule": rule, "ngram": tests.ngram}
    settings |= {"min_frac": min_frac, "test_problems": len(tests), "test_problems_too_short": tests.too_short}
    run_row_filter("decontaminate", rows_of(files, fields), reject, files, out, settings)
    if tests.too_short:
        say(f"{tests.too_short} of {len(tests)} test questions have fewer than {SHORTEST} words and were not compared")


@app.command()
@takes_fields()
def split(
    files: Files,
    out: Annotated[Path, typer.Option(help="JSONL file for the training rows.")],
    heldout: Annotated[Path, typer.Option(help="JSONL file for the held-out rows.")],
    heldout_frac: Annotated[float, typer.Option(help="Expected fraction of the rows that is held out.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    by: Annotated[str, typer.Option(help="question (equal questions stay together) or id.")] = "question",
    *,
    fields: RowFields,
) -> None:
    """Split the rows in two by a hash of each question, so that a row's side does not depend on the other rows."""
    from ansatz.data.hygiene.row_filter import held_out, split_rows

    check_outputs([out, heldout], inputs=files, reports=True)

    pairs = with_progress(rows_of(files, fields), "split")
    settings: dict[str, Any] = {"heldout_frac": heldout_frac, "seed": seed, "by": by}

    about = {"verb": "split", "file": named(files), **settings, "before": history_of(files)}
    kept, held = split_rows(pairs, partial(held_out, **settings), out, heldout, about=about)
    say(f"{kept} rows in {out}, {held} rows in {heldout}")

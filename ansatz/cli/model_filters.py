"""`ansatz data difficulty` and `ansatz data select`: rate problems by a model's responses, and select responses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.option_groups import QuestionKey, RowFields, takes_fields, with_options
from ansatz.cli.outputs import check_outputs
from ansatz.cli.responses import sample_into
from ansatz.cli.rows import (
    Files,
    Model,
    Out,
    Work,
    correct_responses,
    history_of,
    named,
    response_store,
    rows_of,
    with_progress,
)
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.errors import ConfigError
from ansatz.visible import say


@takes_fields()
@takes_sampling()
def difficulty(
    files: Files,
    out: Out,
    model: Model,
    *,
    sampling: ModelSampling,
    min_rate: Annotated[float, typer.Option(help="Drop rows with a lower pass rate.")] = 0.0,
    max_rate: Annotated[float, typer.Option(help="Drop rows with a higher pass rate.")] = 1.0,
    work: Work = None,
    fields: RowFields,
) -> None:
    """Write each row with its pass rate: the fraction of MODEL's responses that are correct."""
    from ansatz.data.hygiene.row_filter import check_range, write_pass_rates

    check_outputs([out], inputs=files, reports=True)

    check_range(min_rate, max_rate)
    store = response_store(work, out)
    problems = [problem for _, problem in rows_of(files, fields)]
    sample_into(store, model, problems, sampling, source=named(files))
    about = {"verb": "difficulty", "min_rate": min_rate, "max_rate": max_rate, **store.settings()}
    about |= {"file": named(files), "before": history_of(files)}
    num_samples = sampling.options.samples_per_prompt
    report = write_pass_rates(
        rows_of(files, fields),
        correct_responses(store, "strict"),
        out,
        k=num_samples,
        low=min_rate,
        high=max_rate,
        about=about,
    )
    histogram = ", ".join(f"{correct} of {num_samples}: {count}" for correct, count in report["correct_of_k"].items())
    say(f"{report['rows']} rows, {report['kept']} kept, {report['dropped']} dropped")
    say(f"problems by correct responses: {histogram}")
    say(f"rows with pass_rate: {out}; responses: {store.path}")


_SELECTION: dict[str, tuple[Any, Any]] = {
    "per_prompt": (Annotated[int, typer.Option(help="Maximum number of responses to keep per problem.")], 4),
    "pick": (Annotated[str, typer.Option(help="Which responses to keep: random or shortest.")], "random"),
    "language": (Annotated[str | None, typer.Option(help="Drop responses in other languages; such as en.")], None),
    "shape": (Annotated[str | None, typer.Option(help="Drop responses without this form, such as think_boxed.")], None),
    "drop_longer_than": (Annotated[int, typer.Option(help="Drop responses of more than N tokens; 0: no limit.")], 0),
}
"""The fields of `evaluate.selection.Selection`, as options."""


def _selection_of(values: dict[str, Any], _: typer.Context) -> Any:
    from ansatz.evaluate.selection import Selection

    return Selection(**values)


@partial(with_options, name="selection", options=_SELECTION, build=_selection_of)
def select(
    responses: Annotated[
        Path,
        typer.Argument(help="A folder of `ansatz sample` or `ansatz eval`, or a file of `ansatz score`."),
    ],
    out: Out,
    *,
    selection: Any,
    mode: Annotated[str, typer.Option(help="The verdict that counts; by default strict, or the first one.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the random choice.")] = 0,
    question_key: QuestionKey = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A model whose tokenizer counts tokens, for a file without counts.")
    ] = None,
) -> None:
    """Select stored responses for SFT: correct, finished and distinct ones, a few per problem."""
    import dataclasses

    from ansatz.data.files import replacing
    from ansatz.data.hygiene.report import digest, write_data_report
    from ansatz.data.hygiene.row_filter import json_line
    from ansatz.data.hygiene.select import selection_counts
    from ansatz.evaluate.selection import read_responses, taught_rows

    check_outputs([out], inputs=[responses], reports=True)
    stored = read_responses(responses, question_key=question_key, count_tokens=_counter(tokenizer))
    if (selection.drop_longer_than or selection.pick == "shortest") and not all(response.tokens for response in stored):
        raise ConfigError(
            f"{responses}: some responses have no field `tokens`, so their lengths are unknown. Name a model whose "
            "tokenizer counts them with --tokenizer, or leave out --drop-longer-than and --pick shortest."
        )
    selected = selection.choose(with_progress(stored, "select"), seed=seed, mode=mode)
    about = {"verb": "select", "responses_of": str(responses), **dataclasses.asdict(selection), "mode": mode}
    report = {**about, "seed": seed, **selection_counts(selected)}
    with replacing(out) as file:
        file.writelines(json_line(row) for row in taught_rows(selected, stored))
    write_data_report(out, {**report, "sha256": digest(out)})
    kinds = ", ".join(f"{kind} {count}" for kind, count in report["kinds"].items())
    say(f"{report['responses']} responses, {report['kept']} kept, {report['dropped']} dropped ({kinds or 'none'})")
    say(f"{report['problems_kept']} of {report['problems']} problems have at least one; kept rows: {out}")


def _counter(tokenizer: str | None) -> Callable[[str], int] | None:
    """Return a function from a text to its number of tokens, end token included; None without a tokenizer."""
    if tokenizer is None:
        return None
    from ansatz.models.token_counts import token_counter

    count = token_counter(tokenizer)
    return lambda text: count(text) + 1

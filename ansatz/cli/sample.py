"""`ansatz sample MODEL... --data FILE`: save a model's responses to problems, with verdicts, to select from later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ansatz.cli.option_groups import RowFields, takes_fields
from ansatz.cli.responses import Models, model_names, sample_into
from ansatz.cli.rows import rows_of
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.evaluate.response_store import ResponseStore


@takes_fields()
@takes_sampling(samples_per_prompt=16)
def sample(
    models: Models,
    data: Annotated[Path, typer.Option(help="A problem file: .jsonl, .json, .csv, .tsv or .parquet.")],
    *,
    sampling: ModelSampling,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; several models: OUT/MODEL. Default: samples/MODEL/FILE.")
    ] = None,
    fields: RowFields,
) -> None:
    """Sample models' responses to each problem, grade them in all modes, and save both in OUT/rollouts.jsonl.

    The same command resumes an interrupted run and ends with the same bytes. `ansatz data select OUT` then chooses the
    responses to teach.
    """
    from ansatz.data.files import name_of_file
    from ansatz.evaluate.response_store import ResponseStore

    problems = [problem for _, problem in rows_of(data, fields)]
    for model, name in zip(models, model_names(models, trust_code=sampling.trust_code), strict=True):
        default = Path("samples") / name / name_of_file(data)
        folder = ResponseStore(default if out is None else out if len(models) == 1 else out / name)
        sample_into(folder, model, problems, sampling, source=str(data))
        say(summary(folder))


def summary(folder: ResponseStore) -> str:
    """Return how often the responses are correct, by mode."""
    from statistics import fmean

    groups = folder.responses()
    lines = [f"{folder.rollouts}: {sum(map(len, groups))} responses to {len(groups)} problems"]
    for mode in groups[0][0].verdicts:
        correct = [[response.verdicts[mode].correct for response in group] for group in groups]
        lines.append(
            f"  {mode}: {100 * fmean(map(fmean, correct)):.1f} % correct, "
            f"{100 * fmean(map(any, correct)):.1f} % of problems correct at least once"
        )
    return "\n".join(lines)

"""`ansatz sample MODEL --data FILE`: responses of a model to problems, with verdicts, kept to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ansatz.cli.rows import (
    AnswerFrom,
    AnswerKey,
    Batch,
    Device,
    Dtype,
    IdKey,
    MaxTokens,
    QuestionKey,
    Seed,
    Temperature,
    Template,
    Threads,
    TopP,
)
from ansatz.cli.sampling_options import SamplingOptions, model_name, sample_into

if TYPE_CHECKING:
    from ansatz.evaluate.response_store import ResponseStore


def sample(
    model: Annotated[Path, typer.Argument(help="A Hugging Face model folder, such as a checkpoint.")],
    data: Annotated[Path, typer.Option(help="A problem file: .jsonl, .json, .csv, .tsv or .parquet.")],
    k: Annotated[int, typer.Option(min=1, help="Responses a problem.")] = 16,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    max_tokens: MaxTokens = 0,
    template: Template = "boxed",
    seed: Seed = 0,
    batch: Batch = 32,
    device: Device = None,
    dtype: Dtype = "auto",
    threads: Threads = 0,
    out: Annotated[Path | None, typer.Option(help="Folder to write; samples/MODEL/FILE if not given.")] = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    answer_from: AnswerFrom = "auto",
    id_key: IdKey = None,
) -> None:
    """Sample k responses a problem, grade them strictly and leniently, and keep both in OUT/rollouts.jsonl.

    Run again, it goes on where it stopped and ends with the same bytes. `ansatz data select OUT` chooses from it what
    to teach.
    """
    from ansatz.data.files import source_name
    from ansatz.data.formats import open_rows
    from ansatz.data.rows import Reading, problems_of
    from ansatz.evaluate.response_store import ResponseStore

    how = SamplingOptions(
        k=k,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        template=template,
        batch=batch,
        device=device,
        dtype=dtype,
        threads=threads,
    )
    reading = Reading(question=question_key, answer=answer_key, answer_from=answer_from, id=id_key)
    problems = problems_of(open_rows(data), reading, split="all", source=source_name(data))
    folder = ResponseStore(out or Path("samples") / model_name(model) / data.name.partition(".")[0])
    sample_into(folder, model, list(problems), how, about={"data": str(data)}, of=str(data))
    print(summary(folder))


def summary(folder: ResponseStore) -> str:
    """How often the responses are right, by reading."""
    from statistics import fmean

    groups = folder.responses()
    lines = [f"{folder.rollouts}: {sum(map(len, groups))} responses to {len(groups)} problems"]
    for mode in groups[0][0].verdicts:
        right = [[one.verdicts[mode].correct for one in group] for group in groups]
        lines.append(
            f"  {mode}: {100 * fmean(map(fmean, right)):.1f} % right, "
            f"{100 * fmean(map(any, right)):.1f} % of problems right at least once"
        )
    return "\n".join(lines)

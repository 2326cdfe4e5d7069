"""`ansatz data ...`: looking at problem files without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at problem files before training on them.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Look at problem files before training on them."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A JSONL problem file.")],
    question_key: Annotated[str, typer.Option(help="Field of the question; dots go into nested fields.")] = "question",
    answer_key: Annotated[str, typer.Option(help="Field of the answer.")] = "answer",
    answer_from: Annotated[str, typer.Option(help="field, #### (what follows it) or boxed (the last box).")] = "field",
) -> None:
    """Report gold answers that the verifier cannot read, with their lines; exit code 1 when there are any."""
    from ansatz.data.jsonl import jsonl
    from ansatz.rewards.math_answer.gold import unreadable_golds

    rows = list(
        jsonl(split="all", path=str(file), question_key=question_key, answer_key=answer_key, answer_from=answer_from)
    )
    found = unreadable_golds(rows)
    for gold in found:
        print(f"{file}:{gold.line}: {gold.id}: {gold.why}")
    print(f"{len(rows)} problems, {len(found)} gold answers that cannot be read")
    raise typer.Exit(code=1 if found else 0)

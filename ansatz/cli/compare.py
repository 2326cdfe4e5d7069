"""`ansatz compare A B`: two evaluations of the same problems, compared problem by problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.outputs import check_outputs
from ansatz.config.sampling import SamplingOptions
from ansatz.errors import ConfigError
from ansatz.files import write_text


def compare(
    a: Annotated[Path, typer.Argument(help="A folder that `ansatz eval` wrote.")],
    b: Annotated[Path, typer.Argument(help="Another one, on the same suite.")],
    mode: Annotated[
        str,
        typer.Option(help="The verdict that counts: strict, anchored or last_number; by default the first that A has."),
    ] = "",
    num_changed: Annotated[int, typer.Option(min=0, help="Show the N problems that changed most.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the numbers to.")] = None,
) -> None:
    """Say whether B is better than A beyond chance, at which levels and subjects, and on which problems.

    The p-value is that of an exact sign test on the problems that differ; the interval is a bootstrap of the paired
    differences.
    """
    check_outputs([out], inputs=[file for folder in (a, b) for file in folder.glob("*")])
    numbers = compare_folders(a, b, mode=mode, num_changed=num_changed)
    if out is not None:
        write_text(out, json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")

    from rich.console import Console

    console = Console(markup=False)  # names of levels, subjects and folders can contain brackets
    for part in _tables(numbers):
        console.print(part)


def compare_folders(a: Path, b: Path, *, mode: str, num_changed: int) -> dict[str, Any]:
    """The numbers of `paired.comparison` in a mode (empty: the first one), the folders, and `warnings` about other
    differences between them."""
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.evaluate.paired import comparison, paired
    from ansatz.evaluate.scores import modes_of

    folders = [EvaluationFolder(path) for path in (a, b)]
    left, right = (folder.responses() for folder in folders)
    mode = mode or modes_of(left)[0]
    for folder, responses in zip(folders, (left, right), strict=True):
        if mode not in (modes := modes_of(responses)):
            raise ConfigError(
                f"--mode = {mode!r}: {folder.path} has verdicts of {', '.join(modes)}. Choose one of these."
            )
    pairs = paired(left, right)
    numbers = comparison(pairs, mode=mode, seed=folders[0].settings()["seed"], num_changed=num_changed)
    warnings = _differences(*(folder.settings() for folder in folders))
    if len(pairs) < max(len(left), len(right)):
        warnings.append(f"only the {len(pairs)} problems in both count; A has {len(left)}, B has {len(right)}")
    return {"folder_a": str(a), "folder_b": str(b), "mode": mode, "warnings": warnings, **numbers}


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Settings other than the model that differ and can cause a difference in scores."""
    keys = ("template", *SamplingOptions.model_fields, "dtype", "engine")
    return [f"{key}: A {a.get(key)!r}, B {b.get(key)!r}" for key in keys if a.get(key) != b.get(key)]


def _tables(numbers: Mapping[str, Any]) -> list[Any]:
    warnings = [f"Besides the model, this differs: {warning}" for warning in numbers["warnings"]]
    changed = [_changed_table(numbers["changed"])] if numbers["changed"] else []
    return [_scores_table(numbers), f"\n{_conclusion(numbers)}", *warnings, "", *changed]


def _scores_table(numbers: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"A {numbers['folder_a']}\nB {numbers['folder_b']}\npass@1 ({numbers['mode']}), %",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
    )
    for head in ("", "problems", "A", "B", "B - A [95 %]", "better A", "better B", "p"):
        table.add_column(head, justify="right" if head else "left")
    for name, row in {"all": numbers, **numbers["by_level"], **numbers["by_subject"]}.items():
        low, high = (f"{100 * end:+.1f}" for end in row["difference_interval"])
        table.add_row(
            name,
            str(row["num_problems"]),
            f"{100 * row['a']:.1f}",
            f"{100 * row['b']:.1f}",
            f"{100 * row['difference']:+.1f} [{low}, {high}]",
            str(row["wins_a"]),
            str(row["wins_b"]),
            f"{row['p_value']:.3f}",
        )
    return table


def _changed_table(rows: list[Mapping[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title="Problems that changed most", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("problem", "A", "B", "question"):
        table.add_column(head)
    for row in rows:
        question = row["question"] if len(row["question"]) <= 60 else f"{row['question'][:57]}..."
        table.add_row(row["id"], f"{row['a']:.2f}", f"{row['b']:.2f}", question)
    return table


def _conclusion(numbers: Mapping[str, Any]) -> str:
    """Interval and test must agree: with few problems the interval is too narrow, and the sign test ignores by how much
    a problem differs."""
    low, high = numbers["difference_interval"]
    if (low > 0 or high < 0) and numbers["p_value"] < 0.05:
        return f"{'B' if low > 0 else 'A'} is better: the interval of the difference excludes 0, and p < 0.05."
    return "No difference shown: that needs an interval of the difference that excludes 0, and p < 0.05."

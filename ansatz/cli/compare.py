"""`ansatz compare A B`: two evaluations on the same problems, paired problem by problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.config.sampling import SamplingOptions
from ansatz.errors import ConfigError


def compare(
    a: Annotated[Path, typer.Argument(help="A folder that `ansatz eval` wrote.")],
    b: Annotated[Path, typer.Argument(help="Another one, on the same suite.")],
    mode: Annotated[str, typer.Option(help="Which reading: strict, anchored or last_number.")] = "strict",
    most: Annotated[int, typer.Option(min=0, help="So many problems that changed most are shown.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the numbers to.")] = None,
) -> None:
    """Say whether B is better than A beyond chance, at which levels and subjects, and on which problems.

    The p-value is an exact sign test on the problems that differ; the interval is a bootstrap of paired differences.
    """
    from ansatz.evaluate.responses import MODES

    if mode not in MODES:
        raise ConfigError(f"--mode {mode!r}: expected one of {', '.join(MODES)}.")
    numbers = compare_folders(a, b, mode=mode, most=most)
    if out is not None:
        out.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    from rich.console import Console

    for part in _tables(numbers):
        Console().print(part, markup=False)


def compare_folders(a: Path, b: Path, *, mode: str, most: int) -> dict[str, Any]:
    """The numbers of `paired.comparison`, which folders they are of, and `warnings` on how the two differ."""
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.evaluate.paired import comparison, paired

    folders = [EvaluationFolder(path) for path in (a, b)]
    left, right = (folder.responses() for folder in folders)
    pairs = paired(left, right)
    numbers = comparison(pairs, mode=mode, seed=folders[0].settings()["seed"], most=most)
    warnings = _differences(*(folder.settings() for folder in folders))
    if len(pairs) < max(len(left), len(right)):
        warnings.append(f"only the {len(pairs)} problems in both count; A has {len(left)}, B has {len(right)}")
    return {"folder_a": str(a), "folder_b": str(b), "mode": mode, "warnings": warnings, **numbers}


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Settings besides the model that differ and may be the cause of a difference."""
    keys = ("template", *SamplingOptions.model_fields, "dtype")
    return [f"{key}: A {a.get(key)!r}, B {b.get(key)!r}" for key in keys if a.get(key) != b.get(key)]


def _tables(numbers: Mapping[str, Any]) -> list[Any]:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"A {numbers['folder_a']}\nB {numbers['folder_b']}\npass@1 ({numbers['mode']}), %",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
    )
    for head in ("", "problems", "A", "B", "B - A [95 %]", "better A", "better B", "p"):
        table.add_column(head, justify="left" if not head else "right")
    for name, one in {"all": numbers, **numbers["by_level"], **numbers["by_subject"]}.items():
        low, high = (f"{100 * end:+.1f}" for end in one["difference_interval"])
        table.add_row(
            name,
            str(one["num_problems"]),
            f"{100 * one['a']:.1f}",
            f"{100 * one['b']:.1f}",
            f"{100 * one['difference']:+.1f} [{low}, {high}]",
            str(one["wins_a"]),
            str(one["wins_b"]),
            f"{one['p_value']:.3f}",
        )
    changed = Table(title="Problems that changed most", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("problem", "A", "B", "question"):
        changed.add_column(head)
    for row in numbers["changed"]:
        question = row["question"] if len(row["question"]) <= 60 else f"{row['question'][:57]}..."
        changed.add_row(row["id"], f"{row['a']:.2f}", f"{row['b']:.2f}", question)
    warnings = [f"Differs besides the model: {warning}" for warning in numbers["warnings"]]
    return [table, f"\n{_verdict(numbers)}", *warnings, "", *([changed] if numbers["changed"] else [])]


def _verdict(numbers: Mapping[str, Any]) -> str:
    """Both must agree: of few problems the interval is too narrow, and the sign test does not see a win's size."""
    low, high = numbers["difference_interval"]
    if (low > 0 or high < 0) and numbers["p_value"] < 0.05:
        return f"{'B' if low > 0 else 'A'} is better: the interval of the difference leaves out 0, and p < 0.05."
    return "No difference shown: that takes an interval of the difference without 0 in it, and p < 0.05."

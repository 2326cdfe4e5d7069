"""`ansatz compare A B...`: evaluations of the same problems, compared with the first, problem by problem."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.outputs import check_outputs
from ansatz.config.sampling import SamplingOptions
from ansatz.errors import ConfigError
from ansatz.files import check_ordinary_files, write_text

if TYPE_CHECKING:
    from ansatz.evaluate.sides import Side


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B...",
            help="Runs, of which the last evaluation counts, folders that `ansatz eval` wrote, or the responses of one "
            "evaluation of a run (STAGE/evaluations/SPLIT-STEP.jsonl). Each is compared with the first.",
        ),
    ],
    mode: Annotated[
        str,
        typer.Option(
            help="The verdict that counts: strict, anchored or last_number, or reward for runs; by default the first "
            "that A has."
        ),
    ] = "",
    num_changed: Annotated[int, typer.Option(min=0, help="Show the N problems that changed most.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the numbers to.")] = None,
) -> None:
    """Say whether B is better than A beyond chance, at which levels and subjects, and on which problems.

    The p-value is that of an exact sign test on the problems that differ; the interval is a bootstrap of the paired
    differences.
    """
    if len(paths) < 2:
        raise ConfigError(f"{paths[0]} alone: a comparison needs two. Give another run or evaluation too.")
    for path in paths:
        check_ordinary_files(path)
    check_outputs([out], inputs=[file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))])
    found = compare_sides(paths, mode=mode, num_changed=num_changed)
    if out is not None:
        numbers = found[0] if len(found) == 1 else {"comparisons": found}
        write_text(out, json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")

    from ansatz.track.console import SafeConsole

    console = SafeConsole()
    for numbers in found:
        for part in _tables(numbers):
            console.print(part)


def compare_sides(paths: Sequence[Path], *, mode: str, num_changed: int) -> list[dict[str, Any]]:
    """Return each path but the first compared with the first: the numbers of `paired.comparison` in a mode (empty: the
    first one), the folders, and `warnings` about other differences. If one of the two has no stored responses,
    `missing` says so, and there are only the two scores that the runs have logged."""
    from ansatz.evaluate.sides import read_side

    first, *others = (read_side(path) for path in paths)
    return [_compare(first, other, mode=mode, num_changed=num_changed) for other in others]


def _compare(a: Side, b: Side, *, mode: str, num_changed: int) -> dict[str, Any]:
    from ansatz.evaluate.paired import comparison, paired
    from ansatz.evaluate.scores import modes_of

    names = {"folder_a": a.name, "folder_b": b.name}
    if missing := [side.missing for side in (a, b) if side.missing]:
        return {**names, "missing": missing, "rows": [side.row for side in (a, b)]}
    mode = mode or modes_of(a.responses)[0]
    for side in (a, b):
        if mode not in (modes := modes_of(side.responses)):
            raise ConfigError(
                f"--mode = {mode!r}: {side.name} has verdicts of {', '.join(modes)}. Choose one of these."
            )
    pairs = paired(a.responses, b.responses)
    numbers = comparison(pairs, mode=mode, seed=a.seed, num_changed=num_changed)
    warnings = _differences(a.settings, b.settings)
    if len(pairs) < max(len(a.responses), len(b.responses)):
        count = f"A has {len(a.responses)}, B has {len(b.responses)}"
        warnings.append(f"only the {len(pairs)} problems in both count; {count}")
    return {**names, "mode": mode, "warnings": warnings, **numbers}


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return settings other than the model that differ and can cause a difference in scores."""
    keys = ("template", *SamplingOptions.model_fields, "dtype", "engine", "rewards")
    return [f"{key}: A {a.get(key)!r}, B {b.get(key)!r}" for key in keys if a.get(key) != b.get(key)]


def _tables(numbers: Mapping[str, Any]) -> list[Any]:
    if "missing" in numbers:
        return [_tabulate_logged(numbers), "", *numbers["missing"], ""]
    warnings = [f"Besides the model, this differs: {warning}" for warning in numbers["warnings"]]
    changed = [_tabulate_changed(numbers["changed"])] if numbers["changed"] else []
    return [_tabulate_scores(numbers), f"\n{conclusion(numbers)}", *warnings, "", *changed]


def _tabulate_scores(numbers: Mapping[str, Any]) -> Any:
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


def _tabulate_logged(numbers: Mapping[str, Any]) -> Any:
    """Return what the runs have logged, side by side. A folder of `ansatz eval` has no such row."""
    from rich import box
    from rich.table import Table

    table = Table(title="pass@1, as logged, %", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("", "problems", "pass@1 [95 %]"):
        table.add_column(head, justify="right" if head else "left", overflow="fold")
    for name, row in zip((numbers["folder_a"], numbers["folder_b"]), numbers["rows"], strict=True):
        score = f"{100 * row['pass@1']:.1f}" if row else "-"
        if interval := row.get("pass@1_interval"):
            score += " [{}, {}]".format(*(f"{100 * end:.1f}" for end in interval))
        table.add_row(name, str(row.get("num_problems", "-")), score)
    return table


def _tabulate_changed(rows: list[Mapping[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(title="Problems that changed most", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("problem", "A", "B", "question"):
        table.add_column(head)
    for row in rows:
        question = row["question"] if len(row["question"]) <= 60 else f"{row['question'][:57]}..."
        table.add_row(row["id"], f"{row['a']:.2f}", f"{row['b']:.2f}", question)
    return table


def conclusion(numbers: Mapping[str, Any]) -> str:
    """Return a sentence about the difference. Interval and test must agree: with few problems the interval is too
    narrow, and the sign test ignores by how much a problem differs."""
    low, high = numbers["difference_interval"]
    if (low > 0 or high < 0) and numbers["p_value"] < 0.05:
        return f"{'B' if low > 0 else 'A'} is better: the interval of the difference excludes 0, and p < 0.05."
    return "No difference shown: that needs an interval of the difference that excludes 0, and p < 0.05."

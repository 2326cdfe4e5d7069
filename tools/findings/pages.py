"""The pages of docs/findings: one for each sweep with rows, and the index. Everything on them comes from the rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ansatz.errors import DataError
from ansatz.findings.statistics import holm
from ansatz.findings.sweep_file import SweepFile, label_of, read_sweep
from ansatz.findings.verdicts import Guard, Result, Rows, check_guards, find_changes, judge
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.sweep_rows import read_rows
from tools.findings.figures import draw_curves, draw_differences, draw_heat, draw_ratios, variance_ratios

WIDTH, FEW = 98, 5
FRACTIONS = {"exact_pass@k", "sampled_pass@1", "gain_by_level", "drop_from_peak", "lucky_answers", "exact_gain"}
"""Outcomes that are fractions or differences of fractions, which pages show in per cent and points."""
BEGIN, END = "<!-- index: written by python -m tools.findings -->", "<!-- end of the index -->"
_COMMAND = "ansatz sweep {file} --rows docs/findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sweep with rows, and what came out."""

    sweep: SweepFile
    header: Row
    raw: Sequence[Row]
    costs: Sequence[Row]
    rows: Rows
    guards: Sequence[Guard]
    results: Sequence[Result]

    @property
    def changed(self) -> list[str]:
        """Return the parts of the file that have changed since its first result."""
        return find_changes(self.sweep, self.header)


def read_finding(path: Path, experiments: Path) -> Finding:
    """Read a file of rows and its sweep file in the folder `experiments`."""
    header, raw = read_rows(path)
    file = experiments / f"{path.stem}.yaml"
    if not file.is_file():
        raise DataError(f"{path}: its sweep file {file} is missing. Restore it, or remove the rows.")
    sweep = read_sweep(file)
    rows = Rows(sweep, raw)
    guards = check_guards(sweep, rows)
    costs = read_jsonl(path.with_suffix(".cost.jsonl"))
    results = judge(sweep, rows, guards)
    return Finding(sweep=sweep, header=header, raw=raw, costs=costs, rows=rows, guards=guards, results=results)


def write_pages(folder: Path, experiments: Path) -> list[Path]:
    """Write every page and figure, and the index between its marks in README.md. Return what was written."""
    files: dict[Path, str] = {}
    for path, text in make_pages(folder, experiments).items():
        path.write_text(text, encoding="utf-8")
        files[path] = text
    return list(files)


def make_pages(folder: Path, experiments: Path) -> dict[Path, str]:
    """Return the text of every generated file, by path."""
    paths = sorted(path for path in folder.glob("*.jsonl") if not path.name.endswith(".cost.jsonl"))
    findings = [read_finding(path, experiments) for path in paths]
    files: dict[Path, str] = {}
    for finding in findings:
        figures = _figures(finding)
        files |= {folder / name: text for name, text in figures.items()}
        files[folder / f"{finding.sweep.name}.md"] = _page(finding, list(figures))
    waiting = [path for path in sorted(experiments.glob("*.yaml")) if path.stem not in {path.stem for path in paths}]
    index = folder / "README.md"
    before, _, rest = index.read_text(encoding="utf-8").partition(BEGIN)
    if END not in rest:
        raise DataError(f"{index}: the line {BEGIN!r} or the line {END!r} is missing. Restore them.")
    files[index] = f"{before}{BEGIN}\n\n{_index(findings, waiting)}\n{END}{rest.partition(END)[2]}"
    return files


def is_fraction(outcome: Mapping[str, object]) -> bool:
    """Tell whether pages show an outcome in per cent."""
    return str(outcome.get("name")).rpartition(":")[2] in FRACTIONS


def unit_of(result: Result, sweep: SweepFile) -> tuple[float, str]:
    """Return the factor with which pages show a difference, and its unit."""
    if result.rule.ratio_of_variances:
        return 1 / math.log(2), "log2 of the ratio"
    return (100.0, "points") if is_fraction(sweep.outcome_of(result.rule)) else (1.0, "difference")


def _interval(result: Result, sweep: SweepFile) -> str:
    scale, unit = unit_of(result, sweep)
    if result.interval is None:
        return "no interval"
    value, low, high = (each * scale for each in (result.interval.value, result.interval.low, result.interval.high))
    return f"{value:+.3g} [{low:+.3g}, {high:+.3g}] {unit}"


def _verdict(result: Result, finding: Finding) -> str:
    """Return the verdict with what weakens it."""
    few = f", from {len(result.values)} of at least {FEW} blocks" if len(result.values) < FEW else ""
    return f"{result.verdict}{few}" + (" (*exploratory*)" if finding.changed else "")


def _index(findings: Sequence[Finding], waiting: Sequence[Path]) -> str:
    entries = [(finding, result) for finding in findings for result in finding.results]
    p_values = [1.0 if result.interval is None else result.interval.p for _, result in entries]
    lines: list[str] = []
    for (finding, result), p, corrected in zip(entries, p_values, holm(p_values), strict=True):
        part = f" ({result.rule.name})" if result.rule.name else ""
        text = f"[{finding.sweep.claim.text}]({finding.sweep.name}.md){part} **{_verdict(result, finding)}**: "
        text += f"{_interval(result, finding.sweep)}, n = {len(result.values)}, p = {p:.2g}, Holm {corrected:.2g}."
        lines.append(_item(text))
    number = f"{len(entries)} verdict" + "s" * (len(entries) != 1)
    lines += ["", f"With {number} at 95 %, about {0.05 * len(entries):.1g} are wrong by chance.", ""]
    lines += ["**Registered, and not run yet:**", ""]
    lines += [_item(f"`{path.stem}`: {read_sweep(path).claim.text}") for path in waiting] or ["none"]
    return "\n".join(lines) + "\n"


def _page(finding: Finding, figures: Sequence[str]) -> str:
    sweep = finding.sweep
    parts = [f"# {sweep.claim.text or sweep.name}", *_sources(sweep)]
    for result in finding.results:
        part = f"{result.rule.name}: " if result.rule.name else ""
        parts.append(_fill(f"**{part}{_verdict(result, finding)}.** {_explain(result, finding)}"))
    if finding.changed:
        listed = ", ".join(finding.changed)
        parts.append(_fill(f"*Exploratory*: changed since the first result was registered: {listed}."))
    if figures:
        origins = "*[Commit and processor](../../notes/origins.md) are at the end of this page.*"
        parts.append("\n".join([*(f"![{name}]({name})" for name in figures), origins]))
    parts += ["## Arms", _arms(finding)]
    if sweep.guards:
        parts += ["## Guards", _guards(finding)]
    parts += ["## How it was made", *_say_how(finding)]
    parts.append("<!-- No test executes the commands of this page: they take hours of CPU time. -->")
    return "\n\n".join(parts) + "\n"


def _sources(sweep: SweepFile) -> Iterable[str]:
    for source in sweep.claim.sources:
        section = f", {source.section}" if source.section else ""
        yield _fill(f"Source: {source.document}{section}." + (f" {source.figures}." if source.figures else ""))


def _explain(result: Result, finding: Finding) -> str:
    rule, sweep = result.rule, finding.sweep
    scale, unit = unit_of(result, sweep)
    outcome = label_of(sweep.outcome_of(rule))
    text = f"{result.title} in `{outcome}`: {_interval(result, sweep)}, n = {len(result.values)}. Claimed: "
    claimed = {"greater": "above 0", "less": "below 0", "equal": f"within {rule.delta * scale:g}"}[rule.direction]
    text += f"{claimed}; a difference that matters: {rule.delta * scale:.3g} {unit}."
    if len(set(result.title.split(" - "))) == 1 and rule.difference[1:]:
        text += " The best arm is the same on both sides, so nothing is left to differ."
    if result.verdict == "undecided":
        text += f" About {result.needed} blocks would decide." if result.needed else ""
    failed = [guard for guard in finding.guards if not guard.passed]
    if failed:
        text += " Guards that failed: " + ", ".join(f"{guard.name} in {guard.arm}" for guard in failed) + "."
    return text + "".join(f" No difference in {each}." for each in result.missing)


def _arms(finding: Finding) -> str:
    """Return the table of the arms: keys that differ, and the mean and range of the outcome."""
    sweep, rows = finding.sweep, finding.rows
    scale = 100.0 if is_fraction(sweep.outcome) else 1.0
    label = label_of(sweep.outcome) + (" in %" if scale == 100 else "")
    table = [f"| arm | {label} | range | n |", "|---|---|---|---|"]
    for arm in sweep.all_arms:
        values = [value * scale for value in rows.outcomes(arm, sweep.outcome).values()]
        times = f" (x {rows.chosen[arm]:g})" if sweep.tune else ""
        numbers = f"{fmean(values):.3g} | {min(values):.3g} to {max(values):.3g}" if values else " | "
        table.append(f"| {arm}{times} | {numbers} | {len(values)} |")
    keys = [_item(f"{arm}: " + (_keys(given) or "nothing differs")) for arm, given in sweep.arms.items()]
    common = _fill(f"All arms: recipe `{sweep.recipe}` with {_keys(sweep.common) or 'no change'}.")
    return "\n".join([*table, "", *keys, *([""] if keys else []), common])


def _keys(keys: Mapping[str, object]) -> str:
    return ", ".join(f"`{key}: {value}`" for key, value in keys.items())


def _guards(finding: Finding) -> str:
    table = ["| guard | arm | mean | limits | |", "|---|---|---|---|---|"]
    for guard in finding.guards:
        value = "not measured" if guard.value is None else f"{guard.value:.3g}"
        limits = f"{guard.low:g} or more" if math.isinf(guard.high) else f"{guard.low:g} to {guard.high:g}"
        table.append(f"| {guard.name} | {guard.arm} | {value} | {limits} | {'held' if guard.passed else 'failed'} |")
    return "\n".join(table)


def _say_how(finding: Finding) -> Iterable[str]:
    def distinct(key: str) -> str:
        return ", ".join(dict.fromkeys(str(row[key]) for row in finding.raw))

    minutes = sum(float(row["cpu_s"]) for row in finding.costs) / 60
    file = str(finding.header.get("file", ""))
    yield f"```sh\n{_COMMAND.format(file=file)}\n```"
    yield _fill(
        f"{len(finding.raw)} cells on {len(finding.rows.blocks)} blocks, {minutes:.0f} CPU-minutes. Processor: "
        f"{distinct('processor')}. Commit: {distinct('commit')}. Rounding differs between processors, and a later "
        "change of the rule of noise changes every sample, so rows of other commits are not mixed with these."
    )
    ended = [row for row in finding.raw if row["status"] != "done"]
    for row in ended:
        yield _item(f"block {row['block']}, {row['arm']}: {row['status']}. {row['why']}")


def _figures(finding: Finding) -> dict[str, str]:
    """Return the figures of a page by file name."""
    sweep, rows, figures = finding.sweep, finding.rows, dict[str, str | None]()
    name = sweep.name
    if finding.results:
        units = [unit_of(result, sweep) for result in finding.results]
        figures[f"{name}.svg"] = draw_differences(finding.results, units)
    if sweep.figure.heat is not None:
        scale = 100.0 if is_fraction(sweep.outcome) else 1.0
        figures[f"{name}.heat.svg"] = draw_heat(rows, sweep.figure.heat, label_of(sweep.outcome), scale)
    pairs = next((rule.ratio_of_variances for rule in sweep.rule if rule.ratio_of_variances), None)
    if pairs is not None:
        ratios = {curve: variance_ratios(rows, curve, pairs) for curve in sweep.curves}
        figures[f"{name}.ratios.svg"] = draw_ratios(ratios)
    for number, curve in enumerate(sweep.curves, start=1) if sweep.figure.heat is None else ():
        figures[f"{name}.curve{number}.svg"] = draw_curves(rows, curve, is_fraction="pass@" in curve)
    return {file: text for file, text in figures.items() if text is not None}


def _fill(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )

"""The pages of docs/findings: one for each sweep with rows, and the index. Everything on them comes from the rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from ansatz.config.schema import FIRST_STAGES, flat_keys
from ansatz.errors import DataError
from ansatz.findings.cells import Cells
from ansatz.findings.rows import REGISTER
from ansatz.findings.sweep_file import SweepFile, label_of, read_sweep
from ansatz.findings.verdicts import (
    ACCURACIES,
    FEW,
    FRACTIONS,
    UNDECIDED,
    Guard,
    Interval,
    Result,
    Rows,
    decide,
    describe,
    find_changes,
    judge,
)
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.sweep_rows import NO_DIFFERENCE, read_rows, t_quantile
from tools.findings.figures import draw_curves, draw_differences, draw_heat, draw_ratios, variance_ratios

WIDTH, MOST_BLOCKS = 98, 200
IN_PER_CENT = {*FRACTIONS, "gain_by_level", "drop_from_peak", "exact_gain"}
"""Outcomes that are fractions or differences of fractions, which pages show in per cent and points."""
_SFT = ("sft.steps", "sft.lr", "sft.decay_steps")
INHERITED = {
    "sft": _SFT,
    "rejection": _SFT,
    "rl": ("train.steps", "train.lr", "train.updates_per_step", "rollout.prompts_per_step", "rollout.temperature"),
}
"""By stage, the settings that decide how well an arm learns, and that it takes from the recipe or from `common`."""
BEGIN, END = "<!-- index: written by python -m tools.findings -->", "<!-- end of the index -->"
_COMMAND = "ansatz sweep {file} --rows docs/findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sweep with rows, and what came out."""

    sweep: SweepFile
    header: Row
    costs: Sequence[Row]
    rows: Rows
    results: Sequence[Result]

    @property
    def changed(self) -> list[str]:
        """Return the parts of the file that have changed since its first result."""
        return find_changes(self.rows, self.header)


def read_finding(path: Path, sweeps: Path) -> Finding:
    """Read a file of rows and its sweep file in the folder `sweeps`."""
    header, raw = read_rows(path)
    file = sweeps / f"{path.stem}.yaml"
    if not file.is_file():
        raise DataError(f"{path}: its sweep file {file} is missing. Restore it, or remove the rows.")
    sweep = read_sweep(file)
    rows = Rows(sweep, raw)
    costs = read_jsonl(path.with_suffix(".cost.jsonl"))
    return Finding(sweep=sweep, header=header, costs=costs, rows=rows, results=judge(rows))


def write_pages(folder: Path, sweeps: Path) -> list[Path]:
    """Write every page and figure, and the index between its marks in README.md. Return what was written."""
    files = make_pages(folder, sweeps)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def make_pages(folder: Path, sweeps: Path) -> dict[Path, str]:
    """Return the text of every generated file, by path."""
    paths = sorted(path for path in folder.glob("*.jsonl") if not path.name.endswith((".cost.jsonl", REGISTER)))
    findings = [read_finding(path, sweeps) for path in paths]
    texts = iter(describe([result for finding in findings for result in finding.results]))
    verdicts = {
        finding.sweep.name: [next(texts) + (" (*exploratory*)" if finding.changed else "") for _ in finding.results]
        for finding in findings
    }
    files: dict[Path, str] = {}
    for finding in findings:
        figures = _figures(finding)
        files |= {folder / name: text for name, text in figures.items()}
        files[folder / f"{finding.sweep.name}.md"] = _page(finding, verdicts[finding.sweep.name], list(figures))
    waiting = [path for path in sorted(sweeps.glob("*.yaml")) if path.stem not in {path.stem for path in paths}]
    index = folder / "README.md"
    before, _, rest = index.read_text(encoding="utf-8").partition(BEGIN)
    if END not in rest:
        raise DataError(f"{index}: the line {BEGIN!r} or the line {END!r} is missing. Restore them.")
    files[index] = f"{before}{BEGIN}\n\n{_index(findings, verdicts, waiting)}\n{END}{rest.partition(END)[2]}"
    return files


def blocks_to_decide(values: Sequence[float], *, level: float, direction: str, delta: float) -> int | None:
    """Return how many blocks would decide if mean and spread stayed as they are; None if MOST_BLOCKS would not."""
    if len(values) < 2:
        return None
    mean, spread = fmean(values), stdev(values)
    for n in range(max(len(values), FEW), MOST_BLOCKS + 1):
        half = t_quantile(level, n - 1) * spread / math.sqrt(n)
        wider = Interval(value=mean, low=mean - half, high=mean + half, num_blocks=n, p_above=lambda _: 0.0)
        if decide(wider, direction=direction, delta=delta) != UNDECIDED:
            return n
    return None


def is_fraction(outcome: Mapping[str, object]) -> bool:
    """Tell whether pages show an outcome in per cent."""
    return str(outcome.get("name")).rpartition(":")[2] in IN_PER_CENT


def unit_of(result: Result, sweep: SweepFile) -> tuple[float, str]:
    """Return the factor with which pages show a difference, and its unit."""
    if result.rule.ratio_of_variances:
        return 1 / math.log(2), "log2 of the ratio"
    return (100.0, "points") if is_fraction(sweep.outcome_of(result.rule)) else (1.0, "difference")


def _interval(result: Result, sweep: SweepFile) -> str:
    scale, unit = unit_of(result, sweep)
    if result.interval is None:
        return NO_DIFFERENCE if result.values and result.only_rounding else "no interval"
    value, low, high = (each * scale for each in (result.interval.value, result.interval.low, result.interval.high))
    return f"{value:+.3g} [{low:+.3g}, {high:+.3g}] {unit}"


def _index(findings: Sequence[Finding], verdicts: Mapping[str, Sequence[str]], waiting: Sequence[Path]) -> str:
    table = ["| claim | outcome | interval | picture |", "|---|---|---|---|"]
    for finding in findings:
        sweep, named = finding.sweep, [result.rule.name + ": " * bool(result.rule.name) for result in finding.results]
        outcome = "<br>".join(f"{name}**{text}**" for name, text in zip(named, verdicts[sweep.name], strict=True))
        interval = "<br>".join(f"{_interval(result, sweep)}, n = {len(result.values)}" for result in finding.results)
        picture = f'<img src="{sweep.name}.svg" width="220" alt="Differences by block">'
        table.append(f"| {_claim(sweep, link=True)} | {outcome} | {interval} | {picture} |")
    table += [f"| {_claim(read_sweep(path))} | registered, not run | | |" for path in waiting]
    results = [result for finding in findings for result in finding.results]
    tested = sum(result.p is not None for result in results)
    text = (
        f"{tested} of the {len(results)} rules have a p, and Holm corrects for all of them. At 95 %, about "
        f"{0.05 * tested:.1g} of {tested} would be wrong by chance without the correction."
    )
    lines = [*table, "", _fill(text), "", "**Not run again** since the commit of its rows:", ""]
    for finding in findings:
        kept = finding.rows.kept
        lines.append(_item(f"`{finding.sweep.name}`: {len(kept)} cells of commit {kept[0]['commit']}."))
    return "\n".join(lines) + "\n"


def _claim(sweep: SweepFile, *, link: bool = False) -> str:
    """Return the claim with its name in the index, A1 for a1_one_rate."""
    name = sweep.name.partition("_")[0]
    short = f"{name.upper()}. " if name[1:].isdigit() else ""
    return f"{short}[{sweep.claim.text}]({sweep.name}.md)" if link else f"{short}{sweep.claim.text} (`{sweep.name}`)"


def _page(finding: Finding, verdicts: Sequence[str], figures: Sequence[str]) -> str:
    sweep = finding.sweep
    parts = [f"# {sweep.claim.text or sweep.name}", *([_fill(sweep.claim.summary)] if sweep.claim.summary else [])]
    if sweep.claim.corrected:
        parts.append(_fill(f"**Corrected.** {sweep.claim.corrected}"))
    for result, verdict in zip(finding.results, verdicts, strict=True):
        part = f"{result.rule.name}: " if result.rule.name else ""
        parts.append(_fill(f"**{part}{verdict}.** {_explain(result, finding)}"))
    if finding.changed:
        listed = ", ".join(finding.changed)
        parts.append(_fill(f"*Exploratory*: changed since the first result was registered: {listed}."))
    parts += _sources(sweep)
    if figures:
        origins = "*[Commit and processor](../../notes/origins.md) are at the end of this page.*"
        parts.append("\n".join([*(f"![{name}]({name})" for name in figures), origins]))
    parts += ["## Arms", _arms(finding)]
    guards = list(dict.fromkeys(guard for result in finding.results for guard in result.guards))
    if guards:
        parts += ["## Guards", _guards(guards)]
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
    if len({*result.arms}) == 1 and rule.difference[1:]:
        text += " The arm is the same on both sides, so nothing is left to differ."
    if result.p is not None:
        text += f" p = {result.p:.2g}, one-sided."
    if result.verdict == UNDECIDED and not rule.ratio_of_variances:
        values, how = list(result.values.values()), {"direction": rule.direction, "delta": rule.delta}
        needed = blocks_to_decide(values, level=rule.level, **how)
        text += f" About {needed} blocks would decide." if needed else ""
    failed = dict.fromkeys(guard.name for guard in result.guards if not guard.passed)
    if failed:
        text += " Guards that failed: " + ", ".join(f"`{name}`" for name in failed) + "."
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
    return "\n".join([*table, "", *keys, *([""] if keys else []), common, "", *_inherited(sweep)])


def _inherited(sweep: SweepFile) -> Iterable[str]:
    """Yield what each arm takes over in its own stages, of the settings that decide how well it learns."""
    cells, shared, arms = Cells(sweep, Path()), sweep.start.stages if sweep.start else (), dict[str, list[str]]()
    for arm, own in list(sweep.all_arms.items())[: None if sweep.arms else 1]:  # the arms of a grid give the same keys
        config = cells.cell(sweep.blocks.seeds[0], arm).config
        flat, given = flat_keys(config.model_dump()), flat_keys(own).keys()
        stages = [stage for stage in config.stage_names if stage not in (*FIRST_STAGES, *shared)]
        names = dict.fromkeys(name for stage in stages for name in INHERITED.get(stage, ()) if name not in given)
        arms.setdefault(_keys({name: flat[name] for name in names}), []).append(arm)
    for keys, names in arms.items():
        yield _item(f"Inherited by {', '.join(names) if len(arms) > 1 else 'all arms'}: {keys or 'nothing'}.")
    if sweep.tune is None and any(outcome["name"] in ACCURACIES for outcome in sweep.outcomes):
        yield _item("None of these was tuned for an arm.")


def _keys(keys: Mapping[str, object]) -> str:
    return ", ".join(f"`{key}: {value}`" for key, value in keys.items())


def _guards(guards: Sequence[Guard]) -> str:
    table = ["| guard | arm | mean | limits | |", "|---|---|---|---|---|"]
    for guard in guards:
        value = "not measured" if guard.value is None else f"{guard.value:.3g}"
        limits = f"{guard.low:g} or more" if math.isinf(guard.high) else f"{guard.low:g} to {guard.high:g}"
        limits = f"{guard.high:g} or less" if math.isinf(guard.low) else limits
        table.append(f"| {guard.name} | {guard.arm} | {value} | {limits} | {'held' if guard.passed else 'failed'} |")
    return "\n".join(table)


def _say_how(finding: Finding) -> Iterable[str]:
    def distinct(key: str) -> str:
        return ", ".join(dict.fromkeys(str(row[key]) for row in finding.rows.kept))

    minutes = sum(float(row["cpu_s"]) for row in finding.costs) / 60
    file = str(finding.header.get("file", ""))
    yield f"```sh\n{_COMMAND.format(file=file)}\n```"
    yield _fill(
        f"{len(finding.rows.kept)} cells on {len(finding.rows.blocks)} blocks, {minutes:.0f} CPU-minutes. Processor: "
        f"{distinct('processor')}. Commit: {distinct('commit')}. Rounding differs between processors, and a later "
        "change of the rule of noise changes every sample, so rows of other commits are not mixed with these."
    )
    for commit, count in finding.rows.left_out.items():
        yield _fill(f"Left out: {count} row{'s' * (count > 1)} of commit {commit}.")
    for row in (row for row in finding.rows.kept if row["status"] != "done"):
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

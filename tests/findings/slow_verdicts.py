"""A second, slow implementation of every verdict: straight from the files, with integrals in place of closed forms."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import yaml


@cache
def t_quantile(level: float, degrees: int) -> float:
    """The t with P(|T| <= t) = level, by integrating the density from 0. The density falls, so a step of the length
    that would be needed with its present value never goes too far."""
    n = mpmath.mpf(degrees)
    scale = mpmath.gamma((n + 1) / 2) / (mpmath.sqrt(n * mpmath.pi) * mpmath.gamma(n / 2))

    def density(x: Any) -> Any:
        return 2 * scale * (1 + x * x / n) ** (-(n + 1) / 2)

    t, inside = mpmath.mpf(0), mpmath.mpf(0)
    while (step := (level - inside) / density(t)) > 1e-13:
        inside += mpmath.quad(density, [t, t + step])
        t += step
    return float(t)


def mean_and_half(values: list[float], level: float) -> tuple[float, float]:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, t_quantile(level, len(values) - 1) * math.sqrt(variance / len(values))


def log_ratio_and_half(first: list[float], second: list[float], level: float) -> tuple[float, float]:
    """Pitman and Morgan: the ends of the interval are the ratios w for which the correlation of x / sqrt(w) + y and
    x / sqrt(w) - y is just significant; found by bisection on log w."""
    n = len(first)
    limit = t_quantile(level, n - 2)

    def t_of(log_w: float) -> float:
        scaled = [x / math.exp(log_w / 2) for x in first]
        sums = [x + y for x, y in zip(scaled, second, strict=True)]
        differences = [x - y for x, y in zip(scaled, second, strict=True)]
        a, b = sum(sums) / n, sum(differences) / n
        covariance = sum((x - a) * (y - b) for x, y in zip(sums, differences, strict=True))
        r = covariance / math.sqrt(sum((x - a) ** 2 for x in sums) * sum((y - b) ** 2 for y in differences))
        return r * math.sqrt((n - 2) / (1 - r * r))

    def solve(target: float) -> float:
        low, high = -60.0, 60.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if t_of(middle) > target else (low, middle)
        return (low + high) / 2

    low, high = solve(limit), solve(-limit)
    return (low + high) / 2, (high - low) / 2


def label(outcome: dict[str, Any]) -> str:
    return " ".join([outcome["name"], *(f"{key}={outcome[key]}" for key in outcome if key != "name")])


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def verdicts(path: Path, file: Path) -> list[str]:
    """The verdict of each rule of a sweep file, before the correction for the number of rules."""
    sweep, rows, arms, rules = _prepared(path, file)
    testable = _guards_hold(sweep, rows, arms, rules)
    return [_verdict(rule, sweep, rows, arms) if testable else "not testable here" for rule in rules]


def numbers(path: Path, file: Path) -> list[list[list[float]]]:
    """For each rule the differences by block: one list, or two whose variances are compared."""
    sweep, rows, arms, rules = _prepared(path, file)
    return [_columns(rule, sweep, rows, arms)[0] for rule in rules]


def _prepared(path: Path, file: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], list[Any]]:
    sweep, rows = _read(file), rows_of(path)
    commits = [row["commit"] for row in rows]
    rows = [row for row in rows if row["commit"] == max(commits, key=commits.count)]
    rules = sweep.get("rule", [])
    rules = rules if isinstance(rules, list) else [rules]
    rows = [row for row in rows if row["times"] == _chosen(sweep, rows)[row["arm"]]]
    return sweep, [row for row in rows if row["block"] in sweep["blocks"]["seeds"]], _arms(sweep), rules


def _read(file: Path) -> dict[str, Any]:
    class Loader(yaml.SafeLoader):
        """Reads 4e-4 as a number, as YAML 1.2 does."""

    import re

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"), list("-+0123456789.")
    )
    return yaml.load(file.read_text(), Loader)


def _arms(sweep: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "arms" in sweep:
        return sweep["arms"]
    found: list[dict[str, Any]] = [{}]
    for key, values in sweep["grid"].items():
        found = [{**arm, key: value} for arm in found for value in values]
    return {", ".join(f"{key.split('.')[-1]} {value}" for key, value in arm.items()): arm for arm in found}


def _chosen(sweep: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    chosen = dict.fromkeys(_arms(sweep), 1.0)
    tune = sweep.get("tune")
    if tune is None:
        return chosen
    for arm in chosen:
        best = -math.inf
        for times in sorted(tune["times"]):
            cells = [r for r in rows if r["arm"] == arm and r["block"] in tune["seeds"] and r["times"] == times]
            if len(cells) == len(tune["seeds"]):
                mean = sum(cell["outcomes"][label(sweep["outcome"])] for cell in cells) / len(cells)
                if mean > best:
                    best, chosen[arm] = mean, float(times)
    return chosen


def _guards_hold(sweep: dict[str, Any], rows: list[dict[str, Any]], arms: dict[str, Any], rules: list[Any]) -> bool:
    sides = rules[0].get("difference", []) if rules else []
    control = sides[-1] if sides and isinstance(sides[-1], str) else next(iter(arms))
    for name, limits in sweep.get("guards", {}).items():
        low, high = limits if isinstance(limits, list) else (limits, math.inf)
        for arm in [control] if name.startswith("control_") else arms:
            values = [row["guards"][name] for row in rows if row["arm"] == arm and row["guards"].get(name) is not None]
            if not values or not low <= sum(values) / len(values) <= high:
                return False
    return True


def _columns(
    rule: dict[str, Any], sweep: dict[str, Any], rows: list[dict[str, Any]], arms: dict[str, Any]
) -> tuple[list[list[float]], list[list[str]]]:
    """The differences of a rule, and the arms that they are of."""
    name = label(rule.get("outcome") or sweep["outcome"])
    value = {(row["block"], row["arm"]): row["outcomes"].get(name) for row in rows}
    blocks = sorted({row["block"] for row in rows})

    def rank(arm: str) -> tuple[int, float]:
        values = [value[block, arm] for block in blocks if (block, arm) in value]
        known = [each for each in values if each is not None]
        return -values.count(None), sum(known) / len(known) if known else -math.inf

    def arm_of(side: Any) -> str:
        if isinstance(side, str):
            return side
        return max((arm for arm, keys in arms.items() if all(keys[key] == side[key] for key in side)), key=rank)

    pairs = [[arm_of(side) for side in pair] for pair in rule.get("ratio_of_variances", [rule.get("difference")])]
    whole = [b for b in blocks if all(value.get((b, arm)) is not None for pair in pairs for arm in pair)]
    than = rule.get("than", 0.0)
    return [[value[b, pair[0]] - sum(value[b, a] for a in pair[1:]) - than for b in whole] for pair in pairs], pairs


def _mean(numbers: list[Any]) -> float:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else math.nan


def _rule_is_testable(rule: dict[str, Any], sweep: dict[str, Any], rows: list[dict[str, Any]], pair: list[str]) -> bool:
    """A comparison with a number that was not measured (nan) is false, which is what a guard says then."""
    outcome = rule.get("outcome") or sweep["outcome"]
    name, delta, than, direction = label(outcome), rule.get("delta", 0.02), rule.get("than", 0.0), rule.get("direction")

    def measured(row: dict[str, Any], guard: str) -> Any:
        curve = row["curves"].get(guard)
        return row["guards"].get(guard, row["outcomes"].get(guard, curve and _mean([y for _, y in curve])))

    of = {arm: {row["block"]: row for row in rows if row["arm"] == arm} for arm in pair}
    for guard, limits in rule.get("guards", {}).items():
        for arm in pair:
            if not limits[0] <= _mean([measured(row, guard) for row in of[arm].values()]) <= limits[1]:
                return False
    if outcome["name"] == "steps_to":
        for arm in pair:
            late = [
                row["curves"]["exact_pass@1"][1][1] < outcome["value"]
                for row in of[arm].values()
                if row["outcomes"][name]
            ]
            if late and not sum(late) / len(late) >= 0.8:
                return False
    if len(pair) < 2 or "ratio_of_variances" in rule:
        return True
    for guard, least in sweep.get("moved", {}).items():
        both = of[pair[0]].keys() & of[pair[1]].keys()
        if not _mean([abs(measured(of[pair[0]][b], guard) - measured(of[pair[1]][b], guard)) for b in both]) >= least:
            return False
    if outcome["name"] in ("exact_pass@k", "sampled_pass@1", "lucky_answers"):
        other, control = (_mean([row["outcomes"].get(name) for row in of[arm].values()]) for arm in pair)
        if (direction in ("less", "equal") and control + than - delta < 0) or max(other, control) < delta:
            return False
        if (direction != "less" and control + than + delta > 1) or min(other, control) > 1 - delta:
            return False
    return True


def _is_untuned(rule: dict[str, Any], sweep: dict[str, Any], arms: dict[str, Any]) -> bool:
    sides = rule.get("difference", [])
    if "tune" in sweep or rule.get("direction") == "equal" or len(sides) < 2 or not isinstance(sides[0], str):
        return False
    if (rule.get("outcome") or sweep["outcome"])["name"] not in ("exact_pass@k", "sampled_pass@1", "steps_to"):
        return False
    kinds = ("preset", "advantage", "surrogate", "weights", "rejection", "preference", "curriculum")
    chosen = [{key: arms[side][key] for key in arms[side] if key.split(".")[-1] in kinds} for side in sides]
    return chosen[0] != chosen[1]


def _verdict(rule: dict[str, Any], sweep: dict[str, Any], rows: list[dict[str, Any]], arms: dict[str, Any]) -> str:
    columns, pairs = _columns(rule, sweep, rows, arms)
    if not _rule_is_testable(rule, sweep, rows, pairs[0]):
        return "not testable here"
    if len(columns[0]) < 5:
        return "too few blocks"
    delta, level = rule.get("delta", 0.02), rule.get("level", 0.95)
    if max(columns[0]) - min(columns[0]) < 1e-6 * delta:
        return "no difference beyond rounding" if max(map(abs, columns[0])) < 1e-6 * delta else "not testable here"
    if len(columns) == 2:
        mean, half = log_ratio_and_half(columns[0], columns[1], level)
    else:
        mean, half = mean_and_half(columns[0], level)
    verdict = _of_interval(mean, half, delta, rule.get("direction", "greater"))
    return "undecided until tuned" if verdict != "undecided" and _is_untuned(rule, sweep, arms) else verdict


def _of_interval(mean: float, half: float, delta: float, direction: str) -> str:
    if direction == "equal":
        if abs(mean) + half < delta:
            return "supported"
        return "refuted" if abs(mean) - half > delta else "undecided"
    if direction == "less":
        mean = -mean
    if mean - half > 0:
        return "supported, but small" if mean + half < delta else "supported"
    return "refuted" if mean + half < delta else "undecided"

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
    """The verdict of each rule of a sweep file without tuning, or with."""
    sweep, rows = _read(file), rows_of(path)
    rules = sweep.get("rule", [])
    rules = rules if isinstance(rules, list) else [rules]
    arms = _arms(sweep)
    rows = [row for row in rows if row["times"] == _chosen(sweep, rows)[row["arm"]]]
    rows = [row for row in rows if row["block"] in sweep["blocks"]["seeds"]]
    testable = _guards_hold(sweep, rows, arms, rules)
    return [_verdict(rule, sweep, rows, arms) if testable else "not testable here" for rule in rules]


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


def _verdict(rule: dict[str, Any], sweep: dict[str, Any], rows: list[dict[str, Any]], arms: dict[str, Any]) -> str:
    name, level = label(rule.get("outcome") or sweep["outcome"]), rule.get("level", 0.95)
    value = {(row["block"], row["arm"]): row["outcomes"].get(name) for row in rows}
    blocks = sorted({row["block"] for row in rows})

    def mean_of(arm: str) -> float:
        known = [value[block, arm] for block in blocks if value.get((block, arm)) is not None]
        return sum(known) / len(known) if known else -math.inf

    def matching(wanted: dict[str, Any]) -> list[str]:
        return [arm for arm, keys in arms.items() if all(keys[key] == wanted[key] for key in wanted)]

    def arm_of(side: Any) -> str:
        if isinstance(side, str):
            return side
        fixed = {key: side[key] for key in side if key != "best_at"}
        if "best_at" in side:
            best = max(matching(side["best_at"]), key=mean_of)
            fixed = {**arms[best], **fixed}
        return max(matching(fixed), key=mean_of)

    def differences(pair: list[Any]) -> dict[int, float]:
        names = [arm_of(side) for side in pair]
        found = {}
        for block in blocks:
            each = [value.get((block, arm)) for arm in names]
            numbers = [number for number in each if number is not None]
            if len(numbers) == len(each):
                found[block] = numbers[0] - sum(numbers[1:])
        return found

    if "ratio_of_variances" in rule:
        first, second = (differences(pair) for pair in rule["ratio_of_variances"])
        both = [block for block in first if block in second]
        if len(both) < 4:
            return "undecided"
        mean, half = log_ratio_and_half([first[b] for b in both], [second[b] for b in both], level)
    else:
        numbers = [each - rule.get("than", 0.0) for each in differences(rule["difference"]).values()]
        if len(numbers) < 2:
            return "undecided"
        mean, half = mean_and_half(numbers, level)
    delta, direction = rule.get("delta", 0.02), rule.get("direction", "greater")
    if direction == "equal":
        if abs(mean) + half < delta:
            return "supported"
        return "refuted" if abs(mean) - half > delta else "undecided"
    if direction == "less":
        mean = -mean
    if mean - half > 0:
        return "supported, but small" if mean + half < delta else "supported"
    return "refuted" if mean + half < delta else "undecided"

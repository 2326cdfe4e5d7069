"""Verdicts on the rules of a sweep, from its rows. The guards come first.

A rule is decided by one interval from one number per block: the t interval with n - 1 degrees of freedom. Every block
has its own start, problems, order and noise, so the interval covers all sources of chance. Axes: n blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from ansatz.config.schema import flat_keys
from ansatz.findings.cells import choose_times
from ansatz.findings.outcomes import rank_of
from ansatz.findings.sweep_file import Guards, Rule, Side, SweepFile, label_of
from ansatz.track.base import EXACT
from ansatz.track.jsonl import Row
from ansatz.track.sweep_rows import DIGITS, NO_DIFFERENCE, t_quantile, t_tail

SUPPORTED, REFUTED, SMALL = "supported", "refuted", "supported, but small"
UNDECIDED, NOT_TESTABLE, TOO_FEW = "undecided", "not testable here", "too few blocks"
UNTUNED = "undecided until tuned"
FEW = 5
"""With fewer blocks there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """p_above: the p of the one-sided test that the value is at most a limit."""

    value: float
    low: float
    high: float
    num_blocks: int
    p_above: Callable[[float], float]


def mean_interval(values: Sequence[float], *, level: float) -> Interval | None:
    """Return the t interval of the mean; None for fewer than two values, or for values that do not vary."""
    if len(values) < 2 or stdev(values) == 0:
        return None
    mean, error = fmean(values), stdev(values) / math.sqrt(len(values))
    half = t_quantile(level, len(values) - 1) * error

    def p_above(limit: float) -> float:
        return _upper_tail((mean - limit) / error, len(values) - 1)

    return Interval(value=mean, low=mean - half, high=mean + half, num_blocks=len(values), p_above=p_above)


def variance_interval(first: Sequence[float], second: Sequence[float], *, level: float) -> Interval | None:
    """Return log(var first / var second) with the interval of Pitman and Morgan, for values of the same blocks.

    None for fewer than four blocks, or without any variance. With r the correlation, w the ratio and
    K = 1 + 2 (1 - r^2) t^2 / (n - 2), the ends are w (K -+ sqrt(K^2 - 1)) (Morgan 1939).
    """
    n = len(first)
    if n < 4 or min(stdev(first), stdev(second)) == 0:
        return None
    a, b = fmean(first), fmean(second)
    covariance = math.fsum((x - a) * (y - b) for x, y in zip(first, second, strict=True)) / (n - 1)
    r = covariance / (stdev(first) * stdev(second))
    value = 2 * math.log(stdev(first) / stdev(second))
    rest = max(0.0, 1 - r * r)  # which rounding makes negative for values that are proportional
    k = 1 + 2 * rest * t_quantile(level, n - 2) ** 2 / (n - 2)
    half = math.log(k + math.sqrt(k * k - 1))

    def p_above(limit: float) -> float:
        return _upper_tail(math.sinh((value - limit) / 2) * math.sqrt((n - 2) / max(1e-300, rest)), n - 2)

    return Interval(value=value, low=value - half, high=value + half, num_blocks=n, p_above=p_above)


def _upper_tail(t: float, degrees: int) -> float:
    inside = t_tail(t, degrees)
    return (1 - inside) / 2 if t > 0 else (1 + inside) / 2


def decide(interval: Interval | None, *, direction: str, delta: float) -> str:
    """Return the verdict of an interval: supported if it lies in the claimed direction, refuted if it excludes a
    difference that matters. Equal: supported within -+ delta, refuted outside of it."""
    if interval is None or interval.num_blocks < FEW:
        return TOO_FEW
    low, high = interval.low, interval.high
    if direction == "equal":
        return SUPPORTED if -delta < low and high < delta else REFUTED if low > delta or high < -delta else UNDECIDED
    if direction == "less":
        low, high = -high, -low
    supported, refuted = low > 0, high < delta
    return SMALL if supported and refuted else SUPPORTED if supported else REFUTED if refuted else UNDECIDED


def p_of(interval: Interval, *, direction: str, delta: float) -> float:
    """Return the p of the one-sided test that the verdict rests on: the test for the claim or the one against it,
    whichever is smaller; the larger one if the verdict says both. For any value at most one of the two can reject
    wrongly, so a rule counts as one test."""
    above = interval.p_above
    if direction == "equal":
        return min(max(above(-delta), 1 - above(delta)), above(delta), 1 - above(-delta))
    tests = (above(0.0), 1 - above(delta)) if direction == "greater" else (1 - above(0.0), above(-delta))
    return (max if decide(interval, direction=direction, delta=delta) == SMALL else min)(tests)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's correction for all of them, in their order (Holm 1979)."""
    out, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        out[place] = largest
    return out


FRACTIONS = ("exact_pass@k", "sampled_pass@1", "lucky_answers")
"""Outcomes between a floor of 0 and a ceiling of 1."""
ACCURACIES = (*FRACTIONS, "steps_to")
ALGORITHMS = (
    *(f"algorithm.{part}" for part in ("preset", "advantage", "surrogate", "weights")),
    *("data.curriculum", "preference", "rejection"),
)
"""Keys that make two arms two algorithms: which of them is more accurate is said only after tuning."""
MOST_LATE = 0.8
"""The least fraction of blocks that reach a mark after the first evaluation."""
DECIDED = (SUPPORTED, SMALL, REFUTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A guard in one arm, or between two. value: the mean over blocks, None if it was not measured."""

    name: str
    arm: str
    value: float | None
    low: float = float("-inf")
    high: float = float("inf")

    @property
    def passed(self) -> bool:
        return self.value is not None and self.low <= self.value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result for a rule. values: the difference, by block. missing: blocks without one, and why. interval: None
    also if the values do not vary. p: see `p_of`, None without a verdict."""

    rule: Rule
    arms: Sequence[str]
    title: str
    values: Mapping[int, float]
    missing: Sequence[str]
    interval: Interval | None
    only_rounding: bool
    guards: Sequence[Guard]
    verdict: str = UNDECIDED
    p: float | None = None


class Rows:
    """The rows of the blocks, each arm at the value that its tuning has chosen.

    All are of one commit, the one with most rows. left_out: how many rows there are of each other one.
    """

    def __init__(self, sweep: SweepFile, rows: Sequence[Row]) -> None:
        commits = Counter(row.get("commit", "") for row in rows)
        commit = commits.most_common(1)[0][0] if rows else ""
        self.left_out = {other: count for other, count in commits.items() if other != commit}
        self.kept = [row for row in rows if row.get("commit", "") == commit]
        self.sweep, self.tuned = sweep, choose_times(sweep, self.kept)
        self.chosen = dict.fromkeys(sweep.all_arms, 1.0) | self.tuned
        self.blocks = [block for block in sweep.blocks.seeds if any(row["block"] == block for row in self.kept)]
        self._rows = {(row["block"], row["arm"], row["times"]): row for row in self.kept}

    def row(self, block: int, arm: str) -> Row | None:
        """Return the row of an arm; None if it has not been run."""
        return self._rows.get((block, arm, self.chosen[arm]))

    def rows_of(self, arm: str) -> dict[int, Row]:
        """Return the rows of an arm by block."""
        return {block: row for block in self.blocks if (row := self.row(block, arm))}

    def outcomes(self, arm: str, outcome: Mapping[str, Any]) -> dict[int, float]:
        """Return an outcome of an arm by block, where it has one."""
        found = {block: row["outcomes"].get(label_of(outcome)) for block, row in self.rows_of(arm).items()}
        return {block: value for block, value in found.items() if value is not None}

    def read_guard(self, arm: str, name: str) -> dict[int, float]:
        """Return the values of a guard in an arm, by block. A guard that was added later is read from an outcome or
        from the curve of its metric."""
        bare, found = name.removeprefix("control_"), dict[int, float]()
        for block, row in self.rows_of(arm).items():
            value = row["guards"].get(name, row["outcomes"].get(bare))
            if value is None and "/" in bare and row["curves"].get(bare):
                value = fmean(y for _, y in row["curves"][bare])
            if value is not None:
                found[block] = value
        return found

    def arm_of(self, side: Side, outcome: Mapping[str, Any]) -> str:
        """Return the arm that a side of a difference stands for: of several, the one with values in
        most blocks, and of these the one with the best mean."""
        if isinstance(side, str):
            return side

        def rank(arm: str) -> tuple[int, float]:
            values = self.outcomes(arm, outcome).values()
            return len(values), rank_of(outcome, fmean(values) if values else None)

        return max(self.sweep.matching(side), key=rank)

    def difference(self, arms: Sequence[str], outcome: Mapping[str, Any]) -> tuple[dict[int, float], list[str]]:
        """Return the difference of one or two arms by block, and why blocks have none."""
        columns = [self.outcomes(arm, outcome) for arm in arms]
        values = {
            block: columns[0][block] - sum(column[block] for column in columns[1:])
            for block in self.blocks
            if all(block in column for column in columns)
        }
        missing: list[str] = []
        for block in self.blocks:
            for arm, column in zip(arms, columns, strict=True):
                if block not in column:
                    row = self.row(block, arm)
                    why = "has not been run" if row is None else row["why"] or "has no such number"
                    missing.append(f"block {block}, {arm}: {why}")
        return values, missing


def judge(rows: Rows) -> list[Result]:
    """Return the result for each rule."""
    sweep = rows.sweep
    shared = list(_check_limits(rows, sweep.guards, list(sweep.all_arms), sweep.control))
    return [_judge(rows, rule, shared) for rule in sweep.rule]


def describe(results: Sequence[Result]) -> list[str]:
    """Return the verdicts, with whether they survive the correction of Holm for all of these results.

    A corrected p is compared with (1 - level) / 2, because the tests are one-sided.
    """
    corrected = iter(holm([result.p for result in results if result.p is not None]))
    texts: list[str] = []
    for result in results:
        p = None if result.p is None else next(corrected)
        survives = "survives" if p is not None and p <= (1 - result.rule.level) / 2 else "does not survive"
        texts.append(result.verdict + (f", {survives} Holm" if result.verdict in DECIDED else ""))
    return texts


def _judge(rows: Rows, rule: Rule, shared: Sequence[Guard]) -> Result:
    outcome = rows.sweep.outcome_of(rule)
    pairs = [[rows.arm_of(side, outcome) for side in pair] for pair in rule.pairs]
    (first, missing), *others = (rows.difference(pair, outcome) for pair in pairs)
    values = {block: value - rule.than for block, value in first.items() if all(block in more for more, _ in others)}
    numbers = list(values.values())
    if rule.ratio_of_variances:
        interval = variance_interval(numbers, [others[0][0][block] for block in values], level=rule.level)
        title = " over ".join(f"variance of {a} - {b}" for a, b in pairs)
    else:
        interval = mean_interval(numbers, level=rule.level)
        title = " - ".join(pairs[0]) + (f" {'-' if rule.than > 0 else '+'} {abs(rule.than):g}" if rule.than else "")
    known = (abs(value) for arm in pairs[0] for value in rows.outcomes(arm, outcome).values())
    rounding = DIGITS * max([rule.delta, *known])
    if numbers and max(numbers) - min(numbers) <= rounding:
        interval = None
    result = Result(
        rule=rule,
        arms=pairs[0],
        title=title,
        values=values,
        missing=[*missing, *(why for _, more in others for why in more)],
        interval=interval,
        only_rounding=all(abs(number + rule.than) <= rounding for number in numbers),
        guards=[*shared, *_guards_of(rows, rule, pairs)],
    )
    return _with_verdict(rows, result)


def _with_verdict(rows: Rows, result: Result) -> Result:
    """Return the result with its verdict. The guards come first, then whether the values vary at all."""
    rule, interval = result.rule, result.interval
    how: dict[str, Any] = {"direction": rule.direction, "delta": rule.delta}
    if not all(guard.passed for guard in result.guards):
        return replace(result, verdict=NOT_TESTABLE)
    if len(result.values) < FEW:
        return replace(result, verdict=TOO_FEW)
    if interval is None:
        return replace(result, verdict=NO_DIFFERENCE if result.only_rounding else NOT_TESTABLE)
    verdict = decide(interval, **how)
    if verdict in DECIDED and _needs_tuning(rows, result):
        return replace(result, verdict=UNTUNED)
    return replace(result, verdict=verdict, p=p_of(interval, **how))


def _needs_tuning(rows: Rows, result: Result) -> bool:
    """Tell whether a rule says which of two algorithms is more accurate before the rate of both has been tuned."""
    arms, named = result.arms, all(isinstance(side, str) for side in result.rule.difference)
    accuracy = rows.sweep.outcome_of(result.rule)["name"] in ACCURACIES
    about_means = named and result.rule.direction != "equal" and not result.rule.ratio_of_variances
    if len(arms) < 2 or not about_means or not accuracy or rows.tuned.keys() >= {*arms}:
        return False
    first, second = (flat_keys(rows.sweep.all_arms[arm]) for arm in arms)
    return any(first.get(key) != second.get(key) for key in {*first, *second} if key.startswith(ALGORITHMS))


def _check_limits(rows: Rows, guards: Guards, arms: Sequence[str], control: str) -> Iterator[Guard]:
    for name, limits in guards.items():
        low, high = limits if isinstance(limits, tuple) else (limits, float("inf"))
        for arm in [control] if name.startswith("control_") else dict.fromkeys(arms):
            values = rows.read_guard(arm, name).values()
            yield Guard(name=name, arm=arm, value=fmean(values) if values else None, low=low, high=high)


def _guards_of(rows: Rows, rule: Rule, pairs: Sequence[Sequence[str]]) -> Iterator[Guard]:
    """Yield the guards of one rule: its own, the guards on the outcome that is compared, and the guards on the numbers
    that the arms manipulate."""
    arms, outcome = pairs[0], rows.sweep.outcome_of(rule)
    yield from _check_limits(rows, rule.guards, [arm for pair in pairs for arm in pair], arms[-1])
    if outcome["name"] == "steps_to":
        yield from _check_mark(rows, arms, outcome)
    if len(arms) < 2 or rule.ratio_of_variances:
        return
    if outcome["name"] in FRACTIONS:
        yield from _check_room(rows, rule, arms)
    for name, least in rows.sweep.moved.items():
        first, second = (rows.read_guard(arm, name) for arm in arms)
        moved = [abs(first[block] - second[block]) for block in first.keys() & second.keys()]
        yield Guard(name=f"moved: {name}", arm=" - ".join(arms), value=fmean(moved) if moved else None, low=least)


def _check_room(rows: Rows, rule: Rule, arms: Sequence[str]) -> Iterator[Guard]:
    """Yield whether a difference that matters fits between the control and the floor or ceiling that is claimed, and
    whether one of the arms is away from the other of the two."""
    outcome = rows.sweep.outcome_of(rule)
    means = {arm: fmean(values) for arm in arms if (values := rows.outcomes(arm, outcome).values())}
    if not means:
        return
    lowest, highest = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    control = arms[-1] if arms[-1] in means else lowest
    floor = (highest, rule.delta) if rule.direction == "greater" else (control, rule.delta - rule.than)
    ceiling = (lowest, 1 - rule.delta) if rule.direction == "less" else (control, 1 - rule.delta - rule.than)
    yield Guard(name=f"floor: {label_of(outcome)}", arm=floor[0], value=means[floor[0]], low=floor[1])
    yield Guard(name=f"ceiling: {label_of(outcome)}", arm=ceiling[0], value=means[ceiling[0]], high=ceiling[1])


def _check_mark(rows: Rows, arms: Sequence[str], outcome: Mapping[str, Any]) -> Iterator[Guard]:
    """Yield guards on the fraction of blocks that reach a mark only after the first evaluation. Blocks without a curve
    do not count."""
    number, value = outcome.get("number", EXACT), outcome["value"]
    for arm in dict.fromkeys(arms):
        reached, kept = rows.outcomes(arm, outcome), rows.rows_of(arm)
        curves = [kept[block]["curves"].get(number, []) for block in reached]
        late = [points[1][1] < value for points in curves if len(points) > 1]
        if late:
            yield Guard(name=f"{number} below {value:g} at first", arm=arm, value=fmean(late), low=MOST_LATE)


def find_changes(rows: Rows, header: Row) -> list[str]:
    """Return the parts of the file that differ from those registered before the first result, and "rows" if some rows
    are left out."""
    registered = header.get("registered", {})
    changed = [part for part, now in rows.sweep.digests().items() if registered.get(part) != now]
    return changed + ["rows"] * bool(rows.left_out)

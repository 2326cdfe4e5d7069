"""The decisions of the watchdog: a state machine over the rows of metrics of a stage, without files or clocks.

`observe` takes the state and one row, and returns the next state, the alarms, and the action. The state is JSON and
part of every checkpoint, so a resumed run decides as an uninterrupted one does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple

from ansatz.config.watchdog import Action, WatchdogSection
from ansatz.track.rules import REMEMBERED_WINDOWS, Rule

SPREAD = "rollout/reward_std"
"""The scale of `falls_by`."""
NEAR_BEST = 0.25
"""A mean that is below its best by less than this fraction of the fall that `falls_by` allows counts as no fall."""
SEVERITY: tuple[Action, ...] = ("ignore", "warn", "lower_lr", "rollback", "stop")


class RuleState(NamedTuple):
    """The memory of a rule. A tuple, because it changes with every step and a report replays thousands of them.

    steps, values, spreads, excused: the last `window` rows that have the metric, oldest first; whether `Rule.unless`
    excuses them. first: the metric's first value in the stage. means: of the last windows, after the first value.
    best, best_spread: the largest means so far. near_best: the first step of the last window whose mean was near the
    best; 0 before the first window. alarm: whether the last alarm still holds.
    healthy: judgements in a row that were within the limit, since the alarm. was_healthy: whether the metric has been
    within its limit in this stage, at least in its first step or before its first update; until then, no rule with an
    absolute limit does more than warn.
    """

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()
    excused: tuple[bool, ...] = ()
    first: float | None = None
    means: tuple[float, ...] = ()
    best: float | None = None
    best_spread: float = 0.0
    near_best: int = 0
    alarm: bool = False
    healthy: int = 0
    was_healthy: bool = False

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> RuleState:
        """Return the state from a checkpoint; older ones have no `excused` and no `first`."""
        lists = {key: tuple(row.get(key, ())) for key in ("steps", "values", "spreads", "excused", "means")}
        return RuleState(**{**row, **lists})


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """lr_scale: the watchdog's factor on the learning rate. rollbacks: how often it has rolled back. attempts:
    how often it has lowered the learning rate, rollbacks included."""

    rules: Mapping[str, RuleState] = field(default_factory=dict[str, RuleState])
    lr_scale: float = 1.0
    rollbacks: int = 0
    attempts: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "rules": {name: state._asdict() for name, state in self.rules.items()}}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> WatchState:
        rules = {name: RuleState.from_json(state) for name, state in row["rules"].items()}
        return WatchState(**{**row, "rules": rules})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A rule that has raised an alarm, or whose alarm is over.

    value: the mean over the steps first_step..step. first_bad_step: from where on the policy cannot be trusted. It is
    the first step of the window, or for `falls_by` an earlier one: the metric was never near its best again after it.
    action: the action that the rule asks for; "warn" if its metric has never been within the limit.
    """

    rule: Rule
    step: int
    first_step: int
    first_bad_step: int
    value: float
    text: str
    is_over: bool = False
    action: Action = "warn"

    @property
    def numbers(self) -> dict[str, float | str]:
        """Return the fields for the event of this finding."""
        rule = self.rule
        return {
            "rule": rule.name,
            "metric": rule.metric,
            "value": self.value,
            rule.condition: rule.limit,
            "window": rule.window,
            "first_step": self.first_step,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchDecision:
    """The consequences of one row. cause: the finding that asked for the action; None if there is none to take.

    state: after the action, except for a rollback: then only its numbers hold, as its rules return to a checkpoint.
    first_bad_step: the first one among the alarms that ask for more than a warning.
    """

    state: WatchState
    findings: tuple[Alarm, ...] = ()
    action: Action = "ignore"
    cause: Alarm | None = None
    first_bad_step: int = 0


def observe(
    rules: Sequence[Rule], section: WatchdogSection, state: WatchState, step: int, metrics: Mapping[str, float]
) -> WatchDecision:
    """Judge the metrics of a step. Steps come in rising order; a metric may be missing in some of them."""
    states, findings = dict[str, RuleState](), list[Alarm]()
    for rule in rules:
        rule_state, finding = _judge(rule, state.rules.get(rule.name) or RuleState(), step, metrics)
        states[rule.name] = rule_state
        if finding is not None:
            findings.append(finding)
    state = replace(state, rules=states)
    acting = [finding for finding in findings if SEVERITY.index(finding.action) > SEVERITY.index("warn")]
    if not acting:
        return WatchDecision(state=state, findings=tuple(findings))
    cause = max(acting, key=lambda finding: SEVERITY.index(finding.action))
    action: Action = cause.action
    if action != "stop" and state.attempts >= section.attempts:
        action = "stop"
    for finding in acting:  # the rule is judged again once its window holds only steps after the action
        fresh = states[finding.rule.name]._replace(steps=(), values=(), spreads=(), excused=(), alarm=False)
        states[finding.rule.name] = fresh
    if action in ("lower_lr", "rollback"):
        state = replace(state, lr_scale=state.lr_scale * section.lr_factor, attempts=state.attempts + 1)
    if action == "rollback":
        state = replace(state, rollbacks=state.rollbacks + 1)
    return WatchDecision(
        state=replace(state, rules=states),
        findings=tuple(findings),
        action=action,
        cause=cause,
        first_bad_step=min(finding.first_bad_step for finding in acting),
    )


def _judge(rule: Rule, state: RuleState, step: int, metrics: Mapping[str, float]) -> tuple[RuleState, Alarm | None]:
    if rule.metric not in metrics or (rule.condition == "falls_by" and SPREAD not in metrics):
        return state, None
    value = metrics[rule.metric]
    if state.first is None:
        was_healthy = rule.starts_healthy or not rule.is_beyond(value)
        state = state._replace(first=value, means=(value,), was_healthy=was_healthy)
    excused = [metrics.get(minimum.metric, -math.inf) >= minimum.value for minimum in rule.unless]
    state = RuleState(
        (*state.steps, step)[-rule.window :],
        (*state.values, value)[-rule.window :],
        (*state.spreads, metrics.get(SPREAD, 0.0))[-rule.window :],
        (*state.excused, any(excused))[-rule.window :],
        *state[4:],
    )
    if len(state.values) < rule.window:
        return state, None
    mean = fmean(state.values)
    state = _with_references(rule, state, mean)
    if _is_bad(rule, state, mean):
        finding = None
        if not state.alarm:
            may_act = state.was_healthy or not rule.is_absolute
            finding = _finding(rule, state, mean, action=rule.action if may_act else "warn")
        return state._replace(alarm=True, healthy=0), finding
    if not state.alarm:
        return state if state.was_healthy else state._replace(was_healthy=True), None
    if state.healthy + 1 < rule.window:
        return state._replace(healthy=state.healthy + 1), None
    return state._replace(alarm=False, healthy=0, was_healthy=True), _finding(rule, state, mean, is_over=True)


def _with_references(rule: Rule, state: RuleState, mean: float) -> RuleState:
    """Return the state with the values that relative conditions compare with; absolute ones need nothing."""
    if rule.condition == "falls_by":
        best = mean if state.best is None else max(state.best, mean)
        spread = max(state.best_spread, fmean(state.spreads))
        is_near = mean >= best - NEAR_BEST * rule.limit * spread
        near_best = state.steps[0] if is_near else state.near_best
        return state._replace(best=best, best_spread=spread, near_best=near_best)
    if rule.condition in ("grows_by", "rises_by"):
        return state._replace(means=(*state.means, mean)[-REMEMBERED_WINDOWS * rule.window :])
    return state


def _is_bad(rule: Rule, state: RuleState, mean: float) -> bool:
    assert state.first is not None
    if _is_excused(state):
        return False
    match rule.condition:
        case "falls_by":
            assert state.best is not None
            return state.best_spread > 0 and mean < state.best - rule.limit * state.best_spread
        case "grows_by":
            smallest = min(state.means)
            return smallest > 0 and mean > rule.limit * smallest
        case "falls_to":
            return mean < rule.limit * state.first
        case "rises_by":
            return mean > min(state.first, *state.means) + rule.limit
        case _:
            return rule.is_beyond(mean)


def _is_excused(state: RuleState) -> bool:
    return 2 * sum(state.excused) >= len(state.values)


def _finding(rule: Rule, state: RuleState, mean: float, *, is_over: bool = False, action: Action = "warn") -> Alarm:
    first, last = state.steps[0], state.steps[-1]
    where = f"step {last}" if first == last else f"mean of steps {first} to {last}"
    text = f"{rule.metric} = {mean:.3g} ({where}) "
    if is_over and _is_excused(state):
        text += f"raises no alarm while {' or '.join(str(minimum) for minimum in rule.unless)}."
    elif is_over:
        text += "is within its limit again."
    elif rule.condition == "falls_by":
        assert state.best is not None
        text += (
            f"is {state.best - mean:.3g} below its best of {state.best:.3g}; the limit is {rule.limit:g} x the largest "
            f"spread of rewards within a group, {rule.limit * state.best_spread:.3g}."
        )
    elif rule.condition == "grows_by":
        text += (
            f"is more than {rule.limit:g} x its smallest mean of the last {REMEMBERED_WINDOWS * rule.window} steps, "
            f"{min(state.means):.3g}."
        )
    elif rule.condition == "falls_to":
        text += f"is below {rule.limit:g} x its first value in this stage, {state.first:.3g}."
    elif rule.condition == "rises_by":
        assert state.first is not None
        text += (
            f"is more than {rule.limit:g} above {min(state.first, *state.means):.3g}, its first value in this stage or "
            f"its smallest mean of the last {REMEMBERED_WINDOWS * rule.window} steps."
        )
    else:
        unexcused = " and ".join(f"{minimum.metric} is under {minimum.value:g}" for minimum in rule.unless)
        text += f"is {rule.condition} {rule.limit:g}{' while ' if unexcused else ''}{unexcused}."
    return Alarm(
        rule=rule,
        step=last,
        first_step=first,
        first_bad_step=min(first, state.near_best + 1) if rule.condition == "falls_by" else first,
        value=mean,
        text=text,
        is_over=is_over,
        action=action,
    )

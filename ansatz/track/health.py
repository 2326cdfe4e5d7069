"""The checks of the report: the watchdog's rules, applied to the metrics that a stage has logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast

from pydantic import ValidationError

from ansatz.config.load import parse_yaml
from ansatz.config.watchdog import WatchdogSection
from ansatz.errors import ConfigError
from ansatz.track.metrics import find_metric
from ansatz.track.rules import Rule, rules_of
from ansatz.track.runs import StageRun
from ansatz.track.watchdog import Finding, WatchState, observe


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One finding: fine or a warning, as a sentence with its numbers."""

    fine: bool
    title: str
    text: str


def healthy_edges(name: str) -> tuple[float, ...]:
    """The ends of the metric's range, to be drawn into its chart."""
    metric = find_metric(name)
    return () if metric is None else tuple(edge for edge in (metric.low, metric.high) if edge is not None)


def section_of(config_text: str) -> WatchdogSection:
    """The `watchdog` section of a config.yaml; the default if the text has none or cannot be read."""
    try:
        recipe = parse_yaml(config_text, where="config.yaml")
        section = cast("Mapping[str, Any]", recipe).get("watchdog") if isinstance(recipe, Mapping) else None
        found = WatchdogSection.model_validate({} if section is None else section)
        rules_of(found)
    except (ConfigError, ValidationError):
        return WatchdogSection()
    return found


def health_checks(stage: StageRun, section: WatchdogSection) -> list[HealthCheck]:
    """One check for each rule that the stage has the metric and enough steps for.

    Of two rules for one metric, the second is left out unless its alarm holds at the end.
    """
    rules = rules_of(section)
    findings = _replay(stage, rules, section)
    checks, seen = list[HealthCheck](), set[str]()
    for rule in rules:
        curve, found = stage.curve(rule.metric), [each for each in findings if each.rule == rule]
        if len(curve) < rule.window:
            continue
        check = _check(rule, curve, found, repeated=rule.metric in seen)
        if rule.metric not in seen or not check.fine:
            checks.append(check)
        seen.add(rule.metric)
    return checks


def _replay(stage: StageRun, rules: Sequence[Rule], section: WatchdogSection) -> list[Finding]:
    """The findings of the stage's own rows, in order, as the run has made them."""
    state, findings = WatchState(), list[Finding]()
    for row in stage.metrics:
        decision = observe(rules, section, state, int(row["step"]), row)
        state, findings = decision.state, [*findings, *decision.findings]
    return findings


def _check(
    rule: Rule, curve: Sequence[tuple[float, float]], findings: Sequence[Finding], *, repeated: bool
) -> HealthCheck:
    metric = find_metric(rule.metric)
    assert metric is not None
    alarms = [finding for finding in findings if not finding.is_over]
    if rule.window == 1:
        fine = not alarms
        step, worst = max(curve, key=lambda point: point[1] if rule.condition != "below" else -point[1])
        text = f"at most {worst:.4g} (step {step}; limit {rule.limit:g})." if worst else "none."
    else:
        fine = not findings or findings[-1].is_over
        values = [value for _, value in curve]
        first, last = fmean(values[: rule.window]), fmean(values[-rule.window :])
        text = f"from {first:.3g} to {last:.3g} (means of the first and the last {rule.window} steps; "
        text += f"alarm: {rule.description()})."
        if alarms:
            text += f" {len(alarms)} alarm{'s' if len(alarms) > 1 else ''}, the first at step {alarms[0].step}."
    title = metric.title[0].upper() + metric.title[1:] + (" (collapse)" if repeated else "")
    return HealthCheck(fine=fine, title=title, text=text if fine else f"{text} {rule.advice}".rstrip())

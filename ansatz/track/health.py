"""The checks of the report: the watchdog's rules, applied to the metrics that a stage has logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean

from pydantic import ValidationError

from ansatz.config.fields import as_mapping
from ansatz.config.load import parse_yaml
from ansatz.config.watchdog import WatchdogSection
from ansatz.errors import ConfigError
from ansatz.track.metrics import find_metric, unless
from ansatz.track.rules import Rule, rules_of
from ansatz.track.runs import PipelineRun, StageRun
from ansatz.track.watchdog import Alarm, WatchState, observe


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One finding: fine or a warning, as a sentence with its numbers."""

    fine: bool
    title: str
    text: str


def section_of(config_text: str) -> WatchdogSection:
    """Return the `watchdog` section of a config.yaml; the default if the text has none or cannot be read."""
    try:
        section = as_mapping(parse_yaml(config_text, where="config.yaml")).get("watchdog")
        found = WatchdogSection.model_validate({} if section is None else section)
        rules_of(found)
    except (ConfigError, ValidationError):
        return WatchdogSection()
    return found


def checks_of(run: PipelineRun) -> dict[str, list[HealthCheck]]:
    """Return the checks of each stage that has logged a step, by its name. A stage can have rules of its own."""
    return {
        stage.name: health_checks(stage, section_of(stage.config_text or run.config_text))
        for stage in run.stages
        if stage.metrics
    }


def health_checks(stage: StageRun, section: WatchdogSection) -> list[HealthCheck]:
    """Return the warnings of each metric that the stage has rules and enough steps for, or one check if it is fine.

    The metrics of a stage without rollouts, such as SFT, are held to their ranges only: it does not explore.
    """
    samples = any(name.startswith("rollout/") for name in stage.metric_names())
    rules = [rule for rule in rules_of(section) if samples or rule.name == rule.metric]
    findings = _replay(stage, rules, section)
    by_metric = dict[str, list[HealthCheck]]()
    for rule in rules:
        curve = stage.curve(rule.metric)
        if len(curve) >= rule.window:
            check = _check(rule, curve, [finding for finding in findings if finding.rule == rule])
            by_metric.setdefault(rule.metric, []).append(check)
    return [
        check for checks in by_metric.values() for check in [each for each in checks if not each.fine] or checks[:1]
    ]


def _replay(stage: StageRun, rules: Sequence[Rule], section: WatchdogSection) -> list[Alarm]:
    """Return the findings of the stage's own rows, in order, as the run has made them."""
    state, findings = WatchState(), list[Alarm]()
    for row in stage.metrics:
        decision = observe(rules, section, state, int(row["step"]), row)
        state, findings = decision.state, [*findings, *decision.findings]
    return findings


def _check(rule: Rule, curve: Sequence[tuple[float, float]], findings: Sequence[Alarm]) -> HealthCheck:
    metric = find_metric(rule.metric)
    assert metric is not None
    alarms = [finding for finding in findings if not finding.is_over]
    if rule.window == 1:
        fine = not alarms
        falls = rule.condition in ("below", "falls_by", "falls_to")
        step, worst = (min if falls else max)(curve, key=itemgetter(1))
        least = f"at {'least' if falls else 'most'} {worst:.4g} (step {step}; alarm: {rule.description()})."
        text = least if worst or falls else "none."
    else:
        fine = not findings or findings[-1].is_over
        values = [value for _, value in curve]
        first, last = fmean(values[: rule.window]), fmean(values[-rule.window :])
        text = f"from {first:.3g} to {last:.3g} (means of the first and the last {rule.window} steps; "
        text += f"alarm: {rule.description()}{unless(rule.unless)})."
        if alarms:
            text += f" {len(alarms)} alarm{'s' if len(alarms) > 1 else ''}, the first at step {alarms[0].step}."
    title = metric.title[0].upper() + metric.title[1:]
    if not fine and rule.name != rule.metric:
        title += f" (rule {rule.name})"
    return HealthCheck(fine=fine, title=title, text=text if fine else f"{text} {rule.advice}".rstrip())

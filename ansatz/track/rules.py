"""The rules by which the watchdog and the report judge the metrics of a stage. There is no other definition.

Two kinds exist by default. Each metric with a range in the table of metrics has a rule with the metric's name: it warns
when the metric leaves its range. The rules of collapse below have wider limits, and do what `watchdog.action` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from ansatz.config.watchdog import Action, RuleSettings, WatchdogSection
from ansatz.errors import ConfigError
from ansatz.registry import suggest
from ansatz.track.metrics import METRICS, WINDOW, Metric, find_metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Alarm if the mean of a metric over the last `window` steps meets the condition.

    condition: one of config.watchdog.CONDITIONS, which the docstrings of `RuleSettings` define, with its limit.
    advice: what the user should do about it.
    """

    name: str
    metric: str
    condition: str
    limit: float
    window: int = WINDOW
    action: Action = "warn"
    advice: str = ""

    @property
    def is_absolute(self) -> bool:
        """Whether the limit is a value of the metric, instead of relative to the stage's own history."""
        return self.condition in ("below", "above")

    def description(self) -> str:
        """The condition in words, such as "above 0.3"."""
        return {
            "below": f"below {self.limit:g}",
            "above": f"above {self.limit:g}",
            "falls_by": f"{self.limit:g} spreads of the reward below its best",
            "grows_by": f"above {self.limit:g} x its smallest of the last {10 * self.window} steps",
        }[self.condition]


def collapse_rules(action: Action) -> tuple[Rule, ...]:
    """The rules of collapse. Each describes a policy that has stopped to work, not one that could work better."""
    return (
        Rule(
            name="reward",
            metric="rollout/rewards",
            condition="falls_by",
            limit=0.5,
            action=action,
            advice="The policy gets worse. Lower train.lr.",
        ),
        Rule(
            name="entropy",
            metric="train/entropy",
            condition="below",
            limit=0.005,
            action=action,
            advice="The policy is nearly deterministic and cannot explore. Lower train.lr, raise the upper clip, or "
            "add an entropy bonus.",
        ),
        Rule(
            name="kl",
            metric="train/kl_ref",
            condition="above",
            limit=1.0,
            action=action,
            advice="The policy is far from the reference. Raise the coefficient of the KL term, or lower train.lr.",
        ),
        Rule(
            name="update_kl",
            metric="train/approx_kl",
            condition="above",
            limit=0.5,
            action=action,
            advice="Single updates change the policy too much. Lower train.lr, or make fewer updates per step.",
        ),
        Rule(
            name="ratio",
            metric="train/ratio_mean",
            condition="above",
            limit=1.5,
            action=action,
            advice="Single updates change the policy too much. Lower train.lr, or make fewer updates per step.",
        ),
        Rule(
            name="length",
            metric="rollout/response_length",
            condition="grows_by",
            limit=2.0,
            action=action,
            advice="Read rl/samples: growth that fast is padding or repetition more often than reasoning.",
        ),
        Rule(
            name="truncated",
            metric="rollout/truncated_frac",
            condition="above",
            limit=0.3,
            action=action,
            advice="The policy forgets to stop, or rollout.max_response_tokens is too low.",
        ),
        Rule(
            name="repetition",
            metric="rollout/repetition",
            condition="above",
            limit=0.2,
            action=action,
            advice="Responses are filled with loops. Lower train.lr.",
        ),
    )


def range_rules() -> tuple[Rule, ...]:
    """One rule for each metric that has a range in the table."""
    return tuple(_range_rule(metric) for metric in METRICS if metric.low is not None or metric.high is not None)


def _range_rule(metric: Metric) -> Rule:
    below = metric.low is not None
    limit = metric.low if below else metric.high
    assert limit is not None
    return Rule(
        name=metric.name,
        metric=metric.name,
        condition="below" if below else "above",
        limit=limit,
        window=1 if metric.worst_step else WINDOW,
        advice=metric.advice,
    )


def rules_of(section: WatchdogSection) -> tuple[Rule, ...]:
    """The rules of a recipe, ranges first, without those of `ignore`. ConfigError for a rule that makes no sense."""
    rules = {rule.name: rule for rule in (*range_rules(), *collapse_rules(section.action))}
    for name, settings in section.rules.items():
        old = rules.get(name)
        rules[name] = _new_rule(name, settings, known=list(rules)) if old is None else _changed(old, settings)
    return tuple(rule for rule in rules.values() if rule.action != "ignore")


def _changed(rule: Rule, settings: RuleSettings) -> Rule:
    condition, limit = next(iter(settings.condition.items()), (rule.condition, rule.limit))
    return replace(
        rule,
        metric=_known_metric(rule.name, settings.metric or rule.metric),
        condition=condition,
        limit=limit,
        window=settings.window or rule.window,
        action=settings.action or rule.action,
    )


def _new_rule(name: str, settings: RuleSettings, *, known: Sequence[str]) -> Rule:
    if settings.metric is None or not settings.condition:
        raise ConfigError(
            f"watchdog.rules.{name}: there is no rule with this name to change, and a new one needs `metric` and one "
            f"of below, above, falls_by and grows_by.{suggest(name, known)}"
        )
    ((condition, limit),) = settings.condition.items()
    return Rule(
        name=name,
        metric=_known_metric(name, settings.metric),
        condition=condition,
        limit=limit,
        window=settings.window or WINDOW,
        action=cast("Action", settings.action or "warn"),
    )


def _known_metric(rule: str, metric: str) -> str:
    if find_metric(metric) is None:
        known = [row.name for row in METRICS if not row.is_family]
        raise ConfigError(f"watchdog.rules.{rule}.metric = {metric!r}: not a metric.{suggest(metric, known)}")
    return metric

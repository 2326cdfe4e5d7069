"""The rules that the watchdog and the report apply to the metrics of a stage. All rules are defined here.

Two kinds exist by default. Each metric with a range in the table of metrics has a rule with the metric's name: it warns
when the metric leaves its range, and so does the rule `gap`. The rules of collapse below have wider limits, and take
the action in `watchdog.action`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ansatz.config.watchdog import CONDITIONS, Action, RuleSettings, WatchdogSection
from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.registry import suggest
from ansatz.track.metrics import Metric, Minimum, exact_names, find_metric, load_metrics

WINDOW = 5
"""How many steps a rule averages its metric over, unless a recipe gives another number."""
REMEMBERED_WINDOWS = 10
"""`grows_by` and `rises_by` compare with the smallest mean of this number of windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Alarm if the mean of a metric over the last `window` steps meets the condition.

    condition: one of config.watchdog.CONDITIONS, which the docstrings of `RuleSettings` define, with its limit.
    unless: no alarm if one of these other metrics reached its minimum in at least half of the steps of the window.
    advice: how the user should respond.
    """

    name: str
    metric: str
    condition: str
    limit: float
    window: int = WINDOW
    action: Action = "warn"
    unless: tuple[Minimum, ...] = ()
    advice: str = ""

    @property
    def is_absolute(self) -> bool:
        """Return whether the limit is a value of the metric, instead of relative to the stage's own history."""
        return self.condition in ("below", "above")

    @property
    def starts_healthy(self) -> bool:
        """Tell whether the metric is within its limit before the first update of a stage, whatever the policy."""
        metric = find_metric(self.metric)
        start = None if metric is None else metric.at_start
        return start is not None and not self.is_beyond(start)

    def is_beyond(self, value: float) -> bool:
        """Return whether the value is beyond an absolute limit; never, if the limit is relative."""
        return (self.condition == "below" and value < self.limit) or (self.condition == "above" and value > self.limit)

    def description(self) -> str:
        """Return the condition in words, such as "above 0.3", without the metrics that excuse it."""
        within = f"the last {REMEMBERED_WINDOWS * self.window} steps"
        return {
            "below": f"below {self.limit:g}",
            "above": f"above {self.limit:g}",
            "falls_by": f"{self.limit:g} spreads of the reward below its best",
            "grows_by": f"above {self.limit:g} x its smallest of {within}",
            "falls_to": f"below {self.limit:g} x its first value",
            "rises_by": f"{self.limit:g} above its first value or smallest of {within}",
        }[self.condition]


def collapse_rules(action: Action) -> tuple[Rule, ...]:
    """Return the rules of collapse, which rules.yaml lists.

    Two things excuse a low entropy. Either the policy solves most problems, so that it is sure of its answers with good
    reason, or the samples of many prompts differ in their reward, so that it explores.
    """
    signal = load_metrics()["rollout/groups_with_signal_frac"]
    assert signal.low is not None
    excuses = {"entropy": (*signal.unless, Minimum(signal.name, signal.low))}
    rows = read_yaml(Path(__file__).with_suffix(".yaml"))
    return tuple(Rule(**row, action=action, unless=excuses.get(row["name"], ())) for row in rows)


def range_rules() -> tuple[Rule, ...]:
    """Return one rule for each metric that has a range in the table, and `gap`."""
    ranges = [_range_rule(metric) for metric in load_metrics().values() if metric.has_range]
    return (*ranges, GAP)


GAP = Rule(
    name="gap",
    metric="align/mean_exp_gap",
    condition="rises_by",
    limit=0.02,
    window=1,
    advice="Something between sampler and trainer has changed: weights, precision, temperature, or one of the workers.",
)
"""Sees a fault that is too small, or in too few of the tokens, for train.max_logprob_gap."""


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
        unless=metric.unless,
        advice=metric.advice,
    )


def rules_of(section: WatchdogSection) -> tuple[Rule, ...]:
    """Return the rules of a recipe, ranges first, without rules whose action is `ignore`. Raise ConfigError for a rule
    that makes no sense."""
    rules = {rule.name: rule for rule in (*range_rules(), *collapse_rules(section.action))}
    for name, settings in section.rules.items():
        old = rules.get(name)
        if old is None and settings.action == "ignore" and find_metric(name) is not None:
            continue  # recipes from when train/entropy had a range
        rules[name] = _make_rule(name, settings, known=list(rules)) if old is None else _change(old, settings)
    return tuple(rule for rule in rules.values() if rule.action != "ignore")


def _change(rule: Rule, settings: RuleSettings) -> Rule:
    condition, limit = next(iter(settings.condition.items()), (rule.condition, rule.limit))
    return replace(
        rule,
        metric=_check_metric(rule.name, settings.metric or rule.metric),
        condition=condition,
        limit=limit,
        window=settings.window or rule.window,
        action=settings.action or rule.action,
    )


def _make_rule(name: str, settings: RuleSettings, *, known: Sequence[str]) -> Rule:
    if settings.metric is None or not settings.condition:
        raise ConfigError(
            f"watchdog.rules.{name}: there is no rule with this name to change, and a new one needs `metric` and one "
            f"of {', '.join(CONDITIONS[:-1])} and {CONDITIONS[-1]}.{suggest(name, known)}"
        )
    ((condition, limit),) = settings.condition.items()
    return _change(Rule(name=name, metric=settings.metric, condition=condition, limit=limit), settings)


def _check_metric(rule: str, metric: str) -> str:
    if find_metric(metric) is None:
        raise ConfigError(f"watchdog.rules.{rule}.metric = {metric!r}: not a metric.{suggest(metric, exact_names())}")
    return metric

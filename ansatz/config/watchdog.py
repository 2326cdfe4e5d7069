"""The `watchdog` section of a recipe: the run's own reaction when its metrics show that the policy collapses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ansatz.config.fields import Count, Float, Positive, Section

Action = Literal["ignore", "warn", "lower_lr", "rollback", "stop"]
"""From the mildest to the most severe."""
CONDITIONS = ("below", "above", "falls_by", "grows_by", "falls_to", "rises_by")


class RuleSettings(Section):
    """One rule of `watchdog.rules`. If the rule exists, keys that are left out keep their values. A rule of your own
    needs `metric` and exactly one of `below`, `above`, `falls_by`, `grows_by`, `falls_to` and `rises_by`. Each compares
    the mean of the metric over the last `window` steps."""

    metric: str | None = None
    """The metric that is watched, such as rollout/truncated_frac."""
    below: Float | None = None
    """Alarm if the mean is below this limit."""
    above: Float | None = None
    """Alarm if the mean is above this limit."""
    falls_by: Annotated[Float, Field(gt=0)] | None = None
    """Alarm if the mean is below the best mean of any window so far, by more than this multiple of the largest mean of
    rollout/reward_std so far. The scale of the reward therefore does not matter."""
    grows_by: Annotated[Float, Field(gt=1)] | None = None
    """Alarm if the mean is more than this multiple of the smallest mean of any window in the last 10 windows."""
    falls_to: Annotated[Float, Field(gt=0, lt=1)] | None = None
    """Alarm if the mean is below this fraction of the metric's first value in the stage."""
    rises_by: Annotated[Float, Field(gt=0)] | None = None
    """Alarm if the mean is more than this above the metric's first value in the stage, or above the smallest mean of
    any window in the last 10 windows where that is smaller."""
    window: Positive | None = None
    """Number of steps; 5 unless it is given."""
    action: Action | None = None
    """As `watchdog.action`, for this rule; ignore switches the rule off."""

    @model_validator(mode="after")
    def has_one_condition(self) -> RuleSettings:
        if len(self.condition) > 1:
            raise ValueError(f"{' and '.join(self.condition)} are given, but a rule has one condition; remove the rest")
        return self

    @property
    def condition(self) -> dict[str, float]:
        """The conditions that are given, with their limits: none or one."""
        values = {name: getattr(self, name) for name in CONDITIONS}
        return {name: value for name, value in values.items() if value is not None}


class WatchdogSection(Section):
    """The reaction of RL when its metrics show that the policy collapses. docs/watchdog.md lists the rules."""

    action: Action = "warn"
    """The action of the rules of collapse. ignore: nothing. warn: a line on the console and in the report. lower_lr:
    multiply the learning rate by `watchdog.lr_factor`. rollback: return to the last healthy checkpoint, with a lower
    learning rate and other noise. stop: save and end the run with exit code 3. The rules of a metric's
    healthy range warn, unless `watchdog.rules` says otherwise."""
    rules: dict[str, RuleSettings] = Field(default_factory=dict[str, RuleSettings])
    """Changes of rules and further rules, by name: {truncated: {above: 0.5, window: 10, action: stop}}; see below."""
    lr_factor: Annotated[Float, Field(gt=0, lt=1)] = 0.25
    """lower_lr and rollback multiply the learning rate by this factor, each time and for the rest of the stage. If the
    policy collapses, its learning rate is usually several times too high."""
    attempts: Count = 3
    """Number of times that a stage may lower its learning rate or roll back. The next alarm then stops it."""

"""Early health_checks of collapse, read from a stage's curves; the limits are those of the metric table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean

from ansatz.track.runs import StageRun


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One finding: fine or a warning, in a sentence with its numbers."""

    fine: bool
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A metric and the range that its late mean (or, for peak, its worst step) should keep."""

    metric: str
    title: str
    low: float = -inf
    high: float = inf
    peak: bool = False
    advice: str


THRESHOLDS = (
    Threshold(
        metric="train/entropy",
        title="Entropy",
        low=0.05,
        advice="Exploration is over: a higher upper clip or entropy coefficient, or a lower learning rate.",
    ),
    Threshold(
        metric="rollout/repetition",
        title="Self-repetition",
        high=0.05,
        advice="Look for loops in the rollouts below; the checkpoint before the rise is the one to keep.",
    ),
    Threshold(
        metric="rollout/truncated_frac",
        title="Cut-off responses",
        high=0.05,
        advice="rollout.max_response_tokens bites, or the policy forgets to stop.",
    ),
    Threshold(
        metric="rollout/no_answer_frac",
        title="Responses without an answer",
        high=0.05,
        advice="The policy has left the answer format, or the template does not fit the model.",
    ),
    Threshold(
        metric="rollout/groups_with_signal_frac",
        title="Groups with signal",
        low=0.1,
        advice="Nearly every group is all right or all wrong; harder or easier problems teach more.",
    ),
    Threshold(
        metric="train/clip_frac",
        title="Clipped tokens",
        high=0.2,
        advice="Updates leave the clip range: fewer updates a step or a lower learning rate.",
    ),
    Threshold(
        metric="align/mean_gap",
        title="Sampler against trainer",
        high=1.05,
        peak=True,
        advice="The sampler draws from another distribution than the trainer differentiates.",
    ),
    Threshold(
        metric="rollout/verdict/timeout",
        title="Grader timeouts",
        high=0.01,
        peak=True,
        advice="These rollouts were not judged; the reward of those steps is not to be believed.",
    ),
    Threshold(
        metric="rollout/verdict/crashed",
        title="Grader crashes",
        high=0.0,
        peak=True,
        advice="These rollouts were not judged; the reward of those steps is not to be believed.",
    ),
)


def healthy_edges(metric: str) -> tuple[float, ...]:
    """The finite ends of the metric's limit, to be drawn into its chart."""
    return tuple(
        edge for limit in THRESHOLDS if limit.metric == metric for edge in (limit.low, limit.high) if isfinite(edge)
    )


def health_checks(stage: StageRun) -> list[HealthCheck]:
    """A sign for each limit whose metric the stage has."""
    return list(_signs(stage))


def _signs(stage: StageRun) -> Iterator[HealthCheck]:
    for limit in THRESHOLDS:
        curve = stage.curve(limit.metric)
        if not curve:
            continue
        values = [value for _, value in curve]
        tenth = max(1, len(values) // 10)
        first, last = fmean(values[:tenth]), fmean(values[-tenth:])
        if limit.peak:
            step, worst = max(curve, key=lambda point: point[1])
            fine = worst <= limit.high
            text = f"at most {worst:.4g} (step {step}; limit {limit.high:g})." if worst else "none."
        else:
            fine = limit.low <= last <= limit.high
            bound = f"over {limit.low:g}" if limit.low > -inf else f"under {limit.high:g}"
            text = f"from {first:.3g} to {last:.3g} (means of the first and last tenth; healthy {bound})."
        yield HealthCheck(fine=fine, title=limit.title, text=text if fine else f"{text} {limit.advice}")

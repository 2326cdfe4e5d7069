"""The seam between a loop and what is recorded of it: the protocol of trackers and what each of them refuses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ansatz.errors import NonFiniteError
from ansatz.types import ScoredRollout

EVALUATION_NUMBERS = ("pass@1", "greedy", "pass@k", "maj@k", "mean_length", "truncated_frac")
"""The plain numbers of an evaluation, each a number (greedy: or None when it was not measured)."""

Evaluation = Mapping[str, Any]
"""{"stage", "step", "split", "num_problems", "samples_per_prompt", "temperature", "seed", "k", "pass@1",
"pass@1_interval": [low, high], ... EVALUATION_NUMBERS, "by_level": {level: the same numbers}}"""


class TrackerLike(Protocol):
    """Where a stage's numbers go. Steps count from 1; step 0 is the state before the first update."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of one step, each step once and in rising order. NonFiniteError names a nan or inf."""
        ...

    def samples(self, step: int, scored: Sequence[ScoredRollout]) -> None:
        """Rollouts of a step, to be looked at later. The same step again replaces them."""
        ...

    def evaluation(self, row: Evaluation) -> None:
        """One evaluation. The same one again (stage, step, split and sampling all equal) replaces it."""
        ...

    def resume(self, step: int) -> None:
        """Forgets all that came after `step`, the step of the checkpoint that the stage goes on from."""
        ...

    def close(self) -> None: ...


class ConsoleSink(Protocol):
    """What a person sees while stages run. One sink serves all stages of a pipeline, one after the other."""

    def begin(self, stage: str, *, total_steps: int) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluation(self, row: Evaluation) -> None: ...

    def end(self) -> None: ...


def checked_metrics(step: int, metrics: Mapping[str, float], *, last_step: int) -> dict[str, float]:
    """The metrics as plain floats.

    NonFiniteError for a nan or inf, ValueError for no number at all or for a step that is not after the last one.
    """
    if step <= last_step:
        raise ValueError(f"metrics of step {step} after those of step {last_step}: log each step once, in rising order")
    out: dict[str, float] = {}
    for name, value in metrics.items():
        if name in ("step", "seconds"):
            raise ValueError(f"metric name {name!r} is taken by the line itself; use a name such as 'time/step_s'")
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {name} of step {step} is {value!r}; expected a number") from error
        if not math.isfinite(number):
            raise NonFiniteError(
                f"metric {name} is {number} at step {step}; expected a finite number. "
                "Go on from the last checkpoint with a lower learning rate, or leave the metric out of this step."
            )
        out[name] = number
    return out


def evaluation_key(row: Evaluation) -> tuple[Any, ...]:
    """What makes two evaluations the same measurement."""
    return tuple(row.get(name) for name in ("stage", "step", "split", "samples_per_prompt", "temperature", "seed"))


def checked_evaluation(row: Evaluation) -> dict[str, Any]:
    """The row as a plain dict. ValueError for a missing part, NonFiniteError for a nan or inf."""
    missing = [name for name in ("stage", "step", "split", *EVALUATION_NUMBERS) if name not in row]
    if missing:
        raise ValueError(f"evaluation lacks {', '.join(missing)}; an absent number is None, never left out")
    for level, numbers in {"all levels": row, **row.get("by_level", {})}.items():
        for name in EVALUATION_NUMBERS:
            value = numbers.get(name)
            if value is not None and not math.isfinite(value):
                raise NonFiniteError(
                    f"evaluation of step {row['step']}: {name} of {level} is {value}; expected a number"
                )
    return dict(row)

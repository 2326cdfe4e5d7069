"""The seam between a loop and its records: the protocol of trackers, and the checks that all of them make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from ansatz.errors import NonFiniteError
from ansatz.links import open_file
from ansatz.track.rollout_rows import StoredGroup
from ansatz.visible import visible

EVALUATION_NUMBERS = ("pass@1", "greedy", "pass@k", "maj@k", "mean_length", "truncated_frac")
"""The numbers that every evaluation has. greedy is None if it was not measured."""
LOG = "log.txt"
"""The file of a run folder with the lines of its console."""

REWARD = "reward"
"""A number of evaluations: the mean reward. It decides which checkpoint is best if no reward says whether a response is
correct."""
EXACT = "exact_pass@1"
"""A number of evaluations on problems with worked solutions: the mean probability of such a solution."""

Evaluation = Mapping[str, Any]
"""{"stage", "step", "split", "num_problems", "samples_per_prompt", "temperature", "seed", "k", "pass@1",
"pass@1_interval": [low, high], ... EVALUATION_NUMBERS, "by_level": {level: the same numbers},
"by_source": {name: the same numbers}}"""


class TrackerLike(Protocol):
    """Where the numbers of a stage go. Steps count from 1; step 0 is the state before the first update."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step, once for each step and in rising order. Raise NonFiniteError for nan and inf."""
        ...

    def samples(self, step: int, groups: Sequence[StoredGroup]) -> None:
        """Store the groups of a step, for later inspection. A second call for the same step replaces them."""
        ...

    def evaluation(self, row: Evaluation, responses: Sequence[Mapping[str, Any]] = ()) -> None:
        """Store one evaluation. It replaces one with the same stage, step, split and sampling settings.

        responses: its rows of `rollout_rows`. That they cannot be written is an event, and never ends the run.
        """
        ...

    def event(self, step: int, kind: str, text: str, **numbers: float | str) -> None:
        """Report something unusual that the run did by itself at a step, as a sentence and with its numbers."""
        ...

    def has_evaluation(self, *, stage: str, step: int) -> bool:
        """Return whether the policy after this step has been evaluated."""
        ...

    def resume(self, step: int) -> None:
        """Remove everything after `step`, the step of the checkpoint that is resumed."""
        ...

    def flush(self) -> None:
        """Write the rows that a full disk has kept back. Raise StorageError if that is still not possible."""
        ...

    def close(self) -> None: ...


class ConsoleSink(Protocol):
    """The output that the user sees while stages run. One sink serves all stages of a run, one after the other."""

    def note(self, text: str) -> None:
        """Report a sentence about the whole run, before its first stage."""
        ...

    def plan(self, text: str, stages: Mapping[str, int | None]) -> None:
        """Report a sentence about the work, before its first stage. stages: their steps; None: not known yet."""
        ...

    def begin(self, stage: str, *, total_steps: int) -> None: ...

    def progress(self, text: str) -> None:
        """Report how far something is that takes long and is not a step. Most calls show nothing."""
        ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluation(self, row: Evaluation) -> None: ...

    def event(self, step: int, text: str) -> None: ...

    def end(self) -> None: ...


def append_line(path: Path, text: str) -> None:
    """Append a line to a log. A full disk does not end the run for it."""
    with suppress(OSError), open_file(path, "a", encoding="utf-8") as file:
        file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {visible(text)}\n")


def checked_metrics(step: int, metrics: Mapping[str, float], *, last_step: int) -> dict[str, float]:
    """Return the metrics as plain floats.

    Raise NonFiniteError for nan and inf. Raise ValueError for a value that is not a number, and for a step that does
    not come after the last one.
    """
    if step <= last_step:
        raise ValueError(
            f"metrics of step {step} were logged after those of step {last_step}. Log each step once, in rising order."
        )
    out: dict[str, float] = {}
    for name, value in metrics.items():
        if name in ("step", "seconds"):
            raise ValueError(f"{name!r} is not a metric name, because every line has it. Use e.g. 'time/step_s'.")
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {name} of step {step} is {value!r}; expected a number.") from error
        if not math.isfinite(number):
            raise NonFiniteError(
                f"metric {name} is {number} at step {step}; expected a finite number. Resume from the last checkpoint "
                "with a lower learning rate."
            )
        out[name] = number
    return out


def parts_of(row: Evaluation) -> dict[str, Mapping[str, Any]]:
    """Return the numbers of each level and each source of an evaluation, under the names that tables give them."""
    return {
        f"{kind} {name}": numbers for kind in ("level", "source") for name, numbers in row.get(f"by_{kind}", {}).items()
    }


def evaluation_key(row: Evaluation) -> tuple[Any, ...]:
    """Return the key of the measurement: two evaluations with the same key are the same one."""
    return tuple(row.get(name) for name in ("stage", "step", "split", "samples_per_prompt", "temperature", "seed"))


def checked_evaluation(row: Evaluation) -> dict[str, Any]:
    """Return the row as a plain dict. Raise ValueError for a missing entry, NonFiniteError for nan and inf."""
    missing = [name for name in ("stage", "step", "split", *EVALUATION_NUMBERS) if name not in row]
    if missing:
        raise ValueError(f"the evaluation lacks {', '.join(missing)}. Give None for a number that was not measured.")
    for part, numbers in {"all problems": row, **parts_of(row)}.items():
        for name in EVALUATION_NUMBERS:
            value = numbers.get(name)
            if value is not None and not math.isfinite(value):
                raise NonFiniteError(
                    f"evaluation of step {row['step']}: {name} of {part} is {value}; expected a finite number."
                )
    return dict(row)

"""MLflow. Its environment variables hold: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME (default: ansatz).

The runs of a sweep have a tag, group. Tables are files, samples/STAGE/step-000012.json.
A metric cannot lie within another one, and some signs are refused: rl/eval/heldout/pass@1/3 becomes
rl/eval.heldout.pass_1.3.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansatz.config.schema import flat_keys
from ansatz.track.sinks import Table, TrackedRun, package

AT_ONCE, LONGEST = 100, 6000
"""The most that a server takes: parameters of one call, and characters of one parameter."""


class MlflowSink:
    """client: of the package."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.id = run_id
        self._client = client

    def metrics(self, curve: str, step: int, numbers: Mapping[str, float]) -> None:
        metric = package("mlflow.entities").Metric
        now = time.time_ns() // 10**6
        points = [
            metric(f"{curve}/{_replace_refused(name).replace('/', '.')}", value, now, step)
            for name, value in numbers.items()
        ]
        self._client.log_batch(self.id, metrics=points)

    def table(self, curve: str, step: int, columns: Sequence[str], rows: Table) -> None:
        content = {"columns": list(columns), "data": list(rows)}
        self._client.log_dict(self.id, content, f"samples/{curve}/step-{step:06d}.json")

    def artifact(self, path: Path) -> None:
        self._client.log_artifact(self.id, str(path))

    def close(self) -> None:
        self._client.set_terminated(self.id)


def open_run(run: TrackedRun) -> MlflowSink:
    """Open a run, or continue the one that has this id."""
    client = package("mlflow.tracking").MlflowClient()
    if run.id:
        client.update_run(run.id, status="RUNNING")
        return MlflowSink(client, run.id)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "ansatz")
    known = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if known is None else known.experiment_id
    tags = {"group": run.group} if run.group else {}
    opened = client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
    param = package("mlflow.entities").Param
    flat = flat_keys(run.config).items()
    params = [param(_replace_refused(key), json.dumps(value, default=str)[:LONGEST]) for key, value in flat]
    for start in range(0, len(params), AT_ONCE):
        client.log_batch(opened, params=params[start : start + AT_ONCE])
    return MlflowSink(client, opened)


def _replace_refused(name: str) -> str:
    """Return the name with each character that MLflow refuses replaced by "_"."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)

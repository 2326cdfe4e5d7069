"""MLflow. Its environment variables hold: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME (default: ansatz).

The runs of a sweep are nested in one that has the name of the sweep. Tables are files, samples/STAGE/step-000012.json.
A metric cannot lie within another one, and some signs are refused: rl/eval/heldout/pass@1/3 becomes
rl/eval.heldout.pass_1.3.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansatz.track.sinks import Table, TrackedRun, package

AT_ONCE, LONGEST = 100, 6000
"""What a server takes: parameters of one call, and characters of one."""
GROUP = "ansatz.group"


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

    def table(self, curve: str, step: int, rows: Table) -> None:
        columns = list(rows[0])
        content = {"columns": columns, "data": [[row[column] for column in columns] for row in rows]}
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
    tags = {"mlflow.parentRunId": _parent(client, experiment, run.group)} if run.group else {}
    opened = client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
    param = package("mlflow.entities").Param
    params = [param(_replace_refused(key), value[:LONGEST]) for key, value in _flat(run.config, "")]
    for start in range(0, len(params), AT_ONCE):
        client.log_batch(opened, params=params[start : start + AT_ONCE])
    return MlflowSink(client, opened)


def _parent(client: Any, experiment: str, group: str) -> str:
    """Return the run that holds those of a sweep. It is made if it is missing."""
    quoted = group.replace("'", "")
    found = client.search_runs([experiment], f"tags.`{GROUP}` = '{quoted}'", max_results=1)
    if found:
        return found[0].info.run_id
    parent = client.create_run(experiment, run_name=group, tags={GROUP: quoted}).info.run_id
    client.set_terminated(parent)
    return parent


def _replace_refused(name: str) -> str:
    """Return the name with what MLflow refuses replaced."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


def _flat(config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)

"""A run's folder before and between its stages: who may take it, how a run in it goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

from ansatz.config.load import load_run
from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.loop.rejection import sampling_seconds
from ansatz.loop.state import read_done
from ansatz.track.jsonl import read_jsonl


def resume_config(run_dir: str | Path) -> Config:
    """The config of a run folder, which may have been moved since."""
    path = Path(run_dir)
    config = load_run(path)
    if path.name in ("", ".."):
        path = path.resolve()
    return config.model_copy(update={"name": path.name, "out": str(path.parent)})


def claim(run_dir: Path, *, resume: bool, fresh: bool) -> None:
    """Makes way for the run. ConfigError where the folder holds a run that has begun to learn, or no run at all."""
    if resume or not run_dir.exists() or not any(run_dir.iterdir()):
        return
    if not (run_dir / "config.yaml").exists():
        raise ConfigError(
            f"{run_dir} is no run folder, and it holds other files, which are left alone. "
            "Give this run another name: --name NAME."
        )
    if not fresh and read_done(run_dir / "model") is not None:
        raise ConfigError(
            f"{run_dir} holds a run already. Go on with it: --resume {run_dir}; start over: --fresh; "
            "or give this run another name: --name NAME."
        )
    shutil.rmtree(run_dir)


def seconds_before(folder: Path) -> float:
    """Seconds that an interrupted run of this stage had recorded."""
    rows = read_jsonl(folder / "metrics.jsonl")
    return sampling_seconds(folder) + (float(rows[-1]["seconds"]) if rows else 0.0)

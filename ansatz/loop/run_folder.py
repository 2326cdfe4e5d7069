"""The folder of a run: who may use it, how a run in it is resumed, and which of its stages are done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ansatz.config.load import dump, load_run
from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.files import write_text
from ansatz.loop.selection import sampling_seconds
from ansatz.track.jsonl import read_jsonl

DONE_FILE = "done.json"


def resume_config(run_dir: str | Path) -> Config:
    """The config of a run folder. The folder may have been moved since the run began."""
    path = Path(run_dir)
    config = load_run(path)
    if path.name in ("", ".."):
        path = path.resolve()
    return config.model_copy(update={"name": path.name, "out": str(path.parent)})


def prepare_run_dir(run_dir: Path, *, resume: bool, fresh: bool) -> None:
    """Make room for a run, unless it is resumed. A run that failed before its model was evaluated is removed.

    Raises ConfigError if the folder is not a run folder, or if it holds a run that has come further and `fresh` is
    not set.
    """
    if resume or not run_dir.exists() or not any(run_dir.iterdir()):
        return
    if not (run_dir / "config.yaml").exists():
        raise ConfigError(
            f"{run_dir} exists and is not an Ansatz run folder; its files were not touched. "
            "Choose another name with --name NAME."
        )
    if not fresh and read_done(run_dir / "model") is not None:
        raise ConfigError(
            f"{run_dir} already holds a run. Resume it with --resume {run_dir}, start over with --fresh, "
            "or choose another name with --name NAME."
        )
    shutil.rmtree(run_dir)


def write_config(config: Config, folder: Path) -> None:
    write_text(folder / "config.yaml", dump(config))


def read_done(folder: Path) -> dict[str, Any] | None:
    """{"output": path within the folder, "seconds": s} of a finished stage; None if the stage is not finished."""
    path = folder / DONE_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_done(folder: Path, *, output: str, seconds: float) -> None:
    write_text(folder / DONE_FILE, json.dumps({"output": output, "seconds": round(seconds, 3)}))


def seconds_before(folder: Path) -> float:
    """Seconds that an interrupted run of the stage had recorded."""
    rows = read_jsonl(folder / "metrics.jsonl")
    return sampling_seconds(folder) + (float(rows[-1]["seconds"]) if rows else 0.0)

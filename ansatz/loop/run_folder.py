"""The folder of a run: permission to use it, resuming the run in it, and the marks of finished stages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansatz.config.load import RUN_FILE, dump, load_run
from ansatz.config.schema import Config
from ansatz.errors import CheckpointError, ConfigError
from ansatz.files import write_text
from ansatz.json_text import parse_json
from ansatz.links import check_no_links, list_folder, read_bytes, remove
from ansatz.locks import LOCK_FILE
from ansatz.loop.run_record import RunRecord, is_marked, is_run_folder, record_of

DONE_FILE = "done.json"


def resume_config(
    run_dir: str | Path, overrides: Mapping[str, str] | None = None, *, trust_code: bool | None = None
) -> Config:
    """Return the config of a run folder with overrides. The folder may have been moved since the run began. trust_code:
    as in `load_run`. Raise ConfigError for an override that names another folder."""
    path = Path(run_dir)
    for key in {"name", "out"}.intersection(overrides or ()):
        raise ConfigError(
            f"--{key} with --resume: a run is resumed in its own folder, {run_dir}. Leave --{key} out. To keep the run "
            "as it is, copy the folder and resume the copy."
        )
    config = load_run(path, overrides=overrides, trust_code=trust_code)
    if path.name in ("", ".."):
        path = path.resolve()
    return config.model_copy(update={"name": path.name, "out": str(path.parent)})


def check_run_dir(run_dir: Path, *, fresh: bool) -> None:
    """Raise ConfigError if a new run may not use the folder: it holds foreign files, or a run without `fresh` set."""
    others = _files(run_dir)
    if others and not is_marked(run_dir):
        why = f"its {RUN_FILE} is not one of Ansatz" if is_run_folder(run_dir) else f"it has no {RUN_FILE}"
        raise ConfigError(
            f"{run_dir} exists and is not an Ansatz run folder ({why}); its files were not touched. "
            "Choose another name with --name NAME."
        )
    if others and not fresh:
        raise ConfigError(
            f"{run_dir} already holds a run. Resume it with --resume {run_dir}, start over with --fresh, "
            "or choose another name with --name NAME."
        )


def prepare_run_dir(run_dir: Path, config: Config, *, fresh: bool) -> RunRecord:
    """Mark a folder for a new run, and delete an earlier run in it if `fresh` is set. The caller holds the lock.

    Raise the errors of `check_run_dir`. The mark itself is replaced, never deleted. After a kill in between, --fresh
    may therefore still clear the folder.
    """
    check_run_dir(run_dir, fresh=fresh)
    for path in _files(run_dir):
        if path.name != RUN_FILE or (path.is_dir() and not path.is_symlink()):
            remove(path)
    record = record_of(config)
    record.write(run_dir)
    return record


def _files(run_dir: Path) -> list[Path]:
    """List all files except the lock and leftovers of a run that was killed while it marked its folder."""
    begun = (LOCK_FILE, f".{RUN_FILE}.draft")
    return [path for path in list_folder(run_dir) if path.name not in begun] if run_dir.is_dir() else []


def write_config(config: Config, folder: Path) -> None:
    write_text(folder / "config.yaml", dump(config))


def read_done(folder: Path) -> dict[str, Any] | None:
    """Read {"output": path within the folder, "seconds": s, "steps": n} of a stage; None if it is not finished.

    steps: None for a stage without steps. Raise CheckpointError for a damaged file.
    """
    path = folder / DONE_FILE
    if not path.is_file():
        return None
    try:
        done = parse_json(read_bytes(path), own=True)
        steps = done.get("steps")
        if steps is not None and type(steps) is not int:
            raise ValueError(f"steps = {steps!r:.60}")
        output = folder / (name := str(done["output"]))
        if not output.exists() or ".." in Path(name).parts or folder not in (output, *output.parents):
            raise ValueError(f"output = {done['output']!r:.60}, which does not exist in this folder")
        check_no_links(output)
        return {"output": str(done["output"]), "seconds": float(done["seconds"]), "steps": steps}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({type(error).__name__}: {error}). Remove the file: the stage then continues from its "
            "last checkpoint."
        ) from error


def write_done(folder: Path, *, output: str, seconds: float, steps: int | None) -> None:
    write_text(folder / DONE_FILE, json.dumps({"output": output, "seconds": round(seconds, 3), "steps": steps}))

"""The models of a run: the final one, and the best one by held-out score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansatz.config.load import load_run
from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.links import check_no_links
from ansatz.loop.run_folder import read_done
from ansatz.loop.run_record import is_run_folder
from ansatz.loop.stages.plan import planned_stages
from ansatz.loop.step_edges import best_checkpoint
from ansatz.train.checkpoint import list_checkpoints


def model_of(path: Path, *, trust_code: bool | None = None) -> Path:
    """Return the final model of a run folder; any other path as it is. Every command that takes a model takes a run so.

    trust_code: as in `load_run`; stages in files are read to know which one is the last.
    """
    return final_model(path, load_run(path, trust_code=trust_code)) if is_run_folder(path) else path


def final_model(run: Path, config: Config) -> Path:
    """Return the last checkpoint of a run's last stage. Raise ConfigError if a stage is unfinished or none trains."""
    stages = planned_stages(config)
    folders = [run / name for entry in stages for name in entry.folders]
    done = {folder: read_done(folder) for folder in folders}
    if unfinished := [folder.name for folder, output in done.items() if output is None]:
        newest = _find_newest_checkpoint(folders)
        other = f" Or give a checkpoint, such as {newest}." if newest is not None else ""
        raise ConfigError(
            f"{run} is not finished: its stage {unfinished[0]} is not done. Finish it with ansatz train --resume {run}."
            f"{other}"
        )
    last = [run / name for entry in stages if entry.stage.makes_policy for name in entry.folders][-1]
    if last.name == "model":
        raise ConfigError(f"{run} has no training stage, so it has made no model. Give a run that trains.")
    output = done[last]
    assert output is not None
    return last / output["output"]


def best_model(run: Path, config: Config) -> Path:
    """Return the checkpoint with the best held-out pass@1 of the last stage with evaluations; `save.best` keeps it.

    The run need not be finished. Raise ConfigError if no checkpoint has been evaluated.
    """
    folders = [run / name for entry in planned_stages(config) if entry.stage.makes_policy for name in entry.folders]
    found = (best_checkpoint(folder) for folder in reversed(folders))
    if (best := next((path for path in found if path is not None), None)) is None:
        newest = _find_newest_checkpoint(folders)
        advice = f"Give a checkpoint instead: {newest}" if newest is not None else f"Resume {run} first."
        raise ConfigError(f"{run} has no checkpoint that was evaluated on held-out problems. {advice}")
    check_no_links(best)
    return best


def _find_newest_checkpoint(folders: Sequence[Path]) -> Path | None:
    """Return the last checkpoint of the last stage with checkpoints."""
    return next((path for folder in reversed(folders) for path in reversed(list_checkpoints(folder))), None)

"""The stages of a run with their folders, in the order of the recipe's list of stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ansatz.config.schema import Config
from ansatz.config.stage import StageDeclaration
from ansatz.config.stage_list import stage_entries
from ansatz.errors import ConfigError
from ansatz.loop.run_folder import read_done
from ansatz.loop.stages.stage import Stage
from ansatz.registry import load_attribute
from ansatz.track.metrics import add_table


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """One entry of the list of stages. config: the recipe with the changes of the entry. folders: the folders that it
    makes, in order; the first entry of a stage gets the folder `rl`, the second `rl_2`."""

    stage: Stage
    title: str
    config: Config
    folders: Sequence[str]


def find_stage(declaration: StageDeclaration, config: Config | None = None) -> Stage:
    """Return the stage of a declaration, and make its metrics known. Raise ConfigError if its class is not a stage.

    config: the recipe, whose sections can choose a variant of the stage.
    """
    kind = load_attribute(declaration.runs if config is None else declaration.runs_with(config), kind="stage")
    if not (isinstance(kind, type) and issubclass(kind, Stage)):
        raise ConfigError(f"stage {declaration.runs!r} is not a subclass of ansatz.loop.stages.stage.Stage.")
    if declaration.metrics is not None:
        add_table(declaration.metrics)
    stage = kind()
    stage.declaration = declaration
    return stage


def planned_stages(config: Config) -> list[PlannedStage]:
    """Return the stages of a recipe in the order of the run. Raise ConfigError for an entry that cannot run."""
    planned, num_folders = list[PlannedStage](), Counter[str]()
    for entry in stage_entries(config):
        stage = find_stage(config.declaration(entry.name), entry.config)
        folders = stage.folders(entry.config, before=num_folders[entry.name])
        num_folders[entry.name] += len(folders)
        planned.append(PlannedStage(stage=stage, title=entry.title, config=entry.config, folders=folders))
    return planned


def folder_names(config: Config) -> list[str]:
    """Return the names of all folders of a run, in the order of its stages."""
    return [name for entry in planned_stages(config) for name in entry.folders]


READ_ONCE = {
    "problems": ("data.sft.", "data.train.", "data.heldout.", "data.unfit"),
    "model": ("model.path", "model.tiny.", "model.toy"),
}
"""By stage: keys, and sections with a dot at the end, that only this stage reads, because it stores their values."""
_ALSO_READ_BY = {"sft": ("rejection",)}
"""By section: stages besides its own that take defaults from it."""


def last_reader(stages: Sequence[PlannedStage], done: Sequence[bool], key: str) -> str | None:
    """Return the finished stage or stages that a key was for; None if an unfinished one may read it.

    done: for each of the planned stages, whether it is finished.
    """
    planned = list(zip(stages, done, strict=True))
    left = {entry.stage.name for entry, is_done in planned if not is_done}
    if not left:
        return "stages that are all finished"
    finished = {entry.stage.name for entry, is_done in planned if is_done} - left
    for stage in finished & READ_ONCE.keys():
        for name in READ_ONCE[stage]:
            if key.startswith(name) if name.endswith(".") else key == name:
                return f"the stage {stage}"
    section = key.partition(".")[0]
    declared = {entry.stage.name for entry, _ in planned if entry.stage.declaration.section is not None}
    if section in finished & declared and left.isdisjoint(_ALSO_READ_BY.get(section, ())):
        return f"the stage {section}"
    return None


def check_order(run_dir: Path, stages: Sequence[PlannedStage]) -> None:
    """Raise ConfigError if a stage must still begin or be extended, although a later one has begun from its output."""
    folders = [(entry, run_dir / name) for entry in stages for name in entry.folders]
    begun = [(folder / "config.yaml").is_file() for _, folder in folders]
    last = max((place for place, has_begun in enumerate(begun) if has_begun), default=0)
    later = folders[last][1]
    for place, (entry, folder) in enumerate(folders[:last]):
        if not begun[place]:
            raise ConfigError(
                f"the stage {folder.name} has not begun, but {later.name}, which comes after it, has. Entries can be "
                "added only at the end of stages. Restore the list, or start a new run with --name NAME."
            )
        done, steps = read_done(folder), entry.stage.steps(entry.config)
        if done is not None and steps is not None and (done["steps"] or 0) < steps:
            raise ConfigError(
                f"the stage {folder.name} is finished, and {later.name} has begun from its model, so its steps cannot "
                f"become {steps}. Extend the last stage, or start a new run with --name NAME."
            )

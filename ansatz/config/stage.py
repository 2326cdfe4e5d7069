"""The recipe's knowledge about a stage: its section, its toy sizes, its defaults, its models and its metrics.

Every stage declares this once. The schema, toy runs, the list of stages and all others go through the declarations of
a recipe and name no stage. A declaration is read when a recipe is loaded, so an installed stage's declaration imports
no torch; the class that runs the stage is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ansatz.config.fields import as_mapping
from ansatz.trust import TrustedText

SAMPLING_CAPS = {"samples_per_prompt": 4, "max_response_tokens": 64, "min_response_tokens": 4, "thinking_budget": 16}
"""The largest values of sampling options at toy size."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # each is made once
class StageDeclaration:
    """The facts about a stage.

    name: in the list of stages, of its section, and of its folders. runs: `module:Class` or `file.py:Class`, a subclass
        of `loop.stages.stage.Stage`; a declaration is part of a program, so it may name code. A stage in a user's file
        leaves it out, because the recipe says it.
    section: the class of its section; None: there is none. optional: the recipe may leave the section out, and then the
        stage does not run. Otherwise every key of the section needs a default.
    works: whether a resolved recipe gives the stage something to do. By default: whether the section is given. needs:
        the part of the recipe that is needed for that, for an error.
    caps: the largest values at toy size, by key of the section. toy: other values of the section at toy size, from its
        mapping in a recipe or in an entry of the list of stages.
    own_model: defaults of the section in a recipe with a model of its own (`model.path`).
    models: the keys of the section that can name a model; hub names among them get a commit.
    learns_from_given: whether the section's mapping makes the stage learn from given responses alone, so that no
        response is sampled.
    variants: by a key of the recipe, the class that runs the stage if the key is given.
    reads: the sections besides its own, and single keys such as data.sft, that an entry of the stage can change with
        effect. None: not known.
    metrics: the table of its metrics (`track.metrics`), for a stage in a user's file.
    Example: `StageDeclaration(name="best_response", section=BestResponseSection, caps={"steps": 3})`.
    """

    name: str
    runs: str = ""
    section: type[BaseModel] | None = None
    optional: bool = True
    works: Callable[[Any], bool] | None = None
    needs: str = ""
    caps: Mapping[str, int] = field(default_factory=dict[str, int])
    toy: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    own_model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    models: Sequence[str] = ()
    learns_from_given: Callable[[Mapping[str, Any]], bool] | None = None
    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    reads: Sequence[str] | None = None
    metrics: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", TrustedText(self.runs))

    def runs_with(self, config: BaseModel) -> str:
        """Return the class that runs the stage with a recipe, as `runs`."""
        given = (TrustedText(runs) for key, runs in self.variants.items() if getattr(config, key) is not None)
        return next(given, self.runs)

    def has_work(self, config: BaseModel) -> bool:
        """Tell whether a resolved recipe gives the stage something to do."""
        return self.works(config) if self.works is not None else getattr(config, self.name) is not None


def stage_name(entry: Any) -> str:
    """Return the stage that an entry of `stages` names, itself or under `stage`; empty if it names none."""
    if isinstance(entry, Mapping):
        entry = cast("Mapping[str, Any]", entry).get("stage", "")
    return entry if isinstance(entry, str) else ""


def over_caps(settings: Any, caps: Mapping[str, int]) -> dict[str, Any]:
    """Return the caps that the settings of a section exceed. A wrong value is left to the check of the section."""
    values = as_mapping(settings)
    return {key: cap for key, cap in caps.items() if isinstance(value := values.get(key), int) and value > cap}


def is_missing(section: Mapping[str, Any]) -> bool:
    """Tell whether the problems or rows that a section names are on the hub or in a missing file."""
    if "dataset" in section:
        return not Path(str(section["dataset"])).exists()
    if "path" in section:
        return not Path(str(section["path"])).is_file()
    if isinstance(section.get("of"), Mapping):
        return is_missing(section["of"])
    parts: Any = section.get("parts")
    return isinstance(parts, list) and any(map(is_missing, cast("list[dict[str, Any]]", parts)))

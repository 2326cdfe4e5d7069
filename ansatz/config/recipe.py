"""The class of a recipe: the keys of every recipe, and the sections of its stages.

A recipe can use the installed stages, and stages in a user's own files, which it lists as `path/file.py:Class`.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel, Field, create_model

from ansatz.config.schema import Config
from ansatz.config.stage import StageDeclaration, stage_name
from ansatz.errors import ConfigError
from ansatz.registry import load_attribute
from ansatz.trust import TrustedText, mark_as_found, marking, trusted

INSTALLED = (
    "ansatz.config.stages.core:PROBLEMS",
    "ansatz.config.stages.core:MODEL",
    "ansatz.config.stages.core:SFT",
    "ansatz.config.stages.rejection:REJECTION",
    "ansatz.config.stages.preference:PREFERENCE",
    "ansatz.reward_models.section:DECLARATION",
    "ansatz.config.stages.core:RL",
)
"""The places of the declarations, in the order of the stages in a recipe that does not list them."""


@functools.cache
def list_stages() -> tuple[StageDeclaration, ...]:
    return tuple(load_attribute(TrustedText(place), kind="stage") for place in INSTALLED)


def find_stages(recipe: Mapping[str, Any]) -> tuple[StageDeclaration, ...]:
    """Return the declarations of the installed stages, and of stages that the recipe lists as `path/file.py:Class`, in
    text that may name code.

    Raise ConfigError for a file or a class that cannot be used, and for two stages of one name.
    """
    declared = {declaration.name: declaration for declaration in list_stages()}
    for place in listed_stages(recipe):
        if ":" not in place or not isinstance(place, TrustedText):
            continue
        declaration = _declaration_of(place)
        if declaration.name in declared:
            raise ConfigError(
                f"stage {place!r} is called {declaration.name!r}, as another stage is. Give its declaration "
                "another name."
            )
        declared[declaration.name] = declaration
    return tuple(declared.values())


def listed_stages(recipe: Mapping[str, Any]) -> list[str]:
    """Return the names in the list of stages of a recipe, each once; empty without a list."""
    listed: Any = recipe.get("stages")
    entries = cast("list[Any]", listed) if isinstance(listed, list | tuple) else []
    return list(dict.fromkeys(map(stage_name, entries)))


@functools.cache
def _declaration_of(place: str) -> StageDeclaration:
    declaration = getattr(load_attribute(place, kind="stage"), "declaration", None)
    if not isinstance(declaration, StageDeclaration):
        raise ConfigError(
            f"stage {place!r} is not a stage: expected a subclass of ansatz.loop.stages.stage.Stage whose attribute "
            "`declaration` is a StageDeclaration."
        )
    return dataclasses.replace(declaration, runs=place)


@functools.cache
def recipe_class(declarations: tuple[StageDeclaration, ...]) -> type[Config]:
    """Return the class of recipes with these stages. It has a field for each section, by the name of the stage."""
    fields: dict[str, Any] = {}
    for declaration in declarations:
        if (section := declaration.section) is not None:
            kind, default = (section | None, None) if declaration.optional else (section, section())
            fields[declaration.name] = (kind, Field(default, description=inspect.getdoc(section)))
    recipe = create_model("Recipe", __base__=Config, **fields)
    recipe.declarations = declarations
    copyreg.pickle(recipe, _reduce)  # pickle finds no class that is made while the program runs
    return recipe


def marked_recipe(data: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Mark a recipe's mapping as the user's own, or with a file, as one that was found in it. The sections of stages
    in files are then left out, since the files would have to be read to know them."""
    if file is None:
        return trusted(dict(data))
    marked = mark_as_found(file, dict(data))
    if all(isinstance(place, TrustedText) for place in listed_stages(marked) if ":" in place):
        return marked
    known = recipe_class(find_stages(marked)).model_fields
    return {key: value for key, value in marked.items() if key in known}


def class_of(recipe: Mapping[str, Any]) -> type[Config]:
    """Return the class of a recipe, by its list of stages."""
    return recipe_class(find_stages(recipe))


def resolve(recipe: Mapping[str, Any], file: Path | None) -> Config:
    """Return the config of a recipe's mapping that `marked_recipe` has marked. The schema makes plain text of some of
    it, so it is marked again. Raise pydantic.ValidationError for wrong keys."""
    config = _with_marks(class_of(recipe).model_validate(recipe), marking(recipe))
    config.mark_found(file)
    return config


def _with_marks(section: Any, mark: Callable[[Any], Any]) -> Any:
    """Return the section with its texts marked."""
    marked = section.model_copy()
    for name, value in section.__dict__.items():
        marked.__dict__[name] = _with_marks(value, mark) if isinstance(value, BaseModel) else mark(value)
    return marked


def _reduce(config: Config) -> tuple[Callable[..., Config], tuple[dict[str, Any], Path | None]]:
    return _restore, (config.model_dump(), config.found_in)


def _restore(recipe: dict[str, Any], file: Path | None) -> Config:
    """Restore a config from its dump, in another process."""
    return resolve(marked_recipe(recipe, file), file)


def default_class() -> type[Config]:
    """Return the class of recipes with installed stages only."""
    return recipe_class(list_stages())


def section_at(names: Sequence[str], recipe: type[Config] | None = None) -> type[BaseModel] | None:
    """Return the section of a recipe with these names, from the outermost on; None if the key is not a section.

    recipe: its class; None: the class of recipes with installed stages only.
    """
    section: type[BaseModel] = recipe or default_class()
    for name in names:
        info = section.model_fields.get(name)
        kinds = [info.annotation, *get_args(info.annotation)] if info else []  # the second of `Section | None`
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            return None
        section = inner
    return section


def recipe_keys(*names: str) -> list[str]:
    """Return the dotted names of all keys in a section of a recipe; without names, of the whole recipe. The settings of
    components are left out, because no schema lists them."""
    section, keys = section_at(names), list[str]()
    for key, field in section.model_fields.items() if section is not None else ():
        inner = section_at([*names, key])
        keys += [] if inner is field.annotation else [".".join([*names, key])]
        keys += recipe_keys(*names, key) if inner is not None else []
    return keys


def suggest_keys(last: str, known: Iterable[str], *, option: str = "") -> str:
    """Return " Did you mean train.lr or sft.lr?" with the keys whose last part is this one, keys of RL first; empty if
    there are none. option: the text in front of each key."""
    same = [key for key in known if key.rpartition(".")[2] == last.replace("-", "_")]
    same.sort(key=lambda key: key.partition(".")[0] not in ("train", "rollout", "algorithm"))
    *others, end = [f"{option}{key}" for key in same] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{end}?" if same else ""

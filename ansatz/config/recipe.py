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

from ansatz.config.chat import AUTO
from ansatz.config.fields import as_mapping
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

OWN_MODEL: dict[str, dict[str, Any]] = {
    "data": {"template": AUTO},
    "rollout": {"max_prompt_tokens": 1024},
    "train": {"lr": 1e-6, "critic": {"lr": 1e-5}},
}
"""Defaults of a recipe that names a model (`model.path`), for keys whose defaults only suit the built tiny model: by
section and key, besides the sections of stages. Learning rates of the tiny model (1e-4 and more) destroy a pretrained
one in a few steps. The config.yaml of a run gives every value, so a resumed run keeps its own."""
EVALUATED_TOKENS = 2048
"""The longest response of a recipe that samples only to evaluate, if it gives none."""


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


def with_own_model_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe's mapping with the defaults of `OWN_MODEL` if `model.path` is set; otherwise as it is.

    Raise ConfigError if rollout.max_response_tokens is missing, unless the recipe is run at toy size, which sets
    lengths, or learns from given responses only, such as DPO on pairs from a file.
    """
    model = as_mapping(data.get("model"))
    if model.get("path") is None:
        return dict(data)
    stages = [each for each in find_stages(data) if each.own_model and (each.name in data or not each.optional)]
    defaults = {**OWN_MODEL, **{each.name: each.own_model for each in stages}}
    filled = {
        name: _filled(values, as_mapping(data.get(name)))
        for name, values in defaults.items()
        if isinstance(data.get(name, {}), Mapping)  # anything else is refused by the schema
    }
    if "rollout" in filled and "max_response_tokens" not in filled["rollout"] and not model.get("toy"):
        if _learns_from_samples(data):
            raise ConfigError(
                "rollout.max_response_tokens is missing: with a model of your own (model.path) the longest response "
                "has no default, because longer ones are cut off and earn nothing; write rollout: "
                "{max_response_tokens: N}, such as 512 for GSM8K, 2048 for MATH, or 8192 for a model that thinks first."
            )
        filled["rollout"]["max_response_tokens"] = EVALUATED_TOKENS
    return {**data, **filled}


def _learns_from_samples(data: Mapping[str, Any]) -> bool:
    """Tell whether a stage of the recipe samples its own data. True for values that the schema will refuse."""
    declarations, names = find_stages(data), set(listed_stages(data))
    if not names:
        names = {each.name for each in declarations if each.section is not None and data.get(each.name) is not None}
        names |= set[str]() if as_mapping(data.get("train")).get("steps") == 0 else {"rl"}
    return not names <= {
        name
        for each in declarations
        if each.learns_from_given is not None and each.learns_from_given(data.get(each.name) or {})
        for name in (each.name, each.runs)
    }


def _filled(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given section with the defaults of keys that it leaves out, also within its own sections."""
    inner = {
        key: _filled(as_mapping(value), given[key])
        for key, value in defaults.items()
        if isinstance(value, Mapping) and isinstance(given.get(key), Mapping)
    }
    return {**defaults, **given, **inner}


def resolve(recipe: Mapping[str, Any], file: Path | None) -> Config:
    """Return the config of a mapping that `marked_recipe` has marked, with the defaults of a model that it names.

    The schema makes plain text of some of it, so it is marked again. Raise pydantic.ValidationError for wrong keys.
    """
    recipe = with_own_model_defaults(recipe)
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

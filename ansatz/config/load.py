"""From YAML recipe, overlay files and dotted overrides to a checked `Config`.

Later layers win key by key: recipe, then each overlay in order, then what `--model.toy true` caps, then the
overrides. `1e-6` is a number here, which YAML 1.1 reads as text; a key written twice is an error, which YAML takes
silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ansatz.config import renamed
from ansatz.config.packaged import is_packaged, recipe_path
from ansatz.config.paths import beside_recipe
from ansatz.config.schema import Config
from ansatz.config.toy import changes, toy_layer
from ansatz.errors import ConfigError
from ansatz.registry import suggest

SectionT = TypeVar("SectionT", bound=BaseModel)

_FLOAT = re.compile(r"^[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")


class _Loader(yaml.SafeLoader):
    """SafeLoader with floats as YAML 1.2 has them and without silent duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConfigError(f"the key {key.value!r} stands twice (line {key.start_mark.line + 1}). Keep one.")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
    "tag:yaml.org,2002:float", _FLOAT, list("-+0123456789.")
)


def parse_yaml(text: str, *, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ConfigError(f"{where} is not valid YAML: {error.problem}{line}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from error


def load_recipe(
    path: str | Path, *, overlays: Sequence[str | Path] = (), overrides: Mapping[str, str] | None = None
) -> Config:
    """The resolved config. Raises ConfigError with one sentence in the words of the recipe."""
    data = _read_recipe(path)
    for overlay in overlays:
        data = merge(data, _read_recipe(overlay))
    over = _overriding(overrides or {})
    config = check(merge(data, over))
    return _at_toy_size(config, data, over) if config.model.toy is True else config


def load_run(run_dir: str | Path, *, overrides: Mapping[str, str] | None = None) -> Config:
    """The config of a run folder, with dotted overrides."""
    path = Path(run_dir) / "config.yaml"
    if not path.is_file():
        raise ConfigError(
            f"{str(run_dir)!r} is not a run folder: config.yaml is missing. Give a folder that `ansatz train` wrote."
        )
    return check(merge(_read(path), _overriding(overrides or {})))


def dump(config: BaseModel) -> str:
    """YAML of the resolved config; `load_recipe` of it gives an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Key by key; mappings on both sides are merged, but naming another component drops the old one's settings."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            old_settings, new_settings = cast(Mapping[str, Any], old), cast(Mapping[str, Any], value)
            out[key] = new_settings if _renames(old_settings, new_settings) else merge(old_settings, new_settings)
        else:
            out[key] = value
    return out


def check(data: Mapping[str, Any]) -> Config:
    """The mapping as a config. ConfigError for old, unknown, missing and wrong keys, in the words of the recipe."""
    renamed.check_recipe(data)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_sentences(error)) from error


def parse_section(section: type[SectionT], data: Mapping[str, Any], *, name: str) -> SectionT:
    """A section outside a recipe. ConfigError for wrong keys, which it calls name.KEY; or just KEY without a name."""
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_sentences(error, name)) from error


def _sentences(error: ValidationError, *parents: str) -> str:
    """One sentence for each thing that is wrong, without repetitions."""
    above = tuple(parent for parent in parents if parent)
    details = [{**detail, "loc": (*above, *detail["loc"])} for detail in error.errors(include_url=False)]
    return " ".join(dict.fromkeys(_sentence(cast(ErrorDetails, detail)) for detail in details))


def _at_toy_size(config: Config, data: Mapping[str, Any], over: Mapping[str, Any]) -> Config:
    after = check(merge(merge(data, toy_layer(config)), over))
    return after.model_copy(
        update={"model": after.model.model_copy(update={"toy": changes(config, after)})},
    )


def _overriding(overrides: Mapping[str, str]) -> dict[str, Any]:
    """{"train.lr": "3e-4"} -> {"train": {"lr": 3e-4}}: one layer, so the order of the overrides does not matter."""
    out: dict[str, Any] = {}
    for name, text in overrides.items():
        value = parse_yaml(text, where=f"the value of --{name}")
        for part in reversed(name.split(".")):
            value = {part: value}
        out = merge(out, value)
    return out


def _renames(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(key in old and key in new and old[key] != new[key] for key in ("source", "name"))


def _read_recipe(given: str | Path) -> dict[str, Any]:
    file = recipe_path(given)
    recipe = _read(file)
    return recipe if is_packaged(file) else beside_recipe(recipe, file.parent)


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not a text file ({error.reason} at byte {error.start}); give a YAML recipe."
        ) from error
    data = parse_yaml(text, where=str(file))
    if not isinstance(data, dict):
        got = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{file} holds {got}, expected a mapping of sections such as `train:`.")
    return cast(dict[str, Any], data)


def _sentence(detail: ErrorDetails) -> str:
    """One pydantic error in the words of the recipe: what, got, expected, what to do."""
    name = ".".join(str(part) for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        *parents, last = [str(part) for part in detail["loc"]]
        section = _section(parents)
        where = f"{'.'.join(parents)} has" if parents else "a recipe has"
        return f"{name}: {where} no key {last!r}.{suggest(last, section.model_fields)}"
    if detail["type"] == "missing":
        return f"{name} is missing; it has no default, so the recipe must give it."
    if detail["type"] == "value_error":  # a section's own check, which names its key
        return f"{name}.{detail['msg'].removeprefix('Value error, ')}.".removeprefix(".")
    if detail["type"] in ("model_type", "dict_type"):
        return f"{name} = {detail['input']!r}: it should be a mapping of keys to values."
    message = detail["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("Value error, ")
    return f"{name} = {detail['input']!r}: it {message}."


def _section(parents: Sequence[str]) -> type[BaseModel]:
    section: type[BaseModel] = Config
    for part in parents:
        info = section.model_fields.get(part)
        kind = info.annotation if info else None
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            break
        section = kind
    return section

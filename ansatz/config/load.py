"""Loads a recipe: a YAML file, overlay files and dotted overrides become a checked `Config`.

Later layers override earlier ones key by key: the recipe, each overlay in order, the reductions of `--model.toy true`,
and the overrides. Unlike in YAML 1.1, `1e-6` is a number and a duplicate key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ansatz.config.chat import ChatTemplate, FewShotTemplate
from ansatz.config.fields import as_mapping
from ansatz.config.layers import laid_over, merge, merge_notes, spell_out
from ansatz.config.packaged import is_packaged, recipe_path, recipe_text
from ansatz.config.paths import beside_recipe
from ansatz.config.recipe import class_of, marked_recipe, recipe_keys, resolve, section_at, suggest_keys
from ansatz.config.schema import Config, flat_keys
from ansatz.config.toy import changes, toy_layer
from ansatz.errors import ConfigError
from ansatz.files import check_ordinary_files, has_half_character
from ansatz.json_text import MAX_INTEGER, parse_json
from ansatz.links import hold, read_bytes
from ansatz.registry import number_problem, suggest
from ansatz.trust import is_signed, texts_of, trusted

_MOST_NAMED = 10
"""Wrong keys that are named in an error. The search for a near name takes milliseconds."""
SectionT = TypeVar("SectionT", bound=BaseModel)

RUN_FILE = "run.json"
RECIPE_FILE = "recipe.yaml"
"""The recipe of an exported model, next to its weights."""
MAX_DEPTH, MAX_VALUES = 50, 100_000
"""Limits of a YAML file or value. Recipes stay below 10 levels and 1000 values."""
_FLOAT = re.compile(r"^[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")


REMOVED: dict[str, tuple[Any, str]] = {
    "rollout.long_lag": (False, "A rollout.lag above 8 is refused, so remove the key."),
    "rollout.publish_every": (1, "Samplers get the weights of every step. Remove it; rollout.lag lets them run ahead."),
    "save.exact": (True, "Checkpoints always hold the weights that sample the next steps, so remove the key."),
    "save.tokens_mb": (4, "At most 4 MB of a step's tokens are stored, so remove the key."),
    "cluster.probe": (None, "It is a thirtieth of cluster.start, which you can set instead."),
    "cluster.patience": (None, "It is five sixths of cluster.stall, which you can set instead."),
    "cluster.update": (None, "It is five sixths of cluster.stall, which you can set instead."),
}
"""Keys of earlier versions: the value that says what is done now, and what to do instead of giving another one."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads floats as YAML 1.2 does and refuses duplicate keys."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Check the keys as they are written: later, a mapping also has those that it merges (<<)."""
        node, seen = super().compose_mapping_node(anchor), set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                at = key.start_mark.line + 1
                raise ConfigError(f"duplicate key {key.value!r} (second occurrence on line {at}). Remove one of them.")
            seen.add(key.value)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        values = super().construct_mapping(node, deep)
        for key in values:
            if not isinstance(key, str):
                line = node.start_mark.line + 1
                raise ConfigError(
                    f"the mapping on line {line} has the key {str(key)!r:.60}, which YAML does not read as text. "
                    "Put it in quotes."
                )
        return values


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(  # pyright: ignore[reportUnknownMemberType]
    "tag:yaml.org,2002:float", _FLOAT, list("-+0123456789.")
)


def parse_yaml(text: str, *, where: str) -> Any:
    """Return the value of a YAML text. Raise ConfigError if it is invalid; `where` names the text in the message."""
    try:
        value = yaml.load(text, _Loader)
        _check_values(value)
        return value
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ConfigError(f"{where} is not valid YAML: {error.problem}{line}.") from error
    except (RecursionError, ValueError, OverflowError) as error:  # a number that Python cannot hold, too many brackets
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]
        raise ConfigError(f"{where} cannot be read: {problem}.") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:  # of PyYAML, such as for `!!bool x`
        raise ConfigError(f"{where} is not valid YAML: a value does not have the form of its tag ({error}).") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}.") from error


def _check_values(value: Any) -> None:
    """Raise ConfigError for more values than a recipe needs, or deeper ones: aliases can make billions of a few lines.

    Also for values that are not text, numbers, lists or mappings, such as dates, and for integers of over 300 digits.
    """
    level, total = [value], 0
    for _ in range(MAX_DEPTH):
        for item in level:
            if isinstance(item, int) and abs(item) >= MAX_INTEGER:
                raise ConfigError("it has an integer of more than 300 digits.")
            if isinstance(item, str) and has_half_character(item):
                raise ConfigError(f"it has {item!a:.60}, in which half of a character is missing.")
            if item is not None and not isinstance(item, str | int | float | list | dict):
                raise ConfigError(
                    f"it has {str(item)!r:.60}, which YAML reads as a {type(item).__name__}. Put it in quotes."
                )
        level = [
            inner
            for item in level
            if isinstance(item, list | dict)
            for inner in (cast("dict[Any, Any]", item).values() if isinstance(item, dict) else cast("list[Any]", item))
        ]
        total += len(level)
        if not level:
            return
        if total > MAX_VALUES:
            raise ConfigError(f"it has more than {MAX_VALUES:,} values. Remove aliases that repeat others.")
    raise ConfigError(f"it is nested more than {MAX_DEPTH} levels deep.")


def load_recipe(
    path: str | Path,
    *,
    overlays: Sequence[str | Path] = (),
    overrides: Mapping[str, str] | None = None,
    note: Callable[[str], object] | None = None,
    trust_code: bool | None = None,
) -> Config:
    """Load a recipe and return the resolved config. Raise ConfigError in the words of the recipe.

    note: is called with a sentence for each component that keeps settings of the recipe although an overlay or an
    option names other ones. trust_code: whether the recipe may name code; None: it may, unless it came along with a
    model or with a run that this user has not started. Overlays and overrides may.

    Example: `load_recipe("tiny_arithmetic_grpo_cpu", overrides={"train.steps": "10"})`.
    """
    file = recipe_path(path)
    data, kept = _read_recipe(path), list[tuple[str, str]]()
    came_along = _came_along(file, data) if trust_code is None else not trust_code
    for overlay in overlays:
        layer = trusted(_read_recipe(overlay))
        kept += merge_notes(data, layer)
        data = laid_over(data, layer)
    given = override_layer(overrides or {})
    kept += [each for each in merge_notes(data, given) if _is_given(each[0], overrides or {})]
    config = check(laid_over(data, given), found_in=file if came_along else None)
    if note is not None:
        for _, sentence in kept:
            note(sentence)
    return _at_toy_size(config, data, given) if config.model.toy is True else config


def load_run(
    run_dir: str | Path, *, overrides: Mapping[str, str] | None = None, trust_code: bool | None = None
) -> Config:
    """Load the config of a run folder, changed by dotted overrides. trust_code: as in `load_recipe`."""
    path = hold(Path(run_dir)) / "config.yaml"
    if not path.is_file():
        raise ConfigError(
            f"{str(run_dir)!r} is not a run folder: config.yaml is missing. Give a folder that `ansatz train` wrote."
        )
    check_ordinary_files(Path(run_dir))
    data = _read(path)
    is_own = _is_own(Path(run_dir), data) if trust_code is None else trust_code
    data = _without_removed(data, sections=("cluster", "save"))
    return check(laid_over(data, override_layer(overrides or {})), found_in=None if is_own else path)


def _came_along(file: Path, data: Mapping[str, Any]) -> bool:
    """Tell whether a recipe's file lies in somebody else's run, or next to a model."""
    if file.name == "config.yaml" and any((folder / RUN_FILE).exists() for folder in (file.parent, file.parent.parent)):
        return not _is_own(file.parent, data)
    return file.name == RECIPE_FILE and (file.parent / "config.json").exists()


def _is_own(folder: Path, data: Mapping[str, Any]) -> bool:
    """Tell whether this user started the run with the recipe in the run's folder, or in a folder of its stages."""
    if (folder / RUN_FILE).is_file():
        return is_signed(data, _signatures(folder))
    config = folder.parent / "config.yaml"
    if not config.is_file() or not (folder.parent / RUN_FILE).is_file():
        return False
    of_run = _read(config)
    return set(texts_of(data)) <= set(texts_of(of_run)) and is_signed(of_run, _signatures(folder.parent))


def _signatures(run_dir: Path) -> list[str]:
    try:
        record = parse_json(read_bytes(run_dir / RUN_FILE), own=True)
        return [str(each) for each in record.get("signatures", ())]
    except (OSError, ValueError, TypeError, AttributeError):  # a damaged file, about which `read_record` says more
        return []


def dump(config: BaseModel) -> str:
    """Return the resolved config as YAML. Loading it gives an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def check(data: Mapping[str, Any], *, found_in: Path | None = None) -> Config:
    """Turn a mapping into a config, with the defaults of a model that it names. Raise ConfigError for unknown, missing
    and wrong keys. found_in: the file of a recipe that came along with a model or a run, so it may not name code."""
    for key, value in flat_keys(data).items():
        if (problem := number_problem(value)) is not None:
            raise ConfigError(f"{key} = {value!r}: {problem}.")
    data = marked_recipe(_without_removed(data), found_in)
    try:
        return resolve(data, found_in)
    except ValidationError as error:
        raise ConfigError(_sentences(error, recipe=class_of(data))) from error


def _without_removed(data: Mapping[str, Any], *, sections: Sequence[str] = ()) -> dict[str, Any]:
    """Return a recipe without the keys of earlier versions that say what is done now, and without all of those in
    `sections`."""
    kept = dict(data)
    for key, (now, _) in REMOVED.items():
        section, _, name = key.partition(".")
        part = as_mapping(kept.get(section))
        if name in part and (section in sections or part[name] == now):
            kept[section] = {each: value for each, value in part.items() if each != name}
    return kept


def parse_section(section: type[SectionT], data: Mapping[str, Any], *, name: str) -> SectionT:
    """Parse a section outside a recipe. Raise ConfigError for wrong keys, called name.KEY, or KEY if name is empty."""
    try:
        return section.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_sentences(error, name)) from error


def _sentences(error: ValidationError, *parents: str, recipe: type[Config] | None = None) -> str:
    """Return one sentence for each of the first wrong keys, without repetitions, and the number of the others."""
    prefix = tuple(parent for parent in parents if parent)
    details = [{**detail, "loc": (*prefix, *detail["loc"])} for detail in error.errors(include_url=False)]
    details = _of_one_template(details)
    named = dict.fromkeys(_sentence(cast(ErrorDetails, detail), recipe) for detail in details[:_MOST_NAMED])
    others = len(details) - _MOST_NAMED
    return " ".join([*named, *([f"{others} more keys are wrong."] if others > 0 else [])])


def _of_one_template(details: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep what is wrong with a prompt template as the kind that it is meant to be: a name, the template chat, or
    another name with worked problems. Pydantic says what is wrong with it as each kind."""
    chat, few_shot, name = ChatTemplate.__name__, FewShotTemplate.__name__, "str"
    if not any({chat, few_shot} & {*detail["loc"]} for detail in details):
        return [*details]
    found = {(detail["type"], detail["loc"][-1]) for detail in details if chat in detail["loc"]}
    meant = name if ("model_type", chat) in found else few_shot if ("literal_error", "name") in found else chat
    kinds = {chat, few_shot, name} - {meant}
    kept = [detail for detail in details if not kinds & {*detail["loc"]}]
    return [{**detail, "loc": tuple(part for part in detail["loc"] if part != meant)} for detail in kept]


def _at_toy_size(config: Config, data: Mapping[str, Any], given: Mapping[str, Any]) -> Config:
    after = check(laid_over(merge(data, toy_layer(config)), given), found_in=config.found_in)
    return after.model_copy(update={"model": after.model.model_copy(update={"toy": changes(config, after)})})


def override_layer(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Turn {"train.lr": "3e-4"} into {"train": {"lr": 3e-4}}. All overrides form one layer, so their order is free."""
    layer: dict[str, Any] = {}
    for name, text in overrides.items():
        value = _as_text_if_expected(name, parse_yaml(text, where=f"the value of --{name}"), text)
        for part in reversed(name.split(".")):
            value = {part: value}
        layer = merge(layer, spell_out(value))
    return trusted(layer)


def _as_text_if_expected(name: str, value: Any, text: str) -> Any:
    """Return the text of an option whose key expects a text: to YAML, `--name off` would be a boolean and `--name 7` a
    number. A value of another type that the key takes stays one, and so does a list or a mapping, which is then
    refused."""
    *parents, key = name.split(".")
    section = section_at(parents)
    field = section.model_fields.get(key) if section is not None else None
    kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
    is_text = str in kinds and type(value) not in kinds and isinstance(value, bool | int | float | None)
    return text if is_text else value


def _is_given(key: str, overrides: Iterable[str]) -> bool:
    """Tell whether an option gives the mapping itself (`--rewards '{brief: {}}'`), and not one of its keys."""
    return any(key == name or key.startswith(f"{name}.") for name in overrides)


def _read_recipe(given: str | Path) -> dict[str, Any]:
    file = recipe_path(given)
    recipe = spell_out(_read(file))
    return recipe if is_packaged(file) else beside_recipe(recipe, file.parent)


def _read(file: Path) -> dict[str, Any]:
    data = parse_yaml(recipe_text(file), where=str(file))
    if not isinstance(data, dict):
        content = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{file} contains {content}, expected a mapping of sections such as `train:`.")
    return cast(dict[str, Any], data)


def _sentence(detail: ErrorDetails, recipe: type[Config] | None) -> str:
    """Say one pydantic error in the words of the recipe."""
    name = ".".join(str(part) for part in detail["loc"] if part != "[key]")
    if name in REMOVED:
        return f"{name} = {detail['input']!r}: this key is gone. {REMOVED[name][1]}"
    if detail["type"] == "extra_forbidden":
        *parents, last = [str(part) for part in detail["loc"]]
        section = next(filter(None, (section_at(parents[:end], recipe) for end in range(len(parents), -1, -1))))
        where = f"{'.'.join(parents)} has" if parents else "a recipe has"
        elsewhere = "" if parents and section_at(parents[:1], recipe) is None else suggest_keys(last, recipe_keys())
        return f"{name}: {where} no key {last!r}.{elsewhere or suggest(last, section.model_fields)}"
    if detail["type"] == "missing":
        return f"{name} is missing. It has no default, so the recipe must give it."
    if detail["type"] == "value_error":  # a validator of the section raised it; its message begins with the key
        return f"{name}.{detail['msg'].removeprefix('Value error, ')}.".removeprefix(".")
    if detail["type"] in ("model_type", "dict_type"):
        return f"{name} = {detail['input']!r}: it should be a mapping of keys to values."
    if detail["type"] == "string_type" and isinstance(detail["input"], bool | int | float):
        return f"{name} = {detail['input']!r}: it should be a text, which YAML does not read here. Put it in quotes."
    message = detail["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("Value error, ")
    return f"{name} = {detail['input']!r}: it {message.replace('valid tuple', 'list, such as [A, B]')}."

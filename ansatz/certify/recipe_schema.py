"""The JSON schema of recipes, with which an editor completes and checks their YAML files.

The sections are those of `config.schema`, and what a component takes is its signature: nothing is declared twice. What
the schema accepts can still be refused by `ansatz explain`, which also sees how keys fit together. What it refuses is
refused there too, except numbers in quotes.

The schema is written in draft 7, which all editors know (https://json-schema.org/draft-07).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo

from ansatz.certify.setting_docs import describe_settings
from ansatz.config.recipe import default_class, list_stages
from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import FIRST_STAGES
from ansatz.config.stage_list import CHANGEABLE, CURRICULUM
from ansatz.data.base import find_source, source_names
from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.given_rows import GIVEN
from ansatz.environments.base import TurnSettings, environment_names, find_environment
from ansatz.evaluate.selection import Selection
from ansatz.loop.stages.preference import SOURCES
from ansatz.models.lora import add_adapters
from ansatz.models.tiny import build_tiny_model
from ansatz.objectives.build import CHOICES, COMPONENTS, LISTS, OPTIONAL
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES
from ansatz.objectives.presets import KEYS, PRESETS
from ansatz.objectives.projects import PROJECTS
from ansatz.registry import Registry
from ansatz.rewards.base import INJECTED, RewardRegistry
from ansatz.rollout.engines import ENGINES
from ansatz.train.optimizers import OPTIMIZERS

Schema = dict[str, Any]

_OWN: Schema = {"type": "string", "pattern": ":", "description": "A component of your own: FILE.py:FUNCTION."}
_NUMBER: Schema = {"type": "number"}
_NULL: Schema = {"type": "null"}
_WEIGHT: Schema = {**_NUMBER, "default": 1.0, "description": "Factor of this part in the weighted sum."}
_SOURCES: Schema = {
    "type": ["string", "array"],
    "items": {"type": "string"},
    "description": "Sources, or parts of a mixture, whose problems the reward applies to. Without: all.",
}
_LENGTH: Schema = {"const": "max_response_tokens"}
_BOUNDS = ((Gt, "gt", "exclusiveMinimum"), (Ge, "ge", "minimum"), (Lt, "lt", "exclusiveMaximum"), (Le, "le", "maximum"))
_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)


def recipe_schema(*, overlay: bool = False) -> Schema:
    """Return the JSON schema of a recipe; overlay: of an overlay, in which no key is required."""
    recipe = default_class()
    schema = recipe.model_json_schema()
    defs: dict[str, Schema] = schema["$defs"]
    names = ("Data", "Model", "Rollout", "Train", "RewardModel", "Rejection", "Preference")
    data, model, rollout, train, reward_model, rejection, preference = (
        defs[f"{name}Section"]["properties"] for name in names
    )
    top = schema["properties"]
    sampling = SamplingOptions.model_json_schema()["properties"]
    _add_bounds(SamplingOptions, sampling)
    for section in _sections(recipe):
        _add_bounds(section, (schema if section is recipe else defs[section.__name__])["properties"])
    others = {**_settings(Selection)["properties"], **sampling}
    defs["RejectionSection"] |= {"properties": {**rejection, **others}, "additionalProperties": False}
    for name, component, places in (
        ("Source", _sources(), [data["sft"], data["train"], reward_model["slips"]]),
        ("Heldout", _heldout(), [data["heldout"]]),
        ("Rows", _choose_by("source", {name: _settings(kind) for name, kind in GIVEN.items()}),
         [reward_model["data"], reward_model["heldout_data"]]),
        ("Curriculum", _settings(CurriculumSettings), [data[CURRICULUM]]),
        ("TinyModel", _settings(build_tiny_model, without=("texts",)), [model["tiny"]]),
        ("Adapters", _settings(add_adapters), [model["lora"]]),
        ("Engine", _choose_from(ENGINES), [rollout["engine"]]),
        ("Optimizer", _choose_from(OPTIMIZERS), [train["optimizer"]]),
        ("Environment", _environments(), [top["environment"]]),
        ("Algorithm", _algorithm(), [top["algorithm"]]),
        ("FineTuning", {"$ref": "#/$defs/SftSection"}, [rejection["sft"]]),
        ("Pairs", _pairs(sampling), [preference["pairs"]]),
        ("Losses", _losses(), [preference["losses"]]),
        ("Divergence", _choose_from(DIVERGENCES), [preference["divergence"]]),
        ("Rewards", _rewards(removable=overlay), [top["rewards"], defs["EvaluateSection"]["properties"]["rewards"]]),
    ):  # fmt: skip
        defs[name] = component
        for place in places:
            _fill(place, {"$ref": f"#/$defs/{name}"})
    _fill(top["stages"], {"type": "array", "minItems": 1, "items": _stage(top)})
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema, **_allow_own_sections(schema)}
    return _simplify(schema, without=("title", "required") if overlay else ("title",))


def _heldout() -> Schema:
    """Return one source, or several under names of their own."""
    source = {"$ref": "#/$defs/Source"}
    return {"anyOf": [source, {"type": "object", "additionalProperties": {**source, "required": ["source"]}}]}


def _sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a section and all sections within it."""
    yield section
    for name in section.model_fields:
        kinds = (section.model_fields[name].annotation, *get_args(section.model_fields[name].annotation))
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _sections(kind)


def _add_bounds(section: type[BaseModel], properties: Schema) -> None:
    """Add the ranges of a section's numbers in place: pydantic leaves out those that come after a validator."""
    for name, field in section.model_fields.items():
        properties[name] = _limit(properties[name], (*field.metadata, *_marks(field.annotation)))


def _settings(function: Callable[..., Any], *, without: Iterable[str] = ()) -> Schema:
    """Return the schema of a mapping with the settings of a component, and no others."""
    properties, required = Schema(), list[str]()
    for name, setting in describe_settings(function, without=without).items():
        described = {"description": setting.meaning} if setting.meaning else {}
        properties[name] = {**_of_type(setting.annotation), **described}
        required += [name] if setting.is_required else []
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _of_type(annotation: Any) -> Schema:
    """Return the schema of a type; {} if it has none, or one that refers to others."""
    if annotation in (None, inspect.Parameter.empty):
        return {}
    try:
        schema = TypeAdapter[Any](annotation, config=_ANY_TYPE).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return {}
    return {} if "$defs" in schema else _limit(schema, _marks(annotation))


def _marks(annotation: Any) -> Iterator[Any]:
    """Yield what is annotated to a type, or to the types of a union."""
    if get_origin(annotation) is Annotated:
        for mark in get_args(annotation)[1:]:
            yield from mark.metadata if isinstance(mark, FieldInfo) else [mark]
    if get_origin(annotation) in (Annotated, Union, UnionType):
        for kind in get_args(annotation):
            yield from _marks(kind)


def _limit(schema: Schema, marks: Iterable[Any]) -> Schema:
    """Return the schema of a number, or of a number and others, with the bounds among the marks."""
    if "anyOf" in schema:
        marks = list(marks)
        return {**schema, "anyOf": [_limit(choice, marks) for choice in schema["anyOf"]]}
    if schema.get("type") not in ("integer", "number"):
        return schema
    bounds = {keyword: getattr(mark, name) for mark in marks for kind, name, keyword in _BOUNDS if type(mark) is kind}
    return {**schema, **bounds}


def _extend(settings: Schema, properties: Schema) -> Schema:
    """Return the schema of a mapping that can also have these properties."""
    return {**settings, "properties": {**properties, **settings["properties"]}}


def _choose_by(key: str, choices: Mapping[str, Schema], *, always: Schema | None = None) -> Schema:
    """Return the schema of {key: NAME, ...settings of that component}; always: what every component takes as well.

    Without the key, the settings of all are accepted: the preset or the layer below then has the name. A component of
    the user's own has any settings.
    """
    name: Schema = {"anyOf": [{"enum": list(choices)}, _OWN]}
    properties = {key: name, **(always or {})}
    known = {*properties, *(setting for settings in choices.values() for setting in settings["properties"])}
    rules: list[Schema] = [{"if": {"not": {"required": [key]}}, "then": {"propertyNames": {"enum": sorted(known)}}}]
    for choice, settings in choices.items():
        condition = {"properties": {key: {"const": choice}}, "required": [key]}
        rules.append({"if": condition, "then": _extend(settings, dict.fromkeys(properties, cast(Schema, {})))})
    return {"type": "object", "properties": properties, "allOf": rules}


def _choose_from(registry: Registry[Any]) -> Schema:
    """Return the schema of {name: NAME, ...settings} for the components of a registry."""
    return _choose_by("name", {name: _settings(registry.get(name)) for name in registry.names()})


def _sources() -> Schema:
    """Return the schema of {source: NAME, split: SPLIT, ...settings}: where problems come from."""
    choices = {name: _settings(find_source(name), without=("split",)) for name in source_names()}
    return _choose_by(
        "source", choices, always={"split": {"type": "string", "description": "The split of the source."}}
    )


def _environments() -> Schema:
    """Return the schema of the section `environment`."""
    choices = {name: _settings(find_environment(name)) for name in environment_names()}
    return _choose_by("name", choices, always=_settings(TurnSettings)["properties"])


def _algorithm() -> Schema:
    """Return the schema of the section `algorithm`."""
    aliases = [alias for row in PRESETS.values() for alias in row.get("aliases", ())]
    file = {"type": "string", "pattern": r":|\.ya?ml$", "description": "A row of your own: mine.yaml or mine.py:row."}
    keys: dict[str, Schema] = {
        "preset": {"anyOf": [{"enum": [*PRESETS, *aliases]}, file, _NULL]},
        "defaults_of": {"anyOf": [{"enum": list(PROJECTS)}, _NULL]},
        "advantage_clip": {"anyOf": [{"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}, _NULL]},
        **{key: {"enum": list(values)} for key, values in CHOICES.items()},
        **{key: _component(key) for key in COMPONENTS},
    }
    properties = {
        key: {**keys.get(key, {"type": ["number", "null"]}), "description": meaning} for key, meaning in KEYS.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _component(key: str) -> Schema:
    """Return the schema of a component of the objective: its name, or a mapping with settings; for some a list."""
    registry, choices = COMPONENTS[key], dict[str, Schema]()
    for name in registry.names():
        settings = _settings(registry.get(name))
        properties = {setting: {"anyOf": [schema, _LENGTH]} for setting, schema in settings["properties"].items()}
        choices[name] = {**settings, "properties": properties}
    one = [{"enum": registry.names()}, _OWN, _choose_by("name", choices)]
    no = [{"enum": ["none", None]}] if key in (*OPTIONAL, *LISTS) else []
    return {"anyOf": [*one, *no, *([{"type": "array", "items": {"anyOf": one}}] if key in LISTS else [])]}


def _pairs(sampling: Schema) -> Schema:
    """Return the schema of `preference.pairs`."""
    sources = {name: _settings(kind) for name, kind in SOURCES.items()}
    return _choose_by("source", {**sources, "policy": _extend(sources["policy"], sampling)})


def _losses() -> Schema:
    """Return the schema of `preference.losses`."""
    return _weigh_parts({name: (PREFERENCES.get(name), ()) for name in PREFERENCES.names()}, removable=True)


def _rewards(*, removable: bool) -> Schema:
    """Return the schema of the section `rewards`. removable: an overlay removes a reward with null."""
    registry = RewardRegistry()
    return _weigh_parts(
        {name: (registry.get(name), INJECTED) for name in registry.names()},
        removable=removable,
        always={"sources": _SOURCES},
    )


def _weigh_parts(
    parts: Mapping[str, tuple[Callable[..., Any], Iterable[str]]],
    *,
    removable: bool,
    always: Mapping[str, Schema] = MappingProxyType({}),
) -> Schema:
    """Return the schema of {NAME: {weight: ..., ...settings}}; parts: function and hidden settings of each name.
    always: what every part takes as well."""
    properties = Schema()
    for name, (function, hidden) in parts.items():
        settings = _extend(_settings(function, without=hidden), {"weight": _WEIGHT, **always})
        about = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
        properties[name] = {**_allow_null(settings, nullable=removable), "description": about}
    own = {":": _allow_null({"type": "object"}, nullable=removable)}
    return {"type": "object", "properties": properties, "patternProperties": own, "additionalProperties": False}


def _stage(top: Schema) -> Schema:
    """Return the schema of an entry of `stages`: a name, or a mapping with the sections that the entry changes."""
    name: Schema = {"anyOf": [{"enum": [each.name for each in list_stages() if each.name not in FIRST_STAGES]}, _OWN]}
    data: Schema = {"properties": {CURRICULUM: {"$ref": "#/$defs/Curriculum"}}, "additionalProperties": False}
    of_stages = [each.name for each in list_stages() if each.section is not None]
    sections = {section: top[section] for section in (*of_stages, *CHANGEABLE)}
    entry: Schema = {
        "type": "object",
        "properties": {"stage": name, "data": data, **sections},
        "required": ["stage"],
        "additionalProperties": False,
    }
    return {"anyOf": [name, entry]}


def _allow_own_sections(schema: Schema) -> Schema:
    """Return the keywords with which a recipe has other keys only if it lists a stage of the user's own."""
    by_name = {"type": "object", "properties": {"stage": {"pattern": ":"}}, "required": ["stage"]}
    own = {"anyOf": [{"type": "string", "pattern": ":"}, by_name]}
    listed: Schema = {"properties": {"stages": {"type": "array", "contains": own}}, "required": ["stages"]}
    return {"if": listed, "else": {"propertyNames": {"enum": list(schema["properties"])}}, "additionalProperties": True}


def _fill(place: Schema, component: Schema) -> None:
    """Give a key the schema of its component, in place. It keeps its description and default, and null if it had it."""
    nullable = _NULL in place.get("anyOf", ())
    for keyword in ("type", "items", "additionalProperties", "anyOf"):
        place.pop(keyword, None)
    place |= _allow_null(component, nullable=nullable)


def _allow_null(schema: Schema, *, nullable: bool) -> Schema:
    """Return a schema next to which a description can stand, and which, if nullable, also accepts null."""
    return {"anyOf": [schema, _NULL]} if nullable else {"allOf": [schema]}


def _simplify(schema: Any, *, without: Iterable[str]) -> Any:
    """Return the schema in draft 7, with descriptions on one line. without: keywords to leave out of it.

    What stands under `properties` are names, and what stands under `if` is a condition: both stay.
    """
    if isinstance(schema, list):
        return [_simplify(item, without=without) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    plain: Schema = {}
    for keyword, value in cast(Schema, schema).items():
        if keyword in ("properties", "$defs"):
            plain[keyword] = {name: _simplify(inner, without=without) for name, inner in value.items()}
        elif keyword == "description":
            plain[keyword] = " ".join(value.split())
        elif keyword in ("if", "default"):
            plain[keyword] = value
        elif keyword not in without:
            plain["items" if keyword == "prefixItems" else keyword] = _simplify(value, without=without)
    return plain

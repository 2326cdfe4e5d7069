"""Layers of a recipe: a mapping that is laid over another one, as overlays and options are over a recipe.

rewards: {math_answer: {}, brief: {weight: 0.1}}                  the recipe
rewards: {brief: null, format: {}}                                an overlay: brief goes, format is added
algorithm: {defaults_of: verl}                                    an overlay: the recipe's preset goes
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from ansatz.config.fields import as_mapping
from ansatz.config.recipe import default_class, section_at
from ansatz.errors import ConfigError
from ansatz.trust import unmarked

ALGORITHM, REWARDS = "algorithm", "rewards"
"""REWARDS is the only mapping of components in a recipe. Without null, a layer could add rewards but never take one
away. An algorithm takes a preset, or the defaults of a project, or in one layer both."""
_NAMED = {
    "model": "path",
    "environment": "name",
    "rollout.engine": "name",
    "train.optimizer": "name",
    "preference.divergence": "name",
    "preference.pairs": "source",
    "data.sft": "source",
    "data.train": "source",
    "data.heldout": "source",
    "data.curriculum": "sampler",
    ALGORITHM: "preset",
}
"""Mappings with a name, by key, and the key of the name in them."""
_NAME = re.compile(r"[A-Za-z][\w-]*")


def spell_out(layer: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """Return a layer with the mapping or list behind each plain name, and names in small letters.

    engine: VLLM               {name: vllm}
    data.train: p/rows.jsonl   {source: jsonl, path: p/rows.jsonl}
    stages: sft,rl             [sft, rl]
    rewards: [format]          {format: {}}
    """
    return {key: _spell_out_value(f"{parent}.{key}".removeprefix("."), value) for key, value in layer.items()}


def _spell_out_value(key: str, value: Any) -> Any:
    name = _NAMED.get(key)
    if key in ("stages", REWARDS) and isinstance(value, str):
        value = value.replace(",", " ").split()
    elif name is not None and isinstance(value, str):
        value = _name_mapping(name, value)
    entries = cast("list[Any]", value) if isinstance(value, list) else []
    if key == "stages" and entries:
        return [_spell_out_value("" if isinstance(each, Mapping) else "stage", each) for each in entries]
    if key == REWARDS and entries and all(isinstance(each, str) for each in entries):
        value = {reward: dict[str, Any]() for reward in entries}
    if not isinstance(value, Mapping):
        return _in_small_letters(value) if key == "stage" else cast("Any", value)
    settings = spell_out(cast("Mapping[str, Any]", value), key)
    if key == REWARDS:
        return {_in_small_letters(reward): each for reward, each in settings.items()}
    words = [each for each in settings if key == ALGORITHM or (each == name and name != "path")]
    return settings | {word: _in_small_letters(settings[word]) for word in words}


def _name_mapping(name: str, value: str) -> dict[str, Any]:
    kind = Path(value).suffix.removeprefix(".")
    is_file = name == "source" and kind in ("csv", "json", "jsonl", "parquet")
    return {"source": kind, "path": value} if is_file else {name: value}


def _in_small_letters(name: Any) -> Any:
    """Return the name of a component. Files, models and code of the user stay as they are."""
    return name.lower().replace("-", "_") if isinstance(name, str) and _NAME.fullmatch(name) else name


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the keys of `over`. Mappings on both sides are merged key by key, except that naming another
    component (`source`, `name`, several held-out sets) drops the settings of the old one."""
    return {**base, **over, **{key: merge(old, new) for key, old, new in _merged_pairs(base, over)}}


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay an overlay or options over a recipe: `merge`, without the rewards that `over` sets to null, and without the
    preset if `over` asks for the defaults of a project instead.

    Raise ConfigError for a reward set to null that the recipe does not contain.
    """
    over = _without_preset(base, over)
    merged, rewards = merge(base, over), over.get(REWARDS)
    known: Any = base.get(REWARDS, default_class().model_fields[REWARDS].get_default(call_default_factory=True))
    if not isinstance(rewards, Mapping) or not isinstance(known, Mapping):
        return merged  # anything but a mapping is refused by the schema
    given, known = cast(Mapping[str, Any], rewards), cast(Mapping[str, Any], known)
    removed = [name for name, settings in given.items() if settings is None]
    for name in removed:
        if name not in known:
            raise ConfigError(
                f"rewards.{name} = null removes a reward, but the recipe has no {name!r}; its rewards are "
                f"{', '.join(map(repr, known)) or 'none'}."
            )
    if removed:
        rest = {name: settings for name, settings in given.items() if name not in removed}
        merged[REWARDS] = merge({name: known[name] for name in known if name not in removed}, rest)
    return merged


def merge_notes(base: Mapping[str, Any], over: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (key, sentence) for each component, or mapping of components, of `over` that keeps settings of `base`
    without naming them. Sections are not components: an overlay is meant to keep their other keys."""
    return list(_notes(base, _without_preset(base, over), ()))


def _without_preset(base: Mapping[str, Any], over: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `over`, with algorithm.preset null if it names defaults_of and no preset, but `base` names a preset."""
    old, new = as_mapping(base.get(ALGORITHM)), as_mapping(over.get(ALGORITHM))
    if not new.get("defaults_of") or "preset" in new or not old.get("preset"):
        return over
    return {**over, ALGORITHM: {"preset": None, **new}}


def _notes(base: Mapping[str, Any], over: Mapping[str, Any], parents: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    kept = {name: value for name, value in base.items() if name not in over}
    if parents and kept and section_at(parents) is None:
        key = ".".join(parents)
        plain = unmarked(kept)
        shown = yaml.safe_dump(plain, sort_keys=False, default_flow_style=True, allow_unicode=True, width=math.inf)
        removal = f" {key}: {{{next(iter(kept))}: null}} removes one." if key == REWARDS else ""
        yield key, f"{key} keeps {shown.strip()} of the recipe.{removal}"
    for name, old, new in _merged_pairs(base, over):
        yield from _notes(old, new, (*parents, name))


def _merged_pairs(
    base: Mapping[str, Any], over: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each key with a mapping on both sides, and both mappings, unless the second names another component."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            old, new = cast("Mapping[str, Any]", base[key]), cast("Mapping[str, Any]", value)
            if not _names_another(old, new) and not (key == "heldout" and _is_other_form(old, new)):
                yield key, old, new


def _names_another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(key in old and key in new and old[key] != new[key] for key in ("source", "name"))


def _is_other_form(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether one mapping is a source and the other held-out sets."""
    return ("source" in old and _has_sets(new)) or (_has_sets(old) and "source" in new)


def _has_sets(settings: Mapping[str, Any]) -> bool:
    """Tell whether a mapping is {NAME: {source: ...}, ...}. Only `of` in the settings of a source is such a mapping."""
    named = [each for name, each in settings.items() if name != "of"]
    return "source" not in settings and any(isinstance(each, Mapping) and "source" in each for each in named)

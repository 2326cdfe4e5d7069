"""`--model.toy true`: a recipe at toy size, which shows in a minute on any machine whether it runs.

Toy size is a layer of the config between the recipe with its overlays and the overrides, so `--train.steps 9` still
takes effect. The model keeps its architecture (see `models.known_models`) and gets random weights. Sizes are lowered
to the caps below and never raised. Generated problems replace problems of the hub and of missing files, and responses
of the policy replace pairs and labelled responses from there. Rejection sampling teaches wrong responses if there are
no correct ones. The number of changed keys is printed, and config.yaml of the run lists them as `model.toy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ansatz.config.schema import REWARD_MODEL, Config, EvaluateSection, flat_keys
from ansatz.config.stage import SAMPLING_CAPS, StageDeclaration, is_missing, over_caps
from ansatz.files import read_yaml

CAPS: dict[str, dict[str, int]] = {
    "rollout": {"prompts_per_step": 4, **SAMPLING_CAPS},
    "train": {"steps": 3, "warmup_steps": 1, "decay_steps": 1, "updates_per_step": 4, "tokens_per_microbatch": 4096}
    | {"reference_update_interval": 2},
    "evaluate": {"problems": 8, **SAMPLING_CAPS, "samples_per_prompt": 2, "k": 2, "every": 2},
}
"""By section and key, besides the sections of stages."""
TINY: dict[str, int] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Sizes of the model if the recipe builds `model.tiny`."""
_PROBLEMS = 64
_READS_ROWS = ("path", "dataset", "parts")
_SECTIONS = ("sft", "train", "heldout")


def toy_layer(config: Config) -> dict[str, Any]:
    """Return the layer that turns a recipe into a toy run."""
    values, data = config.model_dump(), _data(config)
    layer: dict[str, Any] = {"name": f"{config.name}_toy"} | ({"data": data} if data else {})
    has_demonstrations = config.data.sft is not None and "source" not in data.get("sft", {})
    for section, caps in CAPS.items():
        over = over_caps(values[section], caps)
        if section == "rollout" and has_demonstrations:  # they must fit
            over.pop("max_response_tokens", None)
        if section == "evaluate":  # an option that follows rollout gets the cap of rollout
            follows = {key for key in EvaluateSection.AS_ROLLOUT if values[section][key] == values["rollout"][key]}
            over = {key: cap for key, cap in over.items() if key not in follows}
        if over:
            layer[section] = over
    for stage in config.declarations:
        if stage.section is not None and stage.has_work(config) and (over := _of_stage(stage, values[stage.name])):
            layer[stage.name] = over
    critic = config.train.critic
    if critic.path not in (None, REWARD_MODEL) or critic.steps_alone:
        own = critic.path if critic.path == REWARD_MODEL else None
        layer.setdefault("train", {})["critic"] = {"path": own, "steps_alone": min(1, critic.steps_alone)}
    if config.teacher is not None:  # another model does not fit random weights of toy size
        itself: dict[str, Any] = {"path": None, "quantize": None}
        by_source = dict.fromkeys(config.teacher.get("by_source") or (), itself)
        layer["teacher"] = itself | ({"by_source": by_source} if by_source else {})
    if rewards := _rewards(config, layer.get("rollout", {}).get("max_response_tokens")):
        layer["rewards"] = rewards
    if stages := _stages(config):
        layer["stages"] = stages
    if config.model.lora is not None and config.model.lora.get("path") is not None:
        layer["model"] = {"lora": {**config.model.lora, "path": None}}  # it does not fit random weights of toy size
    if config.model.path is None:
        layer["model"] = {"tiny": {**config.model.tiny, **TINY}}
    return layer


def changes(before: Config, after: Config) -> tuple[str, ...]:
    """Return one line for each key that differs, such as "train.steps: 500 -> 3"."""
    old, new = flat_keys(before.model_dump(mode="json")), flat_keys(after.model_dump(mode="json"))
    keys, absent = [*old, *(key for key in new if key not in old)], "(left out)"
    return tuple(
        f"{key}: {old.get(key, absent)} -> {new.get(key, absent)}"
        for key in keys
        if old.get(key, keys) != new.get(key, keys)
    )


def _data(config: Config) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for number, name in enumerate(_SECTIONS, start=1):
        section = getattr(config.data, name)
        if section is None:
            continue
        if is_missing(section):
            split = "heldout" if name == "heldout" else "train"
            sections[name] = {**_generator(config), "split": split, "count": _PROBLEMS, "seed": number}
        elif (count := section.get("count")) and count > _PROBLEMS:
            sections[name] = {"count": _PROBLEMS}
        elif not section.keys().isdisjoint(_READS_ROWS):
            sections["unfit"] = "drop"  # a toy's tokens are shorter, so some rows are longer than the recipe allows
    return sections


def _generator(config: Config) -> dict[str, Any]:
    """Return the source of generated problems that the rewards of the recipe can grade."""
    if "countdown" in config.rewards:
        return {"source": "countdown", "max_level": 2}
    return {"source": "word_problems", "wording": "plain", "max_steps": 3, "max_value": 50}


def _of_stage(stage: StageDeclaration, settings: Any) -> dict[str, Any]:
    """Return the changes to the section of a stage, or to its part in an entry of the list of stages."""
    if not isinstance(settings, Mapping):
        return {}
    values = cast("Mapping[str, Any]", settings)
    return over_caps(values, stage.caps) | dict(stage.toy(values) if stage.toy is not None else {})


def _stages(config: Config) -> list[Any]:
    """Return the list of stages if an entry changes something, with the caps of its changes; otherwise empty."""
    entries = list(config.stages or ())
    if not any(isinstance(entry, dict) for entry in entries):
        return []
    return [entry if isinstance(entry, str) else _capped(entry, _entry_caps(config, entry)) for entry in entries]


def _entry_caps(config: Config, entry: Mapping[str, Any]) -> dict[str, Any]:
    caps = {section: over_caps(entry.get(section), caps) for section, caps in CAPS.items()}
    caps |= {stage.name: _of_stage(stage, entry.get(stage.name)) for stage in config.declarations}
    return {section: values for section, values in caps.items() if values}


def _capped(values: Mapping[str, Any], caps: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the caps, which name only existing keys."""
    lower = {
        key: _capped(values[key], cast("Mapping[str, Any]", cap)) if isinstance(cap, Mapping) else cap
        for key, cap in caps.items()
    }
    return {**values, **lower}


def _rewards(config: Config, limit: int | None) -> dict[str, Any]:
    """Scale down settings of rewards that depend on lengths or on the step. limit: the capped response length."""
    rewards: dict[str, Any] = {}
    overlong = config.rewards.get("overlong", {})
    longest, buffer = overlong.get("max_tokens"), overlong.get("buffer")
    if limit and isinstance(longest, int) and isinstance(buffer, int) and longest > limit:
        rewards["overlong"] = {"max_tokens": limit, "buffer": max(1, buffer * limit // longest)}
    most_steps = CAPS["train"]["steps"]
    kimi_length = config.rewards.get("kimi_length", {})
    if kimi_length.get("from_step", 0) + kimi_length.get("ramp_steps", 0) > most_steps:
        from_step = min(kimi_length.get("from_step", 0), most_steps)
        rewards["kimi_length"] = {"from_step": from_step}
        if kimi_length.get("ramp_steps", 0):
            rewards["kimi_length"]["ramp_steps"] = most_steps - from_step
    return rewards

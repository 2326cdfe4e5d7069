"""`--model.toy true`: a recipe at toy size, which shows in a minute on any machine whether it runs.

Toy size is a layer of the config between the recipe with its overlays and the overrides, so `--train.steps 9` still
has an effect. The model keeps its architecture (see `models.known_models`) and gets random weights. Sizes are lowered
to the caps below and never raised. Generated problems replace those of the hub and of missing files, and responses of
the policy replace pairs and labelled responses from there. Rejection sampling teaches wrong responses if there are no
correct ones. What changed is printed and kept as `model.toy` in the config.yaml of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ansatz.config.reward_model import REWARD_MODEL
from ansatz.config.schema import Config, EvaluateSection, flat_keys

CAPS: dict[str, int] = {
    "sft.steps": 3,
    "sft.epochs": 0,
    "sft.heldout_every": 0,
    "sft.batch_size": 8,
    "sft.warmup_steps": 1,
    "sft.decay_steps": 1,
    "rollout.prompts_per_step": 4,
    "rollout.samples_per_prompt": 4,
    "rollout.max_response_tokens": 64,
    "rollout.min_response_tokens": 4,
    "rollout.thinking_budget": 16,
    "reward_model.problems": 16,
    "reward_model.samples_per_prompt": 4,
    "reward_model.steps": 3,
    "reward_model.batch_size": 4,
    "reward_model.warmup_steps": 1,
    "reward_model.decay_steps": 1,
    "reward_model.heldout_problems": 4,
    "reward_model.heldout_samples": 4,
    "train.steps": 3,
    "train.warmup_steps": 1,
    "train.decay_steps": 1,
    "train.updates_per_step": 4,
    "train.tokens_per_microbatch": 4096,
    "train.reference_update_interval": 2,
    "evaluate.problems": 8,
    "evaluate.samples_per_prompt": 2,
    "evaluate.max_response_tokens": 64,
    "evaluate.min_response_tokens": 4,
    "evaluate.thinking_budget": 16,
    "evaluate.k": 2,
    "evaluate.every": 2,
}
TINY = {
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 1024,
}
"""Sizes of the model if the recipe builds `model.tiny`."""
_PROBLEMS = 64
_READS_ROWS = ("path", "dataset", "parts")
_SECTIONS = ("sft", "train", "heldout")


def toy_layer(config: Config) -> dict[str, Any]:
    """The layer that turns a recipe into a toy run."""
    flat, data = flat_keys(config.model_dump()), _data(config)
    layer: dict[str, Any] = {"name": f"{config.name}_toy"} | ({"data": data} if data else {})
    has_demonstrations = config.data.sft is not None and "source" not in data.get("sft", {})
    for key, cap in CAPS.items():
        section, _, name = key.partition(".")
        if key not in flat:  # of a section that the recipe does not have
            continue
        unused = section == "sft" and config.data.sft is None
        needed = key == "rollout.max_response_tokens" and has_demonstrations  # the demonstrations must fit
        as_rollout = (  # an option that follows rollout gets the cap of rollout
            section == "evaluate" and name in EvaluateSection.AS_ROLLOUT and flat[key] == flat[f"rollout.{name}"]
        )
        if flat[key] > cap and not unused and not needed and not as_rollout:
            layer.setdefault(section, {})[name] = cap
    critic = config.train.critic
    if critic.path not in (None, REWARD_MODEL) or critic.steps_alone:
        own = critic.path if critic.path == REWARD_MODEL else None
        layer.setdefault("train", {})["critic"] = {"path": own, "steps_alone": min(1, critic.steps_alone)}
    if rewards := _rewards(config, layer.get("rollout", {}).get("max_response_tokens")):
        layer["rewards"] = rewards
    if rejection := _rejection(config.rejection or {}):
        layer["rejection"] = rejection
    if preference := _preference(config.preference or {}):
        layer["preference"] = preference
    if config.reward_model is not None and (given := _given_rows(config.reward_model.model_dump())):
        layer["reward_model"] = {**layer.get("reward_model", {}), **given}
    if stages := _stages(config):
        layer["stages"] = stages
    if config.model.path is None:
        layer["model"] = {"tiny": {**config.model.tiny, **TINY}}
    return layer


def changes(before: Config, after: Config) -> tuple[str, ...]:
    """One line for each key that differs, such as "train.steps: 500 -> 3"."""
    old, new = flat_keys(before.model_dump(mode="json")), flat_keys(after.model_dump(mode="json"))
    keys = [*old, *(key for key in new if key not in old)]
    return tuple(
        f"{key}: {_shown(old, key)} -> {_shown(new, key)}" for key in keys if old.get(key, keys) != new.get(key, keys)
    )


def _shown(values: Mapping[str, Any], key: str) -> str:
    return str(values[key]) if key in values else "(left out)"


def _data(config: Config) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for number, name in enumerate(_SECTIONS, start=1):
        section = getattr(config.data, name)
        if section is None:
            continue
        if _missing(section):
            split = "heldout" if name == "heldout" else "train"
            sections[name] = {**_generator(config), "split": split, "count": _PROBLEMS, "seed": number}
        elif (count := section.get("count")) and count > _PROBLEMS:
            sections[name] = {"count": _PROBLEMS}
        elif not section.keys().isdisjoint(_READS_ROWS):
            sections["unfit"] = "drop"  # a toy's tokens are shorter, so some rows are longer than the recipe allows
    return sections


def _generator(config: Config) -> dict[str, Any]:
    """Generated problems that the rewards of the recipe can grade."""
    if "countdown" in config.rewards:
        return {"source": "countdown", "max_level": 2}
    return {"source": "word_problems", "wording": "plain", "max_steps": 3, "max_value": 50}


def _missing(section: Mapping[str, Any]) -> bool:
    """Whether the problems are on the hub or in a missing file."""
    if "dataset" in section:
        return not Path(str(section["dataset"])).exists()
    if "path" in section:
        return not Path(str(section["path"])).is_file()
    if isinstance(section.get("of"), Mapping):
        return _missing(section["of"])
    parts = section.get("parts")
    if not isinstance(parts, list):
        return False
    return any(_missing(part) for part in cast("list[dict[str, Any]]", parts))


def _rejection(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds, and what a round says of sampling and of fine-tuning instead of `rollout` and `sft`, with their caps."""
    sampling, fine_tuning = _over_caps(settings, "rollout"), _over_caps(settings.get("sft"), "sft")
    rounds = settings.get("rounds")
    fewer: dict[str, Any] = {"rounds": 2} if isinstance(rounds, int) and rounds > 2 else {}
    return fewer | sampling | ({"sft": fine_tuning} if fine_tuning else {})


def _preference(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the stage says of sampling and of steps, with the caps of `rollout` and `sft`."""
    given = settings.get("pairs", {})
    if not isinstance(given, Mapping):
        return _over_caps(settings, "sft")
    values = cast("Mapping[str, Any]", given)
    pairs = _over_caps(values, "rollout")
    if _is_over(values.get("problems"), _PROBLEMS // 8):
        pairs["problems"] = _PROBLEMS // 8
    if _missing(values):
        pairs = {**dict.fromkeys(values), "source": "policy", "problems": _PROBLEMS // 8}
    return _over_caps(settings, "sft") | ({"pairs": pairs} if pairs else {})


def _given_rows(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What replaces given rows of the section `reward_model` that are on the hub or in missing files."""
    missing = [key for key in ("data", "heldout_data") if settings.get(key) and _missing(settings[key])]
    return dict.fromkeys(missing) | ({"step_end": "line"} if "data" in missing else {})


def _stages(config: Config) -> list[Any]:
    """The list of stages if an entry changes something, with the caps of what it changes; otherwise empty."""
    entries = list(config.stages or ())
    if not any(isinstance(entry, dict) for entry in entries):
        return []
    return [entry if isinstance(entry, str) else _capped(entry, _entry_caps(entry)) for entry in entries]


def _entry_caps(entry: Mapping[str, Any]) -> dict[str, Any]:
    caps = {section: _over_caps(values, section) for section, values in entry.items()}
    for section, caps_of in (("rejection", _rejection), ("preference", _preference)):
        caps[section] = caps_of(entry.get(section, {}))
    caps["reward_model"] = {**caps.get("reward_model", {}), **_given_rows(entry.get("reward_model", {}))}
    return {section: values for section, values in caps.items() if values}


def _capped(values: Mapping[str, Any], caps: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the caps, which name only keys that the values have."""
    lower = {
        key: _capped(values[key], cast("Mapping[str, Any]", cap)) if isinstance(cap, Mapping) else cap
        for key, cap in caps.items()
    }
    return {**values, **lower}


def _over_caps(settings: Any, section: str) -> dict[str, Any]:
    """The caps of a section's keys that the settings exceed. A wrong value is left to the check of the stage."""
    if not isinstance(settings, Mapping):
        return {}
    values = cast("Mapping[str, Any]", settings)
    caps = {key: CAPS.get(f"{section}.{key}") for key in values}
    return {key: cap for key, cap in caps.items() if cap is not None and _is_over(values[key], cap)}


def _is_over(value: Any, cap: int) -> bool:
    return isinstance(value, int) and value > cap


def _rewards(config: Config, limit: int | None) -> dict[str, Any]:
    """Settings of rewards that depend on lengths or on the step, scaled down. limit: the capped response length."""
    rewards: dict[str, Any] = {}
    overlong = config.rewards.get("overlong", {})
    longest, buffer = overlong.get("max_tokens"), overlong.get("buffer")
    if limit and isinstance(longest, int) and isinstance(buffer, int) and longest > limit:
        rewards["overlong"] = {"max_tokens": limit, "buffer": max(1, buffer * limit // longest)}
    kimi_length = config.rewards.get("kimi_length", {})
    if kimi_length.get("from_step", 0) + kimi_length.get("ramp_steps", 0) > CAPS["train.steps"]:
        from_step = min(kimi_length.get("from_step", 0), CAPS["train.steps"])
        rewards["kimi_length"] = {"from_step": from_step}
        if kimi_length.get("ramp_steps", 0):
            rewards["kimi_length"]["ramp_steps"] = CAPS["train.steps"] - from_step
    return rewards

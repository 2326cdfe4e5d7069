"""The JSON files of a model folder, which somebody else may have written, and transformers' config without their keys
that choose code."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ansatz.errors import ModelError
from ansatz.json_text import parse_json
from ansatz.links import read_bytes

_TEXT_FILES = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
_MOST: dict[str, int] = {
    "num_hidden_layers": 10_000,  # building more would take hours
    "num_labels": 1_000_000,  # so would their names
    **dict.fromkeys(("max_position_embeddings", "vocab_size", "num_attention_heads", "num_key_value_heads"), 10**9),
}

WRAPPERS = ("gemma3", "internvl", "llava", "llava_next", "llava_onevision", "mistral3")
"""Model types of models that also read images, whose text part (`text_config`) is loaded as a model of its own."""
TEXT_PART_OF = "text_part_of"
"""The key of a text part's config.json that names the model type it was a part of."""


def read_config(path: str | Path, *, key: str = "model.path") -> dict[str, Any]:
    """Read a config.json, and look into the other JSON files next to it. Raise ModelError for a file that is not JSON,
    for nan and half characters, and for numbers that make transformers run for hours or divide by zero."""
    where = f"{key} = {str(path)!r}"
    config = _read(Path(path) / "config.json", where)
    for name in _TEXT_FILES:
        if (Path(path) / name).is_file():
            _read(Path(path) / name, where)
    inner = config.get("text_config")
    for (name, most), holder in product(_MOST.items(), (config, inner if isinstance(inner, Mapping) else {})):
        value = holder.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise ModelError(
                f"{where}: {name} = {value!r:.40} in config.json, expected a whole number from 1 to {most}. Repair the "
                "file, or download the model again."
            )
    return config


def transformers_config(path: str | Path, **changes: Any) -> Any:
    """Return transformers' config of a folder. Keys that choose an implementation of attention or experts have no
    effect: transformers would download one by its name and run it."""
    read_config(path)
    transformers: Any = importlib.import_module("transformers")
    settings = {"local_files_only": True, "trust_remote_code": False, **changes}
    config: Any = transformers.AutoConfig.from_pretrained(path, **settings)
    config._attn_implementation = config._experts_implementation = None
    return config


def is_wrapper(config: Mapping[str, Any]) -> bool:
    """Tell whether a config.json is of a model that also reads images, and whose text part can be loaded."""
    return config.get("model_type") in WRAPPERS and isinstance(config.get("text_config"), Mapping)


def text_config(path: str | Path, **changes: Any) -> Any:
    """Return transformers' config of a folder. For a model that also reads images, return the config of its text
    part."""
    stored = read_config(path)
    if not is_wrapper(stored):
        return transformers_config(path, **changes)
    whole = transformers_config(path)
    text: Any = whole.text_config
    text._attn_implementation = text._experts_implementation = None
    text.tie_word_embeddings = whole.tie_word_embeddings  # the outer one counts in transformers, too
    for name, value in {TEXT_PART_OF: whole.model_type, **changes}.items():
        setattr(text, name, value)
    return text


def _read(file: Path, where: str) -> dict[str, Any]:
    try:
        value = parse_json(read_bytes(file), own=True)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{where}: {file.name} is not a valid JSON file ({error}). Download the model again."
        ) from error
    if not isinstance(value, dict):
        raise ModelError(f"{where}: {file.name} holds {value!r:.60}, expected a JSON object.")
    return value

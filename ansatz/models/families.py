"""The families of models that Ansatz trains, and the features that it refuses by name before any weights are read.

docs/models.md lists the families with their tests. A model type that is not in `FAMILIES` is refused: its log-probs
have not been compared with transformers'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers.utils.quantization_config import FineGrainedFP8Config, Mxfp4Config

from ansatz.errors import ModelError
from ansatz.files import read_yaml
from ansatz.json_text import parse_json
from ansatz.links import read_bytes
from ansatz.model_config import is_wrapper, text_config

FAMILIES: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""transformers' model types, with their usual names."""

WINDOWED = ("gemma2", "gemma3_text", "gpt_oss", "mistral", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3")
"""Model types that pass their sliding window to the attention function, see tests/models/test_family_shapes.py."""

_STATE = "layers of linear attention, whose state the sampler's cache does not hold"
_PLANES = "rotary positions in several dimensions"
_GEMMA = "embeddings for every layer, heads of two sizes, and layers that share keys and values"
MISSING = {
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"), _STATE),
    **dict.fromkeys(("gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified"), _GEMMA),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl", "qwen3_vl_text"), _PLANES),
    **dict.fromkeys(("llama4", "llama4_text"), "attention in chunks"),
    "paligemma": "attention in both directions within a prompt",
}
"""The features that Ansatz lacks for some model types that people ask for."""


def check_family(folder: Path, *, key: str) -> None:
    """Raise ModelError for a family, a layer or stored weights that are refused, before any weights are read.

    key: the key whose value the folder is, for messages. Loading reports a config.json that is broken.
    """
    try:
        stored = parse_json(read_bytes(folder / "config.json"))
    except (OSError, ValueError):
        return
    if not isinstance(stored, Mapping):
        return
    kind, named = stored.get("model_type"), f"{key} = {str(folder)!r}"
    if not is_wrapper(stored) and isinstance(kind, str):
        _check_type(kind, named)
    known = DEQUANTIZED if not is_wrapper(stored) else ()
    if (method := quantization(stored)) not in (None, *known):
        raise ModelError(
            f"{named} has weights that were quantised by {method!r:.60}, which Ansatz does not load. Give the model as "
            "it was before; model.quantize: nf4 quantises it when it is loaded."
        )
    try:
        config = text_config(folder)
    except Exception:  # a wrong config fails anywhere in transformers, with any kind of error
        return
    check_config(config, f"The text part of {named}" if is_wrapper(stored) else named)


def check_config(config: Any, named: str) -> None:
    """Raise ModelError for transformers' config of a family or a layer that is refused. named: whose config it is."""
    _check_type(config.model_type, named)
    if setting := unsupported_setting(config):
        raise ModelError(f"{named} has {setting}, which Ansatz does not support. Use another model.")


def _check_type(kind: str, named: str) -> None:
    if kind not in FAMILIES:
        reason = f" (it has {MISSING[kind]})" if kind in MISSING else ""
        raise ModelError(
            f"{named} has the model type {kind!r:.60}{reason}, which Ansatz does not support. Use a model of one of "
            f"these families: {', '.join(FAMILIES.values())}."
        )


DEQUANTIZED: dict[str, Any] = {"mxfp4": Mxfp4Config, "fp8": FineGrainedFP8Config}
"""Formats of stored weights that are converted when a model is loaded, with transformers' class of their settings."""


def quantization(stored: Mapping[str, Any]) -> str | None:
    """Return the method that the weights of a folder were quantised by, out of its config.json; None if they were
    not."""
    settings = stored.get("quantization_config")
    return str(settings.get("quant_method") if isinstance(settings, Mapping) else settings) if settings else None


def unsupported_setting(config: Any) -> str | None:
    """Return a setting whose effect a short text does not show."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if others := sorted(kinds - {"full_attention", "sliding_attention"}):
        return f"layers of kind {', '.join(others)}"
    for rope in _rope_settings(config):
        kind = rope.get("rope_type")
        if kind == "dynamic" or (kind == "longrope" and config.model_type != "phi3"):
            return f"{kind} rotary positions, which depend on the longest row of a batch"
    return None


def max_context(config: Any) -> int:
    """Return the longest text that the model computes as transformers would.

    Attention that does not tell `models.attention` about its sliding window is right only within it. Up to the original
    context, longrope uses its factors for short texts.
    """
    context = int(getattr(config, "max_position_embeddings", 0)) or 2048
    window = sliding_window(config)
    if window and config.model_type not in WINDOWED:
        context = min(context, window)
    for rope in _rope_settings(config):
        if rope.get("rope_type") == "longrope":
            original = rope.get("original_max_position_embeddings") or config.original_max_position_embeddings
            context = min(context, int(original))
    return context


def sliding_window(config: Any) -> int | None:
    """Return the sliding window of the layers that have one; None if no layer has one."""
    kinds, window = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    return int(window) if window and (kinds is None or "sliding_attention" in kinds) else None


def _rope_settings(config: Any) -> Iterator[Mapping[str, Any]]:
    """Return the settings of rotary positions: one mapping, or one for each kind of layer (Gemma 3)."""
    settings = getattr(config, "rope_parameters", None)
    if isinstance(settings, Mapping):
        yield settings
        yield from (value for value in settings.values() if isinstance(value, Mapping))

"""The shapes of dense decoders, which are known without loading a model.

The shape of a folder is read from its config.json. For models of the hub that recipes name, the published numbers are
in known_models.yaml. The supported architectures have the layer of Llama, up to biases (Qwen2), norms on queries and
keys (Qwen3, Gemma 3, OLMo 2) and norms after attention and MLP too (Gemma 2 and 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

from ansatz.errors import ModelError
from ansatz.files import read_yaml
from ansatz.hub import hub_name, is_stored, local_folder
from ansatz.json_text import read_object
from ansatz.model_config import is_wrapper, text_config
from ansatz.registry import suggest

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "smollm3")
_TIED = ("gemma", "gemma2", "gemma3_text", "smollm3")
"""Architectures whose embeddings are tied unless config.json says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes in elements. architecture: transformers' model_type. tied: one matrix embeds input and output."""

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied: bool
    max_context: int

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Size of a token's keys in one layer. Its values have the same size."""
        return self.num_kv_heads * self.head_dim

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of a layer's linear maps, under transformers' names."""
        hidden, intermediate = self.hidden_size, self.intermediate_size
        if self.architecture == "phi3":
            return {
                "qkv_proj": (hidden, self.query_size + 2 * self.kv_size),
                "o_proj": (self.query_size, hidden),
                "gate_up_proj": (hidden, 2 * intermediate),
                "down_proj": (intermediate, hidden),
            }
        return {
            "q_proj": (hidden, self.query_size),
            "k_proj": (hidden, self.kv_size),
            "v_proj": (hidden, self.kv_size),
            "o_proj": (self.query_size, hidden),
            "gate_proj": (hidden, intermediate),
            "up_proj": (hidden, intermediate),
            "down_proj": (intermediate, hidden),
        }

    @property
    def num_norms(self) -> int:
        """Norms of a layer's hidden states."""
        return 4 if self.architecture in ("gemma2", "gemma3_text") else 2

    @property
    def has_head_norms(self) -> bool:
        """Tell whether queries and keys have norms."""
        return self.architecture in ("qwen3", "gemma3_text", "olmo2")

    @property
    def layer_parameters(self) -> int:
        biases = self.query_size + 2 * self.kv_size if self.architecture == "qwen2" else 0
        norms = self.num_norms * self.hidden_size
        if self.architecture in ("qwen3", "gemma3_text"):
            norms += 2 * self.head_dim
        if self.architecture == "olmo2":
            norms += self.query_size + self.kv_size
        return sum(inputs * outputs for inputs, outputs in self.linears.values()) + biases + norms

    @property
    def num_parameters(self) -> int:
        embeddings = (1 if self.tied else 2) * self.vocab_size * self.hidden_size
        return embeddings + self.num_layers * self.layer_parameters + self.hidden_size

    def at_toy_size(self, *, vocab_size: int, max_context: int) -> ModelShape:
        """Return the same architecture at toy size: two layers, hidden size 64, and the same ratio of query to key
        heads."""
        heads = 4
        return replace(
            self,
            hidden_size=64,
            num_layers=2,
            num_heads=heads,
            num_kv_heads=gcd(heads, max(1, heads * self.num_kv_heads // self.num_heads)),
            head_dim=16,
            intermediate_size=128,
            vocab_size=vocab_size,
            max_context=max_context,
        )


_ROWS: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_suffix(".yaml"))
KNOWN_MODELS = {name: ModelShape(**row) for name, row in _ROWS.items()}
"""Published shapes, from each model's config.json."""


def model_shape(path: str | Path, *, key: str = "model.path") -> ModelShape:
    """Return the shape of a local folder, a known model or one in the hub's cache.

    Raise ModelError for others, and for other architectures. key: the key of the recipe that gives the path.
    """
    named = hub_name(path)
    known = KNOWN_MODELS.get(str(path) if named is None else named.repository)
    folder = local_folder(path, key=key) if known is None and is_stored(path) else Path(path)
    file = folder / "config.json"
    if file.is_file():
        advice = f"{key} = {str(path)!r} is not a complete model; download it again."
        try:
            config = read_object(file, error=ModelError, advice=advice)
            return _from_config(text_config(folder).to_dict() if is_wrapper(config) else config, path, key=key)
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise ModelError(
                f"{file} lacks a size or has a wrong one ({type(error).__name__}: {error}). {advice}"
            ) from error
    if known is not None:
        return known
    raise ModelError(
        f"{key} = {str(path)!r} is neither a folder with a config.json nor a model whose shape is known."
        f"{suggest(str(path), KNOWN_MODELS)} Give a local folder, or add the model to ansatz/models/known_models.yaml."
    )


def _from_config(config: dict[str, Any], path: str | Path, *, key: str = "model.path") -> ModelShape:
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        raise ModelError(
            f"{key} = {str(path)!r} has the architecture {kind!r}. Memory can be estimated only for "
            f"{', '.join(ARCHITECTURES)}."
        )
    heads = int(config["num_attention_heads"])
    return ModelShape(
        architecture=kind,
        hidden_size=int(config["hidden_size"]),
        num_layers=int(config["num_hidden_layers"]),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        intermediate_size=int(config["intermediate_size"]),
        vocab_size=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", kind in _TIED)),
        max_context=int(config.get("max_position_embeddings") or 2048),
    )

"""The facts about a model without its weights: how it reads text, and how much of it.

This is enough to check every prompt and every demonstration of a run before anything is loaded or written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import transformers

from ansatz.model_config import is_wrapper, read_config, text_config
from ansatz.models.families import max_context
from ansatz.models.load import check_end_tokens, check_folder, check_vocabulary, load_errors, load_tokenizer


class Reader(Protocol):
    """A policy, or a `TextReader`."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def max_context(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReader:
    """A tokenizer, and the longest prompt with its response, in tokens."""

    tokenizer: Any
    max_context: int


def reader_of(name: str | Path, *, key: str = "model.path") -> TextReader:
    """Return the reader of a model's folder or hub name.

    Raise the errors of `load_policy` for everything except its weights.

    key: of the recipe, for a folder that is missing.
    """
    folder = check_folder(name, key=key)
    stored = read_config(folder)
    if is_wrapper(stored):
        with load_errors(folder):
            stored = text_config(folder).to_dict()
    tokenizer = load_tokenizer(folder)
    if isinstance(size := stored.get("vocab_size"), int):
        check_end_tokens(_end_tokens(folder, stored), tokenizer, size=size, path=str(folder))
        check_vocabulary(tokenizer, size=size, path=str(folder))
    with load_errors(folder):
        return TextReader(tokenizer=tokenizer, max_context=max_context(text_config(folder)))


def _end_tokens(folder: Path, stored: dict[str, Any]) -> Any:
    """Return `eos_token_id` as transformers finds it: in the generation config, or without one in the model's
    config."""
    if not (folder / "generation_config.json").is_file():
        return stored.get("eos_token_id")
    with load_errors(folder):
        config: Any = transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)
    return config.eos_token_id

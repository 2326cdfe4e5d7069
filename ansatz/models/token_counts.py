"""Counting the tokens of texts without loading a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import transformers

from ansatz.errors import ModelError, failures_as
from ansatz.hub import local_folder
from ansatz.trial import check_trial


def token_counter(name: str | Path) -> Callable[[str], int]:
    """Return a function from a text to its number of tokens, special tokens not counted. name: a folder, or a hub name.

    Raise ModelError if no tokenizer loads from the folder, and the errors of `hub.local_folder`.
    """
    folder = local_folder(name, key="--tokenizer", weights=False)
    with failures_as(
        lambda cause: ModelError(f"{folder} has no tokenizer that loads ({cause}). Give a Hugging Face folder.")
    ):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        check_trial(tokenizer, str(folder))
        tokenizer.encode("1 + 1")  # reads settings that loading does not
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = (
        True  # long texts are expected
    )
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))

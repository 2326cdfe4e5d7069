"""Lengths in tokens, for looking at text without a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import transformers

from ansatz.errors import ModelError


def token_counter(folder: Path) -> Callable[[str], int]:
    """text -> number of tokens, special ones aside. ModelError where the folder holds no tokenizer that loads."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # of many kinds, one a file format
        raise ModelError(
            f"{folder} holds no tokenizer that loads ({str(error).splitlines()[0]}). Give a Hugging Face folder."
        ) from error
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True  # it is asked for
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))

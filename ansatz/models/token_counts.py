"""Counting the tokens of texts without loading a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import transformers

from ansatz.errors import AnsatzError, ModelError, is_failure
from ansatz.hub import local_folder
from ansatz.trial import check_trial


def token_counter(name: str | Path) -> Callable[[str], int]:
    """Return a function from a text to its number of tokens, special tokens not counted. name: a folder, or a hub name.

    Raise ModelError if no tokenizer loads from the folder, and the errors of `hub.local_folder`.
    """
    folder = local_folder(name, key="--tokenizer", weights=False)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        check_trial(tokenizer, str(folder))
        tokenizer.encode("1 + 1")  # reads settings that loading does not
    except AnsatzError:
        raise
    except BaseException as error:  # any kind: each file format raises its own
        if not is_failure(error):
            raise
        problem = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{folder} has no tokenizer that loads ({problem}). Give a Hugging Face folder.") from error
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = (
        True  # long texts are expected
    )
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))

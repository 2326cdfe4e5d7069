"""Trials of tokenizers, each once in a process.

A toy run loads its tokenizer two or three times, nearly all toy runs have one of a few tokenizers, and each trial forks
a process that has loaded all tests. One that does not pass is tried each time: tests/models/test_foreign_folders.py.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ansatz import trial


def try_each_once() -> None:
    """Replace the trial by one that knows what has passed. Call it before modules import `check_trial`."""
    check, passed = trial.check_trial, set[str]()

    def check_new(tokenizer: Any, named: str) -> None:
        content = _digest(tokenizer)
        if content is None or content not in passed:
            check(tokenizer, named)
        if content is not None:
            passed.add(content)

    trial.check_trial = check_new


def _digest(tokenizer: Any) -> str | None:
    """Return what stands for all that a trial runs; None for a tokenizer whose content is not known."""
    core = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(core, "to_str"):
        return None
    content = (type(tokenizer).__qualname__, core.to_str(), getattr(tokenizer, "chat_template", None))
    return hashlib.sha256(repr(content).encode("utf-8", errors="surrogatepass")).hexdigest()

"""A trial of a tokenizer and its chat template, which are programs of whoever made the model folder, before they are
used: a template can loop for ever, and a normalizer can double a text sixty times.

It runs in a fork with limits, because no thread of Python can be ended. For ordinary tokenizers it takes milliseconds.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ansatz.errors import ModelError
from ansatz.own_clock import Deadline

CPU_S = 3
MEMORY_BYTES = 4 << 30
"""More than the process has already."""
_PATIENCE_S = 20.0
"""A fork that waits for something else, such as a lock of another thread, says nothing about the tokenizer."""
_NO_MEMORY = 3
TEXT = " ".join(["What is 1 + 1?", *(each * 64 for each in ("a", "1", " ", "\n", "!", "ab ", "\u00e9"))])
_TURNS: list[dict[str, Any]] = [{"role": role, "content": TEXT} for role in ("user", "assistant", "user")]
_CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
_TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
_WITH_TOOL: list[dict[str, Any]] = [
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "tool_calls": [_CALL]},
    {"role": "tool", "name": "add", "content": "2"},
    {"role": "assistant", "content": "2"},
]
_MANY = [{"role": role, "content": "1"} for role in ("user", "assistant") * 20]
_CONVERSATIONS = (_TURNS, _TURNS[:1], [{"role": "system", "content": TEXT}, *_TURNS], _MANY, _WITH_TOOL)
_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "tools": [_TOOL], "enable_thinking": False},
)


def check_trial(tokenizer: Any, named: str) -> None:
    """Raise ModelError if a short conversation takes the tokenizer or its chat template more time or memory than any
    real one needs. named: says which tokenizer it is, at the start of the sentence."""
    if sys.platform != "linux":
        return
    with warnings.catch_warnings():  # newer Pythons warn of forks of processes with threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _try(tokenizer)
    status = _wait(child)
    if status in (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV, _NO_MEMORY):
        what = f"{CPU_S} s" if status == -signal.SIGXCPU else f"{MEMORY_BYTES >> 30} GB of memory"
        raise ModelError(
            f"{named}: {what} are not enough for the tokenizer and its chat template to read a conversation of some "
            "hundred characters. They may never end; use another model."
        )


def _wait(child: int) -> int:
    """Return how the fork has ended, as an exit code; 0 if it waits for something."""
    deadline = Deadline(_PATIENCE_S)
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and not deadline.is_over():
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)  # it has not been waited for yet, so the id is still ours
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        return -signal.SIGXCPU if used.ru_utime + used.ru_stime > CPU_S / 3 else 0
    return code


def _try(tokenizer: Any) -> NoReturn:
    """Read the conversations, in the fork. An error other than a MemoryError is ignored here, because it comes up again
    where the tokenizer is used."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
        for name, limit in (("RLIMIT_CORE", 0), ("RLIMIT_CPU", CPU_S), ("RLIMIT_AS", most)):
            _, hard = resource.getrlimit(getattr(resource, name))
            resource.setrlimit(getattr(resource, name), (limit, hard))
        tokenizer.encode(TEXT)
        for turns in _CONVERSATIONS if getattr(tokenizer, "chat_template", None) else ():
            for arguments in _ARGUMENTS:
                _render(tokenizer, turns, arguments)
    except MemoryError:
        os._exit(_NO_MEMORY)
    finally:
        os._exit(0)


def _render(tokenizer: Any, turns: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> None:
    try:
        tokenizer.apply_chat_template(turns, tokenize=False, **arguments)
    except MemoryError:
        raise
    except Exception:  # a template is a program, which can raise anything, such as for a system prompt
        return

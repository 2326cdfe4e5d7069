"""Decides whether an answer equals the gold answer: exact, bounded in time, and hard to cheat.

    from ansatz_verify import equivalent, verify

    verify("1/2", "... so the answer is \\\\boxed{0.5}")     # Verdict(correct=True, reason=equal, ...)
    equivalent("1/2", "0.33")                              # falsy, reason=different

Three layers: `marks` finds the answer string in a response, `parse` turns a string into a small typed value, and
`compare` compares two values. Cheap and exact stages come first. Algebra comes last, in a worker process that can be
killed. The modules behind a name are loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ansatz_verify.verdict import Reason, Verdict

if TYPE_CHECKING:
    from ansatz_verify.gold import check_golds
    from ansatz_verify.grade import equivalent, verify
    from ansatz_verify.marks import extract

__version__ = "0.2.0"
__all__ = ["Reason", "Verdict", "check_golds", "equivalent", "extract", "verify"]

_PLACES = {"check_golds": "gold", "equivalent": "grade", "extract": "marks", "verify": "grade"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'ansatz_verify' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"ansatz_verify.{_PLACES[name]}"), name)
    return value

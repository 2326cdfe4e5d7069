"""The process in which a grader runs: python child.py FILE:FUNCTION. Only the standard library is used.

It reads one JSON line {"response", "gold"} per case and answers with {"verdict", "cpu_s"} or {"error"}. What the grader
prints goes to stderr. Its memory is limited, so that a hostile input cannot take the machine down.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMORY_BYTES = 4 << 30


def load(named: str) -> Callable[[str, str], Any]:
    path, _, function = named.rpartition(":")
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def answer(grader: Callable[[str, str], Any], case: dict[str, str]) -> dict[str, Any]:
    begin = time.process_time()
    try:
        verdict = bool(grader(case["response"], case["gold"]))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200], "cpu_s": time.process_time() - begin}
    return {"verdict": verdict, "cpu_s": time.process_time() - begin}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    grader = load(sys.argv[1])
    answer(grader, {"response": "\\boxed{1}", "gold": "1"})  # loads what is loaded with the first call
    replies = itertools.chain([{"ready": True}], (answer(grader, json.loads(line)) for line in sys.stdin))
    for reply in replies:
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()

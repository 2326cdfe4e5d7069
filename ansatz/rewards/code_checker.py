"""Runs the code of a test in a process of its own, apart from the program that is tested.

A test uses the program by calls to the other process, which answers with plain values (`plain_calls`). So
the program sees the arguments of each call and nothing else: not the expected value, not the comparison, not the frame
of the test. Standard library only: the sandbox loads it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
from collections.abc import Callable
from typing import Any

PASSED, FAILED, RAISED = "passed", "failed", "raised"


def serve(calls: Any, send: Callable[[str], None], receive: Callable[[], str]) -> None:
    """Answer each line, which is a test: its code, the code before it, and the names that are the program's."""
    with contextlib.suppress(EOFError):
        while True:
            job = json.loads(receive())
            send(json.dumps({"verdict": _verdict(calls, job, send, receive)}))


def _verdict(calls: Any, job: dict[str, Any], send: Callable[[str], None], receive: Callable[[], str]) -> str:
    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    namespace = module.__dict__
    peer = calls.Peer(send, receive, namespace=namespace, classes=tuple(job["classes"]))
    try:
        found: Any = peer.ask("names", job["names"])
        if type(found) is not dict:
            return FAILED
        names: dict[str, Any] = {name: found[name] for name in job["names"] if name in found}
        for part in (job["setup"], job["test"]):
            namespace.update(names)  # twice: a setup can hold the beginning of the function that is asked for
            exec(compile(part, "tests", "exec", dont_inherit=True), namespace)
        for call in job["calls"]:
            eval(compile(call, "tests", "eval", dont_inherit=True), namespace)
        if job["unittest"]:
            _run_cases(module)
    except EOFError:
        raise
    except BaseException as error:
        return RAISED if error is peer.raised else FAILED
    return FAILED if peer.refused else PASSED


def _run_cases(module: types.ModuleType) -> None:
    """Run the methods of unittest.TestCase."""
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    if not result.testsRun or not result.wasSuccessful():
        raise AssertionError

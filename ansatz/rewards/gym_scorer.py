"""Scores an answer with a scorer of reasoning-gym, in a process that ends with it. Runs in a worker of `pool`.

Some of these scorers evaluate the answer as Python, or with sympy, which does so too. The policy's text could then
change the scorer, read the gold answer, or never end. So each answer is scored in a fork of the worker, which has
imported the package, restricts itself like a program in the sandbox, and can be killed. Only lists and formulas are
evaluated there, and they can name nothing but mathematics.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import math
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from ansatz_verify.own_time import OwnTime

from ansatz.rewards import sandbox, sandbox_child
from ansatz.types import Reason

MEMORY_MB = 2048
_EVALUATING = ("reasoning_gym", "sympy")
"""Packages whose modules evaluate the policy's text."""
_MATHEMATICS = ("sympy.core.", "sympy.functions.")
_BUILTINS = ("abs", "complex", "float", "int", "list", "max", "min", "pow", "round", "set", "str", "sum", "tuple")
_REFUSED = (
    ast.Attribute, ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.JoinedStr,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip


def score(job: dict[str, Any]) -> dict[str, Any]:
    """Turn {task, answer, entry, timeout_s} into {score}, into {reason} without one, or into {missing}: an import."""
    os.environ.update(sandbox.ONE_THREAD)
    try:
        package: Any = importlib.import_module("reasoning_gym")
    except ImportError as error:
        return {"missing": str(error)}
    limits = sandbox.SandboxLimits(timeout_s=job["timeout_s"], memory_mb=MEMORY_MB)
    rules = sandbox.job_of("run", "", limits, cpu_s=limits.timeout_s, packages=True, isolation="available")
    sites = [place for place in sys.path if place.endswith(("site-packages", "dist-packages"))]
    rules["readable"] = [*rules["readable"], *sites, str(Path(package.__file__).parents[1])]  # scorers import lazily
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            _answer(package, job, rules, write)
        os._exit(1)
    os.close(write)
    try:
        return _wait_for_reply(read, OwnTime(child, limits.timeout_s))
    finally:
        os.kill(child, signal.SIGKILL)  # not waited for yet, so the id is still ours
        os.waitpid(child, 0)
        os.close(read)


def _wait_for_reply(read: int, limit: OwnTime) -> dict[str, Any]:
    """Return the child's reply. It ends with a line end unless the child died first."""
    poll, text = select.poll(), b""
    poll.register(read, select.POLLIN)
    while not text.endswith(b"\n"):
        if poll.poll(limit.patience_s() * 1000):
            if not (part := os.read(read, 65536)):
                return {"reason": Reason.CRASHED}
            text += part
        elif limit.is_over():
            return {"reason": Reason.TIMEOUT}
    return json.loads(text)


def _answer(package: Any, job: Mapping[str, Any], rules: dict[str, Any], write: int) -> None:
    """Write the score, in the child. Nothing else of the worker is open there: neither its jobs nor its replies."""
    empty = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(empty, number)
    reply = os.dup2(write, 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    if sys.platform == "linux":
        sandbox_child.restrict(rules)
    _guard_evaluation()
    try:
        scorer = package.get_score_answer_fn(job["task"])
        value = float(scorer(answer=job["answer"], entry=json.loads(job["entry"])))
    except Exception:  # some scorers raise anything for an answer that they cannot read
        value = math.nan
    result = {"score": value} if math.isfinite(value) else {"reason": Reason.UNPARSED}
    os.write(reply, json.dumps(result).encode() + b"\n")


def _guard_evaluation() -> None:
    """Let the package and sympy evaluate nothing but mathematics from here on."""
    evaluate, execute = builtins.eval, builtins.exec

    def evaluate_mathematics(
        source: Any, scope: dict[str, Any] | None = None, names: Mapping[str, Any] | None = None, /
    ) -> Any:
        caller = _caller()
        scope, names = (caller.f_globals, caller.f_locals) if scope is None else (scope, names or {})
        if isinstance(source, str) and _package_of(caller.f_globals) in _EVALUATING:
            _check_mathematics(source, {**scope, **names})
        return evaluate(source, scope, names)

    def execute_code(source: Any, /, *scopes: Any, **settings: Any) -> None:
        caller = _caller()
        if isinstance(source, str) and _package_of(caller.f_globals) == "reasoning_gym":
            raise ValueError("an answer is not a program")
        execute(source, *(scopes or (caller.f_globals, caller.f_locals)), **settings)

    builtins.eval, builtins.exec = evaluate_mathematics, execute_code


def _caller() -> FrameType:
    """Return the frame that has called the function that asks for it."""
    return sys._getframe(2)  # pyright: ignore[reportPrivateUsage]


def _package_of(module: Mapping[str, Any]) -> str:
    return str(module.get("__name__", "")).partition(".")[0]


def _check_mathematics(source: str, names: Mapping[str, Any]) -> None:
    """Raise ValueError or SyntaxError unless the expression is made of numbers, text, containers, operators, and
    functions and symbols of mathematics. Without this, `entry["answer"]` would be the right answer."""
    for node in ast.walk(ast.parse(source.strip(), mode="eval")):
        known = isinstance(node, ast.Name) and (
            _is_mathematics(names[node.id]) if node.id in names else node.id in _BUILTINS
        )
        if isinstance(node, _REFUSED) or (isinstance(node, ast.Name) and not known):
            raise ValueError("an answer evaluates more than mathematics")


def _is_mathematics(value: Any) -> bool:
    sympy = sys.modules.get("sympy")
    if sympy is None:
        return False
    if isinstance(value, sympy.Basic) or (isinstance(value, type) and issubclass(value, sympy.Basic)):
        return True
    return callable(value) and str(getattr(value, "__module__", "")).startswith(_MATHEMATICS)

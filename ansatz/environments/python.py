"""A Python interpreter that keeps its variables: `<code>` is answered by `<interpreter>` with the printed output."""

from __future__ import annotations

import os

from ansatz.config.fields import Positive
from ansatz.environments.base import Environment
from ansatz.environments.episode import in_thread
from ansatz.environments.tags import AsyncTagEnvironment, CallForm, check_tags
from ansatz.environments.tools import AsyncToolEnvironment
from ansatz.rewards import sandbox
from ansatz.rewards.sandbox import Ended, Isolation, SandboxLimits
from ansatz.rewards.sandbox_session import SandboxSession

_GRACE_S = 600.0  # the sandbox keeps the time of a program, and does not count what a busy machine takes


def python(
    *,
    form: CallForm = "tags",
    call: str = "code",
    result: str = "interpreter",
    turns: int = 4,
    timeout_s: float = 5.0,
    memory_mb: Positive = 512,
    packages: bool = False,
    isolation: Isolation = "full",
) -> Environment:
    """Run Python programs in the sandbox (`rewards/sandbox.py`). All programs of a response share their variables. The
    value of an expression in the last line is shown, as in a notebook. A program may run or sleep for the environment's
    `timeout_s`, and a response gets the CPU time of all its turns together.

    form: "tags" calls it in tags, "chat" as the tool `python` in the form of the model's chat template.
    call: the tag around a program. result: the tag around its output.
    memory_mb, packages, isolation: see `sandbox.run`. Raise ConfigError if the sandbox is not available.
    """
    check_tags(form, call=call != "code", result=result != "interpreter")
    sandbox.require(isolation)
    limits = SandboxLimits(timeout_s=timeout_s, memory_mb=memory_mb)
    session = SandboxSession(limits=limits, cpu_s=turns * timeout_s, packages=packages, isolation=isolation)

    async def python(code: str) -> str:
        """Run a Python program and return what it prints. Variables are kept from call to call."""
        if not session.started:  # the process starts with the first program and ends with the response
            try:
                session.start()  # in this thread, with which the process ends
            except OSError as error:
                sandbox.check_disk(error)
                raise
        run = await in_thread(lambda: session.run(code))
        text = run.stdout.rstrip("\n")
        if run.ended is Ended.EXIT_OK:
            return text or "(no output)"
        if run.ended is Ended.NEVER_RAN:
            return f"error: {text}"
        faults = {Ended.TIMEOUT: f"no result within {timeout_s:g} s", Ended.OUTPUT: "too much output"}
        fault = faults.get(run.ended, "the interpreter has exited")
        return f"{text}\nerror: {fault}. The next call starts a new interpreter without variables.".lstrip("\n")

    if form == "tags":
        environment = AsyncTagEnvironment(python, call=call, result=result, close=session.close)
    else:
        environment = AsyncToolEnvironment([python], close=session.close)
    environment.parallel = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    environment.grace_s = _GRACE_S
    return environment

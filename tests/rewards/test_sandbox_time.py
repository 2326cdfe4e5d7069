"""A program in the sandbox gets its own time, and what a busy machine takes does not count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards import sandbox
from ansatz.rewards.sandbox import Ended, SandboxLimits

BUSY_S = "import time\nbegin = time.thread_time()\nwhile time.thread_time() - begin < {}: pass\nprint('done')"


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Four processes for each processor that this one may use."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.usefixtures("busy_machine")
def test_on_a_busy_machine_a_program_gets_its_whole_time_and_not_more() -> None:
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))
    limits = SandboxLimits(timeout_s=1.6)
    with ThreadPoolExecutor(2) as threads:  # the start of the interpreter counts too, and takes longer on some machines
        short, long = threads.map(lambda s: sandbox.run(BUSY_S.format(s), limits=limits), (0.4, 2.4))
    assert (short.ended, short.stdout) == (Ended.EXIT_OK, "done\n")
    assert long.ended is Ended.TIMEOUT
    assert sandbox.run("import time; time.sleep(600)", limits=limits).ended is Ended.TIMEOUT

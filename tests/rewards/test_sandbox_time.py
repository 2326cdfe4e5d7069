"""A program in the sandbox gets its own time, and what a busy machine takes does not count."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards import sandbox
from ansatz.rewards.sandbox import Ended, SandboxLimits
from tests.cpu_time import busy_machine

BUSY_S = "import time\nbegin = time.thread_time()\nwhile time.thread_time() - begin < {}: pass\nprint('done')"


def test_on_a_busy_machine_a_program_gets_its_whole_time_and_not_more() -> None:
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))
    limits = SandboxLimits(timeout_s=1.6)  # the start of the interpreter counts too, and takes longer on some machines
    with busy_machine(), ThreadPoolExecutor(2) as threads:
        short, long = threads.map(lambda s: sandbox.run(BUSY_S.format(s), limits=limits), (0.4, 2.4))
    assert (short.ended, short.stdout) == (Ended.EXIT_OK, "done\n")
    assert long.ended is Ended.TIMEOUT
    with busy_machine():
        assert sandbox.run("import time; time.sleep(600)", limits=limits).ended is Ended.TIMEOUT

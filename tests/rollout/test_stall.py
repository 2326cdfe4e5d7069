"""A standstill is reported with stacks, and then ends the run by a signal."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

SCRIPT = """
import time
from ansatz.rollout.stall import StallWatch

watch = StallWatch(0.5, lambda: "ticket 3 waits for worker w-1")

def hanging_function():
    time.sleep(60)

for _ in range({progress}):
    time.sleep(0.1)
    watch.progress()
hanging_function()
"""


@pytest.mark.parametrize("progress", [0, 15])
def test_a_standstill_is_reported_with_stacks_and_ends_the_process(progress: int):
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(progress=progress)], capture_output=True, text=True)
    assert done.returncode == -15
    assert time.monotonic() - begun > progress * 0.1 + 1.0
    assert "ticket 3 waits for worker w-1" in done.stderr
    assert "in hanging_function" in done.stderr
    assert done.stderr.count("nothing has been sampled") == 1

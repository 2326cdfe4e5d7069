from __future__ import annotations

import gc
import importlib.util
import os
import signal

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when torch starts its threads

import pytest
import torch
from idle_workers import start_workers_when_needed

torch.set_num_threads(2)
start_workers_when_needed()

# A shell that starts the tests in the background lets them ignore these signals, and all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:  # tests/vllm itself is found as a package without an origin
        for item in items:
            if item.get_closest_marker("vllm"):
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed; make test-vllm"))
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="there is no CUDA GPU"))


def pytest_collection_finish() -> None:
    """Leave what has been loaded out of each later search for garbage."""
    gc.collect()
    gc.freeze()

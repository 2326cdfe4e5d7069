from __future__ import annotations

from pathlib import Path

import pytest
from made_up import make_pipeline


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished made-up pipeline; tests only read it, except report.html."""
    return make_pipeline(tmp_path_factory.mktemp("runs") / "made-up", sft_steps=40, rl_steps=24)

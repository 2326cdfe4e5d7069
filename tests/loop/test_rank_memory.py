"""A run whose trainer ranks cannot fit on a GPU is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_runs import toy_config

from ansatz.cluster import gpus
from ansatz.config.load import load_recipe
from ansatz.errors import ConfigError
from ansatz.loop.on_cluster.rank_memory import check_rank_memory
from ansatz.loop.pipeline import run_pipeline

GIB = 2**30
RANKS: dict[str, Any] = {"cluster": {"trainers": 2}}


def nodes(*reports: list[int] | str) -> Any:
    """A cluster whose nodes report the memory of their GPUs, or an error."""
    return SimpleNamespace(on_each_node=lambda function, timeout_s: dict(enumerate(reports)))


def test_ranks_that_cannot_fit_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "gpu_bytes", lambda: [2**20, 2**19])
    with pytest.raises(ConfigError, match=r"cluster.trainers = 2: each rank needs about .* the largest GPU has"):
        run_pipeline(toy_config(tmp_path, RANKS))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "bytes_of_gpus"),
    [
        (RANKS, []),  # no GPU, or unknown
        (RANKS, [2**20, GIB]),  # Ray may place the ranks on the larger one
        ({}, [2**20]),  # without ranks
        ({**RANKS, "train": {"steps": 0}}, [2**20]),
    ],
)
def test_what_may_fit_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], bytes_of_gpus: list[int]
) -> None:
    monkeypatch.setattr(gpus, "gpu_bytes", lambda: bytes_of_gpus)
    check_rank_memory(toy_config(tmp_path, changes), None)


def test_a_published_recipe_fits_on_the_gpus_that_it_names_and_not_on_smaller_ones() -> None:
    config = load_recipe(Path("qwen32b_dapo17k_dapo_128x80gib"), overlays=[Path("16x8x80gib")])
    check_rank_memory(config, nodes([80 * GIB] * 8, "no answer within 30 s", []))
    with pytest.raises(ConfigError, match=r"cluster.trainers = 64: .* the largest GPU has 24.0 GiB. Use more ranks"):
        check_rank_memory(config, nodes([24 * GIB] * 8, "no answer within 30 s", []))


def test_the_memory_of_gpus_is_what_their_driver_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.gpu_bytes() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '81559\\n[N/A]\\n24576\\n'\n", encoding="ascii")
    program.chmod(0o755)
    assert gpus.gpu_bytes() == [81559 * 2**20, 24 * GIB]
    program.write_text("#!/bin/sh\necho 9; exit 9\n", encoding="ascii")
    assert gpus.gpu_bytes() == []

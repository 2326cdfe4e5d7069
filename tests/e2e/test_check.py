from __future__ import annotations

from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.config.schema import Config
from ansatz.loop import check
from ansatz.loop.check import check_recipe

pytestmark = pytest.mark.e2e


def config(folder: Path, **algorithm: object) -> Config:
    return toy_config(folder, {"algorithm": {"preset": "grpo", **algorithm}, "rollout": {"max_response_tokens": 12}})


def test_every_row_passes_on_a_sound_recipe(tmp_path: Path):
    findings = list(check_recipe(config(tmp_path), tmp_path, num_prompts=2))
    assert [finding.what for finding in findings if not finding.passed] == []
    assert sum(finding.what.startswith("gradient: ") for finding in findings) == 8
    assert sum(finding.what.startswith("sampler and trainer, ") for finding in findings) == 6
    assert all(finding.measured is not None for finding in findings)


def test_a_trainer_that_disagrees_with_the_sampler_fails_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    honest = check.logps_of
    monkeypatch.setattr(check, "logps_of", lambda *given, **how: 0.99 * honest(*given, **how))
    failed = [finding.what for finding in check_recipe(config(tmp_path), tmp_path, num_prompts=2) if not finding.passed]
    assert len(failed) == 6
    assert all(what.startswith("sampler and trainer, ") for what in failed)


def test_rows_that_a_whole_minibatch_objective_cannot_have_are_named_not_passed_over(tmp_path: Path):
    findings = list(check_recipe(config(tmp_path, preset="clip_cov"), tmp_path, num_prompts=2))
    absent = [finding for finding in findings if finding.measured is None]
    assert len(absent) == 3
    assert all("never cut" in finding.note for finding in absent)

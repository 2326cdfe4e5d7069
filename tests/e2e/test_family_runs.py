"""The families of docs/models.md in whole runs at toy size: `ansatz check`, three RL steps, resume and reload."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import tiny_folder

from tools.families import SUPPORTED, Family
from tools.family_runs import LOGP_TOLERANCE, check_results, check_rows, measure, reload_gap, train

QUICK = [family for family in SUPPORTED if family.name in ("gpt-oss", "DeepSeek-V3, R1")]


@pytest.mark.e2e
@pytest.mark.parametrize("family", QUICK, ids=lambda family: family.name)
def test_a_family_with_attention_of_its_own_trains_resumes_and_reloads(tmp_path: Path, family: Family) -> None:
    checkpoint, steps, same_bits = train(tmp_path, tiny_folder(tmp_path / "model", family.config, **family.settings))
    assert steps >= 2
    assert same_bits
    assert reload_gap(checkpoint) < LOGP_TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("family", SUPPORTED, ids=lambda family: family.name)
def test_every_family_passes_check_trains_resumes_and_reloads(family: Family) -> None:
    assert check_results(measure(family)) == []


@pytest.mark.slow
def test_rows_of_check_that_fail_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansatz.certify import check

    honest = check.logps_of
    monkeypatch.setattr(check, "logps_of", lambda *given, **how: 0.99 * honest(*given, **how))
    rows, share = check_rows(tmp_path, tiny_folder(tmp_path / "model"))
    assert rows > 10
    assert share > 1

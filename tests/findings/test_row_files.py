"""The verb judges a sweep, and its report and the viewer show the verdicts that it has kept with the rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansatz.cli.report import report
from ansatz.findings.rows import RowFile
from ansatz.findings.sweep_file import SweepFile, read_sweep
from ansatz.track.report_of_sweep import describe_sweep
from ansatz.track.sweep_rows import FOLDER
from ansatz.ui.library import Library

SWEEP: dict[str, Any] = {
    "recipe": "tiny_arithmetic_grpo_cpu",
    "blocks": {"seeds": [0, 1, 2, 3, 4]},
    "arms": {"control": {}, "other": {"train.lr": 1e-3}},
    "outcome": {"name": "sampled_pass@1"},
    "rule": {"difference": ["other", "control"], "direction": "greater", "delta": 0.02},
    "guards": {"control_exact": [0.2, 0.9]},
}


def read(folder: Path, **changes: Any) -> SweepFile:
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(SWEEP | changes))
    return read_sweep(file)


def stored(folder: Path, sweep: SweepFile, gains: list[float], *, exact: float = 0.5) -> RowFile:
    """The rows of as many blocks as there are gains."""
    rows = RowFile(folder, sweep, folder / "mine.yaml")
    curve = {name: [[0, 0.1], [9, 0.5]] for name in sweep.curves}
    for block, gain in enumerate(gains):
        for arm, value in (("control", 0.3 + 0.01 * block), ("other", 0.3 + 0.01 * block + gain)):
            row = {"block": block, "arm": arm, "times": 1.0, "status": "done", "why": "", "curves": curve}
            row |= {"outcomes": {"sampled_pass@1": value}, "guards": {"control_exact": exact}, "recipe": "x"}
            rows.add(row, cpu_s=1.0)
    return rows


@pytest.mark.parametrize(
    ("gains", "exact", "verdict"),
    [
        ([0.1, 0.11, 0.12, 0.1, 0.11], 0.5, "supported, survives Holm"),
        ([-0.1, -0.11, -0.12, -0.1, -0.11], 0.5, "refuted, survives Holm"),
        ([0.1, -0.1, 0.12, -0.1, 0.1], 0.5, "undecided"),
        ([0.1, 0.11, 0.12, 0.1, 0.11], 0.95, "not testable here"),
    ],
)
def test_the_verb_judges_each_rule_and_keeps_the_verdict_with_the_rows(tmp_path, gains, exact, verdict):
    rows = stored(tmp_path, read(tmp_path), gains, exact=exact)
    (line,) = rows.judge()
    assert line.startswith(f"other - control (sampled_pass@1): {verdict}, {sum(gains) / 5:+.4g} [")
    assert ("guards that failed: control_exact" in line) == (exact > 0.9)
    page = describe_sweep(rows.path)
    assert [each["verdict"] for each in page["verdicts"]] == [verdict]
    assert RowFile(tmp_path, read(tmp_path), tmp_path / "mine.yaml").rows == rows.rows


def test_a_difference_of_the_order_of_rounding_is_not_written_as_a_number(tmp_path):
    rows = stored(tmp_path, read(tmp_path), [8.4e-11, -3e-12, 1e-12, 5e-11, 2e-11])
    page = describe_sweep(rows.path)
    assert page["outcomes"][0]["differences"] == {"other": None}
    report([rows.path], out=tmp_path / "page.html")
    for text in (*rows.summarise(), *rows.judge(), (tmp_path / "page.html").read_text(encoding="utf-8")):
        assert re.search(r"\de-1", text) is None
        assert ("no difference beyond rounding" in text) != text.startswith("control")
    (tmp_path / "more").mkdir()
    larger = stored(tmp_path / "more", read(tmp_path / "more"), [1e-3, 2e-3, -1e-3, 1e-3, 3e-3])
    assert "+0.0012 to control" in list(larger.summarise())[1]


def test_a_rule_that_was_changed_after_the_first_result_is_exploratory_and_no_rule_has_no_verdict(tmp_path):
    stored(tmp_path, read(tmp_path), [0.1, 0.11, 0.12, 0.1, 0.11])
    changed = read(tmp_path, rule={**SWEEP["rule"], "delta": 0.5})
    (line,) = RowFile(tmp_path, changed, tmp_path / "mine.yaml").judge()
    assert "(exploratory: rule changed)" in line
    (tmp_path / "none").mkdir()
    assert list(stored(tmp_path / "none", read(tmp_path / "none", rule=[]), [0.1]).judge()) == []


def test_report_and_list_find_the_sweep_next_to_its_runs_and_draw_the_curve_of_its_outcome(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    FOLDER.mkdir(parents=True)
    rows = stored(FOLDER, read(FOLDER), [0.1, 0.11, 0.12, 0.1, 0.11])
    list(rows.judge())
    assert Library([tmp_path / "runs"]).find_sweeps() == {"mine": (FOLDER / "mine.jsonl").resolve()}
    report([Path("mine")], out=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>supported, survives Holm</b>" in page
    assert "pass@1 by step" in page
    assert "exact_pass@1" not in page


@pytest.mark.parametrize(
    ("outcome", "curve"),
    [
        ({"name": "sampled_pass@1"}, "pass@1"),
        ({"name": "exact_pass@k", "k": 8}, "exact_pass@1"),
        ({"name": "mean_metric", "metric": "rollout/length_mean"}, "rollout/length_mean"),
        ({"name": "drop_from_peak", "number": "greedy"}, "greedy"),
    ],
)
def test_a_page_draws_the_curve_of_its_outcome_unless_the_file_names_another(tmp_path, outcome, curve):
    assert read(tmp_path, outcome=outcome).curves == (curve,)
    assert read(tmp_path, outcome=outcome, figure={"curves": ["entropy"]}).curves == ("entropy",)

"""The published findings: pages come from the rows, and every verdict is recomputed."""

from __future__ import annotations

import pytest
from slow_verdicts import verdicts as slow_verdicts
from toy_runs import REPOSITORY

from ansatz.findings.cells import Cells
from ansatz.findings.outcomes import bind_guard, bind_outcome
from ansatz.findings.sweep_file import read_sweep
from tools.findings.pages import make_pages, read_finding

FINDINGS, EXPERIMENTS = REPOSITORY / "docs" / "findings", REPOSITORY / "experiments"
ROWS = sorted(path for path in FINDINGS.glob("*.jsonl") if not path.name.endswith(".cost.jsonl"))


def test_every_page_and_figure_is_what_the_rows_give_and_there_is_no_other() -> None:
    pages = make_pages(FINDINGS, EXPERIMENTS)
    old = [
        str(path.relative_to(REPOSITORY))
        for path, text in pages.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert old == [], "run: python -m tools.findings"
    others = {path for path in FINDINGS.iterdir() if path.suffix in (".md", ".svg")} - pages.keys()
    assert others == set(), "no rows give these"


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_every_verdict_is_that_of_the_slow_implementation(path) -> None:
    finding = read_finding(path, EXPERIMENTS)
    assert [result.verdict for result in finding.results] == slow_verdicts(path, EXPERIMENTS / f"{path.stem}.yaml")


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_registered_experiment_can_be_read_and_its_arms_have_recipes(path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    sweep = read_sweep(path)
    cells = Cells(sweep, tmp_path)
    for arm in sweep.all_arms:
        cells.cell(sweep.blocks.seeds[0], arm)
    for outcome in sweep.outcomes:
        bind_outcome(outcome)
    for guard in sweep.guards:
        bind_guard(guard)
    assert sweep.rule, "an experiment registers its rule"

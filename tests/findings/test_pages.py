"""The published findings: pages come from the rows, and every verdict is recomputed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from slow_verdicts import numbers
from slow_verdicts import verdicts as slow_verdicts
from toy_runs import REPOSITORY

from ansatz.findings.cells import Cells
from ansatz.findings.outcomes import bind_guard, bind_outcome
from ansatz.findings.rows import REGISTER
from ansatz.findings.sweep_file import read_sweep
from ansatz.findings.verdicts import SMALL, describe
from tools.findings.pages import make_pages, read_finding

PAGES, SWEEPS = REPOSITORY / "docs" / "findings", REPOSITORY / "findings"
ROWS = sorted(path for path in PAGES.glob("*.jsonl") if not path.name.endswith((".cost.jsonl", REGISTER)))


def test_every_page_and_figure_is_what_the_rows_give_and_there_is_no_other() -> None:
    pages = make_pages(PAGES, SWEEPS)
    old = [
        str(path.relative_to(REPOSITORY))
        for path, text in pages.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert old == [], "run: python -m tools.findings"
    others = {path for path in PAGES.iterdir() if path.suffix in (".md", ".svg")} - pages.keys()
    assert others == set(), "no rows give these"


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_every_verdict_is_that_of_the_slow_implementation(path) -> None:
    finding = read_finding(path, SWEEPS)
    assert [result.verdict for result in finding.results] == slow_verdicts(path, SWEEPS / f"{path.stem}.yaml")


def scipys_tests(columns: list[list[float]], direction: str, delta: float) -> tuple[float, float]:
    """The p of SciPy for what a rule claims, and against it."""

    def p(limit: float, side: str) -> float:
        if len(columns) == 1:
            return float(np.asarray(stats.ttest_1samp(columns[0], limit, alternative=side))[1])
        x, y = np.array(columns[0]) / np.exp(limit / 2), np.array(columns[1])
        return float(np.asarray(stats.pearsonr(x + y, x - y, alternative=side))[1])  # Pitman and Morgan

    if direction == "equal":
        return max(p(-delta, "greater"), p(delta, "less")), min(p(-delta, "less"), p(delta, "greater"))
    if direction == "less":
        return p(0, "less"), p(-delta, "greater")
    return p(0, "greater"), p(delta, "less")


def test_every_verdict_interval_and_correction_is_that_of_scipy() -> None:
    """A third reader: one-sided tests at half of what the level leaves decide as the interval does."""
    expected: list[tuple[float, str]] = []
    results = []
    for path in ROWS:
        finding = read_finding(path, SWEEPS)
        for result, columns in zip(finding.results, numbers(path, SWEEPS / f"{path.stem}.yaml"), strict=True):
            if result.p is None or result.interval is None:
                continue
            rule = result.rule
            tests = scipys_tests(columns, rule.direction, rule.delta)
            supported, refuted = (p <= (1 - rule.level) / 2 for p in tests)
            verdict = "supported" if supported else "refuted" if refuted else "undecided"
            verdict = SMALL if supported and refuted else verdict
            assert result.verdict == verdict, (path.stem, rule.name)
            p = max(tests) if verdict == SMALL else min(tests)
            assert result.p == pytest.approx(p, rel=1e-4), (path.stem, rule.name)
            expected.append((p, verdict))
            results.append(result)
            if len(columns) == 1:
                ends = stats.ttest_1samp(columns[0], 0).confidence_interval(rule.level)
                assert (result.interval.low, result.interval.high) == pytest.approx(tuple(ends), rel=1e-6, abs=1e-9)
    assert len(results) > 20
    place, survivors = 0, set()
    for place, number in enumerate(sorted(range(len(expected)), key=lambda each: expected[each][0])):
        if expected[number][0] * (len(expected) - place) > 0.025:  # Holm stops at the first one that fails
            break
        survivors.add(number)
    words = [
        "" if v == "undecided" else ", survives Holm" if n in survivors else ", does not survive Holm"
        for n, (_, v) in enumerate(expected)
    ]
    assert describe(results) == [verdict + word for (_, verdict), word in zip(expected, words, strict=True)]
    assert 3 < len(survivors) < len(expected)


PRINTED = {
    "a1_one_rate_for_every_kl": ["undecided"] * 4,
    "a3_a_high_rate_collapses": ["refuted", "undecided", "not testable here"],
    "c1_more_sft": ["supported", "supported"],
    "d10_dynamic_sampling": ["not testable here", "not testable here", "too few blocks"],
    "d1_online_rft": ["undecided until tuned"],
    "d5_pass_at_k": ["supported", "not testable here", "not testable here"],
    "d7_no_divisions": ["supported"],
    "d9_clip_higher": ["not testable here", "not testable here"],
}
"""Verdicts that an audit of the rows asked for, and that the engine once gave otherwise."""


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_a_page_begins_with_what_was_done_and_says_what_it_printed_before(path) -> None:
    finding = read_finding(path, SWEEPS)
    claim, known = finding.sweep.claim, PRINTED.get(path.stem)
    assert len(claim.summary.split()) > 40
    if known is not None:
        assert [result.verdict for result in finding.results] == known
        assert "Until November 2026" in claim.corrected
        assert bool(finding.changed) == (path.stem != "d1_online_rft")
    page = (PAGES / f"{path.stem}.md").read_text(encoding="utf-8").split("\n\n")
    assert " ".join(page[1].split()) == " ".join(claim.summary.split())


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
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

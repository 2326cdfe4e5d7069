from __future__ import annotations

from pathlib import Path

import pytest

from ansatz.track.metrics import METRICS, Reduction, check_known, find_metric, metrics_markdown

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_of_metrics_is_the_table_as_it_stands():
    assert DOCS.read_text(encoding="utf-8") == metrics_markdown(), "run: python -m ansatz.track.metrics docs/metrics.md"


def test_every_row_is_filled_in_and_no_name_comes_twice():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        texts = (metric.title, metric.formula, metric.unit, metric.healthy, metric.meaning)
        assert all(text.strip() for text in texts), metric.name


def test_each_name_finds_its_own_row():
    for metric in METRICS:
        assert find_metric(metric.name) is metric


def test_the_ranges_that_the_report_warns_about_are_the_healthy_ranges_of_the_page():
    for metric in METRICS:
        for edge in (metric.low, metric.high):
            assert edge is None or f"{edge:g}" in metric.healthy, metric.name
        assert (metric.low is not None or metric.high is not None) == bool(metric.advice), metric.name


def test_a_mean_says_what_it_is_taken_over_and_no_other_reduction_does():
    for metric in METRICS:
        is_mean = metric.reduction is Reduction.MEAN
        assert bool(metric.weight) == is_mean, metric.name


def test_families_cover_their_members_and_nothing_else():
    assert find_metric("reward/accuracy") is find_metric("reward/<name>")
    assert find_metric("eval/heldout/pass@1/3") is not None
    assert find_metric("rollout/verdict/timeout") is not None
    assert find_metric("reward/") is None
    assert find_metric("rewards/accuracy") is None


def test_documented_metrics_pass():
    assert check_known(["train/entropy", "reward/format", "align/mean_exp_gap"]) is None


def test_an_undocumented_metric_is_named_with_its_nearest_neighbour():
    with pytest.raises(ValueError, match=r"train/entropie.*Did you mean 'train/entropy'"):
        check_known(["train/entropie", "train/loss"])

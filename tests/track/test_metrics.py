from __future__ import annotations

from pathlib import Path

import pytest

from ansatz.track.metrics import METRICS, check_known, find_metric, metrics_markdown

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_of_metrics_is_the_table_as_it_stands():
    assert DOCS.read_text(encoding="utf-8") == metrics_markdown(), "run: python -m ansatz.track.metrics docs/metrics.md"


def test_every_row_is_filled_in_and_no_name_comes_twice():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        texts = (metric.title, metric.formula, metric.unit, metric.healthy, metric.moves)
        assert all(text.strip() for text in texts), metric.name


def test_each_name_has_one_row():
    for metric in METRICS:
        assert [other.name for other in METRICS if other.covers(metric.name)] == [metric.name]


def test_families_cover_their_members_and_nothing_else():
    assert find_metric("reward/accuracy") is find_metric("reward/<name>")
    assert find_metric("eval/heldout/pass@1/3") is not None
    assert find_metric("rollout/verdict/timeout") is not None
    assert find_metric("reward/") is None
    assert find_metric("rewards/accuracy") is None


def test_documented_metrics_pass():
    assert check_known(["train/entropy", "reward/format", "align/mean_gap"]) is None


def test_an_undocumented_metric_is_named_with_its_nearest_neighbour():
    with pytest.raises(ValueError, match=r"train/entropie.*Did you mean 'train/entropy'"):
        check_known(["train/entropie", "train/loss"])

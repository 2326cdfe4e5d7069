from __future__ import annotations

import pytest

from ansatz.config.load import parse_yaml
from ansatz.errors import ConfigError
from ansatz.track import metrics
from ansatz.track.metrics import Reduction, add_table, check_known, find_metric, load_metrics
from tools.metric_reference import page
from tools.pages import DOCS

ROW = """
speech/{name}:
  title: words per second
  formula: words / seconds
  unit: words/s
  weight: rollouts
  healthy: 2 to 3
  meaning: A rise means haste.
"""


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package whose only table is that of the core, in a folder of its own."""
    (tmp_path / "track").mkdir()
    (tmp_path / "track" / "metrics.yaml").write_text(ROW.format(name="of_the_core"))
    monkeypatch.setattr(metrics, "PACKAGE", tmp_path)
    load_metrics.cache_clear()
    yield tmp_path
    load_metrics.cache_clear()


def test_the_page_of_metrics_is_the_tables_as_they_stand():
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == page(), "run: make docs"


def test_no_name_comes_twice_in_a_table():
    for file in metrics.PACKAGE.rglob(metrics.TABLE):  # parse_yaml refuses a key that comes twice
        assert set(parse_yaml(file.read_text(encoding="utf-8"), where=str(file))) <= set(load_metrics())


def test_a_folder_brings_the_metrics_that_are_its_own(package):
    (package / "a_feature").mkdir()
    (package / "a_feature" / "metrics.yaml").write_text(ROW.format(name="of_the_feature"))
    assert list(load_metrics()) == ["speech/of_the_core", "speech/of_the_feature"]


def test_a_table_outside_of_the_package_is_added_once(package, tmp_path):
    file = tmp_path / "metrics.yml"
    file.write_text(ROW.format(name="of_a_user").replace("weight: rollouts", "reduction: max\n  at_start: 1e-3"))
    for _ in range(2):
        add_table(file)
    assert list(load_metrics()) == ["speech/of_the_core", "speech/of_a_user"]
    assert metrics.reduction_of("speech/of_a_user") is Reduction.MAX
    assert load_metrics()["speech/of_a_user"].at_start == 0.001


def test_a_table_cannot_take_the_name_of_a_metric_that_exists(package, tmp_path):
    file = tmp_path / "metrics.yml"
    file.write_text(ROW.format(name="new") + ROW.format(name="of_the_core").replace("haste", "hurry"))
    with pytest.raises(ConfigError, match=r"metrics\.yml: another table has a metric 'speech/of_the_core' already"):
        add_table(file)
    assert list(load_metrics()) == ["speech/of_the_core"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("  unit: words/s\n", "unit of the metric 'speech/pace': field required"),
        ("weight: rollouts", "wait of the metric 'speech/pace': unexpected keyword argument"),
        ("2 to 3", "healthy of the metric 'speech/pace': input should be a valid string"),
        (ROW.format(name="pace"), "is not a table of metrics"),
        ("words per second", "is not a table of metrics"),
    ],
)
def test_a_row_that_is_wrong_is_refused_with_the_name_of_its_file(change, message, tmp_path):
    new = {
        "weight: rollouts": "wait: rollouts",
        "2 to 3": "2",
        "words per second": '"words',
        ROW.format(name="pace"): "- a",
    }
    file = tmp_path / "metrics.yml"
    file.write_text(ROW.format(name="pace").replace(change, new.get(change, "")))
    with pytest.raises(ConfigError) as error:
        add_table(file)
    assert str(error.value).startswith(str(file))
    assert message in str(error.value)


def test_every_row_is_filled_in():
    for metric in load_metrics().values():
        texts = (metric.title, metric.formula, metric.unit, metric.healthy, metric.meaning)
        assert all(text.strip() for text in texts), metric.name


def test_each_name_finds_its_own_row():
    for metric in load_metrics().values():
        assert find_metric(metric.name) is metric


def test_the_ranges_that_the_report_warns_about_are_the_healthy_ranges_of_the_page():
    for metric in load_metrics().values():
        for edge in (metric.low, metric.high):
            assert edge is None or f"{edge:g}" in metric.healthy, metric.name
        assert metric.has_range == bool(metric.advice), metric.name


def test_a_mean_says_what_it_is_taken_over_and_no_other_reduction_does():
    for metric in load_metrics().values():
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

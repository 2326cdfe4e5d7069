from __future__ import annotations

import doctest

import pytest

from ansatz.track import measurements
from ansatz.track.measurements import Measurement, mean, merge, values


def test_the_example_of_the_module_is_true() -> None:
    assert doctest.testmod(measurements) == (0, 2)


def test_each_reduction_merges_by_hand() -> None:
    parts = [
        {
            "train/entropy": mean(50.0, 100),  # mean over tokens
            "train/tokens": Measurement(10.0),  # sum
            "align/max_gap": Measurement(0.5),  # max
            "train/lr": Measurement(0.1),  # last
        },
        {
            "train/entropy": mean(60.0, 300),
            "train/tokens": Measurement(30.0),
            "align/max_gap": Measurement(0.25),
            "train/lr": Measurement(0.2),
        },
    ]
    assert values(merge(parts)) == pytest.approx(
        {
            "train/entropy": 110 / 400,
            "train/tokens": 40.0,
            "align/max_gap": 0.5,
            "train/lr": 0.2,
        }
    )


def test_merging_in_steps_gives_what_merging_at_once_gives() -> None:
    parts = [{"train/entropy": mean(total, weight)} for total, weight in ((1.0, 2), (5.0, 3), (0.5, 7), (4.0, 1))]
    nested = merge([merge(parts[:1]), merge(parts[1:])])
    assert nested == merge(parts)


def test_a_part_without_a_metric_changes_nothing() -> None:
    assert values(merge([{"train/kl_ref": mean(1.0, 4)}, {"train/loss": mean(1.0, 1)}])) == {
        "train/kl_ref": 0.25,
        "train/loss": 1.0,
    }


def test_a_mean_over_nothing_has_no_value_and_no_influence() -> None:
    nothing = {"train/entropy": mean(0.0, 0)}
    assert values(nothing) == {}
    assert values(merge([nothing, {"train/entropy": mean(1.0, 2)}])) == {"train/entropy": 0.5}


def test_a_metric_that_the_table_lacks_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match=r"undocumented metrics: train/entropie.*Did you mean 'train/entropy'"):
        merge([{"train/entropie": mean(1.0, 1)}])

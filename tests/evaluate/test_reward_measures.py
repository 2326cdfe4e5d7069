"""The numbers of a reward model, against derivations by hand and sums over all subsets."""

from __future__ import annotations

import itertools
from statistics import fmean

import pytest

from ansatz.evaluate.reward_measures import (
    ScoredProblem,
    best_of_n,
    calibration_error,
    first_error_f1,
    pair_accuracy,
    pair_predictions,
    selection_curves,
    weighted_vote,
)

SCORES = (0.3, 2.0, 0.3, -1.0, 2.0, 0.5)
CORRECT = (True, False, False, True, True, True)


@pytest.mark.parametrize("n", range(1, 7))
def test_best_of_n_is_the_mean_over_all_subsets_with_ties_shared(n):
    def chosen(subset):
        most = max(SCORES[index] for index in subset)
        return fmean(CORRECT[index] for index in subset if SCORES[index] == most)

    expected = fmean(chosen(subset) for subset in itertools.combinations(range(6), n))
    assert best_of_n(SCORES, CORRECT, n=n) == pytest.approx(expected, abs=1e-12)


def test_a_vote_with_equal_weights_is_a_majority_and_one_weight_can_decide_it():
    votes, correct = ("9", "9", "7", None), (False, False, True, False)
    assert weighted_vote(votes, correct, (1, 1, 1, 1), n=4) == 0.0
    assert weighted_vote(votes, correct, (0.2, 0.2, 0.5, 9), n=4) == 1.0
    assert weighted_vote(votes, correct, (1, 1, 2, 9), n=4) == 0.5  # a tie
    assert weighted_vote(votes, correct, (1, 1, 1, 1), n=2) == 0.5  # blocks (9, 9) and (7, no vote)


def test_pair_accuracy_counts_pairs_within_a_problem_and_ties_half():
    first = ScoredProblem(votes=("1",) * 3, correct=(True, False, False), scores=(1.0, 0.0, 2.0))
    second = ScoredProblem(votes=("1",) * 2, correct=(True, False), scores=(5.0, 5.0))
    only_right = ScoredProblem(votes=("1",), correct=(True,), scores=(0.0,))
    assert pair_accuracy([first, second, only_right]) == pytest.approx((1 + 0 + 0.5) / 3)
    assert pair_accuracy([only_right]) is None
    probabilities, happened = pair_predictions([first])
    assert probabilities == pytest.approx([0.7310586, 0.7310586])
    assert happened == [True, False]


def test_calibration_error_compares_each_bin_with_its_frequency():
    # Bin 9: predicted 0.95 + 0.95, one of two happened: |1.9 - 1| = 0.9. Bin 2: 0.2, none: 0.2. Over 3 predictions.
    assert calibration_error([0.95, 0.95, 0.2], [True, False, False]) == pytest.approx((0.9 + 0.2) / 3)
    assert calibration_error([1.0, 0.0], [True, False]) == 0.0
    with pytest.raises(ValueError, match="0 predictions"):
        calibration_error([], [])


def test_f1_of_first_errors_is_harmonic_and_wants_the_very_step():
    predicted, true = [1, 2, None, None, 0], [1, 1, 3, None, None]
    assert first_error_f1(predicted, true) == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    assert first_error_f1([None, None], [1, None]) == 0.0
    with pytest.raises(ValueError, match="without an error"):
        first_error_f1([None], [None])


def test_the_curves_begin_at_the_pass_rate_and_a_perfect_model_reaches_pass_at_n():
    correct, scores = (True, False, False, False), (3.0, 0.0, 0.0, 0.0)
    problem = ScoredProblem(votes=("7", "9", "9", "9"), correct=correct, scores=scores)
    curves = selection_curves([problem], weights=[[10.0, 1.0, 1.0, 1.0]])
    assert curves["best_of_1"] == curves["maj_1"] == curves["weighted_vote_1"] == 0.25
    assert curves["best_of_4"] == curves["weighted_vote_4"] == 1.0
    assert curves["maj_4"] == 0.0

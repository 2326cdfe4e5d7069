from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansatz.data.curriculum import Curriculum, CurriculumSettings, ProblemOutcome, curriculum_settings, samplers
from ansatz.data.cursor import ProblemStream
from ansatz.errors import CheckpointError, ConfigError
from ansatz.trust import TrustedText
from ansatz.types import Problem

SAMPLERS = ("uniform", "easy_to_hard", "one_minus_success", "variance", "thompson")


def problems(size: int, *, levels: str = "") -> list[Problem]:
    return [
        Problem(id=f"p{i}", question="?", answers=("5",), source="test", split="train", level=levels[i : i + 1])
        for i in range(size)
    ]


def make(size: int = 8, *, seed: int = 0, levels: str = "", **options: object) -> Curriculum:
    return Curriculum(problems(size, levels=levels), curriculum_settings(options), seed=seed)


def observe(curriculum: Curriculum, correct: dict[int, int], *, of: int = 4) -> None:
    """One step that takes all problems and observes these numbers of correct responses, by problem."""
    curriculum.take(1000)
    curriculum.observe(
        [ProblemOutcome(id=f"p{index}", correct=count, responses=of) for index, count in correct.items()]
    )


def step(curriculum: Curriculum, n: int, rates: dict[int, float], *, of: int = 4) -> list[int]:
    taken = curriculum.take(n)
    curriculum.observe([ProblemOutcome(id=f"p{i}", correct=round(of * rates[i]), responses=of) for i in taken])
    return taken


def shares(curriculum: Curriculum, *, steps: int = 4000) -> dict[int, float]:
    """How often a step of one problem takes each problem, if nothing is learned."""
    count: Counter[int] = Counter()
    for _ in range(steps):
        count.update(curriculum.take(1))
        curriculum.observe([])
    return {index: count[index] / steps for index in sorted(count)}


def test_all_samplers_are_registered() -> None:
    assert set(SAMPLERS) == set(samplers.names())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_step_takes_no_problem_twice_over_several_rounds(sampler: str) -> None:
    curriculum = make(8, sampler=sampler)
    rounds = [curriculum.take(3), curriculum.take(3), curriculum.take(3), curriculum.take(3)]
    assert [len(taken) for taken in rounds] == [3, 3, 2, 0]
    assert sorted(index for taken in rounds for index in taken) == list(range(8))
    curriculum.observe([])
    assert len(curriculum.take(8)) == 8


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 3),
    before=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=6), max_size=5),
    half=st.booleans(),
)
def test_a_restored_curriculum_continues_like_the_first(sampler, seed, before, half) -> None:
    options = {"sampler": sampler, "discount": 0.83, "drop_after_solved": 2, "pause_after_failed": 1, "pause_steps": 2}
    first = make(10, seed=seed, levels="3121121231", **options)
    for outcomes in before:
        observe(first, dict(outcomes))
    if half:
        first.take(3)  # in the middle of a step
    state = json.loads(json.dumps(first.state()))
    second = make(10, seed=seed, levels="3121121231", **options)
    step(second, 4, dict.fromkeys(range(10), 1.0))
    second.restore(state)
    for _ in range(4):
        assert step(second, 3, {i: i / 9 for i in range(10)}) == step(first, 3, {i: i / 9 for i in range(10)})
    assert second.state() == first.state()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_seed_and_the_step_change_what_is_taken(sampler: str) -> None:
    first_seed, second_seed = make(64, sampler=sampler), make(64, sampler=sampler, seed=1)
    first = first_seed.take(8)
    assert first == make(64, sampler=sampler).take(8)
    assert first != second_seed.take(8)
    first_seed.observe([])
    assert first != first_seed.take(8)


@pytest.mark.parametrize("sampler", ["uniform", "easy_to_hard"])
def test_every_problem_comes_once_per_epoch(sampler: str) -> None:
    curriculum = make(9, sampler=sampler)
    for _ in range(3):
        taken = [index for _ in range(3) for index in step(curriculum, 3, dict.fromkeys(range(9), 0.5))]
        assert sorted(taken) == list(range(9))


def test_easy_to_hard_orders_by_level_until_the_pass_rates_are_known() -> None:
    assert make(8, levels="38154762", sampler="easy_to_hard").take(8) == [2, 7, 0, 4, 3, 6, 5, 1]
    curriculum = make(4, levels="3241", sampler="easy_to_hard")
    rates = {0: 0.5, 1: 0.0, 2: 1.0, 3: 0.25}
    assert [step(curriculum, 1, rates)[0] for _ in range(4)] == [3, 1, 0, 2]
    assert [step(curriculum, 1, rates)[0] for _ in range(4)] == [2, 0, 3, 1]


def test_one_minus_success_draws_in_proportion_to_the_failures() -> None:
    curriculum = make(3, sampler="one_minus_success")
    observe(curriculum, {0: 0, 1: 3, 2: 6}, of=6)  # posteriors (1, 7), (4, 4), (7, 1)
    taken_frac = shares(curriculum)
    expected = {0: 7 / 12, 1: 4 / 12, 2: 1 / 12}
    assert taken_frac == {index: pytest.approx(share, abs=0.03) for index, share in expected.items()}


def test_variance_draws_in_proportion_to_the_expected_spread_of_a_response() -> None:
    curriculum = make(3, sampler="variance")
    observe(curriculum, {0: 0, 1: 3, 2: 6}, of=6)  # ab of (1, 7), (4, 4), (7, 1) over the same (a + b)(a + b + 1)
    expected = {0: 7 / 30, 1: 16 / 30, 2: 7 / 30}
    assert shares(curriculum) == {index: pytest.approx(share, abs=0.03) for index, share in expected.items()}


def test_variance_prefers_a_known_pass_rate_of_one_half_to_an_unknown_one() -> None:
    """E[p (1 - p)] is 1/6 of Beta(1, 1) and close to 1/4 of Beta(101, 101)."""
    curriculum = make(2, sampler="variance")
    observe(curriculum, {0: 100}, of=200)
    assert shares(curriculum)[0] == pytest.approx((101 / 406) / (101 / 406 + 1 / 6), abs=0.03)


def test_thompson_takes_pass_rates_near_one_half_and_explores_unknown_ones() -> None:
    curriculum = make(4, sampler="thompson")
    observe(curriculum, {0: 0, 1: 50, 2: 100}, of=100)  # 3 is unknown
    taken_frac = shares(curriculum)
    assert set(taken_frac) == {1, 3}
    # The unknown one wins when its uniform draw is nearer to a half than a draw of spread 0.05: about 8 in 100.
    assert 0.04 < taken_frac[3] < 0.13


def test_the_posterior_is_the_prior_plus_the_decayed_counts() -> None:
    curriculum = make(2, prior=2.0, discount=0.5)
    observe(curriculum, {0: 4})
    observe(curriculum, {0: 1})
    beliefs = curriculum._posterior()
    assert beliefs.alpha_P.tolist() == [2 + 4 / 2 + 1, 2.0]
    assert beliefs.beta_P.tolist() == [2 + 0 / 2 + 3, 2.0]
    assert beliefs.mean_P.tolist() == [0.5, 0.5]


def test_a_solved_problem_is_dropped_after_n_consecutive_visits() -> None:
    curriculum = make(3, drop_after_solved=2)
    for correct in (4, 3, 4, 0, 4):
        observe(curriculum, {0: correct})
    assert curriculum.metrics()["data/dropped_frac"] == 0
    observe(curriculum, {0: 4})
    assert curriculum.metrics()["data/dropped_frac"] == pytest.approx(1 / 3)
    assert all(0 not in step(curriculum, 2, {1: 0.5, 2: 0.5}) for _ in range(9))
    assert sorted(curriculum.take(3)) == [0, 1, 2]  # where nothing else is left


def test_a_failed_problem_is_paused_and_returns() -> None:
    curriculum = make(3, pause_after_failed=2, pause_steps=3)
    observe(curriculum, {0: 4})
    observe(curriculum, {0: 0})
    assert curriculum.metrics()["data/paused_frac"] == 0
    observe(curriculum, {0: 0})
    for _ in range(3):
        assert curriculum.metrics()["data/paused_frac"] == pytest.approx(1 / 3)
        assert 0 not in step(curriculum, 2, {1: 0.5, 2: 0.5})
    assert curriculum.metrics()["data/paused_frac"] == 0
    assert any(0 in step(curriculum, 2, {0: 0.0, 1: 0.5, 2: 0.5}) for _ in range(3))
    assert curriculum.metrics()["data/paused_frac"] == pytest.approx(1 / 3)  # once more is enough


def test_paused_problems_return_before_dropped_ones_and_the_longest_paused_first() -> None:
    curriculum = make(6, drop_after_solved=1, pause_after_failed=1, pause_steps=9)
    for index in (4, 2, 5, 1, 3):
        observe(curriculum, {index: 0})
    observe(curriculum, {0: 4})
    assert curriculum.take(6) == [4, 2, 5, 1, 3, 0]


def test_the_metrics_of_the_pool() -> None:
    curriculum = make(4)
    assert curriculum.metrics()["data/tried_frac"] == 0
    observe(curriculum, {0: 4, 1: 0, 2: 4})  # means 5/6, 1/6, 5/6
    assert curriculum.metrics()["data/tried_frac"] == 3 / 4
    assert curriculum.metrics()["data/pass_rate"] == pytest.approx(11 / 18)


def test_a_problem_that_was_not_taken_cannot_be_observed() -> None:
    with pytest.raises(ValueError, match="'p7' was not taken"):
        make(8).observe([ProblemOutcome(id="p7", correct=1, responses=1)])


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ({"sampler": "varience"}, "Did you mean 'variance'"),
        ({"discount": 0}, "discount = 0"),
        ({"discount": 1.1}, "discount = 1.1"),
        ({"prior": 0}, "prior = 0"),
        ({"dynamic_sampling": -1}, "dynamic_sampling = -1: expected 0 or more"),
        ({"pause_after_failed": "often"}, "pause_after_failed = 'often'"),
        ({"discont": 0.9}, "Did you mean 'discount'"),
    ],
)
def test_wrong_settings_are_refused(recipe: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        curriculum_settings(recipe)


def test_a_user_brings_a_sampler_by_its_path(tmp_path) -> None:
    (tmp_path / "own.py").write_text("def last(posterior, rng):\n    return -(posterior.visits_P + 1).cumsum()\n")
    curriculum = make(3, sampler=TrustedText(f"{tmp_path / 'own.py'}:last"))
    assert curriculum.take(2) == [2, 1]


def test_a_stream_takes_what_its_curriculum_selects_and_saves_its_state() -> None:
    options = CurriculumSettings(sampler="variance", dynamic_sampling=2)
    stream = ProblemStream(problems(6), seed=0, curriculum=options)
    expected = Curriculum(problems(6), options, seed=0)
    assert [problem.id for problem in stream.take(3)] == [f"p{i}" for i in expected.take(3)]
    tried = [ProblemOutcome(id=name, correct=1, responses=2) for name in expected._taken]
    stream.observe(tried)
    expected.observe(tried)
    assert stream.max_extra_rounds == 2
    assert stream.metrics() == expected.metrics()
    other = ProblemStream(problems(6), seed=0, curriculum=options)
    other.restore(json.loads(json.dumps(stream.state())))
    assert other.state() == stream.state()
    assert [problem.id for problem in other.take(4)] == [f"p{i}" for i in expected.take(4)]


def test_a_stream_over_other_problems_inherits_nothing() -> None:
    options = CurriculumSettings(sampler="variance")
    first = ProblemStream(problems(6), seed=0, curriculum=options)
    taken = first.take(3)
    first.observe([ProblemOutcome(id=problem.id, correct=1, responses=2) for problem in taken])
    for same, number in ((True, 6), (False, 3)):
        stream = ProblemStream(problems(number), seed=5, curriculum=options)
        before = stream.metrics()
        stream.inherit(first.state())
        assert (stream.metrics() != before) is same


def test_a_stream_without_a_curriculum_has_no_dynamic_sampling_and_no_metrics() -> None:
    stream = ProblemStream(problems(6), seed=0)
    stream.observe([])
    assert (stream.max_extra_rounds, stream.metrics()) == (0, {})


def test_the_state_of_another_curriculum_is_refused() -> None:
    plain, variance = (
        ProblemStream(problems(6), seed=0, curriculum=options)
        for options in (None, CurriculumSettings(sampler="variance"))
    )
    for left, right in ((plain, variance), (variance, plain)):
        with pytest.raises(CheckpointError, match=r"disagree about data\.curriculum"):
            left.restore(right.state())
    with pytest.raises(CheckpointError, match=r"checkpoint's data\.curriculum is"):
        ProblemStream(problems(6), seed=0, curriculum=CurriculumSettings(sampler="thompson")).restore(variance.state())


def test_a_large_pool_is_quick_and_small_on_disk() -> None:
    curriculum = make(20_000, sampler="variance")
    step(curriculum, 64, dict.fromkeys(range(20_000), 0.5))
    assert len(json.dumps(curriculum.state())) < 10_000
    assert np.isfinite(curriculum.metrics()["data/pass_rate"])

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from fake_sampler import FakeSampler
from rich.console import Console

from ansatz.evaluate.evaluate import Evaluator
from ansatz.rollout.base import Sampling
from ansatz.track.console import evaluation_line, results_table
from ansatz.track.runs import best_evaluation
from ansatz.types import Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict

SAMPLES = {
    # problem: (level, responses; the first is the greedy one). The gold answer is 5 everywhere.
    "a": ("2", ("5", "5.0", "7", "x")),  # 5 and 5.0 are right: 2 of 4
    "b": ("2", ("7", "7 ", "5", "truncated")),  # 1 of 4; two spellings of 7 outvote the one 5
    "c": ("10", ("5", "5", "5", "5")),  # 4 of 4
}


class TextGrader:
    """The whole text is the answer; "x" gives none."""

    threads = 1

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
        self.calls.append((len(rollouts), step))
        return [ScoredRollout(rollout=rollout, score=self._score(rollout)) for rollout in rollouts]

    def _score(self, rollout: Rollout) -> Score:
        correct = rollout.text in ("5", "5.0")
        extracted = None if rollout.text == "x" else rollout.text
        reason = Reason.EQUAL if correct else Reason.NO_ANSWER if extracted is None else Reason.DIFFERENT
        return Score(
            value=float(correct), parts={}, verdict=Verdict(correct=correct, reason=reason, extracted=extracted)
        )

    def close(self) -> None: ...

    def __enter__(self) -> TextGrader:
        return self

    def __exit__(self, *error: object) -> None: ...


def make(*, k: int = 2, seed: int = 3) -> tuple[Evaluator, FakeSampler, TextGrader]:
    prompts = [
        Prompt(
            problem=Problem(id=name, question="?", answers=("5",), source="test", split="heldout", level=level),
            text="?",
            token_ids=(1,),
        )
        for name, (level, _) in SAMPLES.items()
    ]
    grader = TextGrader()
    sampling = Sampling(num_samples=4, max_response_tokens=5, temperature=0.8, top_p=0.9, top_k=7, seed=seed)
    evaluator = Evaluator(prompts=prompts, grader=grader, sampling=sampling, k=k, split="heldout")
    return evaluator, FakeSampler(lambda prompt, sample: SAMPLES[prompt.problem.id][1][sample]), grader


def test_an_evaluation_has_the_numbers_that_one_finds_by_hand() -> None:
    evaluator, sampler, grader = make()
    row = evaluator.run(sampler, stage="sft", step=40).row
    assert row["pass@1"] == pytest.approx((2 / 4 + 1 / 4 + 4 / 4) / 3)
    # Of the 6 pairs of 4 samples, those with two wrong ones: a has 1, b has 3, c has none.
    assert row["pass@k"] == pytest.approx((5 / 6 + 3 / 6 + 1) / 3)
    # Of the 6 pairs. a: (5, 5.0), two ties of 5 and 7, two of 5 with x, which has no vote. b: three ties of 5 with
    # another answer; the other pairs have no 5.
    assert row["maj@k"] == pytest.approx(((1 + 2 / 2 + 2) / 6 + (3 / 2) / 6 + 1) / 3)
    assert row["greedy"] == pytest.approx(2 / 3)  # a and c
    # Bytes and the end token, at most 5. a: 2 4 2 2; b: 2 3 2 5 (cut); c: 2 2 2 2.
    assert row["mean_length"] == pytest.approx((10 + 12 + 8) / 12)
    assert row["truncated_frac"] == pytest.approx(1 / 12)
    assert row["pass@1_interval"][0] <= row["pass@1"] <= row["pass@1_interval"][1]
    assert (row["num_problems"], row["samples_per_prompt"], row["k"]) == (3, 4, 2)
    assert list(row["by_level"]) == ["2", "10"]
    assert row["by_level"]["2"]["pass@1"] == pytest.approx(3 / 8)
    assert row["by_level"]["2"]["greedy"] == pytest.approx(1 / 2)
    assert row["by_level"]["10"]["pass@1"] == 1.0
    assert row["by_level"]["10"]["num_problems"] == 1
    assert grader.calls == [(4, 40)] * 3 + [(1, 40)] * 3  # a problem at a time


def test_equal_answers_vote_together_whatever_their_spaces_and_spelling() -> None:
    """All four samples vote: a has two right (5, 5.0) against 7; b has two 7 against one 5."""
    evaluator, sampler, _ = make(k=4)
    assert evaluator.run(sampler, stage="rl", step=0).row["maj@k"] == pytest.approx((1 + 0 + 1) / 3)


def test_a_row_says_where_and_how_it_was_taken() -> None:
    evaluator, sampler, _ = make(seed=11)
    row = evaluator.run(sampler, stage="rl", step=25).row
    shown = {name: row[name] for name in ("stage", "step", "split", "temperature", "top_p", "seed")}
    assert shown == {"stage": "rl", "step": 25, "split": "heldout", "temperature": 0.8, "top_p": 0.9, "seed": 11}
    assert row["seconds"] >= 0


def test_the_greedy_response_is_one_without_noise_or_limits_on_the_support() -> None:
    evaluator, sampler, _ = make()
    asked: list[Sampling] = []
    generate = sampler.generate

    def recorded(prompts: Sequence[Prompt], sampling: Sampling, **how: Any) -> list[Rollout]:
        asked.append(sampling)
        return generate(prompts, sampling, **how)

    sampler.generate = recorded  # type: ignore[method-assign]
    evaluator.run(sampler, stage="rl", step=1)
    assert asked[0] == evaluator.sampling
    assert asked[1] == dataclasses.replace(evaluator.sampling, num_samples=1, temperature=0.0, top_k=0, top_p=1.0)


def test_two_evaluations_of_one_policy_are_equal() -> None:
    evaluator, sampler, _ = make()
    first, second = (evaluator.run(sampler, stage="rl", step=1) for _ in range(2))
    assert first.row | {"seconds": 0} == second.row | {"seconds": 0}
    assert first.responses == second.responses


def test_every_response_is_a_row_with_its_text_verdict_and_the_key_of_its_noise() -> None:
    evaluator, sampler, _ = make(seed=11)
    rows = evaluator.run(sampler, stage="rl", step=25).responses
    assert [row["id"] for row in rows[:5]] == [f"rl/25/heldout/0/{sample}" for sample in (0, 1, 2, 3, "greedy")]
    assert [row["problem"] for row in rows] == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    assert [row["text"] for row in rows[:8]] == ["5", "5.0", "7", "x", "5", "7", "7 ", "5"]
    assert [row["correct"] for row in rows[5:10]] == [False, False, True, False, False]
    assert [row["reason"] for row in rows[:4]] == ["equal", "equal", "different", "no_answer"]
    assert {(row["seed"], row["noise_step"]) for row in rows} == {(11, 0)}
    assert {row["temperature"] for row in rows if row["id"].endswith("greedy")} == {0.0}


def test_the_exact_part_is_measured_once_and_stored_with_the_greedy_response_of_its_problem() -> None:
    evaluator, sampler, _ = make()
    calls: list[int] = []

    def logps() -> dict[str, dict[float, float]]:
        calls.append(1)
        return {"a": {0.8: math.log(0.5), 1.0: math.log(0.25)}, "c": {0.8: math.log(0.1), 1.0: math.log(0.01)}}

    evaluated = dataclasses.replace(evaluator, solution_logps=logps).run(sampler, stage="rl", step=25)
    assert len(calls) == 1
    assert evaluated.row["exact_pass@1"] == pytest.approx((0.5 + 0.1) / 2)  # at the temperature of the samples, 0.8
    stored = {row["id"]: row["solution_logps"] for row in evaluated.responses if "solution_logps" in row}
    assert stored == {
        "rl/25/heldout/0/greedy": {"0.8": -0.693147, "1": -1.38629},
        "rl/25/heldout/2/greedy": {"0.8": -2.30259, "1": -4.60517},
    }
    without = evaluator.run(sampler, stage="rl", step=25)
    assert "exact_pass@1" not in without.row
    assert [{**row, "solution_logps": 0} for row in evaluated.responses] == [
        {**row, "solution_logps": 0} for row in without.responses
    ]


def test_responses_are_left_out_where_they_are_not_to_be_stored() -> None:
    evaluator, sampler, _ = make()
    with_responses = evaluator.run(sampler, stage="rl", step=25)
    without = dataclasses.replace(evaluator, keeps_responses=False).run(sampler, stage="rl", step=25)
    assert without.responses == []
    assert without.row | {"seconds": 0} == with_responses.row | {"seconds": 0}


class OwnReward(TextGrader):
    """A dense reward of the user's: no reward says which responses are correct."""

    def _score(self, rollout: Rollout) -> Score:
        value = 0.4 if rollout.text == "5" else 0.1
        verdict = Verdict(correct=value > 0, reason=Reason.EQUAL, stage="grader")
        return Score(value=value, parts={"/home/me/rewards.py:mine": value}, verdict=verdict)


def test_without_a_grader_there_is_no_pass_at_1_but_the_mean_of_each_reward() -> None:
    evaluator, sampler, _ = make()
    row = dataclasses.replace(evaluator, grader=OwnReward()).run(sampler, stage="rl", step=4).row
    # Responses that are exactly "5": 1 of 4, 1 of 4 and 4 of 4, so 6 of 12 get 0.4 and 6 get 0.1.
    assert row["reward"] == pytest.approx(0.25)
    assert row["rewards"] == {"rewards.py:mine": pytest.approx(0.25)}
    low, high = row["reward_interval"]
    assert 0.1 < low < 0.25 < high < 0.41
    assert [row[name] for name in ("pass@1", "pass@1_interval", "greedy", "pass@k", "maj@k")] == [None] * 5
    graded = evaluator.run(sampler, stage="rl", step=4).row
    assert graded["reward"] == pytest.approx(graded["pass@1"])
    assert "reward_interval" not in graded
    line, table = evaluation_line(row), Console(width=100)
    assert "mean reward 0.250" in line
    assert "pass@1" not in line
    with table.capture() as capture:
        table.print(results_table([row]))
    assert "0.250" in capture.get()
    assert "pass@1" not in capture.get()


def test_the_best_checkpoint_without_a_grader_has_the_highest_mean_reward() -> None:
    rows = [{"step": step, "pass@1": None, "reward": reward} for step, reward in ((1, 0.2), (2, 0.9), (3, 0.4))]
    best = best_evaluation(rows, {1, 2, 3})
    assert best is not None
    assert best["step"] == 2
    graded = [{**row, "pass@1": 1.0 - row["reward"]} for row in rows]
    best = best_evaluation(graded, {1, 2, 3})
    assert best is not None
    assert best["step"] == 1


class MixedRewards(TextGrader):
    """Only the problem "a" is graded. "b" has a reward for some responses, and "c" has none at all."""

    def _score(self, rollout: Rollout) -> Score:
        graded, name = super()._score(rollout), rollout.prompt.problem.id
        if name == "a":
            return dataclasses.replace(graded, parts={"math": graded.value, "mine": math.nan})
        value = 0.5 if name == "b" and rollout.text == "5" else math.nan
        verdict = Verdict(correct=False, reason=Reason.DIFFERENT, stage="grader")
        return Score(
            value=0.0 if math.isnan(value) else value, parts={"math": math.nan, "mine": value}, verdict=verdict
        )


def test_scores_are_over_what_is_graded_and_means_of_rewards_over_what_they_apply_to() -> None:
    evaluator, sampler, _ = make()
    row = dataclasses.replace(evaluator, grader=MixedRewards()).run(sampler, stage="rl", step=4).row
    assert (row["num_problems"], row["pass@1"]) == (3, 0.5)  # of "a" alone: 2 of 4
    assert row["rewards"] == {"math": 0.5, "mine": 0.5}
    assert row["reward"] == 0.5  # a: 0.5, b: 0.5
    assert (row["by_level"]["10"]["pass@1"], "reward" in row["by_level"]["10"]) == (None, False)


def test_the_source_that_save_best_names_decides_between_checkpoints() -> None:
    def row(step: int, easy: float, hard: float) -> dict[str, Any]:
        by_source = {"easy": {"pass@1": easy}, "hard": {"pass@1": hard}}
        return {"step": step, "pass@1": (easy + hard) / 2, "by_source": by_source}

    rows = [row(1, 0.2, 0.4), row(2, 0.9, 0.3)]
    for best_by, step in (("", 2), ("easy", 2), ("hard", 1)):
        for before in (best_by, "easy", "hard"):  # a resumed run may have another `save.best`
            best = best_evaluation([{**rows[0], "best_by": before}, {**rows[1], "best_by": best_by}], {1, 2})
            assert best is not None
            assert best["step"] == step
    row_of_easy = {"step": 0, "pass@1": 0.9, "by_source": {"easy": {"pass@1": 0.9}}}
    best = best_evaluation([row_of_easy, {**rows[1], "best_by": "hard"}], {0, 2})
    assert best is not None
    assert best["step"] == 2

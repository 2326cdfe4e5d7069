from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from ansatz.evaluate.estimators import maj_at_k
from ansatz.evaluate.responses import MODES, Response
from ansatz.evaluate.scores import powers, suite_scores
from ansatz.types import Finish, Reason, Verdict


def response(sample: int, *, answer: str | None = "5", text: str = "", finish: Finish = Finish.STOP) -> Response:
    """To a problem whose gold is 5; answer: what every reading extracts."""
    right = answer == "5"
    reason = Reason.EQUAL if right else Reason.NO_ANSWER if answer is None else Reason.DIFFERENT
    return Response(
        id="p",
        sample=sample,
        level="",
        subject="",
        question="?",
        answer="5",
        response=text,
        tokens=1,
        finish=finish,
        verdicts=dict.fromkeys(MODES, Verdict(correct=right, reason=reason, extracted=answer)),
    )


@pytest.mark.parametrize("count", [63, 64])
def test_consensus_needs_64_samples(count: int) -> None:
    answers = [*["5"] * 24, *["7"] * 20, *[None] * 20][:count]  # 5 has the most votes
    strict = suite_scores([[response(i, answer=answer) for i, answer in enumerate(answers)]])["strict"]
    assert strict["cons@64"] == (1.0 if count == 64 else None)
    assert strict["cons@64_interval"] == (pytest.approx([0.0062, 1.0], abs=1e-4) if count == 64 else None)


def test_consensus_of_more_samples_is_the_mean_over_all_draws_of_64() -> None:
    # 33 of 65 say 5. A draw of 64 leaves one out: a 5 in 33 of 65 draws, which gives a tie; otherwise 5 wins.
    answers = ["5"] * 33 + ["7"] * 32
    strict = suite_scores([[response(i, answer=answer) for i, answer in enumerate(answers)]])["strict"]
    assert strict["cons@64"] == pytest.approx((33 / 2 + 32) / 65, abs=1e-12)


def test_consensus_shares_a_tie() -> None:
    answers = ["5"] * 32 + ["7"] * 32
    strict = suite_scores([[response(i, answer=answer) for i, answer in enumerate(answers)]])["strict"]
    assert strict["cons@64"] == maj_at_k(answers, [answer == "5" for answer in answers], k=64) == 0.5


def test_a_thought_that_the_prompt_opens_belongs_to_the_form() -> None:
    text = r"Two and three.</think> It is \boxed{5}."
    scores = [suite_scores([[response(0, text=text)]], opening=opening) for opening in ("", "<think>")]
    assert [numbers["format_frac"]["think_boxed"] for numbers in scores] == [0.0, 1.0]


def test_a_thought_closed_by_force_is_no_truncation() -> None:
    ends = [Finish.STOP, Finish.BUDGET, Finish.LENGTH, Finish.BUDGET]
    scores = suite_scores([[response(i, finish=end) for i, end in enumerate(ends)]])
    assert scores["truncated_frac"] == 0.25
    assert scores["finishes"] == {"stop": 0.25, "budget": 0.5, "length": 0.25}


def test_powers_reach_the_count() -> None:
    assert [powers(count) for count in (1, 6, 64)] == [[1], [1, 2, 4, 6], [1, 2, 4, 8, 16, 32, 64]]


def test_choosing_by_scores_is_as_defined() -> None:
    """Against numpy: best@k over all subsets of k, weighted@k over blocks of k; sums of weights e^score by answer."""
    generator = np.random.default_rng(5)
    answers_PS = generator.choice(["5", "7", "9"], (6, 4))
    scores_PS = generator.normal(size=(6, 4))
    correct_PS = answers_PS == "5"
    suite = [
        [dataclasses.replace(response(s, answer=str(answers[s])), id=str(p), score=float(scores[s])) for s in range(4)]
        for p, (answers, scores) in enumerate(zip(answers_PS, scores_PS, strict=True))
    ]
    numbers = suite_scores(suite)["strict"]

    def winner(p: int, block: range) -> bool:
        sums = {answer: np.exp(scores_PS[p, block])[answers_PS[p, block] == answer].sum() for answer in "579"}
        return max(sums, key=sums.__getitem__) == "5"

    for k in (1, 2, 4):
        subsets = [list(each) for each in itertools.combinations(range(4), k)]
        best = [correct_PS[p, each[scores_PS[p, each].argmax()]] for p in range(6) for each in map(np.array, subsets)]
        assert numbers["best@k"][str(k)] == pytest.approx(np.mean(best), abs=1e-12)
        votes = [winner(p, range(start, start + k)) for p in range(6) for start in range(0, 4, k)]
        assert numbers["weighted@k"][str(k)] == pytest.approx(np.mean(votes), abs=1e-12)
    assert 0 < numbers["best@k"]["4"] != numbers["maj@k"]["4"]
    suite[0][0] = response(0)
    assert "best@k" not in suite_scores(suite)["strict"]

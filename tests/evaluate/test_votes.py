"""maj@k has one voting rule: during training, in stored responses, and after these are graded again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fake_sampler import FakeSampler

from ansatz.evaluate.estimators import maj_at_k
from ansatz.evaluate.evaluate import Evaluator
from ansatz.evaluate.responses import reward_grader
from ansatz.rollout.base import Sampling
from ansatz.types import Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict

# text of a response: verdict. The gold answer is 24. Two responses are correct for a reason other than EQUAL, such as
# an expression with another form that a reward accepts; they extract different texts.
VERDICTS = {
    "4 * 6": Verdict(correct=True, reason=Reason.DIFFERENT, extracted="4 * 6"),
    "8 * 3": Verdict(correct=True, reason=Reason.UNPARSED, extracted="8 * 3"),
    "2 5": Verdict(correct=False, reason=Reason.DIFFERENT, extracted="2 5"),
    "25": Verdict(correct=False, reason=Reason.EQUAL, extracted="25"),
    "?": Verdict(correct=False, reason=Reason.NO_ANSWER, extracted=None),
}


class TableGrader:
    threads = 1

    def score(self, rollouts: Sequence[Rollout], *, step: int = 0) -> list[ScoredRollout]:
        return [
            ScoredRollout(rollout=rollout, score=Score(value=0.0, parts={}, verdict=VERDICTS[rollout.text]))
            for rollout in rollouts
        ]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("4 * 6", "8 * 3", "25"), 1.0),  # two correct responses outvote a wrong one, however they are written
        (("25", "2 5", "4 * 6"), 0.0),  # spaces do not split a vote, and a wrong verdict never votes for the gold
        (("25", "?", "4 * 6", "?"), 0.5),  # a tie of one against one; without an answer there is no vote
    ],
)
def test_training_and_stored_responses_vote_alike(texts: tuple[str, ...], expected: float) -> None:
    problem = Problem(id="p", question="?", answers=("24",), source="test", split="heldout")
    prompts = [Prompt(problem=problem, text="?", token_ids=(1,))]
    sampler = FakeSampler(lambda prompt, sample: texts[sample])
    sampling = Sampling(num_samples=len(texts), max_response_tokens=9)

    evaluator = Evaluator(prompts=prompts, grader=TableGrader(), sampling=sampling, k=len(texts), split="heldout")
    in_training = evaluator.run(sampler, stage="rl", step=0).row["maj@k"]

    stored = reward_grader(TableGrader())(sampler.generate(prompts, sampling))
    votes = [response.vote("reward") for response in stored]
    from_store = maj_at_k(votes, [response.verdicts["reward"].correct for response in stored], k=len(texts))

    assert in_training == from_store == expected

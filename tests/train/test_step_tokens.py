"""Steps known by characters become steps known by tokens, and reach the advantages."""

from __future__ import annotations

import pytest
import torch

from ansatz.objectives.build import build_objective
from ansatz.train.batch import build_batch
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import StepTokens, TrainSample
from tests.tiny_models import prompt

from ansatz.types import Finish, Rollout  # isort: skip

TEXTS = {1: "12", 2: "+3", 3: "\n", 4: "5\n6", 5: "", 6: "\xc3", 7: "\xa9"}


def decode(ids) -> str:
    """Tokens 6 and 7 are the bytes of one character."""
    return "".join(TEXTS[token] for token in ids).replace("\xc3\xa9", "\xe9")


def rollout(*token_ids: int) -> Rollout:
    return Rollout(
        prompt=prompt(9),
        sample=0,
        token_ids=token_ids,
        behavior_logps=(-1.0,) * len(token_ids),
        text=decode(token_ids),
        finish=Finish.STOP,
        version_min=0,
        version_max=0,
        seed=0,
    )


@pytest.mark.parametrize(
    ("token_ids", "steps", "expected"),
    [
        ((1, 2, 3, 1, 5), [(5, 0.5), (7, 1.0)], [(2, 0.5), (4, 1.0)]),  # the end token belongs to the last step
        ((1, 4, 1), [(4, 0.5), (5, 0.25), (7, 1.0)], [(1, 0.75), (2, 1.0)]),  # two steps end within one token
        ((6, 7, 3, 1), [(2, 0.5), (4, 1.0)], [(2, 0.5), (3, 1.0)]),  # one character of two tokens
        ((1, 2), [], []),
    ],
)
def test_a_step_ends_at_the_first_token_that_reaches_its_end(token_ids, steps, expected):
    assert StepTokens(decode)(rollout(*token_ids), steps) == expected


def batch_of(preset: str, steps, **inputs):
    samples = [
        TrainSample(
            prompt_ids=[1], token_ids=[1, 2, 3], behavior_logps=[0.0] * 3, group=0, reward=reward, steps=of_sample
        )
        for reward, of_sample in steps
    ]
    packed = pack_rollouts(samples, device=torch.device("cpu"))
    value_T = torch.zeros(packed.num_tokens)
    batch = build_batch(packed, build_objective({"preset": preset, **inputs}), value_T=value_T)
    return batch.advantage_T.view(2, 4)[:, 1:]


def test_step_rewards_reach_the_process_advantage_and_that_of_a_critic():
    steps = [(1.0, [(0, 1.0), (2, 1.0)]), (0.0, [(0, 1.0), (2, -3.0)])]
    # Mean 0, sample variance (1 + 1 + 1 + 9) / 3 = 4: the scores are 0.5, 0.5, 0.5, -1.5, and add up from the end.
    process = batch_of("grpo_process", steps)
    torch.testing.assert_close(process, torch.tensor([[1.0, 0.5, 0.5], [-1.0, -1.5, -1.5]]), atol=1e-5, rtol=0)
    critic = batch_of("ppo", steps, whiten="none", advantage={"lam": 1.0})
    torch.testing.assert_close(critic, torch.tensor([[2.0, 1.0, 1.0], [-2.0, -3.0, -3.0]]))


def test_without_steps_a_critic_sees_the_reward_at_the_last_token():
    critic = batch_of("ppo", [(1.0, ()), (0.0, ())], whiten="none", advantage={"lam": 1.0})
    torch.testing.assert_close(critic, torch.tensor([[1.0] * 3, [0.0] * 3]))

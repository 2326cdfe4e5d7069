"""One tiny step, counted by hand: every metric of its rollouts and of its update.

The policy says token 0 with probability 1/4 and token 1 with probability 3/4 (logits 0 and log 3), whatever came
before. Two prompts have two rollouts each; version 3 is updated, and version 2 sampled one token:

    rollout   prompt   response   reward   advantage (reward - mean of the group)
    a0        0        1 1        1         1/2
    a1        0        0 0 1      0        -1/2       the first token is stale: behavior = log(1/2)
    b0        0 0      0          0         0         cut off at the limit, no answer
    b1        0 0      0 0        0         0         wrong
"""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from unigram import ENTROPY, LOG_P, set_logits, unigram_policy

from ansatz.config.schema import TrainSection
from ansatz.objectives.build import build_objective
from ansatz.track.measurements import values
from ansatz.track.rollouts import rollout_metrics
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import samples_of_groups
from ansatz.train.step import explained_variance
from ansatz.train.trainer import StepReport
from ansatz.types import Finish, Group, Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict

SAMPLER_GAP = 0.02  # nats, at the last token of a1


def prompt(name: str, *token_ids: int) -> Prompt:
    problem = Problem(id=name, question=name, answers=("1",), source="test", split="train")
    return Prompt(problem=problem, text=name, token_ids=token_ids)


def scored(
    prompt: Prompt,
    sample: int,
    token_ids: tuple[int, ...],
    reason: Reason,
    *,
    finish: Finish = Finish.STOP,
    behavior_logps: tuple[float, ...] = (),
    versions: tuple[int, ...] = (),
) -> ScoredRollout:
    rollout = Rollout(
        prompt=prompt,
        sample=sample,
        token_ids=token_ids,
        behavior_logps=behavior_logps or tuple(LOG_P[token] for token in token_ids),
        text="",
        finish=finish,
        version_min=min(versions, default=3),
        version_max=3,
        seed=0,
        versions=versions,
    )
    reward = float(reason is Reason.EQUAL)
    verdict = Verdict(correct=bool(reward), reason=reason)
    return ScoredRollout(rollout=rollout, score=Score(value=reward, parts={"math_answer": reward}, verdict=verdict))


A, B = prompt("a", 0), prompt("b", 0, 0)
GROUPS = [
    Group(
        prompt=A,
        members=(
            scored(A, 0, (1, 1), Reason.EQUAL),
            scored(
                A,
                1,
                (0, 0, 1),
                Reason.DIFFERENT,
                behavior_logps=(math.log(1 / 2), LOG_P[0], LOG_P[1] + SAMPLER_GAP),
                versions=(2, 3, 3),
            ),
        ),
    ),
    Group(
        prompt=B,
        members=(
            scored(B, 0, (0,), Reason.NO_ANSWER, finish=Finish.LENGTH),
            scored(B, 1, (0, 0), Reason.DIFFERENT),
        ),
    ),
]


def updated(algorithm: dict[str, object], **settings: object) -> tuple[LocalTrainer, StepReport]:
    """A trainer at version 3 whose reference gives both tokens 1/2, and the report of its step 2."""
    trainer = LocalTrainer(
        unigram_policy(0.0, 0.0),
        build_objective(algorithm, max_response_tokens=10),
        settings=TrainSection(max_grad_norm=0.0, **settings),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-3, warmup_steps=3),
    )
    set_logits(trainer.policy, 0.0, math.log(3))
    trainer.version = 3
    return trainer, trainer.update(trainer.batch(samples_of_groups(GROUPS)), step=2)


def test_the_metrics_of_the_rollouts() -> None:
    expected = {
        "rollout/rewards": 1 / 4,
        "rollout/reward_std": (1 / 2 + 0) / 2,  # of (1, 0) and of (0, 0)
        "rollout/accuracy": 1 / 4,
        "rollout/response_length": (2 + 3 + 1 + 2) / 4,
        "rollout/response_length_max": 3,
        "rollout/truncated_frac": 1 / 4,
        "rollout/no_answer_frac": 1 / 4,
        "rollout/groups_with_signal_frac": 1 / 2,
        "rollout/repetition": 0,  # no response has 8 tokens
        "rollout/verdict/equal": 1 / 4,
        "rollout/verdict/different": 2 / 4,
        "rollout/verdict/no_answer": 1 / 4,
        "rollout/verdict/truncated": 0,
        "rollout/verdict/hedged": 0,
        "rollout/verdict/unparsed": 0,
        "rollout/verdict/timeout": 0,
        "rollout/verdict/crashed": 0,
        "reward/math_answer": 1 / 4,
    }
    found = values(rollout_metrics(GROUPS))
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_the_metrics_of_one_update() -> None:
    # Dr. GRPO: each of the 8 tokens has the weight 1 / (4 rollouts x 10 tokens) = 1/40.
    trainer, report = updated({"preset": "dr_grpo", "kl": "k1", "kl_coef": 0.1})
    # Ratio: policy / old is 1, but at the stale token (1/4) / (1/2) = 1/2, and 1/2 < 1 - 0.2 with A < 0 is clipped.
    # Surrogate: -1/2 for each token of a0; +0.8/2 at the stale token and +1/2 at the two others of a1; 0 in group b.
    surrogate = (2 * -0.5 + 0.4 + 2 * 0.5) / 40
    # KL (k1, to the reference): log(3/4 / 1/2) at the three tokens 1, log(1/4 / 1/2) at the five tokens 0.
    kl = (3 * math.log(1.5) + 5 * math.log(0.5)) / 8
    # Gradient in log p: -A / 40 at tokens that are not clipped, + 0.1 / 40 at all. Summed over the tokens 1:
    # (2 x -0.5 + 0.5 + 3 x 0.1) / 40 = -0.2 / 40; over the tokens 0: (0.5 + 5 x 0.1) / 40 = 1 / 40.
    # d log p(0) / d logits = (3/4, -3/4) and d log p(1) / d logits = (-1/4, 1/4): the gradient is (g, -g) with
    # g = (1 x 3/4 + 0.2 x 1/4) / 40 = 0.02.
    assert report.metrics == pytest.approx(
        {
            "train/loss": surrogate + 0.1 * kl * 8 / 40,
            "train/tokens": 8,
            "train/entropy": ENTROPY,
            "train/clip_frac": 1 / 8,
            "train/ratio_mean": (7 + 1 / 2) / 8,
            "train/ratio_max": 1,
            "train/approx_kl": math.log(2) / 8,  # -log(1/2) at the stale token
            "train/kl_ref": kl,
            "train/grad_norm": 0.02 * math.sqrt(2),
            "train/lr": 1e-3 * 2 / 4,  # the second of three steps of warm-up
            "train/early_stops": 0,
            "train/skipped_steps": 0,
            "align/mean_exp_gap": (6 + math.exp(SAMPLER_GAP)) / 7,  # one of the seven tokens that version 3 sampled
            "align/max_gap": SAMPLER_GAP,
        },
        rel=1e-5,
    )
    assert (report.num_updates, trainer.version) == (1, 4)
    assert report.num_tokens == (1 + 2) + (1 + 3) + (2 + 1) + (2 + 2)


def test_minibatches_and_epochs_count_every_token_once_in_means_and_every_update_in_the_rate() -> None:
    # A learning rate of almost 0, so that no update changes the policy: two epochs of two minibatches, one per prompt.
    trainer = LocalTrainer(
        unigram_policy(0.0, math.log(3)),
        build_objective({"preset": "dr_grpo"}, max_response_tokens=10),
        settings=TrainSection(updates_per_step=2, epochs_per_step=2),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-30),
    )
    trainer.version = 3
    report = trainer.update(trainer.batch(samples_of_groups(GROUPS)), step=1)
    assert report.num_updates == 4
    assert report.num_tokens == 2 * (3 + 4 + 3 + 4)
    assert report.metrics["train/tokens"] == 8
    assert report.metrics["train/entropy"] == pytest.approx(ENTROPY)
    # A mean over tokens: group a has 5 tokens and one of them is clipped, group b has 3 and none.
    assert report.metrics["train/clip_frac"] == pytest.approx(1 / 8)
    assert report.metrics["align/mean_exp_gap"] == pytest.approx((6 + math.exp(SAMPLER_GAP)) / 7, rel=1e-5)
    # The mean over updates: group a alone has (2 x -0.5 + 0.4 + 2 x 0.5) / (2 rollouts x 10), group b has 0.
    assert report.metrics["train/loss"] == pytest.approx((0.4 / 20 + 0) / 2, rel=1e-5)


def test_the_metrics_of_the_critic() -> None:
    # Its first values are 0, and with lambda = gamma = 1 the return of every token is the reward of its rollout.
    _, report = updated({"preset": "ppo", "advantage": {"name": "gae", "lam": 1.0}, "kl_coef": 0.0})
    assert report.metrics["train/value_loss"] == pytest.approx(2 / 8)  # (0 - 1)^2 at the two tokens of a0
    assert report.metrics["train/explained_variance"] == pytest.approx(0.0)  # 1 - var(return) / var(return)


def test_the_explained_variance_is_that_of_all_loss_tokens() -> None:
    trainer, _ = updated({"preset": "ppo", "kl_coef": 0.0})
    batch = trainer.batch(samples_of_groups(GROUPS))
    # Returns 1 at four tokens and 0 at four, values 1/2 and 0: errors 1/2 and 0. var(return) = 1/4, var(error) = 1/16.
    place_T = batch.mask_T.cumsum(0) * batch.mask_T
    high_T = ((place_T > 0) & (place_T <= 4)).float()
    batch = dataclasses.replace(batch, return_T=high_T, old_value_T=high_T / 2)
    assert values({"train/explained_variance": explained_variance(batch)}) == {
        "train/explained_variance": pytest.approx(3 / 4)
    }

"""A critic's advantages, returns and loss against `padded_critic`, an independent implementation on padded arrays.

Random cases: tool output inside responses, padding of absurd values, rollouts without a sampled token, truncated
rollouts that leave the loss, every aggregation, with and without clipping.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import padded_critic as reference
import pytest
import torch
from torch import Tensor

from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective

FAR = 37.0
"""What stands outside the mask and in prompts, so that a leak shows."""

WEIGHTS: dict[str, Any] = {
    "token_mean": "token_mean",
    "token_sum": {"name": "token_sum", "divisor": 13},
    "sequence_mean": "sequence_mean",
    "sequence_mean_nonempty": {"name": "sequence_mean", "rollouts": "nonempty"},
    "sequence_sum": "sequence_sum",
    "fixed_length": {"name": "fixed_length", "max_tokens": 13},
    "prompt_mean": "prompt_mean",
}


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Padded N x L, and the flat token axis: a prompt of 0 to 2 tokens and the response columns of each rollout."""

    reward: list[float]
    group: list[int]
    truncated: list[bool]
    length: list[int]
    mask: list[list[bool]]
    old: list[list[float]]
    ref: list[list[float]]
    value: list[list[float]]
    new_value: list[list[float]]
    prompt: list[int]

    @property
    def segment_T(self) -> Tensor:
        return torch.tensor([n for n, size in enumerate(self.length) for _ in range(self.prompt[n] + size)])

    def flat(self, rows: list[list[Any]], outside: Any) -> Tensor:
        dtype = torch.bool if isinstance(outside, bool) else torch.float64
        return torch.tensor(
            [x for n, row in enumerate(rows) for x in [outside] * self.prompt[n] + row[: self.length[n]]], dtype=dtype
        )

    def padded(self, value_T: Tensor) -> list[list[float]]:
        """The response columns of a flat array; 0 in the padding."""
        values, out, at = value_T.tolist(), [], 0
        for n, size in enumerate(self.length):
            at += self.prompt[n]
            out.append(values[at : at + size] + [0.0] * (len(self.mask[n]) - size))
            at += size
        return out


def random_arrays(rng: random.Random) -> Arrays:
    rows, columns = rng.randint(1, 6), rng.randint(1, 8)
    length = [rng.randint(1, columns) for _ in range(rows)]
    sampled = [rng.choice([0.0, 0.4, 0.8, 1.0]) for _ in range(rows)]
    mask = [[column < length[n] and rng.random() < sampled[n] for column in range(columns)] for n in range(rows)]
    mask[0][0] = True  # at least one token counts

    def numbers(center: float, width: float) -> list[list[float]]:
        return [[rng.gauss(center, width) if inside else FAR for inside in row] for row in mask]

    return Arrays(
        reward=[rng.choice([0.0, 1.0, rng.gauss(0, 2)]) for _ in range(rows)],
        group=[rng.randrange(3) for _ in range(rows)],
        truncated=[False, *(rng.random() < 0.3 for _ in range(rows - 1))],
        length=length,
        mask=mask,
        old=numbers(-1.0, 0.5),
        ref=numbers(-1.0, 0.5),
        # With tool output as time, the critic's values count there too.
        value=[[rng.gauss(0, 1) if n < length[m] else FAR for n in range(columns)] for m in range(rows)],
        new_value=numbers(0, 1),
        prompt=[rng.randint(0, 2) for _ in range(rows)],
    )


def random_options(rng: random.Random) -> dict[str, Any]:
    return {
        "gamma": rng.choice([1.0, 0.99, 0.5, 0.0]),
        "lam": rng.choice([1.0, 0.95, 0.3, 0.0]),
        "lam_length": rng.choice([None, None, 0.3, 2.0]),
        "tool_is_time": rng.random() < 0.5,
        "kl": rng.choice(["k1", "k2", "k3"]),
        "kl_coef": rng.choice([0.0, 0.1]),
        "clip": rng.choice([None, [-0.5, 0.75]]),
        "reward_whiten": rng.random() < 0.3,
        "whiten": rng.random() < 0.5,
        "drop_truncated": rng.random() < 0.5,
        "weights": rng.choice(list(WEIGHTS)),
        "value_clip": rng.choice([None, 0.05, 0.2, 1.0]),
        "coef": rng.choice([1.0, 0.1]),
        "scale": rng.choice([0.5, 1.0]),
    }


def objective_of(o: dict[str, Any]) -> Objective:
    return build_objective(
        {
            "preset": "ppo",
            "advantage": {"name": "gae", "gamma": o["gamma"], "lam": o["lam"], "lam_length": o["lam_length"]},
            "kl": {"name": o["kl"]},
            "kl_coef": o["kl_coef"],
            "kl_in": "reward",
            "advantage_clip": o["clip"],
            "reward_whiten": "token_rewards" if o["reward_whiten"] else "none",
            "whiten": "tokens" if o["whiten"] else "none",
            "masks": "not_truncated" if o["drop_truncated"] else "none",
            "weights": WEIGHTS[o["weights"]],
            "value": {"name": "squared_error", "clip": o["value_clip"], "coef": o["coef"], "scale": o["scale"]},
        }
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """advantage, returns, gradient: N x L, by the values of the critic; 0 outside the mask."""

    advantage: list[list[float]]
    returns: list[list[float]]
    loss: float
    gradient: list[list[float]]


def expected(arrays: Arrays, o: dict[str, Any]) -> Outcome:
    mask, columns = arrays.mask, range(len(arrays.mask[0]))
    time = [[c < size for c in columns] for size in arrays.length] if o["tool_is_time"] else mask
    kl = [
        [
            reference.kl(o["kl"], arrays.old[n][c], arrays.ref[n][c]) if inside and o["kl_coef"] else 0.0
            for c, inside in enumerate(row)
        ]
        for n, row in enumerate(mask)
    ]
    low, high = o["clip"] or (-1e9, 1e9)
    rewards = [min(max(reward, low), high) for reward in arrays.reward]
    token_rewards = reference.token_rewards(rewards, time, kl, o["kl_coef"])
    if o["reward_whiten"]:
        token_rewards = reference.whitened(token_rewards, time, keep_mean=True)
    raw = reference.gae(token_rewards, arrays.value, time, gamma=o["gamma"], lam=o["lam"], lam_length=o["lam_length"])
    advantage = reference.whitened(raw, mask) if o["whiten"] else raw
    kept = [
        [inside and not (o["drop_truncated"] and arrays.truncated[n]) for inside in row] for n, row in enumerate(mask)
    ]
    losses, slopes = [[0.0 for _ in columns] for _ in mask], [[0.0 for _ in columns] for _ in mask]
    for n, row in enumerate(kept):
        for c in [c for c in columns if row[c]]:
            loss, slope = reference.value_loss(
                arrays.new_value[n][c], arrays.value[n][c], raw[n][c] + arrays.value[n][c], clip=o["value_clip"]
            )
            losses[n][c], slopes[n][c] = o["coef"] * o["scale"] * loss, o["coef"] * o["scale"] * slope

    def aggregated(rows: list[list[float]]) -> float:
        return reference.aggregate(rows, kept, arrays.group, kind=o["weights"], max_tokens=13)

    def alone(n: int, c: int) -> float:
        return aggregated([[x * (at == n and k == c) for k, x in enumerate(row)] for at, row in enumerate(slopes)])

    return Outcome(
        advantage=[[x * inside for x, inside in zip(*rows, strict=True)] for rows in zip(advantage, mask, strict=True)],
        returns=[
            [(raw[n][c] + arrays.value[n][c]) * inside for c, inside in enumerate(row)] for n, row in enumerate(mask)
        ],
        loss=aggregated(losses),
        gradient=[[alone(n, c) for c in columns] for n in range(len(mask))],
    )


@dataclass(frozen=True, kw_only=True)
class Weighted:
    mask_T: Tensor
    weight_T: Tensor


def ours(arrays: Arrays, o: dict[str, Any]) -> Outcome:
    """The numbers of an Objective; the loss is the sum over microbatches of one rollout each."""
    objective, segment_T, mask_T = objective_of(o), arrays.segment_T, arrays.flat(arrays.mask, False)
    response_T = arrays.flat([[True] * len(row) for row in arrays.mask], False)
    value_T, truncated_N = arrays.flat(arrays.value, FAR), torch.tensor(arrays.truncated)
    group_N = torch.tensor(arrays.group)
    result = objective.advantages(
        torch.tensor(arrays.reward, dtype=torch.float64),
        group_N,
        segment_T=segment_T,
        mask_T=mask_T,
        state_T=response_T if o["tool_is_time"] else None,
        old_logp_T=arrays.flat(arrays.old, FAR),
        ref_logp_T=arrays.flat(arrays.ref, FAR),
        value_T=value_T,
    )
    assert result.return_T is not None
    kept_T = objective.loss_mask(segment_T, mask_T, truncated_N=truncated_N)
    weight_T = objective.token_weights(
        segment_T, kept_T, num_rollouts=len(group_N), group_N=group_N, dtype=torch.float64
    )
    new_T = arrays.flat(arrays.new_value, FAR).requires_grad_()
    losses = [
        objective.value_loss(
            Weighted(mask_T=kept_T[part], weight_T=weight_T[part]), new_T[part], value_T[part], result.return_T[part]
        )
        for part in (segment_T == n for n in range(len(group_N)))
    ]
    loss = torch.stack(losses).sum()
    (gradient_T,) = torch.autograd.grad(loss, new_T)
    return Outcome(
        advantage=arrays.padded(result.advantage_T),
        returns=arrays.padded(result.return_T),
        loss=loss.item(),
        gradient=arrays.padded(gradient_T),
    )


def worst_error(got: list[list[float]], want: list[list[float]]) -> float:
    pairs = [pair for rows in zip(got, want, strict=True) for pair in zip(*rows, strict=True)]
    return max(abs(x - y) for x, y in pairs) / max(1.0, max(abs(y) for _, y in pairs))


def assert_equal(seed: int) -> None:
    rng = random.Random(seed)
    arrays, options = random_arrays(rng), random_options(rng)
    got, want = ours(arrays, options), expected(arrays, options)
    assert worst_error(got.advantage, want.advantage) < 1e-9, options
    assert worst_error(got.returns, want.returns) < 1e-10, options
    assert got.loss == pytest.approx(want.loss, rel=1e-10, abs=1e-10), options
    assert worst_error(got.gradient, want.gradient) < 1e-10, options


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_critics_numbers_equal_an_independent_implementation(first: int):
    for seed in range(first, first + 10):
        assert_equal(seed)


def test_with_a_lambda_of_one_the_return_is_the_discounted_reward_whatever_the_critic_says():
    """Three sampled tokens, one tool token among them, gamma 1/2, reward 8: 8, 4, 2 back from the end over the sampled
    tokens, and 1 at the first where tool output counts as time."""
    arrays = Arrays(
        reward=[8.0],
        group=[0],
        truncated=[True],
        length=[4],
        mask=[[True, True, False, True]],
        old=[[0.0] * 4],
        ref=[[0.0] * 4],
        value=[[5.0, -3.0, 9.0, 2.0]],
        new_value=[[0.0] * 4],
        prompt=[1],
    )
    options = {**random_options(random.Random(0)), "gamma": 0.5, "lam": 1.0, "lam_length": None, "kl_coef": 0.0}
    options |= {"clip": None, "reward_whiten": False, "drop_truncated": False}
    assert ours(arrays, {**options, "tool_is_time": False}).returns == [[2.0, 4.0, 0.0, 8.0]]
    assert ours(arrays, {**options, "tool_is_time": True}).returns == [[1.0, 2.0, 0.0, 8.0]]

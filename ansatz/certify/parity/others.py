"""Cases without a policy's loss: length rewards, process supervision, controllers, reward models."""

from __future__ import annotations

import torch

from ansatz.certify.parity.cases import Case
from ansatz.certify.parity.runs import Outputs
from ansatz.objectives import advantages, coefficients, preference
from ansatz.shaping import penalties


def soft_overlong(case: Case) -> Outputs:
    limit, buffer = case.knobs["max_completion_len"], case.knobs["soft_punish_cache"]
    lengths = case.inputs["length"]
    return {"rewards": [penalties.soft_overlong(int(n), max_tokens=limit, buffer=buffer) for n in lengths]}


def kimi_length(case: Case) -> Outputs:
    group_N, lengths, correct = (case.inputs[name] for name in ("group", "length", "correct"))
    rewards = [0.0] * len(lengths)
    for group in set(group_N):
        rows = [row for row, other in enumerate(group_N) if other == group]
        made = penalties.group_length([lengths[row] for row in rows], [bool(correct[row]) for row in rows])
        for row, value in zip(rows, made, strict=True):
            rewards[row] = value
    weight = case.knobs["weight"]
    return {
        "length_reward": rewards,
        "total_reward": [right + weight * value for right, value in zip(correct, rewards, strict=True)],
    }


def l1_paper(case: Case) -> Outputs:
    knobs = case.knobs
    made: list[float] = []
    for length, correct in zip(case.inputs["length"], case.inputs["correct"], strict=True):
        given = {"target": knobs["n_gold"], "alpha": knobs["alpha"]}
        if knobs["mode"] == "exact":
            made.append(penalties.lcpo_exact(length, bool(correct), **given))
        else:
            made.append(penalties.lcpo_max(length, bool(correct), **given, delta=knobs["delta"]))
    return {"rewards": made}


def l1_code(case: Case) -> Outputs:
    """A negative num_tokens is the ceiling's form, with half the slope of the paper."""
    target, alpha = case.knobs["num_tokens"], case.knobs["alpha"]
    rows = zip(case.inputs["length"], case.inputs["correct"], strict=True)
    if target >= 0:
        return {"rewards": [penalties.lcpo_exact(n, bool(c), target=target, alpha=alpha) for n, c in rows]}
    return {"rewards": [penalties.lcpo_max(n, bool(c), target=-target, alpha=alpha / 2) for n, c in rows]}


def open_r1_length(case: Case) -> Outputs:
    return {"rewards": penalties.group_length(case.inputs["length"], [bool(c) for c in case.inputs["correct"]])}


def open_r1_cosine(case: Case) -> Outputs:
    knobs = {
        "min_value_wrong": -1.0,
        "max_value_wrong": -0.5,
        "min_value_correct": 0.5,
        "max_value_correct": 1.0,
        "max_len": 1000,
        **case.knobs,
    }
    ends = {
        "correct_short": knobs["max_value_correct"],
        "correct_long": knobs["min_value_correct"],
        "wrong_short": knobs["min_value_wrong"],
        "wrong_long": knobs["max_value_wrong"],
    }
    rows = zip(case.inputs["length"], case.inputs["correct"], strict=True)
    return {"rewards": [penalties.cosine_length(n, bool(c), max_tokens=int(knobs["max_len"]), **ends) for n, c in rows]}


def process(case: Case) -> Outputs:
    lengths = case.inputs["length"]
    segment_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    reward_T = torch.zeros(len(segment_T), dtype=torch.float64)
    end_T = torch.zeros(len(segment_T), dtype=torch.bool)
    start = 0
    for length, ends, rewards in zip(lengths, case.inputs["step_end"], case.inputs["step_reward"], strict=True):
        for end, reward in zip(ends, rewards, strict=True):
            reward_T[start + end], end_T[start + end] = reward, True
        start += length
    component = advantages.ADVANTAGES.bind("process", {"ddof": case.knobs["ddof"], "eps": case.knobs["eps"]})
    made_T = component(reward_T, end_T, segment_T, torch.zeros(len(lengths), dtype=torch.long))
    expected = torch.tensor(case.outputs["advantages"])
    padded = torch.zeros(expected.shape, dtype=torch.float64)
    for row, length in enumerate(lengths):
        padded[row, :length] = made_T[segment_T == row]
    return {"advantages": padded}


def verl_controller(case: Case) -> Outputs:
    knobs = case.knobs
    coef: float = knobs["kl_coef"]
    seen: list[float] = []
    for observed in knobs["observed_kl"]:
        coef = coefficients.adapt_kl_coef(
            coef, observed, target=knobs["target_kl"], horizon=knobs["horizon"], num_rollouts=knobs["n_steps"]
        )
        seen.append(coef)
    return {"kl_coef_after_each_update": seen}


def bradley_terry(case: Case) -> Outputs:
    chosen = case.array("rewards_chosen").requires_grad_()
    rejected = case.array("rewards_rejected").requires_grad_()
    center = case.knobs["center_rewards_coefficient"] or 0.0
    loss = preference.bradley_terry(chosen, rejected, case.optional("margin"), center=center).mean()
    up, down = torch.autograd.grad(loss, (chosen, rejected))
    return {"loss": loss, "grad_rewards_chosen": up, "grad_rewards_rejected": down}

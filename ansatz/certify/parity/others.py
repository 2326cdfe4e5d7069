"""Cases without a policy loss: length rewards, process supervision, controllers, reward models."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ansatz.certify.parity.cases import Case, float64
from ansatz.certify.parity.runs import Outputs
from ansatz.objectives import advantages, coefficients, preference
from ansatz.objectives.components import build_component
from ansatz.objectives.projects.options import Options
from ansatz.rewards import length_formulas


def soft_overlong(case: Case) -> Outputs:
    limit, buffer = case.options["max_completion_len"], case.options["soft_punish_cache"]
    lengths = case.inputs["length"]
    return {
        "rewards": [length_formulas.soft_overlong(int(length), max_tokens=limit, buffer=buffer) for length in lengths]
    }


def openrlhf_rewards(case: Case) -> Tensor:
    """Return rewards with the length penalty, then the penalty of responses that did not stop; before any baseline."""
    options, reward_N = case.options, case.array("rewards")
    buffer = options.get("overlong_buffer_len")
    if buffer is None:
        options.ignore("max_new_tokens", "overlong_penalty_factor")
    else:
        limits = {"max_tokens": options["max_new_tokens"], "buffer": buffer}
        strength = options["overlong_penalty_factor"]
        lengths = case.inputs["length"]
        reward_N = reward_N + float64(
            [length_formulas.soft_overlong(int(n), **limits, strength=strength) for n in lengths]
        )
    coef = options.get("stop_properly_penalty_coef")
    if coef is not None:
        cut_N = case.array("truncated").bool()
        reward_N = torch.where(cut_N, reward_N * coef if coef >= 0 else torch.full_like(reward_N, coef), reward_N)
    return reward_N


def prime_rewards(case: Case) -> Tensor | None:
    """Return rewards minus mean reward x weighted relative cost, prompt by prompt; None without a length penalty."""
    weights = case.options["length_penalty"]
    if weights is None:
        return None
    reward_N, group_N = case.array("rewards"), torch.tensor(case.inputs["group"])
    output_N, total_N = case.array("num_output_tokens"), case.array("num_total_tokens")
    costs = {
        "num_output_tokens": output_N,
        "num_input_tokens": total_N - output_N,
        "num_turns": case.array("num_turns"),
    }
    shaped_N = reward_N.clone()
    for group in sorted(set(case.inputs["group"])):
        inside = group_N == group
        rewards = [float(reward) for reward in reward_N[inside]]
        for name, cost_N in costs.items():
            weight = weights[f"{name}_weight"]
            penalty = length_formulas.relative_length([float(cost) for cost in cost_N[inside]], rewards, weight=weight)
            shaped_N[inside] -= float64(penalty)
    return shaped_N


def kimi_length(case: Case) -> Outputs:
    group_N, lengths, correct = (case.inputs[name] for name in ("group", "length", "correct"))
    rewards = [0.0] * len(lengths)
    for group in set(group_N):
        rows = [row for row, label in enumerate(group_N) if label == group]
        shares = length_formulas.group_length([lengths[row] for row in rows], [bool(correct[row]) for row in rows])
        for row, value in zip(rows, shares, strict=True):
            rewards[row] = value
    weight = case.options["weight"]
    totals = [score + weight * value for score, value in zip(correct, rewards, strict=True)]
    return {"length_reward": rewards, "total_reward": totals}


def l1_paper(case: Case) -> Outputs:
    options, rewards = case.options, list[float]()
    for length, correct in zip(case.inputs["length"], case.inputs["correct"], strict=True):
        settings = {"target": options["n_gold"], "alpha": options["alpha"]}
        if options["mode"] == "exact":
            options.ignore("delta")
            rewards.append(length_formulas.lcpo_exact(length, bool(correct), **settings))
        else:
            rewards.append(length_formulas.lcpo_max(length, bool(correct), **settings, delta=options["delta"]))
    return {"rewards": rewards}


def l1_code(case: Case) -> Outputs:
    """The authors' code: a length score, which multiplies correctness or is added to it."""
    options = case.options
    linear, product, sigmoid = (options[f"{name}_reward"] for name in ("linear", "multiplier", "sigmoid"))
    rows = zip(case.inputs["length"], case.inputs["correct"], strict=True)
    if options["num_tokens"] == -1 or not (linear or product or sigmoid):
        options.ignore("alpha")
        return {"rewards": [float(correct) for _, correct in rows]}
    scores = [(_l1_length_score(length, options), float(correct)) for length, correct in rows]
    if product:
        return {"rewards": [max(0.0, score) * correct for score, correct in scores]}
    return {"rewards": [score + correct for score, correct in scores]}


def _l1_length_score(length: float, options: Options) -> float:
    """num_tokens > 0: a length to hit; < 0: the length to stay below, whose slope is half the slope in the paper."""
    target, alpha = options["num_tokens"], options["alpha"]
    if options["sigmoid_reward"]:
        below = abs(target) - length if target < 0 else abs(target - length)
        score = 1 / (1 + math.exp(-alpha * below))
        return min(1.0, score + 0.1) if target < 0 and below >= 0 else score
    if target >= 0:
        return length_formulas.lcpo_exact(int(length), False, target=target, alpha=alpha)
    return length_formulas.lcpo_max(int(length), True, target=-target, alpha=alpha / 2)


def open_r1_length(case: Case) -> Outputs:
    return {"rewards": length_formulas.group_length(case.inputs["length"], [bool(c) for c in case.inputs["correct"]])}


def open_r1_cosine(case: Case) -> Outputs:
    options = case.options
    ends = {
        "correct_short": options.get("max_value_correct", 1.0),
        "correct_long": options.get("min_value_correct", 0.5),
        "wrong_short": options.get("min_value_wrong", -1.0),
        "wrong_long": options.get("max_value_wrong", -0.5),
    }
    limit = int(options.get("max_len", 1000))
    rows = zip(case.inputs["length"], case.inputs["correct"], strict=True)
    return {"rewards": [length_formulas.cosine_length(n, bool(c), max_tokens=limit, **ends) for n, c in rows]}


def process(case: Case) -> Outputs:
    """Process supervision: the outputs of one prompt."""
    lengths = case.inputs["length"]
    segment_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    reward_T = torch.zeros(len(segment_T), dtype=torch.float64)
    end_T = torch.zeros(len(segment_T), dtype=torch.bool)
    start = 0
    for length, ends, rewards in zip(lengths, case.inputs["step_end"], case.inputs["step_reward"], strict=True):
        for end, reward in zip(ends, rewards, strict=True):
            reward_T[start + end], end_T[start + end] = reward, True
        start += length
    settings = {"ddof": case.options["ddof"], "eps": case.options["eps"]}
    component = advantages.ADVANTAGES.bind("process", settings)
    group_N = torch.tensor(case.inputs.get("group", [0] * len(lengths)))
    advantage_T = component(reward_T, end_T, segment_T, group_N)
    padded = torch.zeros(torch.tensor(case.outputs["advantages"]).shape, dtype=torch.float64)
    for row, length in enumerate(lengths):
        padded[row, :length] = advantage_T[segment_T == row]
    return {"advantages": padded}


def verl_controller(case: Case) -> Outputs:
    options = case.options
    settings = {"target": options["target_kl"], "horizon": options["horizon"], "per": "token"}
    control = build_component(coefficients.KL_CONTROLS, "adaptive", settings)
    coef: float = options["kl_coef"]
    coefs: list[float] = []
    for observed in options["observed_kl"]:
        inputs = {"kl_coef": coef, "rollout_kl": observed, "token_kl": observed, "num_rollouts": options["n_steps"]}
        coef = float(control({name: float64(value) for name, value in inputs.items()}))
        coefs.append(coef)
    return {"kl_coef_after_each_update": coefs}


def bradley_terry(case: Case) -> Outputs:
    chosen = case.array("rewards_chosen").requires_grad_()
    rejected = case.array("rewards_rejected").requires_grad_()
    center = case.options["center_rewards_coefficient"] or 0.0
    case.options.ignore("use_margin")  # the margin is an input, or it is absent
    loss = preference.bradley_terry(chosen, rejected, case.optional("margin"), center=center).mean()
    up, down = torch.autograd.grad(loss, (chosen, rejected))
    return {"loss": loss, "grad_rewards_chosen": up, "grad_rewards_rejected": down}

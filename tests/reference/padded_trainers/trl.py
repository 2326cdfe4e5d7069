"""GRPOTrainer, GMPOTrainer and RLOOTrainer of TRL."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from padded_trainers.common import (
    Inputs,
    Options,
    by_group,
    by_sign,
    centered,
    k3,
    others_mean,
    ppo_clip,
    rollout_average,
    rollout_mean,
    rollout_sum,
    token_mean,
    zscore,
)


def trl(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """GRPOTrainer._compute_loss in one microbatch, num_iterations 2."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    rules = {"group": zscore(1e-4, 1), "none": centered}
    if o["scale_rewards"] == "batch":
        advantage_N = by_group(inputs, centered) / (inputs["rewards"].std() + 1e-4)
    else:
        advantage_N = by_group(inputs, rules[o["scale_rewards"]])
    advantage = advantage_N[:, None]
    log_ratio = policy - old
    log_weight = rollout_average(log_ratio, mask) if o["importance_sampling_level"] == "sequence" else log_ratio
    ratio = log_weight.exp()
    high = o["epsilon"] if o["epsilon_high"] is None else o["epsilon_high"]
    kind = o["loss_type"]
    weight = torch.ones_like(mask)
    if o["use_vllm"]:
        log_w = old - inputs["behavior_logp"]
        level, action = o["vllm_importance_sampling_mode"].split("_")
        w = (log_w if level == "token" else rollout_sum(log_w, mask)).exp()
        lowest = o["vllm_importance_sampling_clip_min"]
        cap = o["vllm_importance_sampling_clip_max"]
        if action == "truncate":
            weight = w.clamp(lowest, cap)
        else:
            weight = w * ((w <= cap) & (w >= (0.0 if lowest is None else lowest)))
    if kind == "cispo":
        loss = -ratio.detach().clamp(max=high) * advantage * policy
    elif kind == "sapo":
        tau = by_sign(advantage > 0, o["sapo_temperature_pos"], o["sapo_temperature_neg"])
        loss = -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    elif kind == "vespo":
        log_w = rollout_sum(log_ratio.detach() + weight.log().clamp(min=math.log(1e-8)) * mask, mask)
        log_w = log_w.clamp(math.log(1e-8), 20)
        good = advantage >= 0
        k = by_sign(good, o["vespo_k_pos"], o["vespo_k_neg"])
        lam = by_sign(good, o["vespo_lambda_pos"], o["vespo_lambda_neg"])
        loss = -(lam + k * log_w - lam * log_w.exp()).exp() * advantage * policy
        weight = torch.ones_like(mask)
    else:
        capped = ratio if o["delta"] is None else ratio.clamp(max=o["delta"])
        loss = -torch.minimum(capped * advantage, ratio.clamp(1 - o["epsilon"], 1 + high) * advantage)
    loss = loss * weight
    if o["beta"]:
        kl = k3(policy - inputs["ref_logp"])
        loss = loss + o["beta"] * (kl * ratio if o["use_bias_correction_kl"] else kl)
    if kind in ("grpo", "sapo"):
        return advantage_N, rollout_mean(loss, mask)
    if kind == "dr_grpo":
        return advantage_N, (loss * mask).sum() / (len(mask) * o["max_completion_length"])
    if kind == "luspo":
        return advantage_N, (loss * mask).sum() / len(mask)
    return advantage_N, token_mean(loss, mask)


def trl_gmpo(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """GMPOTrainer._compute_loss."""
    mask, policy = inputs["mask"], inputs["policy_logp"]
    advantage_N = by_group(inputs, centered if o["scale_rewards"] == "none" else zscore(1e-4, 1))
    log_ratio = policy - inputs["old_logp"]
    high = o["epsilon"] if o["epsilon_high"] is None else o["epsilon_high"]
    bounded = log_ratio.clamp(-o["epsilon"], high)
    good = (advantage_N > 0)[:, None]
    clipped = torch.where(good, torch.minimum(log_ratio, bounded), torch.maximum(log_ratio, bounded))
    loss_N = -rollout_average(clipped, mask)[:, 0].exp() * advantage_N
    if o["beta"]:
        loss_N = loss_N + o["beta"] * rollout_average(k3(policy - inputs["ref_logp"]), mask)[:, 0]
    return advantage_N, loss_N.mean()


def trl_rloo(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """RLOOTrainer: rewards are clipped, then the KL is subtracted, then others are the baseline."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    reward_N = inputs["rewards"].clamp(*o["reward_clip_range"]) if o["reward_clip_range"] else inputs["rewards"]
    if o["beta"]:
        reward_N = reward_N - o["beta"] * rollout_sum(old - inputs["ref_logp"], mask)[:, 0]
    advantage_N = by_group({**inputs, "rewards": reward_N}, others_mean)
    if o["normalize_advantages"]:
        advantage_N = (advantage_N - advantage_N.mean()) / (advantage_N.std() + 1e-4)
    ratio = rollout_sum(policy - old, mask)[:, 0].exp()
    high = o["epsilon"] if o["epsilon_high"] is None else o["epsilon_high"]
    return advantage_N, ppo_clip(ratio, advantage_N, o["epsilon"], high).mean()

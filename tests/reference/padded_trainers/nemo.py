"""ClippedPGLossFn of NeMo-RL."""

from __future__ import annotations

import torch
from torch import Tensor

from padded_trainers.common import Inputs, Options, by_group, k3, ppo_clip, rollout_average, rollout_mean, rollout_sum


def nemo(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """ClippedPGLossFn with the grpo estimator."""
    mask, policy, behavior = inputs["mask"], inputs["policy_logp"], inputs["behavior_logp"]
    old = policy.detach() if o["force_on_policy_ratio"] else inputs["old_logp"]

    advantage_N = by_group(inputs, lambda rewards: nemo_advantages(rewards, **o["adv"]))
    advantage = advantage_N[:, None]
    shared = o["sequence_level_importance_ratios"]
    log_ratio = policy - old
    ratio = (rollout_sum(log_ratio, mask) / (mask.sum(1, keepdim=True) + 1e-8) if shared else log_ratio).exp()
    low, high = o["ratio_clip_min"], o["ratio_clip_max"]
    if o["disable_ppo_ratio"]:
        loss = -advantage * policy
    elif o["force_on_policy_ratio"]:
        loss = -advantage * (policy - policy.detach()).exp()
    elif o["use_cispo"]:
        loss = -advantage * ratio.clamp(1 - low, 1 + high).detach() * policy
    else:
        loss = ppo_clip(ratio, advantage, low, high)
        if o["ratio_clip_c"] is not None:
            loss = torch.where(advantage < 0, torch.minimum(loss, -o["ratio_clip_c"] * advantage), loss)
    if o["use_importance_sampling_correction"]:
        loss = loss * nemo_mismatch(old - behavior, mask, o)

    def reduce(values: Tensor) -> Tensor:
        if o["token_level_loss"]:
            return (values * mask).sum() / (mask.sum() + 1e-8)
        return rollout_mean(values, mask, eps=1e-8)

    total = reduce(loss)
    if o["reference_policy_kl_penalty"]:
        x = policy - inputs["ref_logp"]
        inside = x.clamp(-o["kl_input_clamp_value"], o["kl_input_clamp_value"])
        kl = {"k1": inside, "k2": inside**2 / 2, "k3": k3(inside)}[o["reference_policy_kl_type"]]
        log_weight = policy - (behavior if o["use_on_policy_kl_approximation"] else policy.detach())
        log_weight = torch.where(x == inside, log_weight, log_weight.detach())
        kl = (kl * log_weight.exp()).clamp(-o["kl_output_clamp_value"], o["kl_output_clamp_value"])
        total = total + o["reference_policy_kl_penalty"] * reduce(kl)
    if o["positive_example_nll_weight"]:
        good = mask * (inputs["rewards"] > 0)[:, None]
        total = total - o["positive_example_nll_weight"] * (policy * good).sum() / (good.sum() + 1e-8)
    return advantage_N[:, None].expand_as(mask), total


def nemo_advantages(
    rewards: Tensor, *, normalize_rewards: bool, use_leave_one_out_baseline: bool, **_: object
) -> Tensor:
    out = torch.zeros_like(rewards)
    for index in range(len(rewards)):
        rest = torch.cat([rewards[:index], rewards[index + 1 :]])
        pool = rest if use_leave_one_out_baseline else rewards
        if len(rewards) == 1:
            continue
        std = pool.std(correction=1) if len(pool) > 1 else torch.zeros(())
        uniform = bool(pool.max() == pool.min())
        out[index] = rewards[index] - pool.mean()
        if normalize_rewards and not uniform:
            out[index] = out[index] / (std + 1e-6)
        if uniform and not use_leave_one_out_baseline:
            out[index] = 0.0
    return out


def nemo_mismatch(log_w: Tensor, mask: Tensor, o: Options) -> Tensor:
    """The weight for sampler mismatch, by token or by rollout."""
    w = (rollout_sum(log_w, mask) if o["sequence_level_importance_ratios"] else log_w).exp()
    kind, floor = o["truncated_importance_sampling_type"], o["truncated_importance_sampling_ratio_min"]
    cap = o["truncated_importance_sampling_ratio"]
    if kind == "tis":
        w = w.clamp(floor, cap)
    elif kind == "icepop":
        w = w * ((w >= floor) & (w <= cap))
    elif kind == "seq-mask-tis":
        mean = rollout_average(log_w, mask).exp()
        w = w * ((mean >= floor) & (mean <= cap))
    return w

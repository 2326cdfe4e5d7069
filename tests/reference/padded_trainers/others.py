"""OpenRLHF, slime, open-instruct and prime-rl."""

from __future__ import annotations

import torch
from torch import Tensor

from padded_trainers.common import (
    Inputs,
    Options,
    by_group,
    centered,
    k3,
    others_mean,
    ppo_clip,
    rollout_average,
    rollout_mean,
    token_mean,
    zscore,
)


def openrlhf(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """Experience maker and PolicyLoss."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    rules = {"group_norm": zscore(1e-9, 1), "dr_grpo": centered, "rloo": others_mean, "reinforce_baseline": centered}
    estimator = o["estimator"]
    reward_N = by_group(inputs, rules[estimator]) if estimator in rules else inputs["rewards"].clone()
    if o["reward_clip_range"]:
        reward_N = reward_N.clamp(*o["reward_clip_range"])
    kl = torch.zeros_like(mask)
    if o["init_kl_coef"] and not o["use_loss"]:
        x = old - inputs["ref_logp"]
        kl = {"k1": x, "k2": x * x / 2, "k3": k3(x)}[o["kl_estimator"]].clamp(-10, 10) * mask
    gamma = o["gamma"] if estimator == "reinforce" else 1.0
    advantage = torch.zeros_like(mask)
    for row in range(len(mask)):
        last = max((column for column in range(mask.shape[1]) if mask[row, column]), default=-1)
        running = 0.0
        for column in range(last, -1, -1):
            reward = -o["init_kl_coef"] * kl[row, column] + (reward_N[row] if column == last else 0.0)
            running = reward + gamma * running
            advantage[row, column] = running
    if estimator in ("reinforce", "reinforce_baseline"):
        inside = advantage[mask.bool()]
        advantage = advantage - inside.mean()
        if not o["no_std_norm"]:
            advantage = advantage * inside.var(correction=0).clamp(min=1e-8).rsqrt()
    ratio = (policy - old).exp()
    loss = ppo_clip(ratio, advantage, o["clip_eps_low"], o["clip_eps_high"])
    if o["dual_clip"] is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -o["dual_clip"] * advantage), loss)
    if o["enable_vllm_is_correction"]:
        low, high = o["vllm_is_truncated_threshold"]
        w = (old - inputs["behavior_logp"]).exp()
        if o["vllm_is_correction_type"] == "tis":
            w = w.clamp(low, high)
        elif o["vllm_is_correction_type"] == "icepop":
            w = w * ((w >= low) & (w <= high))
        else:
            mean = rollout_average(old - inputs["behavior_logp"], mask).exp()
            w = w * ((mean >= low) & (mean <= high))
        loss = loss * w
    total = token_mean(loss, mask) if o["token_level_loss"] else rollout_mean(loss, mask, eps=1e-8, nonempty=True)
    if o["init_kl_coef"] and o["use_loss"]:
        x = policy - inputs["ref_logp"]
        kl = {"k1": x, "k2": x * x / 2, "k3": k3(x)}[o["kl_estimator"]].clamp(-10, 10)
        total = total + o["init_kl_coef"] * token_mean(kl, mask)
    return advantage, total


def slime(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """loss_function with the group estimators."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    rule = zscore(1e-6, 1) if o["grpo_std_normalization"] else centered
    if o["advantage_estimator"] == "reinforce_plus_plus_baseline":
        rule = centered
    reward_N = by_group(inputs, rule) if o["rewards_normalization"] else inputs["rewards"]
    advantage = reward_N[:, None].expand_as(mask).clone()
    if o["advantage_estimator"] == "reinforce_plus_plus_baseline" and o["kl_coef"]:
        advantage = advantage - o["kl_coef"] * (old - inputs["ref_logp"])
    if o["normalize_advantages"]:
        inside = advantage[mask.bool()]
        advantage = (advantage - inside.mean()) * (inside.var(correction=1) + 1e-8).rsqrt()
    log_ratio = policy - old
    ratio = (rollout_average(log_ratio, mask) if o["advantage_estimator"] == "gspo" else log_ratio).exp()
    low = o["eps_clip"]
    high = low if o["eps_clip_high"] is None else o["eps_clip_high"]
    if o["advantage_estimator"] == "cispo":
        loss = -ratio.clamp(1 - low, 1 + high).detach() * advantage * policy
    else:
        loss = ppo_clip(ratio, advantage, low, high)
        if o["eps_clip_c"] is not None:
            loss = torch.where(advantage < 0, torch.minimum(loss, -o["eps_clip_c"] * advantage), loss)
    if o["use_opsm"]:
        stale = (rollout_average(-log_ratio.detach(), mask) > o["opsm_delta"]) & (advantage < 0)
        loss = loss * ~stale
    if o["use_tis"]:
        w = (old - inputs["behavior_logp"]).exp()
        inside = (w >= o["tis_clip_low"]) & (w <= o["tis_clip"])
        icepop = o["custom_tis_function_path"] == "icepop"
        loss = loss * (w * inside if icepop else w.clamp(o["tis_clip_low"], o["tis_clip"]))
    if o["use_kl_loss"]:
        x = policy - inputs["ref_logp"]
        kl = {"k1": x, "k2": x * x / 2, "k3": k3(x), "low_var_kl": k3(x)}[o["kl_loss_type"]]
        kl = kl * (policy - old).exp() if o["use_unbiased_kl"] else kl
        loss = loss + o["kl_loss_coef"] * (kl.clamp(-10, 10) if o["kl_loss_type"] == "low_var_kl" else kl)
    return advantage, token_mean(loss, mask) if o["calculate_per_token_loss"] else rollout_mean(loss, mask)


def open_instruct(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """compute_grpo_loss with the rho correction."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    rule = centered if o["advantage_normalization_type"] == "centered" else zscore(1e-8, 0)
    advantage_N = by_group(inputs, rule)
    advantage, ratio = advantage_N[:, None], (policy - old).exp()
    if o["loss_fn"] == "cispo":
        loss = -advantage * ratio.detach().clamp(max=1 + o["clip_higher"]) * policy
    else:
        loss = ppo_clip(ratio, advantage, o["clip_lower"], o["clip_higher"])
    if o["use_rho_correction"]:
        log_rho = old - inputs["behavior_logp"]
        rho = (rollout_average(log_rho, mask) if o["rho_mask_sequence_level"] else log_rho).exp()
        measured = rho
        if o["rho_mask_tv_divergence"]:
            measured = rollout_average((log_rho.exp() - 1).abs(), mask)
        dropped = torch.zeros_like(mask).bool()
        if o["rho_mask_lower_bound"]:
            dropped = dropped | (measured < o["rho_mask_lower_bound"])
        if o["rho_mask_upper_bound"]:
            dropped = dropped | (measured > o["rho_mask_upper_bound"])
        if o["rho_mask_tv_divergence"]:
            dropped = dropped & (log_rho.sign() * advantage > 0)
        rho = (
            rho.clamp(o["rho_clamp_lower_bound"] or None, o["rho_clamp_upper_bound"] or None)
            if (o["rho_clamp_lower_bound"] or o["rho_clamp_upper_bound"])
            else rho
        )
        loss = loss * rho * ~dropped
    if o["load_ref_policy"]:
        x = policy - inputs["ref_logp"]
        loss = loss + o["beta"] * [x, x * x / 2, k3(x), ratio * x][o["kl_estimator"]]
    divisor = mask.sum() if o["loss_denominator"] == "token" else float(o["loss_denominator"])
    return advantage_N[:, None].expand_as(mask), (loss * mask).sum() / divisor


def prime(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """compute_loss of prime-rl."""
    mask, policy, behavior = inputs["mask"], inputs["policy_logp"], inputs["behavior_logp"]

    def max_rl(rewards: Tensor) -> Tensor:
        return centered(rewards) / rewards.mean() if rewards.mean() > 0 else torch.zeros_like(rewards)

    advantage_N = by_group(inputs, max_rl if o["algo"] == "max_rl" else centered)
    advantage, settings = advantage_N[:, None], o["loss"]
    moved = (policy.exp() - behavior.exp()).detach()
    if settings["type"] == "ipo":
        dropped = moved.abs() > settings["ipo_threshold"]
    else:
        up, down = moved > settings["dppo_mask_high"], moved < -settings["dppo_mask_low"]
        dropped = torch.where((advantage > 0).expand_as(moved), up, down)
    log_ratio = policy - behavior
    loss = -settings["adv_tau"] * advantage * log_ratio.exp() * ~dropped + settings["kl_tau"] * log_ratio**2
    return advantage_N[:, None].expand_as(mask), token_mean(loss, mask)

"""The policy losses of SkyRL."""

from __future__ import annotations

import torch
from torch import Tensor

from padded_trainers.common import (
    Inputs,
    Options,
    by_group,
    by_sign,
    centered,
    groups,
    k3,
    keep_single,
    others_mean,
    ppo_clip,
    rollout_average,
    rollout_mean,
    rollout_sum,
    zscore,
)


def skyrl(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """Policy losses of SkyRL: the reduction is a weight per token, and masks do not change its denominators."""
    mask, policy = inputs["mask"], inputs["policy_logp"]
    rules = {
        "grpo": zscore(1e-6, 1, lambda r: r / (1 + 1e-6)) if o["adv"]["grpo_norm_by_std"] else keep_single(centered),
        "rloo": others_mean,
        "maxrl": keep_single(lambda r: centered(r) / (r.mean() + 1e-6) if r.mean() != 0 else torch.zeros_like(r)),
    }
    advantage_N = by_group(inputs, rules[o["adv"]["advantage_estimator"]])
    advantage = advantage_N[:, None]
    loss = skyrl_surrogate(inputs, o, advantage)
    loss = loss * skyrl_mismatch(inputs["old_logp"] - inputs["behavior_logp"], mask, o)
    total = (loss * skyrl_weights(inputs, o) * mask).sum()
    if o["use_kl_loss"] is True:
        x = policy - inputs["ref_logp"]
        kl = {"k1": x, "k2": x * x / 2, "k3": k3(x), "abs": x.abs()}[o["kl_estimator_type"]]
        total = total + o["kl_loss_coef"] * rollout_mean(kl, mask)
    return advantage_N[:, None].expand_as(mask), total


def skyrl_surrogate(inputs: Inputs, o: Options, advantage: Tensor) -> Tensor:
    mask, policy, behavior = inputs["mask"], inputs["policy_logp"], inputs["behavior_logp"]
    kind, low, high = o["policy_loss_type"], o["eps_clip_low"], o["eps_clip_high"]
    from_sampler = kind in ("dppo", "rollout_is") or (kind == "cispo" and o["cispo"]["cispo_anchor"] == "rollout")
    log_ratio = policy - (behavior if from_sampler else inputs["old_logp"])
    ratio = log_ratio.exp()
    if kind == "gspo":
        ratio = (rollout_average(log_ratio, mask).detach() + policy - policy.detach()).exp()
    if kind == "cispo":
        floor, cap = 1 - o["cispo"]["cispo_eps_clip_low"], 1 + o["cispo"]["cispo_eps_clip_high"]
        loss = -ratio.detach().clamp(floor, cap) * advantage * policy
    elif kind == "rollout_is":
        inside = (ratio > 1 - low) & (ratio < 1 + high)
        loss = -(ratio * inside).detach() * advantage * policy
    elif kind == "sapo":
        tau = by_sign(advantage > 0, o["sapo"]["tau_pos"], o["sapo"]["tau_neg"])
        loss = -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    elif kind in ("importance_sampling", "dppo"):
        loss = -ratio * advantage
        if kind == "dppo":
            p, q = policy.detach().exp(), behavior.exp()
            distance = (p - q).abs()
            if o["dppo"]["dppo_type"] == "binary_kl":
                distance = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
            good = (advantage > 0).expand_as(p)
            dropped = torch.where(
                good, (distance > o["dppo"]["delta_high"]) & (p > q), (distance > o["dppo"]["delta_low"]) & (p < q)
            )
            loss = loss * ~dropped
    else:
        loss = ppo_clip(ratio, advantage, low, high)
        if kind == "dual_clip":
            loss = torch.where(advantage < 0, torch.minimum(loss, -o["clip_ratio_c"] * advantage), loss)
    return loss


def skyrl_mismatch(log_w: Tensor, mask: Tensor, o: Options) -> Tensor:
    """The product of all off-policy corrections."""
    settings, factor = o["off_policy_correction"], torch.ones_like(mask)
    if settings["tis_ratio_type"]:
        level = settings["tis_ratio_type"]
        w = (log_w if level == "token" else rollout_sum(log_w, mask)).exp()
        factor = factor * w.clamp(max=settings[f"{level}_tis_ratio_clip_high"])
    if settings["sequence_mask_metric"] == "geometric":
        mean = rollout_average(log_w, mask).exp()
        factor = factor * ((mean >= settings["geo_mask_low"]) & (mean <= settings["geo_mask_high"]))
    if settings["sequence_mask_metric"] == "product":
        product = rollout_sum(log_w, mask).exp()
        factor = factor * ((product >= settings["product_mask_low"]) & (product <= settings["product_mask_high"]))
    w = log_w.exp()
    if settings["token_mask_is_threshold_high"] is not None:
        factor = factor * (w <= settings["token_mask_is_threshold_high"])
    if settings["outlier_token_is_threshold_high"] is not None:
        outlier = (w > settings["outlier_token_is_threshold_high"]) & mask.bool()
        factor = factor * ~outlier.any(1, keepdim=True)
    return factor


def skyrl_weights(inputs: Inputs, o: Options) -> Tensor:
    mask = inputs["mask"]
    weight = torch.zeros_like(mask)
    for rows in groups(inputs):
        for row in rows:
            weight[row] = {
                "token_mean": 1 / mask.sum(),
                "sequence_mean": 1 / (len(mask) * mask[row].sum().clamp(min=1)),
                "prompt_mean": 1 / (len(groups(inputs)) * mask[rows].sum()),
                "seq_mean_token_sum_norm": torch.tensor(1.0).double() / (len(mask) * o["max_seq_len"]),
            }[o["loss_reduction"]]
    return weight

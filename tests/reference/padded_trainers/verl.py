"""ppo_loss of verl with rollout correction."""

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
    zscore,
)


def verl(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """ppo_loss without global batch information, with rollout correction."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    estimator = o["adv"]["adv_estimator"]
    rules = {
        "grpo": zscore(1e-6, 1, lambda r: r / (1 + 1e-6)),
        "rloo": lambda r: r if len(r) == 1 else others_mean(r),
        "dr_grpo": lambda r: r if len(r) == 1 else centered(r),
    }
    if estimator == "grpo" and not o["adv"]["norm_adv_by_std_in_grpo"]:
        estimator = "dr_grpo"
    advantage_N = by_group(inputs, rules[estimator])
    advantage = advantage_N[:, None] * mask
    weight, kept = torch.ones_like(mask), mask.clone()
    correction = o.get("rollout_correction", {})
    if correction:
        log_w = old - inputs["behavior_logp"]
        if correction.get("rollout_is"):
            level = correction["rollout_is"]
            weight = (log_w if level == "token" else rollout_sum(log_w, mask)).exp().expand_as(mask)
            weight = weight.clamp(max=correction["rollout_is_threshold"]) * mask
            if correction.get("rollout_is_batch_normalize"):
                rows = mask.sum(1) > 0
                per_rollout = (weight * mask).sum(1) / (mask.sum(1) + 1e-8)
                means = (weight * mask).sum() / (mask.sum() + 1e-8) if level == "token" else per_rollout[rows].mean()
                weight = weight / means
        if correction.get("rollout_rs"):
            for option, bound in zip(
                correction["rollout_rs"].split(","), correction["rollout_rs_threshold"].split(","), strict=True
            ):
                kept = kept * rejection(option, bound, log_w, mask)
    low, high, mode = o["clip_ratio_low"], o["clip_ratio_high"], o["loss_agg_mode"]
    kind, log_ratio = o["policy_loss"]["loss_mode"], policy - old
    ratio = log_ratio.exp()
    own = mode
    if kind == "gspo":
        mean = rollout_average(log_ratio, kept)
        ratio = (mean.detach() + policy - policy.detach()).exp()
        loss = ppo_clip(ratio, advantage, low, high)
    elif kind == "cispo":
        loss = -ratio.detach().clamp(1 - low, 1 + high) * advantage * policy
    elif kind == "sapo":
        tau = by_sign(advantage > 0, o["tau_pos"], o["tau_neg"])
        loss, own = -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau, "seq-mean-token-mean"
    elif kind == "gpg":
        loss = -advantage * policy
    else:
        loss = ppo_clip(ratio, advantage, low, high)
        loss = torch.where(advantage < 0, torch.minimum(loss, -o["clip_ratio_c"] * advantage), loss)
    total = aggregate(own, loss * weight, kept, o)
    if o["entropy_coeff"]:
        total = total - o["entropy_coeff"] * aggregate(mode, inputs["entropy"], kept, o)
    if o["use_kl_loss"]:
        x = policy - inputs["ref_logp"]
        kl = {"k1": x, "k2": x * x / 2, "low_var_kl": k3(x)}[o["kl_loss_type"]]
        total = total + o["kl_loss_coef"] * aggregate(mode, kl, kept, o)
    return advantage_N[:, None].expand_as(mask), total


def aggregate(mode: str, loss: Tensor, mask: Tensor, options: Options) -> Tensor:
    """verl's loss_agg_mode without global batch information."""
    rows = int((mask.sum(1) > 0).sum())
    total = (loss * mask).sum()
    if mode == "token-mean":
        return total / mask.sum()
    if mode == "token-sum":
        return total
    if mode == "seq-mean-token-mean":
        return rollout_mean(loss, mask, eps=1e-8, nonempty=True)
    length = options.get("loss_scale_factor") or mask.shape[1]
    return total / rows if mode == "seq-mean-token-sum" else total / rows / length


def rejection(option: str, bound: str, log_w: Tensor, mask: Tensor) -> Tensor:
    """Which tokens one statistic of verl's rollout_rs keeps."""
    *level, estimator = option.removeprefix("seq_").split("_")
    value = {"k1": -log_w, "k2": log_w**2 / 2, "k3": log_w.exp() - 1 - log_w}[estimator]
    if level == ["sum"]:
        value = rollout_sum(value, mask).expand_as(mask)
    elif level == ["mean"]:
        value = rollout_average(value, mask).expand_as(mask)
    elif level == ["max"]:
        value = value.masked_fill(mask == 0, -math.inf).max(1, keepdim=True).values.expand_as(mask)
    bounds = [float(part) for part in bound.split("_")]
    if estimator == "k1":
        lower = bounds[0] if len(bounds) == 2 else 1 / bounds[0]
        return ((value >= math.log(lower)) & (value <= math.log(bounds[-1]))).double()
    return (value <= bounds[0]).double()

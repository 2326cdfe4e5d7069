"""Other projects' formulas, written from their descriptions on padded N x C arrays: slow, float64, loops over rollouts.

They share no code with `ansatz`. Inputs are those of a certificate file; options are a plain dictionary in the words of
the project. Each function returns (advantages N x C or N, loss), the loss with gradient by `policy_logp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Inputs = dict[str, Tensor]
Options = dict[str, Any]


def groups(inputs: Inputs) -> list[list[int]]:
    labels = inputs["group"].tolist()
    return [[row for row, label in enumerate(labels) if label == group] for group in sorted(set(labels))]


def by_group(inputs: Inputs, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """The rule applied to the rewards of each prompt."""
    out = torch.zeros_like(inputs["rewards"])
    for rows in groups(inputs):
        out[rows] = rule(inputs["rewards"][rows])
    return out


def zscore(eps: float, ddof: int, single: Callable[[Tensor], Tensor] | None = None) -> Callable[[Tensor], Tensor]:
    def rule(rewards: Tensor) -> Tensor:
        if len(rewards) == 1:
            return torch.zeros_like(rewards) if single is None else single(rewards)
        if rewards.max() == rewards.min():
            return torch.zeros_like(rewards)
        return (rewards - rewards.mean()) / (rewards.std(correction=ddof) + eps)

    return rule


def centered(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean()


def others_mean(rewards: Tensor) -> Tensor:
    if len(rewards) == 1:
        return torch.zeros_like(rewards)
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)


def token_mean(loss: Tensor, mask: Tensor) -> Tensor:
    return (loss * mask).sum() / mask.sum()


def rollout_mean(loss: Tensor, mask: Tensor, *, eps: float = 0.0, nonempty: bool = False) -> Tensor:
    means = [(loss[row] * mask[row]).sum() / (mask[row].sum() + eps) for row in range(len(mask)) if mask[row].sum() > 0]
    return torch.stack(means).sum() / (len(means) if nonempty else len(mask))


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


def by_sign(good: Tensor, yes: float, no: float) -> Tensor:
    """yes or no, in float64: torch.where of two Python numbers has the default dtype."""
    return torch.full(good.shape, no, dtype=torch.float64).masked_fill(good, yes)


def k3(x: Tensor) -> Tensor:
    return (-x).exp() - 1 + x


def ppo_clip(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def rollout_sum(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1, keepdim=True)


def rollout_average(values: Tensor, mask: Tensor) -> Tensor:
    return rollout_sum(values, mask) / mask.sum(1, keepdim=True).clamp(min=1)


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


def nemo(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """ClippedPGLossFn with the grpo estimator."""
    mask, policy, behavior = inputs["mask"], inputs["policy_logp"], inputs["behavior_logp"]
    old = policy.detach() if o["force_on_policy_ratio"] else inputs["old_logp"]

    def advantages(rewards: Tensor) -> Tensor:
        out = torch.zeros_like(rewards)
        for index in range(len(rewards)):
            rest = torch.cat([rewards[:index], rewards[index + 1 :]])
            pool = rest if o["adv"]["use_leave_one_out_baseline"] else rewards
            if len(rewards) == 1:
                continue
            std = pool.std(correction=1) if len(pool) > 1 else torch.zeros(())
            uniform = bool(pool.max() == pool.min())
            out[index] = rewards[index] - pool.mean()
            if o["adv"]["normalize_rewards"] and not uniform:
                out[index] = out[index] / (std + 1e-6)
            if uniform and not o["adv"]["use_leave_one_out_baseline"]:
                out[index] = 0.0
        return out

    advantage_N = by_group(inputs, advantages)
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
        log_w = old - behavior
        w = (rollout_sum(log_w, mask) if shared else log_w).exp()
        kind, floor = o["truncated_importance_sampling_type"], o["truncated_importance_sampling_ratio_min"]
        cap = o["truncated_importance_sampling_ratio"]
        if kind == "tis":
            w = w.clamp(floor, cap)
        elif kind == "icepop":
            w = w * ((w >= floor) & (w <= cap))
        elif kind == "seq-mask-tis":
            mean = rollout_average(log_w, mask).exp()
            w = w * ((mean >= floor) & (mean <= cap))
        loss = loss * w

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


def skyrl(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """Policy losses of SkyRL: the reduction is a weight per token, and masks do not change its denominators."""
    mask, policy, behavior = inputs["mask"], inputs["policy_logp"], inputs["behavior_logp"]
    rules = {
        "grpo": zscore(1e-6, 1, lambda r: r / (1 + 1e-6)) if o["adv"]["grpo_norm_by_std"] else keep_single(centered),
        "rloo": others_mean,
        "maxrl": keep_single(lambda r: centered(r) / (r.mean() + 1e-6) if r.mean() != 0 else torch.zeros_like(r)),
    }
    advantage_N = by_group(inputs, rules[o["adv"]["advantage_estimator"]])
    advantage, kind, low, high = advantage_N[:, None], o["policy_loss_type"], o["eps_clip_low"], o["eps_clip_high"]
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
    settings, log_w = o["off_policy_correction"], inputs["old_logp"] - behavior
    if settings["tis_ratio_type"]:
        level = settings["tis_ratio_type"]
        w = (log_w if level == "token" else rollout_sum(log_w, mask)).exp()
        loss = loss * w.clamp(max=settings[f"{level}_tis_ratio_clip_high"])
    if settings["sequence_mask_metric"] == "geometric":
        mean = rollout_average(log_w, mask).exp()
        loss = loss * ((mean >= settings["geo_mask_low"]) & (mean <= settings["geo_mask_high"]))
    if settings["sequence_mask_metric"] == "product":
        product = rollout_sum(log_w, mask).exp()
        loss = loss * ((product >= settings["product_mask_low"]) & (product <= settings["product_mask_high"]))
    w = log_w.exp()
    if settings["token_mask_is_threshold_high"] is not None:
        loss = loss * (w <= settings["token_mask_is_threshold_high"])
    if settings["outlier_token_is_threshold_high"] is not None:
        outlier = (w > settings["outlier_token_is_threshold_high"]) & mask.bool()
        loss = loss * ~outlier.any(1, keepdim=True)
    weight = torch.zeros_like(mask)
    for rows in groups(inputs):
        for row in rows:
            weight[row] = {
                "token_mean": 1 / mask.sum(),
                "sequence_mean": 1 / (len(mask) * mask[row].sum().clamp(min=1)),
                "prompt_mean": 1 / (len(groups(inputs)) * mask[rows].sum()),
                "seq_mean_token_sum_norm": torch.tensor(1.0).double() / (len(mask) * o["max_seq_len"]),
            }[o["loss_reduction"]]
    total = (loss * weight * mask).sum()
    if o["use_kl_loss"] is True:
        x = policy - inputs["ref_logp"]
        kl = {"k1": x, "k2": x * x / 2, "k3": k3(x), "abs": x.abs()}[o["kl_estimator_type"]]
        total = total + o["kl_loss_coef"] * rollout_mean(kl, mask)
    return advantage_N[:, None].expand_as(mask), total


def keep_single(rule: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda rewards: rewards if len(rewards) == 1 else rule(rewards)


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

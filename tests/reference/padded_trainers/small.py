"""oat without a critic, GRPO-Zero, nano-aha-moment and torchtune."""

from __future__ import annotations

from torch import Tensor

from padded_trainers.common import (
    Inputs,
    Options,
    by_group,
    centered,
    k3,
    ppo_clip,
    rollout_mean,
    rollout_sum,
    token_mean,
    zscore,
)


def oat(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """PPOLearner with critic_type drgrpo or grpo, on the whole batch."""
    mask, policy, old = inputs["mask"], inputs["policy_logp"], inputs["old_logp"]
    reward_N = inputs["rewards"] * o["reward_scale"]
    if o["kl_penalty_coef"]:
        reward_N = reward_N - o["kl_penalty_coef"] * rollout_sum(old - inputs["ref_logp"], mask)[:, 0]
    unscaled = o["critic_type"] == "drgrpo"
    advantage_N = by_group({**inputs, "rewards": reward_N}, centered if unscaled else zscore(1e-8, 1))
    advantage = advantage_N[:, None]
    if o["reinforce_update"]:
        loss = -advantage * policy
    else:
        loss = ppo_clip((policy - old).exp(), advantage, o["cliprange"], o["cliprange"])
        if o["tis_c"] is not None:
            loss = loss * (old - inputs["behavior_logp"]).exp().clamp(max=o["tis_c"])
    if o["beta"]:
        loss = loss + o["beta"] * k3((policy - inputs["ref_logp"]).clamp(-40, 40))
    if o["ignore_no_eos"]:
        mask = mask * (1 - inputs["truncated"])[:, None]
    if unscaled:
        return advantage_N, (loss * mask).sum() / (len(mask) * o["generate_max_length"])
    return advantage_N, rollout_mean(loss, mask)


def grpo_zero(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    advantage_N = by_group(inputs, zscore(1e-4, 0))
    return advantage_N, token_mean(-advantage_N[:, None] * inputs["policy_logp"], inputs["mask"])


def nano(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    advantage_N, loss = grpo_zero(inputs, o)
    return advantage_N, loss + o["kl_coeff"] * token_mean(
        k3(inputs["policy_logp"] - inputs["ref_logp"]), inputs["mask"]
    )


def torchtune(inputs: Inputs, o: Options) -> tuple[Tensor, Tensor]:
    """GRPOLoss, or GRPOSimpleLoss without a ratio."""
    mask, policy = inputs["mask"], inputs["policy_logp"]
    advantage_N = by_group(inputs, zscore(1e-4, 1))
    simple = o["loss"] == "GRPOSimpleLoss"
    ratio = (policy - (policy.detach() if simple else inputs["old_logp"])).exp()
    loss = (
        -ratio * advantage_N[:, None] if simple else ppo_clip(ratio, advantage_N[:, None], o["epsilon"], o["epsilon"])
    )
    loss = loss + o["kl_coeff"] * k3(policy - inputs["ref_logp"])
    if simple:
        return advantage_N, rollout_mean(loss, mask, eps=1e-8)
    return advantage_N, (loss * mask).sum() / (mask.sum() + 1e-8)

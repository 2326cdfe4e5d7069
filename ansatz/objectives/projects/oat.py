"""oat (2025-10): PPOLearner."""

from __future__ import annotations

from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects.options import Options


def spec(options: Options) -> dict[str, Any]:
    critic = options["critic_type"]
    if critic != "ppo":
        options.ignore("gamma", "lam", "vf_coef", "cliprange_value", "whiten_adv")
    if critic != "drgrpo":
        options.ignore("generate_max_length")
    if options["reinforce_update"]:
        options.ignore("cliprange", "tis_c")
    in_reward, in_loss = options["kl_penalty_coef"], options["beta"]
    if in_reward and in_loss:
        raise ConfigError("oat: beta together with kl_penalty_coef is refused: an objective has one KL, in one place.")
    reinforce, high = options["reinforce_update"], options["tis_c"]
    clip = {"name": "clip", "low": options["cliprange"], "high": options["cliprange"]}
    return {
        **_advantage(critic, options),
        "surrogate": "log_prob" if reinforce else clip,
        "kl": {"name": "k1"} if in_reward else {"name": "k3", "clamp_in": 40.0},
        "kl_coef": in_reward or in_loss,
        "kl_in": "reward" if in_reward else "loss",
        "weights": {"name": "fixed_length", "max_tokens": options["generate_max_length"]}
        if critic == "drgrpo"
        else "sequence_mean",
        "correction": {"name": "truncate", "high": high} if high is not None and not reinforce else "none",
        "masks": "not_truncated" if options["ignore_no_eos"] else "none",
    }


def _advantage(critic: str, options: Options) -> dict[str, Any]:
    if critic == "drgrpo":
        return {"advantage": "group_mean"}
    if critic == "grpo":
        return {"advantage": {"name": "group_zscore", "ddof": 1, "eps": 1e-8}}
    return {
        "advantage": {"name": "gae", "gamma": options["gamma"], "lam": options["lam"]},
        "whiten": {"name": "tokens", "ddof": 1, "eps": 1e-8} if options["whiten_adv"] else "none",
        "value": {"name": "squared_error", **critic_settings(options)},
    }


def critic_settings(options: Options) -> dict[str, Any]:
    return {"coef": options["vf_coef"], "clip": options["cliprange_value"]}

"""Which family of cases is run how: a project's knobs go through its `like` module, its batch through a run.

A family is looked up by the longest prefix of its name, so a new case of a known family needs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ansatz.objectives import advantages, coefficients, preference
from ansatz.objectives.like import nemo, oat, open_instruct, openrlhf, prime, skyrl, slime, small, trl, verl
from ansatz.objectives.parity.cases import Case
from ansatz.objectives.parity.runs import (
    Outputs,
    Setup,
    advantage_run,
    kl_run,
    policy_run,
    preference_run,
    value_run,
)
from ansatz.shaping import penalties

Run = Callable[[Case], Outputs]


def find(family: str) -> Run | None:
    """The run of a family, None where there is none."""
    prefixes = [prefix for prefix in RUNS if family.startswith(prefix)]
    return RUNS[max(prefixes, key=len)] if prefixes else None


def _trl(case: Case) -> Outputs:
    knobs = dict(case.knobs)
    if case.family == "trl.gmpo":
        knobs["loss_type"] = "gmpo"
    components = case.optional("rewards_per_func")
    reward_N = None
    if components is not None:
        reward_N = components @ torch.tensor(knobs["reward_weights"], dtype=components.dtype)
    own = knobs["loss_type"] == "bnpo"
    parts = knobs["steps_per_generation"]
    setup = Setup(reward_N=reward_N, component_NK=components, micro_batches=parts, own_weights=own)
    return policy_run(case, trl.spec(knobs), setup)


def _trl_rloo(case: Case) -> Outputs:
    limit = case.knobs["reward_clip_range"]
    reward_N = case.array("rewards").clamp(*limit) if limit else None
    return policy_run(case, trl.rloo(case.knobs), Setup(reward_N=reward_N))


def _trl_dpo(case: Case) -> Outputs:
    knobs = case.knobs
    names = knobs["loss_type"] if isinstance(knobs["loss_type"], list) else [knobs["loss_type"]]
    weights = knobs["loss_weights"] or [1.0] * len(names)
    losses: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for name, weight in zip(names, weights, strict=True):
        settings: dict[str, Any] = {} if name == "sft" else {"beta": knobs["beta"]}
        if name in ("robust", "exo_pair", "aot", "aot_unpaired"):
            settings["label_smoothing"] = knobs["label_smoothing"]
        if name == "discopop":
            settings["tau"] = knobs["discopop_tau"]
        if name == "ipo":
            settings["per_token"] = True
        divergence = knobs["f_divergence_type"]
        if name == "sigmoid" and divergence != "reverse_kl":
            short = {"js_divergence": "js", "alpha_divergence": "alpha"}.get(divergence, divergence)
            name, settings = "f_dpo", {**settings, "divergence": short, "alpha": knobs["f_alpha_divergence_coef"]}
        losses[name] = (weight, settings)
    return preference_run(case, losses, token_weights=knobs["ld_alpha"])


def _trl_cpo(case: Case) -> Outputs:
    knobs = case.knobs
    smooth = {"beta": knobs["beta"], "label_smoothing": knobs["label_smoothing"]}
    if knobs["loss_type"] == "simpo":
        settings = {**smooth, "margin": knobs["simpo_gamma"], "alpha": knobs["alpha"]}
        return preference_run(case, {"simpo": (1.0, settings)})
    return preference_run(case, {"cpo": (1.0, smooth)})


def _bradley_terry(case: Case) -> Outputs:
    chosen = case.array("rewards_chosen").requires_grad_()
    rejected = case.array("rewards_rejected").requires_grad_()
    center = case.knobs["center_rewards_coefficient"] or 0.0
    loss = preference.bradley_terry(chosen, rejected, case.optional("margin"), center=center).mean()
    up, down = torch.autograd.grad(loss, (chosen, rejected))
    return {"loss": loss, "grad_rewards_chosen": up, "grad_rewards_rejected": down}


def _soft_overlong(case: Case) -> Outputs:
    limit, buffer = case.knobs["max_completion_len"], case.knobs["soft_punish_cache"]
    lengths = case.inputs["length"]
    return {"rewards": [penalties.soft_overlong(int(n), max_tokens=limit, buffer=buffer) for n in lengths]}


def _verl(case: Case) -> Outputs:
    knobs = case.knobs
    spec = verl.spec(
        knobs, columns=case.array("mask").shape[1], sequence_gspo=case.family.startswith("verl_dev.")
    )
    case = Case(case.id, case.family, case.peer, {**knobs, **knobs["adv"]}, case.inputs, case.outputs)
    setup = Setup(
        micro_batches=knobs["micro_batches"],
        loss_scale=float(knobs["dp_size"]),
        bypass=knobs["policy_loss"]["loss_mode"] == "bypass_mode",
    )
    return policy_run(case, spec, setup)


def _verl_advantage(case: Case) -> Outputs:
    spec = verl.advantage(case.knobs)
    parts = case.inputs.get("reward_components")
    stacked = torch.tensor(list(parts.values()), dtype=torch.float64).T if parts else None
    return advantage_run(case, spec, Setup(component_NK=stacked))


def _verl_value(case: Case) -> Outputs:
    weights = verl.weights(case.knobs["loss_agg_mode"], case.knobs)
    return value_run(case, weights, {"clip": case.knobs["cliprange_value"]})


def _verl_kl(case: Case) -> Outputs:
    piece = verl.kl(case.knobs["kl_penalty"])
    policy = case.array("policy_logp")
    if "ref_minus_policy" in case.inputs:
        return kl_run(policy, policy + case.array("ref_minus_policy"), torch.ones_like(policy), piece)
    return kl_run(policy, case.array("ref_logp"), case.array("mask"), piece)


def _verl_kl_reward(case: Case) -> Outputs:
    knobs, mask = case.knobs, case.array("mask")
    kl = kl_run(case.array("old_logp"), case.array("ref_logp"), mask, verl.kl(knobs["kl_penalty"]))["kl"]
    columns = torch.arange(mask.shape[1])
    last = columns == (columns * mask).max(1, keepdim=True).values
    return {"token_level_rewards": (last * case.array("rewards")[:, None] - knobs["kl_coef"] * kl) * mask}


def _verl_controller(case: Case) -> Outputs:
    knobs = case.knobs
    coef, seen = knobs["kl_coef"], []
    for observed in knobs["observed_kl"]:
        coef = coefficients.adapt_kl_coef(
            coef, observed, target=knobs["target_kl"], horizon=knobs["horizon"], num_rollouts=knobs["n_steps"]
        )
        seen.append(coef)
    return {"kl_coef_after_each_update": seen}


def _openrlhf_rewards(case: Case) -> Tensor:
    """Length penalty, then the penalty of responses that did not stop, before any baseline."""
    knobs, reward_N = case.knobs, case.array("rewards")
    buffer = knobs.get("overlong_buffer_len")
    if buffer is not None:
        limits = {"max_tokens": knobs["max_new_tokens"], "buffer": buffer}
        strength = knobs["overlong_penalty_factor"]
        lengths = case.inputs["length"]
        reward_N += torch.tensor([penalties.soft_overlong(int(n), **limits, strength=strength) for n in lengths])
    coef = knobs.get("stop_properly_penalty_coef")
    if coef is not None:
        cut_N = case.array("truncated").bool()
        reward_N = torch.where(cut_N, reward_N * coef if coef >= 0 else torch.full_like(reward_N, coef), reward_N)
    return reward_N


def _openrlhf_advantage(case: Case) -> Outputs:
    return advantage_run(case, openrlhf.advantage(case.knobs), Setup(reward_N=_openrlhf_rewards(case)))


def _openrlhf_kl(case: Case) -> Outputs:
    piece = openrlhf.kl_piece(case.knobs["kl_estimator"])
    return kl_run(case.array("policy_logp"), case.array("ref_logp"), case.array("mask"), piece)


def _openrlhf_policy(case: Case) -> Outputs:
    return policy_run(case, openrlhf.spec(case.knobs), Setup(micro_batches=case.knobs["micro_batches"]))


def _openrlhf_value(case: Case) -> Outputs:
    per_token = case.knobs["token_level_loss"]
    weights = "token_mean" if per_token else {"name": "sequence_mean", "rollouts": "nonempty", "eps": 1e-8}
    return value_run(case, weights, {"clip": case.knobs["clip_eps"]})


def _openrlhf_dpo(case: Case) -> Outputs:
    knobs = case.knobs
    if knobs["ipo"]:
        return preference_run(case, {"ipo": (1.0, {"beta": knobs["beta"]})})
    return preference_run(case, {"dpo": (1.0, {"beta": knobs["beta"], "label_smoothing": knobs["label_smoothing"]})})


def _oat(case: Case) -> Outputs:
    knobs = case.knobs
    setup = Setup(values="old_values", micro_batches=knobs["micro_batches"])
    reward_N = case.array("rewards") * knobs["reward_scale"]
    setup = Setup(values="old_values", micro_batches=knobs["micro_batches"], reward_N=reward_N)
    made = policy_run(case, oat.spec(knobs), setup)
    if knobs["critic_type"] != "ppo":
        return made
    settings = {"coef": knobs["vf_coef"], "clip": knobs["cliprange_value"]}
    return {**made, **_without(value_run(case, "sequence_mean", settings, made["returns"]), "loss")}


def _nemo_advantage(case: Case) -> Outputs:
    parts = [case.array(name) for name in case.inputs if name.startswith("reward/")]
    components = torch.stack(parts, 1) if parts else None
    return advantage_run(case, nemo.advantage(case.knobs), Setup(component_NK=components))


def _nemo_dpo(case: Case) -> Outputs:
    knobs = case.knobs
    name = "dpo_norm" if knobs["preference_average_log_probs"] else "dpo"
    settings = {"beta": knobs["reference_policy_kl_penalty"]}
    return preference_run(case, {name: (knobs["preference_loss_weight"], settings)})


def _skyrl(case: Case) -> Outputs:
    setup = Setup()
    if case.knobs["loss_reduction"] == "token_mean_legacy":
        rows = case.knobs["micro_train_batch_size_per_gpu"]
        setup = Setup(micro_batches=len(case.inputs["rewards"]) // rows, own_weights=True)
    return policy_run(case, skyrl.spec(case.knobs), setup)


def _skyrl_value(case: Case) -> Outputs:
    return value_run(case, "token_mean", {"clip": case.knobs["value_clip"]})


def _slime(case: Case) -> Outputs:
    return policy_run(case, slime.spec(case.knobs), Setup(values="old_values"))


def _slime_value(case: Case) -> Outputs:
    spec = slime.spec(case.knobs)
    made = advantage_run(case, spec, Setup(values="old_values"))
    return {**made, **value_run(case, spec["weights"], spec["value"], made["returns"])}


def _prime(case: Case) -> Outputs:
    return policy_run(case, prime.spec(case.knobs), Setup(reward_N=_prime_rewards(case)))


def _prime_rewards(case: Case) -> Tensor | None:
    """Rewards less mean reward x weighted shares of the longest, prompt by prompt."""
    knobs = case.knobs["length_penalty"]
    if knobs is None:
        return None
    reward_N, group_N = case.array("rewards"), torch.tensor(case.inputs["group"])
    output_N, total_N = case.array("num_output_tokens"), case.array("num_total_tokens")
    costs = {"num_output_tokens": output_N, "num_input_tokens": total_N - output_N, "num_turns": case.array("num_turns")}
    shaped_N = reward_N.clone()
    for group in group_N.unique():
        inside = group_N == group
        rewards = reward_N[inside].tolist()
        for name, cost_N in costs.items():
            weight = knobs[f"{name}_weight"]
            shaped_N[inside] -= torch.tensor(
                penalties.relative_length(cost_N[inside].tolist(), rewards, weight=weight), dtype=torch.float64
            )
    return shaped_N


def _kimi_descent(case: Case) -> Outputs:
    tau = case.knobs["tau"]
    logz = case.knobs["baseline"] == "logz"
    baseline = {"name": "log_partition", "tau": tau} if logz else {"name": "group_mean"}
    spec = {"advantage": baseline, "ratio": "product", "weights": "sequence_mean"}
    regression = policy_run(case, {**spec, "surrogate": {"name": "squared", "tau": tau}})
    descent = policy_run(case, {**spec, "surrogate": {"name": "mirror_descent", "tau": tau}})
    mask, policy, old = (case.array(name) for name in ("mask", "policy_logp", "old_logp"))
    return {
        "baseline_per_rollout": case.array("rewards") - regression["advantage_N"],
        "sequence_log_ratio": ((policy - old) * mask).sum(1),
        "loss": regression["loss"],
        "grad_policy_logp": regression["grad_policy_logp"],
        "surrogate_loss": descent["loss"],
        "surrogate_grad_policy_logp": descent["grad_policy_logp"],
    }


def _process(case: Case) -> Outputs:
    lengths = case.inputs["length"]
    segment_T = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    reward_T = torch.zeros(len(segment_T), dtype=torch.float64)
    end_T = torch.zeros(len(segment_T), dtype=torch.bool)
    start = 0
    for length, ends, rewards in zip(lengths, case.inputs["step_end"], case.inputs["step_reward"], strict=True):
        for end, reward in zip(ends, rewards, strict=True):
            reward_T[start + end], end_T[start + end] = reward, True
        start += length
    piece = advantages.ADVANTAGES.bind("process", {"ddof": case.knobs["ddof"], "eps": case.knobs["eps"]})
    made_T = piece(reward_T, end_T, segment_T, torch.zeros(len(lengths), dtype=torch.long))
    expected = torch.tensor(case.outputs["advantages"])
    padded = torch.zeros(expected.shape, dtype=torch.float64)
    for row, part in enumerate(made_T.split(lengths)):
        padded[row, : len(part)] = part
    return {"advantages": padded}


def _kimi_length(case: Case) -> Outputs:
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


def _l1_paper(case: Case) -> Outputs:
    knobs = case.knobs
    made: list[float] = []
    for length, correct in zip(case.inputs["length"], case.inputs["correct"], strict=True):
        given = {"target": knobs["n_gold"], "alpha": knobs["alpha"]}
        if knobs["mode"] == "exact":
            made.append(penalties.lcpo_exact(length, bool(correct), **given))
        else:
            made.append(penalties.lcpo_max(length, bool(correct), **given, delta=knobs["delta"]))
    return {"rewards": made}


def _l1_code(case: Case) -> Outputs:
    """A negative num_tokens is the ceiling's form, with half the slope of the paper."""
    target, alpha = case.knobs["num_tokens"], case.knobs["alpha"]
    rows = zip(case.inputs["length"], case.inputs["correct"], strict=True)
    if target >= 0:
        return {"rewards": [penalties.lcpo_exact(n, bool(c), target=target, alpha=alpha) for n, c in rows]}
    return {"rewards": [penalties.lcpo_max(n, bool(c), target=-target, alpha=alpha / 2) for n, c in rows]}


def _open_r1_length(case: Case) -> Outputs:
    return {"rewards": penalties.group_length(case.inputs["length"], [bool(c) for c in case.inputs["correct"]])}


def _open_r1_cosine(case: Case) -> Outputs:
    knobs = {
        "min_value_wrong": -1.0,
        "max_value_wrong": -0.5,
        "min_value_correct": 0.5,
        "max_value_correct": 1.0,
        "max_len": 1000,
        **case.knobs,
    }
    ends = {
        "max_tokens": knobs["max_len"],
        "correct_short": knobs["max_value_correct"],
        "correct_long": knobs["min_value_correct"],
        "wrong_short": knobs["min_value_wrong"],
        "wrong_long": knobs["max_value_wrong"],
    }
    rows = zip(case.inputs["length"], case.inputs["correct"], strict=True)
    return {"rewards": [penalties.cosine_length(n, bool(c), **ends) for n, c in rows]}


def _without(outputs: Outputs, name: str) -> Outputs:
    return {key: value for key, value in outputs.items() if key != name}


def _smoothed_dpo(case: Case) -> dict[str, Any]:
    return {"beta": case.knobs["beta"], "label_smoothing": case.knobs.get("label_smoothing", 0.0)}


RUNS: dict[str, Run] = {
    "trl.": _trl,
    "trl.rloo": _trl_rloo,
    "trl.dpo.": _trl_dpo,
    "trl.cpo.": _trl_cpo,
    "trl.reward_model.": _bradley_terry,
    "trl.soft_overlong_punishment": _soft_overlong,
    "verl.": _verl,
    "verl_dev.": _verl,
    "verl.adv.": _verl_advantage,
    "verl.value_loss": _verl_value,
    "verl.kl_penalty.": _verl_kl,
    "verl.kl_in_reward": _verl_kl_reward,
    "verl.adaptive_kl_controller": _verl_controller,
    "openrlhf.": _openrlhf_policy,
    "openrlhf.adv.": _openrlhf_advantage,
    "openrlhf.kl.": _openrlhf_kl,
    "openrlhf.value_loss": _openrlhf_value,
    "openrlhf.dpo.": _openrlhf_dpo,
    "oat.": _oat,
    "nemo.adv.": _nemo_advantage,
    "nemo.loss.": lambda case: policy_run(case, nemo.spec(case.knobs)),
    "nemo.dpo": _nemo_dpo,
    "skyrl.": _skyrl,
    "skyrl.adv.": lambda case: advantage_run(case, skyrl.advantage(case.knobs)),
    "skyrl.value_loss": _skyrl_value,
    "slime.": _slime,
    "slime.value_loss": _slime_value,
    "open_instruct.": lambda case: policy_run(case, open_instruct.spec(case.knobs)),
    "open_instruct.dpo": lambda case: preference_run(case, {"dpo": (1.0, _smoothed_dpo(case))}),
    "open_instruct.dpo_norm": lambda case: preference_run(case, {"dpo_norm": (1.0, _smoothed_dpo(case))}),
    "open_instruct.simpo": lambda case: preference_run(
        case,
        {"simpo": (1.0, {**_smoothed_dpo(case), "margin": case.knobs["beta"] * case.knobs["gamma_beta_ratio"]})},
    ),
    "prime.": _prime,
    "grpo_zero.": lambda case: policy_run(case, small.grpo_zero(case.knobs)),
    "nano.grpo": lambda case: policy_run(case, small.nano(case.knobs)),
    "torchtune.GRPO": lambda case: policy_run(case, small.torchtune(case.knobs)),
    "derivation.kimi_mirror_descent": _kimi_descent,
    "derivation.grpo_process_supervision": _process,
    "derivation.kimi_length_reward": _kimi_length,
    "derivation.l1_length_reward": _l1_paper,
    "l1.lcpo_reward": _l1_code,
    "open_r1.len_reward": _open_r1_length,
    "open_r1.cosine_scaled_reward": _open_r1_cosine,
}

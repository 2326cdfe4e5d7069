"""How each family of cases is run: `objectives/projects` translates the knobs, and a run computes the outputs.

A family is found by the longest matching prefix, so new cases of a known family need no entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ansatz.certify.parity import others
from ansatz.certify.parity.cases import Case
from ansatz.certify.parity.runs import (
    Outputs,
    Setup,
    advantage_run,
    kl_run,
    policy_run,
    preference_run,
    value_run,
)
from ansatz.objectives.projects import nemo, oat, open_instruct, openrlhf, prime, skyrl, slime, small, trl, verl
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
    named: Any = knobs["loss_type"]
    names: list[str] = [named] if isinstance(named, str) else named
    weights = knobs["loss_weights"] or [1.0] * len(names)
    losses: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for name, weight in zip(names, weights, strict=True):
        settings: dict[str, Any] = {} if name == "sft" else {"beta": knobs["beta"]}
        if name in ("robust", "exo_pair", "aot", "aot_unpaired"):
            settings["label_smoothing"] = knobs["label_smoothing"]
        if name == "discopop":
            settings["tau"] = knobs["discopop_tau"]
        if name == "bco_pair":
            settings["centered"] = False
        if name == "ipo":
            settings["per_token"] = True
        divergence = knobs["f_divergence_type"]
        if name == "sigmoid" and divergence != "reverse_kl":
            short = {"js_divergence": "js", "alpha_divergence": "alpha"}.get(divergence, divergence)
            name, settings = "f_dpo", {**settings, "divergence": short, "alpha": 1 - knobs["f_alpha_divergence_coef"]}
        losses[name] = (weight, settings)
    return preference_run(case, losses, token_weights=knobs["ld_alpha"])


def _trl_cpo(case: Case) -> Outputs:
    knobs = case.knobs
    smooth = {"beta": knobs["beta"], "label_smoothing": knobs["label_smoothing"]}
    if knobs["loss_type"] == "simpo":
        settings = {**smooth, "margin": knobs["simpo_gamma"], "alpha": knobs["alpha"]}
        return preference_run(case, {"simpo": (1.0, settings)})
    return preference_run(case, {"cpo": (1.0, smooth)})


def _verl(case: Case) -> Outputs:
    knobs = case.knobs
    spec = verl.spec(knobs, columns=case.array("mask").shape[1], sequence_gspo=case.family.startswith("verl_dev."))
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
    component = verl.kl(case.knobs["kl_penalty"])
    policy = case.array("policy_logp")
    if "ref_minus_policy" in case.inputs:
        return kl_run(policy, policy + case.array("ref_minus_policy"), torch.ones_like(policy), component)
    return kl_run(policy, case.array("ref_logp"), case.array("mask"), component)


def _verl_kl_reward(case: Case) -> Outputs:
    knobs, mask = case.knobs, case.array("mask")
    kl = kl_run(case.array("old_logp"), case.array("ref_logp"), mask, verl.kl(knobs["kl_penalty"]))["kl"]
    columns = torch.arange(mask.shape[1])
    last = columns == (columns * mask).max(1, keepdim=True).values
    return {"token_level_rewards": (last * case.array("rewards")[:, None] - knobs["kl_coef"] * kl) * mask}


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
    return advantage_run(case, openrlhf.advantage(case.knobs), Setup(reward_N=_openrlhf_rewards(case), states="span"))


def _openrlhf_kl(case: Case) -> Outputs:
    component = openrlhf.kl_component(case.knobs["kl_estimator"])
    return kl_run(case.array("policy_logp"), case.array("ref_logp"), case.array("mask"), component)


def _openrlhf_policy(case: Case) -> Outputs:
    return policy_run(case, openrlhf.spec(case.knobs), Setup(micro_batches=case.knobs["micro_batches"], states="span"))


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
    reward_N = case.array("rewards") * knobs["reward_scale"]
    setup = Setup(values="old_values", micro_batches=knobs["micro_batches"], reward_N=reward_N)
    made = policy_run(case, oat.spec(knobs), setup)
    if knobs["critic_type"] != "ppo":
        return made
    settings = {"coef": knobs["vf_coef"], "clip": knobs["cliprange_value"]}
    return {**made, **_without(value_run(case, "sequence_mean", settings, made["returns"]), "loss")}


def _nemo_advantage(case: Case) -> Outputs:
    parts = [case.array(name) for name in case.inputs if name.startswith("reward/")]
    setup = Setup(component_NK=torch.stack(parts, 1) if parts else None)
    made = advantage_run(case, nemo.advantage(case.knobs), setup)
    if "returns" in made:  # the critic's lambda is its own
        critic = {**case.knobs, "gae_lambda_policy": case.knobs["gae_lambda_value"], "length_adaptive_alpha": 0}
        made["returns"] = advantage_run(case, nemo.advantage(critic), setup)["returns"]
    return made


def _nemo_dpo(case: Case) -> Outputs:
    knobs = case.knobs
    name = "dpo_norm" if knobs["preference_average_log_probs"] else "dpo"
    settings = {"beta": knobs["reference_policy_kl_penalty"]}
    return preference_run(case, {name: (knobs["preference_loss_weight"], settings)}, eps=1e-8)


def _skyrl(case: Case) -> Outputs:
    setup = Setup()
    if case.knobs["loss_reduction"] == "token_mean_legacy":
        rows = case.knobs["micro_train_batch_size_per_gpu"]
        setup = Setup(micro_batches=len(case.inputs["rewards"]) // rows, own_weights=True)
    return policy_run(case, skyrl.spec(case.knobs), setup)


def _skyrl_value(case: Case) -> Outputs:
    return value_run(case, "sequence_mean", {"clip": case.knobs["value_clip"]})


def _slime(case: Case) -> Outputs:
    return policy_run(case, slime.spec(case.knobs), Setup(values="old_values", states="response"))


def _slime_value(case: Case) -> Outputs:
    spec = slime.spec(case.knobs)
    made = advantage_run(case, spec, Setup(values="old_values", states="response"))
    return {
        **made,
        **value_run(case, spec["weights"], {"scale": 1.0, "clip": case.knobs["value_clip"]}, made["returns"]),
    }


def _prime(case: Case) -> Outputs:
    return policy_run(case, prime.spec(case.knobs), Setup(reward_N=_prime_rewards(case)))


def _prime_rewards(case: Case) -> Tensor | None:
    """Rewards less mean reward x weighted shares of the longest, prompt by prompt."""
    knobs = case.knobs["length_penalty"]
    if knobs is None:
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
            taken = penalties.relative_length(
                [float(cost) for cost in cost_N[inside]], rewards, weight=knobs[f"{name}_weight"]
            )
            shaped_N[inside] -= torch.tensor(taken, dtype=torch.float64)
    return shaped_N


def _kimi_descent(case: Case) -> Outputs:
    tau = case.knobs["tau"]
    logz = case.knobs["baseline"] == "logz"
    baseline = {"name": "log_partition", "tau": tau} if logz else {"name": "group_mean"}
    spec = {"advantage": baseline, "ratio": "product", "weights": "sequence_mean"}
    regression = policy_run(case, {**spec, "surrogate": {"name": "opmd", "tau": tau}})
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


def _without(outputs: Outputs, name: str) -> Outputs:
    return {key: value for key, value in outputs.items() if key != name}


def _smoothed_dpo(case: Case) -> dict[str, Any]:
    return {"beta": case.knobs["beta"], "label_smoothing": case.knobs.get("label_smoothing", 0.0)}


RUNS: dict[str, Run] = {
    "trl.": _trl,
    "trl.rloo": _trl_rloo,
    "trl.dpo.": _trl_dpo,
    "trl.cpo.": _trl_cpo,
    "trl.reward_model.": others.bradley_terry,
    "trl.soft_overlong_punishment": others.soft_overlong,
    "verl.": _verl,
    "verl_dev.": _verl,
    "verl.adv.": _verl_advantage,
    "verl.value_loss": _verl_value,
    "verl.kl_penalty.": _verl_kl,
    "verl.kl_in_reward": _verl_kl_reward,
    "verl.adaptive_kl_controller": others.verl_controller,
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
    "derivation.grpo_process_supervision": others.process,
    "derivation.kimi_length_reward": others.kimi_length,
    "derivation.l1_length_reward": others.l1_paper,
    "l1.lcpo_reward": others.l1_code,
    "open_r1.len_reward": others.open_r1_length,
    "open_r1.cosine_scaled_reward": others.open_r1_cosine,
}

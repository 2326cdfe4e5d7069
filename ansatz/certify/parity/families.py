"""How each family of cases is run: `objectives/projects` translates the options, and a run computes the outputs.

A family is found by the longest matching prefix, so new cases of a known family need no entry here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ansatz.certify.parity import others
from ansatz.certify.parity.cases import Case, float64
from ansatz.certify.parity.losses import kl_run, preference_run, value_run
from ansatz.certify.parity.runs import Outputs, Setup, advantage_run, policy_run
from ansatz.errors import ConfigError
from ansatz.objectives.projects import nemo, oat, open_instruct, openrlhf, prime, skyrl, slime, small, trl, verl

Run = Callable[[Case], Outputs]


def find(family: str) -> Run | None:
    """Return the run of a family; None if there is none."""
    prefixes = [prefix for prefix in RUNS if family.startswith(prefix)]
    return RUNS[max(prefixes, key=len)] if prefixes else None


def _rows(case: Case, microbatches: int) -> int:
    return -(-len(case.inputs["rewards"]) // microbatches)


def _trl(case: Case) -> Outputs:
    options = case.options.overlaid({"loss_type": "gmpo"}) if case.family == "trl.gmpo" else case.options
    options.ignore("rewards_k_seed")
    components = case.optional("rewards_per_func")
    reward_N = None
    if components is not None:
        reward_N = components @ float64(options["reward_weights"])
    # dapo, cispo and vespo divide by the tokens of the whole batch; the other losses average each microbatch.
    setup = Setup(
        reward_N=reward_N,
        component_NK=components,
        rows=_rows(case, options["steps_per_generation"]),
        own_weights=options["loss_type"] not in ("dapo", "cispo", "vespo"),
    )
    return policy_run(case, trl.spec(options), setup)


def _trl_rloo(case: Case) -> Outputs:
    limits = case.options["reward_clip_range"]
    reward_N = case.array("rewards").clamp(*limits) if limits else None
    return policy_run(case, trl.rloo(case.options), Setup(reward_N=reward_N))


def _trl_dpo(case: Case) -> Outputs:
    options = case.options
    divergence = trl.divergence(options)
    return preference_run(case, trl.dpo(options), divergence=divergence, tail_weight=options["ld_alpha"])


def _verl(case: Case) -> Outputs:
    options = case.options
    columns = case.array("mask").shape[1]
    spec = verl.spec(options, columns=columns, sequence_gspo=case.family.startswith("verl_dev."))
    setup = Setup(
        rows=_rows(case, options["micro_batches"]),
        own_weights=options["micro_batches"] > 1 and not options["global_batch_info"],
        dense=bool(options["adv"].get("dense_rewards", False)),
        loss_scale=float(options["dp_size"]),
        bypass=options["policy_loss"]["loss_mode"] == "bypass_mode",
    )
    if setup.own_weights:
        raise ConfigError("verl: micro_batches without global_batch_info is refused: the losses would not add up.")
    return policy_run(case, spec, setup)


def _verl_advantage(case: Case) -> Outputs:
    parts = case.inputs.get("reward_components")
    stacked = float64(list(parts.values())).T if parts else None
    setup = Setup(component_NK=stacked, dense=bool(case.options["dense_rewards"]))
    return advantage_run(case, verl.advantage(case.options), setup)


def _verl_value(case: Case) -> Outputs:
    options = case.options
    weights = verl.weights(options["loss_agg_mode"], options, columns=case.array("mask").shape[1])
    return value_run(case, weights, {"clip": options["cliprange_value"]})


def _verl_kl(case: Case) -> Outputs:
    component = verl.kl(case.options["kl_penalty"])
    policy = case.array("policy_logp")
    if "ref_minus_policy" in case.inputs:
        return kl_run(policy, policy + case.array("ref_minus_policy"), torch.ones_like(policy), component)
    return kl_run(policy, case.array("ref_logp"), case.array("mask"), component)


def _verl_kl_reward(case: Case) -> Outputs:
    options, mask = case.options, case.array("mask")
    kl = kl_run(case.array("old_logp"), case.array("ref_logp"), mask, verl.kl(options["kl_penalty"]))["kl"]
    columns = torch.arange(mask.shape[1])
    last = columns == (columns * mask).max(1, keepdim=True).values
    return {"token_level_rewards": (last * case.array("rewards")[:, None] - options["kl_coef"] * kl) * mask}


def _openrlhf_advantage(case: Case) -> Outputs:
    setup = Setup(reward_N=others.openrlhf_rewards(case), states="span")
    return advantage_run(case, openrlhf.advantage(case.options), setup)


def _openrlhf_kl(case: Case) -> Outputs:
    component = openrlhf.kl_component(case.options["kl_estimator"])
    return kl_run(case.array("policy_logp"), case.array("ref_logp"), case.array("mask"), component)


def _openrlhf_policy(case: Case) -> Outputs:
    options = case.options
    rows = _rows(case, options["micro_batches"])
    setup = Setup(reward_N=others.openrlhf_rewards(case), rows=rows, states="span")
    return policy_run(case, openrlhf.spec(options), setup)


def _openrlhf_value(case: Case) -> Outputs:
    return value_run(case, openrlhf.critic_weights(case.options), {"clip": case.options["clip_eps"]})


def _oat(case: Case) -> Outputs:
    options = case.options
    setup = Setup(
        values="old_values",
        rows=_rows(case, options["micro_batches"]),
        reward_N=case.array("rewards") * options["reward_scale"],
    )
    outputs = policy_run(case, oat.spec(options), setup)
    if options["critic_type"] != "ppo":
        return outputs
    critic = value_run(case, "sequence_mean", oat.critic_settings(options), outputs["returns"])
    return {**critic, **outputs}  # `loss` is that of the policy


def _nemo_advantage(case: Case) -> Outputs:
    parts = [case.array(name) for name in case.inputs if name.startswith("reward/")]
    setup = Setup(component_NK=torch.stack(parts, 1) if parts else None)
    outputs = advantage_run(case, nemo.advantage(case.options), setup)
    if "returns" in outputs:
        outputs["returns"] = advantage_run(case, nemo.critic_advantage(case.options), setup)["returns"]
    return outputs


def _nemo_policy(case: Case) -> Outputs:
    """With a forced on-policy ratio the policy itself takes the place of old log-probs everywhere."""
    options = case.options
    return policy_run(case, nemo.spec(options), Setup(bypass=bool(options["force_on_policy_ratio"])))


def _skyrl(case: Case) -> Outputs:
    options = case.options
    setup = Setup()
    if options["loss_reduction"] == "token_mean_legacy":
        setup = Setup(rows=options["micro_train_batch_size_per_gpu"], own_weights=True)
    return policy_run(case, skyrl.spec(options), setup)


def _skyrl_advantage(case: Case) -> Outputs:
    return advantage_run(case, skyrl.advantage(case.options), Setup(dense=bool(case.options["dense_rewards"])))


def _slime_value(case: Case) -> Outputs:
    options = case.options
    outputs = advantage_run(case, slime.spec(options), Setup(values="old_values", states="response"))
    return {**outputs, **value_run(case, slime.weights(options), slime.critic_settings(options), outputs["returns"])}


def _open_instruct_preference(name: str) -> Run:
    return lambda case: preference_run(case, open_instruct.dpo(case.options, name))


def _kimi_descent(case: Case) -> Outputs:
    tau = case.options["tau"]
    logz = case.options["baseline"] == "logz"
    baseline = {"name": "log_partition", "tau": tau} if logz else {"name": "group_mean"}
    spec = {"advantage": baseline, "ratio": "product", "weights": "sequence_mean"}
    regression = policy_run(case, {**spec, "surrogate": {"name": "opmd", "tau": tau}})
    descent = policy_run(case, {**spec, "surrogate": {"name": "mirror_descent", "tau": tau}})
    mask, policy, old = (case.array(name) for name in ("mask", "policy_logp", "old_logp"))
    advantage_N: Tensor = regression["advantage_N"]
    return {
        "baseline_per_rollout": case.array("rewards") - advantage_N,
        "sequence_log_ratio": ((policy - old) * mask).sum(1),
        "loss": regression["loss"],
        "grad_policy_logp": regression["grad_policy_logp"],
        "surrogate_loss": descent["loss"],
        "surrogate_grad_policy_logp": descent["grad_policy_logp"],
    }


RUNS: dict[str, Run] = {
    "trl.": _trl,
    "trl.rloo": _trl_rloo,
    "trl.dpo.": _trl_dpo,
    "trl.cpo.": lambda case: preference_run(case, trl.cpo(case.options)),
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
    "openrlhf.dpo.": lambda case: preference_run(case, openrlhf.dpo(case.options)),
    "oat.": _oat,
    "nemo.adv.": _nemo_advantage,
    "nemo.loss.": _nemo_policy,
    "nemo.dpo": lambda case: preference_run(case, nemo.dpo(case.options), eps=1e-8),
    "skyrl.": _skyrl,
    "skyrl.adv.": _skyrl_advantage,
    "skyrl.value_loss": lambda case: value_run(case, "sequence_mean", {"clip": case.options["value_clip"]}),
    "slime.": lambda case: policy_run(case, slime.spec(case.options), Setup(values="old_values", states="response")),
    "slime.value_loss": _slime_value,
    "open_instruct.": lambda case: policy_run(case, open_instruct.spec(case.options)),
    **{f"open_instruct.{name}": _open_instruct_preference(name) for name in ("dpo", "dpo_norm", "simpo")},
    "prime.": lambda case: policy_run(case, prime.spec(case.options), Setup(reward_N=others.prime_rewards(case))),
    "grpo_zero.": lambda case: policy_run(case, small.grpo_zero(case.options)),
    "nano.grpo": lambda case: policy_run(case, small.nano(case.options)),
    "torchtune.GRPO": lambda case: policy_run(case, small.torchtune(case.options)),
    "derivation.kimi_mirror_descent": _kimi_descent,
    "derivation.grpo_process_supervision": others.process,
    "derivation.kimi_length_reward": others.kimi_length,
    "derivation.l1_length_reward": others.l1_paper,
    "l1.lcpo_reward": others.l1_code,
    "open_r1.len_reward": others.open_r1_length,
    "open_r1.cosine_scaled_reward": others.open_r1_cosine,
}

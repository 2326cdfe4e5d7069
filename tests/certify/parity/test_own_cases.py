"""Certificates on cases made here, with options, shapes and seeds that no shared file has.

Expected numbers come from `padded_trainers`, an independent implementation on padded arrays. The batches have unequal
and shuffled groups, a prompt with one rollout, holes in the mask and one rollout without any token.
"""

from __future__ import annotations

import random
from typing import Any

import padded_trainers
import pytest
import torch

from ansatz.certify.parity.cases import Case, error
from ansatz.certify.parity.families import find
from ansatz.objectives.projects import PROJECTS
from ansatz.objectives.projects.options import merged, nested, read_options

# Options that the harness of a certificate adds to those of the project.
HARNESS: dict[str, dict[str, Any]] = {
    "trl": {"steps_per_generation": 1, "num_iterations": 2, "use_vllm": False, "max_completion_length": 7},
    "verl": {"micro_batches": 1, "dp_size": 1, "global_batch_info": False},
    "openrlhf": {"init_kl_coef": 0.0},
    "nemo-rl": {"reference_policy_kl_penalty": 0.0},
    "slime": {},
    "open-instruct": {},
    "prime-rl": {"length_penalty": None},
    "skyrl": {"max_seq_len": 9, "use_kl_loss": "false here"},
    "trl_gmpo": {"steps_per_generation": 1, "num_iterations": 2, "use_vllm": False},
    "trl_rloo": {},
    "oat": {"generate_max_length": 9},
    "grpo-zero": {"micro_batch_size": 3},
    "nano-aha": {},
    "torchtune": {},
}
PEERS = {
    "nemo-rl": "nemo",
    "open-instruct": "open_instruct",
    "prime-rl": "prime",
    "grpo-zero": "grpo_zero",
    "nano-aha": "nano",
}
FAMILIES = {
    "trl": "trl.grpo_loss.own",
    "trl_gmpo": "trl.gmpo",
    "trl_rloo": "trl.rloo",
    "verl": "verl.policy_loss.own",
    "nemo-rl": "nemo.loss.own",
    "nano-aha": "nano.grpo",
    "torchtune": "torchtune.GRPO",
}
OPTIONS = {"trl_gmpo": read_options("trl"), "trl_rloo": read_options("trl RLOOConfig")}

CHOICES: dict[str, list[dict[str, list[Any]]]] = {
    "trl": [
        {
            "loss_type": ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"],
            "epsilon": [0.1, 0.3],
            "epsilon_high": [None, 0.5, 2.5],
            "beta": [0.0, 0.07],
            "use_bias_correction_kl": [True, False],
            "scale_rewards": ["group", "batch", "none"],
            "use_vllm": [True, False],
            "vllm_importance_sampling_mode": ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"],
            "vllm_importance_sampling_clip_max": [1.2, 2.5],
            "vllm_importance_sampling_clip_min": [None, 0.6],
        },
        {
            "loss_type": ["grpo", "dapo", "dr_grpo"],
            "delta": [1.5, 3.0],
            "importance_sampling_level": ["token", "sequence"],
            "beta": [0.0, 0.07],
        },
    ],
    "verl": [
        {
            "policy_loss": [{"loss_mode": mode} for mode in ("vanilla", "gspo", "cispo", "sapo", "gpg")],
            "loss_agg_mode": [
                "token-mean",
                "token-sum",
                "seq-mean-token-mean",
                "seq-mean-token-sum",
                "seq-mean-token-sum-norm",
            ],
            "clip_ratio_low": [0.1, 0.25],
            "clip_ratio_high": [0.15, 0.4],
            "use_kl_loss": [True, False],
            "kl_loss_type": ["k1", "k2", "low_var_kl"],
            "kl_loss_coef": [0.03],
            "entropy_coeff": [0.0, 0.02],
            "adv": [
                {"adv_estimator": "grpo"},
                {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False},
                {"adv_estimator": "rloo"},
            ],
        },
        {
            "rollout_correction": [
                {"rollout_is": "sequence", "rollout_is_threshold": 1.7, "rollout_rs": "token_k2"}
                | {"rollout_rs_threshold": "0.02", "rollout_is_batch_normalize": True},
                {"rollout_is": "token", "rollout_is_threshold": 1.1, "rollout_is_batch_normalize": True},
                {"rollout_is": "sequence", "rollout_is_threshold": 3.0, "rollout_is_batch_normalize": True},
                {"rollout_is": "sequence", "rollout_is_threshold": 3.0, "rollout_rs": "token_k1,seq_max_k3"}
                | {"rollout_rs_threshold": "0.8_1.3,0.05"},
                {"rollout_rs": "seq_sum_k1,token_k3", "rollout_rs_threshold": "0.5_2.0,0.03"},
            ],
            "loss_agg_mode": ["token-mean", "seq-mean-token-mean"],
            "clip_ratio_c": [1.5, 3.0],
        },
    ],
    "openrlhf": [
        {
            "estimator": ["group_norm", "dr_grpo", "rloo", "reinforce", "reinforce_baseline"],
            "reward_clip_range": [[-10, 10], [-0.25, 0.5], None],
            "no_std_norm": [True, False],
            "init_kl_coef": [0.0, 0.1],
            "kl_estimator": ["k1", "k2", "k3"],
            "use_loss": [True, False],
            "gamma": [0.9],
            "dual_clip": [None, 1.4],
            "token_level_loss": [True, False],
            "enable_vllm_is_correction": [True, False],
            "vllm_is_correction_type": ["tis", "icepop", "seq-mask-tis"],
            "vllm_is_truncated_threshold": [[0.85, 1.2]],
        }
    ],
    "nemo-rl": [
        {
            "adv": [
                {"normalize_rewards": by_std, "use_leave_one_out_baseline": others}
                for by_std in (True, False)
                for others in (True, False)
            ],
            "ratio_clip_c": [None, 1.3],
            "token_level_loss": [True, False],
            "reference_policy_kl_penalty": [0.0, 0.1],
            "reference_policy_kl_type": ["k1", "k2", "k3"],
            "kl_input_clamp_value": [20.0, 0.2],
            "kl_output_clamp_value": [10.0, 0.1],
            "use_on_policy_kl_approximation": [True, False],
            "use_importance_sampling_correction": [True],
            "truncated_importance_sampling_type": ["tis", "icepop", "seq-mask-tis"],
            "truncated_importance_sampling_ratio": [1.15],
            "truncated_importance_sampling_ratio_min": [0.9],
            "positive_example_nll_weight": [0.0, 0.3],
        },
        {
            "token_level_loss": [False],
            "sequence_level_importance_ratios": [True],
            "use_importance_sampling_correction": [True, False],
        },
        {"force_on_policy_ratio": [True], "use_importance_sampling_correction": [True, False]},
        {"use_cispo": [True], "ratio_clip_min": [0.3, 1.0], "ratio_clip_max": [0.1, 4.0]},
        {"disable_ppo_ratio": [True], "ratio_clip_c": [None, 3.0]},
    ],
    "slime": [
        {
            "advantage_estimator": ["grpo", "gspo", "cispo", "reinforce_plus_plus_baseline"],
            "rewards_normalization": [True, False],
            "grpo_std_normalization": [True, False],
            "normalize_advantages": [True, False],
            "kl_coef": [0.0, 0.05],
            "eps_clip_high": [None, 0.4],
            "eps_clip_c": [None, 1.6],
            "calculate_per_token_loss": [True, False],
            "use_tis": [True, False],
            "tis_clip": [1.2],
            "tis_clip_low": [0.9],
            "custom_tis_function_path": [None, "icepop"],
            "use_opsm": [True, False],
            "opsm_delta": [0.01],
        },
        {
            "use_kl_loss": [True],
            "kl_loss_coef": [0.1],
            "kl_loss_type": ["k1", "k2", "k3", "low_var_kl"],
            "use_unbiased_kl": [True, False],
        },
    ],
    "open-instruct": [
        {
            "advantage_normalization_type": ["centered", "standard"],
            "loss_fn": ["dapo", "cispo"],
            "kl_estimator": [0, 1, 2, 3],
            "loss_denominator": ["token", "33"],
            "rho_clamp_lower_bound": [0.0, 0.9],
            "rho_clamp_upper_bound": [0.0, 1.1],
            "rho_mask_lower_bound": [0.0, 0.85],
            "rho_mask_upper_bound": [0.0, 1.15],
            "rho_mask_sequence_level": [True, False],
            "use_rho_correction": [True, True, False],
        },
        {
            "rho_mask_tv_divergence": [True],
            "rho_mask_upper_bound": [0.12, 0.2],
            "rho_mask_sequence_level": [True, False],
            "rho_clamp_upper_bound": [0.0, 2.0],
        },
    ],
    "trl_gmpo": [
        {
            "epsilon": [0.1, 0.4],
            "epsilon_high": [None, 0.2],
            "beta": [0.0, 0.1],
            "scale_rewards": ["group", "none"],
        }
    ],
    "trl_rloo": [
        {
            "beta": [0.0, 0.1],
            "epsilon_high": [None, 0.5],
            "normalize_advantages": [True, False],
            "reward_clip_range": [None, [0.0, 0.5]],
            "num_iterations": [1, 2],
        }
    ],
    "skyrl": [
        {
            "policy_loss_type": ["regular", "dual_clip", "gspo", "cispo", "sapo", "importance_sampling"],
            "loss_reduction": ["token_mean", "sequence_mean", "prompt_mean", "seq_mean_token_sum_norm"],
            "adv": [
                {"advantage_estimator": "grpo"},
                {"advantage_estimator": "grpo", "grpo_norm_by_std": False},
                {"advantage_estimator": "rloo"},
                {"advantage_estimator": "maxrl"},
            ],
            "eps_clip_high": [0.1, 0.5],
            "use_kl_loss": [True, "false here"],
            "kl_estimator_type": ["k1", "k2", "k3", "abs"],
            "kl_loss_coef": [0.05],
            "off_policy_correction": [
                {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.1},
                {
                    "tis_ratio_type": "sequence",
                    "sequence_tis_ratio_clip_high": 1.2,
                    "token_mask_is_threshold_high": 1.3,
                },
                {"sequence_mask_metric": "geometric", "geo_mask_low": 0.95, "geo_mask_high": 1.05},
                {"sequence_mask_metric": "product", "product_mask_low": 0.8, "product_mask_high": 1.3},
                {"outlier_token_is_threshold_high": 1.25},
            ],
        },
        {
            "policy_loss_type": ["rollout_is", "dppo", "cispo"],
            "cispo": [{"cispo_anchor": "rollout", "cispo_eps_clip_high": 0.2}],
            "dppo": [{"dppo_type": "binary_kl", "delta_low": 0.01, "delta_high": 0.02}, {"delta_low": 0.03}],
            "eps_clip_low": [0.15],
        },
    ],
    "oat": [
        {
            "critic_type": ["drgrpo", "grpo"],
            "beta": [0.0, 0.1],
            "reinforce_update": [True, False],
            "reward_scale": [1.0, 2.5],
            "tis_c": [1.1, None],
            "cliprange": [0.1, 0.3],
            "generate_max_length": [9, 13],
            "ignore_no_eos": [True, False],
            "micro_batches": [1, 3],
        },
        {"critic_type": ["drgrpo", "grpo"], "kl_penalty_coef": [0.05, 0.3], "cliprange": [0.2, 0.6]},
    ],
    "grpo-zero": [{"micro_batch_size": [1, 2, 4]}],
    "nano-aha": [{"kl_coeff": [0.0, 0.2]}],
    "torchtune": [
        {"loss": ["GRPOLoss"], "epsilon": [0.05, 0.3], "kl_coeff": [0.0, 0.2]},
        {"loss": ["GRPOSimpleLoss"], "kl_coeff": [0.0, 0.2]},
    ],
    "prime-rl": [
        {
            "algo": ["grpo", "max_rl"],
            "loss": [
                {"adv_tau": 0.6, "kl_tau": 0.02, "dppo_mask_low": 0.03, "dppo_mask_high": 0.05},
                {"adv_tau": 1.7, "type": "ipo", "ipo_threshold": 0.04},
                {"kl_tau": 0.0},
            ],
        }
    ],
}


def inputs_of(rng: random.Random, project: str) -> dict[str, Any]:
    """Seven rollouts of three prompts (one has a single rollout), six columns; the last rollout has no token."""
    rows, columns = 7, 6
    group = [0, 1, 0, 2, 1, 0, 1]
    mask = [[0.0] * columns for _ in range(rows)]
    for row in range(rows - 1):
        length = rng.randint(2, columns)
        for column in range(length):
            mask[row][column] = float(rng.random() < 0.8)
        mask[row][rng.randrange(length)] = 1.0
    # Equal groups where a project needs them, and no empty rollout where it adds a constant to the loss for one.
    if project in ("openrlhf", "slime", "trl_rloo", "trl_gmpo", "oat", "grpo-zero", "nano-aha", "torchtune"):
        group = [0, 1, 0, 1, 0, 1]
        mask, rows = mask[:-1], 6

    def around(center: list[list[float]] | float, width: float, highest: float = -0.05) -> list[list[float]]:
        centers = center if isinstance(center, list) else [[center] * columns for _ in range(rows)]
        return [
            [min(middle + rng.gauss(0, width), highest) * inside for middle, inside in zip(*row, strict=True)]
            for row in zip(centers, mask, strict=True)
        ]

    policy = around(-1.5, 0.4)
    old = around(policy, 0.3)
    return {
        "rewards": [rng.choice([0.0, 1.0, 0.5, -0.25]) for _ in range(rows)],
        "group": group,
        "mask": mask,
        "truncated": [float(rng.random() < 0.3) for _ in range(rows)],
        "length": [columns] * rows,
        "policy_logp": policy,
        "old_logp": old,
        "behavior_logp": around(old, 0.15),
        "ref_logp": around(policy, 0.3),
        "entropy": around(1.0, 0.2, highest=9.0),
    }


def made_case(project: str, seed: int) -> Case:
    rng = random.Random(f"{project} {seed}")
    table = CHOICES[project][seed % len(CHOICES[project])]
    changes = {key: rng.choice(values) for key, values in table.items()}
    if project == "trl" and changes.get("loss_type") == "cispo":
        changes["epsilon_high"] = 2.5
    if project == "skyrl" and "policy_loss_type" in changes:
        kind = changes["policy_loss_type"]
        changes = {key: value for key, value in changes.items() if key not in ("cispo", "dppo") or key == kind}
        if kind not in ("rollout_is", "regular", "dual_clip", "gspo"):
            changes = {key: value for key, value in changes.items() if not key.startswith("eps_clip")}
    options = OPTIONS[project] if project in OPTIONS else PROJECTS[project].options
    defaults = merged(nested(options), HARNESS[project])
    peer = PEERS.get(project, project).partition("_")[0] if project in OPTIONS else PEERS.get(project, project)
    return Case.from_json(
        {
            "id": f"{project}/{seed}",
            "family": FAMILIES.get(project, f"{peer}.own"),
            "peer": peer,
            "knobs": changes,
            "knob_defaults": defaults,
            "inputs": inputs_of(rng, project),
            "outputs": {},
        }
    )


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("project", CHOICES)
def test_our_numbers_equal_an_independent_implementation(project: str, seed: int):
    case = made_case(project, seed)
    run = find(case.family)
    assert run is not None
    ours = run(case)
    reference = getattr(padded_trainers, PEERS.get(project, project))
    arrays = {name: torch.tensor(values, dtype=torch.float64) for name, values in case.inputs.items()}
    arrays["policy_logp"].requires_grad_()
    options = {key: case.options[key] for key in case.options}
    advantages, loss = reference(arrays, options)
    (gradient,) = torch.autograd.grad(loss, arrays["policy_logp"])
    mask = arrays["mask"].bool()
    our_advantages = ours["advantage_N"] if advantages.dim() == 1 else ours["advantages"]
    assert error(our_advantages, advantages.tolist(), mask) < 1e-8, case.options
    assert error(ours["loss"], loss.item()) < 1e-9
    assert error(ours["grad_policy_logp"], gradient.tolist()) < 1e-9


@pytest.mark.parametrize("project", CHOICES)
def test_no_number_passes_through_the_default_dtype(project: str):
    """Under a default dtype of 8 bits of precision, a constant or a list that took it would show at once."""
    for seed in range(12):
        run = find(made_case(project, seed).family)
        assert run is not None
        usual = run(made_case(project, seed))
        torch.set_default_dtype(torch.bfloat16)
        try:
            coarse = run(made_case(project, seed))
        finally:
            torch.set_default_dtype(torch.float32)
        for name in ("advantages", "loss", "grad_policy_logp"):
            assert error(coarse[name], usual[name].tolist()) == 0, (seed, name)

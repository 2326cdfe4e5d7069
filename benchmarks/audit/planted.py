"""The bugs and the clean runs that the audit is tried on. This table was written before the audit's rules.

A bug of `TRL` is planted into the running code of TRL's GRPOTrainer (`trl_plants.py`), one of `BUNDLE` into the arrays
of a bundle that a run without a bug has written (`bundle_plants.py`). `claim` is the claim of the audit that must be
contradicted, and `words` is a regular expression for the cause that it must name: an audit that contradicts another
claim, or gives no cause, has not named the bug. `source` is the thread of a project in which such a bug was fixed or
reported; the code here is our own.

`LATER_BUGS` and `LATER_CLEAN` were written when the rules were complete, and committed before they were run. They show
how the audit does on cases that its rules were not written with. After their first run, "no KL" was accepted for
`kl_forgotten`, and `reference_without_temperature` was planted again, because its first form changed nothing.

Two entries of the first list were corrected after the first run: `negatives_dropped` is planted within the loss, so the
loss is the claim (it was "advantage used"), and `sampler_bfloat16` samples with weights in bfloat16 (it was noise in a
bundle, which nothing tells from kernels). The noise of the clean run `sampler_corrected` was lowered from 0.2 to 0.005
nats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TRL, BUNDLE = "trl", "bundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """options: of GRPOConfig, over `COMMON`. run: how the trainer is fed, see `trl_runs.py`."""

    name: str
    what: str
    claim: str
    words: str
    where: str = TRL
    source: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    run: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    name: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    run: dict[str, Any] = field(default_factory=dict[str, Any])


GITHUB = "https://github.com/"
COMMON = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "num_generations": 4,
    "max_completion_length": 12,
    "learning_rate": 5e-3,
    "loss_type": "dapo",
    "beta": 0.0,
}
TWICE = {"num_iterations": 2}
KL = {"beta": 0.1}
TOOLS = {"tools": True}
VLLM = {"sampler": "same"}

BUGS = [
    # The mask
    Bug(
        name="eos_left_out",
        what="The mask is inferred from the id of the padding, which is also the end of the sequence.",
        source=f"{GITHUB}huggingface/trl/pull/4970",
        claim="mask",
        words="end-of-sequence",
    ),
    Bug(
        name="padding_in_loss",
        what="Tokens after the end of the sequence count in the loss.",
        source=f"{GITHUB}bingreeky/MemGen/pull/33",
        claim="mask",
        words="padding",
    ),
    Bug(
        name="mask_shifted",
        what="The mask is one place to the left of the log-probs.",
        source=f"{GITHUB}modelscope/ms-swift/pull/8427",
        claim="mask",
        words="shifted|one place",
        run=TOOLS,
    ),
    Bug(
        name="observations_in_loss",
        what="Tokens that a tool wrote count in the loss.",
        source=f"{GITHUB}PeterGriffinJin/Search-R1/pull/21",
        claim="mask",
        words="observation",
        run=TOOLS,
    ),
    Bug(
        name="mask_inverted",
        what="Only tokens that a tool wrote count in the loss.",
        source=f"{GITHUB}mll-lab-nu/RAGEN/issues/71",
        claim="mask",
        words="inverted",
        run=TOOLS,
    ),
    # Aggregation and scale
    Bug(
        name="mean_of_microbatches",
        what="The loss is averaged over the tokens of each microbatch, and then over microbatches.",
        source=f"{GITHUB}allenai/open-instruct/pull/1161",
        claim="loss",
        words="token_mean.*each microbatch",
    ),
    Bug(
        name="divided_twice",
        what="The loss of the whole step is divided by the accumulation steps once more.",
        source=f"{GITHUB}modelscope/ms-swift/pull/10116",
        claim="loss",
        words=r"0\.25 times|1/4|accumulation",
    ),
    Bug(
        name="normalizer_of_generation",
        what="The tokens of the generation batch are the denominator of an update that sees half of them.",
        source=f"{GITHUB}huggingface/trl/pull/6024",
        claim="loss",
        words=r"0\.5 times|half",
        options={"steps_per_generation": 8},
    ),
    Bug(
        name="sequence_mean_is_fixed_length",
        what="Each response is divided by the longest possible length instead of its own.",
        claim="loss",
        words="fixed_length",
        options={"loss_type": "grpo"},
    ),
    Bug(
        name="last_microbatch_only",
        what="The gradient is set to zero before each microbatch, so only the last one counts.",
        claim="step gradient",
        words="last microbatch",
    ),
    # Advantages
    Bug(
        name="std_of_batch",
        what="Advantages are divided by the std of the batch instead of the group.",
        claim="advantage",
        words="std.*batch",
    ),
    Bug(name="ddof_0", what="The std has ddof 0 instead of 1.", claim="advantage", words="ddof 0"),
    Bug(
        name="groups_interleaved",
        what="Rows P1 P2 P1 P2 are reshaped as if they were P1 P1 P2 P2.",
        source=f"{GITHUB}StarsfieldAI/R1-V/issues/67",
        claim="advantage",
        words="neighbouring rows|rows, not prompts",
    ),
    Bug(
        name="advantages_of_others",
        what="Responses are shuffled before the microbatches are cut, their advantages are not.",
        claim="advantage used",
        words="another rollout",
    ),
    Bug(
        name="negatives_dropped",
        what="The loss sees max(advantage, 0).",
        claim="loss",
        words="negative",
    ),
    Bug(
        name="weights_of_rewards_ignored",
        what="The sum of two rewards ignores their weights.",
        claim="advantage",
        words="weights of the rewards|reward weights",
        options={"reward_weights": [1.0, 0.1]},
        run={"rewards": 2},
    ),
    # Ratio, surrogate, KL, correction
    Bug(
        name="ratio_is_1",
        what="The policy itself is the anchor of the ratio, although the samples are used twice.",
        source=f"{GITHUB}meta-pytorch/torchforge/pull/571",
        claim="loss",
        words="anchor",
        options=TWICE,
    ),
    Bug(
        name="clip_wrong_side",
        what="The larger of the clipped and the unclipped term is taken.",
        claim="loss",
        words="wrong side",
        options=TWICE,
    ),
    Bug(
        name="epsilon_high_ignored",
        what="The upper bound of the ratio is that of epsilon.",
        claim="loss",
        words="1.2\\b.*instead|high 0.2",
        options={**TWICE, "epsilon_high": 0.28},
    ),
    Bug(
        name="kl_reversed",
        what="Policy and reference change places in k3.",
        claim="loss",
        words="KL.*(reversed|change places)",
        options=KL,
    ),
    Bug(
        name="k1_in_loss",
        what="The KL in the loss is k1, whose gradient has mean 0.",
        source=f"{GITHUB}NVIDIA-NeMo/RL/pull/2506",
        claim="loss",
        words="k1",
        options=KL,
    ),
    Bug(
        name="correction_missing",
        what="The loss is not multiplied with the weights that correct for the sampler.",
        source=f"{GITHUB}verl-project/verl/pull/2953",
        claim="loss",
        words="correction.*(missing|none)|without.*correction",
        run={"sampler": "bfloat16"},
    ),
    # Log-probs
    Bug(
        name="temperature_left_out",
        what="The trainer's log-probs are taken at temperature 1, the samples at 0.6.",
        source=f"{GITHUB}huggingface/trl/pull/3029",
        claim="policy log-probs",
        words="temperature",
        options={"temperature": 0.6},
    ),
    Bug(
        name="logits_shifted",
        what="Each token gets the log-prob of its neighbour.",
        claim="policy log-probs",
        words="shifted|one place|neighbour",
    ),
    Bug(
        name="padding_attended",
        what="The attention mask is 1 at the padding on the left of the prompt.",
        source=f"{GITHUB}huggingface/trl/pull/2708",
        claim="policy log-probs",
        words="padding",
    ),
    Bug(
        name="old_is_stale",
        what="The old log-probs are those of the weights at the start of the run.",
        claim="old log-probs",
        words="stale|other weights|earlier",
        options=TWICE,
        run={"steps": 5},
    ),
    Bug(
        name="reference_is_policy",
        what="The reference log-probs are the policy's.",
        claim="reference log-probs",
        words="policy",
        options=KL,
        run={"steps": 3},
    ),
    # Sampler and trainer
    Bug(
        name="sampler_temperature",
        what="The sampler reports log-probs before the temperature is applied.",
        source=f"{GITHUB}huggingface/trl/issues/4159",
        claim="sampler gap",
        words="temperature",
        options={"temperature": 0.6},
        run={"sampler": "temperature"},
    ),
    Bug(
        name="sampler_stale",
        what="The sampler keeps the weights of the start.",
        claim="sampler gap",
        words="stale",
        run={"sampler": "stale", "steps": 4},
    ),
    Bug(
        name="sampler_top_p",
        what="The sampler reports log-probs within the nucleus, the trainer over the whole vocabulary.",
        source=f"{GITHUB}modelscope/ms-swift/pull/8442",
        claim="sampler gap",
        words="top-p|top-k|truncat",
        run={"sampler": "top_p"},
    ),
    # Bundles
    Bug(
        name="retokenized",
        what="The response was decoded and encoded again before it was trained on.",
        where=BUNDLE,
        claim="sampler gap",
        words="other tokens",
    ),
    Bug(
        name="sampler_bfloat16",
        what="The sampler computes in bfloat16, the trainer in float32.",
        claim="sampler gap",
        words="bfloat16",
        run={"sampler": "bfloat16"},
    ),
    Bug(
        name="spike_of_leave_one_out",
        what="The std of the others is rounding error, so an advantage is thousands.",
        source=f"{GITHUB}NVIDIA-NeMo/RL/pull/4158",
        where=BUNDLE,
        claim="advantage",
        words="std|rounding|spike",
    ),
    Bug(
        name="observations_in_denominator",
        what="The denominator of the token mean counts tokens that a tool wrote.",
        source=f"{GITHUB}THUDM/slime/pull/365",
        where=BUNDLE,
        claim="loss",
        words="observation|times the promised",
        run=TOOLS,
    ),
    Bug(
        name="rewards_of_neighbours",
        what="Each response has the reward of the next one.",
        where=BUNDLE,
        claim="rewards",
        words="verifier",
    ),
]

CLEAN = [
    Clean(name="dapo"),
    Clean(name="grpo", options={"loss_type": "grpo"}),
    Clean(name="bnpo", options={"loss_type": "bnpo"}),
    Clean(name="dr_grpo", options={"loss_type": "dr_grpo", "scale_rewards": "none"}),
    Clean(name="cispo", options={"loss_type": "cispo", "epsilon_high": 5.0, **TWICE}),
    Clean(name="sapo", options={"loss_type": "sapo", **TWICE}),
    Clean(name="vespo", options={"loss_type": "vespo", **TWICE}),
    Clean(name="luspo", options={"loss_type": "luspo", "importance_sampling_level": "sequence", **TWICE}),
    Clean(name="gspo", options={"loss_type": "grpo", "importance_sampling_level": "sequence", **TWICE}),
    Clean(name="std_of_batch", options={"scale_rewards": "batch"}),
    Clean(name="two_rewards", options={"reward_weights": [1.0, 0.1]}, run={"rewards": 2}),
    Clean(
        name="gdpo",
        options={"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.1]},
        run={"rewards": 2},
    ),
    Clean(name="kl", options={**KL, **TWICE}, run={"steps": 3}),
    Clean(name="kl_corrected", options={**KL, **TWICE, "use_bias_correction_kl": True}, run={"steps": 3}),
    Clean(name="clip_higher", options={**TWICE, "epsilon": 0.1, "epsilon_high": 0.3, "delta": 1.5}),
    Clean(name="temperature", options={"temperature": 0.6}),
    Clean(name="generation_of_two_steps", options={"steps_per_generation": 8}, run={"steps": 2}),
    Clean(name="mask_truncated", options={"mask_truncated_completions": True, "loss_type": "grpo"}),
    Clean(name="tools", run=TOOLS),
    Clean(name="sampler_corrected", run={"sampler": "noise"}),
    Clean(name="entropy", options={"entropy_coef": 0.01}),
    Clean(name="one_microbatch", options={"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1}),
    Clean(name="smollm2", options={"max_completion_length": 6, "loss_type": "grpo"}, run={"model": "smollm2"}),
    Clean(name="smollm2_kl", options={"max_completion_length": 6, **KL}, run={"model": "smollm2"}),
]

LATER_BUGS = [
    Bug(
        name="baseline_missing",
        what="The mean reward of the group is not subtracted.",
        claim="advantage",
        words="mean|baseline",
    ),
    Bug(
        name="baseline_of_batch",
        what="The mean of the batch is subtracted instead of the mean of the group.",
        claim="advantage",
        words="mean.*batch|batch.*mean|batch_zscore",
    ),
    Bug(
        name="groups_of_two",
        what="Groups are cut into blocks of two instead of four.",
        claim="advantage",
        words="group|rows, not prompts|neighbouring rows",
    ),
    Bug(
        name="sign_flipped",
        what="The loss has the opposite sign, so wrong responses become likelier.",
        claim="loss",
        words=r"-1\b|sign|opposite",
    ),
    Bug(
        name="kl_forgotten",
        what="The KL is computed and logged, but not added to the loss.",
        claim="loss",
        words="KL.*(missing|none|not added)|(no|without).*KL",
        options=KL,
        run={"steps": 3},
    ),
    Bug(
        name="kl_subtracted",
        what="The KL is subtracted from the loss.",
        claim="loss",
        words="KL.*(sign|subtract|-0.1|-1)",
        options=KL,
        run={"steps": 3},
    ),
    Bug(
        name="first_token_dropped",
        what="The first token of each response does not count.",
        claim="mask",
        words="first",
    ),
    Bug(
        name="truncated_in_loss",
        what="Truncated responses count, although the option leaves them out.",
        claim="mask",
        words="truncat",
        options={"mask_truncated_completions": True, "loss_type": "grpo"},
    ),
    Bug(
        name="sequence_ratio",
        what="The ratio is one of whole responses, the options say tokens.",
        claim="loss",
        words="sequence|response",
        options=TWICE,
    ),
    Bug(
        name="sum_of_tokens",
        what="The loss is summed over tokens and not divided by their number.",
        claim="loss",
        words="times the promised|sum",
    ),
    Bug(
        name="delta_ignored",
        what="The bound of the ratio from above (two-sided clipping) is not applied.",
        claim="loss",
        words="delta|upper bound|1.05",
        options={**TWICE, "delta": 1.05},
    ),
    Bug(
        name="reference_without_temperature",
        what="The reference log-probs are taken at temperature 1, the policy's at 0.6.",
        claim="reference log-probs",
        words="temperature",
        options={**KL, "temperature": 0.6},
        run={"steps": 3},
    ),
]

LATER_CLEAN = [
    Clean(name="kl_temperature", options={**KL, "temperature": 0.6}, run={"steps": 3}),
    Clean(name="dr_grpo_with_std", options={"loss_type": "dr_grpo"}),
    Clean(name="pairs", options={"num_generations": 2}),
    Clean(name="delta_near_1", options={**TWICE, "delta": 1.05}),
    Clean(name="grpo_std_of_batch", options={"loss_type": "grpo", "scale_rewards": "batch"}),
    Clean(name="tools_kl", options={**KL, "loss_type": "bnpo"}, run={**TOOLS, "steps": 3}),
    Clean(name="generation_of_two_steps_twice", options={"steps_per_generation": 8, **TWICE}, run={"steps": 4}),
    Clean(name="engine_of_same_weights", options={"temperature": 0.8}, run=VLLM),
]

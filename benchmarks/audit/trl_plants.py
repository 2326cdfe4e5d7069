"""Plants a bug of `planted.BUGS` into the running code of TRL's GRPOTrainer: `plant(trainer)` for each name.

Some replace lines of TRL's own source (`edited`), which fails loudly if a line is no longer there; the others wrap a
method. All of them are in place before the recorder looks at the trainer.
"""

from __future__ import annotations

import copy
import inspect
import sys
import textwrap
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from trl import GRPOTrainer

Plant = Callable[[Any], None]


def edited(method: str, *changes: tuple[str, str]) -> Plant:
    """Return a plant that replaces text in the source of a method of GRPOTrainer."""

    def plant(trainer: Any) -> None:
        function = inspect.unwrap(getattr(GRPOTrainer, method))
        source = textwrap.dedent(inspect.getsource(function))
        source = source[source.index("def ") :]  # without its decorator
        for old, new in changes:
            if old not in source:
                raise ValueError(f"TRL's {method} no longer has {old!r}")
            source = source.replace(old, new)
        source = source.replace("super()", "super(GRPOTrainer, self)")
        module = vars(sys.modules[GRPOTrainer.__module__])
        made: dict[str, Any] = {}
        exec(compile(source, f"planted {method}", "exec"), module, made)
        setattr(trainer, method, types.MethodType(made[method], trainer))

    return plant


def around(method: str, call: Callable[..., Any]) -> Plant:
    """Return a plant that puts a call around a method: it takes the trainer, the method, and what the method takes."""

    def plant(trainer: Any) -> None:
        inner = getattr(trainer, method)

        def planted(*given: Any, **how: Any) -> Any:
            return call(trainer, inner, *given, **how)

        setattr(trainer, method, planted)

    return plant


def generated_changed(change: Callable[[Any, dict[str, Any]], None]) -> Plant:
    """Return a plant that changes what a generation is scored with."""

    def call(trainer: Any, inner: Any, inputs: Any) -> Any:
        output = inner(inputs)
        change(trainer, output)
        return output

    return around(_SCORE, call)


def eos_left_out(trainer: Any, output: dict[str, Any]) -> None:
    output["completion_mask"] = output["completion_mask"] * (output["completion_ids"] != trainer.eos_token_ids[0])


def padding_in_loss(trainer: Any, output: dict[str, Any]) -> None:
    output["completion_mask"] = torch.ones_like(output["completion_mask"])


def mask_shifted(trainer: Any, output: dict[str, Any]) -> None:
    mask = output["tool_mask"]
    output["tool_mask"] = torch.cat([mask[:, 1:], mask[:, -1:]], 1)


def observations_in_loss(trainer: Any, output: dict[str, Any]) -> None:
    output["tool_mask"] = torch.ones_like(output["tool_mask"])


def mask_inverted(trainer: Any, output: dict[str, Any]) -> None:
    output["tool_mask"] = 1 - output["tool_mask"]


def divided_twice(trainer: Any) -> None:
    trainer.loss_is_scaled_for_ga = False


def std_of_batch(trainer: Any) -> None:
    trainer.scale_rewards = "batch"


def last_microbatch_only(trainer: Any, inner: Any, model: Any, *rest: Any, **how: Any) -> Any:
    model.zero_grad()
    return inner(model, *rest, **how)


def groups_interleaved(trainer: Any, inner: Any, inputs: Any) -> Any:
    """The rows of a batch come as P1 P2 P3 P4 P1 ..., and are still cut into blocks."""
    size = trainer.num_generations
    return inner([inputs[place * size + turn] for turn in range(size) for place in range(len(inputs) // size)])


def weights_of_rewards_ignored(trainer: Any, inner: Any, inputs: Any) -> Any:
    right, trainer.reward_weights = trainer.reward_weights, torch.ones_like(trainer.reward_weights)
    try:
        return inner(inputs)
    finally:
        trainer.reward_weights = right


def rows_shuffled_without_advantages(trainer: Any) -> None:
    """The shuffle before the microbatches are cut forgets the advantages."""
    module = sys.modules[GRPOTrainer.__module__]
    inner = module.shuffle_sequence_dict

    def planted(batch: dict[str, Any]) -> dict[str, Any]:
        return {**inner(batch), "advantages": batch["advantages"]}

    edited("_prepare_inputs", ("shuffle_sequence_dict(", "planted_shuffle("))(trainer)
    module.planted_shuffle = planted


def temperature_left_out(
    trainer: Any,
    inner: Any,
    model: Any,
    input_ids: Any,
    attention_mask: Any,
    logits_to_keep: int,
    *rest: Any,
    of_reference: bool = False,
    **how: Any,
) -> Any:
    """Take log-probs from the model's logits, which nothing has divided by the temperature."""
    if of_reference and model is not trainer.ref_model:
        return inner(model, input_ids, attention_mask, logits_to_keep, *rest, **how)
    logits = model(input_ids=input_ids, attention_mask=attention_mask).logits[:, -logits_to_keep - 1 : -1]
    logps = logits.log_softmax(-1)
    entropy = -(logps.exp() * logps).sum(-1)
    return logps.gather(-1, input_ids[:, -logits_to_keep:, None]).squeeze(-1), entropy, None


def logits_shifted(trainer: Any, inner: Any, *given: Any, **how: Any) -> Any:
    logps, *rest = inner(*given, **how)
    return (torch.cat([logps[:, 1:], logps[:, -1:]], 1), *rest)


def padding_attended(
    trainer: Any, inner: Any, model: Any, input_ids: Any, attention_mask: Any, *given: Any, **how: Any
) -> Any:
    return inner(model, input_ids, torch.ones_like(attention_mask), *given, **how)


def old_is_stale(trainer: Any) -> None:
    start = copy.deepcopy(trainer.model).eval()
    inner = trainer._get_per_token_logps_and_entropies

    def planted(model: Any, *given: Any, **how: Any) -> Any:
        return inner(model if torch.is_grad_enabled() else start, *given, **how)

    trainer._get_per_token_logps_and_entropies = planted


def reference_is_policy(trainer: Any, inner: Any, model: Any, *given: Any, **how: Any) -> Any:
    return inner(trainer.model if model is trainer.ref_model else model, *given, **how)


def first_token_dropped(trainer: Any, output: dict[str, Any]) -> None:
    output["completion_mask"] = output["completion_mask"].clone()
    output["completion_mask"][:, 0] = 0


def truncated_in_loss(trainer: Any) -> None:
    trainer.mask_truncated_completions = False


def nothing(trainer: Any) -> None:
    """The bug is in the sampler of the run itself (`trl_runs.Sampler`)."""


_LOSS = "_compute_loss"
_SCORE = "_generate_and_score_completions"
_LOGPS = "_get_per_token_logps_and_entropies"
PLANTS: dict[str, Plant] = {
    "eos_left_out": generated_changed(eos_left_out),
    "padding_in_loss": generated_changed(padding_in_loss),
    "mask_shifted": generated_changed(mask_shifted),
    "observations_in_loss": generated_changed(observations_in_loss),
    "mask_inverted": generated_changed(mask_inverted),
    "mean_of_microbatches": edited(
        _LOSS,
        ("loss = (per_token_loss * mask).sum() / normalizer", "loss = (per_token_loss * mask).sum() / mask.sum() / 4"),
    ),
    "divided_twice": divided_twice,
    "normalizer_of_generation": edited(
        _LOSS,
        (
            "normalizer = normalizer * self.current_gradient_accumulation_steps / self.args.steps_per_generation",
            "pass",
        ),
    ),
    "sequence_mean_is_fixed_length": edited(
        _LOSS,
        (
            "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
            "loss = ((per_token_loss * mask).sum(-1) / self.max_completion_length).mean()",
        ),
    ),
    "last_microbatch_only": around("training_step", last_microbatch_only),
    "std_of_batch": std_of_batch,
    "ddof_0": edited(
        _SCORE,
        (
            "std_rewards = nanstd(rewards.view(-1, num_generations), dim=1)",
            "std_rewards = rewards.view(-1, num_generations).std(dim=1, correction=0)",
        ),
    ),
    "groups_interleaved": around(_SCORE, groups_interleaved),
    "advantages_of_others": rows_shuffled_without_advantages,
    "negatives_dropped": edited(
        _LOSS, ('advantages = inputs["advantages"]', 'advantages = inputs["advantages"].clamp(min=0)')
    ),
    "weights_of_rewards_ignored": around(_SCORE, weights_of_rewards_ignored),
    "ratio_is_1": edited(
        _LOSS,
        (
            "per_token_logps.detach() if old_per_token_logps is None else old_per_token_logps",
            "per_token_logps.detach()",
        ),
    ),
    "clip_wrong_side": edited(
        _LOSS,
        (
            "per_token_loss = -torch.min(per_token_loss1, per_token_loss2)",
            "per_token_loss = -torch.max(per_token_loss1, per_token_loss2)",
        ),
    ),
    "epsilon_high_ignored": edited(
        _LOSS,
        (
            "torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_high)",
            "torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_low)",
        ),
    ),
    "kl_reversed": edited(
        _LOSS,
        (
            "torch.exp(ref_per_token_logps - per_token_logps) - (ref_per_token_logps - per_token_logps) - 1",
            "torch.exp(per_token_logps - ref_per_token_logps) - (per_token_logps - ref_per_token_logps) - 1",
        ),
    ),
    "k1_in_loss": edited(
        _LOSS,
        (
            "torch.exp(ref_per_token_logps - per_token_logps) - (ref_per_token_logps - per_token_logps) - 1",
            "per_token_logps - ref_per_token_logps",
        ),
    ),
    "correction_missing": edited(
        _LOSS, ('per_token_loss = per_token_loss * inputs["importance_sampling_ratio"]', "pass")
    ),
    "temperature_left_out": around(_LOGPS, temperature_left_out),
    "logits_shifted": around(_LOGPS, logits_shifted),
    "padding_attended": around(_LOGPS, padding_attended),
    "old_is_stale": old_is_stale,
    "reference_is_policy": around(_LOGPS, reference_is_policy),
    "baseline_missing": edited(_SCORE, ("advantages = rewards - mean_grouped_rewards", "advantages = rewards")),
    "baseline_of_batch": edited(
        _SCORE, ("advantages = rewards - mean_grouped_rewards", "advantages = rewards - torch.nanmean(rewards)")
    ),
    "groups_of_two": edited(
        _SCORE,
        (
            "mean_grouped_rewards = torch.nanmean(rewards.view(-1, num_generations), dim=1)",
            "num_generations = 2; mean_grouped_rewards = torch.nanmean(rewards.view(-1, 2), dim=1)",
        ),
    ),
    "sign_flipped": edited(
        _LOSS,
        (
            "per_token_loss = -torch.min(per_token_loss1, per_token_loss2)",
            "per_token_loss = torch.min(per_token_loss1, per_token_loss2)",
        ),
    ),
    "kl_forgotten": edited(_LOSS, ("per_token_loss = per_token_loss + self.beta * per_token_kl", "pass")),
    "kl_subtracted": edited(
        _LOSS,
        (
            "per_token_loss = per_token_loss + self.beta * per_token_kl",
            "per_token_loss = per_token_loss - self.beta * per_token_kl",
        ),
    ),
    "first_token_dropped": generated_changed(first_token_dropped),
    "truncated_in_loss": truncated_in_loss,
    "sequence_ratio": edited(
        _LOSS,
        ('if self.importance_sampling_level == "token":', "if False:"),
        ('elif self.importance_sampling_level == "sequence":', "elif True:"),
    ),
    "sum_of_tokens": edited(
        _LOSS, ("loss = (per_token_loss * mask).sum() / normalizer", "loss = (per_token_loss * mask).sum()")
    ),
    "delta_ignored": edited(_LOSS, ("coef_1 = torch.clamp(coef_1, max=self.args.delta)", "pass")),
    "reference_without_temperature": around(_LOGPS, partial(temperature_left_out, of_reference=True)),
    "sampler_temperature": nothing,
    "sampler_stale": nothing,
    "sampler_top_p": nothing,
    "sampler_bfloat16": nothing,
}

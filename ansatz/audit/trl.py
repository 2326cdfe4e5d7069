"""Records steps of TRL's GRPOTrainer as step bundles. Written for TRL 1.16, run against the real package.

    trainer = GRPOTrainer(...)
    Recorder(trainer, steps=[1, 50])     # and nothing else changes
    trainer.train()                      # writes bundles/step-000001, bundles/step-000050
    $ ansatz audit bundles/step-000001

The recorder wraps methods of the trainer and writes down their arguments and results. It looks at the loss from both
sides: the log-probs that the loss was computed from, and the gradient with respect to them that autograd gave. With
`recompute`, it also computes the log-probs itself, response by response and without padding, from the weights of that
moment: one more forward and backward pass for each recorded step.

Axes: N rollouts of the generations of a step, T flat tokens. One process; images, Liger kernels and adapters of PEFT
are not looked into.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import TrainerCallback

from ansatz.audit.bundle import Bundle, write_bundle
from ansatz.audit.promise import RUN_OPTIONS
from ansatz.errors import ConfigError
from ansatz.links import make_folder
from ansatz.objectives.projects.options import read_options

_ROW = "ansatz_row"
_LOGPS = {"old": "old_per_token_logps", "ref": "ref_per_token_logps", "behavior": "sampling_per_token_logps"}


@dataclass(slots=True)
class _Rollout:
    """One response of a generation: its tokens, and its rewards."""

    prompt: Sequence[int]
    tokens: Sequence[int]
    sampled: Sequence[bool]
    group: int
    rewards: Sequence[float]
    advantage: float
    texts: dict[str, Any]
    truncated: bool
    recomputed: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class _Microbatch:
    """The arguments and the results of one call of the loss. gradient [B, C] comes with the backward pass."""

    inputs: dict[str, Any]
    loss: float = float("nan")
    logps: Tensor | None = None
    entropy: Tensor | None = None
    gradient: Tensor | None = None


class Recorder(TrainerCallback):
    """Writes the optimizer steps `steps`, counted from 1, of a GRPOTrainer into folders of their own below `folder`.

    answer: the column of the data set with gold answers, for grading again. recompute: see the top of this file.
    """

    def __init__(
        self,
        trainer: Any,
        steps: Sequence[int],
        *,
        folder: str | Path = "bundles",
        answer: str = "answer",
        recompute: bool = True,
    ) -> None:
        if trainer.accelerator.num_processes != 1:
            raise ConfigError("the recorder looks into one process. Record a run on one process.")
        self.trainer, self.steps, self.folder = trainer, frozenset(steps), Path(folder)
        self.answer, self.recompute = answer, recompute
        self._rollouts = list[_Rollout]()
        self._microbatches = list[_Microbatch]()
        self._generated: Any = None
        self._rewards: Any = None
        self._scored: Any = None
        self._in_loss = False
        self._norm: float | None = None
        self._again: dict[str, float] = {}
        for name, hook in (
            ("_generate", self._on_generate),
            ("_calculate_rewards", self._on_rewards),
            ("_generate_and_score_completions", self._on_scored),
            ("_get_per_token_logps_and_entropies", self._on_logps),
            ("_compute_loss", self._on_loss),
            ("training_step", self._on_training_step),
        ):
            setattr(trainer, name, functools.partial(hook, getattr(trainer, name)))
        trainer.add_callback(self)

    @property
    def _watched(self) -> bool:
        return bool(self.trainer.model.training) and self.trainer.state.global_step + 1 in self.steps

    def _on_generate(self, inner: Callable[..., Any], *args: Any, **how: Any) -> Any:
        self._generated = inner(*args, **how)
        return self._generated

    def _on_rewards(self, inner: Callable[..., Any], *args: Any, **how: Any) -> Any:
        self._scored, self._rewards = args[:2], inner(*args, **how)
        return self._rewards

    def _on_scored(self, inner: Callable[..., Any], inputs: Any) -> Any:
        """Keep a generation if any step that learns from it is recorded."""
        output = inner(inputs)
        arguments, first = self.trainer.args, self.trainer.state.global_step + 1
        steps = -(-arguments.steps_per_generation * arguments.num_iterations // arguments.gradient_accumulation_steps)
        if not self.trainer.model.training or not self.steps & set(range(first, first + steps)):
            return output
        if not self._microbatches:  # otherwise several generations belong to one optimizer step
            self._rollouts = []
        start = len(self._rollouts)
        self._rollouts += self._generation(output)
        output[_ROW] = torch.arange(start, len(self._rollouts), device=output["completion_ids"].device)
        return output

    def _generation(self, output: Any) -> list[_Rollout]:
        inputs, given = self._scored  # as the rewards saw them, in the order of the responses
        prompts, completions, tool_mask, texts = self._generated[:4]
        end = {*self.trainer.eos_token_ids, self.trainer._tokenizer.pad_token_id}
        names, groups = [str(prompt) for prompt in given], dict[tuple[str, int], int]()
        seen, rollouts = dict[str, int](), list[_Rollout]()
        for row, name in enumerate(names):
            place = seen[name] = seen.get(name, -1) + 1
            key = (name, place // self.trainer.num_generations)  # a prompt can come twice in a batch
            sampled = [True] * len(completions[row]) if tool_mask is None else list(map(bool, tool_mask[row]))
            known = {"prompt": names[row], "response": _text(texts[row]), "answer": inputs[row].get(self.answer)}
            rollouts.append(
                _Rollout(
                    prompt=prompts[row],
                    tokens=list(completions[row]),
                    sampled=sampled,
                    group=len(self._rollouts) + groups.setdefault(key, len(groups)),
                    rewards=self._rewards[row].tolist(),
                    advantage=float(output["advantages"].reshape(len(names), -1)[row, 0]),
                    texts={key: _plain(value) for key, value in known.items() if value is not None},
                    truncated=completions[row][-1] not in end,
                )
            )
        if self.recompute:
            self._compute_again(rollouts, other_dtype=self._generated[4] is not None)
        return rollouts

    def _compute_again(self, rollouts: Sequence[_Rollout], *, other_dtype: bool) -> None:
        """Compute log-probs under the current weights, and under the other settings that could explain a difference."""
        model, temperature = self.trainer.model, self.trainer.args.temperature
        models = {"old": (model, temperature), "ref": (getattr(self.trainer, "ref_model", None), temperature)}
        if temperature != 1:
            models |= {"raw": (model, 1.0), "ref_raw": (models["ref"][0], 1.0)}
        models["bfloat16"] = (model if other_dtype else None, temperature)
        for name, (each, divisor) in models.items():
            for rollout in rollouts if each is not None else ():
                rollout.recomputed[name] = self._logp(each, rollout, divisor, rounded=name == "bfloat16")

    def _on_logps(self, inner: Callable[..., Any], *args: Any, **how: Any) -> Any:
        output = inner(*args, **how)
        if self._in_loss and output[0].requires_grad:
            microbatch = self._microbatches[-1]
            microbatch.logps = output[0].detach().float().cpu()
            microbatch.entropy = None if output[1] is None else output[1].detach().float().cpu()
            output[0].register_hook(functools.partial(self._keep_gradient, microbatch))
        return output

    def _keep_gradient(self, microbatch: _Microbatch, gradient: Tensor) -> None:
        microbatch.gradient = gradient.detach().float().cpu() / self._scale

    @property
    def _scale(self) -> float:
        """The factor that the loss is multiplied with before a backward pass in float16; else 1."""
        scaler = self.trainer.accelerator.scaler
        return 1.0 if scaler is None else scaler.get_scale()

    def _on_loss(self, inner: Callable[..., Any], model: Any, inputs: Any) -> Any:
        if not self._watched or _ROW not in inputs:
            return inner(model, inputs)
        kept = {key: value.detach().cpu() for key, value in inputs.items() if isinstance(value, Tensor)}
        self._microbatches.append(_Microbatch(inputs=kept))
        self._in_loss = True
        try:
            loss = inner(model, inputs)
        finally:
            self._in_loss = False
        self._microbatches[-1].loss = float(loss.detach())
        if self.recompute:
            for row in kept[_ROW].tolist():
                self._rollouts[row].recomputed["policy"] = self._logp(model, self._rollouts[row])
        return loss

    def _on_training_step(self, inner: Callable[..., Any], *args: Any, **how: Any) -> Any:
        output = inner(*args, **how)
        if self._microbatches:  # until the last microbatch, and before the gradient is clipped
            self._norm = _norm(parameter.grad for parameter in self.trainer.model.parameters()) / self._scale
        return output

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Compute the gradient of the step again: carry the gradient of the log-probs to the weights in one piece."""
        if not self._microbatches or not self.recompute:
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        total = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in parameters]
        norms = list[float]()
        for microbatch in self._microbatches:
            before = [value.clone() for value in total]
            for place, row in enumerate(microbatch.inputs[_ROW].tolist()):
                rollout = self._rollouts[row]
                if microbatch.gradient is None or not len(rollout.tokens):
                    continue
                logp = self._forward(model, rollout)
                weight = microbatch.gradient[place, : len(logp)].to(logp)
                found = torch.autograd.grad((logp * weight).sum(), parameters, allow_unused=True)
                for sum_, value in zip(total, found, strict=True):
                    if value is not None:
                        sum_ += value.float()
            norms.append(_norm(now - then for now, then in zip(total, before, strict=True)))
        along = sum(
            float((a * b.grad.float()).sum()) for a, b in zip(total, parameters, strict=True) if b.grad is not None
        )
        real, norm = _norm(parameter.grad for parameter in parameters), _norm(total)
        cosine = along / (real * norm) if real and norm else float("nan")
        last = norms[-1] if norms else float("nan")
        self._again = {"grad_norm": norm, "cosine": cosine, "grad_norm_of_last": last}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._microbatches:
            return
        folder = make_folder(self.folder / f"step-{state.global_step:06d}")
        write_bundle(folder, self._bundle(state.global_step))
        self._microbatches, self._again, self._norm = [], {}, None

    def _bundle(self, step: int) -> Bundle:
        arguments, rows = self.trainer.args, self._rollouts
        names = [*(option.name for option in read_options("trl")), *RUN_OPTIONS]
        options = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
        options["reward_weights"] = [float(weight) for weight in self.trainer.reward_weights]
        plain = bool | int | float | str | list | None
        options = {name: value for name, value in options.items() if isinstance(value, plain)}
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        loss = [microbatch.loss for microbatch in self._microbatches]
        items = [float(microbatch.inputs["num_items_in_batch"]) for microbatch in self._microbatches]
        return Bundle(
            project="trl",
            version=version("trl"),
            step=step,
            arrays=_arrays(rows, self._microbatches),
            options=options,
            expected={"loss_of_microbatches": loss, **({} if self._norm is None else {"grad_norm": self._norm})},
            rollouts=[rollout.texts for rollout in rows],
            notes={
                "dtype": dtype,
                "rewards": list(self.trainer.reward_func_names),
                "num_items_in_batch": items,
                "again": {name: value for name, value in self._again.items() if value == value},
                "end_ids": sorted(self.trainer.eos_token_ids),
            },
        )

    @torch.no_grad()
    def _logp(
        self, model: Any, rollout: _Rollout, temperature: float | None = None, *, rounded: bool = False
    ) -> np.ndarray[Any, Any]:
        training = model.training
        model.eval()
        try:
            return self._forward(model, rollout, temperature, rounded=rounded).cpu().numpy()
        finally:
            model.train(training)

    def _forward(
        self, model: Any, rollout: _Rollout, temperature: float | None = None, *, rounded: bool = False
    ) -> Tensor:
        """Return the log-probs of a response's tokens, from the response alone, without padding."""
        model = self.trainer.accelerator.unwrap_model(model)
        tokens = torch.tensor([[*rollout.prompt, *rollout.tokens]], device=next(model.parameters()).device)
        weights = {name: value.bfloat16() for name, value in model.named_parameters()} if rounded else {}
        logits = torch.func.functional_call(model, weights, kwargs={"input_ids": tokens}).logits
        logits = logits[0, len(rollout.prompt) - 1 : -1].float()
        logits = logits / (temperature or self.trainer.args.temperature)
        return logits.log_softmax(-1).gather(-1, tokens[0, len(rollout.prompt) :, None]).squeeze(-1)


def _norm(values: Any) -> float:
    return float(sum(float(value.float().square().sum()) for value in values if value is not None)) ** 0.5


def _plain(value: Any) -> str | list[str]:
    """Return a value as text; a list, such as one of accepted answers, as a list of texts."""
    return [str(each) for each in value] if isinstance(value, list) else str(value)


def _text(completion: Any) -> str:
    """Return the text of a completion, which is a text or a list of messages."""
    if isinstance(completion, str):
        return completion
    return "\n".join(str(message.get("content") or "") for message in completion)


def _arrays(rows: Sequence[_Rollout], microbatches: Sequence[_Microbatch]) -> dict[str, np.ndarray[Any, Any]]:
    """Lay the padded rows of the microbatches on the flat axis. A row ends after its last token that was sampled, that
    is in the mask, or that has a gradient."""
    place_of = {
        row: (number, place)
        for number, microbatch in enumerate(microbatches)
        for place, row in enumerate(microbatch.inputs[_ROW].tolist())
    }
    pieces = [_row(rollout, _found(microbatches, place_of.get(row))) for row, rollout in enumerate(rows)]
    count_N = [len(piece["token_T"]) for piece in pieces]
    kinds = {name: values.dtype for piece in pieces for name, values in piece.items()}
    whole = {  # of rollouts that are not in this update, which microbatch_N says, the columns of the loss are 0
        name: np.concatenate([piece.get(name, np.zeros(len(piece["token_T"]), kind)) for piece in pieces])
        for name, kind in kinds.items()
    }
    return {
        **whole,
        "segment_T": np.repeat(np.arange(len(rows)), count_N),
        "prompt_length_N": np.array([len(rollout.prompt) for rollout in rows]),
        "group_N": np.array([rollout.group for rollout in rows]),
        "component_NK": np.array([rollout.rewards for rollout in rows], np.float32),
        "advantage_N": np.array([rollout.advantage for rollout in rows], np.float32),
        "truncated_N": np.array([rollout.truncated for rollout in rows]),
        "microbatch_N": np.array([place_of[row][0] if row in place_of else -1 for row in range(len(rows))]),
    }


def _found(microbatches: Sequence[_Microbatch], place: tuple[int, int] | None) -> dict[str, Any]:
    """Return the arrays of the loss at a row, and the ids of its completion with their padding."""
    if place is None:
        return {}
    microbatch, index = microbatches[place[0]], place[1]
    inputs = microbatch.inputs
    mask = inputs["completion_mask"] * inputs.get("tool_mask", torch.ones_like(inputs["completion_mask"]))
    columns: dict[str, Any] = {"mask": mask, "policy_logp": microbatch.logps, "gradient": microbatch.gradient}
    columns |= {"entropy": microbatch.entropy, "ids": inputs["completion_ids"]}
    columns |= {f"{name}_logp": inputs.get(key) for name, key in _LOGPS.items()}
    columns["correction"] = inputs.get("importance_sampling_ratio")
    columns["advantage"] = inputs["advantages"].reshape(len(mask), -1)
    width = mask.shape[1]
    return {name: value[index].expand(width).numpy() for name, value in columns.items() if value is not None}


def _row(rollout: _Rollout, found: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    used = np.flatnonzero((found["mask"] != 0) | (found.get("gradient", found["mask"]) != 0)) if found else np.array([])
    length, size = len(rollout.tokens), max(len(rollout.tokens), int(used[-1]) + 1 if len(used) else 0)
    prompt = len(rollout.prompt)
    rest = found["ids"][length:size] if size > length else []

    def laid(values: Any, kind: type[Any] | None = None) -> np.ndarray[Any, Any]:
        values = np.asarray(values, kind)[:size]
        out = np.zeros(prompt + size, values.dtype)
        out[prompt : prompt + len(values)] = values
        return out

    arrays = {
        "token_T": np.array([*rollout.prompt, *rollout.tokens, *rest], np.int64),
        "sampled_mask_T": laid(rollout.sampled, bool),
        "observation_T": laid(~np.array(rollout.sampled, bool), bool),
        **{f"recomputed_{name}_logp_T": laid(values, np.float32) for name, values in rollout.recomputed.items()},
        **{f"{name}_T": laid(values, np.float32) for name, values in found.items() if name not in ("mask", "ids")},
    }
    return {**arrays, "mask_T": laid(found["mask"], bool)} if found else arrays

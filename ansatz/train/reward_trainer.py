"""RewardTrainer: trains a reward model on labelled responses or steps.

Its samples are `TrainSample`s with a label for each token at which the model is read (`steps`), so that packing and
microbatches are those of the policy. Axes: N responses, T flat tokens, M labelled tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor

from ansatz.config.schema import TrainSection
from ansatz.errors import ModelError, NonFiniteError
from ansatz.models.load import Policy
from ansatz.models.logps import chunked_logps
from ansatz.models.reward_model import Reads, head_scores, load_reward_model, scores_at
from ansatz.models.save import save_model
from ansatz.models.threads import parallel_map
from ansatz.objectives.reward_losses import label_loss, pair_loss, pairs_of_groups
from ansatz.track.measurements import Measurement, Measurements, mean, merge
from ansatz.train.exact_weights import EXACT_WEIGHTS, has_exact_weights
from ansatz.train.optim import Schedule
from ansatz.train.optimizers import bind_optimizer
from ansatz.train.packed import PackedRollouts, pack_rollouts, select_rollouts, split_into_microbatches
from ansatz.train.placement import ONE_PROCESS, read_tensors
from ansatz.train.sample import TrainSample
from ansatz.train.step import not_made
from ansatz.train.trainer import TRAINING, StepReport, incomplete

Kind = Literal["bradley_terry", "correctness", "process"]


def reads(kind: Kind) -> Reads:
    """What a model of this kind scores."""
    return "step" if kind == "process" else "response"


@dataclass(frozen=True, slots=True)
class LabelledBatch:
    """Packed responses, and the number of pairs or labels that the loss of a step is divided by."""

    packed: PackedRollouts
    num_terms: int


@dataclass(frozen=True, slots=True)
class LanguageLoss:
    """The language-modelling loss of correct responses as a second term of the loss (arXiv:2110.14168, sec. 4.2).

    The mean over response tokens of - log p, where the tokens of a response count by its label, or by that of its last
    step. weight_VH: the output embedding of the policy, which is not trained. coef: of this term.
    """

    weight_VH: Tensor
    coef: float
    softcap: float | None = None


class RewardTrainer:
    """Trains `model`, which is cast to dtype in place. settings: its optimizer, clipping and microbatches.

    language: a second term of the loss; None: there is none.
    """

    def __init__(
        self,
        model: Policy,
        *,
        kind: Kind,
        settings: TrainSection,
        dtype: torch.dtype,
        lr: float,
        schedule: Schedule,
        language: LanguageLoss | None = None,
        export_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model, self.settings, self._language = model, settings, language
        self.kind: Kind = kind
        self._lr, self._schedule, self._lr_scale, self._export_dtype = lr, schedule, 1.0, export_dtype
        self.version = 0
        self.optimizer = bind_optimizer(settings.optimizer)(model.model, dtype)

    @property
    def changes(self) -> int:
        return self.optimizer.changes

    def set_lr_scale(self, scale: float) -> None:
        self._lr_scale = scale

    def batch(self, samples: Sequence[TrainSample]) -> LabelledBatch:
        """A whole step's samples. ValueError as from `pack_rollouts`."""
        packed = pack_rollouts(samples, device=self.model.device)
        if self.kind != "bradley_terry":
            return LabelledBatch(packed, int(packed.step_end_T.sum()))
        better_P, _ = pairs_of_groups(packed.reward_N, packed.group_N)
        return LabelledBatch(packed, len(better_P))

    def update(self, batch: LabelledBatch, *, step: int) -> StepReport:
        """One optimizer step. NonFiniteError, before anything has changed, for a loss or gradient of nan or inf."""
        packed = batch.packed
        parts = list(self._microbatches(packed))
        total_loss, measured = 0.0, list[Measurements]()
        num_correct_tokens = max(float(packed.reward_N[packed.segment_T[packed.mask_T]].sum()), 1.0)

        def loss_and_gradients(part: PackedRollouts) -> tuple[float, Measurements, list[Tensor | None]]:
            score_M, logp_K = self._scores_and_logps(part)
            label_M = part.step_reward_T[part.step_end_T]
            if self.kind == "bradley_terry":
                loss = pair_loss(score_M, label_M, part.group_N, num_pairs=batch.num_terms)
            else:
                loss = label_loss(score_M, label_M, num_labels=batch.num_terms)
            metrics = {"reward_model/train_accuracy": self._accuracy(score_M.detach(), label_M, part.group_N)}
            if logp_K is not None and self._language is not None:
                weight_K = part.reward_N[part.segment_T[part.mask_T]]
                total = -(weight_K * logp_K).sum()
                loss = loss + self._language.coef * total / num_correct_tokens
                metrics["reward_model/language_loss"] = mean(float(total.detach()), float(weight_K.sum()))
            return float(loss.detach()), metrics, self.optimizer.gradients(loss)

        workers = self.model.parallel_microbatches
        for loss, accuracy, gradients in parallel_map(loss_and_gradients, parts, workers):
            self.optimizer.accumulate(gradients)
            total_loss += loss
            measured.append(accuracy)
        if not math.isfinite(total_loss):
            self.optimizer.zero_grad()
            raise NonFiniteError(not_made(step, f"the loss is {total_loss}"))
        lr = self._lr * self._lr_scale * self._schedule.multiplier(step)
        try:
            norm = self.optimizer.step(lr=lr, max_grad_norm=self.settings.max_grad_norm)
        except NonFiniteError as error:
            raise NonFiniteError(not_made(step, str(error))) from error
        self.version += 1
        merged = merge(measured)
        merged |= {"train/loss": Measurement(total_loss), "train/lr": Measurement(lr)}
        merged["train/grad_norm"] = Measurement(norm)
        return StepReport(measurements=merged, num_updates=1, num_tokens=packed.num_tokens)

    def scores(self, packed: PackedRollouts) -> Tensor:
        """[M]: the score at each labelled token, in the order of the flat axis."""
        return scores_at(
            self.model,
            packed.token_T,
            packed.position_T,
            packed.segment_T,
            prompt_id_T=packed.prompt_id_T,
            at_M=packed.step_end_T.nonzero().squeeze(-1),
        )

    def _scores_and_logps(self, packed: PackedRollouts) -> tuple[Tensor, Tensor | None]:
        """The scores, and with a language loss the log-prob [K] of each response token, from one forward pass."""
        language = self._language
        if language is None:
            return self.scores(packed), None
        read_M, token_K = (mask_T.nonzero().squeeze(-1) for mask_T in (packed.step_end_T, packed.mask_T))
        hidden = self.model.packed_hidden(
            packed.token_T,
            packed.position_T,
            packed.segment_T,
            prompt_id_T=packed.prompt_id_T,
            at_M=torch.cat([read_M, token_K - 1]),
        )
        hidden_MH, hidden_KH = hidden[: len(read_M)], hidden[len(read_M) :]
        target_K = packed.token_T[token_K]
        logp_K, _ = chunked_logps(hidden_KH, language.weight_VH, target_K, softcap=language.softcap)
        return head_scores(self.model, hidden_MH), logp_K

    def score_samples(self, samples: Sequence[TrainSample]) -> list[list[float]]:
        """The scores of each sample at its labelled tokens, without gradient. The labels have no effect."""
        numbered = [replace(sample, group=index) for index, sample in enumerate(samples)]
        packed = pack_rollouts(numbered, device=self.model.device)
        workers = self.model.parallel_microbatches
        splits = split_into_microbatches(packed, self.settings.tokens_per_microbatch, multiple=workers)
        scores: list[list[float]] = [[] for _ in samples]

        def scored(segments: Tensor) -> list[tuple[int, float]]:
            part = select_rollouts(packed, segments)
            index_M = part.group_N[part.segment_T[part.step_end_T]]
            with torch.no_grad():
                return list(zip(index_M.tolist(), self.scores(part).tolist(), strict=True))

        for pairs in parallel_map(scored, splits, workers):
            for index, score in pairs:
                scores[index].append(score)
        return scores

    def _microbatches(self, packed: PackedRollouts) -> list[PackedRollouts]:
        """Responses to one prompt stay together where the loss compares them."""
        limit, workers = self.settings.tokens_per_microbatch, self.model.parallel_microbatches
        pairs = self.kind == "bradley_terry"
        splits = split_into_microbatches(packed, limit, multiple=workers, whole_groups=pairs)
        return [select_rollouts(packed, segments) for segments in splits]

    def _accuracy(self, score_M: Tensor, label_M: Tensor, group_N: Tensor) -> Measurement:
        """The fraction of pairs in the right order, or of labels on the right side of 0."""
        if self.kind == "bradley_terry":
            better_P, worse_P = pairs_of_groups(label_M, group_N)
            return mean(int((score_M[better_P] > score_M[worse_P]).sum()), len(better_P))
        return mean(int(((score_M > 0) == (label_M > 0.5)).sum()), len(label_M))

    def save(self, folder: Path) -> None:
        """A Hugging Face classifier, and in TRAINING the state of the optimizer."""
        weights = self.optimizer.weights()
        whole = {name: parameter.detach() for name, parameter in self.model.model.named_parameters()} | weights
        save_model(self.model, folder, state=whole, dtype=self._export_dtype)
        if self._export_dtype != torch.float32:
            ONE_PROCESS.write(folder / TRAINING, EXACT_WEIGHTS, weights)
        ONE_PROCESS.write(folder / TRAINING, "optimizer", self.optimizer.state())

    @property
    def checkpoint_bytes(self) -> int:
        """About the size of a checkpoint: weights, and the moments of AdamW in float32."""
        exact = 0 if self._export_dtype == torch.float32 else 4
        return self.model.num_parameters * (self._export_dtype.itemsize + exact + 8)

    def state(self) -> dict[str, Any]:
        return {"version": self.version}

    def restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        """The inverse of `save` and `state`. CheckpointError, before anything has changed, for incomplete files."""
        try:
            version = int(state["version"])
            weights = read_weights(folder, reads(self.kind))
            moments = read_tensors(folder / TRAINING, "optimizer", like={})
        except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
            raise incomplete(folder, error) from error
        self.optimizer.load(weights, moments)
        self.version = version


def read_weights(folder: Path, kind: Reads) -> dict[str, Tensor]:
    """The float32 weights of a checkpoint of a reward model, by parameter name."""
    if has_exact_weights(folder):
        return read_tensors(folder / TRAINING, EXACT_WEIGHTS, like={})
    return dict(load_reward_model(folder, reads=kind, device="cpu").model.named_parameters())

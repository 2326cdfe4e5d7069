"""RewardTrainer: trains a reward model on labelled responses or steps.

Its samples are `TrainSample`s with a label for each token at which the model is read (`steps`), so that packing and
microbatches work as for the policy. Axes: N responses, T flat tokens, M labelled tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor

from ansatz.config.schema import TrainSection
from ansatz.errors import ModelError, NonFiniteError
from ansatz.models import lora
from ansatz.models.load import Policy
from ansatz.models.logps import chunked_logps, hidden_at
from ansatz.models.peak_memory import PeakMemory
from ansatz.models.save import save_model
from ansatz.models.threads import parallel_map
from ansatz.objectives.advantage_rule import scattered
from ansatz.reward_models.losses import label_loss, pair_loss, pairs_of_groups
from ansatz.reward_models.model import Reads, head_scores, load_reward_model
from ansatz.track.measurements import Measurement, Measurements, mean
from ansatz.train.logps import without_gradient
from ansatz.train.optim import Schedule, mask_gradients
from ansatz.train.packed import PackedRollouts, pack_rollouts, select_rollouts
from ansatz.train.placement import EXACT_WEIGHTS, ONE_PROCESS, Placement, has_exact_weights, placed_like, read_tensors
from ansatz.train.ranks import on_first_rank, split_for_rank
from ansatz.train.sample import TrainSample
from ansatz.train.step import MicrobatchResult, accumulate_gradients, not_made
from ansatz.train.trainer import TRAINING, Batch, Checkpointed, Skipped, StepReport, incomplete

Kind = Literal["bradley_terry", "correctness", "process"]


def reads(kind: Kind) -> Reads:
    """Return the unit that a model of this kind scores: a step or a whole response."""
    return "step" if kind == "process" else "response"


@dataclass(frozen=True, slots=True)
class LabelledBatch:
    """Packed responses, and the number of pairs or labels by which the loss of a step is divided."""

    packed: PackedRollouts
    num_terms: int


@dataclass(frozen=True, slots=True)
class LanguageLoss:
    """The language-modelling loss of correct responses as a second term of the loss (arXiv:2110.14168, sec. 4.2).

    The mean over response tokens of - log p. The tokens of a response count by its label, or by the label of its last
    step. weight_VH: the output embedding of the policy, which is not trained. coef: coefficient of this term.
    """

    weight_VH: Tensor
    coef: float
    softcap: float | None = None


class RewardModelTrainer(Checkpointed, Protocol[Batch]):
    """The trainer that the stage `reward_model` needs: a `RewardTrainer`, or several as ranks."""

    @property
    def tokenizer(self) -> Any: ...

    def batch(self, samples: Sequence[TrainSample]) -> Batch: ...

    def update(self, batch: Batch, *, step: int) -> StepReport: ...

    def score_samples(self, samples: Sequence[TrainSample]) -> list[list[float]]: ...

    def close(self) -> None: ...


class RewardTrainer:
    """Trains `model`, which is cast to dtype in place. settings: its optimizer, clipping and microbatches.

    language: a second term of the loss; None: there is none. placement: where the weights are kept. If there are
    several ranks, each holds a RewardTrainer, and all of them make the same calls with the same arguments.
    """

    needs_greedy = False
    published_bytes = 0
    """No sampler needs the weights."""

    def __init__(
        self,
        model: Policy,
        *,
        kind: Kind,
        settings: TrainSection,
        dtype: torch.dtype,
        schedule: Schedule,
        language: LanguageLoss | None = None,
        export_dtype: torch.dtype = torch.float32,
        placement: Placement = ONE_PROCESS,
    ) -> None:
        self.settings, self._language = settings, language
        self.placement, self.ranks = placement, placement.ranks
        self.kind: Kind = kind
        self._schedule, self._lr_scale, self._export_dtype = schedule, 1.0, export_dtype
        self.on_skip: Callable[[Skipped], None] = lambda skipped: None  # an update that is not finite is an error
        self.version = 0
        self.model = placement.policy(model, dtype)
        self.optimizer = placement.optimizer(settings.optimizer)(self.model.model, dtype)
        masters = self.optimizer.masters
        self._written = {name: placed_like(mask, masters[name]) for name, mask in model.written.items()}

    @property
    def tokenizer(self) -> Any:
        return self.model.tokenizer

    @property
    def device(self) -> torch.device:
        return self.model.device

    def watch_memory(self) -> Callable[[], float]:
        return PeakMemory(self.device).gb

    def close(self) -> None:
        """Do nothing: nothing was started."""

    @property
    def changes(self) -> int:
        return self.optimizer.changes

    def set_lr_scale(self, scale: float) -> None:
        self._lr_scale = scale

    def batch(
        self, samples: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None
    ) -> LabelledBatch:
        """Pack a whole step's samples. There are no baselines. Raise ValueError as `pack_rollouts` does."""
        packed = pack_rollouts(samples, device=self.model.device)
        if self.kind != "bradley_terry":
            return LabelledBatch(packed, int(packed.step_end_T.sum()))
        better_P, _ = pairs_of_groups(packed.reward_N, packed.group_N)
        return LabelledBatch(packed, len(better_P))

    def update(self, batch: LabelledBatch, *, step: int, seed: int = 0, check_alignment: bool = False) -> StepReport:
        """Make one optimizer step. Raise NonFiniteError, before any change, for a loss or gradient of nan or inf.

        There are no minibatches that `seed` could deal, and no log-probs of a sampler to check.
        """
        packed, workers = batch.packed, self.model.parallel_microbatches
        limit = self.model.microbatch_tokens(self.settings.tokens_per_microbatch)
        pairs = self.kind == "bradley_terry"  # responses to one prompt are compared, so they stay together
        splits, num_counted = split_for_rank(packed, limit, self.ranks, multiple=workers, whole_groups=pairs)
        parts = [select_rollouts(packed, rollouts) for rollouts in splits]
        num_correct_tokens = max(float(packed.reward_N[packed.segment_T[packed.sampled_mask_T]].sum()), 1.0)

        def compute(number: int) -> MicrobatchResult:
            loss, metrics = self.model.run(lambda: self._loss(parts[number], batch.num_terms, num_correct_tokens))
            if number >= num_counted:
                loss = 0 * loss
            return float(loss.detach()), metrics, self.optimizer.gradients(loss)

        computed = parallel_map(compute, range(len(parts)), workers)
        total_loss, merged = accumulate_gradients(self.optimizer, computed, num_counted, self.ranks, step=step)
        mask_gradients(self.optimizer.masters, self._written)
        lr = self._schedule.lr * self._lr_scale * self._schedule.multiplier(step)
        try:
            norm = self.optimizer.step(lr=lr, max_grad_norm=self.settings.max_grad_norm)
        except NonFiniteError as error:
            raise NonFiniteError(not_made(step, str(error))) from error
        self.version += 1
        merged |= {"train/loss": Measurement(total_loss), "train/lr": Measurement(lr)}
        merged["train/grad_norm"] = Measurement(norm)
        return StepReport(measurements=merged, num_updates=1, num_tokens=packed.num_tokens)

    def _loss(self, part: PackedRollouts, num_terms: int, num_correct_tokens: float) -> tuple[Tensor, Measurements]:
        """Compute a microbatch's part of the loss of the whole batch, and its metrics."""
        score_M, logp_K = self._scores_and_logps(part)
        label_M = part.step_reward_T[part.step_end_T]
        if self.kind == "bradley_terry":
            loss = pair_loss(score_M, label_M, part.group_N, num_pairs=num_terms)
        else:
            loss = label_loss(score_M, label_M, num_labels=num_terms)
        metrics = {"reward_model/train_accuracy": self._accuracy(score_M.detach(), label_M, part.group_N)}
        if logp_K is not None and self._language is not None:
            weight_K = part.reward_N[part.segment_T[part.sampled_mask_T]]
            total = -(weight_K * logp_K).sum()
            loss = loss + self._language.coef * total / num_correct_tokens
            metrics["reward_model/language_loss"] = mean(float(total.detach()), float(weight_K.sum()))
        return loss, metrics

    def scores(self, packed: PackedRollouts) -> Tensor:
        """Compute [M]: the score at each labelled token, in the order of the flat axis."""
        return self.model.run(lambda: self._scores(packed))

    def _scores(self, packed: PackedRollouts) -> Tensor:
        return head_scores(self.model, hidden_at(self.model, packed, packed.step_end_T.nonzero().squeeze(-1)))

    def _scores_and_logps(self, packed: PackedRollouts) -> tuple[Tensor, Tensor | None]:
        """Compute the scores, and with a language loss the log-prob [K] of each response token, in one forward pass."""
        language = self._language
        if language is None:
            return self._scores(packed), None
        read_M, token_K = (mask_T.nonzero().squeeze(-1) for mask_T in (packed.step_end_T, packed.sampled_mask_T))
        hidden = hidden_at(self.model, packed, torch.cat([read_M, token_K - 1]))
        hidden_MH, hidden_KH = hidden[: len(read_M)], hidden[len(read_M) :]
        target_K = packed.token_T[token_K]
        logp_K, _ = chunked_logps(hidden_KH, language.weight_VH, target_K, softcap=language.softcap)
        return head_scores(self.model, hidden_MH), logp_K

    def score_samples(self, samples: Sequence[TrainSample]) -> list[list[float]]:
        """Compute the scores of each sample at its labelled tokens, without gradient. The labels are ignored."""
        numbered = [replace(sample, group=index) for index, sample in enumerate(samples)]
        packed = pack_rollouts(numbered, device=self.model.device)

        def scored(part: PackedRollouts) -> Tensor:
            return scattered(self.scores(part), part.step_end_T)

        score_T = without_gradient(scored, self.model, packed, self.settings.tokens_per_microbatch, self.ranks)
        index_M = packed.group_N[packed.segment_T[packed.step_end_T]]
        scores: list[list[float]] = [[] for _ in samples]
        for index, score in zip(index_M.tolist(), score_T[packed.step_end_T].tolist(), strict=True):
            scores[index].append(score)
        return scores

    def _accuracy(self, score_M: Tensor, label_M: Tensor, group_N: Tensor) -> Measurement:
        """Return the fraction of pairs in the right order, or of labels on the right side of 0."""
        if self.kind == "bradley_terry":
            better_P, worse_P = pairs_of_groups(label_M, group_N)
            return mean(int((score_M[better_P] > score_M[worse_P]).sum()), len(better_P))
        return mean(int(((score_M > 0) == (label_M > 0.5)).sum()), len(label_M))

    def save(self, folder: Path) -> None:
        """Write a Hugging Face classifier (adapters merged), `adapter/`, and in TRAINING the state of the optimizer."""
        trained = self.optimizer.weights()
        if self.model.base is None:
            frozen = {name: parameter.detach() for name, parameter in self.model.model.named_parameters()}
            weights, adapters = self.placement.whole(frozen | trained), {}
        else:
            base, adapters = (
                self.placement.whole(dict(self.model.base.named_parameters())),
                self.placement.whole(trained),
            )
            weights = lora.merge_adapters(self.model, base, adapters) if base else {}

        def save_folder() -> None:
            save_model(self.model, folder, state=weights, dtype=self._export_dtype)
            if self.model.base is not None:
                lora.save_adapters(self.model, folder / lora.FOLDER, weights=adapters)

        on_first_rank(save_folder, self.ranks)
        if self._export_dtype != torch.float32 and self.model.base is None:
            self.placement.write(folder / TRAINING, EXACT_WEIGHTS, trained)
        self.placement.write(folder / TRAINING, "optimizer", self.optimizer.state())

    @property
    def checkpoint_bytes(self) -> int:
        """Approximate size of a checkpoint: weights, and the moments of AdamW in float32."""
        return self.weights_bytes + 8 * sum(master.numel() for master in self.optimizer.masters.values())

    @property
    def weights_bytes(self) -> int:
        exact = 0 if self._export_dtype == torch.float32 else 4
        return self.model.num_parameters * (self._export_dtype.itemsize + exact)

    def state(self) -> dict[str, Any]:
        return {"version": self.version}

    def restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Load the results of `save` and `state`. Raise CheckpointError first, if files are incomplete."""
        try:
            version = int(state["version"])
            weights = self._read_weights(folder)
            moments = read_tensors(folder / TRAINING, "optimizer", like=self.optimizer.masters)
        except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
            raise incomplete(folder, error) from error
        self.optimizer.load(weights, moments)
        self.version = version

    def _read_weights(self, folder: Path) -> dict[str, Tensor]:
        """Read the float32 weights that are trained."""
        if self.model.base is not None:
            return lora.read_adapters(folder / lora.FOLDER)
        if has_exact_weights(folder):
            return read_tensors(folder / TRAINING, EXACT_WEIGHTS, like=self.optimizer.masters)
        return dict(load_reward_model(folder, reads=reads(self.kind), device="cpu").model.named_parameters())

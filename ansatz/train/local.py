"""LocalTrainer: trains a model in this process, alone or as one of several ranks.

It holds the policy, its optimizer, and anything else the objective needs: a reference, a critic, an adaptive bonus.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ansatz.config.schema import TrainSection
from ansatz.errors import AlignmentError, ConfigError, ModelError, NonFiniteError
from ansatz.models import lora
from ansatz.models.determinism import same_bits
from ansatz.models.four_bit import num_four_bit
from ansatz.models.load import Policy, load_model
from ansatz.models.logps import token_logps
from ansatz.models.peak_memory import PeakMemory
from ansatz.models.save import save_model
from ansatz.models.weights import LiveWeights, store_tensors
from ansatz.objectives.coefficients import adapt_entropy_coef, adapt_kl_coef
from ansatz.objectives.objective import Objective
from ansatz.track.measurements import Measurement, Measurements, merge, values
from ansatz.train import alignment
from ansatz.train.batch import LossBatch, TrainBatch, build_batch
from ansatz.train.critic import Critic, TrainedCritic
from ansatz.train.logps import exact_kl, measure_demonstrations, response_logps, without_gradient
from ansatz.train.optim import Schedule
from ansatz.train.packed import PackedRollouts, pack_rollouts, responses_of
from ansatz.train.placement import EXACT_WEIGHTS, ONE_PROCESS, Placement, has_exact_weights, placed_like, read_tensors
from ansatz.train.ranks import on_first_rank
from ansatz.train.sample import TrainSample
from ansatz.train.skipped import StoredUpdate, Trained, stop_if_too_many
from ansatz.train.step import Exact, UpdateReport, UpdateSettings, measure_batch, train_step
from ansatz.train.trainer import TRAINING, EarlierWeights, Skipped, StepReport, TokenLogps, incomplete


class LocalTrainer:
    """Trains `policy`, which is cast to dtype in place, on an objective.

    If the objective needs a reference, it is a copy of the current policy. For a policy with adapters only the adapters
    are copied; if they are new, the reference is the model below them, `policy.base`.
    on_skip: called with an update that is skipped because it is not finite, before anything else changes. on_event: see
    `Trainer`; never called, because a single process survives no fault. bundles: functions by step, called after
    each update of the step, with the weights and log-probs before it.
    schedule: of the learning rates of the policy and of the critic, which has its own, settings.critic.lr. temperature:
    of the sampler. export_dtype: the precision of the model folders that it writes. placement: where the weights are
    kept.
    teacher: the reference instead of the policy's copy.
    If there are several ranks, each holds a LocalTrainer, and all of them make the same calls with the same arguments.
    Example: `trainer.update(trainer.batch(samples), step=1).metrics()`.
    """

    def __init__(
        self,
        policy: Policy,
        objective: Objective,
        *,
        settings: TrainSection,
        dtype: torch.dtype,
        schedule: Schedule,
        temperature: float = 1.0,
        export_dtype: torch.dtype = torch.float32,
        placement: Placement = ONE_PROCESS,
        teacher: Policy | None = None,
    ) -> None:
        self.objective, self.settings = objective, settings
        self.placement, self.ranks = placement, placement.ranks
        self.export_dtype = export_dtype
        self.schedule, self.temperature = schedule, temperature
        self.version = 0
        self._lr_scale = 1.0  # lowered by the watchdog
        self._reference_updates = 0  # how often the reference has become the policy
        self._skipped_in_a_row = 0
        self.on_skip: Callable[[Skipped], None] = lambda skipped: None
        self.on_event: Callable[[int, str], None] = lambda step, text: None
        self.bundles: Mapping[int, Callable[[StoredUpdate], None]] = {}
        self.dtype = dtype
        self.entropy_coef, self.kl_coef = objective.entropy_coef, objective.kl_coef  # `_after_step` may adapt them
        if policy.base is not None and settings.reference_update_interval and objective.needs_ref:
            raise ConfigError(
                f"train.reference_update_interval = {settings.reference_update_interval}: with model.lora the "
                "reference is the model at the start of the stage and cannot become the policy. Set it to 0, "
                "or leave model.lora out."
            )
        # Both copy the whole policy, so they come first: placing can shard it, and the optimizer casts it to dtype.
        critic = Critic(policy) if objective.needs_values else None
        reference = teacher
        if teacher is None and objective.needs_ref and (policy.base is None or not lora.are_new(policy)):
            reference = _frozen_copy(policy, dtype)
        self.policy = placement.policy(policy, dtype)
        self.optimizer = placement.optimizer(settings.optimizer)(self.policy.model, dtype)
        self.critic = None if critic is None else self._trained(critic)
        self.reference = None
        if teacher is None and objective.needs_ref and policy.base is not None:
            below = policy.base if reference is None else reference.model
            self.reference = dataclasses.replace(self.policy, model=below, base=None)
        elif reference is not None:
            self.reference = placement.policy(reference, dtype)

    def start_critic_from(self, model: Policy) -> None:
        """Replace the critic by one that starts from `model`. Raise ConfigError if its vocabulary is another one."""
        if model.tokenizer.get_vocab() != self.policy.tokenizer.get_vocab():
            raise ConfigError(
                f"train.critic.path = {model.path!r}: its tokens are not those of the policy. Use a model with the "
                "policy's tokenizer, or leave train.critic.path out."
            )
        self.critic = self._trained(Critic(model))

    def _trained(self, critic: Critic) -> TrainedCritic:
        """Place a critic and give it an optimizer. With sharded weights, it runs through the root that gathers them.

        A critic that comes from a reward model with extra layers may change only the weights that `written` marks.
        """
        root = self.placement.shard(critic, critic.transformer, self.dtype)
        critic.policy = dataclasses.replace(critic.policy, sharded=root)
        optimizer = self.placement.optimizer(self.settings.optimizer)(critic, self.dtype)
        written = {name: placed_like(mask, optimizer.masters[name]) for name, mask in critic.written.items()}
        return TrainedCritic(critic, optimizer, self.settings.tokens_per_microbatch, written, self.ranks)

    def batch(
        self, samples: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None
    ) -> TrainBatch:
        """Compute everything that the objective needs of a whole step's samples, once.

        baseline_of_group: the reward of a greedy response to each prompt, if the advantage compares with it (ReMax).
        Old log-probs are computed only if a second update, a mask or a KL in the reward will need them. `same_bits`
        makes a GPU compute deterministically.
        """
        device, baselines = self.policy.device, baseline_of_group or {}
        with same_bits(device):
            packed, in_loss = pack_rollouts(samples, device=device), self.objective.kl_in == "loss"
            return build_batch(
                packed,
                self._objective_now,  # with the KL coefficient as adapted so far
                policy_version=self.version,
                old_logp_T=self._logps(self.policy, packed) if self._needs_old else None,
                ref_logp_T=self._ref_logps(packed),
                full_kl_T=None if in_loss or self._exact is None else self._without_gradient(self._exact, packed),
                value_T=None if self.critic is None else self.critic.values(packed),
                baseline_N=torch.tensor([baselines[group] for group in packed.group_N.tolist()], device=device)
                if self.needs_greedy
                else None,
            )

    def update(self, batch: TrainBatch, *, step: int, seed: int = 0, check_alignment: bool = False) -> StepReport:
        """Make every optimizer step on one step's batch: epochs_per_step passes through its minibatches.

        Each epoch after the first deals the prompts into other minibatches, by (seed, step, epoch). A minibatch whose
        mean ratio passes the objective's max_ratio is dropped, and so are all later ones of the step. An update with a
        loss or gradient of nan or inf, in the policy or the critic, is skipped and changes neither. The third in a
        row raises NonFiniteError.
        check_alignment: raise AlignmentError before the first update if sampler and trainer disagree by more than
        train.max_logprob_gap. If the old log-probs are known, the whole step is checked; otherwise there is a single
        update, which checks its own forward pass.
        """
        with same_bits(self.policy.device):
            reports = list[UpdateReport]()
            max_gap = self.settings.max_logprob_gap if check_alignment else math.inf
            critic_alone = self.critic is not None and step <= self.settings.critic.steps_alone  # only it is updated
            if critic_alone and not isinstance(batch, LossBatch):
                batch = batch.with_old_logps(self._logps(self.policy, batch.packed))  # no policy update computes them
            aligned: Measurements = {}
            if isinstance(batch, LossBatch):
                aligned, limit, max_gap = alignment.measure_alignment(batch), max_gap, math.inf
                alignment.check_alignment(aligned, limit=limit, step=step)
            for minibatch in self._minibatches(batch, seed=seed, step=step):
                report = self._update_once(minibatch, step=step, critic_alone=critic_alone, max_logprob_gap=max_gap)
                reports.append(report)
                if report.stopped:
                    break
                self.version += not (report.skipped or critic_alone)
            measurements = {
                **merge(report.measurements for report in reports),
                **aligned,
                **measure_batch(batch, self._objective_now),
            }
            measurements["train/skipped_steps"] = Measurement(float(sum(report.skipped for report in reports)))
            self._after_step(values(measurements), batch, step)  # adapts coefficients and reference for the next step
            num_updates = sum(not (report.stopped or report.skipped) for report in reports)
            return StepReport(
                measurements=measurements,
                num_updates=0 if critic_alone else num_updates,
                num_tokens=sum(report.num_tokens for report in reports),
                rollouts={place: row for report in reports for place, row in report.rollouts.items()},
            )

    def check_against(self, load: Callable[[], EarlierWeights], batch: TrainBatch, *, step: int) -> dict[str, float]:
        """Measure and check alignment; see `alignment.measure_with`."""
        stored = load()
        measured = alignment.measure_with(
            self.policy,
            batch,
            stored.tensors,
            version=stored.policy_version,
            temperature=self.temperature,
            tokens=self.settings.tokens_per_microbatch,
            step=step,
        )
        alignment.check_alignment(measured, limit=self.settings.max_logprob_gap, step=step)
        return values(measured)

    def measure_demonstrations(self, samples: Sequence[TrainSample]) -> dict[str, float]:
        packed = pack_rollouts(samples, device=self.device)
        limit = self.settings.tokens_per_microbatch
        return values(measure_demonstrations(self.policy, packed, tokens_per_microbatch=limit, ranks=self.ranks))

    def response_logps(self, samples: Sequence[TrainSample], temperatures: Sequence[float]) -> list[list[float]]:
        packed, limit = pack_rollouts(samples, device=self.device), self.settings.tokens_per_microbatch
        how: dict[str, Any] = {"temperatures": temperatures, "tokens_per_microbatch": limit, "ranks": self.ranks}
        with same_bits(self.policy.device):
            return response_logps(self.policy, packed, **how)

    def token_logps(self, samples: Sequence[TrainSample], *, of_reference: bool = False) -> list[TokenLogps]:
        model = self.reference if of_reference else self.policy
        if model is None:
            return []
        packed = pack_rollouts(samples, device=self.device)
        with same_bits(self.policy.device):
            values_T2 = self._logps_and_entropies(model, packed)
        return [TokenLogps(*both.T.tolist()) for both in responses_of(values_T2, packed, samples)]

    @property
    def tokenizer(self) -> Any:
        return self.policy.tokenizer

    @property
    def device(self) -> torch.device:
        return self.policy.device

    def watch_memory(self) -> Callable[[], float]:
        return PeakMemory(self.device).gb

    def close(self) -> None:
        """Do nothing: nothing was started."""

    @property
    def changes(self) -> int:
        """Number of optimizer steps of policy and critic, plus updates of the reference."""
        critic = 0 if self.critic is None else self.critic.optimizer.changes
        return self.optimizer.changes + critic + self._reference_updates

    @property
    def needs_greedy(self) -> bool:
        """Tell whether each prompt's greedy response must be sampled and graded too (ReMax)."""
        return "baseline_N" in self.objective.advantage.inputs

    def set_lr_scale(self, scale: float) -> None:
        self._lr_scale = scale

    def weights(self) -> LiveWeights:
        """Return the live module: a sampler in this process copies nothing. `LiveWeights` says how long it is valid."""
        return LiveWeights(policy=self.policy, version=self.version)

    @property
    def published_bytes(self) -> int:
        return sum(master.numel() for master in self.optimizer.masters.values()) * self.dtype.itemsize

    def store_weights(self, folder: Path, *, max_shard_bytes: int) -> str:
        """Store the weights that samplers need: `store_tensors` of `weights().trained()`, gathered one by one.

        Return the fingerprint on the first rank, and an empty text on the others. Raise OSError on all ranks if the
        first cannot write.
        """
        trained = sorted(self.weights().trained().items())
        gathered = ((name, value.to(self.dtype)) for name, value in self.placement.gathered(trained))
        stored = ""

        def store() -> None:
            nonlocal stored
            try:
                stored = store_tensors(gathered, folder, max_shard_bytes=max_shard_bytes)
            finally:
                deque(gathered, maxlen=0)  # otherwise the other ranks would wait for this one

        if self.ranks.rank != 0:
            deque(gathered, maxlen=0)
        on_first_rank(store, self.ranks)
        return stored

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder (adapters merged), `adapter/`, and in TRAINING a file per `tensors` entry.

        If the folder holds rounded weights, TRAINING holds the float32 ones too.
        """
        weights = self._merged_weights()
        adapters = {} if self.policy.base is None else self.placement.whole(self.optimizer.weights())

        def save_folder() -> None:
            save_model(self.policy, folder, state=weights, dtype=self.export_dtype)
            if self.policy.base is not None:
                lora.save_adapters(self.policy, folder / lora.FOLDER, weights=adapters)

        on_first_rank(save_folder, self.ranks)
        if self.export_dtype != torch.float32:
            exact = weights if self.policy.base is not None else self.optimizer.weights()
            self.placement.write(folder / TRAINING, EXACT_WEIGHTS, exact)
        for name, tensors in self.tensors().items():
            self.placement.write(folder / TRAINING, name, tensors)

    def _merged_weights(self) -> dict[str, Tensor]:
        """Return the float32 weights of the whole policy, by parameter name; empty on all ranks except the first."""
        weights = self.placement.whole(self.optimizer.weights())
        if self.policy.base is None:
            return weights
        base = self.placement.whole(dict(self.policy.base.named_parameters()))
        return lora.merge_adapters(self.policy, base, weights) if base else {}

    @property
    def checkpoint_bytes(self) -> int:
        """Approximate size of a checkpoint: weights, and for each trained weight the moments of AdamW in float32."""
        total = self.weights_bytes
        total += 8 * sum(master.numel() for master in self.optimizer.masters.values())
        if self.critic is not None:
            total += 12 * sum(master.numel() for master in self.critic.optimizer.masters.values())
        total += sum(value.nbytes for value in self.stored_reference.values())
        return total

    @property
    def weights_bytes(self) -> int:
        model = self.policy.base or self.policy.model
        num_weights = num_four_bit(model) + sum(value.numel() for value in model.parameters())
        exact = 0 if self.export_dtype == torch.float32 else 4
        return num_weights * (self.export_dtype.itemsize + exact)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of a checkpoint besides the policy's trained weights, by file name."""
        tensors = {"optimizer": self.optimizer.state()}
        if self.critic is not None:
            tensors["critic"] = self.critic.tensors()
        if self.stored_reference:
            tensors["reference"] = {name: value.detach() for name, value in self.stored_reference.items()}
        return tensors

    @property
    def stored_reference(self) -> dict[str, nn.Parameter]:
        """The weights of the reference that a checkpoint holds; empty if it can be built again without them."""
        if self.reference is None or self.policy.base is not None:
            return {}
        return dict(self.reference.model.named_parameters())

    def state(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "entropy_coef": self.entropy_coef,
            "kl_coef": self.kl_coef,
            "skipped_in_a_row": self._skipped_in_a_row,
        }

    def restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        try:
            version, entropy_coef = int(state["version"]), float(state["entropy_coef"])
            kl_coef = float(state.get("kl_coef", self.kl_coef))  # older checkpoints have none
            skipped_in_a_row = int(state.get("skipped_in_a_row", 0))
            weights = self._read_weights(folder)
            tensors = {
                name: read_tensors(folder / TRAINING, name, like=self._masters_of(name)) for name in self.tensors()
            }
        except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
            raise incomplete(folder, error) from error
        self.optimizer.load(weights, tensors["optimizer"])
        if self.critic is not None:
            self.critic.load(tensors["critic"])
        for name, parameter in self.stored_reference.items():
            parameter.data.copy_(placed_like(tensors["reference"][name], parameter))
        self.version, self._skipped_in_a_row = version, skipped_in_a_row
        self.entropy_coef, self.kl_coef = entropy_coef, kl_coef

    def _masters_of(self, name: str) -> Mapping[str, Tensor]:
        """Return the trained weights that belong to the tensors of a file."""
        if name == "critic":
            assert self.critic is not None
            return self.critic.optimizer.masters
        return self.optimizer.masters

    def _read_weights(self, folder: Path) -> dict[str, Tensor]:
        """Read the float32 weights that are trained: the adapters' weights, if the policy has adapters."""
        if self.policy.base is not None:
            return lora.read_adapters(folder / lora.FOLDER)
        if has_exact_weights(folder):
            return read_tensors(folder / TRAINING, EXACT_WEIGHTS, like=self.optimizer.masters)
        return dict(load_model(folder).named_parameters())  # transformers may store them under other names

    @property
    def _objective_now(self) -> Objective:
        """`objective` with the KL coefficient that `kl_control` has set so far."""
        if self.objective.kl_control is None:
            return self.objective
        return dataclasses.replace(self.objective, kl_coef=self.kl_coef)

    @property
    def _needs_old(self) -> bool:
        by_mask = any("old_logp_T" in component.inputs for component in self.objective.masks)
        return self.settings.optimizer_steps_per_step > 1 or by_mask or self.objective.advantages_need_old_logp

    def _without_gradient(self, function: Callable[[PackedRollouts], Tensor], packed: PackedRollouts) -> Tensor:
        return without_gradient(function, self.policy, packed, self.settings.tokens_per_microbatch, self.ranks)

    def _logps_and_entropies(self, policy: Policy, packed: PackedRollouts) -> Tensor:
        """Compute the log-prob and the entropy of each token, shape [T, 2]."""
        return self._without_gradient(
            lambda part: torch.stack(token_logps(policy, part, temperature=self.temperature), -1), packed
        )

    def _logps(self, policy: Policy, packed: PackedRollouts) -> Tensor:
        return self._without_gradient(lambda part: token_logps(policy, part, temperature=self.temperature)[0], packed)

    def _ref_logps(self, packed: PackedRollouts) -> Tensor | None:
        """Compute the log-probs [T] of the sampled tokens under the reference; None without one."""
        return None if self.reference is None else self._logps(self.reference, packed)

    @property
    def _exact(self) -> Exact | None:
        """Return the function that computes the exact KL [T] of the policy to the reference; None if none is needed."""
        reference, divergence = self.reference, self.objective.token_divergence
        if reference is None or divergence is None:
            return None
        how: dict[str, Any] = {"divergence": divergence, "temperature": self.temperature}
        return partial(exact_kl, policy=self.policy, reference=reference, **how)

    def _minibatches(self, batch: TrainBatch, *, seed: int, step: int) -> Iterator[TrainBatch]:
        """Yield the minibatches of every epoch of a step. The first epoch takes the prompts in their own order."""
        for epoch in range(self.settings.epochs_per_step):
            key = (seed, "minibatches", step, epoch) if epoch else ()
            yield from batch.minibatches(self.settings.updates_per_step, self.objective, key=key)

    def _update_once(
        self, minibatch: TrainBatch, *, step: int, critic_alone: bool, max_logprob_gap: float
    ) -> UpdateReport:
        """Make one optimizer step of the policy and of the critic, or of neither.

        The critic's gradients are computed first and applied last. An update can therefore still be skipped for both if
        one of the two is not finite.
        """
        waited = 0 if self.critic is None else self.settings.critic.steps_alone
        settings = UpdateSettings(
            lr=self.schedule.lr * self._lr_scale * self.schedule.multiplier(step, waited=waited),
            max_grad_norm=self.settings.max_grad_norm,
            tokens_per_microbatch=self.settings.tokens_per_microbatch,
            temperature=self.temperature,
            entropy_coef=self.entropy_coef,
            max_logprob_gap=max_logprob_gap,
        )
        measured: Measurements = {}
        report = UpdateReport(measurements={}, num_tokens=minibatch.packed.num_tokens, stopped=False)
        of: Trained = "critic"
        try:
            if self.critic is not None:
                measured = self.critic.accumulate_gradients(minibatch, self.objective, step=step)
            of = "policy"
            watched = self._watched(minibatch, settings, step=step) if step in self.bundles else None
            if not critic_alone:
                report = train_step(
                    self.policy,
                    self.optimizer,
                    minibatch,
                    self._objective_now,
                    settings,
                    step=step,
                    exact=self._exact if self.objective.kl_in == "loss" else None,
                    ranks=self.ranks,
                )
        except (AlignmentError, NonFiniteError) as error:
            self._drop_critic_gradients()
            if isinstance(error, AlignmentError):
                raise
            return self._skip(minibatch, settings, step=step, cause=str(error), of=of)
        self._skipped_in_a_row = 0
        if watched is not None:
            self.bundles[step](dataclasses.replace(watched, expected=report.metrics))
        if self.critic is None:
            return report
        if report.stopped:
            self._drop_critic_gradients()
            return report
        critic_lr = self.settings.critic.lr * self._lr_scale * self.schedule.multiplier(step)
        self.critic.optimizer.step(lr=critic_lr, max_grad_norm=self.settings.max_grad_norm)
        return dataclasses.replace(report, measurements={**report.measurements, **measured})

    def _drop_critic_gradients(self) -> None:
        """Remove the critic's gradients, or its next update would contain gradients of an update that was not made."""
        if self.critic is not None:
            self.critic.optimizer.zero_grad()

    def _skip(
        self, minibatch: TrainBatch, settings: UpdateSettings, *, step: int, cause: str, of: Trained
    ) -> UpdateReport:
        """Report an update that is not made. Raise NonFiniteError for the third in a row."""
        self._skipped_in_a_row += 1
        stored = self._stored(minibatch, settings, self._merged_weights(), step=step, cause=cause, of=of)
        if self.ranks.rank == 0:
            self.on_skip(stored)
        stop_if_too_many(self._skipped_in_a_row, cause)
        return UpdateReport(measurements={}, num_tokens=minibatch.packed.num_tokens, stopped=False, skipped=True)

    def _watched(self, minibatch: TrainBatch, settings: UpdateSettings, *, step: int) -> StoredUpdate:
        """Return the update that is about to be made, with the weights, log-probs and entropies before it."""
        weights = {name: value.clone() for name, value in self._merged_weights().items()}
        values_T2 = self._logps_and_entropies(self.policy, minibatch.packed)
        about = {"cause": "", "of": "policy", "logp_T": values_T2[:, 0], "entropy_T": values_T2[:, 1]}
        return self._stored(minibatch, settings, weights, step=step, **about)

    def _stored(
        self, minibatch: TrainBatch, settings: UpdateSettings, weights: dict[str, Tensor], **about: Any
    ) -> StoredUpdate:
        return StoredUpdate(
            minibatch=minibatch,
            objective=self._objective_now,
            settings=settings,
            dtype=str(self.dtype).removeprefix("torch."),
            updates_per_step=self.settings.updates_per_step,
            save_policy=lambda path: save_model(self.policy, path, state=weights, dtype=torch.float32),
            **about,
        )

    def _after_step(self, metrics: Mapping[str, float], batch: TrainBatch, step: int) -> None:
        """Adapt the coefficients and the reference, for the next step."""
        control = self.objective.kl_control
        if control is not None and "train/kl_ref" in metrics:
            self.kl_coef = adapt_kl_coef(
                control,
                self.kl_coef,
                token_kl=metrics["train/kl_ref"],
                num_tokens=batch.num_loss_tokens,
                num_rollouts=batch.num_rollouts,
            )
        target = self.objective.entropy_target
        if target is not None and "train/entropy" in metrics:
            self.entropy_coef = adapt_entropy_coef(self.entropy_coef, metrics["train/entropy"], target=target)
        interval = self.settings.reference_update_interval
        if self.reference is not None and interval and step % interval == 0:  # iterative GRPO, arXiv:2402.03300 alg. 1
            self._reference_updates += 1
            for name, frozen in self.reference.model.named_parameters():
                frozen.data.copy_(self.optimizer.masters[name].data)


def _frozen_copy(policy: Policy, dtype: torch.dtype) -> Policy:
    """Copy the policy in dtype as a frozen reference. Weights below adapters are shared with the policy."""
    copies: dict[int, Any] = {id(buffer): buffer for buffer in policy.model.buffers()} if policy.base else {}
    for parameter in policy.model.parameters():
        copies[id(parameter)] = parameter
        if parameter.requires_grad or policy.base is None:
            copies[id(parameter)] = nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)
    return dataclasses.replace(policy, model=copy.deepcopy(policy.model, copies))

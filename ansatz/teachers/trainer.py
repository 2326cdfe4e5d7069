"""TaughtTrainer: a `LocalTrainer` whose reference is a teacher, or one of several, with prompts of its own.

Axes: N rollouts, T flat tokens, M sampled tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.errors import ConfigError
from ansatz.loop.trainers import TrainerSpec, load
from ansatz.models.load import Policy
from ansatz.models.load import cast as cast_policy
from ansatz.models.logps import chunked_kl, hidden_before, token_logps
from ansatz.objectives.objective import Objective
from ansatz.teachers.prompts import TaughtSample
from ansatz.teachers.settings import ONLY, TeacherSettings, key_of
from ansatz.train.batch import TrainBatch
from ansatz.train.local import LocalTrainer
from ansatz.train.packed import PackedRollouts, pack_rollouts, responses_of, select_rollouts
from ansatz.train.sample import TrainSample
from ansatz.train.step import Exact
from ansatz.train.trainer import TokenLogps


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherTokens:
    """Responses after the prompts of a teacher, as `models.logps.PackedTokens`: rollouts and sampled tokens in the
    order of the policy's."""

    token_T: Tensor
    position_T: Tensor
    segment_T: Tensor
    sampled_mask_T: Tensor
    no_eos_T: Tensor | None
    prompt_id_T: Tensor | None
    num_candidates_T: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtSpec(TrainerSpec):
    """Builds a `TaughtTrainer`. teachers: by name, as `settings.teachers_of` returns them."""

    teachers: Mapping[str, TeacherSettings]

    def make(self, policy: Policy, objective: Objective, **settings: Any) -> TaughtTrainer:
        loaded = {
            name: load_teacher(teacher, policy, name=name, dtype=settings["dtype"])
            for name, teacher in self.teachers.items()
            if teacher.path is not None
        }
        return TaughtTrainer(policy, objective, teachers=self.teachers, loaded=loaded, **settings)


def load_teacher(teacher: TeacherSettings, policy: Policy, *, name: str, dtype: torch.dtype) -> Policy:
    """Load the model of a teacher. Raise ConfigError if its tokens are not the policy's."""
    assert teacher.path is not None
    model = load(teacher.path, four_bits=teacher.quantize is not None)
    check_tokens(model.tokenizer, policy.tokenizer, teacher.path, name=name)
    for parameter in model.model.parameters():
        parameter.requires_grad_(False)
    cast_policy(model, dtype)
    return model


def check_tokens(tokenizer: Any, of_policy: Any, path: str, *, name: str) -> None:
    """Raise ConfigError if a teacher does not read text as the policy does."""
    own, policys = tokenizer.get_vocab(), of_policy.get_vocab()
    if own != policys:
        differ = next(iter(sorted(own.items() ^ policys.items())))[0]
        raise ConfigError(
            f"{key_of(name)} = {path!r}: its tokens are not those of the policy ({len(own)} and {len(policys)}; "
            f"{differ!r:.40} differs), so its probabilities are of other things. Use a teacher of the same family, or "
            "sample from it with the stage rejection (rejection.teacher)."
        )


class TaughtTrainer(LocalTrainer):
    """teachers: the settings of each teacher by name. loaded: the models of those with a path; the others are the
    policy at the start of the stage, or its moving average. For the rest see `LocalTrainer`."""

    def __init__(
        self,
        policy: Policy,
        objective: Objective,
        *,
        teachers: Mapping[str, TeacherSettings],
        loaded: Mapping[str, Policy],
        **settings: Any,
    ) -> None:
        is_single = len(teachers) == 1
        needs_own = len(loaded) < len(teachers)  # a copy of the policy at the start of the stage
        super().__init__(policy, objective, teacher=None if needs_own else loaded[ONLY], **settings)
        self._teachers = teachers
        self._loaded = {} if is_single else loaded  # a single one is the reference, which may be sharded
        self._samples: Sequence[TrainSample] = ()
        self._average = next((each.average for each in teachers.values() if each.path is None), 0.0)
        self._averaged: dict[str, nn.Parameter] = {}
        if self._average:  # in float32: in bfloat16, small changes would be lost
            assert self.reference is not None
            masters = self.optimizer.masters
            self._averaged = {
                name: nn.Parameter(masters[name].detach().clone(), requires_grad=False)
                for name, _ in self.reference.model.named_parameters()
            }

    def batch(
        self, samples: Sequence[TrainSample], *, baseline_of_group: Mapping[int, float] | None = None
    ) -> TrainBatch:
        self._samples = samples
        return super().batch(samples, baseline_of_group=baseline_of_group)

    def token_logps(self, samples: Sequence[TrainSample], *, of_reference: bool = False) -> list[TokenLogps]:
        """Compute the log-probs of `LocalTrainer.token_logps`; of the reference, its teachers' without entropies."""
        if not of_reference:
            return super().token_logps(samples)
        packed = pack_rollouts(samples, device=self.device)
        responses = responses_of(self._logps_of_teachers(packed, samples), packed, samples)
        return [TokenLogps(logps.tolist(), [0.0] * len(logps)) for logps in responses]

    def _ref_logps(self, packed: PackedRollouts) -> Tensor | None:
        return self._logps_of_teachers(packed, self._samples) if self.objective.needs_ref else None

    def _logps_of_teachers(self, packed: PackedRollouts, samples: Sequence[TrainSample]) -> Tensor:
        """Compute the log-probs [T] of the sampled tokens, each under the teacher of its rollout."""

        def compute(part: PackedRollouts) -> Tensor:
            logp_T = torch.zeros_like(part.token_T, dtype=torch.float32)
            for model, temperature, rollouts in self._shares(part, samples):
                tokens = teacher_tokens(select_rollouts(part, rollouts), samples)
                value_M = token_logps(model, tokens, temperature=temperature)[0][tokens.sampled_mask_T]
                logp_T = logp_T.masked_scatter(_tokens_of(part, rollouts), value_M)
            return logp_T

        return self._without_gradient(compute, packed)

    @property
    def _exact(self) -> Exact | None:
        divergence, samples = self.objective.token_divergence, self._samples
        if divergence is None:
            return None

        def exact(part: PackedRollouts) -> Tensor:
            """Compute the divergence [T] of policy and teacher at each sampled token."""
            policy, hidden_MH = self.policy, hidden_before(self.policy, part)
            kl_T = torch.zeros_like(part.token_T, dtype=torch.float32)
            for model, temperature, rollouts in self._shares(part, samples):
                tokens = teacher_tokens(select_rollouts(part, rollouts), samples)
                with torch.no_grad():
                    ref_MH = hidden_before(model, tokens)
                chosen_T = _tokens_of(part, rollouts)
                value_M = chunked_kl(
                    hidden_MH[chosen_T[part.sampled_mask_T]],
                    policy.head.weight,
                    ref_MH,
                    model.head.weight,
                    divergence=divergence,
                    temperature=self.temperature,
                    softcap=policy.softcap,
                    ref_temperature=temperature,
                    ref_softcap=model.softcap,
                )
                kl_T = kl_T.masked_scatter(chosen_T, value_M)
            return kl_T

        reference = self.reference
        assert reference is not None, "an exact divergence is to a teacher"
        return lambda part: reference.run(lambda: self.policy.run(lambda: exact(part)))

    def _shares(self, packed: PackedRollouts, samples: Sequence[TrainSample]) -> Iterator[tuple[Policy, float, Tensor]]:
        """Yield the model and the temperature of each teacher, with its rollouts of the packed ones."""
        names = [getattr(samples[place], "teacher", ONLY) for place in packed.sample_N.tolist()]
        for name in dict.fromkeys(names):
            model = self._loaded.get(name, self.reference)
            assert model is not None
            rollouts = torch.tensor([n for n, each in enumerate(names) if each == name], device=packed.token_T.device)
            yield model, self._teachers[name].temperature or self.temperature, rollouts

    @property
    def stored_reference(self) -> dict[str, nn.Parameter]:
        if self._averaged:
            return self._averaged
        return super().stored_reference if any(each.path is None for each in self._teachers.values()) else {}

    def restore(self, folder: Any, state: Mapping[str, Any]) -> None:
        super().restore(folder, state)
        self._copy_average()

    def _after_step(self, metrics: Mapping[str, float], batch: TrainBatch, step: int) -> None:
        super()._after_step(metrics, batch, step)
        for name, averaged in self._averaged.items():
            averaged.data.lerp_(self.optimizer.masters[name].data, 1 - self._average)
        self._copy_average()

    def _copy_average(self) -> None:
        if self._averaged:
            assert self.reference is not None
            self._reference_updates += 1
            for name, frozen in self.reference.model.named_parameters():
                frozen.data.copy_(self._averaged[name].data)


def teacher_tokens(packed: PackedRollouts, samples: Sequence[TrainSample]) -> TeacherTokens:
    """Return the rollouts of `packed` after the prompts of their teachers. samples: those that were packed, of whose
    places `packed.sample_N` tells."""
    ordered = [samples[place] for place in packed.sample_N.tolist()]
    prompts = [
        (sample.teacher_ids if isinstance(sample, TaughtSample) else ()) or sample.prompt_ids for sample in ordered
    ]
    device = packed.token_T.device
    prompt_N, response_N = (
        torch.tensor([len(ids) for ids in lists], device=device)
        for lists in (prompts, [sample.token_ids for sample in ordered])
    )
    length_N = prompt_N + response_N
    segment_T = torch.repeat_interleave(torch.arange(len(ordered), device=device), length_N)
    position_T = torch.arange(len(segment_T), device=device) - (length_N.cumsum(0) - length_N)[segment_T]
    response_T = position_T >= prompt_N[segment_T]
    old_prompt_N = torch.tensor([len(sample.prompt_ids) for sample in ordered], device=device)
    old_response_T = packed.position_T >= old_prompt_N[packed.segment_T]
    sampled_T = response_T.masked_scatter(response_T, packed.sampled_mask_T[old_response_T])
    tokens = [token for ids, sample in zip(prompts, ordered, strict=True) for token in (*ids, *sample.token_ids)]
    no_eos_T = packed.no_eos_T
    number_N = [0]
    for before, after in pairwise(prompts):
        number_N.append(number_N[-1] + (tuple(before) != tuple(after)))
    return TeacherTokens(
        token_T=torch.tensor(tokens, device=device),
        position_T=position_T,
        segment_T=segment_T,
        sampled_mask_T=sampled_T,
        no_eos_T=None
        if no_eos_T is None
        else torch.zeros_like(sampled_T).masked_scatter(response_T, no_eos_T[old_response_T]),
        prompt_id_T=torch.tensor(number_N, device=device)[segment_T].masked_fill(response_T, -1)
        if number_N[-1] + 1 < len(ordered)
        else None,
    )


def _tokens_of(packed: PackedRollouts, rollouts: Tensor) -> Tensor:
    """Return which tokens [T] are sampled ones of these rollouts."""
    return torch.isin(packed.segment_T, rollouts) & packed.sampled_mask_T

"""Sampling with the trainer's own model: whole groups at once, finished rows leave, waiting ones enter.

Axes: S slots, B active rows (always slots 0..B-1), V vocabulary. One prefill a prompt, shared by its group. A finished
row's slot is filled by a waiting group, or by moving the last active row into it, so the batch is dense at all times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ansatz.errors import ModelError
from ansatz.models.load import Policy, head_logits, round_up
from ansatz.models.logps import without_ends
from ansatz.models.threads import SMALL_MODEL, one_thread
from ansatz.rollout.base import Observe, Sampling
from ansatz.rollout.native.cache import PrefillCache, SlotCache
from ansatz.rollout.sampling import draw, noise_key, uniforms
from ansatz.rollout.watch import Course, Watch
from ansatz.types import Finish, Prompt, Rollout

# Rows and spans are filled up to multiples of these, so that few shapes occur: kernels are compiled for each new one.
_ROW_STEP, _SPAN_STEP, _PREFILL_STEP = 32, 32, 16


class NativeSampler:
    """A `Sampler` over a `Policy`. It holds no copy of the weights: a weight sync is a version number.

    max_concurrent: slots, at least the samples of one prompt; bounds the cache and changes no number. observe: a tool;
    every decoding row waits while it is asked.
    """

    def __init__(
        self, policy: Policy, *, max_concurrent: int, version: int = 0, observe: Observe | None = None
    ) -> None:
        self.policy = policy
        self.max_concurrent = max_concurrent
        self.version = version
        self.observe = observe

    def load_weights(self, weights: Any, *, version: int) -> None:
        """The trainer updates these very weights in place, so `weights` must be the policy's own model."""
        if weights is not self.policy.model:
            raise ModelError("the native sampler shares the trainer's model; it was given other weights")
        self.version = version

    def close(self) -> None:
        """Nothing is held between calls."""

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling, *, on_finished: Callable[[Rollout], None] | None = None
    ) -> list[Rollout]:
        if not prompts:
            return []
        if empty := next((prompt for prompt in prompts if not prompt.token_ids), None):
            raise ModelError(f"the prompt of problem {empty.problem.id!r} has no tokens; its template needs some text.")
        limit = self.policy.max_context
        longest = max(len(prompt.token_ids) for prompt in prompts)
        if longest + sampling.max_response_tokens > limit:
            raise ModelError(
                f"a prompt of {longest} tokens plus rollout.max_response_tokens = {sampling.max_response_tokens} is "
                f"over the model's context of {limit}. Lower one of them or leave the prompt out "
                "(rollout.max_prompt_tokens)."
            )
        slots = min(max(self.max_concurrent, sampling.num_samples), len(prompts) * sampling.num_samples)
        batch = _Batch(self.policy, sampling, slots=slots, watch=self._watch(sampling))
        first_sample = _first_samples(prompts, sampling.num_samples)
        waiting = list(range(len(prompts)))[::-1]
        out: dict[tuple[int, int], Rollout] = {}
        was_training = self.policy.model.training
        self.policy.model.eval()
        with one_thread(self.policy.num_parameters < SMALL_MODEL):
            while waiting or batch.active:
                if batch.can_admit(len(waiting)):
                    admitted = [waiting.pop() for _ in range(min(len(waiting), batch.free // sampling.num_samples))]
                    batch.admit([(index, prompts[index], first_sample[index]) for index in admitted])
                else:
                    batch.decode()
                for row in batch.take_finished():
                    rollout = self._rollout(prompts[row.prompt], row, sampling)
                    out[row.prompt, row.sample] = rollout
                    if on_finished:
                        on_finished(rollout)
        self.policy.model.train(was_training)
        return [
            out[index, first + offset]
            for index, first in enumerate(first_sample)
            for offset in range(sampling.num_samples)
        ]

    def _watch(self, sampling: Sampling) -> Watch | None:
        if not sampling.watched:
            return None
        tokenizer = self.policy.tokenizer
        return Watch(
            sampling,
            end_ids=self.policy.end_ids,
            encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
            decode=tokenizer.decode,
            observe=self.observe,
        )

    def _rollout(self, prompt: Prompt, row: _Row, sampling: Sampling) -> Rollout:
        return Rollout(
            prompt=prompt,
            sample=row.sample,
            token_ids=tuple(row.token_ids),
            behavior_logps=tuple(row.logps),
            support_sizes=tuple(row.sizes) if sampling.restricted else (),
            min_response_tokens=sampling.min_response_tokens,
            chosen=row.chosen,
            text=self.policy.tokenizer.decode(row.token_ids, skip_special_tokens=True),
            finish=row.finish,
            version_min=self.version,
            version_max=self.version,
            seed=sampling.seed,
        )


def _first_samples(prompts: Sequence[Prompt], num_samples: int) -> list[int]:
    """Where each prompt's sample numbers start: a problem that comes twice goes on counting, so its noise differs."""
    seen: Counter[str] = Counter()
    first: list[int] = []
    for prompt in prompts:
        first.append(seen[prompt.problem.id] * num_samples)
        seen[prompt.problem.id] += 1
    return first


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A finished response."""

    prompt: int
    sample: int
    token_ids: list[int]
    logps: list[float]
    sizes: list[int]
    chosen: tuple[bool, ...]
    finish: Finish


class _Batch:
    """The slots of one call of `generate`: per slot its prompt, sample, noise key, length and what it drew so far.

    courses: one an active row where responses are watched, else none; then no row is looked at on its own.
    """

    def __init__(self, policy: Policy, sampling: Sampling, *, slots: int, watch: Watch | None) -> None:
        device = policy.device
        self.policy, self.sampling, self.slots = policy, sampling, slots
        self.watch, self.courses = watch, list[Course]()
        slots = round_up(slots, _ROW_STEP)
        self.cache = SlotCache(slots)
        self.active = 0
        self.end_ids = torch.tensor(policy.end_ids, device=device)
        columns = ("prompt", "sample", "key", "length", "drawn", "last")
        self.column = {name: torch.zeros(slots, dtype=torch.long, device=device) for name in columns}
        self.token_SN = torch.zeros(slots, sampling.max_response_tokens, dtype=torch.long, device=device)
        self.size_SN = torch.zeros_like(self.token_SN)
        self.logp_SN = torch.zeros(slots, sampling.max_response_tokens, device=device)

    @property
    def free(self) -> int:
        return self.slots - self.active

    def can_admit(self, waiting: int) -> bool:
        """A quarter of the slots at a time (or all that wait), so that prefills are few and large."""
        groups = min(waiting, max(1, self.slots // (4 * self.sampling.num_samples)))
        return groups > 0 and self.free >= groups * self.sampling.num_samples

    def admit(self, prompts: Sequence[tuple[int, Prompt, int]]) -> None:
        """Prefill each (index, prompt, first sample number) once and start its whole group with a first token a row."""
        device, samples = self.policy.device, self.sampling.num_samples
        length_P = torch.tensor([len(prompt.token_ids) for _, prompt, _ in prompts], device=device)
        shape = round_up(len(prompts), _PREFILL_STEP), round_up(int(length_P.max()), _PREFILL_STEP)
        token_PL = torch.zeros(shape, dtype=torch.long)
        for row, (_, prompt, _) in enumerate(prompts):
            token_PL[row, : len(prompt.token_ids)] = torch.tensor(prompt.token_ids)
        token_PL = token_PL.to(device)
        position_PL = torch.arange(token_PL.shape[1], device=device).expand_as(token_PL)
        prefill = PrefillCache()
        hidden_PLH = self.policy.hidden(token_PL, position_PL, past_key_values=prefill, use_cache=True)
        hidden_PH = hidden_PLH[torch.arange(len(prompts), device=device), length_P - 1]
        logits_PV = head_logits(hidden_PH, self.policy.head.weight, self.sampling.temperature or 1.0)

        source_B = torch.arange(len(prompts), device=device).repeat_interleave(samples)
        slot_B = torch.arange(self.active, self.active + len(source_B), device=device)
        self.cache.fit(max(self.cache.span, round_up(token_PL.shape[1], _SPAN_STEP)))
        self.cache.fill(slot_B, source_B, prefill)
        rows = [
            (index, sample, noise_key(self.sampling.seed, self.sampling.step, prompt.problem.id, sample))
            for index, prompt, first in prompts
            for sample in range(first, first + samples)
        ]
        for name, values in zip(("prompt", "sample", "key"), zip(*rows, strict=True), strict=True):
            self.column[name][slot_B] = torch.tensor(values, device=device)
        self.column["length"][slot_B] = length_P[source_B]
        self.column["drawn"][slot_B] = 0
        self.active += len(source_B)
        if self.watch:
            self.courses += [Course(self.watch) for _ in rows]
        self._draw(slot_B, logits_PV[source_B])

    def decode(self) -> None:
        """One more token for each active row; rows that fill the batch up compute on what they last held, unread."""
        rows = round_up(self.active, _ROW_STEP)
        length_B = self.column["length"][:rows]
        self.cache.fit(round_up(int(length_B[: self.active].max()) + 1, _SPAN_STEP))
        position_B = length_B.clamp(max=self.cache.span - 1)
        self.cache.begin(position_B)
        seen_BL = torch.arange(self.cache.span, device=position_B.device) <= position_B[:, None]
        mask_B11L = torch.zeros(seen_BL.shape, device=seen_BL.device).masked_fill(~seen_BL, -torch.inf)[:, None, None]
        hidden_B1H = self.policy.hidden(
            self.column["last"][:rows, None],
            position_B[:, None],
            past_key_values=self.cache,
            use_cache=True,
            attention_mask=mask_B11L,
        )
        self.column["length"][: self.active] += 1
        logits_BV = head_logits(hidden_B1H[:, 0], self.policy.head.weight, self.sampling.temperature or 1.0)
        active_B = torch.arange(self.active, device=self.policy.device)
        self._draw(active_B, logits_BV[: self.active])

    def take_finished(self) -> list[_Row]:
        """Rows that ended, removed from the batch; the last active rows move into their slots."""
        ended_B = self._ended()
        done_B = ended_B | (self.column["drawn"][: self.active] >= self.sampling.max_response_tokens)
        done = done_B.nonzero().squeeze(-1)
        if not len(done):
            return []
        rows = [
            _Row(
                prompt=prompt,
                sample=sample,
                token_ids=tokens[:drawn],
                logps=logps[:drawn],
                sizes=sizes[:drawn],
                chosen=course.marks if course else (),
                finish=course.finish if course else Finish.STOP if ended else Finish.LENGTH,
            )
            for prompt, sample, drawn, ended, tokens, logps, sizes, course in zip(
                self.column["prompt"][done].tolist(),
                self.column["sample"][done].tolist(),
                self.column["drawn"][done].tolist(),
                ended_B[done].tolist(),
                self.token_SN[done].tolist(),
                self.logp_SN[done].tolist(),
                self.size_SN[done].tolist(),
                [self.courses[slot] if self.watch else None for slot in done.tolist()],
                strict=True,
            )
        ]
        self._close_holes(done_B)
        return rows

    def _draw(self, slot_B: Tensor, logits_BV: Tensor) -> None:
        drawn_B = self.column["drawn"][slot_B]
        uniform_B = uniforms(self.column["key"][slot_B], drawn_B)
        sampling = self.sampling
        if sampling.min_response_tokens:
            logits_BV = without_ends(logits_BV, drawn_B < sampling.min_response_tokens, self.policy.end_ids)
        token_B, logp_B, size_B = draw(
            logits_BV,
            uniform_B,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            greedy=sampling.temperature == 0,
        )
        if self.watch:
            token_B, logp_B, size_B = self._follow(slot_B, token_B, logp_B, size_B)
        self.token_SN[slot_B, drawn_B] = token_B
        self.logp_SN[slot_B, drawn_B] = logp_B
        self.size_SN[slot_B, drawn_B] = size_B
        self.column["last"][slot_B] = token_B
        self.column["drawn"][slot_B] += 1

    def _follow(self, slot_B: Tensor, token_B: Tensor, logp_B: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What was drawn with forced tokens in their places, told to the rows' courses."""
        courses = [self.courses[slot] for slot in slot_B.tolist()]
        forced_B = torch.tensor([course.forced for course in courses], device=token_B.device)
        own_B = forced_B < 0
        token_B = torch.where(own_B, token_B, forced_B)
        for course, token in zip(courses, token_B.tolist(), strict=True):
            course.take(token)
        return token_B, logp_B.masked_fill(~own_B, 0.0), size_B.masked_fill(~own_B, 1)

    def _ended(self) -> Tensor:
        if self.watch:
            return torch.tensor([course.ended for course in self.courses], device=self.policy.device)
        return torch.isin(self.column["last"][: self.active], self.end_ids)

    def _close_holes(self, done_B: Tensor) -> None:
        kept = self.active - int(done_B.sum())
        hole_M = done_B[:kept].nonzero().squeeze(-1)
        source_M = kept + (~done_B[kept:]).nonzero().squeeze(-1)
        if len(hole_M):
            self.cache.move(source_M, hole_M, int(self.column["length"][source_M].max()))
            for column in (*self.column.values(), self.token_SN, self.logp_SN, self.size_SN):
                column[hole_M] = column[source_M]
        if self.watch:
            for hole, source in zip(hole_M.tolist(), source_M.tolist(), strict=True):
                self.courses[hole] = self.courses[source]
            del self.courses[kept:]
        self.active = kept

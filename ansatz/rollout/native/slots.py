"""The batch that decodes: slots of a cache with the rows in them.

Axes: S slots, B active rows (always slots 0..B-1), R requests of one prefill, N tokens of a response, V vocabulary. One
prefill a prompt, shared by its group. A finished row's slot is filled by a waiting request, or by moving the last
active row into it, so the batch is dense at all times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ansatz.models.load import Policy, head_logits
from ansatz.models.logps import CHUNK_LOGITS, without_ends
from ansatz.models.packing import round_up
from ansatz.rollout.base import Sampling, Tool
from ansatz.rollout.native.cache import ROW_STEP, SPAN_STEP, PrefillCache, SlotCache
from ansatz.rollout.native.forward import Step
from ansatz.rollout.response_rules import ResponseRules, ResponseState
from ansatz.rollout.sampling import draw, noise_key, uniforms
from ansatz.types import Finish

_PREFILL_STEP = 16  # as the steps of rows and spans, for prompts and their tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialResponse:
    """What an unfinished rollout has drawn."""

    token_ids: tuple[int, ...]
    logps: tuple[float, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Samples of one prompt, or one rollout to go on with. index: its place among the call's requests."""

    index: int
    problem_id: str
    prompt_ids: tuple[int, ...]
    samples: range
    begun: PartialResponse | None = None

    @property
    def rows(self) -> int:
        return len(self.samples)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """What the cache has to hold before the next token is drawn."""
        return self.prompt_ids + (self.begun.token_ids if self.begun else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedResponse:
    """A response that left its slot: all its tokens, those that it had begun with too. index: of its request."""

    index: int
    sample: int
    token_ids: tuple[int, ...]
    logps: tuple[float, ...]
    sizes: tuple[int, ...]
    sampled_mask: tuple[bool, ...]
    finish: Finish


def rules_for(policy: Policy, sampling: Sampling, observe: Tool | None = None) -> ResponseRules | None:
    """The rules of a call, where there are more than end tokens and the limit."""
    if not sampling.watched:
        return None
    tokenizer = policy.tokenizer
    return ResponseRules(
        sampling,
        end_ids=policy.end_ids,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
        decode=tokenizer.decode,
        observe=observe,
    )


@torch.inference_mode()
def decode(
    policy: Policy,
    step: Step,
    sampling: Sampling,
    requests: Sequence[Request],
    *,
    max_slots: int,
    watch: ResponseRules | None,
) -> Iterator[FinishedResponse]:
    """Each response as soon as it ends."""
    waiting = list(requests)[::-1]
    rows, widest = sum(request.rows for request in waiting), max(request.rows for request in waiting)
    slots = Slots(policy, step, sampling, count=min(max(max_slots, widest), rows), members=widest, watch=watch)
    while waiting or slots.active:
        if entering := slots.room_for(waiting):
            slots.admit(entering)
        else:
            slots.decode()
        yield from slots.take_finished()


class Slots:
    """Per slot its request, sample, noise key, length and what it has drawn; the prompt that it shares with its group
    (-1: none), as which member, and how many positions of it.

    courses: one an active row where responses are watched, else none; then no row is looked at on its own.
    """

    def __init__(
        self, policy: Policy, step: Step, sampling: Sampling, *, count: int, members: int, watch: ResponseRules | None
    ) -> None:
        device = policy.device
        self.step = step
        self.policy, self.sampling, self.count = policy, sampling, count
        self.watch, self.courses = watch, list[ResponseState]()
        rows = round_up(count, ROW_STEP)
        self.cache = SlotCache(rows, members=members)
        self.active = 0
        self.end_ids = torch.tensor(policy.end_ids, device=device)
        columns = ("request", "sample", "key", "length", "drawn", "limit", "last", "prompt", "member", "shared")
        self.column = {name: torch.zeros(rows, dtype=torch.long, device=device) for name in columns}
        self.column["prompt"].fill_(-1)
        self.token_SN = torch.zeros(rows, sampling.max_response_tokens, dtype=torch.long, device=device)
        self.size_SN = torch.zeros_like(self.token_SN)
        self.logp_SN = torch.zeros(rows, sampling.max_response_tokens, device=device)

    @property
    def free(self) -> int:
        return self.count - self.active

    def room_for(self, waiting: list[Request]) -> list[Request]:
        """Takes from the end of `waiting` what enters now: a quarter of the slots at a time (or all that wait), so that
        prefills are few and large; nothing while less is free."""
        least = min(sum(request.rows for request in waiting), max(self.count // 4, waiting[-1].rows if waiting else 0))
        entering, rows = list[Request](), 0
        if not waiting or self.free < least:
            return entering
        while waiting and rows + waiting[-1].rows <= self.free:
            rows += waiting[-1].rows
            entering.append(waiting.pop())
        return entering

    def admit(self, requests: Sequence[Request]) -> None:
        """Prefill each request once and start its rows with a first token each."""
        device = self.policy.device
        length_R = torch.tensor([len(request.token_ids) for request in requests], device=device)
        shape = round_up(len(requests), _PREFILL_STEP), round_up(int(length_R.max()), _PREFILL_STEP)
        token_RL = torch.zeros(shape, dtype=torch.long)
        for row, request in enumerate(requests):
            token_RL[row, : len(request.token_ids)] = torch.tensor(request.token_ids)
        token_RL = token_RL.to(device)
        position_RL = torch.arange(token_RL.shape[1], device=device).expand_as(token_RL)
        prefill = PrefillCache()
        hidden_RLH = self.policy.hidden(token_RL, position_RL, past_key_values=prefill, use_cache=True)
        hidden_RH = hidden_RLH[torch.arange(len(requests), device=device), length_R - 1]

        rows_R = torch.tensor([request.rows for request in requests], device=device)
        source_B = torch.arange(len(requests), device=device).repeat_interleave(rows_R)
        slot_B = torch.arange(self.active, self.active + len(source_B), device=device)
        self._keep(prefill, slot_B, source_B, rows_R, length_R)
        self._enter(requests, slot_B, length_R[source_B])
        self._draw(slot_B, hidden_RH, source_B)

    def _keep(self, prefill: PrefillCache, slot_B: Tensor, source_B: Tensor, rows_R: Tensor, length_R: Tensor) -> None:
        """What was prefilled: once for a group, in its slot for a request of one row."""
        is_group_R = rows_R > 1
        is_group_B = is_group_R[source_B]
        longest = int(length_R.masked_fill(is_group_R, 1).max())
        self.cache.fit(max(self.cache.span, round_up(longest, SPAN_STEP)))
        self.cache.fill(slot_B[~is_group_B], source_B[~is_group_B], prefill)
        groups_R = is_group_R.nonzero().squeeze(-1)
        if len(groups_R):
            held = self._keep_prompts(groups_R, prefill)
            number_R = held + is_group_R.cumsum(0) - 1
            self.column["prompt"][slot_B] = torch.where(is_group_B, number_R[source_B], -1)
        first_R = rows_R.cumsum(0) - rows_R
        self.column["member"][slot_B] = torch.arange(len(slot_B), device=slot_B.device) - first_R[source_B]
        self.column["shared"][slot_B] = length_R[source_B].masked_fill(~is_group_B, 0)

    def _keep_prompts(self, added_R: Tensor, prefill: PrefillCache | None = None) -> int:
        """Keep the prompts that rows share, and those that a prefill adds; returns how many are kept."""
        prompt_B = self.column["prompt"][: self.active]
        kept_R = prompt_B[prompt_B >= 0].unique()
        self.cache.share(kept_R, added_R, prefill)
        self.column["prompt"][: self.active] = torch.where(
            prompt_B >= 0, torch.searchsorted(kept_R, prompt_B.clamp(min=0)), -1
        )
        return len(kept_R)

    def _enter(self, requests: Sequence[Request], slot_B: Tensor, length_B: Tensor) -> None:
        sampling = self.sampling
        budget = sampling.max_call_tokens or sampling.max_response_tokens
        rows: list[tuple[int, int, int, int, int]] = []
        for request in requests:
            drawn = len(request.begun.token_ids) if request.begun else 0
            limit = min(drawn + budget, sampling.max_response_tokens)
            for sample in request.samples:
                key = noise_key(sampling.seed, sampling.step, request.problem_id, sample)
                rows.append((request.index, sample, key, drawn, limit))
            if request.begun:
                self._recall(self.active + len(rows) - 1, request.begun)
        for name, values in zip(("request", "sample", "key", "drawn", "limit"), zip(*rows, strict=True), strict=True):
            self.column[name][slot_B] = torch.tensor(values, device=slot_B.device)
        self.column["length"][slot_B] = length_B
        self.active += len(rows)
        if self.watch:
            self.courses += [
                ResponseState(self.watch, request.begun.token_ids if request.begun else ())
                for request in requests
                for _ in request.samples
            ]

    def _recall(self, slot: int, begun: PartialResponse) -> None:
        """What an unfinished rollout has drawn, back into its slot."""
        for store_SN, values in zip(
            (self.token_SN, self.logp_SN, self.size_SN), (begun.token_ids, begun.logps, begun.sizes), strict=True
        ):
            store_SN[slot, : len(values)] = torch.tensor(values, device=store_SN.device)

    def decode(self) -> None:
        """One more token for each active row; rows that fill the batch up compute on what they last held, unread."""
        rows = round_up(self.active, ROW_STEP)
        length_B = self.column["length"][:rows]
        shared_B, prompt_B = self.column["shared"][:rows], self.column["prompt"][:rows]
        own_B = length_B - shared_B
        ends = torch.stack((length_B[: self.active].max(), own_B[: self.active].max())).tolist()
        longest = round_up(ends[0] + 1, 8 * SPAN_STEP)  # of the rotary tables, which are short
        self.cache.fit(round_up(ends[1] + 1, SPAN_STEP))
        own_B = own_B.clamp(max=self.cache.span - 1)
        self.cache.begin(own_B, prompt_B, self.column["member"][:rows], longest=longest)
        column_X = torch.arange(-self.cache.prompt_columns, self.cache.span, device=own_B.device)
        in_prompt_BX = column_X < (shared_B - self.cache.prompt_columns)[:, None]
        seen_BX = torch.where(column_X < 0, in_prompt_BX, column_X <= own_B[:, None])
        mask_B11X = torch.zeros(seen_BX.shape, device=seen_BX.device).masked_fill(~seen_BX, -torch.inf)[:, None, None]
        hidden_BH = self.step(self.column["last"][:rows], length_B.clamp(max=longest - 1), self.cache, mask_B11X)
        self.column["length"][: self.active] += 1
        active_B = torch.arange(self.active, device=self.policy.device)
        self._draw(active_B, hidden_BH, active_B)

    def take_finished(self) -> list[FinishedResponse]:
        """Rows that ended, or drew what a call may draw, removed from the batch."""
        ended_B = self._ended()
        done_B = ended_B | (self.column["drawn"][: self.active] >= self.column["limit"][: self.active])
        done = done_B.nonzero().squeeze(-1)
        if not len(done):
            return []
        rows = [
            FinishedResponse(
                index=index,
                sample=sample,
                token_ids=tuple(tokens[:drawn]),
                logps=tuple(logps[:drawn]),
                sizes=tuple(sizes[:drawn]),
                sampled_mask=course.sampled_mask if course else (),
                finish=self._finish(ended, drawn, course),
            )
            for index, sample, ended, drawn, tokens, logps, sizes, course in zip(
                self.column["request"][done].tolist(),
                self.column["sample"][done].tolist(),
                ended_B[done].tolist(),
                self.column["drawn"][done].tolist(),
                self.token_SN[done].tolist(),
                self.logp_SN[done].tolist(),
                self.size_SN[done].tolist(),
                [self.courses[slot] if self.watch else None for slot in done.tolist()],
                strict=True,
            )
        ]
        self._close_holes(done_B)
        return rows

    def _finish(self, ended: bool, drawn: int, course: ResponseState | None) -> Finish:
        if not ended:
            return Finish.LENGTH if drawn >= self.sampling.max_response_tokens else Finish.ABORT
        return course.finish if course else Finish.STOP

    def _draw(self, slot_B: Tensor, hidden_RH: Tensor, source_B: Tensor) -> None:
        """A token for each slot from hidden_RH[source_B], in parts: memory does not grow with rows x vocabulary.

        source_B: ascending.
        """
        weight_VH, temperature = self.policy.head.weight, self.sampling.temperature or 1.0
        chunk = max(1, CHUNK_LOGITS // len(weight_VH))
        if len(slot_B) <= chunk:
            return self._draw_rows(slot_B, head_logits(hidden_RH, weight_VH, temperature)[source_B])
        for rows_C, from_C in zip(slot_B.split(chunk), source_B.split(chunk), strict=True):
            some_R, of_C = from_C.unique_consecutive(return_inverse=True)
            self._draw_rows(rows_C, head_logits(hidden_RH[some_R], weight_VH, temperature)[of_C])
        return None

    def _draw_rows(self, slot_B: Tensor, logits_BV: Tensor) -> None:
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
            own_M = self.column["length"][source_M] - self.column["shared"][source_M]
            self.cache.move(source_M, hole_M, int(own_M.max()))
            for column in (*self.column.values(), self.token_SN, self.logp_SN, self.size_SN):
                column[hole_M] = column[source_M]
        if self.watch:
            for hole, source in zip(hole_M.tolist(), source_M.tolist(), strict=True):
                self.courses[hole] = self.courses[source]
            del self.courses[kept:]
        self.column["prompt"][kept : self.active] = -1
        self.active = kept
        if self.cache.num_prompts > 2 * len(self.column["prompt"][:kept].unique()):
            self._keep_prompts(torch.empty(0, dtype=torch.long, device=done_B.device))

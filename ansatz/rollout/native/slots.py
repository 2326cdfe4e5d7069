"""The decoding batch: the slots of a cache, and the rows that occupy them.

Axes: S slots, B active rows (always slots 0..B-1), R requests of one prefill, N tokens of a response, V vocabulary,
L prefilled tokens, H hidden, X cached positions that attention sees, C rows sampled at once, M moved rows, K key/value
heads, P cached positions of a slot, D head size.

A prompt is prefilled once for all samples of its group. When rows finish, the last active rows move into their slots,
so the batch stays dense; waiting requests enter once enough slots are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ansatz.models.load import Policy, finish_logits
from ansatz.models.logps import mask_end_tokens, rows_per_chunk
from ansatz.models.packing import round_up
from ansatz.rollout.base import Sampling
from ansatz.rollout.native.cache import ROW_STEP, SPAN_STEP, PrefillCache, RowPlaces, SlotCache
from ansatz.rollout.native.equal_rows import panels_of
from ansatz.rollout.native.forward import Capture, DecodeStep, FastDecodeStep, ReferenceDecodeStep, StepGraph
from ansatz.rollout.native.fused import CompiledDecodeStep
from ansatz.rollout.native.requests import FinishedResponse, SampleRequest
from ansatz.rollout.response_rules import ResponseRules, ResponseState
from ansatz.rollout.sampling import draw_seeds, kernels_on, noise_key, sample_tokens
from ansatz.types import Finish, Rollout

_PREFILL_STEP = 16  # prompts of one prefill are rounded up to multiples of this
_LOOK_EVERY = 4  # steps with graphs: looking at which rows have ended makes the host wait for the GPU
_COLUMNS = (
    "request",  # index of the request
    "sample",  # index of the sample within the prompt's group
    "noise_key",
    "length",  # tokens of prompt and response that the cache holds
    "num_tokens",  # response tokens so far
    "max_tokens",  # response tokens at which this call returns the row
    "last_token",
    "prompt",  # the prompt that the row shares with its group, -1 for none
    "member",  # index of the row within that group
    "shared",  # positions of the shared prompt, 0 for none
    "forced",  # the token that the rules want next, -1 for none
    "going",  # 1 until the row has ended or has reached its limit; other rows are not changed by a step
)


@dataclass(kw_only=True, slots=True, eq=False)
class ParkedRow:
    """A row that waits outside the slots for its environment. values: its entries of `Slots.column`.

    stored: its entries of `Slots.stores`, each [N]. layers_kv: keys and values of its own slot, each [K, P, D], in the
    host's memory.
    """

    state: ResponseState
    values: dict[str, int]
    stored: list[Tensor]
    layers_kv: list[tuple[Tensor, Tensor]]

    def finished(self, finish: Finish) -> FinishedResponse:
        """Return the response, if it has ended while it was parked."""
        token_ids, logps, num_candidates = (tuple(values_N.tolist()) for values_N in self.stored)
        return FinishedResponse(
            request_index=self.values["request"],
            sample=self.values["sample"],
            token_ids=token_ids,
            behavior_logps=logps,
            num_candidates=num_candidates,
            finish=finish,
            state=self.state,
        )


class Slots:
    """The rows of the batch. `column` holds the integers of each slot (see _COLUMNS), and `token_SN`, `logp_SN` and
    `num_candidates_SN`, together `stores`, its tokens so far.

    states: one per active row if the call uses rules. Without rules it is empty, and no row is handled on its own.
    parked: rows that have left their slots for as long as their environments take (`parking.ParkingLot`).
    """

    def __init__(
        self,
        policy: Policy,
        step: DecodeStep,
        sampling: Sampling,
        requests: Sequence[SampleRequest],
        *,
        max_slots: int,
        rules: ResponseRules | None,
        capture: Capture | None,
    ) -> None:
        device = policy.device
        self.step = step
        self.policy, self.sampling = policy, sampling
        self.rules, self.states = rules, list[ResponseState]()
        self.parked: list[ParkedRow] = []
        group_size = max(request.num_rows for request in requests)
        self.num_slots = min(max(max_slots, group_size), sum(request.num_rows for request in requests))
        # Without packed weights, products of a few rows would round differently. Graphs want few shapes.
        is_packed = capture is None and isinstance(step, CompiledDecodeStep) and panels_of(policy.head) is not None
        self.row_step, self.prefill_step = (1, 1) if is_packed else (ROW_STEP, _PREFILL_STEP)
        num_rows = round_up(self.num_slots, self.row_step)
        self.graph = None if capture is None else StepGraph(capture)
        # Fused steps read as much of the cache as each row has; the other two read all of it, under a mask.
        self.reads_lengths = not isinstance(step, FastDecodeStep | ReferenceDecodeStep)
        # Such a step with graphs gets the largest cache at once, so that few graphs are captured.
        self.has_all_room = self.reads_lengths and self.graph is not None
        self.longest = max(len(request.prompt.token_ids) for request in requests) + sampling.max_response_tokens
        # A group's prompt is stored apart from its slots, which then hold responses only.
        span = sampling.max_response_tokens if all(request.num_rows > 1 for request in requests) else self.longest
        least_span = round_up(span, SPAN_STEP) if self.has_all_room else 0
        self.cache = SlotCache(num_rows, group_size=group_size, least_span=least_span)
        self.active = 0
        self.end_ids = torch.tensor(policy.end_ids, device=device)
        self.column = {name: torch.zeros(num_rows, dtype=torch.long, device=device) for name in _COLUMNS}
        self.column["prompt"].fill_(-1)
        # The last column takes the results of rows that are not going.
        self.token_SN = torch.zeros(num_rows, sampling.max_response_tokens + 1, dtype=torch.long, device=device)
        self.num_candidates_SN = torch.zeros_like(self.token_SN)
        self.logp_SN = torch.zeros(num_rows, sampling.max_response_tokens + 1, device=device)
        self.stores = self.token_SN, self.logp_SN, self.num_candidates_SN
        self._steps = 0

    @property
    def free(self) -> int:
        return self.num_slots - self.active

    def take_entering(self, waiting: list[SampleRequest]) -> list[SampleRequest]:
        """Remove from the end of `waiting` the requests that enter now, if any.

        Requests enter only when a quarter of the slots is free, or enough slots for all that wait. Prefills are
        therefore few and large.
        """
        entering, num_rows = list[SampleRequest](), 0
        if not waiting:
            return entering
        needed = max(self.num_slots // 4, waiting[-1].num_rows)
        if self.free < min(needed, sum(request.num_rows for request in waiting)):
            return entering
        while waiting and num_rows + waiting[-1].num_rows <= self.free:
            num_rows += waiting[-1].num_rows
            entering.append(waiting.pop())
        return entering

    def admit(self, requests: Sequence[SampleRequest]) -> None:
        """Prefill each request once, and sample the next token of each of its rows."""
        device, contexts = self.policy.device, [request.context_ids for request in requests]
        length_R = torch.tensor([len(context) for context in contexts], device=device)
        in_kernels = isinstance(self.step, CompiledDecodeStep) and self.step.prefills
        hidden_RH, prefill = self.step.prefill(contexts) if in_kernels else self._prefill(contexts)

        rows_R = torch.tensor([request.num_rows for request in requests], device=device)
        source_B = torch.arange(len(requests), device=device).repeat_interleave(rows_R)
        slot_B = torch.arange(self.active, self.active + len(source_B), device=device)
        self._store_prefill(prefill, slot_B, source_B, rows_R, length_R)
        first = self.active
        self._start_rows(requests, slot_B, length_R[source_B])
        self._read_rules()
        self._sample(slot_B, hidden_RH, source_B)
        self._follow_rules(first)

    def _prefill(self, contexts: Sequence[Sequence[int]]) -> tuple[Tensor, PrefillCache]:
        """Return the last hidden state of each context, and of rows that only round their number up: products of one or
        two rows would round differently."""
        length_R = torch.tensor([len(context) for context in contexts])
        shape = round_up(len(contexts), self.prefill_step), round_up(int(length_R.max()), SPAN_STEP)
        token_RL, last_R = torch.zeros(shape, dtype=torch.long), torch.zeros(shape[0], dtype=torch.long)
        for row, context in enumerate(contexts):
            token_RL[row, : len(context)] = torch.tensor(context)
        last_R[: len(contexts)] = length_R - 1
        token_RL, last_R = token_RL.to(self.policy.device), last_R.to(self.policy.device)
        # Columns of padding can lie beyond the context, where learned positions have no embedding.
        position_L = torch.arange(token_RL.shape[1], device=token_RL.device).clamp(max=self.policy.max_context - 1)
        position_RL = position_L.expand_as(token_RL)
        prefill = PrefillCache()
        hidden_RLH = self.policy.hidden(token_RL, position_RL, cache=prefill, use_cache=True)
        return hidden_RLH[torch.arange(len(hidden_RLH), device=last_R.device), last_R], prefill

    def _store_prefill(
        self, prefill: PrefillCache, slot_B: Tensor, source_B: Tensor, rows_R: Tensor, length_R: Tensor
    ) -> None:
        """Store the prompt of a group once, and the context of a request with a single row in that row's slot."""
        is_group_R = (rows_R > 1) & (not self.policy.caches_latents)  # `SharedPrompts` reads keys and values
        is_group_B = is_group_R[source_B]
        longest = int(length_R.masked_fill(is_group_R, 1).max())
        self.cache.resize(max(self.cache.span, round_up(longest, SPAN_STEP)))
        self.cache.write_prefill(slot_B[~is_group_B], source_B[~is_group_B], prefill)
        groups_R = is_group_R.nonzero().squeeze(-1)
        if len(groups_R):
            num_kept = self._store_prompts(groups_R, prefill)
            prompt_R = num_kept + is_group_R.cumsum(0) - 1
            self.column["prompt"][slot_B] = torch.where(is_group_B, prompt_R[source_B], -1)
        first_R = rows_R.cumsum(0) - rows_R
        self.column["member"][slot_B] = torch.arange(len(slot_B), device=slot_B.device) - first_R[source_B]
        self.column["shared"][slot_B] = length_R[source_B].masked_fill(~is_group_B, 0)

    def _store_prompts(self, added_R: Tensor, prefill: PrefillCache | None = None) -> int:
        """Keep the prompts that rows share, append prompts of a prefill, and return how many were kept."""
        prompt_B = self._prompts_of_rows()
        kept_R = prompt_B[prompt_B >= 0].unique()
        self.cache.set_prompts(kept_R, added_R, prefill)
        prompt_B = torch.where(prompt_B >= 0, torch.searchsorted(kept_R, prompt_B.clamp(min=0)), -1)
        self.column["prompt"][: self.active] = prompt_B[: self.active]
        for row, prompt in zip(self.parked, prompt_B[self.active :].tolist(), strict=True):
            row.values["prompt"] = prompt
        return len(kept_R)

    def _prompts_of_rows(self) -> Tensor:
        """Return the prompt of each active row, then of each parked row."""
        prompt_B = self.column["prompt"][: self.active]
        if not self.parked:
            return prompt_B
        return torch.cat((prompt_B, prompt_B.new_tensor([row.values["prompt"] for row in self.parked])))

    def park(self, slots: Sequence[int]) -> list[ParkedRow]:
        """Move active rows out of their slots, into `parked`."""
        slot_M = torch.tensor(slots, device=self.policy.device)
        columns = {name: column[slot_M].tolist() for name, column in self.column.items()}
        stores = [store_SN[slot_M].cpu() for store_SN in self.stores]
        lengths = [length - shared for length, shared in zip(columns["length"], columns["shared"], strict=True)]
        layers_kv = self.cache.copy_out(slot_M, max(lengths))
        rows = [
            ParkedRow(
                state=self.states[slot],
                values=(values := {name: column[index] for name, column in columns.items()}),
                stored=[store_MN[index, : values["num_tokens"]] for store_MN in stores],
                layers_kv=[(key[index, :, :length], value[index, :, :length]) for key, value in layers_kv],
            )
            for index, (slot, length) in enumerate(zip(slots, lengths, strict=True))
        ]
        self.parked += rows  # before `_compact`, which drops the prompts that no row needs
        is_parked_B = torch.zeros(self.active, dtype=torch.bool, device=self.policy.device)
        is_parked_B[slot_M] = True
        self._compact(is_parked_B)
        return rows

    def unpark(self, rows: Sequence[ParkedRow]) -> None:
        """Put parked rows into free slots, after the active rows."""
        device, span = self.policy.device, max(row.values["length"] - row.values["shared"] for row in rows)
        self.cache.resize(max(self.cache.span, round_up(span + 1, SPAN_STEP)))
        slot_M = torch.arange(self.active, self.active + len(rows), device=device)
        for name, column in self.column.items():
            column[slot_M] = torch.tensor([row.values[name] for row in rows], device=device)
        for slot, row in enumerate(rows, self.active):
            for store_SN, values_N in zip(self.stores, row.stored, strict=True):
                store_SN[slot, : len(values_N)] = values_N
            self.cache.copy_in(slot, row.layers_kv)
        self.states += [row.state for row in rows]
        self.active += len(rows)
        returned = {id(row) for row in rows}
        self.parked = [row for row in self.parked if id(row) not in returned]

    def _start_rows(self, requests: Sequence[SampleRequest], slot_B: Tensor, length_B: Tensor) -> None:
        sampling = self.sampling
        budget = sampling.max_call_tokens or sampling.max_response_tokens
        rows: list[tuple[int, int, int, int, int]] = []
        for request in requests:
            max_tokens = min(request.num_tokens + budget, sampling.max_response_tokens)
            for sample in request.samples:
                key = noise_key(sampling.seed, sampling.step, request.prompt.problem.id, sample)
                rows.append((request.index, sample, key, request.num_tokens, max_tokens))
            if request.partial:
                self._restore(self.active + len(rows) - 1, request.partial)
        names = ("request", "sample", "noise_key", "num_tokens", "max_tokens")
        for name, values in zip(names, zip(*rows, strict=True), strict=True):
            self.column[name][slot_B] = torch.tensor(values, device=slot_B.device)
        self.column["length"][slot_B] = length_B
        self.column["forced"][slot_B], self.column["going"][slot_B] = -1, 1
        self.active += len(rows)
        if self.rules:
            self.states += [
                ResponseState(self.rules, request.prompt.problem, request.partial)
                for request in requests
                for _ in request.samples
            ]

    def _restore(self, slot: int, partial: Rollout) -> None:
        """Write the tokens of an unfinished rollout into its slot."""
        num_candidates = partial.num_candidates or (0,) * partial.num_tokens
        fields = (partial.token_ids, partial.behavior_logps, num_candidates)
        for store_SN, values in zip(self.stores, fields, strict=True):
            store_SN[slot, : len(values)] = torch.tensor(values, device=store_SN.device)

    def decode(self) -> None:
        """Sample one more token for each active row that is going.

        Rows that only round the batch up compute on their last values, and nothing reads their results.
        """
        num_rows = round_up(self.active, self.row_step)
        position_bound = self._make_room()
        self._read_rules()
        if self.graph is None:
            self._advance(num_rows, position_bound, num_sampled=self.active)
        else:
            shape = num_rows, self.cache.reallocations, position_bound
            self.graph(shape, lambda: self._advance(num_rows, position_bound, num_sampled=num_rows))
        self._follow_rules(0)
        self._steps += 1

    def _advance(self, num_rows: int, position_bound: int, *, num_sampled: int) -> None:
        """Make the changes of a step in the memory of a device, for the first num_sampled rows."""
        drawn = self._next_tokens(num_rows, position_bound, num_sampled=num_sampled)
        self.column["length"][:num_sampled] += self.column["going"][:num_sampled]
        self._store(torch.arange(num_sampled, device=drawn[0].device), *drawn)

    def _make_room(self) -> int:
        """Let the cache hold one more token of each active row. Return a bound of their positions.

        If there is room for all positions, the GPU need not be asked.
        """
        if self.has_all_room:
            return round_up(self.longest, SPAN_STEP)
        length_B, shared_B = self.column["length"][: self.active], self.column["shared"][: self.active]
        ends = torch.stack((length_B.max(), (length_B - shared_B).max())).tolist()
        self.cache.resize(round_up(ends[1] + 1, SPAN_STEP))
        return round_up(ends[0] + 1, 8 * SPAN_STEP)  # the rotary tables are small, so large steps are cheap

    def _next_tokens(self, num_rows: int, position_bound: int, *, num_sampled: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result of `sample_tokens` for the first num_sampled rows. Only the cache is changed."""
        length_B, shared_B = self.column["length"][:num_rows], self.column["shared"][:num_rows]
        # In the row's own slot. Without the bound, the place of a row that is not going could be beyond its end.
        position_B = (length_B - shared_B).clamp(max=self.cache.span - 1)
        mask_B11X = self._begin_step(length_B, shared_B, position_B, position_bound)
        token_B, length_B = self.column["last_token"][:num_rows], length_B.clamp(max=position_bound - 1)
        hidden_BH = self.step(token_B, length_B, self.cache, mask_B11X)
        chunk = rows_per_chunk(len(self.policy.head.weight), on_gpu=hidden_BH.is_cuda)
        if num_sampled <= chunk:
            return self._draw(slice(num_sampled), self._logits(hidden_BH)[:num_sampled])
        slices = [slice(first, min(first + chunk, num_sampled)) for first in range(0, num_sampled, chunk)]
        drawn = [self._draw(rows, self._logits(hidden_BH[rows])) for rows in slices]
        token_B, logp_B, num_candidates_B = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        return token_B, logp_B, num_candidates_B

    def _begin_step(self, length_B: Tensor, shared_B: Tensor, position_B: Tensor, position_bound: int) -> Tensor | None:
        """Set the cells that the rows of this step write and see. Return the mask of a step that needs one."""
        prompt_B = self.column["prompt"][: len(length_B)]
        if self.reads_lengths:
            self.cache.rows, self.cache.position_bound = RowPlaces(position_B, prompt_B, shared_B), position_bound
            return None
        # Attention sees the columns of the shared prompts, numbered up to -1, then the row's own slot, from 0.
        # Every prompt begins at the first column, so the last ones of a shorter prompt are masked.
        column_X = torch.arange(-self.cache.prompt_columns, self.cache.span, device=position_B.device)
        in_prompt_BX = column_X < (shared_B - self.cache.prompt_columns)[:, None]
        seen_BX = torch.where(column_X < 0, in_prompt_BX, column_X <= position_B[:, None])
        mask_B11X = torch.zeros(seen_BX.shape, device=seen_BX.device).masked_fill(~seen_BX, -torch.inf)[:, None, None]
        window_mask = None
        if (window := self.policy.window) is not None:
            place_BX = torch.where(column_X < 0, column_X + self.cache.prompt_columns, column_X + shared_B[:, None])
            window_mask = mask_B11X.masked_fill((place_BX <= length_B[:, None] - window)[:, None, None], -torch.inf)
        self.cache.begin_step(
            position_B,
            prompt_B,
            self.column["member"][: len(length_B)],
            position_bound=position_bound,
            window_mask=window_mask,
        )
        return mask_B11X

    def take_finished(self) -> list[FinishedResponse]:
        """Remove and return the rows that have ended or reached the limit of this call.

        With graphs this looks at the rows only every few steps, because looking makes the host wait for the GPU.
        """
        if self.graph and not self.rules and self._steps % _LOOK_EVERY:
            return []
        ended_B = self._ended()
        done_B = ended_B | (self.column["num_tokens"][: self.active] >= self.column["max_tokens"][: self.active])
        done = done_B.nonzero().squeeze(-1)
        if not len(done):
            return []
        responses = [
            FinishedResponse(
                request_index=request_index,
                sample=sample,
                token_ids=tuple(token_ids[:num_tokens]),
                behavior_logps=tuple(logps[:num_tokens]),
                num_candidates=tuple(num_candidates[:num_tokens]),
                finish=self._finish(ended, num_tokens, state),
                state=state,
            )
            for request_index, sample, ended, num_tokens, token_ids, logps, num_candidates, state in zip(
                self.column["request"][done].tolist(),
                self.column["sample"][done].tolist(),
                ended_B[done].tolist(),
                self.column["num_tokens"][done].tolist(),
                self.token_SN[done].tolist(),
                self.logp_SN[done].tolist(),
                self.num_candidates_SN[done].tolist(),
                [self.states[slot] if self.rules else None for slot in done.tolist()],
                strict=True,
            )
        ]
        self._compact(done_B)
        return responses

    def _finish(self, ended: bool, num_tokens: int, state: ResponseState | None) -> Finish:
        if not ended:
            return Finish.LENGTH if num_tokens >= self.sampling.max_response_tokens else Finish.ABORT
        return state.finish if state else Finish.STOP

    def _sample(self, slot_B: Tensor, hidden_RH: Tensor, source_B: Tensor) -> None:
        """Sample a token for each slot from hidden_RH[source_B], in chunks, so that memory does not grow with rows x
        vocabulary. source_B must be ascending."""
        chunk = rows_per_chunk(len(self.policy.head.weight), on_gpu=hidden_RH.is_cuda)
        if len(slot_B) <= chunk:
            return self._store(slot_B, *self._draw(slot_B, self._logits(hidden_RH)[source_B]))
        for slot_C, source_C in zip(slot_B.split(chunk), source_B.split(chunk), strict=True):
            used_R, used_C = source_C.unique_consecutive(return_inverse=True)
            self._store(slot_C, *self._draw(slot_C, self._logits(hidden_RH[used_R])[used_C]))
        return None

    def _logits(self, hidden_CH: Tensor) -> Tensor:
        """Compute logits over the temperature. Within `equal_rows`, a row gets the same bits in every batch, because
        a product of a few rows, such as the last chunk, is filled up with zeros."""
        num_rows, temperature = len(hidden_CH), self.sampling.temperature or 1.0
        if missing := -num_rows % self.row_step:
            hidden_CH = nn.functional.pad(hidden_CH, (0, 0, 0, missing))
        if temperature == 1.0 and self.policy.softcap is None and hidden_CH.is_cuda and kernels_on(hidden_CH.device):
            logits_CV = nn.functional.linear(hidden_CH, self.policy.head.weight)  # which the kernels read as float32
            return logits_CV[:num_rows]
        return finish_logits(self.policy.head(hidden_CH)[:num_rows], temperature, self.policy.softcap)

    def _draw(self, slots: Tensor | slice, logits_BV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result of `sample_tokens` for the next token of these slots."""
        position_B = self.column["num_tokens"][slots]
        seed_B22 = draw_seeds(self.column["noise_key"][slots], position_B)
        sampling = self.sampling
        if sampling.min_response_tokens:
            no_eos_B = position_B < sampling.min_response_tokens
            logits_BV = mask_end_tokens(logits_BV, no_eos_B, self.policy.end_ids, in_place=True)
        return sample_tokens(
            logits_BV,
            seed_B22,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            greedy=sampling.temperature == 0,
            with_counts=sampling.limits_candidates,
        )

    def _store(self, slot_B: Tensor, token_B: Tensor, logp_B: Tensor, num_candidates_B: Tensor) -> None:
        """Append to rows that are going the sampled tokens, or the tokens that the rules force."""
        num_tokens_B, going_B = self.column["num_tokens"][slot_B], self.column["going"][slot_B]
        if self.rules:
            forced_B = self.column["forced"][slot_B]
            is_sampled_B = forced_B < 0
            token_B = torch.where(is_sampled_B, token_B, forced_B)
            logp_B = logp_B.masked_fill(~is_sampled_B, 0.0)
            num_candidates_B = num_candidates_B.masked_fill(~is_sampled_B, 1)
        place_B = num_tokens_B
        if self.graph:  # without graphs, a row leaves before the step after its end
            is_going_B = going_B.bool()
            place_B = place_B.masked_fill(~is_going_B, self.token_SN.shape[1] - 1)
            token_B = torch.where(is_going_B, token_B, self.column["last_token"][slot_B])
            is_full_B = num_tokens_B + going_B >= self.column["max_tokens"][slot_B]
            self.column["going"][slot_B] = going_B.masked_fill(torch.isin(token_B, self.end_ids) | is_full_B, 0)
        self.token_SN[slot_B, place_B] = token_B
        self.logp_SN[slot_B, place_B] = logp_B
        self.num_candidates_SN[slot_B, place_B] = num_candidates_B
        self.column["last_token"][slot_B], self.column["num_tokens"][slot_B] = token_B, num_tokens_B + going_B

    def _read_rules(self) -> None:
        """Write down the token that the rules want next in each active row. They alone say which rows have ended."""
        if self.rules:
            forced_B = torch.tensor([state.forced_token for state in self.states], device=self.policy.device)
            self.column["forced"][: self.active], self.column["going"][: self.active] = forced_B, 1

    def _follow_rules(self, first: int) -> None:
        """Tell the rules the last token of the active rows from slot `first` on."""
        if self.rules:
            tokens = self.column["last_token"][first : self.active].tolist()
            for state, token in zip(self.states[first:], tokens, strict=True):
                state.append(token)

    def _ended(self) -> Tensor:
        if self.rules:
            return torch.tensor([state.ended for state in self.states], dtype=torch.bool, device=self.policy.device)
        return torch.isin(self.column["last_token"][: self.active], self.end_ids)

    def _compact(self, done_B: Tensor) -> None:
        """Move the last active rows into the slots of the rows that are done, and drop prompts that no row needs."""
        kept = self.active - int(done_B.sum())
        hole_M = done_B[:kept].nonzero().squeeze(-1)
        source_M = kept + (~done_B[kept:]).nonzero().squeeze(-1)
        if len(hole_M):
            length_M = self.column["length"][source_M] - self.column["shared"][source_M]
            self.cache.move(source_M, hole_M, int(length_M.max()))
            for column in (*self.column.values(), *self.stores):
                column[hole_M] = column[source_M]
        if self.rules:
            for hole, source in zip(hole_M.tolist(), source_M.tolist(), strict=True):
                self.states[hole] = self.states[source]
            del self.states[kept:]
        self.column["prompt"][kept : self.active], self.column["going"][kept : self.active] = -1, 0
        self.active = kept
        if self.cache.num_prompts > 2 * len(self._prompts_of_rows().unique()):
            self._store_prompts(torch.empty(0, dtype=torch.long, device=done_B.device))

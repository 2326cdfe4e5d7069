"""Stop strings, thinking budgets and tools in the native sampler, against what it draws without them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from test_native import assert_same
from tiny_models import END_ID, VOCAB_SIZE, some_prompts, tiny_policy

from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.rollout.base import Sampling, Tool
from ansatz.rollout.native import NativeSampler
from ansatz.train.logps import logps_of
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.types import Finish, Prompt, Rollout

PROMPTS = some_prompts(9)
SAMPLING = Sampling(num_samples=3, max_response_tokens=24, seed=7, step=4)
STOP = ("t4 t", "t33", "6")  # the first spans tokens, the last is a part of several
THINKING = {"thinking_budget": 6, "thought_end": "t2", "closing": "t8 t20"}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return dataclasses.replace(tiny_policy(), end_ids=(END_ID, 5, 9, 13, 17))


@pytest.fixture(scope="module")
def endless(policy: Policy) -> Policy:
    return dataclasses.replace(policy, end_ids=(VOCAB_SIZE + 1,))


def generate(
    policy: Policy,
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    max_concurrent: int = 1000,
    tool: Tool | None = None,
    **how: Any,
) -> list[Rollout]:
    sampler = NativeSampler(policy, max_concurrent=max_concurrent, tool=tool)
    return sampler.generate(prompts, dataclasses.replace(SAMPLING, **how))


def text_of(policy: Policy, token_ids: Sequence[int]) -> str:
    return policy.tokenizer.decode(list(token_ids))


def assert_aligned(policy: Policy, rollouts: Sequence[Rollout], *, temperature: float = 1.0) -> None:
    """The trainer's log-probs of the policy's own tokens are the sampler's, and the forced ones have none."""
    rows = [TrainSample.from_rollout(rollout, group=0, reward=0.0) for rollout in rollouts]
    layout = pack_rollouts(rows, device=policy.device)
    assert int(layout.mask_T.sum()) == sum(sum(one.sampled_mask or [True] * one.num_tokens) for one in rollouts)
    logp_T = logps_of(policy, layout, tokens_per_microbatch=512, temperature=temperature)
    assert not logp_T[~layout.mask_T].any()
    assert (logp_T - layout.behavior_logp_T).abs().max() < 1e-4


def tool(text: str) -> str | None:
    """Tells a response with an even number of words a word and two end tokens more; ends the others."""
    words = text.split()
    return f"t{20 + len(words)} t5 <|end|>" if len(words) % 2 == 0 else None


def test_a_stop_string_ends_what_would_have_been_drawn_anyway_and_changes_no_token(policy: Policy) -> None:
    ended_early = 0
    for one, plain in zip(generate(policy, stop=STOP), generate(policy), strict=True):
        ends = [n + 1 for n, token in enumerate(plain.token_ids) if token in policy.end_ids]
        stops = [
            n
            for n in range(1, plain.num_tokens + 1)
            if any(stop in text_of(policy, plain.token_ids[:n]) for stop in STOP)
        ]
        length = min([*ends, *stops, plain.num_tokens])
        assert one.token_ids == plain.token_ids[:length]
        assert one.behavior_logps == pytest.approx(plain.behavior_logps[:length], abs=1e-4)
        assert one.finish is (Finish.STOP if ends or stops else Finish.LENGTH)
        assert one.sampled_mask == ()
        ended_early += length < plain.num_tokens
    assert 3 < ended_early < len(PROMPTS) * 3


def test_a_stop_string_in_the_last_token_that_fits_is_a_stop(endless: Policy) -> None:
    plain = generate(endless, PROMPTS[:1], max_response_tokens=5)[0]
    last = text_of(endless, plain.token_ids[-2:])
    assert generate(endless, PROMPTS[:1], max_response_tokens=5)[0].finish is Finish.LENGTH
    assert generate(endless, PROMPTS[:1], max_response_tokens=5, stop=(last,))[0].finish is Finish.STOP


def test_an_open_thought_is_closed_at_its_budget_and_the_answer_goes_on(endless: Policy) -> None:
    rollouts, plain = generate(endless, **THINKING), generate(endless)
    forced = 0
    for one, other in zip(rollouts, plain, strict=True):
        assert one.num_tokens == 24
        assert one.token_ids[:6] == other.token_ids[:6]
        if "t2" in text_of(endless, other.token_ids[:6]):
            assert (one.token_ids, one.sampled_mask) == (other.token_ids, ())
        else:
            assert one.token_ids[6:8] == (8, 20)
            assert one.sampled_mask == (*[True] * 6, False, False, *[True] * 16)
            assert one.behavior_logps[6:8] == (0.0, 0.0)
            assert min(one.behavior_logps[8:]) < 0
            forced += 1
    assert 3 < forced < len(rollouts)


def test_after_a_forced_closing_an_end_token_finishes_within_budget(policy: Policy) -> None:
    rollouts = generate(policy, **THINKING)
    for one in rollouts:
        ended = one.token_ids[-1] in policy.end_ids
        assert one.finish is (Finish.LENGTH if not ended else Finish.BUDGET if one.sampled_mask else Finish.STOP)
    assert {one.finish for one in rollouts} == set(Finish) - {Finish.ABORT}


def test_a_tools_words_stand_after_the_stop_and_the_response_goes_on_from_them(policy: Policy) -> None:
    rollouts = generate(policy, stop=STOP, tool=tool)
    observed = [one for one in rollouts if one.sampled_mask]
    assert len(observed) > 3
    for one in observed:
        start = one.sampled_mask.index(False)
        before = text_of(policy, one.token_ids[:start])
        assert any(stop in before for stop in STOP)
        said = policy.tokenizer.encode(tool(before), add_special_tokens=False)
        assert one.token_ids[start : start + 3] == tuple(said[: 24 - start])
        assert one.sampled_mask[start : start + 3] == (False,) * len(said[: 24 - start])
    assert max(one.num_tokens - one.sampled_mask.index(False) for one in observed) > 4
    assert max(one.sampled_mask.count(False) for one in observed) > 3  # some are told twice
    for one in rollouts:
        if one.finish is Finish.STOP and one.token_ids[-1] not in policy.end_ids:
            assert len(text_of(policy, one.token_ids).split()) % 2 == 1


FEATURES = {
    "stop": {"stop": STOP},
    "thinking": THINKING,
    "tool": {"stop": STOP, "tool": tool},
    "all": {
        **THINKING,
        "stop": STOP,
        "tool": tool,
        "min_response_tokens": 4,
        "min_p": 0.02,
        "top_p": 0.9,
        "temperature": 1.2,
    },
}


@pytest.mark.parametrize("how", FEATURES.values(), ids=FEATURES)
def test_a_response_depends_neither_on_batch_nor_slot_nor_order(policy: Policy, how: dict[str, Any]) -> None:
    together = generate(policy, **how)
    assert len({one.num_tokens for one in together}) > 5
    for rollouts in (
        [one for each in PROMPTS for one in generate(policy, [each], **how)],
        generate(policy, PROMPTS[::-1], **how),
        generate(policy, max_concurrent=7, **how),
    ):
        assert_same(rollouts, together)
        marks = {(one.prompt.problem.id, one.sample): one.sampled_mask for one in together}
        assert {(one.prompt.problem.id, one.sample): one.sampled_mask for one in rollouts} == marks


@pytest.mark.parametrize("how", FEATURES.values(), ids=FEATURES)
def test_the_trainer_gives_the_policys_tokens_the_samplers_log_probs(policy: Policy, how: dict[str, Any]) -> None:
    rollouts = generate(policy, max_concurrent=7, **how)
    assert_aligned(policy, rollouts, temperature=how.get("temperature", 1.0))
    assert any(one.sampled_mask for one in rollouts) == ("tool" in how or "thinking_budget" in how)


def test_greedy_keeps_to_stops_and_budget(endless: Policy) -> None:
    for one in generate(endless, temperature=0.0, **THINKING):
        assert "t2" in text_of(endless, one.token_ids[:6]) or one.token_ids[6:8] == (8, 20)
        assert set(one.behavior_logps) == {0.0}
    assert SAMPLING.greedy().needs_rules is False
    assert dataclasses.replace(SAMPLING, stop=STOP).greedy().stop == STOP


def test_a_budget_without_room_for_an_answer_is_refused(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"rollout.thinking_budget = 22 and the 2 tokens"):
        generate(policy, **{**THINKING, "thinking_budget": 22})


def test_without_such_features_no_row_is_looked_at_on_its_own(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a course was followed")

    monkeypatch.setattr("ansatz.rollout.native.slots.ResponseState.append", refuse)
    assert torch.tensor([one.num_tokens for one in generate(policy, top_p=0.9)]).min() >= 1
    with pytest.raises(AssertionError, match="a course was followed"):
        generate(policy, stop=STOP)

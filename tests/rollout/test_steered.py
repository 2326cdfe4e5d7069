"""Stop strings, thinking budgets and environments in the native sampler, compared with sampling without them."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scripted import scripted
from test_native import assert_same
from tiny_models import some_prompts, tiny_policy

from ansatz.config.chat import ChatTemplate
from ansatz.environments.base import EnvironmentSpec
from ansatz.errors import ConfigError
from ansatz.models.load import Policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.longer_thoughts import LongerThoughts
from ansatz.rollout.native import NativeSampler
from ansatz.train.logps import logps_of
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.types import Finish, Prompt, Rollout
from tools.families import END_ID, VOCAB_SIZE

PROMPTS = some_prompts(9)
SAMPLING = Sampling(num_samples=3, max_response_tokens=24, seed=7, step=4)
STOP = ("t4 t", "t33", "6")  # the first spans two tokens, the last is part of several
THINKING = {"thinking_budget": 6, "thought_end": "t2", "closing": "t8 t20"}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return dataclasses.replace(tiny_policy(), end_ids=(END_ID, 5, 9, 13, 17))


@pytest.fixture(scope="module")
def never_ending(policy: Policy) -> Policy:
    return dataclasses.replace(policy, end_ids=(VOCAB_SIZE + 1,))


def generate(
    policy: Policy,
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    max_concurrent: int = 1000,
    environment: EnvironmentSpec | None = None,
    **settings: Any,
) -> list[Rollout]:
    sampler = NativeSampler(policy, max_concurrent=max_concurrent, environment=environment)
    return sampler.generate(prompts, dataclasses.replace(SAMPLING, **settings))


def text_of(policy: Policy, token_ids: Sequence[int]) -> str:
    return policy.tokenizer.decode(list(token_ids))


def assert_aligned(policy: Policy, rollouts: Sequence[Rollout], *, temperature: float = 1.0) -> None:
    """The trainer's log-probs of sampled tokens equal the sampler's, and forced tokens have none."""
    rows = [TrainSample.from_rollout(rollout, group=0, reward=0.0) for rollout in rollouts]
    layout = pack_rollouts(rows, device=policy.device)
    assert int(layout.sampled_mask_T.sum()) == sum(
        sum(rollout.sampled_mask or [True] * rollout.num_tokens) for rollout in rollouts
    )
    logp_T = logps_of(policy, layout, tokens_per_microbatch=512, temperature=temperature)
    assert not logp_T[~layout.sampled_mask_T].any()
    assert (logp_T - layout.behavior_logp_T).abs().max() < 1e-4


def answer(turn: str) -> str | None:
    """Append a word and two end tokens to a turn with an even number of words. End the others."""
    words = turn.split()
    return f"t{20 + len(words)} t5 <|end|>" if len(words) % 2 == 0 else None


UNKNOWN = 0
INSTANT = scripted(answer, turn_ends=STOP)
SLOW = scripted(lambda turn: time.sleep(len(turn) % 3 / 100) or answer(turn), turn_ends=STOP, delay_s=0.001)


def test_a_stop_string_only_shortens_a_response(policy: Policy) -> None:
    ended_early = 0
    for rollout, plain in zip(generate(policy, stop=STOP), generate(policy), strict=True):
        ends = [n + 1 for n, token in enumerate(plain.token_ids) if token in policy.end_ids]
        stops = [
            n
            for n in range(1, plain.num_tokens + 1)
            if any(stop in text_of(policy, plain.token_ids[:n]) for stop in STOP)
        ]
        length = min([*ends, *stops, plain.num_tokens])
        assert rollout.token_ids == plain.token_ids[:length]
        assert rollout.behavior_logps == pytest.approx(plain.behavior_logps[:length], abs=1e-4)
        assert rollout.finish is (Finish.STOP if ends or stops else Finish.LENGTH)
        assert rollout.sampled_mask == ()
        ended_early += length < plain.num_tokens
    assert 3 < ended_early < len(PROMPTS) * 3


def test_a_stop_string_in_the_last_allowed_token_is_a_stop(never_ending: Policy) -> None:
    plain = generate(never_ending, PROMPTS[:1], max_response_tokens=5)[0]
    last = text_of(never_ending, plain.token_ids[-2:])
    assert generate(never_ending, PROMPTS[:1], max_response_tokens=5)[0].finish is Finish.LENGTH
    assert generate(never_ending, PROMPTS[:1], max_response_tokens=5, stop=(last,))[0].finish is Finish.STOP


WAIT = (8, 40)  # "t8 t40"


def longer(policy: Policy, **settings: Any) -> tuple[list[Rollout], LongerThoughts]:
    native = NativeSampler(policy, max_concurrent=1000)
    sampler = LongerThoughts(native, policy.tokenizer, end_ids=policy.end_ids, budget=9, wait="t8 t40")
    return sampler.generate(PROMPTS, dataclasses.replace(SAMPLING, thought_end="t2", **settings)), sampler


@pytest.mark.parametrize("settings", [{}, {"top_k": 30}, {"thinking_budget": 12, "closing": "t8 t2"}])
def test_a_thought_goes_on_until_its_least_budget_and_the_answer_follows(policy: Policy, settings: Any) -> None:
    """Every end before token 9, of a thought or of a response without a thought, is replaced by the forced tokens."""
    (rollouts, sampler), plain = longer(policy, **settings), generate(policy, thought_end="t2", **settings)
    num_forced = num_answers = 0
    for rollout, other in zip(rollouts, plain, strict=True):
        ids, mask = rollout.token_ids, rollout.sampled_mask or (True,) * rollout.num_tokens
        assert not {*ids[:9]} & {*policy.end_ids}
        assert "t2" not in text_of(policy, ids[:9])
        first = next((n for n, is_sampled in enumerate(mask) if not is_sampled), None)
        if first is None or first >= 9:
            assert ids == other.token_ids
            continue
        num_forced += sum(ids[n : n + 2] == WAIT and mask[n : n + 2] == (False, False) for n in range(9))
        assert ids[:first] == other.token_ids[:first]
        text = text_of(policy, other.token_ids[: first + 1])
        assert other.token_ids[first] in policy.end_ids or "t2" in text
        num_answers += "t2" in text_of(policy, ids[:-1])
    assert sampler.num_forced == num_forced > 5
    assert num_answers > 3
    if not settings.get("top_k"):
        assert_aligned(policy, rollouts)


def test_a_thought_that_has_no_room_to_go_on_stays_as_it_is(policy: Policy) -> None:
    rollouts, sampler = longer(policy, max_response_tokens=2)
    assert [each.token_ids for each in rollouts] == [
        each.token_ids for each in generate(policy, max_response_tokens=2, thought_end="t2")
    ]
    assert [each.finish for each in rollouts] == [each.finish for each in generate(policy, max_response_tokens=2)]
    assert sampler.num_forced == 0


def test_an_open_thought_is_closed_at_its_budget_and_the_answer_follows(never_ending: Policy) -> None:
    rollouts, plain = generate(never_ending, **THINKING), generate(never_ending)
    forced = 0
    for rollout, other in zip(rollouts, plain, strict=True):
        assert rollout.num_tokens == 24
        assert rollout.token_ids[:6] == other.token_ids[:6]
        if "t2" in text_of(never_ending, other.token_ids[:6]):
            assert (rollout.token_ids, rollout.sampled_mask) == (other.token_ids, ())
        else:
            assert rollout.token_ids[6:8] == (8, 20)
            assert rollout.sampled_mask == (*[True] * 6, False, False, *[True] * 16)
            assert rollout.behavior_logps[6:8] == (0.0, 0.0)
            assert min(rollout.behavior_logps[8:]) < 0
            forced += 1
    assert 3 < forced < len(rollouts)


def test_an_end_token_after_a_forced_closing_gives_the_finish_budget(policy: Policy) -> None:
    rollouts = generate(policy, **THINKING)
    for rollout in rollouts:
        ended = rollout.token_ids[-1] in policy.end_ids
        assert rollout.finish is (
            Finish.LENGTH if not ended else Finish.BUDGET if rollout.sampled_mask else Finish.STOP
        )
    assert {rollout.finish for rollout in rollouts} == set(Finish) - {Finish.ABORT}


def test_a_response_continues_after_an_observation(policy: Policy) -> None:
    rollouts = generate(policy, environment=INSTANT)
    observed = [rollout for rollout in rollouts if rollout.sampled_mask]
    assert len(observed) > 3
    for rollout in observed:
        start = rollout.sampled_mask.index(False)
        before = text_of(policy, rollout.token_ids[:start])
        assert any(stop in before for stop in STOP) or rollout.token_ids[start - 1] in policy.end_ids
        words = (answer(before) or "").removesuffix(" <|end|>")
        encoded = policy.tokenizer.encode(words, add_special_tokens=False)
        observation = [*encoded, UNKNOWN]  # as text, the end token is a word that the vocabulary lacks
        assert rollout.token_ids[start : start + 3] == tuple(observation[: 24 - start])
        assert rollout.sampled_mask[start : start + 3] == (False,) * len(observation[: 24 - start])
    assert max(rollout.num_tokens - rollout.sampled_mask.index(False) for rollout in observed) > 4
    assert max(rollout.sampled_mask.count(False) for rollout in observed) > 3  # some have two observations
    for rollout in rollouts:
        if rollout.finish is Finish.STOP and rollout.token_ids[-1] not in policy.end_ids:
            last = rollout.num_tokens - (rollout.sampled_mask or (False,))[::-1].index(False)
            last = last if rollout.sampled_mask else 0
            assert len(text_of(policy, rollout.token_ids[last:]).split()) % 2 == 1


FEATURES = {
    "stop": {"stop": STOP},
    "thinking": THINKING,
    "environment": {"environment": INSTANT},
    "all": {
        **THINKING,
        "environment": SLOW,
        "min_response_tokens": 4,
        "min_p": 0.02,
        "top_p": 0.9,
        "temperature": 1.2,
    },
}


@pytest.mark.parametrize("settings", FEATURES.values(), ids=FEATURES)
def test_a_response_with_rules_does_not_depend_on_its_batch(policy: Policy, settings: dict[str, Any]) -> None:
    together = generate(policy, **settings)
    assert len({rollout.num_tokens for rollout in together}) > 5
    for rollouts in (
        [rollout for prompt in PROMPTS for rollout in generate(policy, [prompt], **settings)],
        generate(policy, PROMPTS[::-1], **settings),
        generate(policy, max_concurrent=7, **settings),
    ):
        assert_same(rollouts, together)
        masks = {(rollout.prompt.problem.id, rollout.sample): rollout.sampled_mask for rollout in together}
        assert {(rollout.prompt.problem.id, rollout.sample): rollout.sampled_mask for rollout in rollouts} == masks


@pytest.mark.parametrize("settings", FEATURES.values(), ids=FEATURES)
def test_the_trainers_log_probs_of_sampled_tokens_equal_the_samplers(policy: Policy, settings: dict[str, Any]) -> None:
    rollouts = generate(policy, max_concurrent=7, **settings)
    assert_aligned(policy, rollouts, temperature=settings.get("temperature", 1.0))
    assert any(rollout.sampled_mask for rollout in rollouts) == (
        "environment" in settings or "thinking_budget" in settings
    )


def test_a_slow_environment_changes_no_bit(policy: Policy) -> None:
    instant = generate(policy, environment=INSTANT)
    assert max(rollout.sampled_mask.count(False) for rollout in instant) > 3
    for max_concurrent in (7, 1000):
        assert generate(policy, environment=SLOW, max_concurrent=max_concurrent) == instant


@pytest.mark.parametrize("environment", [INSTANT, SLOW], ids=["instant", "slow"])
def test_a_resumed_response_keeps_its_observations(policy: Policy, environment: EnvironmentSpec) -> None:
    sampler = NativeSampler(policy, max_concurrent=7, environment=environment)
    whole = sampler.generate(PROMPTS, SAMPLING)
    sampling = dataclasses.replace(SAMPLING, max_call_tokens=5)
    rollouts, calls = sampler.generate(PROMPTS, sampling), 1
    while unfinished := [rollout for rollout in rollouts if rollout.finish is Finish.ABORT]:
        assert all(rollout.num_tokens < 24 for rollout in unfinished)
        resumed = iter(sampler.generate([], sampling, unfinished=unfinished))
        rollouts = [next(resumed) if rollout.finish is Finish.ABORT else rollout for rollout in rollouts]
        calls += 1
    assert calls > 3
    assert_same(rollouts, whole)
    assert [rollout.sampled_mask for rollout in rollouts] == [rollout.sampled_mask for rollout in whole]


def test_greedy_sampling_keeps_stop_strings_and_thinking_budget(never_ending: Policy) -> None:
    for rollout in generate(never_ending, temperature=0.0, **THINKING):
        assert "t2" in text_of(never_ending, rollout.token_ids[:6]) or rollout.token_ids[6:8] == (8, 20)
        assert set(rollout.behavior_logps) == {0.0}
    assert SAMPLING.greedy().needs_rules is False
    assert dataclasses.replace(SAMPLING, stop=STOP).greedy().stop == STOP


def test_a_budget_without_room_for_an_answer_is_refused(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"rollout.thinking_budget = 22 and the 2 tokens"):
        generate(policy, **{**THINKING, "thinking_budget": 22})


def test_without_rules_no_row_is_handled_on_its_own(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a response state was used")

    monkeypatch.setattr("ansatz.rollout.native.slots.ResponseState.append", refuse)
    assert torch.tensor([rollout.num_tokens for rollout in generate(policy, top_p=0.9)]).min() >= 1
    with pytest.raises(AssertionError, match="a response state was used"):
        generate(policy, stop=STOP)


TURNS = (
    "{% for m in messages %}{{ 't2' if m.role == 'user' else 't3' }} {{ m.content }}"
    "{% if m.role == 'assistant' %} <eos> {% endif %}{% endfor %}{% if add_generation_prompt %} t11{% endif %}"
)


def test_messages_of_an_environment_are_what_the_chat_template_writes_after_a_turn(policy: Policy) -> None:
    tokenizer = copy.deepcopy(policy.tokenizer)
    tokenizer.chat_template = TURNS
    policy = dataclasses.replace(policy, tokenizer=tokenizer)

    def reply(turn: str) -> Any:
        return [{"role": "user", "content": "t30 t31"}] if len(turn.split()) > 1 else None

    for delay_s in (None, 0.0):
        environment = dataclasses.replace(
            scripted(reply, turns=3, delay_s=delay_s), chat=ChatTemplate(name="chat", user="none")
        )
        rollouts = generate(policy, environment=environment)
        observed = [rollout for rollout in rollouts if rollout.sampled_mask]
        assert len(observed) > 3
        written = tokenizer.encode("t2 t30 t31 t11", add_special_tokens=False)
        for rollout in observed:
            start = rollout.sampled_mask.index(False)
            forced = rollout.token_ids[start : start + len(written)]
            assert list(forced) == written[: len(forced)]
            assert rollout.token_ids[start - 1] in policy.end_ids
        assert_aligned(policy, rollouts)

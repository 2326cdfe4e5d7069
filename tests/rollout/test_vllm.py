"""The sampler over vLLM, tested without vLLM: its requests, how it takes in outputs, and lost engines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_vllm import FakeEngine, FakePublisher
from safetensors.torch import load_file
from tiny_models import some_prompts, tiny_policy
from toy_runs import toy_config

from ansatz.errors import ConfigError, ModelError, RolloutError
from ansatz.models.weights import LiveWeights
from ansatz.rollout.base import Sampling
from ansatz.rollout.engines import check_engine, engine_of
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.vllm.colocated import _engine_output
from ansatz.rollout.vllm.engine import EngineLost, EngineSettings
from ansatz.rollout.vllm.sampler import VllmSampler
from ansatz.rollout.vllm.server import flags
from ansatz.rollout.vllm.weights import FilePublisher, confirm_push
from tools.families import VOCAB_SIZE

POLICY = tiny_policy()
PROMPTS = some_prompts(5)
SAMPLING = Sampling(num_samples=3, max_response_tokens=12, seed=3, step=2)


def sampler_over(engine: FakeEngine, **settings) -> VllmSampler:
    publisher = settings.pop("publisher", None) or FakePublisher()
    return VllmSampler(POLICY, engine=engine, publisher=publisher, max_context=128, **settings)


def engine(**settings) -> FakeEngine:
    return FakeEngine(vocab_size=VOCAB_SIZE, **settings)


def test_a_lost_engine_loses_and_changes_no_rollout():
    whole = sampler_over(engine()).generate(PROMPTS, SAMPLING)
    dying, finished = engine(dies_after=(4, 0, 5)), []
    rollouts = sampler_over(dying).generate(PROMPTS, SAMPLING, on_finished=finished.append)
    assert rollouts == whole
    assert sorted(map(id, finished)) == sorted(map(id, rollouts))
    assert len(dying.requests) == len(whole)
    assert [event for event in dying.events if event != "sleep"] == ["start", "weights 0-1", "kill"] * 3 + [
        "start",
        "weights 0-1",
    ]


def test_a_restarted_engine_gets_the_weights_that_were_loaded_last():
    dying = engine(dies_after=(1,))
    sampler = sampler_over(dying)
    sampler.load_weights(LiveWeights(policy=POLICY, version=7))
    assert {rollout.version_max for rollout in sampler.generate(PROMPTS, SAMPLING)} == {7}
    assert dying.events == ["start", "weights 7-1", "kill", "start", "weights 7-1", "sleep"]


def test_too_many_lost_engines_are_an_error_with_the_reason():
    dying = engine(dies_after=(0,) * 10)
    with pytest.raises(
        RolloutError, match=r"lost 3 times in one call .*The last error: the fake engine was set to die"
    ):
        sampler_over(dying, max_restarts=2).generate(PROMPTS, SAMPLING)
    assert dying.events.count("start") == dying.events.count("kill") == 3


def test_rollouts_from_unexpected_weights_are_refused():
    with pytest.raises(RolloutError, match="requested from weights 0-1, but vLLM has weights older"):
        sampler_over(engine(fixed_tag="older")).generate(PROMPTS, SAMPLING)


@pytest.mark.parametrize(
    ("settings", "message"), [({"clears": False}, "prefix cache"), ({"fixed_tag": "older"}, "reports weights older")]
)
def test_an_engine_that_does_not_confirm_a_push_is_lost(settings, message):
    unreliable = engine(**settings)
    unreliable.finish_weight_update("new")
    with pytest.raises(EngineLost, match=message):
        confirm_push(unreliable, "new")


def test_only_the_last_weight_file_is_kept_until_close(tmp_path: Path):
    publisher = FilePublisher(str(tmp_path))
    sampler = sampler_over(engine(), publisher=publisher)
    for version in (1, 2):
        sampler.load_weights(LiveWeights(policy=POLICY, version=version))
    (path,) = tmp_path.glob("*/*.safetensors")
    assert path.name == "2-2.safetensors"
    stored = load_file(path)
    assert stored.keys() == dict(POLICY.model.named_parameters()).keys()
    assert all(torch.equal(stored[name], value) for name, value in POLICY.model.named_parameters())
    sampler.close()
    assert list(tmp_path.iterdir()) == []


def test_tokens_after_a_stop_string_are_dropped():
    plain = sampler_over(engine()).generate(PROMPTS, SAMPLING)
    stopped = sampler_over(engine()).generate(PROMPTS, dataclasses.replace(SAMPLING, stop=("t3",)))
    pairs = zip(stopped, plain, strict=True)
    cut = [(rollout, whole) for rollout, whole in pairs if rollout.num_tokens < whole.num_tokens]
    assert len(cut) > 3
    for rollout, whole in cut:
        assert "t3" in rollout.text
        assert "t3" not in POLICY.tokenizer.decode(rollout.token_ids[:-1])
        assert rollout.token_ids == whole.token_ids[: rollout.num_tokens]


def test_a_request_after_forced_tokens_asks_for_the_remaining_tokens():
    fake = engine()
    thinking = {"thinking_budget": 5, "thought_end": "t2", "closing": "t8 t20", "min_response_tokens": 9}
    sampling = dataclasses.replace(SAMPLING, max_response_tokens=20, num_samples=1, **thinking)
    rollouts = sampler_over(fake).generate(PROMPTS[:1], sampling)
    first, second = fake.requests[:2]
    forced = rollouts[0].sampled_mask.count(False)
    assert (first.params["max_tokens"], first.params["min_tokens"]) == (5, 5)
    assert second.token_ids == (*PROMPTS[0].token_ids, *rollouts[0].token_ids[: 5 + forced])
    assert (second.params["max_tokens"], second.params["min_tokens"]) == (15 - forced, 4 - forced)
    assert first.params["seed"] != second.params["seed"]


def test_candidates_are_counted_under_top_k_and_when_greedy():
    def counts(**settings):
        fake, sampling = engine(), dataclasses.replace(SAMPLING, num_samples=1, **settings)
        rollout = sampler_over(fake).generate(PROMPTS[:1], sampling)[0]
        return set(rollout.num_candidates), fake.requests[0].params["logprobs"]

    assert counts(top_k=4, top_p=0.9) == ({3}, 12)
    assert counts(top_k=60) == ({3}, VOCAB_SIZE)
    assert counts(top_p=0.9) == (set(), 0)
    assert counts(temperature=0.0, top_k=4) == ({1}, 0)


def test_candidates_are_those_of_the_engines_mask_where_it_reports_one():
    """vLLM's masks need a GPU, so the output is a stand-in with the fields of `vllm.outputs`."""
    logprobs = [{5: SimpleNamespace(logprob=-0.5)}, {6: SimpleNamespace(logprob=-1.0)}]
    mask = SimpleNamespace(token_ids=[[5, 9, 3], [6]])
    plain = SimpleNamespace(token_ids=[5, 6], logprobs=logprobs)
    masked = _engine_output(SimpleNamespace(token_ids=[5, 6], logprobs=logprobs, sampling_mask=mask))
    assert (masked.num_candidates, masked.masked, masked.behavior_logps) == ([3, 1], True, [-0.5, -1.0])
    for unmasked in (plain, SimpleNamespace(**vars(plain), sampling_mask=None)):
        assert not _engine_output(unmasked).masked
    for output, counts in ((masked, (3, 1)), (_engine_output(plain), ())):
        fake, sampling = engine(), dataclasses.replace(SAMPLING, num_samples=1, max_response_tokens=2, top_p=0.9)
        fake._output = lambda request, output=output: output
        (rollout,) = sampler_over(fake).generate(PROMPTS[:1], sampling)
        assert rollout.num_candidates == counts


def test_without_seeded_no_seed_is_sent():
    fake = engine()
    sampler_over(fake, seeded=False).generate(PROMPTS[:1], SAMPLING)
    assert {request.params["seed"] for request in fake.requests} == {None}


def test_a_prompt_that_does_not_fit_is_refused_before_anything_starts():
    fake = engine()
    with pytest.raises(ModelError, match="exceeds the engine's context of 128"):
        sampler_over(fake).generate(PROMPTS, dataclasses.replace(SAMPLING, max_response_tokens=127))
    assert fake.events == []


def test_settings_become_flags_of_the_server():
    assert flags({"a_b": True, "c": False, "d": {"e": 1}, "f": 2.5, "g": None}) == [
        *("--a-b", "--no-c", "--d", '{"e": 1}', "--f", "2.5")
    ]


def test_options_override_our_arguments_of_vllm():
    settings = EngineSettings(
        model="m", dtype="float32", max_context=64, max_concurrent=2, transfer="file", options={"max_num_seqs": 9}
    )
    assert settings.arguments(cpu=True)["max_num_seqs"] == 9
    assert settings.arguments(cpu=True)["enable_chunked_prefill"] is False
    assert "enable_chunked_prefill" not in settings.arguments(cpu=False)


def test_the_default_engine_is_native():
    sampler = engine_of({"max_concurrent": 3})(POLICY)
    assert isinstance(sampler, NativeSampler)
    assert sampler.max_concurrent == 3


MASKED = {"return_sampling_mask": True}


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({"engine": {"name": "vlm"}}, "Did you mean 'vllm'"),
        ({"engine": {"max_concurent": 2}}, "Did you mean 'max_concurrent'"),
        ({"engine": {"name": "vllm", "max_concurrent": 0}}, "greater than 0"),
        ({"engine": {"name": "native", "mode": "server"}}, "no setting 'mode'"),
        ({"engine": {"name": "vllm", "devices": "1"}}, "rollout.engine.devices has no effect"),
        ({"engine": {"name": "vllm", "mode": "server", "sleep": True}}, "rollout.engine.sleep has no effect"),
        ({"engine": {"name": "vllm"}, "top_p": 0.9}, "Set rollout.top_k as well"),
        ({"engine": {"name": "vllm"}, "min_p": 0.1}, "Set rollout.top_k as well"),
        ({"engine": {"name": "vllm", "mode": "server", "options": MASKED}, "min_p": 0.1}, "not as a server"),
    ],
)
def test_a_recipe_that_its_engine_cannot_serve_is_refused(tmp_path, rollout, message):
    with pytest.raises(ConfigError, match=message):
        check_engine(toy_config(tmp_path, {"rollout": rollout}).rollout)


@pytest.mark.parametrize(
    "rollout",
    [
        {"engine": {"name": "vllm"}, "top_k": 5, "top_p": 0.9},
        {"top_p": 0.9},
        {"engine": {"name": "vllm", "options": MASKED}, "top_p": 0.9, "min_p": 0.1},
    ],
)
def test_a_recipe_that_its_engine_can_serve_is_accepted(tmp_path, rollout):
    check_engine(toy_config(tmp_path, {"rollout": rollout}).rollout)

"""Demonstrations with calls of a tool have the tokens that a response with the same calls would have."""

from __future__ import annotations

from pathlib import Path

from ansatz.data.long_numbers import long_numbers
from ansatz.environments.base import bind_environment
from ansatz.environments.episode import at_once
from ansatz.loop.builders import tokenizer_texts
from ansatz.models.load import load_policy
from ansatz.models.tiny import build_tiny_model
from ansatz.prompts.render import render_demonstration
from ansatz.rollout.base import Sampling
from ansatz.rollout.native.sampler import rules_for
from ansatz.rollout.response_rules import ResponseState


def test_the_calculator_answers_a_demonstration_with_the_tokens_that_it_has(tmp_path: Path) -> None:
    problems = long_numbers(split="train", count=200, max_steps=3, call_rate=1.0)
    sizes = {
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 1,
        "num_kv_heads": 1,
        "head_dim": 4,
        "intermediate_size": 8,
    }
    build_tiny_model(tmp_path, texts=tokenizer_texts(problems, "tiny"), **sizes)
    policy = load_policy(tmp_path)
    environment = bind_environment({"name": "calculator"})
    assert environment
    rules = rules_for(policy, Sampling(num_samples=1, max_response_tokens=200), environment)
    assert rules
    for problem in problems:
        demonstration = render_demonstration(problem, "tiny", policy.tokenizer)
        state = ResponseState(rules, problem)
        assert state.episode
        for token in demonstration.response_ids:
            assert state.forced_token in (-1, token)
            state.append(token)
            if state.waiting:
                state.observe(at_once(state.episode.answer(state.turn_text)))
        assert state.ended
        assert state.sampled_mask == demonstration.assistant_mask
        assert state.sampled_mask.count(False) > 5

"""What only real weights show, with the two small models of `make real-models`: SmolLM2-135M-Instruct, Gemma 3 270M.

They go through the code that everybody's weights go through. The tests are slow, and are skipped where the models are
not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_runs import REPOSITORY, command, different_results, kill_in, toy_recipe

from ansatz.models.load import Policy, load_policy
from ansatz.prompts.render import render, render_demonstration
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.track.jsonl import read_jsonl
from ansatz.train.logps import logps_of
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.types import Problem
from tools.real_models import SOURCES, real_model

pytestmark = pytest.mark.slow

SMOLLM, GEMMA = SOURCES
QUESTION = "What is 7 + 5?"


def folder(name: str) -> Path:
    """The model's folder; the test is skipped if it was not downloaded."""
    found = real_model(name)
    return found or pytest.skip(f"{name} is not here. `make real-models` downloads it.")


def problem(number: int = 0) -> Problem:
    question = f"Tom has {7 + number} apples and buys {5 + number} more. How many apples does he have now?"
    return Problem(id=f"p{number}", question=question, answers=(str(12 + 2 * number),), source="test", split="train")


@pytest.mark.parametrize(
    ("model", "question"), [(SMOLLM, QUESTION), (GEMMA, "Question: What is 7 + 5?\nAnswer: 7 + 5 =")]
)
def test_the_model_answers_through_its_own_tokenizer_and_template(model: str, question: str) -> None:
    template = [] if model == SMOLLM else ["--template", "none"]  # Gemma's file is the base model
    code, out, err = command("ask", folder(model), question, "--max-response-tokens", "24", *template)
    assert code == 0, err
    assert "12" in out.split(question)[-1]


@pytest.mark.parametrize("model", SOURCES)
def test_sampler_and_trainer_agree_at_every_position(model: str) -> None:
    """The gap does not grow with the position, as it would if a cache lost precision or a position were shifted."""
    gap_RT = logp_gaps(load_policy(folder(model)), 96)
    first, second = (half.mean() for half in gap_RT.chunk(2, dim=1))
    assert gap_RT.max() < 1e-3
    assert gap_RT.mean() < 1e-5
    assert second < 3 * first + 1e-6


def logp_gaps(policy: Policy, tokens: int) -> torch.Tensor:
    """|sampler's - trainer's| log-prob in nats, [rollouts, tokens]."""
    prompts = [render(problem(number), "boxed", policy.tokenizer) for number in range(3)]
    sampling = Sampling(num_samples=2, max_response_tokens=tokens, min_response_tokens=tokens, seed=1, step=1)
    rollouts = NativeSampler(policy, max_concurrent=8).generate(prompts, sampling)
    samples = [
        TrainSample.from_rollout(rollout, group=int(rollout.prompt.problem.id[1:]), reward=0.0) for rollout in rollouts
    ]
    packed = pack_rollouts(samples, device=policy.device)
    gap_T = (logps_of(policy, packed, tokens_per_microbatch=512) - packed.behavior_logp_T).abs()
    return gap_T[packed.sampled_mask_T].view(len(rollouts), tokens)


def test_the_end_of_a_turn_is_learned_although_it_is_also_the_pad_token() -> None:
    policy = load_policy(folder(SMOLLM))
    assert policy.tokenizer.pad_token_id == policy.tokenizer.eos_token_id
    solved = Problem(**{**vars_of(problem()), "solution": "7+5=12"})
    demonstration = render_demonstration(solved, "chat", policy.tokenizer)
    assert demonstration.response_ids[-1] == policy.tokenizer.eos_token_id
    sample = TrainSample.from_demonstration(demonstration, group=0)
    packed = pack_rollouts([sample, sample], device=policy.device)
    assert int(packed.sampled_mask_T.sum()) == 2 * len(demonstration.response_ids)
    assert "helpful" in demonstration.prompt.text  # the default system prompt of its template, which nobody asked for


def vars_of(made: Problem) -> dict[str, Any]:
    return {name: getattr(made, name) for name in ("id", "question", "answers", "source", "split")}


def recipe_of(tmp_path: Path, model: str, changes: dict[str, Any]) -> Path:
    return toy_recipe(
        tmp_path,
        {
            "data": {"template": "boxed"},
            "model": {"path": str(folder(model)), **changes.pop("model", {})},
            "stages": ["rl"],
            "rollout": {"prompts_per_step": 2, "samples_per_prompt": 2, "max_response_tokens": 12},
            "rewards": {f"{REPOSITORY}/benchmarks/speed/rounds.py:share_of_letters": {}},
            "train": {"steps": 3, "lr": 1e-5},
            "save": {"every": 1},
            "evaluate": {"problems": 2, "every": 0},
            **changes,
        },
        without="model.tiny",
    )


@pytest.mark.parametrize("model", SOURCES)
@pytest.mark.parametrize("adapters", [{}, {"lora": {"rank": 4}}])
def test_a_killed_run_goes_on_with_the_same_bits(tmp_path: Path, model: str, adapters: dict[str, Any]) -> None:
    recipe = recipe_of(tmp_path, model, {"model": adapters})
    code, _, err = command("train", recipe, timeout_s=900)
    assert code == 0, err
    whole, killed = tmp_path / "runs" / "toy", tmp_path / "others" / "toy"
    kill_in(killed / "rl", after=1, arguments=["train", recipe, "--out", killed.parent])
    code, _, err = command("train", "--resume", killed, timeout_s=900)
    assert code == 0, err
    assert different_results(whole, killed) == []
    rows = read_jsonl(whole / "rl" / "metrics.jsonl")
    assert all(row["align/max_gap"] < 1e-3 for row in rows)


def test_a_step_takes_no_more_memory_than_explain_says(tmp_path: Path) -> None:
    """The plan is for the longest prompts and responses, and for full microbatches."""
    rollout = {"prompts_per_step": 2, "samples_per_prompt": 2, "max_prompt_tokens": 96, "max_response_tokens": 12}
    train = {"steps": 2, "lr": 1e-5, "tokens_per_microbatch": 256}
    recipe = recipe_of(tmp_path, SMOLLM, {"train": train, "rollout": rollout})
    assert command("train", recipe, "--name", "one", timeout_s=900)[0] == 0
    code, out, err = command("explain", recipe, "--run", tmp_path / "runs" / "one")
    assert code == 0, err
    (planned,) = re.findall(r"rollout ([\d.]+) GiB, update ([\d.]+) GiB", out)
    (measured,) = re.findall(r"measured by one: ([\d.]+) GiB", out)
    assert 0 < float(measured) < max(map(float, planned))

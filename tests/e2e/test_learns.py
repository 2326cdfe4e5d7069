"""A policy learns: fine-tuned on demonstrations of which half are wrong, then reinforced by its correct answers."""

import json

import pytest
from toy_runs import REPOSITORY, command, toy_recipe

pytestmark = pytest.mark.e2e

SUMS = {"source": f"{REPOSITORY / 'tests' / 'e2e' / 'sums.py'}:sums"}
CHANGES = {
    "data": {
        "sft": {**SUMS, "split": "train", "count": 12800, "seed": 1, "slip_rate": 0.5},
        "train": {**SUMS, "split": "train", "count": 2000, "seed": 2},
        "heldout": {**SUMS, "split": "heldout", "count": 100, "seed": 3},
    },
    "model": {
        "tiny": {
            "vocab_size": 300,
            "hidden_size": 64,
            "num_heads": 4,
            "num_kv_heads": 2,
            "intermediate_size": 128,
            "max_context": 64,
        }
    },
    "sft": {"steps": 400, "batch_size": 32, "lr": 3e-3},
    "rollout": {"prompts_per_step": 16, "samples_per_prompt": 8, "max_response_tokens": 24, "max_prompt_tokens": 40},
    "train": {"steps": 70, "lr": 1e-3},
    "evaluate": {"problems": 100, "samples_per_prompt": 8, "k": 8, "every": 0},
    "save": {"every": 1000, "keep": 1, "tensorboard": False},
}


def test_a_policy_learns_from_its_correct_answers(tmp_path):
    """Seeds 0, 1, 2 went from 34, 33, 28 to 79, 62, 58 % pass@1, and from 61, 42, 44 to 88, 78, 76 % greedy."""
    code, out, err = command("train", toy_recipe(tmp_path, CHANGES))
    assert code == 0, err
    untaught, taught, reinforced = json.loads((tmp_path / "runs" / "toy" / "summary.json").read_text())["evaluations"]
    assert untaught["pass@1"] < 0.02
    assert 0.15 < taught["pass@1"] < 0.5
    assert reinforced["pass@1"] > taught["pass@1"] + 0.15
    assert reinforced["pass@1_interval"][0] > taught["pass@1_interval"][1]
    assert reinforced["greedy"] > taught["greedy"]
    assert reinforced["truncated_frac"] < 0.05
    assert "Held-out problems" in out

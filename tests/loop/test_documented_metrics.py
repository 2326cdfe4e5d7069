"""The page of metrics against what runs emit: every emitted metric is documented, every documented one is emitted."""

import json
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl
from ansatz.track.metrics import check_known, find_metric, load_metrics
from ansatz.track.tracker import evaluation_scalars

REWARDS = f"{Path(__file__).with_name('user_rewards.py')}:every_other"

LETTERS = ["a", "e", "i", "o"]  # random weights rarely end a response themselves


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all metrics of one run that uses everything: SFT, rejection sampling, DPO, KTO, a process reward
    model, PPO with a critic, a KL to the reference, a curriculum with dynamic sampling, partial rollouts, and a lag."""
    folder = tmp_path_factory.mktemp("metrics")
    labelled = folder / "labelled.jsonl"
    rows = [{"prompt": "?", "completions": ["a"], "labels": [right]} for right in (True, False)]
    labelled.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {
        "stages": [
            "sft",
            "rejection",
            "preference",
            {"stage": "preference", "preference": {"losses": {"kto": {}}}},
            "reward_model",
            "rl",
        ],
        "data": {"curriculum": {"dynamic_sampling": 1}},
        "sft": {"steps": 1, "heldout_every": 1},
        "rejection": {"samples_per_prompt": 2, "problems": 4, "batch": 4, "stop": LETTERS, "sft": {"steps": 1}},
        "reward_model": {
            "kind": "process",
            "labels": "soft",  # the last step of a correct response is then right
            "step_rollouts": 1,
            "extra_layers": 0,
            "lm_coef": 1.0,
            "slips": {"source": "word_problems", "split": "heldout", "count": 8, "slip_rate": 0.5, "max_value": 50},
            "heldout_data": {"source": "file", "path": str(labelled)},
            "problems": 2,
            "steps": 1,
            "heldout_problems": 2,
            "heldout_samples": 2,
        },
        "preference": {
            "pairs": {"source": "policy", "problems": 4, "samples_per_prompt": 2, "stop": LETTERS},
            "steps": 1,
        },
        "environment": {"name": "calculator", "turns": 2},
        "rollout": {"partial_rollout_tokens": 12, "stop": LETTERS, "max_response_tokens": 40, "lag": 1},
        "rewards": {REWARDS: {}},
        "algorithm": {
            "preset": "ppo",
            "correction": "truncate",
            "kl_coef": 0.01,
            "kl_control": {"name": "adaptive", "target": 1.0},
        },
        "train": {"steps": 3, "max_logprob_gap": 1.5},
        "evaluate": {"problems": 2, "samples_per_prompt": 2, "k": 2, "every": 0},
        "save": {"tensorboard": False},
    }
    run = run_pipeline(toy_config(folder, changes))
    names = {name for path in run.glob("*/metrics.jsonl") for row in read_jsonl(path) for name in row}
    evaluations = [row for path in run.glob("*/evaluations.jsonl") for row in read_jsonl(path)]
    return names - {"step", "seconds"} | {name for row in evaluations for name in evaluation_scalars(row)}


def test_every_emitted_metric_is_documented(emitted: set[str]) -> None:
    check_known(emitted)


def test_every_documented_metric_is_emitted(emitted: set[str]) -> None:
    """Those of workers need Ray; `tests/e2e/test_workers.py` looks for them."""
    seen = {metric.name for name in emitted if (metric := find_metric(name)) is not None}
    assert set(load_metrics()) - seen == {"perf/workers/<count>"}

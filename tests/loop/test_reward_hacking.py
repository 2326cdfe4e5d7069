"""A learned reward is hacked: it rises while the verifier's verdicts fall, which the watchdog sees and stops."""

from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.errors import RunStopped
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl

USER = str(Path(__file__).with_name("user_rewards.py"))
CHANGES = {
    "data": {"sft": None},
    "rollout": {"stop": ["a", "e", "i", "o"], "max_response_tokens": 24, "samples_per_prompt": 8},
    "rewards": {f"{USER}:long_enough": {"weight": 0.0}, "learned": {"model": f"{USER}:Brevity", "squash": "sigmoid"}},
    "train": {"steps": 40, "lr": 1e-2, "warmup_steps": 0},
    "watchdog": {"rules": {"verifier": {"metric": "rollout/accuracy", "falls_by": 1.5, "window": 3, "action": "stop"}}},
    "evaluate": {"problems": 2, "samples_per_prompt": 2, "k": 2, "every": 0},
    "save": {"tensorboard": False},
}


def test_a_hacked_reward_is_visible_and_stops_the_run(tmp_path):
    config = toy_config(tmp_path, CHANGES)
    with pytest.raises(RunStopped, match="rollout/accuracy"):
        run_pipeline(config)
    rows = read_jsonl(config.run_dir / "rl" / "metrics.jsonl")
    curve = [(round(row["reward/learned"], 2), round(row["rollout/accuracy"], 2)) for row in rows]
    assert len(rows) < 40, curve
    assert rows[-1]["reward/learned"] > rows[0]["reward/learned"] + 0.05, curve
    assert rows[-1]["rollout/accuracy"] < rows[0]["rollout/accuracy"] - 0.2, curve

"""Toy runs that use everything that a lag has to do with, and what they compute."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import untimed

REWARD = f"{Path(__file__).with_name('loop') / 'user_rewards.py'}:every_other"
EVERYTHING = {
    "data": {
        "sft": None,
        "train": {"count": 40},
        "curriculum": {"sampler": "variance", "discount": 0.9, "dynamic_sampling": 2, "pause_after_failed": 2},
    },
    "rollout": {
        "prompts_per_step": 4,
        "samples_per_prompt": 3,
        "max_response_tokens": 24,
        "partial_rollout_tokens": 8,
        "stop": ["e"],  # responses end anywhere between their first token and the limit
    },
    "train": {"steps": 30, "lr": 1e-3},
    "rewards": {"math_answer": {"weight": 0}, REWARD: {}},
    "evaluate": {"every": 10, "problems": 3},
    "save": {"every": 20, "tensorboard": False},
}


def results(run: Path) -> dict[str, Any]:
    """What a run has computed: digests of the checkpoints' tensors, and the rows of its files without times."""
    weights = sorted((run / "rl" / "checkpoints").rglob("*.safetensors"))
    return {
        "weights": {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in weights},
        "metrics": untimed(read_jsonl(run / "rl" / "metrics.jsonl")),
        "evaluations": untimed(read_jsonl(run / "rl" / "evaluations.jsonl")),
        "rollouts": [untimed(read_jsonl(path)) for path in sorted((run / "rl" / "samples").glob("step-??????.jsonl"))],
    }

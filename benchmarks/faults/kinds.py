"""The kinds of run that faults are tried on: small recipes that together use every state that a checkpoint holds."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansatz.config.layers import merge

from .tiny_recipe import TINY

REWARDS = Path(__file__).with_name("user_rewards.py")
ENVIRONMENTS = Path(__file__).with_name("user_environments.py")

BASE = merge(
    TINY,
    {
        "name": "run",
        "data": {"train": {"count": 60}},
        "sft": {"steps": 10},
        "train": {"steps": 12, "lr": 1e-3},
        "rollout": {"prompts_per_step": 3, "max_response_tokens": 32},
        "evaluate": {"every": 4, "problems": 3},
        "save": {"every": 4, "keep": 1, "grace": 2.0},
    },
)
SOME_CORRECT: dict[str, Any] = {"math_answer": {"weight": 0.5}, f"{REWARDS}:odd_sums": {}}
"""The rewards of kinds that name no others."""

SHORT: dict[str, Any] = {
    "sft": {"steps": 5},
    "train": {"steps": 7},
    "save": {"every": 3, "keep": 1},
}
"""Changes for a test."""

_NO_SFT = {"data": {"sft": None}}
_LIMITS = {"lease": 100, "start": 110, "stall": 120}
"""Seconds. A run that has lost Ray ends after twice the stall."""
_SLIPS = {"source": "word_problems", "split": "heldout", "count": 8, "slip_rate": 0.5, "max_value": 50}

KINDS: dict[str, dict[str, Any]] = {
    "grpo": {
        "model": {"dtype": "bfloat16"},  # weights, masters and moments are three different things then
        "save": {"dtype": "bfloat16"},
    },
    "partial rollouts": {
        **_NO_SFT,
        "rollout": {"partial_rollout_tokens": 12, "stop": ["e"]},  # responses end anywhere, most of them later
    },
    "curriculum and dynamic sampling": {
        "data": {
            "sft": None,
            "curriculum": {
                "sampler": "variance",
                "drop_after_solved": 2,
                "pause_after_failed": 1,
                "dynamic_sampling": 2,
            },
        },
        "rollout": {"samples_per_prompt": 2},  # half of the groups have no signal
    },
    "critic (PPO)": {**_NO_SFT, "algorithm": {"preset": "ppo"}, "train": {"updates_per_step": 2}},
    "moving KL reference": {
        **_NO_SFT,
        "algorithm": {"preset": "grpo", "kl_coef": 0.1},
        "train": {"reference_update_interval": 5},
    },
    "LoRA": {"model": {"lora": {"rank": 4}}},
    "offloaded optimizer": {**_NO_SFT, "train": {"optimizer": {"name": "adamw_offload"}, "updates_per_step": 2}},
    "8-bit optimizer": {**_NO_SFT, "train": {"optimizer": {"name": "adamw_8bit"}}},
    "ReMax": {**_NO_SFT, "algorithm": {"preset": "remax"}},
    "several updates and epochs": {
        **_NO_SFT,
        "algorithm": {"preset": "dapo"},
        "train": {"updates_per_step": 2, "epochs_per_step": 2},
    },
    "two rounds of rejection sampling": {
        "train": {"steps": 6},
        "rejection": {"rounds": 2, "problems": 24, "batch": 8, "samples_per_prompt": 4, "sft": {"steps": 8}},
        "rewards": {f"{REWARDS}:odd_sums": {}},  # without another reward's verdict, odd sums are correct
    },
    "judge and sandbox": {
        "sft": {"steps": 60, "batch_size": 16},
        "train": {"steps": 9},
        "rewards": {
            "judge": {"model": "judge", "rules_first": False},
            f"{REWARDS}:computed": {},
        },
    },
    "lag 2 with partial rollouts": {
        **_NO_SFT,
        "algorithm": {"preset": "grpo", "correction": "truncate"},
        "rollout": {"lag": 2, "partial_rollout_tokens": 12, "stop": ["e"]},
    },
    "lag 2 on two workers": {
        **_NO_SFT,
        "algorithm": {"preset": "grpo", "correction": "truncate"},
        "rollout": {"lag": 2, "partial_rollout_tokens": 12, "stop": ["e"]},
        "cluster": {"workers": 2, **_LIMITS},
    },
    "lag 1 on two ranks and two workers": {
        **_NO_SFT,
        "algorithm": {"preset": "grpo", "correction": "truncate"},
        "rollout": {"lag": 1},
        "cluster": {"trainers": 2, "workers": 2, **_LIMITS},
    },
    "rollback": {
        **_NO_SFT,
        "train": {"warmup_steps": 5},  # the rule sees the whole rate at steps 6 and 7, and the half of it never
        "watchdog": {"rules": {"rate": {"metric": "train/lr", "above": 0.95e-3, "window": 2, "action": "rollback"}}},
    },
    "skipped updates": {
        **_NO_SFT,
        "algorithm": {"preset": "dr_grpo"},
        "rewards": {f"{REWARDS}:overflows_at": {"at": [3, 6, 7, 10]}},
    },
    "tools": {
        **_NO_SFT,
        "environment": {"name": f"{ENVIRONMENTS}:Counting", "turns": 3},
        "rollout": {"partial_rollout_tokens": 15},
        "rewards": {"environment": {}},
    },
    "interpreter": {
        **_NO_SFT,
        "environment": {"name": f"{ENVIRONMENTS}:Programs", "turns": 3},
        "rollout": {"samples_per_prompt": 2},
        "train": {"steps": 9},
    },
    "reward models": {
        "stages": [
            "sft",
            {"stage": "reward_model", "reward_model": {"kind": "process", "slips": _SLIPS}},
            "reward_model",
            "rl",
        ],
        "sft": {"steps": 4},
        "reward_model": {
            "kind": "bradley_terry",
            "problems": 6,
            "samples_per_prompt": 4,
            "steps": 6,
            "batch_size": 3,
            "heldout_problems": 2,
            "heldout_samples": 2,
        },
        "train": {"steps": 5},
        "rewards": {"learned": {}, f"{REWARDS}:odd_sums": {}},
    },
    "preferences": {
        "stages": ["sft", "preference", "preference"],
        "sft": {"steps": 4},
        "preference": {
            "pairs": {"problems": 8, "samples_per_prompt": 4, "batch": 4, "stop": ["a", "e", "i", "o"]},
            "steps": 8,
            "batch_size": 4,
            "lr": 1e-3,
            "warmup_steps": 0,
        },
        "rewards": {f"{REWARDS}:odd_sums": {}},
    },
}


ON_WORKERS = tuple(kind for kind, changes in KINDS.items() if "cluster" in changes)


def recipe(kind: str, *, out: Path, url: str = "", changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The recipe of a kind of run, whose folder is out/run. url: of the judge. changes: nested, over the kind's."""
    merged = merge({**copy.deepcopy(BASE), "out": str(out)}, merge(KINDS[kind], changes or {}))
    merged = {"rewards": SOME_CORRECT, **merged}
    if "judge" in merged["rewards"]:
        merged["rewards"]["judge"]["url"] = url
    return merged


def write_recipe(kind: str, *, out: Path, url: str = "", changes: Mapping[str, Any] | None = None) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe(kind, out=out, url=url, changes=changes)), encoding="utf-8")
    return path

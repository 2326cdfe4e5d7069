"""Whole toy runs with a lag: resumed with open tickets, with and without the ledger, and recipes that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lag_runs import EVERYTHING, results
from toy_runs import toy_config

from ansatz.errors import ConfigError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.loop.start_checks import check_recipe
from ansatz.track.jsonl import read_jsonl

REWARDS = Path(__file__).with_name("user_rewards.py")


def lagged(folder: Path, lag: int, **algorithm: object):
    interrupting = {f"{REWARDS}:interrupts": {"at": 7, "unless": str(folder / "go")}}
    changes = {
        **EVERYTHING,
        "seed": 3,  # with which the first steps have groups enough for two updates each
        "rollout": {**EVERYTHING["rollout"], "lag": lag, "thinking_budget": 6},
        "rewards": {"math_answer": {"weight": 0}, **interrupting},
        "algorithm": {"preset": "grpo", "correction": "truncate", **algorithm},
        "train": {"steps": 10, "lr": 1e-3, "updates_per_step": 2},
        "save": {"every": 4, "tensorboard": False},
        "evaluate": {"every": 3, "problems": 3},
    }
    return toy_config(folder, changes)


@pytest.mark.parametrize("preset", ["grpo", pytest.param("remax", marks=pytest.mark.slow)])
def test_a_run_with_open_tickets_is_resumed_to_the_same_bits(tmp_path, preset):
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "go").touch()
    whole = results(run_pipeline(lagged(tmp_path / "a", 2, preset=preset)))
    for row in whole["rollouts"][6]:  # step 7 has W_4, or W_6 in its additional rounds; partial rollouts are older
        assert row["version_max"] in (8, 12)
    assert max(row["rollout/version_lag"] for row in whole["metrics"]) > 2
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(lagged(tmp_path / "b", 2, preset=preset))
    run = tmp_path / "b" / "runs" / "toy"
    assert (run / "rl" / "checkpoints" / "step-000004" / "training" / "rollout_weights").is_dir()
    without_ledger = Path(shutil.copytree(run, tmp_path / "c" / "toy"))
    shutil.rmtree(without_ledger / "rl" / "ledger")
    (tmp_path / "b" / "go").touch()
    for name, interrupted in (("b", run), ("c", without_ledger)):
        resumed = results(run_pipeline(resume_config(interrupted), resume=True))
        for what, value in whole.items():
            assert value == resumed[what], (name, what)
    rows = read_jsonl(tmp_path / "a" / "runs" / "toy" / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert not (tmp_path / "a" / "runs" / "toy" / "rl" / "weights").exists()
    assert not list((tmp_path / "a" / "runs" / "toy" / "rl" / "ledger").iterdir())


def test_a_token_has_the_version_of_its_weights_even_if_no_update_has_changed_them(tmp_path):
    """All rewards are equal, so no update changes a weight. Without a number of its own for each version, a resumed run
    would report another lag than one that was left alone."""
    changes = {
        "data": {"sft": None},
        "rollout": {"prompts_per_step": 2, "samples_per_prompt": 2, "max_response_tokens": 8, "lag": 1},
        "algorithm": {"preset": "grpo", "correction": "truncate"},
        "rewards": {"math_answer": {"weight": 0}, f"{REWARDS}:all_equal": {}},
        "evaluate": {"problems": 2, "every": 0},
    }
    run = run_pipeline(toy_config(tmp_path, changes))
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    assert [row["rollout/version_lag"] for row in rows] == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rollout": {"lag": 1}}, r"rollout.lag = 1: .* algorithm.correction: truncate.*recomputed old policy"),
        ({"rollout": {"lag": 1}, "algorithm": {"preset": "ppo"}}, "ppo has no correction"),
        (
            {"rollout": {"lag": 1}, "algorithm": {"correction": "truncate", "anchor": "behavior"}},
            "Set algorithm.anchor: old",
        ),
        ({"rollout": {"lag": 9}, "algorithm": {"correction": "truncate"}}, "rollout.lag = 9: above 8 .*at most 8"),
    ],
)
def test_a_lag_that_the_objective_cannot_learn_from_is_refused(tmp_path, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_recipe(toy_config(tmp_path, changes))


@pytest.mark.parametrize("lag", [1, 8])
def test_a_lag_with_a_correction_is_accepted(tmp_path, lag):
    check_recipe(
        toy_config(tmp_path, {"rollout": {"lag": lag}, "algorithm": {"preset": "ppo", "correction": "truncate"}})
    )

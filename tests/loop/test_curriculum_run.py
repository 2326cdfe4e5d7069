"""Whole toy runs with a curriculum: the checkpoint holds its state, and wrong settings are refused at once."""

from pathlib import Path

import pytest
from safetensors.torch import load_file
from toy_runs import toy_config

from ansatz.errors import ConfigError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.track.jsonl import read_jsonl
from ansatz.track.metrics import check_known

REWARDS = Path(__file__).with_name("user_rewards.py")
CURRICULUM = {"sampler": "variance", "discount": 0.9, "pause_after_failed": 1, "pause_steps": 2, "dynamic_sampling": 2}


def config(folder, **more_changes):
    interrupting_reward = {f"{REWARDS}:interrupts": {"at": 3, "unless": str(folder / "go")}}
    changes = {
        "data": {"curriculum": CURRICULUM, "train": {"count": 30}},
        "rewards": {"math_answer": {"weight": 0}, **interrupting_reward},
        "save": {"tensorboard": False},
        "evaluate": {"every": 0},
    }
    return toy_config(folder, {**changes, **more_changes})


def test_an_interrupted_and_resumed_run_takes_the_same_problems_and_ends_with_the_same_weights(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "go").touch()
    whole = run_pipeline(config(tmp_path / "a"))
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(config(tmp_path / "b"))
    (tmp_path / "b" / "go").touch()
    resumed = run_pipeline(resume_config(tmp_path / "b" / "runs" / "toy"), resume=True)

    rows = [read_jsonl(run / "rl" / "metrics.jsonl") for run in (whole, resumed)]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4]
    names = [name for name in rows[0][0] if not name.startswith(("time/", "perf/")) and name != "seconds"]
    assert [[row[name] for name in names] for row in rows[0]] == [[row[name] for name in names] for row in rows[1]]
    assert [row["data/tried_frac"] for row in rows[0]][-1] > 4 / 30
    assert rows[0][-1]["data/paused_frac"] > 0
    check_known([name for name in rows[0][0] if name not in ("step", "seconds")])
    for step in range(1, 5):
        taken = [
            [row["problem"] for row in read_jsonl(run / f"rl/samples/step-{step:06d}.jsonl")]
            for run in (whole, resumed)
        ]
        assert taken[0] == taken[1]
    last = [load_file(run / "rl/checkpoints/step-000004/model.safetensors") for run in (whole, resumed)]
    assert all((last[0][name] == last[1][name]).all() for name in last[0])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"curriculum": {"sampler": "varianze"}}, "Did you mean 'variance'"),
        ({"curriculum": {}, "train": {"count": 3}}, r"^rollout\.prompts_per_step = 4: data\.train has only 3 problems"),
    ],
)
def test_a_wrong_curriculum_is_refused_before_anything_is_written(tmp_path, data, sentence):
    with pytest.raises(ConfigError, match=sentence):
        run_pipeline(toy_config(tmp_path, {"data": data}))
    assert not (tmp_path / "runs").exists()

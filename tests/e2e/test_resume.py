"""A run that is killed in the middle of a stage and resumed ends in the same bits as an uninterrupted one."""

import json
from pathlib import Path

import pytest
from toy_runs import command, kill_in, toy_recipe

from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import untimed

pytestmark = pytest.mark.e2e

REWARD = f"{Path(__file__).parents[1] / 'loop' / 'user_rewards.py'}:every_other"
CHANGES = {
    "model": {"dtype": "bfloat16"},  # weights, masters and moments are three different things then
    "data": {"sft": {"count": 100}},
    "sft": {"epochs": 3, "batch_size": 20, "weights": "sequence", "heldout_every": 4},  # 15 steps
    "train": {"steps": 9, "updates_per_step": 2},
    "save": {"every": 4, "dtype": "bfloat16"},
    "evaluate": {"every": 5},
    "rewards": {"math_answer": {"weight": 0}, REWARD: {}},
}


def assert_same_checkpoints(whole: Path, killed: Path) -> None:
    """The same checkpoints with the same bytes; what a kill left of an unfinished one does not count."""
    names = [path.name for path in sorted((whole / "checkpoints").iterdir())]
    assert names == [path.name for path in sorted((killed / "checkpoints").glob("step-*"))]
    for name in names:
        left, right = (stage / "checkpoints" / name for stage in (whole, killed))
        files = sorted(path.relative_to(left) for path in left.rglob("*.safetensors"))
        assert {"model.safetensors", "optimizer.safetensors"} <= {file.name for file in files}
        assert files == sorted(path.relative_to(right) for path in right.rglob("*.safetensors"))
        for file in files:
            assert (left / file).read_bytes() == (right / file).read_bytes(), (name, file)


def test_a_run_that_is_killed_twice_ends_in_the_same_bits(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, _, err = command("train", toy_recipe(tmp_path / "a", CHANGES))
    assert code == 0, err
    whole, killed = runs = [tmp_path / name / "runs" / "toy" for name in "ab"]

    first = kill_in(killed / "sft", after=6, arguments=["train", toy_recipe(tmp_path / "b", CHANGES)])
    assert 6 <= first[-1] < 15
    second = kill_in(killed / "rl", after=6, arguments=["train", "--resume", killed])
    assert 6 <= second[-1] < 9
    code, out, err = command("train", "--resume", killed)
    assert code == 0, err
    assert "Report to open:" in out

    for stage, steps in (("sft", 15), ("rl", 9)):
        assert [row["step"] for row in read_jsonl(killed / stage / "metrics.jsonl")] == list(range(1, steps + 1))
        assert untimed(read_jsonl(whole / stage / "metrics.jsonl")) == untimed(
            read_jsonl(killed / stage / "metrics.jsonl")
        )
        assert_same_checkpoints(whole / stage, killed / stage)
        assert sorted((whole / stage / "checkpoints").iterdir())[-1].name == f"step-{steps:06d}"
    for stage in ("model", "sft", "rl"):
        evaluations = [untimed(read_jsonl(run / stage / "evaluations.jsonl")) for run in (whole, killed)]
        assert evaluations[0] == evaluations[1]
        responses = [{path.name: path.read_bytes() for path in run.glob(f"{stage}/evaluations/*")} for run in runs]
        assert responses[0] == responses[1]
        assert f"heldout-{evaluations[0][-1]['step']:06d}.jsonl" in responses[0]
    for step in range(1, 10):
        samples = [untimed(read_jsonl(run / "rl" / "samples" / f"step-{step:06d}.jsonl")) for run in (whole, killed)]
        assert samples[0] == samples[1]
    summaries = [json.loads((run / "summary.json").read_text()) for run in (whole, killed)]
    assert summaries[1]["model"] == str(killed / "rl" / "checkpoints" / "step-000009")
    assert untimed(summaries[0]["evaluations"]) == untimed(summaries[1]["evaluations"])
    assert summaries[1]["seconds"] > 0


PARTIAL = {
    "data": {"sft": None},
    "rollout": {
        "prompts_per_step": 8,
        "samples_per_prompt": 2,
        "partial_rollout_tokens": 12,
        "max_response_tokens": 48,
        "stop": ["e"],  # responses end anywhere between their first token and the limit
    },
    # Sampler and trainer agree to 1.000001 in float32. Stale tokens differ by more and must not stop the resumed run.
    "train": {"steps": 12, "lr": 1e-3, "max_logprob_gap": 1.001},
    "save": {"every": 4},
    "evaluate": {"every": 0},
    "rewards": {"math_answer": {"weight": 0}, REWARD: {}},
}


@pytest.mark.slow
def test_a_run_with_partial_rollouts_that_is_killed_ends_in_the_same_bits(tmp_path):
    """A response takes up to four steps of 12 tokens, so groups wait for slow members across several steps.

    Killed after step 6, the run resumes at the checkpoint of step 4 with the partial rollouts that are saved in it.
    """
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, _, err = command("train", toy_recipe(tmp_path / "a", PARTIAL))
    assert code == 0, err
    whole, killed = (tmp_path / name / "runs" / "toy" / "rl" for name in "ab")
    logged = kill_in(killed, after=6, arguments=["train", toy_recipe(tmp_path / "b", PARTIAL)])
    assert 6 <= logged[-1] < 12
    state = json.loads((killed / "checkpoints" / "step-000004" / "training" / "state.json").read_text())
    assert state["loop"]["partial_rollouts"]
    code, _, err = command("train", "--resume", killed.parent)
    assert code == 0, err

    rows = read_jsonl(whole / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert max(row["rollout/partial"] for row in rows) > 4
    assert max(row["rollout/version_lag"] for row in rows) > 0.5
    assert untimed(rows) == untimed(read_jsonl(killed / "metrics.jsonl"))
    for step in range(1, 13):
        name = f"samples/step-{step:06d}.jsonl"
        assert untimed(read_jsonl(whole / name)) == untimed(read_jsonl(killed / name))
    assert_same_checkpoints(whole, killed)


PPO = {
    "data": {"sft": None},
    "algorithm": {
        "preset": "ppo",
        "reward_whiten": "tokens",
        "kl_coef": 0.05,
        "kl_control": {"name": "adaptive", "target": 0.01, "horizon": 100},
    },
    "train": {"steps": 12, "lr": 1e-3, "updates_per_step": 2, "critic": {"steps_alone": 3}},
    "rollout": {"max_response_tokens": 16},
    "save": {"every": 2},
    "evaluate": {"every": 0},
    "rewards": {"math_answer": {"weight": 0}, REWARD: {}},
}


@pytest.mark.slow
def test_a_run_of_ppo_that_is_killed_twice_ends_in_the_same_bits(tmp_path):
    """Once while its critic trains alone, and once while the coefficient of the KL adapts."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    code, _, err = command("train", toy_recipe(tmp_path / "a", PPO))
    assert code == 0, err
    whole, killed = (tmp_path / name / "runs" / "toy" / "rl" for name in "ab")
    assert 2 <= kill_in(killed, after=2, arguments=["train", toy_recipe(tmp_path / "b", PPO)])[-1] < 12
    assert 7 <= kill_in(killed, after=7, arguments=["train", "--resume", killed.parent])[-1] < 12
    code, _, err = command("train", "--resume", killed.parent)
    assert code == 0, err
    rows = read_jsonl(whole / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert ["train/loss" in row for row in rows] == [False] * 3 + [True] * 9
    assert len({row["train/kl_coef"] for row in rows}) == 12
    assert untimed(rows) == untimed(read_jsonl(killed / "metrics.jsonl"))
    assert_same_checkpoints(whole, killed)


def test_the_precision_of_the_exported_weights_changes_no_number_of_a_run(tmp_path):
    """RL starts from the float32 weights of SFT, although the folder of SFT holds rounded ones."""
    changes = {"model": {"dtype": "float32"}, "sft": {"steps": 4}, "train": {"steps": 2}, "evaluate": {"every": 2}}
    runs = []
    for dtype in ("float32", "bfloat16"):
        (tmp_path / dtype).mkdir()
        code, _, err = command("train", toy_recipe(tmp_path / dtype, {**changes, "save": {"dtype": dtype}}))
        assert code == 0, err
        runs.append(tmp_path / dtype / "runs" / "toy")
    sizes = [(run / "sft" / "checkpoints" / "step-000004" / "model.safetensors").stat().st_size for run in runs]
    assert sizes[1] < 0.6 * sizes[0]
    for stage in ("sft", "rl"):
        for file in ("metrics.jsonl", "evaluations.jsonl"):
            left, right = (untimed(read_jsonl(run / stage / file)) for run in runs)
            assert left
            assert left == right
    optimizers = [run / "rl" / "checkpoints" / "step-000002" / "training" / "optimizer.safetensors" for run in runs]
    assert optimizers[0].read_bytes() == optimizers[1].read_bytes()

"""A run that rolls back: what it leaves, and that a kill at any moment around the rollback leads to the same bits."""

import gc
import json
import shutil
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.errors import CheckpointError, RunStopped
from ansatz.files import write_text
from ansatz.loop import watch
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.watch import noise_seed
from ansatz.track import rollbacks as records
from ansatz.track.jsonl import read_jsonl
from ansatz.track.report import write_report
from ansatz.train import checkpoint
from benchmarks.faults.fingerprint import untimed

STEPS = 10
REWARD = f"{Path(__file__).with_name('user_rewards.py')}:every_other"
CHANGES = {
    "data": {"sft": None},
    "rollout": {"prompts_per_step": 4, "samples_per_prompt": 2, "max_response_tokens": 12},
    "rewards": {"math_answer": {"weight": 0}, REWARD: {}},  # without a signal, all checkpoints would be equal
    "train": {"steps": STEPS, "lr": 1e-3},
    "evaluate": {"problems": 3, "every": 5},
    "save": {"every": 2, "keep": 1, "tensorboard": False},
}
# The learning rate is lowered for good by the first rollback, after which the rule has nothing to see.
RULES = {"rate": {"metric": "train/lr", "above": 0.95e-3, "window": 2, "action": "rollback"}}


def config_of(folder, *, lag=0, steps=STEPS, **watchdog):
    changes = {
        **CHANGES,
        "watchdog": {"rules": RULES, "lr_factor": 0.5, **watchdog},
        "train": {**CHANGES["train"], "steps": steps, "warmup_steps": 5},
    }
    if lag:
        changes |= {"rollout": {**CHANGES["rollout"], "lag": lag}, "algorithm": {"correction": "truncate"}}
    return toy_config(folder, changes)


class Killed(BaseException):
    """What stands for a kill: nothing catches it."""


def rl_of(config) -> Path:
    return config.run_dir / "rl"


def everything(folder: Path):
    """All that a stage leaves, without times: texts by name, and the bytes of weights."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or name in ("config.yaml", "done.json") or "SHA256SUMS" in name:
            continue
        if path.suffix == ".jsonl":
            files[name] = untimed(read_jsonl(path))
        elif path.name == "state.json":
            files[name] = json.loads(path.read_text())
        else:
            files[name] = path.read_bytes()
    return files


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that rolls back once and is left alone."""
    config = config_of(tmp_path_factory.mktemp("whole"))
    run_pipeline(config)
    gc.freeze()  # each rollback collects garbage, and need not search what the first run has loaded
    return config


def test_a_rollback_returns_to_a_healthy_checkpoint_with_a_lower_rate_and_other_noise(whole):
    """With 5 steps of warm-up, steps 6 and 7 have the whole rate: the alarm of step 7 starts at step 6."""
    folder = rl_of(whole)
    (rollback,) = records.read_rollbacks(folder)
    assert (rollback.from_step, rollback.to_step, rollback.lr_scale) == (7, 4, 0.5)
    rows, dropped = read_jsonl(folder / "metrics.jsonl"), read_jsonl(folder / "rolled_back/1/metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert [row["step"] for row in dropped] == [5, 6, 7]
    assert rows[4]["train/lr"] == pytest.approx(dropped[0]["train/lr"] / 2)
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert rows[4]["seconds"] > dropped[-1]["seconds"]
    samples = [read_jsonl(path / "samples/step-000005.jsonl") for path in (folder, folder / "rolled_back/1")]
    texts = [[row["text"] for row in each] for each in samples]
    assert texts[0] != texts[1]
    problems = [[row["problem"] for row in each] for each in samples]
    assert problems[0] == problems[1]


def test_the_events_tell_the_whole_story_and_the_report_shows_them(whole):
    history = records.event_history(rl_of(whole))
    story = [(event.row["step"], event.row["kind"], event.dropped_by) for event in history]
    assert [each for each in story if each[1] in ("rollback", "alarm") and each[0] == 7] == [
        (7, "alarm", 1),
        (7, "rollback", 1),
    ]
    page = write_report(whole.run_dir).read_text()
    assert "Events: rl" in page
    assert "back to the checkpoint of step 4, with 0.5 times the learning rate" in page
    assert "dropped by rollback 1" in page


def killing(function, at, *, before):
    """The function with a kill at its call number `at`, before it does its work or after."""
    calls = [0]

    def wrapped(*arguments, **settings):
        calls[0] += 1
        if calls[0] == at and before:
            raise Killed
        value = function(*arguments, **settings)
        if calls[0] == at:
            raise Killed
        return value

    return wrapped


PLACES = [
    ("record", watch, "write_rollbacks", 1),
    ("remove", checkpoint, "remove", 3),  # the checkpoint of step 6, which the rollback drops
    ("set aside", watch, "set_aside", 1),
    ("evaluations", records, "write_jsonl", 1),
    ("events", records, "write_jsonl", 2),
    ("metrics", records, "write_jsonl", 3),
    ("next checkpoint", checkpoint, "save", 5),  # before the rollback: of steps 2, 4, 5 (the best) and 6
    ("later checkpoint", checkpoint, "save", 6),
]


@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["before", "after"])
@pytest.mark.parametrize(
    ("module", "name", "at"),
    [  # the test after this one is killed before the next checkpoint too
        pytest.param(*rest, id=name, marks=pytest.mark.slow if name in ("next checkpoint", "metrics") else ())
        for name, *rest in PLACES
    ],
)
def test_a_kill_around_a_rollback_ends_in_the_same_bits(whole, tmp_path, monkeypatch, module, name, at, before):
    config = config_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, killing(getattr(module, name), at, before=before))
        with pytest.raises(Killed):
            run_pipeline(config)
    run_pipeline(config, resume=True)
    assert everything(rl_of(config)) == everything(rl_of(whole))


def test_without_the_checkpoint_that_a_rollback_returned_to_the_run_is_refused(whole, tmp_path, monkeypatch):
    """Without the refusal, earlier steps would be repeated with the learning rate and the noise of later ones."""
    config = config_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killing(checkpoint.save, 5, before=True))
        with pytest.raises(Killed):
            run_pipeline(config)
    folder, aside = rl_of(config) / "checkpoints", tmp_path / "aside"
    folder.rename(aside)
    for left in ([], ["step-000002"]):
        folder.mkdir()
        for name in left:
            shutil.copytree(aside / "step-000004", folder / name)
        with pytest.raises(CheckpointError, match=r"expected a checkpoint of step 4 or later, because .* rolled back"):
            run_pipeline(config, resume=True)
        shutil.rmtree(folder)
    aside.rename(folder)
    run_pipeline(config, resume=True)
    assert everything(rl_of(config)) == everything(rl_of(whole))


def test_a_kill_in_the_first_steps_after_a_rollback_repeats_them_with_the_same_noise(whole, tmp_path, monkeypatch):
    """No checkpoint of the new history exists yet; rows of steps 5 and 6 must not be taken for dropped ones."""
    config = config_of(tmp_path)
    with monkeypatch.context() as patch:
        save, seen = checkpoint.save, []

        def kill_after_rollback(folder, *, step, **settings):
            seen.append(step)
            if seen.count(6) == 2:
                raise Killed
            return save(folder, step=step, **settings)

        patch.setattr(checkpoint, "save", kill_after_rollback)
        with pytest.raises(Killed):
            run_pipeline(config)
    assert [row["step"] for row in read_jsonl(rl_of(config) / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    run_pipeline(config, resume=True)
    assert everything(rl_of(config)) == everything(rl_of(whole))


@pytest.fixture(scope="module")
def whole_with_lag(tmp_path_factory):
    """As `whole`, with rollouts of each step sampled while the one before is updated: step 5 is open in step 4."""
    config = config_of(tmp_path_factory.mktemp("lag"), lag=1)
    run_pipeline(config)
    return config


def texts(folder: Path, step: int):
    return [row["text"] for row in read_jsonl(folder / f"samples/step-{step:06d}.jsonl")]


def test_with_a_lag_the_open_step_keeps_its_rollouts_and_later_ones_are_sampled_anew(whole_with_lag):
    folder = rl_of(whole_with_lag)
    (rollback,) = records.read_rollbacks(folder)
    assert (rollback.from_step, rollback.to_step) == (7, 4)
    dropped = folder / "rolled_back/1"
    assert texts(folder, 5) == texts(dropped, 5)
    for step in (6, 7):
        assert texts(folder, step) != texts(dropped, step)
    rows = read_jsonl(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert [row["rollout/version_lag"] for row in rows] == [0.0] + [1.0] * (STEPS - 1)
    assert not list((folder / "ledger").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("module", "name", "at"),
    [place[1:] for place in PLACES if place[0] in ("record", "set aside", "metrics", "next checkpoint")],
    ids=["record", "set aside", "metrics", "next checkpoint"],
)
def test_a_kill_around_a_rollback_with_a_lag_ends_in_the_same_bits(
    whole_with_lag, tmp_path, monkeypatch, module, name, at, before
):
    config = config_of(tmp_path, lag=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, killing(getattr(module, name), at, before=before))
        with pytest.raises(Killed):
            run_pipeline(config)
    run_pipeline(config, resume=True)
    assert everything(rl_of(config)) == everything(rl_of(whole_with_lag))


@pytest.mark.parametrize("lag", [0, 1])
def test_without_an_old_checkpoint_the_stage_starts_again(tmp_path, lag):
    rules = {"rate": {**RULES["rate"], "above": 0.2e-3, "window": 1}}
    config = config_of(tmp_path, lag=lag, steps=5, rules=rules, lr_factor=0.05)
    run_pipeline(config)
    (rollback,) = records.read_rollbacks(rl_of(config))
    assert (rollback.from_step, rollback.to_step) == (2, 0)
    assert [row["step"] for row in read_jsonl(rl_of(config) / "metrics.jsonl")] == [1, 2, 3, 4, 5]


def test_when_the_attempts_are_used_up_the_run_saves_and_stops(tmp_path, capsys):
    rules = {"rate": {**RULES["rate"], "above": 0.4e-3}}
    config = config_of(tmp_path, rules=rules, attempts=1, lr_factor=0.9)
    with pytest.raises(
        RunStopped, match=r"step 4: the watchdog stops the run after 1 attempts to recover: train/lr"
    ) as stop:
        run_pipeline(config, report=lambda folder: write_report(folder, folder / "stopped.html"))
    assert stop.value.exit_code == 3
    latest = checkpoint.latest(rl_of(config))
    assert latest is not None
    checkpoint.verify_digests(latest)
    assert checkpoint.loop_state(latest)["watchdog"]["rollbacks"] == 1
    assert "the watchdog stops the run" in (config.run_dir / "stopped.html").read_text()


def test_a_lowered_rate_stays_lowered_after_a_kill(tmp_path, monkeypatch):
    rules = {"rate": {**RULES["rate"], "action": "lower_lr"}}
    rates = []
    for name in ("whole", "killed"):
        config = config_of(tmp_path / name, steps=8, rules=rules)
        if name == "killed":
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, "save", killing(checkpoint.save, 5, before=False))
                with pytest.raises(Killed):
                    run_pipeline(config)
        run_pipeline(config, resume=name == "killed")
        rates.append([row["train/lr"] for row in read_jsonl(rl_of(config) / "metrics.jsonl")])
    assert rates[0] == rates[1]
    assert rates[0][6:8] == [1e-3, 0.5e-3]


def test_a_watchdog_that_only_warns_changes_no_number(tmp_path):
    metrics = []
    for name, action in (("with", "warn"), ("without", "ignore")):
        config = config_of(tmp_path / name, action=action, rules={})
        run_pipeline(config)
        metrics.append(untimed(read_jsonl(rl_of(config) / "metrics.jsonl")))
    assert metrics[0] == metrics[1]


def test_the_noise_changes_with_every_rollback_and_only_then():
    assert noise_seed(7, 0) == 7
    assert len({noise_seed(seed, number) for seed in range(20) for number in range(1, 20)}) == 20 * 19


def test_the_best_checkpoint_is_kept_whatever_its_age(tmp_path, monkeypatch):
    """Scores of the evaluations after steps 5, 10 and 14: the first is the best."""
    from ansatz.evaluate.evaluate import Evaluator

    scores = iter([0.1, 0.9, 0.5, 0.5])
    run = Evaluator.run

    def scored(self: Evaluator, *args, **how):
        evaluated = run(self, *args, **how)
        return evaluated._replace(row={**evaluated.row, "pass@1": next(scores)})

    monkeypatch.setattr(Evaluator, "run", scored)
    config = config_of(tmp_path, action="ignore", rules={})
    run_pipeline(config)
    names = [path.name for path in checkpoint.list_checkpoints(rl_of(config))]
    assert names == ["step-000005", f"step-{STEPS:06d}"]
    assert "rl/checkpoints/step-000005 (90.0 %" in write_report(config.run_dir).read_text()


def test_a_damaged_record_is_refused_in_a_sentence(tmp_path):
    from ansatz.errors import CheckpointError

    write_text(tmp_path / "rollbacks.json", '{"rollbacks": [{"from_step": 3}]}')
    with pytest.raises(CheckpointError, match=r"rollbacks\.json is damaged"):
        watch.apply_rollbacks(tmp_path)

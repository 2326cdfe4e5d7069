"""Signals, closed terminals and closed pipes, with real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_runs import REPOSITORY, command, start, start_anew, toy_recipe

from ansatz.track.jsonl import read_jsonl
from benchmarks.faults.fingerprint import differences, untimed
from benchmarks.faults.processes import descendants

pytestmark = pytest.mark.e2e

REWARDS = Path(__file__).parents[1] / "loop" / "user_rewards.py"
CHANGES = {
    "data": {"sft": None},
    "train": {"steps": 40, "updates_per_step": 2},
    "save": {"every": 100, "tensorboard": False},
    "evaluate": {"every": 4},
    "rewards": {"math_answer": {"weight": 0}, f"{REWARDS}:waits": {"at": 0, "unless": ""}},
}


def recipe(folder, **settings):
    folder.mkdir(exist_ok=True)
    return toy_recipe(folder, {**CHANGES, **settings})


def hanging(folder, *, at, grace):
    """A recipe whose reward does not return at a step, until the file `go` exists."""
    reward = {"math_answer": {"weight": 0}, f"{REWARDS}:waits": {"at": at, "unless": str(folder / "go")}}
    save = {**CHANGES["save"], "grace": grace}
    return recipe(folder, rewards=reward, save=save, grader_workers=2)


def wait_for_rows(stage, count, process):
    deadline = time.monotonic() + 120
    while len(read_jsonl(stage / "metrics.jsonl")) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_hang(folder, process):
    """Until the reward of `hanging` does not return. A signal before that would stop the run at a step edge."""
    deadline = time.monotonic() + 120
    while not (folder / "go.waiting").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def checkpoints(stage):
    return sorted(path.name for path in (stage / "checkpoints").glob("*"))


def all_gone(pids, *, within_s=60):
    deadline = time.monotonic() + within_s
    while alive := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]:
        if time.monotonic() > deadline:
            return False, alive
        time.sleep(0.05)
    return True, []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = command("train", recipe(folder))
    assert code == 0, err
    return folder / "runs" / "toy"


@pytest.mark.slow
def test_a_step_that_takes_longer_than_the_grace_is_dropped_and_the_edge_before_it_is_saved(tmp_path, whole):
    process = start("train", hanging(tmp_path, at=6, grace=0.5), workers=True)
    stage = tmp_path / "runs" / "toy" / "rl"
    wait_for_hang(tmp_path, process)  # sampling of step 6 is over, its reward does not return
    assert len(read_jsonl(stage / "metrics.jsonl")) == 5
    children = descendants(process.pid)
    assert children
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, err
    assert "stopped by SIGTERM. Step 5 is saved in" in err
    assert f"ansatz train --resume {stage.parent}" in err
    assert checkpoints(stage)[-1] == "step-000005"  # older ones may be kept for a rollback
    assert all_gone(children)[0]
    (tmp_path / "go").touch()
    code, _, err = command("train", "--resume", stage.parent)
    assert code == 0, err
    assert untimed(read_jsonl(stage / "metrics.jsonl")) == untimed(read_jsonl(whole / "rl" / "metrics.jsonl"))
    changed = [name for name in differences(whole, stage.parent, with_recipe=False) if name.startswith("rl/")]
    assert all("step-000005/" in name for name in changed), changed


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    process = start("train", hanging(tmp_path, at=3, grace=600))
    wait_for_hang(tmp_path, process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    for _ in range(10):  # on a busy machine, two signals can arrive as one
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
            break
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.slow
def test_a_closed_pipe_does_not_end_a_run(tmp_path):
    process = start_anew("train", recipe(tmp_path, train={"steps": 3}))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=120) == 0
    assert (tmp_path / "runs" / "toy" / "report.html").is_file()


def test_a_closed_terminal_does_not_end_a_run(tmp_path):
    master, terminal = os.openpty()
    code = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from ansatz.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", str(recipe(tmp_path, train={"steps": 6}))],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    wait_for_rows(tmp_path / "runs" / "toy" / "rl", 2, process)
    os.close(master)  # the kernel sends SIGHUP to the leader of the session, which is the run itself
    assert process.wait(timeout=120) == 0
    assert (tmp_path / "runs" / "toy" / "report.html").is_file()

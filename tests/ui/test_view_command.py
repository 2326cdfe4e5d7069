"""The processes of the viewer: a tour of made-up runs, and the viewer of a run that trains."""

from __future__ import annotations

import http.cookiejar
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest

for _package in ("duckdb", "starlette", "uvicorn"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from toy_runs import start, toy_recipe  # noqa: E402
from warm_commands import WarmCommand  # noqa: E402

from ansatz.cli.view import _prepare, viewing  # noqa: E402
from ansatz.ui.demo import DemoRun  # noqa: E402
from ansatz.ui.library import Library  # noqa: E402

WAIT_S = 60


def browse(address: str, path: str = "") -> str:
    """The page as a browser that follows the printed address sees it. path: after the run's own address."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    place, _, token = address.partition("?")
    with browser.open(f"{place}{path}?{token}", timeout=WAIT_S) as answer:
        return answer.read().decode()


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def is_served(address: str) -> bool:
    try:
        browse(address)
    except URLError:
        return False
    return True


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_tour_answers_the_three_questions_and_leaves_nothing(tmp_path: Path):
    command = [sys.executable, "-m", "ansatz", "view", "--demo", "--port", "0"]
    environment = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)) as server:
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("Open ").strip()
        assert "Most lost" in browse(address)
        assert "▼ -" in browse(address, "/problems")
        responses = browse(address, "/rollouts.jsonl")
        assert '"correct": true' in responses
        assert any('"correct": true' in line and '"truncated": true' in line for line in responses.splitlines())
        seen = next(line for line in responses.splitlines() if '"has_tokens": true' in line)
        place = seen.partition('"id": "')[2].partition('"')[0]
        assert "The update moved the log-prob of this response" in browse(address, f"/rollout/{place}")
        assert list(tmp_path.glob("ansatz-demo-*"))
        server.send_signal(signal.SIGTERM)
        assert server.wait(WAIT_S) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_made_up_run_is_the_same_each_time(tmp_path: Path):
    first, second = (DemoRun(tmp_path / name / "run", steps=2, prompts=2).write() for name in ("a", "b"))
    for path in (path for path in first.rglob("*.jsonl")):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes(), path


def test_the_viewer_of_a_run_shows_it_as_soon_as_it_exists_and_ends_with_the_block(tmp_path: Path):
    run = DemoRun(tmp_path / "runs" / "new", steps=2, prompts=2)
    with viewing(run.folder) as address:
        with pytest.raises(URLError, match="503"):
            browse(address)
        run.write()
        assert "Run, done" in browse(address)
    assert not is_served(address)


def test_a_viewer_ends_even_if_its_run_is_killed(tmp_path: Path):
    run = DemoRun(tmp_path / "runs" / "run", steps=1, prompts=1).write()
    code = (
        "import sys, time; from pathlib import Path; from ansatz.cli.view import viewing\n"
        "with viewing(Path(sys.argv[1])) as address: print(address, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(run)]
    with ended(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as training:
        assert training.stdout is not None
        address = training.stdout.readline().strip()
        assert is_served(address)
        training.kill()
        wait_until(lambda: not is_served(address))


def test_train_prints_the_address_of_a_viewer_that_ends_with_the_run(tmp_path: Path):
    recipe = toy_recipe(tmp_path, {"sft": {"steps": 1}, "train": {"steps": 1}, "evaluate": {"every": 1}})
    training = start("train", recipe, "--view")
    assert isinstance(training, WarmCommand)
    try:
        wait_until(lambda: training.printed().count("\n") >= 2)
        first, second = training.printed().splitlines()[:2]
        assert first.startswith("toy: loads PyTorch")
        address = second.rpartition(" ")[2].strip()
        assert address.startswith("http://localhost:")
        wait_until(lambda: is_served(address))
        out, err = training.communicate(timeout=240)
        assert training.returncode == 0, out + err
    finally:
        training.kill()
    assert not is_served(address)
    assert f"ansatz view {tmp_path / 'runs' / 'toy'}" in out


def test_a_tour_takes_no_runs():
    for given in ("runs/x", "--try"):  # made-up runs have no checkpoints
        command = [sys.executable, "-m", "ansatz", "view", given, "--demo"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2
        assert f"--demo shows made-up runs alone; leave out {given}" in done.stderr


def test_a_port_that_is_taken_leads_to_the_next_free_one(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, bound, address = _prepare(Library([tmp_path]), port=port, host="127.0.0.1", token="", path="run/x")
        with bound:
            number = bound.getsockname()[1]
            assert port < number < port + 20
            assert address == f"http://localhost:{number}/run/x"


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_address_of_ipv6_is_in_brackets(tmp_path: Path):
    _, bound, address = _prepare(Library([tmp_path]), port=0, host="::1", token="", path="")
    with bound:
        assert address == f"http://[::1]:{bound.getsockname()[1]}/"

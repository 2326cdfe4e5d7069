"""The shell lines of docs/cluster.md and of deploy/slurm.sh, run as they stand on a Ray with a token on this machine:
a head and a worker node, which is killed during the run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml
from test_nodes import rows_of, wait_for
from toy_runs import REPOSITORY, different_results, toy_config, toy_recipe

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.jsonl import read_jsonl

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]
CHANGES = {
    "data": {"sft": None},
    "rollout": {"lag": 2, "prompts_per_step": 8},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "train": {"steps": 16},
    "evaluate": {"every": 8},
    "save": {"every": 4, "tensorboard": False},
}
STAND_INS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "scontrol": "[[ $1 == show ]] && printf 'one\\ntwo\\n'",
}


def page_lines(recipe: Path, overlay: Path, port: str) -> str:
    page = (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8")
    section = re.search(r"^#+ Several machines, by hand\n(.*?)^#+ ", page, re.S | re.M)
    assert section is not None
    lines = "".join(re.findall(r"```\n(.*?)```", section[1], re.S))
    for written, here in {
        "10.0.0.1:6379": f"127.0.0.1:{port}",
        "--port=6379": f"--port={port}",
        "--nodes 3": "--nodes 2",
        "RECIPE": str(recipe),
        "8x8x80gib": str(overlay),
    }.items():
        assert written in lines
        lines = lines.replace(written, here)
    return f"set -e\n{lines}"


class Machines:
    """Two nodes on one machine, in a home of their own without a token. Each has one CPU, and so room for a worker."""

    def __init__(self, folder: Path, temporary: str) -> None:
        self.folder, self.home, programs = folder, folder / "home", folder / "programs"
        self.home.mkdir()
        programs.mkdir()
        for name, body in STAND_INS.items():
            (programs / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        paths = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": cache,  # with the compiled kernels
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "packages" / "verify")]),
            "RAY_TMPDIR": temporary,
            "RAY_OVERRIDE_RESOURCES": '{"CPU": 1}',
            "SLURM_SUBMIT_DIR": str(folder),
            "SLURM_JOB_NODELIST": "nodes",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_GPUS_ON_NODE": "0",
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.environment["PORT"] = str(probe.getsockname()[1])

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([*map(str, command)], cwd=self.folder, env=self.environment, stdout=log, stderr=log)

    def processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    yield process

    def lose_the_worker_node(self) -> None:
        (raylet,) = (each for each in self.processes() if each.name() == "raylet" and "--head" not in each.cmdline())
        for process in [raylet, *raylet.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def close(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    pytest.importorskip("ray")
    temporary = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: names of sockets have at most 107 characters
    machines = Machines(tmp_path, temporary)
    yield machines
    machines.close()
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_pipeline(toy_config(tmp_path_factory.mktemp("whole"), CHANGES))


@pytest.mark.parametrize("way", ["by hand", "with Slurm"])
def test_the_lines_as_they_stand_train_to_the_bits_of_one_process(
    machines: Machines, whole: Path, tmp_path: Path, way: str
):
    recipe, overlay, run = toy_recipe(tmp_path, CHANGES), tmp_path / "overlay.yaml", tmp_path / "runs" / "toy"
    overlay.write_text(yaml.safe_dump({"cluster": {"workers": 2, "min_workers": 1}}), encoding="utf-8")
    if way == "by hand":
        driver = machines.start("bash", "-c", page_lines(recipe, overlay, machines.environment["PORT"]))
    else:
        driver = machines.start("bash", REPOSITORY / "deploy" / "slurm.sh", recipe, overlay)
    log = tmp_path / "log"
    try:
        wait_for(lambda: rows_of(run) >= 1, driver, limit_s=900)
        machines.lose_the_worker_node()
        assert driver.wait(timeout=900) == 0, log.read_text()[-3000:]
    except AssertionError as error:
        raise AssertionError(log.read_text()[-3000:]) from error
    assert any(row["perf/workers/deaths"] for row in read_jsonl(run / "rl" / "metrics.jsonl"))
    assert (machines.home / ".ray" / "auth_token").exists()
    assert different_results(whole, run) == ["rl/events.jsonl"]  # which has the death of the worker


def test_a_wrong_token_is_one_sentence(machines: Machines):
    address = f"127.0.0.1:{machines.environment['PORT']}"
    begun = f"export RAY_AUTH_MODE=token RAY_AUTH_TOKEN={64 * '1'}; ray start --head --port=$PORT"
    asked = f"from ansatz.cluster.ray import RayCluster; RayCluster('{address}')"
    driver = machines.start("bash", "-c", f'{begun} && RAY_AUTH_TOKEN={64 * "2"} python -c "{asked}"')
    assert driver.wait(timeout=900) == 1
    said = (machines.folder / "log").read_text().splitlines()[-1]
    assert said == (
        f"ansatz.errors.RolloutError: cluster.address = '{address}': this Ray cluster does not admit the token of this "
        "user, or none was found. Copy ~/.ray/auth_token from the cluster's first machine."
    )


def test_results_arrive_from_a_cluster_without_a_token_although_the_user_has_one(machines: Machines):
    asked = [
        "from test_ray_cluster import *",
        f"cluster = RayCluster('127.0.0.1:{machines.environment['PORT']}')",
        "(worker,) = cluster.start(ROLE, 1)",
        "until(cluster, Joined)",
        "cluster.call(worker, 'double', [1])",
        "assert any(isinstance(event, Partial) for event in until(cluster, Answered))",
    ]
    machines.environment["PYTHONPATH"] += f":{REPOSITORY}/tests:{REPOSITORY}/tests/cluster"
    begun = "RAY_AUTH_MODE=disabled ray start --head --port=$PORT; ray get-auth-token --generate"
    driver = machines.start("bash", "-c", f"set -e; {begun}; python -c {shlex.quote('; '.join(asked))}")
    assert driver.wait(timeout=900) == 0, (machines.folder / "log").read_text()[-3000:]

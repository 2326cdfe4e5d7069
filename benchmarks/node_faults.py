"""`tiny_arithmetic_grpo_cpu` on a local Ray of a head and 2 nodes: 2 ranks, 2 workers, lag 1, and a node is lost.

    python benchmarks/node_faults.py runs/node_faults --out node_faults.json

One run is undisturbed. During the other, a node is killed with SIGKILL while its worker samples, and started again
later; then the run is stopped with SIGTERM, copied, and resumed on two ranks, on one and on four. The first must end
with the hashes of the undisturbed run; for the others, the largest difference of a weight is printed, relative to the
norm of its tensor. Other options go to all runs, such as --data.sft null --model.path FOLDER --train.steps 6.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from faults.processes import ROOT, environment, finish, left_alive
from safetensors.torch import load_file
from worker_faults import LIMIT_S, RECIPE, digests_of, is_finished, scores, start, wait_for_rows

from ansatz.train.checkpoint import list_checkpoints

SETTINGS = ["--rollout.lag", "1", "--algorithm.correction", "truncate"]
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
RANKS = (2, 1, 4)
HEAD_CPUS = 4
"""Room for four ranks. Ray only counts CPUs; it does not check that they exist."""
START_S = 120.0


class LocalNodes:
    """A head and other nodes of one Ray on this machine, each started by `ray start --block` in its own session."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._nodes = [self._start("--head", f"--port={port}", "--include-dashboard=false", cpus=HEAD_CPUS)]
        self.add()
        self.add()

    def add(self) -> None:
        self._nodes.append(self._start(f"--address={self.address}", cpus=1))

    def lose(self) -> int:
        """Kill the newest node and all that runs on it. Returns how many processes were killed."""
        return _kill(self._nodes.pop())

    def close(self) -> None:
        while self._nodes:
            self.lose()

    def _start(self, *options: str, cpus: int) -> subprocess.Popen[bytes]:
        """Start a node and wait until it runs: of two that start at the same time, one can fail to join."""
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--node-ip-address=127.0.0.1"]
        with tempfile.NamedTemporaryFile() as output:
            node = subprocess.Popen(
                [*command, f"--num-cpus={cpus}", "--object-store-memory=80000000", *options],
                cwd=ROOT,
                env={**environment(), "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            deadline = time.monotonic() + START_S
            while b"Ray runtime started" not in (text := Path(output.name).read_bytes()):
                if node.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"ray start did not start a node: {text.decode()[-2000:]}")
                time.sleep(0.2)
        return node


def _kill(node: subprocess.Popen[bytes]) -> int:
    tree = [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    node.wait()
    if alive := left_alive([process.pid for process in tree], within_s=10):
        raise RuntimeError(f"processes {alive} survived SIGKILL")
    return len(tree)


@contextmanager
def local_nodes() -> Iterator[LocalNodes]:
    nodes = LocalNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lose-at", type=int, default=10, help="rows of metrics at which a node is killed")
    parser.add_argument("--return-at", type=int, default=20, help="rows at which it is started again")
    parser.add_argument("--stop-at", type=int, default=40, help="rows at which the run is stopped")
    parser.add_argument("--out", type=Path, default=Path("node_faults.json"))
    arguments, settings = parser.parse_known_args()
    folder: Path = arguments.folder.absolute()
    with local_nodes() as nodes:
        cluster = [f"--cluster.{key}={value}" for key, value in cluster_settings(nodes.address, ranks=2).items()]
        recipe = [RECIPE, "--name", "run", "--fresh", *SETTINGS, *cluster, *settings]
        whole, stopped = folder / "whole" / "run", folder / "stopped" / "run"
        result: dict[str, Any] = {"recipe": recipe, "doctor": doctor(nodes.address)}
        if not is_finished(whole):
            finish(start("train", *recipe, "--out", whole.parent))
        shutil.rmtree(stopped, ignore_errors=True)
        process = start("train", *recipe, "--out", stopped.parent)
        wait_for_rows(stopped, arguments.lose_at, process)
        result["processes killed with the node"] = nodes.lose()
        wait_for_rows(stopped, arguments.return_at, process)
        nodes.add()
        wait_for_rows(stopped, arguments.stop_at, process)
        os.kill(process.pid, signal.SIGTERM)
        result["exit code after SIGTERM"] = process.wait()
        for ranks in RANKS:
            run = folder / f"on {ranks}" / "run"
            shutil.rmtree(run.parent, ignore_errors=True)
            shutil.copytree(stopped, run)
            options = cluster_settings(nodes.address, ranks=ranks)
            finish(start("train", "--resume", run, *(f"--cluster.{key}={value}" for key, value in options.items())))
            result[f"resumed on {ranks}"] = {
                "equal": digests_of(run) == digests_of(whole),
                "largest difference of a weight": largest_difference(run, whole),
                "scores": scores(run),
            }
        nodes.lose()
        result["doctor without a node"] = doctor(nodes.address)
        result["undisturbed"] = {"sha256": digests_of(whole), "scores": scores(whole)}
    arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


def cluster_settings(address: str, *, ranks: int) -> dict[str, Any]:
    return {"trainers": ranks, "workers": 2, "min_workers": 1, "address": address}


def doctor(address: str) -> dict[str, Any]:
    """What `ansatz doctor` says of a cluster that should have three nodes."""
    command = [sys.executable, "-c", "from ansatz.cli.main import main; main()", "doctor", "--cluster"]
    command += ["--address", address, "--nodes", "3"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
    return {"exit code": done.returncode, "output": done.stdout + done.stderr}


def largest_difference(run: Path, other: Path) -> float:
    left, right = (load_file(list_checkpoints(each / "rl")[-1] / "model.safetensors") for each in (run, other))
    return max(float((left[name] - right[name]).abs().max() / right[name].norm()) for name in right)


if __name__ == "__main__":
    main()

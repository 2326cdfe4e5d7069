"""What `ansatz doctor` says about this machine and about a real local Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_runs import command

from ansatz.certify import doctor
from ansatz.certify.doctor import Diagnosis, _storage, examine_cluster, examine_machine
from ansatz.cli.doctor import doctor as doctor_command
from ansatz.cluster.ray import Node
from ansatz.errors import ConfigError


def by_name(findings: Iterator[Diagnosis]) -> dict[str, Diagnosis]:
    return {finding.what: finding for finding in findings}


@pytest.mark.e2e
def test_this_machine_can_train(tmp_path: Path):
    code, out, err = command("doctor", "--folder", tmp_path / "runs", timeout_s=600)
    assert code == 0, out + err
    assert "a tiny step: sampled in" in out
    assert out.splitlines()[-1] == "Nothing is wrong."
    assert list(tmp_path.iterdir()) == []


def test_the_disk_is_examined_and_no_folder_is_left_that_was_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ansatz.certify.doctor._PROBE_BYTES", 2**20)
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "mine", tmp_path / "mine" / "deep" / "runs", tmp_path / "new"):
        assert [finding.what for finding in _storage(folder)] == ["run folder"]
        assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


@pytest.mark.e2e
def test_a_run_folder_that_is_a_file_is_named_and_gives_exit_code_1(tmp_path: Path):
    (tmp_path / "runs").write_text("")
    code, out, _ = command("doctor", "--folder", tmp_path / "runs", timeout_s=600)
    assert code == 1
    assert f"wrong  run folder: {tmp_path / 'runs'} cannot be used" in out
    assert "-> Name another folder with --folder" in out
    assert out.splitlines()[-1] == "1 of these findings will stop a run."


@pytest.mark.parametrize(
    ("what", "module", "name", "broken", "advice"),
    [
        ("ports", "socket", "create_server", OSError(1, "Operation not permitted"), "Allow connections to 127.0.0.1"),
        ("shared memory", "shutil", "disk_usage", OSError(2, "No such file or directory"), "Mount it"),
    ],
)
def test_what_fails_gets_advice(
    monkeypatch: pytest.MonkeyPatch, what: str, module: str, name: str, broken: OSError, advice: str
):
    def fail(*arguments: Any) -> None:
        raise broken

    monkeypatch.setattr(getattr(doctor, module), name, fail)
    examine = {"ports": doctor._loopback, "shared memory": doctor._shared_memory}[what]
    finding = examine()
    assert finding.what == what
    assert finding.state != "ok"
    assert broken.strerror in finding.found
    assert finding.advice.startswith(advice)


def test_limits_that_are_low_are_notes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda what: (256, 256))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=64 * 2**20))
    assert doctor._open_files().state == "note"
    assert "ulimit -n" in doctor._open_files().fix
    assert doctor._shared_memory().state == "note"
    assert "--shm-size" in doctor._shared_memory().advice


def test_a_machine_without_a_compiler_for_the_kernels_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.cpu_kernels, "library", lambda: None)
    assert doctor._processor().state == "note"
    assert "no C++ compiler" in doctor._processor().found
    assert "g++" in doctor._processor().fix


def test_a_smallest_run_that_fails_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(doctor, "_RECIPE", "no_such_recipe")
    finding = by_name(examine_machine(tmp_path))["a tiny step"]
    assert finding.state == "wrong"
    assert "no_such_recipe" in finding.found


@pytest.mark.cluster
@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.1:99999", ":6379", "local", "nowhere", "ray://nowhere", "/"]
)
def test_no_cluster_at_the_address_is_said_with_how_to_start_one(tmp_path: Path, address: str):
    findings = list(examine_cluster(address, tmp_path))
    assert [finding.state for finding in findings] == ["wrong"]
    assert "ray start --head" in findings[0].advice


@pytest.mark.cluster
def test_the_nodes_of_a_cluster_pass_and_a_missing_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    settings: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 150 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    try:
        second = cluster.add_node(num_cpus=1, object_store_memory=150 * 2**20)
        whole = by_name(examine_cluster(cluster.address, tmp_path))
        assert {finding.state for finding in whole.values()} == {"ok"}, whole
        assert "2 of 2 nodes answer, with 2 CPUs" in whole["nodes"].found
        assert "MB/s from " in whole["between nodes"].found
        assert "sampled in" in whole["a tiny step with a worker"].found
        deadline = time.monotonic() + 120
        monkeypatch.setattr(doctor, "_JOIN_S", 0.5)
        missing = next(examine_cluster(cluster.address, tmp_path, num_nodes=3))
        assert (missing.state, missing.found[:20]) == ("wrong", "2 of 3 nodes answer,")
        cluster.remove_node(second, allow_graceful=False)
        while (nodes := next(examine_cluster(cluster.address, tmp_path, num_nodes=2))).state == "ok":
            assert time.monotonic() < deadline  # until Ray has noticed
            time.sleep(1)
        assert "1 of 2 nodes answer" in nodes.found
        assert "ray start --address" in nodes.advice
        cluster.add_node(num_cpus=1, object_store_memory=150 * 2**20)
        for asked in (None, 2):
            back = next(examine_cluster(cluster.address, tmp_path, num_nodes=asked))
            assert (back.state, back.found[:20]) == ("ok", "2 of 2 nodes answer,")
    finally:
        cluster.shutdown()


def node(address: str, *, alive: bool = True) -> Node:
    return Node(node_id=address, address=address, alive=alive, resources={"CPU": 4.0})


@pytest.mark.parametrize(
    ("nodes", "asked", "state", "found"),
    [
        ([node("a"), node("b")], None, "ok", "2 of 2 nodes answer, with 8 CPUs and 0 GPUs"),
        ([node("a"), node("b", alive=False)], None, "wrong", "1 of 2 nodes answer, with 4 CPUs and 0 GPUs; b has left"),
        ([node("a"), node("b", alive=False), node("b")], None, "ok", "2 of 2 nodes answer"),  # it has joined again
        ([node("a"), node("b", alive=False), node("c")], 2, "ok", "; b has left"),  # replaced, as in Kubernetes
        ([node("a"), node("b", alive=False), node("c")], None, "wrong", "2 of 3 nodes answer"),
        ([node("a"), node("b", alive=False), node("b")], 3, "wrong", "2 of 3 nodes answer"),
        ([node("a"), node("b"), node("c")], 2, "ok", "3 of 3 nodes answer"),
    ],
)
def test_a_node_is_missed_until_it_is_back_or_enough_others_answer(
    nodes: list[Node], asked: int | None, state: str, found: str
):
    finding = doctor._membership(nodes, asked)
    assert finding.state == state
    assert found in finding.found
    assert bool(finding.advice) == (state == "wrong")


@pytest.mark.parametrize(
    ("option", "sentence"), [({"nodes": 1}, "--nodes 1 has no effect"), ({"address": "a:1"}, "--address a:1 has no")]
)
def test_an_option_that_needs_a_cluster_is_refused_without_one(option: dict[str, Any], sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        doctor_command(**{"folder": Path("runs"), "cluster": False, "address": "auto", "nodes": None, **option})


def test_data_that_does_not_arrive_is_wrong():
    assert doctor._between("10.0.0.1", "10.0.0.2", float("inf")).state == "wrong"
    assert doctor._between("10.0.0.1", "10.0.0.2", 1.0).found == "67 MB/s from 10.0.0.1 to 10.0.0.2"


@pytest.mark.parametrize(
    ("report", "found"),
    [
        ("no answer within 30 s", "it gave no report: no answer within 30 s"),
        ("ModuleNotFoundError: No module named 'ansatz'", "it gave no report: ModuleNotFoundError"),
        ({"versions": {"torch": "1.0"}}, "torch 1.0 instead of 2.0"),
        ({"versions": {}}, "torch missing instead of 2.0"),
        ({"token": None}, "it does not see the files that this machine writes in"),
        ({"token": "of another run"}, "it does not see the files that this machine writes in"),
    ],
)
def test_what_is_wrong_with_a_node_is_said(report: str | dict[str, Any], found: str):
    sound = {"host": "a", "versions": {"torch": "2.0"}, "token": "1", "read_s": 1.0, "free_bytes": 0}
    if isinstance(report, dict):
        report = doctor.NodeReport(**{**sound, **report})
    finding = doctor._about_node("10.0.0.2", report, token="1", expected={"torch": "2.0"}, folder=Path("runs"))
    assert finding.what == "node 10.0.0.2"
    assert finding.state == "wrong"
    assert found in finding.found
    assert finding.advice

"""`ansatz doctor` refuses options that cannot do what they say, before it examines anything."""

from pathlib import Path

import pytest
import torch

from ansatz.certify import doctor
from ansatz.certify.doctor import Diagnosis
from ansatz.models.load import compute_dtype, find_device


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nodes", "3"], "--nodes 3 has no effect without --cluster."),
        (["--address", "10.0.0.1:6379"], "--address 10.0.0.1:6379 has no effect without --cluster."),
        (["--cluster", "--address", ""], "--address is empty. Give HOST:PORT of a Ray cluster, or leave it out."),
    ],
)
def test_options_without_effect_are_refused(ansatz, arguments, sentence):
    code, out, err = ansatz("doctor", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"ansatz: {sentence}")
    assert err.count("\n") == 1


def test_fix_prints_the_command_of_each_finding_and_runs_none(ansatz, monkeypatch, tmp_path):
    findings = [
        Diagnosis(what="open files", state="note", found="at most 256", advice="Raise it.", fix="ulimit -n 65536"),
        Diagnosis(what="memory", state="ok", found="8 GiB are free"),
    ]
    monkeypatch.setattr(doctor, "examine_machine", lambda folder: findings)
    code, without, _ = ansatz("doctor", "--folder", str(tmp_path))
    assert (code, "ulimit" in without) == (0, False)
    code, out, _ = ansatz("doctor", "--fix", "--folder", str(tmp_path))
    assert code == 0
    assert out.splitlines()[:3] == ["note   open files: at most 256", "       -> Raise it.", "       $ ulimit -n 65536"]


def test_missing_extras_are_installed_into_the_python_that_runs_the_doctor(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name in ("ray", "vllm", "peft") else "1.0")
    monkeypatch.setattr(doctor.sys, "executable", "/with space/python")
    assert doctor._versions().fix == "'/with space/python' -m pip install 'peft>=0.18' 'psutil>=6.0' 'ray>=2.60'"


def test_an_apple_gpu_is_named_and_not_used(monkeypatch):
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(doctor, "Path", lambda name: Path("/nowhere"))
    finding = doctor._gpus()
    assert (finding.state, "never been run" in finding.found) == ("note", True)
    assert find_device(None) == torch.device("cpu")
    assert compute_dtype("auto", torch.device("mps")) == torch.float32

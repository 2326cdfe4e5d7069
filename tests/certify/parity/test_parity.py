"""The certificate walk, on cases made here and on the golden numbers that are installed."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from golden_numbers import entries
from toy_runs import REPOSITORY
from typer.testing import CliRunner

from ansatz.certify.parity import certify
from ansatz.certify.parity.cases import error
from ansatz.certify.parity.report import LEFT_OUT
from ansatz.cli.parity import parity
from ansatz.errors import DataError
from ansatz.objectives.projects.options import merged


def grpo_zero_case(**changes: Any) -> dict[str, Any]:
    """Two rollouts of one and two tokens: std (ddof 0) of (1, 0) is 0.5, so A = +-0.5 / 0.5001, each token / 3."""
    advantage = 0.5 / 0.5001
    outputs = {
        "advantages": [advantage, -advantage],
        "loss": -(advantage * -1.0 - advantage * (-2.0 - 3.0)) / 3,
        "grad_policy_logp": [[-advantage / 3, 0.0], [advantage / 3, advantage / 3]],
        "metrics": {"whatever": 1.0},
    }
    return {
        "id": "grpo_zero.update/made",
        "family": "grpo_zero.update",
        "peer": "grpo_zero",
        "knobs": {},
        "knob_defaults": {"micro_batch_size": "all rollouts"},
        "inputs": {
            "rewards": [1.0, 0.0],
            "group": [0, 0],
            "mask": [[1, 0], [1, 1]],
            "policy_logp": [[-1.0, 0.0], [-2.0, -3.0]],
        },
        "outputs": {**outputs, **changes},
    }


def write(tmp_path: Path, *cases: dict[str, Any]) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(list(cases)))
    return path


def run(*paths: Path) -> Any:
    app = typer.Typer()
    app.command()(parity)
    return CliRunner().invoke(app, [str(path) for path in paths])


def test_an_agreeing_family_exits_zero_and_the_last_line_counts(tmp_path: Path):
    result = run(write(tmp_path, grpo_zero_case()))
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == "1 of 1 families agree"
    assert "grpo_zero.update" in result.output


@pytest.mark.parametrize("output", ["loss", "grad_policy_logp", "advantages"])
def test_a_wrong_number_is_named_and_exits_one(tmp_path: Path, output: str):
    case = grpo_zero_case()
    value = case["outputs"][output]
    case["outputs"][output] = (
        value + 1e-7 if output == "loss" else [[0.0, 0.0]] * 2 if "grad" in output else [1.0, -1.0]
    )
    result = run(write(tmp_path, grpo_zero_case(), case))
    assert result.exit_code == 1
    assert f"DIFFERS in {output}" in result.output
    assert "1 of  2 agree" in result.output
    assert result.output.splitlines()[-1] == "0 of 1 families agree"


def test_a_gradient_outside_the_mask_is_a_difference(tmp_path: Path):
    case = grpo_zero_case()
    case["outputs"]["grad_policy_logp"][0][1] = 0.5
    assert run(write(tmp_path, case)).exit_code == 1


def test_a_family_that_is_left_out_counts_in_the_total_and_is_no_failure(tmp_path: Path):
    left = {**grpo_zero_case(), "family": "nano.vineppo", "peer": "nano", "id": "nano.vineppo/made"}
    result = run(write(tmp_path, grpo_zero_case(), left))
    assert result.exit_code == 0
    assert "left out: needs Monte-Carlo rollouts" in result.output
    assert result.output.splitlines()[-1] == "1 of 2 families agree"


def test_an_unknown_family_is_a_failure_and_not_silence(tmp_path: Path):
    assert run(write(tmp_path, {**grpo_zero_case(), "family": "someone.new"})).exit_code == 1


def test_knobs_that_are_not_mapped_are_a_difference_and_not_a_crash(tmp_path: Path):
    case = {**grpo_zero_case(), "family": "trl.grpo_loss.grpo", "peer": "trl", "id": "trl.grpo_loss.grpo/made"}
    result = run(write(tmp_path, case, grpo_zero_case()))
    assert result.exit_code == 1
    assert "DIFFERS in options" in result.output
    assert result.output.splitlines()[-1] == "1 of 2 families agree"


def test_a_file_of_another_kind_is_refused_in_words(tmp_path: Path):
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}')
    with pytest.raises(DataError, match="expected a JSON list of parity cases"):
        certify(path)
    with pytest.raises(DataError, match="expected a JSON list"):
        certify(tmp_path / "missing.json")


def test_knobs_merge_key_by_key_and_errors_are_relative_to_large_numbers():
    assert merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}}) == {"a": {"x": 1, "y": 5}, "b": 3}
    assert error([100.0], [101.0]) == pytest.approx(1 / 101)
    assert error([0.5], [0.25]) == 0.25
    assert error([0.5], [0.5, 0.5]) == float("inf")
    assert error([float("nan")], [0.5]) == float("inf")
    assert error(None, 1.0) == float("inf")


def test_without_a_file_the_installed_numbers_are_compared_and_all_agree_except_those_left_out():
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    families = {entry["family"] for entry in entries()}
    assert len(families) == 274
    assert lines[-1] == f"{len(families - set(LEFT_OUT))} of {len(families)} families agree"
    assert sum("left out: " in line for line in lines) == len(LEFT_OUT)
    assert set(LEFT_OUT) <= families


def test_a_compressed_file_is_read_and_a_damaged_one_refused_in_words(tmp_path: Path):
    content = gzip.compress(json.dumps([grpo_zero_case()]).encode())
    path = tmp_path / "cases.json.gz"
    path.write_bytes(content)
    assert run(path).output.splitlines()[-1] == "1 of 1 families agree"
    for damaged in (content[:-9], b"[]", content[:20] + b"\xff" * 40):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="expected a JSON list of parity cases"):
            certify(path)


def test_the_page_names_every_project_and_version_that_the_numbers_come_from():
    page = (REPOSITORY / "docs" / "parity.md").read_text(encoding="utf-8")
    versions = {re.sub(r"^([0-9a-f]{10})[0-9a-f]{30}$", r"\1", entry["peer_version_or_commit"]) for entry in entries()}
    assert len(versions) > 10
    assert [version for version in versions if version not in page] == []
    assert f"{len(entries())} cases" in page


def test_no_setting_is_read_off_an_expected_output():
    # the same cases without their outputs give the same numbers: a run sees knobs and inputs alone
    from ansatz.certify.parity.cases import Case
    from ansatz.certify.parity.families import find

    data = [entry for entry in entries() if entry["family"] not in LEFT_OUT][::7]
    for entry in data:
        shapes = {key: value for key, value in entry["outputs"].items() if entry["peer"] == "derivation"}
        blind = Case.from_json({**entry, "id": "?", "outputs": shapes})
        run_family = find(entry["family"])
        assert run_family is not None
        seen, unseen = run_family(Case.from_json(entry)), run_family(blind)
        for key in entry["outputs"]:
            if key in seen and key != "metrics":
                assert error(unseen[key], seen[key]) == 0


def test_no_number_of_the_shared_cases_passes_through_the_default_dtype():
    from ansatz.certify.parity.cases import Case
    from ansatz.certify.parity.families import find

    for entry in [entry for entry in entries() if entry["family"] not in LEFT_OUT][::2]:
        run_family = find(entry["family"])
        assert run_family is not None
        usual = run_family(Case.from_json(entry))
        torch.set_default_dtype(torch.bfloat16)
        try:
            coarse = run_family(Case.from_json(entry))
        finally:
            torch.set_default_dtype(torch.float32)
        for key in entry["outputs"]:
            if key in usual and usual[key] is not None and key != "metrics":
                assert error(coarse[key], usual[key]) == 0, (entry["id"], key)

"""`ansatz audit`, `ansatz replay` and `ansatz train --bundle`, from a run of our own to the verdict about its steps."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from toy_runs import toy_config

from ansatz.audit.bundle import read_bundle, write_bundle
from ansatz.cli.audit import audit
from ansatz.cli.replay import replay
from ansatz.cli.train import check_bundles, steps_of, write_bundles
from ansatz.config.load import load_run
from ansatz.errors import ConfigError, DataError
from ansatz.loop.pipeline import run_pipeline
from tests.audit.made_bundle import made, with_loss


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("run")
    config = toy_config(folder, {"data": {"sft": None}, "algorithm": {"preset": "dapo"}})
    run = run_pipeline(config, watch_trainer=partial(write_bundles, frozenset({2, 3})))
    return sorted((run / "rl" / "bundles").iterdir())


def status(call: Any) -> int:
    try:
        call()
    except typer.Exit as end:
        return end.exit_code
    return 0


def test_steps_that_a_run_does_not_make_are_refused_before_it_starts(tmp_path: Path, bundles: list[Path]):
    check_bundles(frozenset({1, 4}), toy_config(tmp_path), resume=False)
    more = load_run(bundles[0].parents[2], overrides={"train.steps": "6"})
    check_bundles(frozenset({5, 6}), more, resume=True)
    for steps, config, resume, sentence in (
        ({3, 9}, toy_config(tmp_path), False, "--bundle has 9, .* does not make. Give steps from 1 to 4"),
        ({4, 5}, more, True, "--bundle has 4, .* does not make. Give steps from 5 to 6"),
        ({1}, toy_config(tmp_path, {"train": {"steps": 0}}), False, "Leave --bundle out"),
        ({1}, toy_config(tmp_path, {"cluster": {"trainers": 2}}), False, "Set cluster.trainers to 0"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            check_bundles(frozenset(steps), config, resume=resume)


def test_nan_is_no_value_that_was_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "bundle").mkdir()
    write_bundle(tmp_path / "bundle", made())
    monkeypatch.setattr("ansatz.cli.replay._from_logps", lambda bundle: {"loss": (0.53, float("nan"))})
    assert status(lambda: replay(tmp_path / "bundle", tolerance=1e-6, trust_code=False)) == 1
    assert "again nan, which differs" in capsys.readouterr().out


def test_the_named_steps_are_stored_and_keep_their_promise(
    bundles: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert [folder.name for folder in bundles] == ["step-000002-0", "step-000003-0"]
    out, page = tmp_path / "audit.json", tmp_path / "audit.html"
    assert status(lambda: audit([bundles[0]], demo=False, recompute=True, out=out, page=page)) == 0
    claims = {claim["name"]: claim["status"] for claim in json.loads(out.read_text())["steps"][0]["claims"]}
    assert claims["mask"] == "certified"
    assert claims["loss"] == "consistent"  # by its value: nobody wrote the gradient at tokens down
    assert "<td>certified</td>" in page.read_text().replace("\n", "")
    assert "contradicts" not in capsys.readouterr().out


def test_a_stored_step_is_computed_again_from_its_weights(bundles: list[Path], capsys: pytest.CaptureFixture[str]):
    assert status(lambda: replay(bundles[1], tolerance=1e-6, trust_code=False)) == 0
    lines = capsys.readouterr().out
    assert "train/loss: expected" in lines
    assert "train/grad_norm: expected" in lines
    assert len(lines.splitlines()) > 8  # every metric of the update
    assert "differs" not in lines


def test_a_value_that_was_changed_differs_when_it_is_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bundle = made()
    losses = bundle.expected["loss_of_microbatches"]
    wrong = dataclasses.replace(bundle, expected={"loss_of_microbatches": [losses[0], losses[1] + 0.5]})
    write_bundle(tmp_path, wrong)
    assert status(lambda: replay(tmp_path, tolerance=1e-3, trust_code=False)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if "differs" in line] == ["loss 1"]


def test_advantages_are_computed_again_where_the_loss_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bundle = made()
    write_bundle(tmp_path, dataclasses.replace(bundle, options={**bundle.options, "entropy_coef": 0.01}))
    assert status(lambda: replay(tmp_path, tolerance=1e-3, trust_code=False)) == 0
    loss, advantages = capsys.readouterr().out.splitlines()
    assert loss.endswith("the loss needs entropy_T, which the bundle does not have.")
    assert advantages.startswith("norm of the advantages: expected ")


def test_an_audit_with_a_contradiction_ends_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_bundle(tmp_path, with_loss(made(), anchor="policy"))
    assert status(lambda: audit([tmp_path], demo=False, recompute=True, out=None, page=None)) == 1
    assert "anchor of the ratio is policy instead of old" in capsys.readouterr().out
    assert status(lambda: audit([tmp_path], demo=False, recompute=False, out=None, page=None)) == 0


def test_a_bundle_without_a_promise_cannot_be_computed_again(tmp_path: Path):
    write_bundle(tmp_path, dataclasses.replace(made(), project="mine"))
    with pytest.raises(DataError, match="the project 'mine' is not one of trl, verl"):
        replay(tmp_path, tolerance=1e-3, trust_code=False)


@pytest.mark.parametrize("text", ["0", "3,,4", "a", "-1", "3.5", "12345678901"])
def test_steps_that_are_none_are_refused(text: str):
    with pytest.raises(ConfigError, match="expected steps from 1 on"):
        steps_of(text)
    assert steps_of("3, 17") == {3, 17}


def test_the_arrays_of_our_own_step_are_those_of_the_update(bundles: list[Path]):
    bundle = read_bundle(bundles[0])
    assert bundle.project == "ansatz"
    assert {"policy_logp_T", "behavior_logp_T", "advantage_T", "weight_T", "reward_N"} <= set(bundle.arrays)
    at_T = bundle.arrays["sampled_mask_T"]
    gap_T = np.abs(bundle.arrays["policy_logp_T"] - bundle.arrays["behavior_logp_T"])[at_T]
    assert gap_T.max() < 1e-4

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.multiprocessing.spawn import start_processes
from toy_runs import toy_config

from ansatz.certify import check, gradients
from ansatz.certify.check import check_recipe
from ansatz.config.schema import Config
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.types import Prompt, Rollout

pytestmark = pytest.mark.e2e


def config(folder: Path, **algorithm: object) -> Config:
    changes = {"algorithm": {"preset": "grpo", **algorithm}, "rollout": {"max_response_tokens": 12}}
    return toy_config(folder, {**changes, "sft": {"steps": 0}})


@pytest.mark.parametrize(
    "algorithm",
    [
        {},
        pytest.param({"kl": "full", "kl_coef": 0.1}, marks=pytest.mark.slow),
        pytest.param({"kl": "full", "kl_coef": 0.1, "kl_in": "reward"}, marks=pytest.mark.slow),
    ],
)
def test_every_row_passes_on_a_sound_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]):
    if not algorithm:  # ranks that are forks of one process load torch once; those of the slow cases load it each
        multiprocessing.set_forkserver_preload(["ansatz.certify.check"])
        monkeypatch.setattr(gradients, "spawn", partial(start_processes, start_method="forkserver"))
    findings = list(check_recipe(config(tmp_path, **algorithm), tmp_path, num_prompts=2))
    assert [finding.what for finding in findings if not finding.passed] == []
    assert sum(finding.what.startswith("gradient: ") for finding in findings) == 9
    assert sum(finding.what.startswith("sampler and trainer, ") for finding in findings) == 6
    assert all(finding.measured is not None for finding in findings)


@pytest.mark.slow
def test_the_limits_and_forced_tokens_of_the_recipe_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Sampling] = []
    generate = NativeSampler.generate

    def recorded(sampler: NativeSampler, prompts: Sequence[Prompt], sampling: Sampling, **more: Any) -> list[Rollout]:
        asked.append(sampling)
        return generate(sampler, prompts, sampling, **more)

    monkeypatch.setattr(NativeSampler, "generate", recorded)
    limits = {"top_k": 40, "min_p": 0.01, "min_response_tokens": 3, "stop": ["zz"], "thinking_budget": 2}
    recipe = toy_config(tmp_path, {"rollout": {"max_response_tokens": 16, **limits}, "sft": {"steps": 0}})
    findings = list(check_recipe(recipe, tmp_path, num_prompts=2))
    assert [finding.what for finding in findings if not finding.passed] == []
    assert [
        (each.top_k, each.min_p, each.min_response_tokens, each.stop, each.thinking_budget) for each in asked[:2]
    ] == [
        (0, 0.0, 0, (), 0),
        (40, 0.01, 3, ("zz",), 2),
    ]


def test_a_trainer_that_disagrees_with_the_sampler_fails_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    honest = check.logps_of
    monkeypatch.setattr(check, "logps_of", lambda *given, **how: 0.99 * honest(*given, **how))
    monkeypatch.setattr(check, "_invariances", lambda *_: ())  # two ranks take most of the time, and it is not theirs
    failed = [finding.what for finding in check_recipe(config(tmp_path), tmp_path, num_prompts=2) if not finding.passed]
    assert len(failed) == 6
    assert all(what.startswith("sampler and trainer, ") for what in failed)


def test_checks_that_do_not_apply_to_a_whole_minibatch_objective_are_named(tmp_path: Path):
    findings = list(check_recipe(config(tmp_path, preset="clip_cov"), tmp_path, num_prompts=2))
    absent = {finding.what: finding.note for finding in findings if finding.measured is None}
    assert absent.pop("gradient: of equal policies is REINFORCE's").startswith("the surrogate drops tokens")
    assert len(absent) == 3
    assert all("never cut" in note for note in absent.values())


def test_the_name_of_a_users_surrogate_excuses_no_other_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "_invariances", lambda *_: ())
    twice = "def clip_cov(log_ratio_T, advantage_T):\n    return -2 * log_ratio_T.exp() * advantage_T\n"
    (tmp_path / "mine.py").write_text(twice, encoding="utf-8")
    recipe = config(tmp_path, surrogate=f"{tmp_path / 'mine.py'}:clip_cov")
    findings = list(check_recipe(recipe, tmp_path, num_prompts=2))
    failed = [finding.what for finding in findings if not finding.passed]
    assert failed == ["gradient: of equal policies is REINFORCE's"]


def test_equal_policies_pass_where_the_ratio_is_to_the_sampler_and_with_a_likelihood_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(check, "_invariances", lambda *_: ())
    recipe = config(tmp_path, preset="dppo", likelihood_coef=0.5, likelihood_weights="token_mean")
    findings = list(check_recipe(recipe, tmp_path, num_prompts=2))
    assert [finding.what for finding in findings if not finding.passed] == []
    assert {"log-ratio of equal policies", "gradient: of equal policies is REINFORCE's"} <= {
        finding.what for finding in findings if finding.measured is not None
    }

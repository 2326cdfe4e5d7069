"""The real TRL, verl and verifiers, in an environment of their own, which `make test-peers` installs.

Our rewards run in each, and the losses of our preference stage equal those of TRL.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_runs import REPOSITORY, toy_config

from ansatz.config.schema import TrainSection
from ansatz.data.given_rows import FileRows
from ansatz.data.label_files import read_unpaired, with_mismatched
from ansatz.data.pair_files import read_pairs
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.preference import pair_samples
from ansatz.models.load import load_policy
from ansatz.models.tiny import build_tiny_model
from ansatz.objectives.build import build_objective
from ansatz.objectives.preference_objective import build_preference_objective
from ansatz.teachers.settings import ONLY, TeacherSettings
from ansatz.teachers.trainer import TaughtTrainer
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample

SCRIPTS = REPOSITORY / "tests" / "trainers"


def output_of(environment: str, script: str, *arguments: Path | str) -> Any:
    """The last line that the script prints in that environment, as JSON."""
    python = REPOSITORY / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{environment} is not installed; make test-peers")
    variables = {
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'packages' / 'verify'}",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [python, SCRIPTS / script, *arguments], env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_two_steps_of_trl_train_on_our_reward(tmp_path):
    texts = [f"Question: {number} + 1?\nAnswer:\n{number + 1}" for number in range(50)]
    build_tiny_model(tmp_path / "model", texts=texts, vocab_size=300, hidden_size=32, num_layers=2, num_heads=2)
    steps = output_of(".venv-peers", "trl_steps.py", tmp_path / "model", tmp_path / "out")
    # a random model never writes a box, so every response gets `wrong`, which is -1, and 0 by the package's reward
    means = [(row["reward"], row["rewards/ansatz_reward/mean"], row["rewards/ansatz_verify/mean"]) for row in steps]
    assert means == [(-1, -1, 0)] * 2


@pytest.mark.slow
def test_the_audit_names_a_bug_in_the_real_trl_and_accuses_no_run_without_one(tmp_path):
    script, cases = "../../benchmarks/audit/run.py", "ddof_0,kl_reversed,kl_subtracted,dapo"
    counts = output_of(".venv-peers", script, "--out", tmp_path / "audit.json", "--only", cases)
    assert counts == {"bugs": 2, "later bugs": 1, "named": 3, "clean": 1, "later clean": 0, "accused": 0}


DPO_CASES: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "sigmoid": ({"loss_type": "sigmoid"}, {"dpo": {}}),
    "likelihood": (
        {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.3]},
        {"dpo": {}, "likelihood": {"weight": 0.3}},
    ),
    "ipo": ({"loss_type": "ipo", "beta": 0.3}, {"ipo": {"beta": 0.3, "per_token": True}}),
    "sigmoid_norm": ({"loss_type": "sigmoid_norm", "beta": 2.0}, {"dpo_norm": {}}),
    "robust": ({"loss_type": "robust", "label_smoothing": 0.1}, {"robust": {}}),
    "hinge": ({"loss_type": "hinge"}, {"hinge": {}}),
    "exo": ({"loss_type": "exo_pair", "label_smoothing": 0.001}, {"exo": {}}),
    "nca": ({"loss_type": "nca_pair"}, {"nca": {}}),
    "bco": ({"loss_type": "bco_pair"}, {"bco": {"centered": False}}),
    "sppo": ({"loss_type": "sppo_hard", "beta": 0.5}, {"sppo": {"beta": 0.5}}),
    "aot": ({"loss_type": "aot"}, {"aot": {}}),
    "aot_unpaired": ({"loss_type": "aot_unpaired"}, {"aot_unpaired": {}}),
    "apo_zero": ({"loss_type": "apo_zero"}, {"apo_zero": {}}),
    "apo_down": ({"loss_type": "apo_down"}, {"apo_down": {}}),
    "discopop": ({"loss_type": "discopop"}, {"discopop": {}}),
}
"""By name: (settings of TRL's DPOConfig, the recipe's `preference.losses`)."""


@pytest.mark.slow
def test_the_losses_of_five_steps_agree_with_trl_s_dpo_trainer(tmp_path):
    rows = [
        {
            "prompt": f"{number} + {number % 7}?",
            "chosen": f"It is {number + number % 7}",
            "rejected": f"{'Perhaps ' * (number % 3)}it is {number + 9}",
        }
        for number in range(40)
    ]
    assert_agree_with_trl(tmp_path, rows, rows, DPO_CASES)


@pytest.mark.slow
def test_the_losses_of_five_steps_agree_with_trl_s_kto_trainer(tmp_path):
    """TRL gives a prompt the response before it in the batch, and we the one after it."""
    rows = [
        {
            "prompt": f"{number} + {number % 7}?",
            "completion": f"It is {number + number % 7}" if number % 3 else f"Perhaps it is {number + 9}",
            "label": bool(number % 3),
        }
        for number in range(40)
    ]
    backwards = [row for step in range(5) for row in reversed(rows[8 * step : 8 * step + 8])]
    settings = {"beta": 0.5, "desirable_weight": 0.8, "undesirable_weight": 1.5}
    cases = {"kto": ({}, {"kto": {}}), "weighted": (settings, {"kto": settings})}
    assert_agree_with_trl(tmp_path, rows, backwards, cases)


def assert_agree_with_trl(folder: Path, rows: list[dict[str, Any]], theirs: list[dict[str, Any]], cases: Any) -> None:
    """The losses of five steps on our rows, and of TRL on its own, are the same in each case."""
    template = folder / "question.txt"
    template.write_text("Question: {question}\nAnswer:\n")
    responses = ("chosen", "rejected", "completion")
    texts = [
        f"Question: {row['prompt']}\nAnswer:\n{' '.join(row[key] for key in responses if key in row)}" for row in rows
    ]
    build_tiny_model(folder / "model", texts=texts, vocab_size=300, hidden_size=32, num_layers=2, num_heads=2)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = [{**row, "prompt": f"Question: {row['prompt']}\nAnswer:\n"} for row in theirs]
    (folder / "shown.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shown))

    configs = json.dumps({name: settings for name, (settings, _) in cases.items()})
    found = output_of(".venv-peers", "trl_preference_steps.py", folder / "model", folder / "shown.jsonl", configs)
    for name, (_, losses) in cases.items():
        ours = five_losses(folder, template, losses)
        assert ours == pytest.approx(found[name], rel=1e-5, abs=1e-5), name


def five_losses(folder: Path, template: Path, losses: dict[str, dict[str, Any]]) -> list[float]:
    """The loss of each of five steps on 8 rows, as the stage `preference` makes their pairs."""
    policy = load_policy(str(folder / "model"))
    trainer = LocalTrainer(
        policy,
        build_preference_objective(losses),
        settings=TrainSection(optimizer={"name": "adamw", "betas": (0.9, 0.999)}, tokens_per_microbatch=128),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-3, warmup_steps=0, decay_steps=0, total_steps=5),
    )
    renderer = RunSources(toy_config(folder)).build_renderer(policy, template=str(template))
    rows, unpaired = FileRows(path=str(folder / "rows.jsonl")), "kto" in losses
    problems = read_unpaired(rows) if unpaired else read_pairs(rows)
    steps = [problems[start : start + 8] for start in range(0, 40, 8)]
    batches = (
        [pair_samples(with_mismatched(each), renderer, unpaired=True) for each in steps]
        if unpaired
        else [pair_samples(each, renderer) for each in steps]
    )
    reports = [trainer.update(trainer.batch(samples), step=step) for step, samples in enumerate(batches, start=1)]
    return [report.metrics["train/loss"] for report in reports]


DISTILLATION_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reverse": ({"beta": 1.0}, {"preset": "gkd", "kl": "full"}),
    "forward": ({"beta": 0.0}, {"preset": "gkd", "kl": "full_reverse"}),
    "jensen_shannon": ({"beta": 0.3, "temperature": 0.8}, {"preset": "gkd", "kl": {"mixing": 0.3}}),
}
"""By name: (settings of TRL's DistillationConfig, the recipe's `algorithm`)."""


@pytest.mark.slow
def test_the_losses_of_three_steps_agree_with_trl_s_distillation_trainer(tmp_path):
    texts = [f"Question: {number} + {number % 7}?\nAnswer:\n{number + number % 7}" for number in range(40)]
    for name, seed in (("model", 0), ("teacher", 1)):
        build_tiny_model(tmp_path / name, texts=texts, vocab_size=300, hidden_size=32, num_layers=2, seed=seed)
    configs = json.dumps({name: settings for name, (settings, _) in DISTILLATION_CASES.items()})
    folders = tmp_path / "model", tmp_path / "teacher"
    found = output_of(".venv-peers", "trl_distillation_steps.py", *folders, configs)
    for name, (settings, algorithm) in DISTILLATION_CASES.items():
        trainer = TaughtTrainer(
            load_policy(str(folders[0])),
            build_objective(algorithm),
            teachers={ONLY: TeacherSettings(path="teacher")},
            loaded={ONLY: load_policy(str(folders[1]))},
            settings=TrainSection(optimizer={"name": "adamw", "betas": (0.9, 0.999)}, tokens_per_microbatch=128),
            dtype=torch.float32,
            schedule=Schedule(lr=1e-3, warmup_steps=0, decay_steps=0, total_steps=3),
            temperature=settings.get("temperature", 1.0),
        )
        for number, step in enumerate(found[name], start=1):
            samples = [
                TrainSample(prompt_ids=ids, token_ids=said, behavior_logps=[0.0] * len(said), group=group, reward=0.0)
                for group, (ids, said) in enumerate(zip(step["prompts"], step["completions"], strict=True))
            ]
            report = trainer.update(trainer.batch(samples), step=number)
            assert report.metrics["train/loss"] == pytest.approx(step["loss"], rel=1e-5, abs=1e-6), (name, number)


@pytest.mark.slow
def test_a_task_of_verifiers_scores_with_the_weight_of_its_configuration():
    assert output_of(".venv-peers", "verifiers_scores.py") == [0.5, 0.0]


@pytest.mark.slow
def test_the_reward_manager_of_verl_calls_our_function_with_its_options():
    assert output_of(".venv-peers", "verl_scores.py") == [1.0, 0.0]

"""Options of supervised fine-tuning: passes over the data, weights, and what it measures on held-out solutions."""

from __future__ import annotations

import json
import random

import pytest
import torch
from toy_runs import toy, toy_config

from ansatz.config.load import check
from ansatz.config.stages.core import SftSection
from ansatz.data.store import read_problems
from ansatz.errors import DataError
from ansatz.evaluate.evaluate import Evaluator
from ansatz.loop import context
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.sft import SftStage, objective_of
from ansatz.models.load import load_policy
from ansatz.track.jsonl import read_jsonl
from ansatz.train.checkpoint import STATE_FILE, latest

SHORT = {
    "train": {"steps": 0},
    "evaluate": {"problems": 5, "samples_per_prompt": 2, "k": 2},
    "rollout": {"max_response_tokens": 60},
    "data": {"sft": {"count": 20}},
    "save": {"every": 2, "tensorboard": False},
}


@pytest.mark.parametrize(("epochs", "batch_size", "steps"), [(0, 64, 350), (1, 64, 4), (2, 64, 7), (3, 200, 3)])
def test_epochs_are_as_many_steps_as_show_every_demonstration_that_often(epochs, batch_size, steps):
    assert SftSection(epochs=epochs, batch_size=batch_size).with_steps(200).steps == steps


def test_a_run_with_epochs_measures_held_out_loss_and_accuracy_as_the_model_gives_them(tmp_path):
    config = toy_config(tmp_path, {**SHORT, "sft": {"epochs": 2, "batch_size": 8, "heldout_every": 2}})
    folder = run_pipeline(config) / "sft"
    rows = read_jsonl(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]  # 2 x 20 demonstrations / 8
    assert [row["step"] for row in rows if "sft/heldout_loss" in row] == [2, 4, 5]
    policy = load_policy(folder / "checkpoints" / "step-000005")
    loss, hits, tokens = 0.0, 0, 0
    renderer = RunSources(config).renderer(policy)
    for problem in read_problems(config.run_dir / "problems" / "heldout.jsonl")[:5]:
        demonstration = renderer.demonstration(problem)
        prompt, response = demonstration.prompt.token_ids, demonstration.response_ids
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].double()
        target = torch.tensor(response)
        loss -= float(logits.log_softmax(-1).gather(1, target[:, None]).sum())
        hits += int((logits.argmax(-1) == target).sum())
        tokens += len(target)
    assert rows[-1]["sft/heldout_loss"] == pytest.approx(loss / tokens, rel=1e-4)
    assert rows[-1]["sft/heldout_accuracy"] == pytest.approx(hits / tokens)
    assert tokens > 50


def test_global_random_generators_start_from_the_seed_of_the_recipe(tmp_path):
    """A user's reward may draw from them. Without a seed, two runs of one recipe would store other states."""

    def stored(name: str, seed: int) -> object:
        random.seed()  # whatever the process did before
        run = run_pipeline(toy_config(tmp_path / name, {**SHORT, "seed": seed, "sft": {"steps": 2}}))
        path = latest(run / "sft")
        assert path is not None
        return json.loads((path / STATE_FILE).read_text())["random"]

    first = stored("first", 0)
    assert stored("second", 0) == first
    assert stored("another seed", 1) != first


def test_weights_say_what_counts_the_same(tmp_path):
    segment_T, mask_T = torch.tensor([0, 0, 0, 1]), torch.ones(4, dtype=torch.bool)
    for name, expected in (("token", [1 / 4] * 4), ("sequence", [1 / 6] * 3 + [1 / 2])):
        config = toy_config(tmp_path, {"sft": {"weights": name}})
        weight_T = objective_of(config).token_weights(segment_T, mask_T, num_rollouts=2)
        assert weight_T.tolist() == pytest.approx(expected)
        assert f"every {'token' if name == 'token' else 'response'} is imitated alike" in SftStage().explain(config)


def test_held_out_problems_without_solutions_are_refused_before_training(tmp_path):
    file = tmp_path / "bare.jsonl"
    file.write_text(
        "".join(json.dumps({"question": f"What is {n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(5))
    )
    recipe = toy(tmp_path, {**SHORT, "sft": {"steps": 2, "heldout_every": 1}})
    recipe["data"]["heldout"] = {"source": "jsonl", "split": "heldout", "path": str(file)}
    with pytest.raises(DataError, match=r"none of the 5 problems of data\.heldout has a worked solution"):
        run_pipeline(check(recipe))


def test_evaluations_have_a_prompt_of_their_own(tmp_path, monkeypatch):
    shots = [{"question": f"{n} + {n}?", "solution": f"It is {2 * n}."} for n in range(3)]
    (tmp_path / "shots.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shots))
    template, texts = {"name": "none", "shots": str(tmp_path / "shots.jsonl"), "num_shots": 2}, list[str]()

    def evaluator(**settings):
        texts.extend(prompt.text for prompt in settings["prompts"])
        return Evaluator(**settings)

    monkeypatch.setattr(context, "Evaluator", evaluator)
    changes = {
        "sft": {"steps": 1},
        "evaluate": {**SHORT["evaluate"], "template": template},
        "data": {"sft": {"count": 9}},
    }
    changes["rollout"] = {"max_prompt_tokens": 400, "max_response_tokens": 60}
    run = run_pipeline(toy_config(tmp_path, {**SHORT, **changes}))
    assert texts
    assert all(text.startswith("0 + 0?It is 0.\n\n1 + 1?It is 2.\n\n") for text in texts)
    shown = (run / "rendered.txt").read_text()
    assert shown.count("1 + 1?It is 2.") == 1  # training keeps its own

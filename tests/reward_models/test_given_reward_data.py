"""Reward models of given pairs and labels, in whole runs: the documented recipe, and losses from the files by hand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from made_up import scored
from toy_runs import REPOSITORY, toy_config
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from ansatz.cli.explain import objectives_of_stages
from ansatz.config import load_recipe
from ansatz.config.schema import Config
from ansatz.errors import ConfigError, DataError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.start_checks import check_recipe
from ansatz.rewards.process import process
from ansatz.track.jsonl import read_jsonl

PAGE = (REPOSITORY / "docs" / "reward_models.md").read_text(encoding="utf-8")
PAIRS = [
    {"prompt": f"What is {n} + 1?", "chosen": f"{n}+1={n + 1}", "rejected": f"{n}+1={n + 2}\nor so"} for n in range(4)
]


def documented(folder: Path, **section: Any) -> Config:
    """The recipe of the page, with its rows. section: other values of the section reward_model."""
    rows = next(block for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if "completions" in block)
    recipe = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "given_steps" in block)
    (folder / "steps.jsonl").write_text(rows, encoding="utf-8")
    changed = yaml.safe_load(recipe) | {"out": "runs", "save": {"every": 7, "keep": 99, "tensorboard": False}}
    changed["reward_model"] |= section
    changed["model"]["dtype"] = "float32"  # as transformers computes the losses by hand
    (folder / "given.yaml").write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")
    return load_recipe(folder / "given.yaml")


def losses(run: Path) -> dict[int, float]:
    return {row["step"]: row["train/loss"] for row in read_jsonl(run / "reward_model" / "metrics.jsonl")}


def softplus(value: float) -> float:
    """-log sigmoid(-value)."""
    return math.log1p(math.exp(-abs(value))) + max(value, 0.0)


def given_prompts(run: Path) -> list[str]:
    return [row["prompt"] for row in read_jsonl(run / "reward_model" / "labelled.jsonl")]


@pytest.fixture
def in_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_documented_recipe_learns_the_labels_of_its_steps(in_folder):
    run = run_pipeline(documented(in_folder))
    rows = read_jsonl(run / "reward_model" / "metrics.jsonl")
    assert rows[0]["train/loss"] == pytest.approx(math.log(2), rel=1e-5)  # every first score is 0
    assert rows[-1]["reward_model/heldout_accuracy"] == 1.0
    assert rows[-1]["reward_model/heldout_first_error_f1"] == 1.0
    assert not (run / "reward_model" / "responses").exists()
    assert not (run / "reward_model" / "heldout" / "responses").exists()
    folder = run / "reward_model" / "checkpoints" / "step-000060"
    assert json.loads((folder / "config.json").read_text())["step_end"] == "blank_line"
    by_hand = cross_entropy_of_steps(folder.with_name("step-000007"), read_jsonl(in_folder / "steps.jsonl"), run)
    assert losses(run)[8] == pytest.approx(by_hand, rel=1e-4)


def test_the_documented_recipe_learns_with_adapters_too(in_folder):
    config = documented(in_folder, extra_layers=0, lr=3e-3)  # with 1e-2, rounding decides what is learned
    config = config.model_copy(update={"model": config.model.model_copy(update={"lora": {"rank": 4}})})
    assert "trained      adapters and the score head" in objectives_of_stages(config)
    run = run_pipeline(config)
    rows = read_jsonl(run / "reward_model" / "metrics.jsonl")
    assert rows[-1]["reward_model/heldout_accuracy"] == 1.0
    folder = run / "reward_model" / "checkpoints" / "step-000007"
    by_hand = cross_entropy_of_steps(folder, read_jsonl(in_folder / "steps.jsonl"), run)  # of the merged model
    assert losses(run)[8] == pytest.approx(by_hand, rel=1e-4)
    assert json.loads((folder / "adapter" / "adapter_config.json").read_text())["modules_to_save"] == ["score"]


def cross_entropy_of_steps(folder: Path, rows: list[dict[str, Any]], run: Path) -> float:
    """The mean over all tokens of steps, one forward pass for each response, the sums in float64."""
    model, tokenizer = AutoModelForTokenClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    terms = list[float]()
    for row, prompt in zip(rows, given_prompts(run), strict=True):
        assert row["prompt"] in prompt
        text = prompt + "\n\n".join(row["completions"])
        label_of_character = [
            float(label) for step, label in zip(row["completions"], row["labels"], strict=True) for _ in step + "\n\n"
        ]
        encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        spans = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            scores = model(**encoded).logits[0, :, 0].double().tolist()
        for score, (_, end) in zip(scores, spans, strict=True):
            if end > len(prompt):
                label = label_of_character[end - len(prompt) - 1]
                terms.append(label * softplus(-score) + (1 - label) * softplus(score))
    return sum(terms) / len(terms)


def write_pairs(folder: Path, source: str) -> dict[str, Any]:
    if source == "file":
        path = folder / "pairs.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in PAIRS), encoding="utf-8")
        return {"source": "file", "path": str(path)}
    datasets = pytest.importorskip("datasets", reason="the extra datasets is not installed")
    datasets.DatasetDict({"prefs": datasets.Dataset.from_list(PAIRS)}).save_to_disk(str(folder / "pairs"))
    return {"source": "hub", "dataset": str(folder / "pairs"), "split": "prefs"}


@pytest.mark.parametrize("source", ["file", "hub"])
def test_the_loss_of_given_pairs_is_that_of_bradley_terry_by_hand(in_folder, source):
    given = write_pairs(in_folder, source)
    section = {"kind": "bradley_terry", "step_end": "line", "data": given, "heldout_data": given, "steps": 8}
    config = documented(in_folder, **section)
    place = f"{given['dataset']} (prefs)" if source == "hub" else given["path"]
    assert f"responses    of {place}, with their labels" in objectives_of_stages(config)
    run = run_pipeline(config)
    folder = run / "reward_model" / "checkpoints" / "step-000007"
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

    def score(text: str) -> float:
        with torch.no_grad():
            return float(model(**tokenizer(text, return_tensors="pt")).logits[0, 0])

    prompts = given_prompts(run)
    gaps = [score(p + row["chosen"]) - score(p + row["rejected"]) for p, row in zip(prompts, PAIRS, strict=True)]
    assert losses(run)[8] == pytest.approx(sum(softplus(-gap) for gap in gaps) / 4, rel=1e-4)
    assert losses(run)[8] != pytest.approx(math.log(2), rel=0.01)
    row = read_jsonl(run / "reward_model" / "metrics.jsonl")[-1]
    assert row["reward_model/heldout_accuracy"] == row["reward_model/train_accuracy"] == 1.0


def test_responses_with_one_label_are_learned_as_a_class(in_folder):
    rows = [
        {"prompt": row["prompt"], "completion": row[name], "label": name == "chosen"}
        for row in PAIRS
        for name in ("chosen", "rejected")
    ]
    (in_folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"source": "file", "path": "labels.jsonl"}
    section = {
        "kind": "correctness",
        "step_end": "line",
        "data": given,
        "heldout_data": given,
        "batch_size": 8,
        "steps": 30,
    }
    run = run_pipeline(documented(in_folder, **section))
    assert read_jsonl(run / "reward_model" / "metrics.jsonl")[-1]["reward_model/heldout_accuracy"] == 1.0


def test_a_model_divides_responses_where_it_was_trained_to(in_folder):
    config = documented(in_folder, step_end={"marker": "="}, steps=1)
    rows = [{"prompt": "?", "completions": ["1+1", "2"], "labels": [True, False]}] * 4
    (in_folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = str(run_pipeline(config) / "reward_model" / "checkpoints" / "step-000001")
    rollout = scored(text="1+1=\n2=3").rollout
    assert [end for end, _ in process([rollout], model=folder)[0].steps] == [4, 7, 8]
    assert [end for end, _ in process([rollout], model=folder, step_end="line")[0].steps] == [5, 8]


def test_rows_that_cannot_be_used_are_refused_at_the_start_or_dropped(in_folder):
    config = documented(in_folder, steps=1)
    with (in_folder / "steps.jsonl").open("a") as file:
        file.write('{"prompt": "?", "completions": ["a\\n\\nb"], "labels": [true]}\n')
        file.write(json.dumps({"prompt": "?", "completions": ["long " * 100], "labels": [True]}) + "\n")
    with pytest.raises(DataError, match=r"reward_model\.data: 1 of 6 rows cannot be used.*not those of step_end"):
        run_pipeline(config)
    assert not (in_folder / "runs").exists()
    run = run_pipeline(documented_again(config, unfit="drop"))
    assert len(given_prompts(run)) == 4
    assert len(json.loads((run / "problems" / "unfit.json").read_text())["reward_model.data"]) == 2


def documented_again(config: Config, *, unfit: str) -> Config:
    return config.model_copy(update={"data": config.data.model_copy(update={"unfit": unfit})})


def test_a_preference_stage_reads_pairs_of_a_data_set(in_folder):
    preference = {"pairs": write_pairs(in_folder, "hub"), "losses": {"simpo": {}}, "steps": 2, "batch_size": 4}
    changes = {"stages": ["preference"], "preference": preference, "evaluate": {"problems": 2}}
    run = run_pipeline(toy_config(in_folder, changes))
    assert read_jsonl(run / "preference" / "metrics.jsonl")[0]["preference/pairs"] == 4


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"labels": "hard"}, "labels has no effect with data, whose labels are given"),
        ({"step_rollouts": 4}, "step_rollouts has no effect with data"),
        ({"kind": "correctness"}, "step_end has no effect with kind: correctness"),
        ({"data": None}, "with labels: exact, which are of lines"),
        ({"step_end": {"marker": " "}}, "expected {marker: TEXT} with the text that ends a step"),
        ({"step_end": {"mark": "="}}, "reward_model.step_end"),
        ({"step_end": "lines"}, "reward_model.step_end"),
        ({"slips": {"source": "word_problems", "split": "heldout"}}, "with slips, which are in lines"),
        ({"data": {"source": "hub"}}, "reward_model.data.dataset is missing"),
        ({"heldout_data": {"source": "file", "path": "a", "min_gap": 1}}, "heldout_data.min_gap = 1 has no effect"),
    ],
    ids=str,
)
def test_a_section_without_effect_is_refused_in_a_sentence(in_folder, section, sentence):
    with pytest.raises(ConfigError) as error:
        check_recipe(documented(in_folder, **section))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)

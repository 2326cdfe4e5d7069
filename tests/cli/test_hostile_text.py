"""Escape sequences, bidirectional overrides and markup in data, levels, responses and paths: shown, never obeyed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from toy_runs import toy

from ansatz.config.load import check as checked
from ansatz.config.load import dump

SCREEN = "\x1b[2J\x1b[8m"
SHOWN = "\\x1b[2J\\x1b[8m"
BIDI = "\u202e"
MARKUP = "[/bold] :warning:"


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "hostile.jsonl"
    rows = [
        {
            "id": f"{SCREEN}{index}",
            "question": f"{SCREEN}{BIDI}{MARKUP} {index} pens?\rNone.",
            "answer": str(index),
            "level": f"{SCREEN}{MARKUP}{index % 2}",
            "subject": f"{SCREEN}algebra",
        }
        for index in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def assert_harmless(*texts: str) -> None:
    for text in texts:
        assert not any(character in text for character in ("\x1b", "\r", "\x9b", BIDI))


def test_problems_are_shown_with_their_control_characters(ansatz, file):
    code, out, err = ansatz("data", "peek", file)
    assert code == 0
    assert_harmless(out, err)
    assert f"question: {SHOWN}\\u202e{MARKUP} 0 pens?\\x0dNone." in out
    assert f"{SHOWN}{MARKUP}0 3" in out  # a level


def test_rows_that_cannot_be_used_are_shown_with_their_control_characters(ansatz, file):
    with file.open("a") as rows:
        rows.write(json.dumps({"question": "?", "answer": SCREEN + "\\frac{"}) + "\n")
    code, out, err = ansatz("data", "check", file)
    assert code == 1
    assert_harmless(out, err)
    assert SHOWN in out
    (file.parent / "broken.jsonl").write_text(json.dumps({SCREEN: "x"}) + "\n")
    code, out, err = ansatz("data", "dedup", file.parent / "broken.jsonl", "--out", file.parent / "out.jsonl")
    assert code == 2
    assert_harmless(out, err)


def test_evaluations_and_their_comparison_show_levels_questions_and_folders_as_they_are(ansatz, model, file, tmp_path):
    how = ("--suite", file, "--max-response-tokens", 4, "--samples-per-prompt", 2, "--threads", 1)
    folders = [tmp_path / f"{MARKUP}{seed}" for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        code, out, err = ansatz("eval", model, *how, "--seed", seed, "--out", folder)
        assert (code, err) == (0, "")
        assert_harmless(out)
        assert f"{SHOWN}{MARKUP}0: " in out
        assert f"Written: {folder}\n" in out
    rollouts = folders[1] / "rollouts.jsonl"
    right = rollouts.read_text().replace('"correct": false', '"correct": true', 1)
    rollouts.write_text(right)
    code, out, err = ansatz("compare", *folders)
    assert (code, err) == (0, "")
    assert_harmless(out)
    assert "\\u202e" in out
    assert MARKUP in out


def test_a_run_in_a_folder_with_markup_is_trained_to_its_last_line(ansatz, file, tmp_path):
    recipe = toy(tmp_path / "[/bold]", {"sft": {"steps": 2}, "train": {"steps": 1}})
    recipe["data"]["heldout"] = {"source": "jsonl", "path": str(file), "split": "heldout"}
    path = tmp_path / "toy.yaml"
    path.write_text(dump(checked(recipe)))
    code, out, err = ansatz("train", path)
    assert (code, err) == (0, "")
    assert_harmless(out)
    folder = tmp_path / "[/bold]" / "runs" / "toy"
    assert f"Report to open: {folder / 'report.html'}\n" in out
    assert f"Model: {folder / 'rl' / 'checkpoints' / 'step-000001'}\n" in out
    assert SHOWN in out  # the levels of the results
    page = (folder / "report.html").read_text()
    assert_harmless(page)
    assert SHOWN in page


def test_an_error_shows_the_control_characters_of_the_value_that_it_names(ansatz, tmp_path):
    code, _, err = ansatz("compare", tmp_path / SCREEN)
    assert code == 2
    assert f"{tmp_path}/{SHOWN} alone: a comparison needs two" in err
    assert_harmless(err)


def test_a_recipe_is_printed_with_its_control_characters(ansatz, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"# {SCREEN}{BIDI}\nname: x\n")
    code, out, _ = ansatz("recipes", recipe)
    assert code == 0
    assert_harmless(out)
    assert SHOWN in out


def test_the_arms_of_a_sweep_are_shown_and_not_obeyed(tmp_path: Path, ansatz):
    recipe = tmp_path / "toy.yaml"
    recipe.write_text(yaml.safe_dump(toy(tmp_path)))
    sweep = {
        "recipe": str(recipe),
        "claim": {"text": "None.", "sources": [{"document": "nobody", "section": 1}]},
        "blocks": {"seeds": [0]},
        "arms": {f"{SCREEN}{BIDI}a": {"train.lr": 1e-3}, "b": {"train.lr": 2e-3}},
        "outcome": {"name": "exact_pass@k"},
        "rule": {"difference": [f"{SCREEN}{BIDI}a", "b"]},
        "guards": {},
    }
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(sweep))
    code, out, err = ansatz("sweep", file, "--dry-run", "--rows", tmp_path / "rows", "--out", tmp_path / "out")
    assert code == 0, err
    assert_harmless(out, err)
    assert SHOWN in out

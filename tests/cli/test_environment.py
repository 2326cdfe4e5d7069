"""`ansatz eval`, `sample` and `ask` with an environment, on a random model: its own option, and that of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.cli.opened_model import environment_of
from ansatz.config.load import dump
from ansatz.errors import ConfigError
from ansatz.loop.run_record import record_of

ECHO = f"{Path(__file__).parents[1] / 'environments' / 'echo.py'}:Echo"
SECTION = f"{{name: '{ECHO}', turns: 3}}"
HOW = ("--threads", 1, "--template", "tiny", "--samples-per-prompt", 4, "--max-response-tokens", 40)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"question": f"Ann has {n} pens and {n} cups. How many?", "answer": str(2 * n)} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def checkpoint(model, tmp_path):
    """The model as a checkpoint of a run whose recipe has an environment."""
    folder = tmp_path / "run" / "rl" / "checkpoints" / "step-000003"
    shutil.copytree(model, folder)
    config = toy_config(tmp_path, {"environment": {"name": ECHO, "turns": 2}, "data": {"template": "tiny"}})
    (tmp_path / "run" / "config.yaml").write_text(dump(config))
    record_of(config).write(tmp_path / "run")
    return folder


def rows_of(folder):
    return [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]


def num_observed(rows):
    return sum("<" in row["response"] and ">" in row["response"] for row in rows)


def test_sample_and_eval_interact_with_the_environment_of_the_option(ansatz, model, file, tmp_path):
    plain, out, graded = (tmp_path / name for name in ("plain", "out", "graded"))
    assert ansatz("sample", model, "--data", file, "--out", plain, *HOW)[0] == 0
    code, _, err = ansatz("sample", model, "--data", file, "--out", out, *HOW, "--environment", SECTION)
    assert (code, err) == (0, "")
    assert num_observed(rows_of(out)) > num_observed(rows_of(plain))
    assert json.loads((out / "settings.json").read_text())["environment"] == {"name": ECHO, "turns": 3}
    assert "environment" not in json.loads((plain / "settings.json").read_text())
    code, _, err = ansatz("sample", model, "--data", file, "--out", out, *HOW)
    assert code == 2
    assert "holds responses with environment = " in err

    evaluation = ("eval", model, "--suite", file, "--out", graded, *HOW, "--rewards", "environment")
    code, _, err = ansatz(*evaluation, "--environment", SECTION)
    assert (code, err) == (0, "")
    correct = [row["verdicts"]["reward"]["correct"] for row in rows_of(graded)]
    assert 0 < sum(correct) < len(correct)
    assert [row["response"] for row in rows_of(graded)] != [row["response"] for row in rows_of(plain)]
    before = (graded / "rollouts.jsonl").read_bytes()
    (graded / "rollouts.jsonl").write_bytes(before[: len(before) // 2])
    assert ansatz(*evaluation, "--environment", SECTION)[0] == 0
    assert (graded / "rollouts.jsonl").read_bytes() == before


def test_the_opening_of_an_environment_is_in_the_prompts_of_every_command(ansatz, model, file, tmp_path):
    section = f"{{name: '{ECHO.replace('Echo', 'Greeting')}', turns: 3}}"
    plain, out, graded = (tmp_path / name for name in ("plain", "out", "graded"))
    assert ansatz("sample", model, "--data", file, "--out", plain, *HOW, "--environment", SECTION)[0] == 0
    assert ansatz("sample", model, "--data", file, "--out", out, *HOW, "--environment", section)[0] == 0
    assert ansatz("eval", model, "--suite", file, "--out", graded, *HOW, "--environment", section)[0] == 0
    for folder in (out, graded):
        # With equal noise, some responses are equal although their prompts differ.
        assert [row["response"] for row in rows_of(folder)] != [row["response"] for row in rows_of(plain)]
        for row, other in zip(rows_of(folder), rows_of(plain), strict=True):
            assert row["question"] == f"{other['question']}\nRule {row['id']}: be brief."
    answers = [ansatz("ask", model, "What is 2 + 2?", *HOW, "--environment", how)[1] for how in (section, SECTION)]
    assert answers[0] != answers[1]
    spelled_out = ansatz("ask", model, "What is 2 + 2?\nRule asked: be brief.", *HOW, "--environment", SECTION)[1]
    assert answers[0] == spelled_out


def test_ask_shows_the_observations_and_the_reward(ansatz, model):
    code, out, err = ansatz("ask", model, "What is 2 + 2?", *HOW, "--environment", SECTION)
    assert (code, err) == (0, "")
    assert out.count("the environment gives ") == 4
    code, out, _ = ansatz("ask", model, "What is 2 + 2?", *HOW)
    assert "the environment gives" not in out


def test_a_checkpoint_interacts_with_the_environment_of_its_run(ansatz, checkpoint, file, tmp_path):
    for verb, arguments in {
        "sample": ("--data", file, "--out", tmp_path / "sampled"),
        "eval": ("--suite", file, "--out", tmp_path / "evaluated"),
    }.items():
        code, out, err = ansatz(verb, checkpoint, *arguments, *HOW)
        assert (code, err) == (0, "")
        assert f"environment: {ECHO} (as in the run run)" in out
        settings = json.loads((arguments[-1] / "settings.json").read_text())
        assert settings["environment"] == {"name": ECHO, "turns": 2}
        assert num_observed(rows_of(arguments[-1])) > 0
    code, out, _ = ansatz("ask", checkpoint, "What is 2 + 2?", *HOW)
    assert (code, out.count("the environment gives ")) == (0, 4)
    code, out, _ = ansatz("ask", checkpoint, "What is 2 + 2?", *HOW, "--environment", "none")
    assert (code, out.count("environment")) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--environment", "calculater"), "environment 'calculater' is unknown. Did you mean 'calculator'?"),
        (("--environment", "{name: calculator, turn: 3}"), "environment 'calculator' has no setting 'turn'"),
        (("--environment", "{name: calculator"), "the value of --environment is not valid YAML"),
        (("--rewards", "environment"), "no environment is set"),
        (("--rewards", "environment", "--environment", "calculator"), "environment 'calculator' gives no reward"),
    ],
)
def test_a_wrong_environment_is_one_sentence_and_writes_nothing(ansatz, model, file, tmp_path, arguments, sentence):
    code, _, err = ansatz("eval", model, "--suite", file, "--out", tmp_path / "out", *HOW, *arguments)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out" / "settings.json").exists()


def test_the_value_of_the_option(checkpoint, model, tmp_path):
    assert environment_of("calculator", model) == {"name": "calculator"}
    assert environment_of("{name: calculator, turns: 2}", model) == {"name": "calculator", "turns": 2}
    assert environment_of("auto", model) is None
    assert environment_of("auto", checkpoint) == {"name": ECHO, "turns": 2}
    assert environment_of("none", checkpoint) is None
    (tmp_path / "run" / "config.yaml").write_text("train: {stepz: 3}")
    with pytest.raises(ConfigError, match=r"whose environment cannot be read: .*stepz.* Give --environment"):
        environment_of("auto", checkpoint)


BOXES = f"{{name: '{Path(__file__).parents[1] / 'environments' / 'halves.py'}:Boxes', turns: 2}}"


def test_a_box_that_a_tool_printed_is_not_the_answer(ansatz, model, tmp_path):
    how = ("--threads", 1, "--template", "tiny", "--samples-per-prompt", 4, "--max-response-tokens", 200)
    how += ("--environment", BOXES)
    code, out, err = ansatz("ask", model, "What is 97530 + 1?", "--answer", "97531", *how)
    assert (code, err) == (0, "")
    assert "\\boxed{97531}" in out
    assert "0 of 4 correct" in out
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "What is 97530 + 1?", "answer": "97531"}) + "\n")
    folder = tmp_path / "out"
    code, _, err = ansatz("eval", model, "--suite", tmp_path / "rows.jsonl", "--out", folder, *how)
    assert (code, err) == (0, "")
    rows = rows_of(folder)
    assert any("\\boxed{97531}" in row["response"] for row in rows)
    correct = [row for row in rows for verdict in row["verdicts"].values() if verdict["correct"]]
    assert correct == []
    assert not any("boxed" in row.get("said", "") for row in rows)
    scored = tmp_path / "scored.jsonl"
    for mode in ("strict", "anchored", "last_number"):
        assert ansatz("score", folder / "rollouts.jsonl", "--mode", mode, "--out", scored)[0] == 0
        assert not any(json.loads(line)["verdict"]["correct"] for line in scored.read_text().splitlines())

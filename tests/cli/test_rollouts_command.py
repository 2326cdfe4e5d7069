"""`ansatz rollouts`: what is printed and written."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansatz_verify import verify
from made_up import NASTY, make_pipeline, scored, stored_group

from ansatz.track.notes import add_note, notes_path
from ansatz.track.tracker import Tracker
from ansatz.types import Reason


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_pipeline(tmp_path_factory.mktemp("runs") / "run", sft_steps=2, rl_steps=3)
    nasty = stored_group(scored(text=f"\x1b[2J{NASTY}"), scored(sample=1, reward=0.0))
    Tracker(folder / "rl", console=None, tensorboard=False, total_steps=4).samples(4, [nasty])
    return folder


@pytest.fixture(autouse=True, scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the user's data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield Path(os.environ["XDG_DATA_HOME"])


def rollouts(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ansatz", "rollouts", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_responses_that_a_filter_selects_are_printed_and_counted(run: Path):
    done = rollouts(run, "--where", "correct", "--sort", "-step", "--limit", 3)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["id", "verdict", "reward", "tokens", "answer", "gold", "response"]
    assert lines[1].startswith("rl/4/0/0")
    assert len(lines) == 5
    assert "responses, 3 shown" in lines[-1]


def test_control_characters_of_a_response_are_shown_and_not_obeyed(run: Path):
    done = rollouts(run, "--where", "step = 4")
    assert "\x1b" not in done.stdout
    assert r"\x1b[2J</script>" in done.stdout


def test_files_hold_every_selected_response(run: Path, tmp_path: Path):
    names = [tmp_path / f"out.{ending}" for ending in ("csv", "jsonl", "html")]
    done = rollouts(run, "--where", "step = 4", "--csv", names[0], "--jsonl", names[1], "--html", names[2])
    assert done.stdout.strip().startswith("2 of ")
    assert "shown" not in rollouts(run, "--limit", 1, "--csv", names[0]).stdout
    rollouts(run, "--where", "step = 4", "--csv", names[0])
    table = list(csv.DictReader(names[0].open()))
    rows = [json.loads(line) for line in names[1].read_text().splitlines()]
    assert [row["id"] for row in table] == [row["id"] for row in rows] == ["rl/4/0/0", "rl/4/0/1"]
    assert rows[0]["parts.accuracy"] == 1.0
    assert rows[0]["text"] == f"\x1b[2J{NASTY}"
    page = names[2].read_text()
    assert "<img" not in page
    assert page.count("<article") == 2


def test_a_group_brings_its_other_responses(run: Path):
    assert rollouts(run, "--where", "step = 4 and reward = 0").stdout.count("rl/4/0/") == 1
    assert rollouts(run, "--where", "step = 4 and reward = 0", "--group").stdout.count("rl/4/0/") == 2


def test_other_asks_the_verifier_in_another_mode(run: Path):
    done = rollouts(run, "--where", "step = 4 and other(last_number)")
    assert "rl/4/0/1" in done.stdout


def test_a_filter_that_is_not_understood_is_one_sentence(run: Path):
    done = rollouts(run, "--where", "trunctaed")
    assert done.returncode == 2
    assert "did you mean 'truncated'" in done.stderr
    assert "Traceback" not in done.stderr
    assert rollouts(run, "--where", "parts.accuracy = 1", "--sort=-parts.accuracy").returncode == 0
    for arguments in (("--where", "parts.units < 1"), ("--sort=-parts.units",)):
        assert "no response has the reward 'units'; the rewards are accuracy" in rollouts(run, *arguments).stderr


def test_no_torch_is_imported(run: Path):
    code = (
        "import sys; sys.argv = ['ansatz', 'rollouts', sys.argv[1], '--where', 'correct']\n"
        "from ansatz.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(run)], check=True, capture_output=True)


def label(run: Path, rollout: str, *labels: str, text: str = "") -> None:
    for each in labels:
        add_note(notes_path(run), {"rollout": rollout, "label": each, "text": text})


def test_labels_are_a_filter_and_a_column(tmp_path: Path):
    run = make_pipeline(tmp_path / "run", sft_steps=1, rl_steps=2)
    label(run, "rl/1/0/0", "hack", "odd")
    label(run, "rl/2/1/1", "hack")
    with notes_path(run).open("a") as file:
        file.write('{"rollout": "rl/1/')
    done = rollouts(run, "--where", "label = hack and not label = odd")
    assert done.stdout.splitlines()[1].startswith("rl/2/1/1 ")
    assert done.stdout.splitlines()[-1].startswith("1 of ")
    assert f"{notes_path(run)}: line 4 cannot be read as a note and is left out" in done.stderr
    rollouts(run, "--where", "label in (hack, odd)", "--jsonl", tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["id"], row["label"]) for row in rows] == [("rl/1/0/0", "hack odd"), ("rl/2/1/1", "hack")]


def test_judged_responses_become_cases_that_the_corpus_of_the_verifier_reads(tmp_path: Path):
    """Texts as they were graded, without what a tool answered, in the mode of the recipe."""
    run = make_pipeline(tmp_path / "run", sft_steps=1, rl_steps=1)
    (run / "config.yaml").write_text("rewards: {math_answer: {mode: anchored}}\n")
    answered = scored(sample=3, text="It is [tool: 99] 12.\x1b")
    answered = replace(answered, rollout=replace(answered.rollout, observations=((6, 16),)))
    right, wrong = scored(text="the answer is 12", reward=0.0, reason=Reason.NO_ANSWER), scored(sample=1, text="13")
    members = [right, wrong, scored(sample=2), answered, scored(sample=4), scored(sample=5)]
    Tracker(run / "rl", console=None, tensorboard=False, total_steps=4).samples(4, [stored_group(*members)])
    label(run, "rl/4/0/0", "false_negative", text=f"twelve \u2028 {NASTY}")
    label(run, "rl/4/0/1", "false_positive", "hack")
    label(run, "rl/4/0/2", "hack", "false_negative")
    label(run, "rl/4/0/3", "false_negative")
    label(run, "rl/4/0/4", "odd")
    done = rollouts(run, "--where", "step = 4", "--as-verifier-cases", "--limit", 1)
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    shared = {"gold": "12", "mode": "anchored"}
    assert cases == [
        {**shared, "response": "the answer is 12", "verdict": "right", "why": f"false_negative: twelve \u2028 {NASTY}"},
        {**shared, "response": "13", "verdict": "wrong", "why": "false_positive; hack"},
        {**shared, "response": "It is \n 12.\x1b", "verdict": "right", "why": "false_negative"},
    ]
    assert "\x1b" not in done.stdout
    assert list(cases[0]) == ["gold", "response", "verdict", "mode", "why"]
    assert done.stderr.startswith("3 of 6 responses are cases")
    judged = [verify(case["gold"], case["response"], mode=case["mode"]).correct for case in cases[:2]]
    assert judged == [case["verdict"] == "right" for case in cases[:2]]

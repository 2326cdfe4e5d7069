"""`ansatz rollouts`: what is printed and written."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up import NASTY, make_pipeline, scored, stored_group

from ansatz.track.tracker import Tracker


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


def test_no_torch_is_imported(run: Path):
    code = (
        "import sys; sys.argv = ['ansatz', 'rollouts', sys.argv[1], '--where', 'correct']\n"
        "from ansatz.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(run)], check=True, capture_output=True)

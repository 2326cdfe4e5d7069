"""The real command in odd surroundings: without streams, terminal width, locale, home, temporary or current folder."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from toy_runs import toy_recipe

from ansatz.certify import doctor
from ansatz.cli.main import main
from benchmarks.faults.processes import COMMAND, environment

pytestmark = pytest.mark.e2e

SHORT = {
    "data": {"sft": None, "train": {"count": 8}, "heldout": {"count": 2}},
    "rollout": {"prompts_per_step": 2, "samples_per_prompt": 2, "max_response_tokens": 8},
    "train": {"steps": 1},
    "evaluate": {"problems": 2, "every": 0},
}


def shell(
    redirections: str, *arguments: str | Path, folder: Path, without: str = "", **variables: str
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the command with the redirections of the shell, such as ">&-"."""
    quoted = " ".join(f"'{each}'" for each in (sys.executable, *COMMAND, *arguments))
    variables = {key: value for key, value in {**environment(), **variables}.items() if key != without}
    seen = subprocess.run(
        ["bash", "-c", f"{quoted} {redirections}"], cwd=folder, env=variables, capture_output=True, timeout=240
    )
    return seen.returncode, seen.stdout.decode(errors="replace"), seen.stderr.decode(errors="replace")


def assert_fine(code: int, out: str, err: str) -> None:
    assert code == 0, (out, err)
    for word in ("Traceback", "Exception ignored", "FATAL"):
        assert word not in out + err


def test_a_run_without_any_stream_writes_nothing_of_its_output_into_its_files(tmp_path):
    assert_fine(*shell("<&- >&- 2>&-", "train", toy_recipe(tmp_path, SHORT), folder=tmp_path))
    rows = (tmp_path / "runs/toy/rl/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1]


def test_a_run_without_a_home_a_temporary_folder_or_a_terminal_of_any_width(tmp_path):
    odd = {"TMPDIR": "/proc/none", "HF_HOME": "/proc/none", "COLUMNS": "0", "LINES": "0", "FORCE_COLOR": "1"}
    assert_fine(*shell("", "train", toy_recipe(tmp_path, SHORT), folder=tmp_path, without="HOME", **odd))


ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_characters_that_the_output_cannot_show_are_question_marks(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "caf\u00e9 \u2265 1?", "answer": "1"}) + "\n")
    for variables in (ASCII, {"PYTHONIOENCODING": "ascii"}):
        code, out, err = shell("", "data", "peek", "rows.jsonl", "--show", "1", folder=tmp_path, **variables)
        assert_fine(code, out, err)
        assert "caf? ? 1?" in out


@pytest.mark.parametrize("stream", [">", "2>"])
def test_an_output_that_is_full_is_a_sentence_or_silence_and_code_2(tmp_path, stream):
    arguments = ("recipes",) if stream == ">" else ("explain", "no-such-recipe")
    code, _, err = shell(f"{stream} /dev/full", *arguments, folder=tmp_path)
    assert code == 2
    assert "Traceback" not in err
    if stream == ">":
        assert "ansatz: the output could not be written (No space left on device). Send it to another place." in err


RAISE_IT = "Raise the limit of ulimit -f, and run the command again."


@pytest.mark.parametrize(
    ("limit", "advice"),
    [(3_000, RAISE_IT), (12_000, RAISE_IT), (30_000, RAISE_IT), (200_000, "then continue with --resume.")],
)
def test_a_limit_on_the_size_of_files_is_a_sentence_whichever_library_meets_it(tmp_path, ansatz, limit, advice):
    recipe = toy_recipe(tmp_path, SHORT)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        code, _, err = ansatz("train", recipe)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert code == 2
    assert "could not be written (File too large" in err
    assert err.endswith(f"{advice}\n")


def test_a_current_folder_that_has_been_deleted(tmp_path):
    """Without the check, the mathematics library of torch ends the process with an error of its own."""
    (tmp_path / "gone").mkdir()
    enter = "import os; os.chdir('gone'); os.rmdir('../gone'); "
    code = [sys.executable, "-c", enter + COMMAND[1], "recipes"]
    seen = subprocess.run(code, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
    assert seen.returncode == 2
    assert seen.stderr == "ansatz: the current folder has been deleted. Change to another one and start again.\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["train", "recipe.yaml"], ["doctor"]])
def test_on_windows_every_command_says_in_one_sentence_where_to_run_it(monkeypatch, capsys, arguments):
    for name in ("SIGHUP", "SIGUSR1"):
        monkeypatch.delattr(signal, name)
    monkeypatch.setattr(sys, "argv", ["ansatz", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "On Windows, install it in WSL (wsl --install)" in capsys.readouterr().err


def test_without_the_files_of_linux_doctor_says_how_much_memory_there_is(monkeypatch):
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: False if str(path) == "/proc/meminfo" else exists(path))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert doctor._memory().found.endswith("GiB in all")
    assert "of" in doctor._processor().found

"""No input ends in a traceback, a hang or the death of the process: odd files and options for every verb."""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest
from odd_inputs import Case, verbs
from toy_runs import toy_recipe

from ansatz.certify import check as certify_check
from ansatz.certify.gradients import Gradients
from ansatz.cli.main import main
from ansatz.objectives.build import build_objective

LIMIT_S = 30
LIMITS_S = {"doctor --cluster": 120}
"""Verbs that may take longer: without an address, this one starts a Ray of its own."""


class TooSlow(BaseException):
    """Not a TimeoutError, which is an OSError: the command would end in a sentence about a file."""


NAMES = tuple(verbs(Path()))
COSTLY = {"doctor": 12, "doctor --cluster": 12}
"""How many times as long as those of other verbs the inputs of a verb take: each is a whole run."""
PARITY_CASE = {
    "id": "trl.soft_overlong_punishment/v1",
    "family": "trl.soft_overlong_punishment",
    "peer": "trl",
    "peer_version_or_commit": "1.16.0",
    "dtype": "float64",
    "knobs": {"max_completion_len": 100, "soft_punish_cache": 20},
    "inputs": {"length": [1, 90]},
    "outputs": {"rewards": [0.0, -0.5]},
    "native_float32": {},
}


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """What the cases damage: rows, a finished run, an evaluation of its model, parity cases and a recipe."""
    folder = tmp_path_factory.mktemp("odd")
    rows = [
        {"id": str(n), "question": f"{n} + 1?", "answer": str(n + 1), "response": f"\\boxed{{{n + 1}}}"} for n in (1, 2)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps({**row, "level": 1, "tags": []}) + "\n" for row in rows))
    (folder / "cases").mkdir()
    (folder / "cases" / "cases.json").write_text(json.dumps([PARITY_CASE, PARITY_CASE]))
    changes = {
        "name": "run",
        "out": str(folder),
        "sft": {"steps": 0},
        "train": {"steps": 1},
        "rollout": {"prompts_per_step": 2, "samples_per_prompt": 2, "max_response_tokens": 8},
        "evaluate": {"problems": 2, "every": 0},
        "data": {"train": {"count": 20}, "heldout": {"count": 4}, "sft": {"count": 20}},
    }
    toy_recipe(folder, changes).rename(folder / "recipe.yaml")
    assert run(["train", str(folder / "recipe.yaml")]) == 0
    model, suite, out = folder / "run" / "model", folder / "rows.jsonl", folder / "eval"
    short = ["--samples-per-prompt", "2", "--max-response-tokens", "4", "--threads", "1"]
    assert run(["eval", str(model), "--suite", str(suite), "--out", str(out), *short]) == 0
    return folder


def one_rank_gradient(batch, policy, config):
    """Instead of that of two processes, whose start would take most of the time of an input."""
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    return Gradients(policy, objective, config.rollout.temperature).of(batch)


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    monkeypatch.setattr(certify_check, "two_rank_gradient", one_rank_gradient)


def run(arguments: list[str], *, limit_s: float = LIMIT_S) -> int:
    """The exit code of the command in this process. TooSlow after the limit, and whatever else it raises."""

    def too_long(signum: int, frame: object) -> None:
        raise TooSlow(f"ran longer than {limit_s:g} s")

    # A run handles SIGALRM itself.
    before = signal.signal(signal.SIGUSR2, too_long)
    timer = threading.Timer(limit_s, os.kill, (os.getpid(), signal.SIGUSR2))
    timer.daemon = True
    timer.start()
    argv, sys.argv = sys.argv, ["ansatz", *arguments]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR2, before)
        sys.argv = argv
    return 0


def check(name: str, case: Case, number: int, folder: Path, errors) -> int:
    """Run one case; the exit code is 0, 1 or 2, and 2 comes with a sentence."""
    rng = random.Random(f"{name} {number}")
    folder.mkdir()
    what, arguments = case(rng, folder)
    try:
        with contextlib.chdir(folder):
            code = run(arguments, limit_s=LIMITS_S.get(name, LIMIT_S))
    except BaseException as error:
        error.add_note(f"{name}, input {number}: {what}: ansatz {' '.join(arguments)}")
        raise
    said = errors().err
    assert code in (0, 1, 2), (number, what, arguments)
    assert "Traceback" not in said, (number, what, arguments, said)
    if code == 2:
        assert said.strip(), (number, what, arguments)
        assert max(map(len, said.split())) < 400, (number, what, arguments, said)
    shutil.rmtree(folder)
    return code


def _numbers(name: str, count: int) -> range:
    return range(max(1, count // COSTLY.get(name, 1)))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LIMITS_S])
def test_no_odd_input_ends_in_a_traceback(base, tmp_path, capsys, name):
    codes = [
        check(name, verbs(base)[name], number, tmp_path / "case", capsys.readouterr) for number in _numbers(name, 6)
    ]
    assert codes


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_odd_input_of_500_ends_in_a_traceback(base, tmp_path, capsys, name):
    codes = [
        check(name, verbs(base)[name], number, tmp_path / "case", capsys.readouterr) for number in _numbers(name, 500)
    ]
    assert any(codes), "no input was refused, so none was odd"

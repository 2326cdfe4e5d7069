"""The page where a reader asks one or two checkpoints of a run, and the process that answers.

The process has torch, which the viewer never imports. There is one at a time, with a limit of time; it ends with the
viewer, because its standard input is then closed. Its command reads no weights but safetensors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import RedirectResponse, Response

from ansatz.data.store import read_problems
from ansatz.errors import DataError
from ansatz.links import check_no_links, list_folder, list_folders
from ansatz.types import Problem, answers_of, to_json
from ansatz.ui.library import Library
from ansatz.ui.open_run import NotFound, OpenRun, Page
from ansatz.ui.response import mark_tokens
from ansatz.ui.response_pages import read_number

COMMAND = (sys.executable, "-P", "-c", "from ansatz.cli.answer_viewer import main; main()")
MAX_SECONDS, MAX_SAMPLES = 600, 16
NOTHING = {"problem": "", "question": "", "answer": "", "beginning": "", "samples": "", "seed": ""}


class Attempt:
    """A process that answers, or has done so."""

    def __init__(self, address: str, order: Mapping[str, Any]) -> None:
        self.address, self._output = address, TemporaryFile()  # noqa: SIM115
        self._start = len(order["beginning"])
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=self._output, stderr=subprocess.STDOUT)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**order, "seconds": MAX_SECONDS}).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def failure(self) -> str:
        """Return why it has ended without an answer; empty if it has not."""
        if (code := self._process.poll() or 0) < 0:
            return f"It was stopped: it took more than {MAX_SECONDS} s, or too much memory. Ask for fewer responses."
        return f"Nothing more was answered: {self._lines()[-1]}" if code else ""

    @property
    def answers(self) -> dict[str, list[dict[str, Any]]]:
        """Return the responses so far by checkpoint, with their marked tokens."""
        answers: dict[str, list[dict[str, Any]]] = {}
        for row in (json.loads(line) for line in self._lines() if line.startswith('{"model": ')):
            marked = mark_tokens(row["text"][self._start :], row["ends"], row["logps"], "probability")
            answers.setdefault(row["model"], []).append({**row, "marked": marked})
        return answers

    def _lines(self) -> list[str]:
        """Return the whole lines of the output. A seek would move the process too."""
        output = os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size, 0)
        return output.decode(errors="replace").split("\n")[:-1]


class AttemptPage:
    """It shows the newest attempt at its address, which has everything that is asked.

    before, after: names of checkpoints; one may be empty. problem: the id of one of the run; a question counts first.
    beginning: text that every response continues.
    """

    def __init__(self, library: Library) -> None:
        self._library, self._lock = library, Lock()
        self._newest: Attempt | None = None

    def show(self, name: str, query: Mapping[str, str]) -> Page:
        at, models, asked, address = self._read(name, query)
        found = {"models": models, "problem": _find_problem(at.path, asked), "max_samples": MAX_SAMPLES}
        found["row"] = json.dumps({name: asked[name] for name in ("question", "answer")}, ensure_ascii=False)
        attempt = self._newest if self._newest and self._newest.address == address else None
        return "try.html", {**at.context("try"), **found, "asked": asked, "attempt": attempt}

    def ask(self, name: str, query: Mapping[str, str]) -> Response:
        """Ask the question in a form, and lead to the page of the answer. Raise DataError while something else is
        asked."""
        at, models, asked, address = self._read(name, query)
        problem = _find_problem(at.path, asked)
        chosen = {model: str(models[model]) for model in (asked["before"], asked["after"]) if model}
        if problem is None or not chosen:
            raise DataError("nothing is asked. Choose a checkpoint, and give a question or the id of a problem.")
        with self._lock:
            newest = self._newest
            if newest is None or not newest.is_running:
                self._newest = Attempt(address, {**asked, "models": chosen, "problem": to_json(problem)})
            elif newest.address != address:
                raise DataError("another question is being answered. Wait until it is, then ask again.")
        return RedirectResponse(address, 303)

    def _read(self, name: str, query: Mapping[str, str]) -> tuple[OpenRun, dict[str, Path], dict[str, Any], str]:
        """Return a run, its checkpoints by name, the fields of the form, and the address for them. By default, the
        first and the last checkpoint are asked."""
        if not self._library.asks_models:
            raise NotFound("this viewer asks no models. Start it with: ansatz view RUN --try.")
        at = OpenRun.find(self._library, name)
        stages = [stage.folder for stage in at.read().stages]
        folders = [path for stage in stages for path in (stage, *list_folders(stage / "checkpoints"))]
        models = {path.relative_to(at.path).as_posix(): path for path in folders if _is_checkpoint(path)}
        known = ["", *models]
        asked: dict[str, Any] = {"before": known[1] if len(models) > 1 else "", "after": known[-1], **NOTHING}
        given = {key: value.replace("\r\n", "\n") for key, value in query.items() if key in asked}
        asked |= {key: value if key == "beginning" else value.strip() for key, value in given.items()}
        asked["samples"] = min(read_number(asked["samples"]) or 4, MAX_SAMPLES)
        asked["seed"] = read_number(asked["seed"]) or 0
        if missing := {asked["before"], asked["after"]}.difference(known):
            raise NotFound(f"the run has no checkpoint {min(missing)!r} with safetensors weights in its folder.")
        return at, models, asked, f"/run/{quote(name)}/try?{urlencode(asked)}"


def _is_checkpoint(path: Path) -> bool:
    """Return whether a folder has weights that can be read without running code, and no link is in it."""
    try:
        check_no_links(path)
    except OSError:
        return False
    return any(file.suffix == ".safetensors" for file in list_folder(path))


def _find_problem(run: Path, asked: Mapping[str, Any]) -> Problem | None:
    """Return the problem that is asked; None if nothing is. Raise NotFound for a problem that the run does not have."""
    if asked["question"]:
        answers = answers_of(asked["answer"])
        return Problem(id="asked", question=asked["question"], answers=answers, source="viewer", split="all")
    if not asked["problem"]:
        return None
    problems = (each for path in list_folder(run / "problems", "*.jsonl") for each in read_problems(path))
    if found := next((each for each in problems if each.id == asked["problem"]), None):
        return found
    raise NotFound(f"the run has no problem {asked['problem']!r}. Its page and those of its responses name it.")

"""A run in which names are links: what the links lead to is not changed, and not shown.

The names are those of a run that was really made, so that a new file is covered as soon as a run writes it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_runs import different_results, toy_config

import ansatz as package
from ansatz import links
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.base import LOG
from ansatz.track.console import open_console
from ansatz.track.report import write_report

FILE_SINK = Path(__file__).parents[1] / "track" / "file_sink.py"
PACKAGE = Path(package.__file__).parent
CANARY = "CANARY7391"
SMALL = {"sft": {"steps": 2}, "train": {"steps": 4}, "save": {"tensorboard": True}}

Command = Callable[..., tuple[int, str, str]]


EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.truncate",
)
LIBRARY_WRITES = re.compile(r"model/[^/]+|.*\.draft/.+|model|.*\.draft")
"""Where libraries write: into the model that a run builds, and into folders that have just been made."""


class Audit:
    """What is opened, made or removed by a path in a folder: (event, path within, flags, module that asks for it)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = str(folder), list[tuple[str, str, int, str]]()
        self.is_on = True
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on or event not in EVENTS or not isinstance(arguments[0], str | bytes):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if path.startswith(f"{self.folder}/"):
            flags = arguments[2] if event == "open" else os.O_RDWR
            self.found.append((event, path.removeprefix(f"{self.folder}/"), flags, self._find_caller()))

    def _find_caller(self) -> str:
        """Return the file of the innermost function that is not of the standard library."""
        frame = sys._getframe(2)
        standard = (os.path.dirname(os.__file__), "<frozen")
        while frame.f_back and (
            "site-packages" not in frame.f_code.co_filename
            and (frame.f_code.co_filename.startswith(standard) or frame.f_code.co_filename == __file__)
        ):
            frame = frame.f_back
        return frame.f_code.co_filename


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """What a whole run opens by paths."""
    config = toy_config(tmp_path_factory.mktemp("links"), SMALL)
    audit = Audit(config.run_dir.absolute())
    run_pipeline(config, console=open_console(log=config.run_dir / LOG), report=write_report)
    audit.is_on = False
    return audit


@pytest.fixture(scope="module")
def finished(audit: Audit) -> Path:
    """A finished run, which the tests copy."""
    return Path(audit.folder)


def test_only_libraries_open_files_of_a_run_by_their_paths_and_write_into_new_folders(audit: Audit):
    assert [each for each in audit.found if str(PACKAGE) in each[3] and each[3] != links.__file__] == []
    wrote = [each for each in audit.found if each[2] & (os.O_WRONLY | os.O_RDWR) and "ansatz/links.py" not in each[3]]
    assert wrote
    assert [each for each in wrote if not LIBRARY_WRITES.fullmatch(each[1])] == []


def interrupt(run: Path) -> None:
    """Leave of a finished run what a kill after its last checkpoint but one leaves."""
    for path in (run / "summary.json", run / "report.html", run / "rl" / "done.json"):
        path.unlink()
    shutil.rmtree(max((run / "rl" / "checkpoints").iterdir()))


def mark(path: Path) -> None:
    """Add a word to what a file says to people."""
    content = path.read_bytes()
    for key in (b'"text": "', b'"question": "', b'"response": "'):
        content = content.replace(key, key + CANARY.encode() + b" ")
    if path.suffix in (".yaml", ".txt"):
        content += f"# {CANARY}\n".encode()
    path.write_bytes(content)


def link(run: Path, name: str, outside: Path) -> None:
    """Move what has the name in a run to the outside, where it says something that must not be seen, and leave a
    link."""
    target = outside / name.replace("/", "-")
    if (run / name).exists():
        (run / name).rename(target)
        for path in [target, *target.rglob("*")]:
            if path.is_file():
                mark(path)
    else:
        target.write_text(CANARY)
        (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(target)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def names(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*"))


def shows(run: Path, other: Path, folder: Path, ansatz: Command) -> Iterator[tuple[str, tuple[int, str, str]]]:
    """Yield what every command that reads a run says and writes about it."""
    orders: dict[str, tuple[Any, ...]] = {
        "report": ("report", run),
        "two reports": ("report", other, run, "--out", folder / "two.html"),
        "rollouts": ("rollouts", run, "--jsonl", folder / "rows.jsonl"),
        "compare": ("compare", other, run),
        "export": ("export", run, folder / "exported"),
        "track": ("track", run, "--to", f"{FILE_SINK}:open_run"),
    }
    for name, order in orders.items():
        yield name, ansatz(*order)


def pages(run: Path, folder: Path) -> Iterator[tuple[str, str]]:
    from starlette.testclient import TestClient

    from ansatz.ui.app import build_app
    from ansatz.ui.library import Library

    viewer = TestClient(build_app(Library([run.parent], cache=folder / "cache"), token="", hosts=["testserver"]))
    for page in ("", "/rollouts", "/problems", "/metrics", "/recipe", "/logs", "/health", "/step/rl/1", "/pairs/rl"):
        answer = viewer.get(f"/run/{run.name}{page}")
        assert answer.status_code in (200, 400, 404), page
        yield page, answer.text
    yield "list", viewer.get("/").text


def check_readers(run: Path, name: str, folder: Path, ansatz: Command) -> None:
    outside = folder / "outside"
    outside.mkdir(parents=True)
    shutil.copytree(run, folder / "runs" / "mine")
    mine = folder / "runs" / "mine"
    link(mine, name, outside)
    before = content(outside)
    for verb, (code, out, err) in shows(mine, run, folder, ansatz):
        assert code in (0, 2), (name, verb, err)
        assert code == 0 or err, (name, verb)
        assert "Traceback" not in err, (name, verb, err)
        assert len(err.splitlines()) <= 2, (name, verb, err)
        assert CANARY not in out + err, (name, verb)
        assert content(outside) == before, (name, verb)
    for page, text in pages(mine, folder):
        assert CANARY not in text, (name, page)
    shutil.rmtree(mine)
    for path, written in content(folder).items():
        assert CANARY.encode() not in written or path.startswith("outside"), (name, path)
    assert content(outside) == before, name
    shutil.rmtree(folder)


def test_what_a_name_of_a_run_leads_to_is_not_shown(finished: Path, tmp_path: Path, ansatz: Command):
    for number, name in enumerate(names(finished)[3::30]):
        check_readers(finished, name, tmp_path / str(number), ansatz)


def resume(run: Path, *more: str, ansatz: Command) -> tuple[int, str]:
    code, out, err = ansatz("train", "--resume", run, *more)
    assert "Traceback" not in err, err
    assert CANARY not in out + err
    return code, err


def drafts(run: Path) -> list[str]:
    """The drafts of all that a run writes, and of the versions of weights."""
    found = [Path(name) for name in names(run)]
    return sorted({str(path.with_name(f".{path.name}.draft")) for path in found} - {str(path) for path in found})


def test_a_resumed_run_replaces_drafts_that_are_links(finished: Path, tmp_path: Path, ansatz: Command):
    run, outside = tmp_path / "runs" / "mine", tmp_path / "outside"
    shutil.copytree(finished, run)
    interrupt(run)
    outside.mkdir()
    (outside / "folder").mkdir()
    for number, name in enumerate(drafts(finished)):
        if (run / name).parent.is_dir():
            (outside / str(number)).write_text(CANARY)
            (run / name).symlink_to(outside / (str(number) if number % 3 else ("folder", "missing")[number % 2]))
    before = content(outside)
    code, err = resume(run, ansatz=ansatz)
    assert code == 0, err
    assert content(outside) == before
    assert set(different_results(run, finished)) <= {"summary.json"}  # which names the folder


def check_resume(finished: Path, name: str, folder: Path, ansatz: Command) -> int:
    run, outside = folder / "runs" / "mine", folder / "outside"
    shutil.copytree(finished, run)
    interrupt(run)
    outside.mkdir()
    link(run, name, outside)
    before = content(outside)
    code, err = resume(run, "--save.tensorboard", "true", ansatz=ansatz)
    assert code == 0 or (code == 2 and len(err.splitlines()) == 1), (name, err)
    assert content(outside) == before, name
    if code:
        assert "link" in err or "already exists" in err, (name, err)
    else:
        assert set(different_results(run, finished)) <= {"summary.json", name}, name
    shutil.rmtree(folder)
    return code


REFUSED = (".lock", "log.txt", "rl", "rl/checkpoints", "rl/metrics.jsonl", "rl/samples")
"""What a resumed run appends to or writes into, each of which is refused before a model is loaded."""


def test_a_resumed_run_writes_into_no_link(finished: Path, tmp_path: Path, ansatz: Command):
    for number, name in enumerate(REFUSED):
        assert check_resume(finished, name, tmp_path / str(number), ansatz) == 2, name


@pytest.mark.slow
def test_a_resumed_run_follows_no_link_of_any_name(finished: Path, tmp_path: Path, ansatz: Command):
    for number, name in enumerate([*names(finished), "ledger", "weights", "rl/skipped", "rl/rolled_back"]):
        check_resume(finished, name, tmp_path / str(number), ansatz)


@pytest.mark.slow
def test_what_any_name_of_a_run_leads_to_is_not_shown(finished: Path, tmp_path: Path, ansatz: Command):
    for number, name in enumerate([*names(finished), "notes.jsonl", "rl/pairs.jsonl", "trackers"]):
        check_readers(finished, name, tmp_path / str(number), ansatz)

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansatz import files, links

PACKAGE = Path(links.__file__).parent


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A held folder with a link to a file and one to a folder outside."""
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "canary").write_text("theirs")
    (tmp_path / "run" / "rl").mkdir(parents=True)
    (tmp_path / "run" / "file").symlink_to(outside / "canary")
    (tmp_path / "run" / "folder").symlink_to(outside)
    return links.hold(tmp_path / "run")


def outside(run: Path) -> dict[str, str]:
    """The names and the content of all that is outside of the run."""
    found = sorted((run.parent / "outside").rglob("*"))
    return {path.name: path.read_text() if path.is_file() else "" for path in found}


CALLS = {
    "read": lambda run: links.read_bytes(run / "file"),
    "append": lambda run: files.append_text(run / "file", "ours"),
    "lock": lambda run: links.open_descriptor(run / "file", os.O_RDWR | os.O_CREAT),
    "digest": lambda run: files.file_digest(run / "file"),
    "sync": lambda run: files.sync(run / "folder"),
    "read below": lambda run: links.read_text(run / "folder" / "canary"),
    "write below": lambda run: files.write_text(run / "folder" / "new", "ours"),
    "replace below": lambda run: files.write_text(run / "folder" / "canary", "ours"),
    "list": lambda run: links.list_folder(run / "folder"),
    "make": lambda run: links.make_folder(run / "folder" / "new" / "deep"),
    "make itself": lambda run: links.make_folder(run / "folder"),
    "make anew": lambda run: links.make_new_folder(run / "folder" / "inner"),
    "remove below": lambda run: links.remove(run / "folder" / "canary"),
    "remove a folder below": lambda run: links.remove(run / "folder" / "inner"),
    "rename from": lambda run: links.rename(run / "folder" / "canary", run / "canary"),
    "rename to": lambda run: links.rename(run / "rl", run / "folder" / "rl"),
    "copy": lambda run: links.copy_tree(run / "folder", run / "copy"),
    "copy the whole": lambda run: links.copy_tree(run, run.parent / "copy"),
    "check": lambda run: links.check_no_links(run / "folder"),
    "check the whole": lambda run: links.check_no_links(run),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_call_follows_a_link_below_a_held_folder(run: Path, name: str):
    before = outside(run)
    with pytest.raises(OSError, match="links in a run folder are not followed") as caught:
        CALLS[name](run)
    assert caught.value.errno == errno.ELOOP
    assert str(caught.value.filename).startswith(str(run))
    assert outside(run) == before


def test_a_draft_that_is_a_link_is_replaced_and_so_is_a_link_under_the_final_name(run: Path):
    before = outside(run)
    (run / ".file.draft").symlink_to(run.parent / "outside" / "canary")
    files.write_text(run / "file", "ours")
    assert not (run / "file").is_symlink()
    assert (run / "file").read_text() == "ours"
    links.make_new_folder(run / "folder")
    assert (run / "folder").is_dir()
    assert not (run / "folder").is_symlink()
    assert outside(run) == before


@pytest.mark.parametrize("odd", ["folder", "pipe", "dangling"])
def test_a_draft_that_is_anything_odd_is_replaced(run: Path, odd: str):
    draft = run / ".summary.json.draft"
    if odd == "folder":
        (draft / "deep").mkdir(parents=True)
    elif odd == "pipe":
        os.mkfifo(draft)
    else:
        draft.symlink_to(run.parent / "outside" / "new")
    before = outside(run)
    files.write_text(run / "summary.json", "ours")
    assert (run / "summary.json").read_text() == "ours"
    assert outside(run) == before
    assert not draft.exists()


def test_removing_a_link_or_a_folder_with_links_leaves_their_targets(run: Path):
    before = outside(run)
    links.remove(run / "file")
    links.remove(run / "missing")
    (run / "rl" / "folder").symlink_to(run.parent / "outside")
    links.remove(run / "rl")
    assert sorted(os.listdir(run)) == ["folder"]
    assert outside(run) == before


def test_a_dangling_link_is_no_way_to_make_a_file_outside(run: Path):
    (run / "log.txt").symlink_to(run.parent / "outside" / "new")
    for mode in ("a", "a+", "x"):
        with pytest.raises(OSError, match=r"links in a run folder|File exists"):
            links.open_file(run / "log.txt", mode)
    assert "new" not in outside(run)


def test_a_held_folder_can_itself_be_reached_through_links(tmp_path: Path):
    (tmp_path / "disk" / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs").symlink_to(tmp_path / "disk" / "runs")
    run = links.hold(tmp_path / "runs" / "mine")
    files.write_text(run / "rl" / "done.json", "1")
    files.append_text(run.resolve() / "rl" / "log", "2")
    assert links.list_folder(run / "rl") == [run / "rl" / "done.json", run / "rl" / "log"]
    (tmp_path / "disk" / "runs" / "mine" / "link").symlink_to(tmp_path)
    for same in (run, run.resolve(), tmp_path / "runs" / "." / "other" / ".." / "mine"):
        with pytest.raises(OSError, match="are not followed"):
            links.read_bytes(same / "link" / "x")


def test_other_paths_are_used_as_the_user_wrote_them(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write_text(tmp_path / "link" / "a", "1")
    (tmp_path / "b").symlink_to(tmp_path / "real" / "a")
    files.append_text(tmp_path / "b", "2")
    assert links.read_text(tmp_path / "b") == "12"
    assert links.list_folder(tmp_path / "link") == [tmp_path / "link" / "a"]


def test_a_relative_path_is_that_of_the_current_folder(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(run)
    files.write_text(Path("rl/new"), "ours")
    assert links.is_own_file(Path("rl/new"))
    assert not links.is_own_file(Path("file"))
    with pytest.raises(OSError, match="are not followed"):
        links.read_bytes(Path("rl/../file"))


OPENS_ELSEWHERE = {
    "certify.doctor": "a probe that it has just made",
    "certify.parity.report": "the user's own file",
    "certify.gradients": "a temporary folder",
    "cli.check": "a temporary folder",
    "cli.init": "the user's own folder, and files of the package",
    "cli.score": "a temporary folder",
    "cli.train": "the null device",
    "cli.verbs": "files of the package",
    "cluster.actor": "/proc",
    "cluster.reaper": "/proc, and a temporary folder",
    "config.packaged": "files of the package",
    "data.files": "the user's own data",
    "data.hygiene.embeddings": "the user's own data",
    "data.hygiene.report": "the user's own data",
    "data.hygiene.row_filter": "a temporary file",
    "gguf_file": "the cache of the user",
    "links": "the one place",
    "locks": "/proc",
    "loop.interrupts": "the terminal",
    "loop.run_sources": "the user's own code",
    "loop.user_code": "the user's own code",
    "models.compiled": "the user's cache",
    "trial": "/proc, and the null device",
    "own_clock": "/proc",
    "process": "the null device",
    "rewards.gym_scorer": "the null device",
    "rewards.judge": "the user's own cache",
    "rewards.sandbox": "/proc, and a temporary file",
    "rewards.sandbox_child": "/proc and the null device",
    "rollout.vllm.processes": "/proc, and shared memory",
    "rollout.vllm.server": "a temporary file",
    "rollout.vllm.weights": "a temporary folder",
    "temporary": "/proc, and temporary folders",
    "track.theme": "files of the package",
    "train.distributed": "a temporary folder in one that only this user can enter",
    "trust": "the key in the user's own folder",
    "ui.app": "files of the package",
    "ui.index": "the user's cache",
}
"""Modules that open files by their paths, and which: none that somebody else can have put into the folder of a run."""


def opening_calls(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that open, make, move or remove a file by a path."""
    of_paths = {"read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink", "rmdir", "rename", "touch"}
    of_paths |= {"iterdir", "symlink_to", "hardlink_to", "chmod"}
    of_os = {"open", "mkdir", "makedirs", "remove", "unlink", "rename", "replace", "rmdir", "link", "symlink"}
    of_os |= {"truncate", "listdir", "scandir", "chmod", "mkfifo"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, text = node.func, ast.unparse(node.func)
        if isinstance(called, ast.Name) and called.id == "open":
            yield text
        elif isinstance(called, ast.Attribute):
            of = ast.unparse(called.value)
            if (
                (of in ("os", "io") and called.attr in of_os)
                or (of == "shutil" and called.attr not in ("disk_usage", "get_terminal_size", "which"))
                or (of == "tempfile" and called.attr != "gettempdir")
                or (of not in ("links", "files", "os") and (called.attr in of_paths or _opens_path(called, node)))
            ):
                yield text


def _opens_path(called: ast.Attribute, call: ast.Call) -> bool:
    """Tell path.open() from the methods of that name of other things, and path.replace(new) from text.replace(a, b)."""
    if called.attr == "replace":
        return len(call.args) == 1 and not call.keywords
    names = {keyword.arg for keyword in call.keywords}
    is_mode = all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in call.args[:1])
    return called.attr == "open" and is_mode and names <= {"mode", "buffering", "encoding", "errors", "newline"}


def test_nothing_else_opens_files_where_runs_are():
    found = dict[str, list[str]]()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if calls := sorted(set(opening_calls(ast.parse(path.read_text(encoding="utf-8"))))):
            found[name] = calls
    assert {name: calls for name, calls in found.items() if name not in OPENS_ELSEWHERE} == {}
    assert found.keys() == OPENS_ELSEWHERE.keys(), "a module that no longer opens files"

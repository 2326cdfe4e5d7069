from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_folder

from ansatz.hub import hub_name
from ansatz.models.load import load_policy

COMMIT, OTHER_COMMIT = "a" * 40, "b" * 40
TEXT = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")

PROGRAM = """
import sys
from ansatz.errors import ModelError
from ansatz.hub import local_folder, pinned
try:
    print(pinned(sys.argv[1]))
    print(local_folder(sys.argv[1]))
    if len(sys.argv) > 2:
        from ansatz.models.load import load_policy
        print(load_policy(sys.argv[1]).num_parameters > 0)
except ModelError as error:
    print("refused:", error)
"""


def ask(*names: str, home: Path, **environment: str) -> str:
    """What a fresh process prints. The hub reads its settings when it is imported."""
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        environment.setdefault(name, "")
    settings = {key: value for key, value in {**os.environ, **environment}.items() if value != ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        env=settings | {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def cached(home: Path, name: str, *, commit: str = COMMIT, branch: str = "main") -> Path:
    """A model in a hub cache that was laid out by hand: refs/BRANCH with the commit, and snapshots/COMMIT."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / branch).write_text(commit)
    return tiny_folder(folder / "snapshots" / commit)


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's protocol that downloads need. files: content by name; commits: by branch."""

    files: dict[str, bytes]
    commits: dict[str, str]
    downloads: list[str]

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].strip("/").split("/")
        if "gated" in self.path:
            code = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."}
            return self._send(403 if "Authorization" in self.headers else 401, b"{}", headers=code, body=body)
        if "tiny" not in path:
            return self._send(401, b"{}", headers={"X-Error-Code": "RepoNotFound"}, body=body)
        if path[:2] == ["api", "models"]:
            return self._describe(path[4:], body=body)
        commit = self._commit(path[3])
        content = self.files.get("/".join(path[4:]))
        if commit is None or content is None:
            return self._send(404, b"", headers={"X-Error-Code": "EntryNotFound"}, body=body)
        if body:
            self.downloads.append(path[-1])
        headers = {"ETag": f'"{hash(content):x}"', "X-Repo-Commit": commit}
        return self._send(200, content, headers=headers, body=body)

    def _describe(self, parts: list[str], *, body: bool) -> None:
        """api/models/NAME/revision/REVISION and api/models/NAME/tree/REVISION."""
        commit = self._commit(parts[1] if len(parts) > 1 else "main")
        if commit is None:
            return self._send(404, b"{}", headers={"X-Error-Code": "RevisionNotFound"}, body=body)
        siblings = [{"rfilename": name} for name in self.files]
        described: Any = {"id": "us/tiny", "sha": commit, "siblings": siblings}
        if parts[0] == "tree":
            described = [
                {"type": "file", "path": name, "size": len(content), "oid": f"{hash(content):x}"}
                for name, content in self.files.items()
            ]
        return self._send(200, json.dumps(described).encode(), headers={}, body=body)

    def _commit(self, revision: str) -> str | None:
        return revision if revision in self.commits.values() else self.commits.get(revision)

    def _send(self, status: int, content: bytes, *, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content)), "Content-Type": "application/json"}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[type[Hub], str]]:
    """(the handler with its records, its address): one model us/tiny with files that nobody needs."""
    folder = tiny_folder(tmp_path / "published")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    extra = {"README.md": b"#", "original/params.json": b"{}", "consolidated.safetensors": b"x", "code.py": b"1"}
    commits = {"main": COMMIT, "v2": OTHER_COMMIT}
    handler = type("Handler", (Hub,), {"files": {**files, **extra}, "commits": commits, "downloads": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_hub_name_has_an_owner_and_perhaps_a_revision_and_an_existing_folder_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub_name("Qwen/Qwen2.5-1.5B") == ("Qwen/Qwen2.5-1.5B", None)
    assert hub_name("Qwen/Qwen2.5-1.5B@refs/pr/1") == ("Qwen/Qwen2.5-1.5B", "refs/pr/1")
    assert hub_name("us/tiny_2.0-b@a--b") == ("us/tiny_2.0-b", "a--b")
    for path in ("model", "/data/model", "./us/tiny", "a/b/c", "file.py:function", "us/tiny@"):
        assert hub_name(path) is None
    # names that the hub does not allow: its package raises an error of its own for them
    for path in (
        "runs/a--b",
        "hub/models--us--tiny",
        "us/a..b",
        "us/tiny.",
        "us./tiny",
        "us/tiny.git",
        f"us/{'x' * 97}",
    ):
        assert hub_name(path) is None
    (tmp_path / "us" / "tiny").mkdir(parents=True)
    assert hub_name("us/tiny") is None


def test_without_network_a_model_comes_from_the_cache_with_its_commit(tmp_path: Path) -> None:
    folder = cached(tmp_path, "us/tiny")
    lines = ask("us/tiny", "load", home=tmp_path, HF_HUB_OFFLINE="1").splitlines()
    assert lines == [f"us/tiny@{COMMIT}", str(folder), "True"]
    assert ask(f"us/tiny@{COMMIT}", home=tmp_path, HF_HUB_OFFLINE="1").splitlines()[1] == str(folder)


def test_without_network_a_model_that_is_not_cached_is_refused_in_one_sentence(tmp_path: Path) -> None:
    text = ask("us/tiny", home=tmp_path, HF_HUB_OFFLINE="1")
    assert text.startswith("refused: model.path = 'us/tiny' is neither a local folder nor complete in the hub's cache")
    assert "`hf download us/tiny` where" in text
    assert "`hf download us/tiny --revision v2` where" in ask("us/tiny@v2", home=tmp_path, HF_HUB_OFFLINE="1")
    assert "\n" not in text


def test_a_hub_that_does_not_answer_is_refused_in_one_sentence(tmp_path: Path) -> None:
    text = ask("us/tiny", home=tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert "the hub cannot be reached" in text
    assert "\n" not in text


def test_a_download_takes_the_needed_files_only_and_loads(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    handler, address = hub
    name, folder = ask("us/tiny", home=tmp_path, HF_ENDPOINT=address).splitlines()
    assert name == f"us/tiny@{COMMIT}"
    assert load_policy(folder).num_parameters > 0  # by its name, the test without network loads it
    assert sorted(path.name for path in Path(folder).iterdir()) == sorted([*TEXT, "model.safetensors"])
    assert sorted(handler.downloads) == sorted([*TEXT, "model.safetensors"])


def test_a_revision_is_resolved_to_its_commit(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    assert ask("us/tiny@v2", home=tmp_path, HF_ENDPOINT=hub[1]).splitlines()[0] == f"us/tiny@{OTHER_COMMIT}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("us/gated", "is a gated model. Accept its conditions on https://huggingface.co/us/gated"),
        ("us/missing", "is neither a local folder nor a model that the hub shows to you"),
        ("us/tiny@v3", "names the revision 'v3', which us/tiny does not have"),
    ],
)
@pytest.mark.parametrize("token", ["", "hf_test"])
def test_what_the_hub_refuses_is_said_in_one_sentence(
    tmp_path: Path, hub: tuple[type[Hub], str], name: str, message: str, token: str
) -> None:
    text = ask(name, home=tmp_path, HF_ENDPOINT=hub[1], HF_TOKEN=token)
    assert text.startswith(f"refused: model.path = {name!r} {message}")
    assert "\n" not in text


def test_old_weights_are_downloaded_if_there_are_no_others(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    handler, address = hub
    handler.files = {**handler.files, "pytorch_model.bin": b"x"}
    del handler.files["model.safetensors"]
    folder = ask("us/tiny", home=tmp_path, HF_ENDPOINT=address).splitlines()[1]
    assert (Path(folder) / "pytorch_model.bin").exists()

"""Checkpoints of a run are asked from its page: over HTTP, by a process that really samples."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from html import unescape
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlencode

import pytest

for _package in ("duckdb", "starlette", "uvicorn"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from made_up import NASTY  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402
from test_viewer_pages import make_run, open_viewer  # noqa: E402
from toy_runs import toy_config  # noqa: E402

from ansatz.cli import answer_viewer  # noqa: E402
from ansatz.loop.pipeline import run_pipeline  # noqa: E402
from ansatz.ui import attempts  # noqa: E402
from ansatz.ui.app import build_app  # noqa: E402
from ansatz.ui.library import Library  # noqa: E402

WAIT_S = 120
EMPTY = {"before": "", "after": "rl/checkpoints/step-000004", "problem": "", "question": "", "answer": ""}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_pipeline(toy_config(tmp_path_factory.mktemp("toy")))


class Reader:
    """A browser without scripts: it has cookies, follows redirections, and sends the forms of pages."""

    def __init__(self, address: str) -> None:
        self.origin = address.partition("/run")[0].partition("?")[0].rstrip("/")
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.get(address.removeprefix(self.origin))

    def get(self, path: str) -> str:
        with self._browser.open(self.origin + path, timeout=WAIT_S) as answer:
            return answer.read().decode()

    def ask(self, page: str, **form: Any) -> tuple[str, str]:
        """Send the form of a page. Return the address that it leads to, and its page."""
        target = unescape(re.findall('<form class="card ask" method="post" action="(.*?)"', page)[0])
        body = urlencode({**EMPTY, "samples": 2, "seed": 1, **form}).encode()
        request = urllib.request.Request(self.origin + target, body, {"Origin": self.origin})
        try:
            with self._browser.open(request, timeout=WAIT_S) as answer:
                return answer.url.removeprefix(self.origin), answer.read().decode()
        except HTTPError as error:
            return "", error.read().decode()

    def wait(self, address: str) -> str:
        """Load a page again, as it asks to be, until it no longer does."""
        end = time.monotonic() + WAIT_S
        while 'http-equiv="refresh"' in (page := self.get(address)):
            assert time.monotonic() < end
            time.sleep(0.2)
        return page


def start_viewer(run: Path, cache: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "ansatz", "view", str(run), "--port", "0", "--try"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def reader(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with start_viewer(run, tmp_path_factory.mktemp("cache")) as server:
        assert server.stdout is not None
        yield Reader(server.stdout.readline().removeprefix("Open ").strip())
        server.kill()


def test_two_checkpoints_answer_a_problem_of_the_run_and_the_address_is_the_state(reader: Reader, run: Path):
    page = reader.get("/run/toy/try")
    assert re.findall('<option value="(.*?)"', page)[:5] == [
        "",
        "model",
        *(f"{each}/checkpoints/step-00000{step}" for each, step in (("sft", 2), ("sft", 4), ("rl", 2))),
    ]
    problem = (run / "problems" / "heldout.jsonl").read_text().partition('"id": "')[2].partition('"')[0]
    address, page = reader.ask(page, before="model", problem=problem)
    assert "being loaded" in page
    assert "Another question is being answered" in reader.ask(page, question="1 + 1?")[1]
    assert reader.ask(page, before="model", problem=problem)[0] == address
    page = reader.wait(address)
    assert re.findall("<h2>(.*?):", page) == ["model", "rl/checkpoints/step-000004"]
    assert page.count("<article") == 4
    assert len(re.findall(r'<span[^>]* title="token \d+: -', page)) >= 4
    assert "✓ correct" in page or "✗" in page or "! " in page
    assert f'value="{problem}"' in page
    assert 'class="question"' in page


class InThisProcess:
    """Stands in for the process that answers, which loads torch for seconds: it does the same before it is started."""

    def __init__(self, _: Any, *, stdout: Any, **__: Any) -> None:
        self.stdin, self._output, self._code = self, stdout, 0

    def write(self, order: bytes) -> None:
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
            patch.setattr(sys, "stdin", io.StringIO(order.decode()))
            patch.setattr(answer_viewer, "_end_with_viewer", lambda: None)
            patch.setattr(answer_viewer.signal, "alarm", lambda _: None)
            try:
                answer_viewer.main()
            except SystemExit as end:
                self._code = 1
                print(end)
        os.write(self._output.fileno(), said.getvalue().encode())

    def flush(self) -> None: ...

    def poll(self) -> int:
        return self._code


@pytest.fixture
def asked(viewer: TestClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """asked(form) -> the page of what is asked with the form."""
    monkeypatch.setattr(attempts.subprocess, "Popen", InThisProcess)
    viewer.get("/?token=secret")
    return lambda **form: viewer.get(post(viewer, samples=2, seed=1, **form).headers["location"]).text


def test_a_question_of_the_reader_without_a_gold_answer_gets_no_verdict_and_stays_text(asked: Callable[..., str]):
    page = asked(question=NASTY)
    assert page.count("<article") == 2
    assert "<img" not in page
    assert 'class="badge' not in page
    assert "mean log-prob" in page


def test_responses_go_on_from_the_beginning_that_they_are_given_and_are_graded_with_it(asked: Callable[..., str]):
    beginning = "  The answer is \\boxed{8}. "
    page = asked(question="3 + 5?", answer="8", beginning=beginning)
    assert page.count(f'<i class="shared">{beginning}</i>') == 2
    assert f">{beginning}</textarea>" in page
    assert page.count("<article") == page.count("✓ correct") == 2
    (saved,) = re.findall('href="data:application/jsonl;charset=utf-8,(.*?)"', page)
    assert json.loads(unquote(saved)) == {"question": "3 + 5?", "answer": "8"}


def test_a_question_that_cannot_be_answered_is_one_sentence(asked: Callable[..., str], viewer: TestClient):
    said = unescape(asked(question="word " * 9000))
    assert "Nothing more was answered: the longest prompt of the question has" in said
    for form, said in (
        ({}, "Nothing is asked"),
        ({"before": "../x"}, "no checkpoint"),
        ({"problem": "none"}, "no problem 'none'"),
        ({"question": "x" * 70_000}, "in at most 65536 bytes"),
    ):
        assert said in unescape(post(viewer, **form).text)


def test_the_process_ends_with_a_viewer_that_is_killed(run: Path, tmp_path: Path):
    with start_viewer(run, tmp_path) as server:
        assert server.stdout is not None
        reader = Reader(server.stdout.readline().removeprefix("Open ").strip())
        reader.ask(reader.get("/run/toy/try"), question="1 + 1?", samples=16)
        found = [
            each for path in Path(f"/proc/{server.pid}/task").glob("*/children") for each in path.read_text().split()
        ]
        assert len(found) == 1
        server.kill()
    end = time.monotonic() + WAIT_S
    while Path(f"/proc/{found[0]}").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_viewer_that_was_not_started_so_asks_nobody(tmp_path: Path):
    make_run(tmp_path / "runs" / "one")
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    assert "/try" not in viewer.get("/run/one").text
    answer = viewer.get("/run/one/try")
    assert (answer.status_code, "Start it with: ansatz view RUN --try" in answer.text) == (404, True)


@pytest.fixture
def viewer(run: Path, tmp_path: Path) -> TestClient:
    library = Library([run], cache=tmp_path / "cache")
    library.asks_models = True
    return TestClient(build_app(library, token="secret", hosts=["testserver"]), follow_redirects=False)


def post(viewer: TestClient, *, page: str = "", origin: str = "http://testserver", **form: Any) -> Any:
    """Send a form. page: the token of the page; by default the right one."""
    found = re.findall(r"/try\?page=([\w-]+)", viewer.get("/run/toy/try").text)
    headers = {"origin": origin}
    return viewer.post(f"/run/toy/try?page={page or ''.join(found)}", data={**EMPTY, **form}, headers=headers)


def test_a_question_from_elsewhere_starts_nothing(viewer: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempts, "COMMAND", ["head", "-n", "1"])
    assert post(viewer, question="1 + 1?").status_code == 403
    viewer.get("/?token=secret")
    for how in ({"page": "x"}, {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": ""}):
        assert post(viewer, question="1 + 1?", **how).status_code == 403
    assert viewer.post("/run/toy/try", json={}, headers={"origin": "http://testserver"}).status_code == 415
    answer = post(viewer, question="1 + 1?")
    assert answer.status_code == 303


def test_an_answer_that_takes_too_long_is_stopped_and_says_so(viewer: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempts, "MAX_SECONDS", 1)
    viewer.get("/?token=secret")
    address = post(viewer, question="1 + 1?").headers["location"]
    end = time.monotonic() + WAIT_S
    while 'http-equiv="refresh"' in (page := viewer.get(address).text):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "It was stopped: it took more than 1 s" in page


def test_a_link_that_leads_out_of_the_run_is_no_checkpoint(viewer: TestClient, run: Path, tmp_path: Path):
    viewer.get("/?token=secret")
    outside = tmp_path / "outside"
    shutil.copytree(run / "rl" / "checkpoints" / "step-000004", outside)
    link = run / "rl" / "checkpoints" / "step-000009"
    link.symlink_to(outside)
    try:
        assert "step-000009" not in viewer.get("/run/toy/try").text
        assert "no checkpoint" in post(viewer, after="rl/checkpoints/step-000009", question="1").text
    finally:
        link.unlink()

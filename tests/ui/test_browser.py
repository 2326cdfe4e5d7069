"""The viewer in a real Chromium: keys, filters, both themes and widths, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("starlette", reason="a package of the viewer is not installed")
if shutil.which("chromium") is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

from starlette.testclient import TestClient  # noqa: E402
from test_sweep_pages import row_of, write_rows  # noqa: E402
from test_viewer_pages import HOSTILE, make_run  # noqa: E402

from ansatz.cli.main import main  # noqa: E402
from ansatz.track.notes import add_note, notes_path  # noqa: E402
from ansatz.ui import attempts  # noqa: E402
from ansatz.ui.app import build_app  # noqa: E402
from ansatz.ui.demo import DemoRun  # noqa: E402
from ansatz.ui.library import Library  # noqa: E402

pytestmark = pytest.mark.browser

SWITCHES = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a viewer in a process of its own, as it prints it."""
    odd = HOSTILE.replace("\ud800", "")  # rows with half a character are refused
    make_run(folder / "plain")
    hostile = make_run(folder / "hostile", text=HOSTILE)
    for text in (HOSTILE, "x" * 500):
        add_note(notes_path(hostile, in_run=True), {"rollout": "rl/1/0/0", "label": "y" * 40, "text": text})
    (hostile / "log.txt").write_text(f"2026-11-27 10:00:00  {'z' * 500} {odd}\n" * 3)
    rows = [row_of(block, f"lr {lr}, kl {kl}", lr + kl) for block in (0, 1) for lr in (0.1, 0.2) for kl in (0, 1)]
    write_rows(folder / "grid.jsonl", rows)
    write_rows(folder / "odd.jsonl", [row_of(0, odd, 0.5, curves={odd: [[0, 1.0], [9, 2.0]]})], file=odd)
    command = [sys.executable, "-m", "ansatz", "view", str(folder), "--port", "0"]
    homes = {f"XDG_{name}_HOME": str(tmp_path_factory.mktemp(name)) for name in ("CACHE", "DATA")}
    environment = {**homes, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        yield line.removeprefix("Open ").strip()
        server.terminate()


@pytest.fixture(scope="module")
def chromium() -> Iterator[dict[bool, Any]]:
    """A context with scripts and one without. A new context takes as long as five new tabs."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=SWITCHES.split())
        yield {scripts: browser.new_context(java_script_enabled=scripts) for scripts in (True, False)}
        browser.close()


class Tab:
    """A tab that records what went wrong: errors of scripts and of the policy, and requests to another origin."""

    def __init__(
        self, contexts: dict[bool, Any], address: str, *, width: int = 1280, scheme: str = "light", scripts: bool = True
    ) -> None:
        self.origin, self.faults = address.partition("?")[0].rstrip("/"), list[str]()
        before = contexts[scripts].pages
        self.page = contexts[scripts].new_page()
        for page in before:  # last, because a window goes with its last tab
            page.close()
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=scheme)
        self.page.on("console", lambda said: self.faults.append(said.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._check)
        self.page.goto(address)

    def _check(self, request: Any) -> None:
        if not request.url.startswith((self.origin, "data:")):
            self.faults.append(request.url)

    def open(self, path: str) -> Any:
        self.page.goto(self.origin + path)
        return self.page

    def is_too_wide(self) -> bool:
        """Whether the page is wider than the window in either theme."""
        too_wide = False
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            too_wide |= self.page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
        return too_wide


PAGES = ("", "/rollouts", "/problems", "/metrics", "/health", "/recipe", "/logs", "/step/rl/1", "/group/rl/1/0")
PAGES += ("/rollout/rl/1/0/0", "/problem/p7", "/rollout/rl/4/heldout/0/0")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_no_page_has_an_error_loads_from_elsewhere_or_is_wider_than_the_window(
    chromium: dict[bool, Any], address: str, width: int, scheme: str
):
    tab = Tab(chromium, address, width=width, scheme=scheme)
    runs = [f"/run/{run}{page}" for run in ("plain", "hostile") for page in PAGES]
    for page in ["/", "/help", "/sweep/grid", "/sweep/odd", *runs]:
        shown = tab.open(page)
        assert not tab.is_too_wide(), page
        assert shown.evaluate("document.querySelectorAll('main *').length") >= 2, page
    assert tab.faults == []


@pytest.fixture(scope="module")
def files(address: str, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages in one file, by name. address: of a viewer, whose runs are there then."""
    out = tmp_path_factory.mktemp("pages")
    given = {
        "plain": [folder / "plain"],
        "hostile": [folder / "hostile"],
        "both": [folder / "plain", folder / "hostile"],
        "grid": [folder / "grid.jsonl"],
        "odd": [folder / "odd.jsonl"],
        "responses": [folder / "hostile", "--rollouts", ""],
    }
    for name, arguments in given.items():
        command = ["ansatz", "report", *map(str, arguments), "--out", str(out / f"{name}.html")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", command)
            with pytest.raises(SystemExit, match="0"):
                main()
    return {name: out / f"{name}.html" for name in given}


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_no_page_in_a_file_has_an_error_asks_for_anything_or_is_wider_than_the_window(
    chromium: dict[bool, Any], files: dict[str, Path], width: int, scheme: str
):
    for name, file in files.items():
        tab = Tab(chromium, file.as_uri(), width=width, scheme=scheme)
        assert not tab.is_too_wide(), name
        assert tab.page.evaluate("document.querySelectorAll('main *').length") > 20, name
        assert tab.page.evaluate("document.querySelectorAll('#tip').length") == 1, name  # made by the script
        assert tab.faults == [], name


def test_a_box_hides_the_responses_of_a_file_that_lack_a_word(chromium: dict[bool, Any], files: dict[str, Path]):
    tab = Tab(chromium, files["responses"].as_uri())
    cards, groups = tab.page.locator("article"), tab.page.locator("[data-group]")
    num_cards, num_groups = cards.count(), groups.count()
    assert num_cards > num_groups > 2
    tab.page.fill("#find input", "DIFFerent")
    shown = cards.filter(visible=True)
    assert 0 < shown.count() < num_cards
    assert all("different" in text for text in shown.all_inner_texts())
    assert tab.page.inner_text("#find output") == f"{shown.count()} shown"
    assert 0 < groups.filter(visible=True).count() < num_groups
    tab.page.fill("#find input", "")
    assert (cards.filter(visible=True).count(), groups.filter(visible=True).count()) == (num_cards, num_groups)
    assert tab.faults == []
    without = Tab(chromium, files["responses"].as_uri(), scripts=False)
    assert without.page.locator("#find").is_hidden()
    assert without.page.locator("article").filter(visible=True).count() == num_cards


def test_a_walk_with_the_keyboard_alone(chromium: dict[bool, Any], address: str):
    tab = Tab(chromium, address)
    keys = tab.page.keyboard
    for key, ending in (("j", ""), ("j", ""), ("Enter", "/run/plain"), ("g", ""), ("r", "/run/plain/rollouts")):
        keys.press(key)
        if ending:
            tab.page.wait_for_url(f"**{ending}")
    keys.press("/")
    keys.type("step = 4 and correct and split = train")
    keys.press("Enter")
    tab.page.wait_for_url("**q=step**")
    for key, pattern in (("j", ""), ("Enter", r"/rollout/rl/4/\d+/\d+$"), ("Escape", r"/group/rl/4/\d+$")):
        keys.press(key)
        if pattern:
            tab.page.wait_for_url(re.compile(pattern))
    tab.page.go_back()
    tab.page.go_back()
    assert tab.page.input_value("#q") == "step = 4 and correct and split = train"
    assert tab.faults == []


def test_a_key_within_the_filter_is_a_letter(chromium: dict[bool, Any], address: str):
    tab = Tab(chromium, address)
    page = tab.open("/run/plain/rollouts")
    page.focus("#q")
    page.keyboard.type("j?gh")
    assert page.input_value("#q") == "j?gh"
    assert page.url.endswith("/rollouts")


def test_brushing_a_histogram_narrows_the_filter(chromium: dict[bool, Any], address: str):
    page = Tab(chromium, address).open("/run/plain/rollouts?q=split+%3D+train")
    chart = page.locator(".histogram[data-field=tokens] svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.up()
    page.wait_for_url("**tokens*")
    assert re.fullmatch(r"\(split = train\) and tokens [\d.]+\.\.[\d.]+", page.input_value("#q"))


def test_a_page_tells_of_new_steps_and_shows_them_when_asked(chromium: dict[bool, Any], address: str, folder: Path):
    run = DemoRun(folder / "growing", steps=4, prompts=1, samples=2)
    run.begin()
    tracker = run.open_tracker()
    run.add_step(tracker, 1)
    tab = Tab(chromium, address)
    page = tab.open("/run/growing")
    assert page.locator(".news").is_hidden()
    run.add_step(tracker, 2)
    page.click("text=1 new step: show")
    page.wait_for_selector(".steps a >> text='2'")
    page.wait_for_load_state()  # the page is a new one, whose scripts may not have run yet
    page.keyboard.press(".")
    page.wait_for_selector("#live[aria-pressed=true]")
    run.add_step(tracker, 3)
    page.wait_for_selector(".steps a >> text='3'")
    assert tab.open("/run/growing/metrics").locator("#live").get_attribute("aria-pressed") == "true"
    tracker.close()
    assert tab.faults == []


def test_three_questions_are_answered_by_clicking_alone(chromium: dict[bool, Any], address: str, folder: Path):
    DemoRun(folder / "made_up", steps=8, prompts=4).write()
    tab = Tab(chromium, address, scripts=False)
    page = tab.page

    def click_through(*links: str) -> str:
        tab.open("/")
        for link in ("text=made_up", *links):
            page.click(link)
        return page.inner_text("main")

    lost = click_through(".card:has-text('Most lost') a >> nth=0")
    assert "The same response, before and after" in lost
    assert page.locator("del").count() > 0
    cut = click_through("text='Correct, but cut off'", "table.responses tbody tr a >> nth=0")
    assert "correct" in cut
    assert "cut off" in cut
    assert "the length limit" in cut
    assert "alarm" in click_through("text=Events")
    tab.open("/")
    for name in ("plain", "made_up"):
        page.check(f"[aria-label='compare {name}']")
    page.click("button")
    assert "What differs" in page.inner_text("main")
    moved = click_through("text='What one update did to their tokens'", "table.responses tbody tr a >> nth=0")
    assert "The update moved the log-prob of this response by" in moved
    assert page.locator(".tokens .u3, .tokens .d3").count() > 0
    assert tab.faults == []


def test_pages_work_without_scripts(chromium: dict[bool, Any], address: str):
    tab = Tab(chromium, address, scripts=False)
    page = tab.open("/run/plain/rollouts")
    page.fill("#q", "correct and split = train")
    page.click("button")
    page.click("table.list tbody tr:first-child a")
    assert "/rollout/" in page.url
    page.click("text=this problem over the steps")
    assert "/problem/" in page.url
    assert page.locator("svg.chart").count() == 0
    assert tab.open("/run/plain").locator("svg.chart").count() > 3
    assert "y" * 40 in tab.open("/run/hostile/rollout/rl/1/0/0").inner_text("#notes")
    assert page.locator("#note").is_hidden()
    page = tab.open("/run/hostile/logs")
    page.fill("#q", "nothing of this")
    page.click("button")
    assert "No line has this text." in page.inner_text("main")


def test_a_note_is_written_with_the_keyboard_and_is_there_after_a_reload(chromium: dict[bool, Any], address: str):
    """What is typed right after the key is text, also where it is a key."""
    tab = Tab(chromium, address)
    page = tab.open("/run/plain/rollout/rl/1/0/0")
    assert page.locator("#new-note").is_hidden()
    page.keyboard.press("n")
    page.keyboard.type("h?jn <b>guesses</b>")
    assert page.input_value("#new-note textarea") == "h?jn <b>guesses</b>"
    page.keyboard.press("Tab")
    page.keyboard.type("two words")
    page.keyboard.press("Enter")
    assert page.locator("article.note").count() == 0  # the browser names what a label is
    page.fill("[name=label]", "hack")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.note")
    for _ in range(2):
        assert page.inner_text("article.note p") == "h?jn <b>guesses</b>"
        assert page.locator("#new-note").is_hidden()
        page.reload()
    page.click("article.note a")
    page.wait_for_url("**q=label**")
    assert page.inner_text("#count").startswith("1 of ")
    assert tab.faults == []


def test_a_note_that_cannot_be_saved_stays_in_the_form(chromium: dict[bool, Any], address: str):
    page = Tab(chromium, address).open("/run/plain/rollout/rl/2/0/0")
    page.click("text=Write a note")
    page.keyboard.type("do not lose this")
    page.route("**/api/notes", lambda route: route.abort())
    page.click("#new-note button")
    page.wait_for_selector("text=The viewer does not answer, so the note is not saved.")
    page.unroute("**/api/notes")
    page.evaluate("document.querySelector('#new-note').dataset.token = 'of a viewer before'")
    page.click("#new-note button")
    page.wait_for_selector("text=The token of the page is missing, or of an earlier viewer.")
    assert page.input_value("#new-note textarea") == "do not lose this"
    left = list[str]()
    page.on("dialog", lambda dialog: (left.append(dialog.type), dialog.accept()))
    page.click("text=this problem over the steps")
    page.wait_for_url("**/problem/**")
    assert left == ["beforeunload"]


def test_a_click_on_a_token_lets_new_responses_begin_before_it(
    chromium: dict[bool, Any], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The page is that of a viewer whose checkpoint is a stand-in, shown by the browser as if its own had sent it."""
    checkpoint = make_run(tmp_path / "runs" / "plain") / "rl" / "checkpoints" / "step-000004"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").touch()
    row = {"model": "rl/checkpoints/step-000004", "sample": 0, "tokens": 3, "reason": "no_answer", "correct": False}
    row |= {"text": "x<3 so", "ends": [1, 3, 6], "logps": [-0.1, -2.0, -3.0], "truncated": False, "extracted": None}
    answer = f"import sys; sys.stdin.readline(); print({json.dumps({**row, 'reward': 0.0})!r})"
    monkeypatch.setattr(attempts, "COMMAND", [sys.executable, "-c", answer])
    library = Library([tmp_path / "runs"], cache=tmp_path / "cache")
    library.asks_models = True
    viewer = TestClient(build_app(library, token="", hosts=["testserver"]), follow_redirects=False)
    (token,) = re.findall(r"/try\?page=([\w-]+)", viewer.get("/run/plain/try").text)
    asked = {"question": "3 + 5?", "before": "", "after": row["model"]}
    headers = {"origin": "http://testserver"}
    target = viewer.post(f"/run/plain/try?page={token}", data=asked, headers=headers).headers["location"]
    while 'http-equiv="refresh"' in (html := viewer.get(target).text):
        time.sleep(0.05)
    tab = Tab(chromium, address)
    tab.page.route("**/run/plain/try", lambda route: route.fulfill(body=html, content_type="text/html"))
    page = tab.open("/run/plain/try")
    page.click("article .tokens >> text=so")
    assert page.input_value("[name=beginning]") == "x<3"
    assert page.evaluate("document.activeElement.name") == "beginning"
    assert tab.faults == []

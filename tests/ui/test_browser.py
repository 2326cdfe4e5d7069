"""The viewer in a real Chromium: keys, filters, both themes and widths, and nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("starlette", reason="the extra ui is not installed")
if shutil.which("chromium") is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

from test_sweep_pages import row_of, write_rows  # noqa: E402
from test_viewer_pages import HOSTILE, make_run  # noqa: E402

from ansatz.ui.demo import DemoRun  # noqa: E402

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
    make_run(folder / "plain")
    make_run(folder / "hostile", text=HOSTILE)
    rows = [row_of(block, f"lr {lr}, kl {kl}", lr + kl) for block in (0, 1) for lr in (0.1, 0.2) for kl in (0, 1)]
    write_rows(folder / "grid.jsonl", rows)
    odd = HOSTILE.replace("\ud800", "")  # rows with half a character are refused
    write_rows(folder / "odd.jsonl", [row_of(0, odd, 0.5, curves={odd: [[0, 1.0], [9, 2.0]]})], file=odd)
    command = [sys.executable, "-m", "ansatz", "view", str(folder), "--port", "0"]
    environment = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        yield line.removeprefix("Open ").strip()
        server.terminate()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=SWITCHES.split())
        yield browser
        browser.close()


class Tab:
    """A tab that records what went wrong: errors of scripts and of the policy, and requests to another origin."""

    def __init__(self, browser: Any, address: str, **how: Any) -> None:
        self.origin, self.faults = address.partition("?")[0].rstrip("/"), list[str]()
        self.page = browser.new_context(**how).new_page()
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


PAGES = ("", "/rollouts", "/problems", "/metrics", "/health", "/recipe", "/logs", "/step/rl/1", "/group/rl/1/0")
PAGES += ("/rollout/rl/1/0/0", "/problem/p7", "/rollout/rl/4/heldout/0/0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_has_an_error_loads_from_elsewhere_or_is_wider_than_the_window(
    chromium: Any, address: str, width: int, scheme: str
):
    tab = Tab(chromium, address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    runs = [f"/run/{run}{page}" for run in ("plain", "hostile") for page in PAGES]
    for page in ["/", "/help", "/sweep/grid", "/sweep/odd", *runs]:
        shown = tab.open(page)
        sizes = shown.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert sizes[0] <= sizes[1], page
        assert shown.evaluate("document.querySelectorAll('main *').length") >= 2, page
    assert tab.faults == []


def test_a_walk_with_the_keyboard_alone(chromium: Any, address: str):
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


def test_a_key_within_the_filter_is_a_letter(chromium: Any, address: str):
    tab = Tab(chromium, address)
    page = tab.open("/run/plain/rollouts")
    page.focus("#q")
    page.keyboard.type("j?gh")
    assert page.input_value("#q") == "j?gh"
    assert page.url.endswith("/rollouts")


def test_brushing_a_histogram_narrows_the_filter(chromium: Any, address: str):
    page = Tab(chromium, address, viewport={"width": 1280, "height": 900}).open("/run/plain/rollouts?q=split+%3D+train")
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


def test_a_page_tells_of_new_steps_and_shows_them_when_asked(chromium: Any, address: str, folder: Path):
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
    page.keyboard.press(".")
    run.add_step(tracker, 3)
    page.wait_for_selector(".steps a >> text='3'")
    assert tab.open("/run/growing/metrics").locator("#live").get_attribute("aria-pressed") == "true"
    tracker.close()
    assert tab.faults == []


def test_three_questions_are_answered_by_clicking_alone(chromium: Any, address: str, folder: Path):
    DemoRun(folder / "made_up", steps=8, prompts=4).write()
    tab = Tab(chromium, address, java_script_enabled=False)
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


def test_pages_work_without_scripts(chromium: Any, address: str):
    tab = Tab(chromium, address, java_script_enabled=False)
    page = tab.open("/run/plain/rollouts")
    page.fill("#q", "correct and split = train")
    page.click("button")
    page.click("table.list tbody tr:first-child a")
    assert "/rollout/" in page.url
    page.click("text=this problem over the steps")
    assert "/problem/" in page.url
    assert page.locator("svg.chart").count() == 0
    assert tab.open("/run/plain").locator("svg.chart").count() > 3

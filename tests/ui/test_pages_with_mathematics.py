"""Mathematics is set wherever a page shows a question, an answer or a response, and a click shows what was written."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

for _package in ("duckdb", "latex2mathml", "starlette"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from made_up import NASTY, make_pipeline, problem, scored, stored_group  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402
from test_static_pages import bare, check_static  # noqa: E402
from test_viewer_pages import HOSTILE, open_viewer  # noqa: E402

from ansatz.track.page import MAX_FORMULAS_OF_GROUP  # noqa: E402
from ansatz.track.tracker import Tracker  # noqa: E402
from ansatz.types import Reason  # noqa: E402

GROUP = "/run/one/group/rl/5/0"
SHARED = r"First $x^2$, then "
TEXTS = (
    SHARED + r"\(\frac{1}{2}\) or \[y\] #### \frac{1}{2}",
    SHARED + r"\(\frac{1}{3}\) #### $x^3$",
    SHARED + f"$\\text{{{NASTY}}}$ #### ^{HOSTILE}",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with mathematics in every place of step 5, and hostile texts beside it."""
    run = make_pipeline(tmp_path_factory.mktemp("runs") / "one", sft_steps=2, rl_steps=2)
    asked = replace(problem(index=99, answer=r"\frac{1}{2}"), question=r"What is \(2^{-1}\)?")
    group = [
        scored(asked, sample=sample, text=text, reason=Reason.DIFFERENT if sample else Reason.EQUAL)
        for sample, text in enumerate(TEXTS)
    ]
    many = " ".join(f"$x_{{{number}}}$" for number in range(70))
    large = [scored(problem(index=98), sample=sample, text=f"{sample} {many} #### 5") for sample in range(20)]
    Tracker(run / "rl", console=None, tensorboard=False, total_steps=9).samples(
        5, [stored_group(*group), stored_group(*large)]
    )
    return run


@pytest.fixture(scope="module")
def viewer(run: Path, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return open_viewer(run.parent, tmp_path_factory.mktemp("cache"))


def formulas_of(page: str) -> list[str]:
    return [unescape(text) for text in re.findall("<annotation>(.*?)</annotation>", page, re.DOTALL)]


def check_harmless(page: str) -> None:
    assert "<img" not in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e\ud800]", page)
    assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", page)


def test_the_page_of_a_group_sets_its_responses_or_shows_what_was_written(viewer: TestClient):
    page = viewer.get(GROUP).text
    check_harmless(page)
    assert formulas_of(page).count("x^2") == 3
    assert page.count('<span class="shared">') == 3
    assert {r"2^{-1}", r"\frac{1}{2}", r"\frac{1}{3}", "y", "x^3"} <= set(formulas_of(page))
    assert page.count("<pre>") == 0
    written = viewer.get(f"{GROUP}?order=tokens&text=written").text
    check_harmless(written)
    assert [unescape(re.sub("<.*?>", "", each)) for each in re.findall("<pre>(.*?)</pre>", written)][:2] == sorted(
        TEXTS[:2]
    )
    assert r"2^{-1}" in formulas_of(written)
    assert 'href="?order=tokens" data-key="t"' in written
    assert 'href="?order=reward&amp;text=written"' in written
    assert 'href="?text=written&amp;order=tokens" data-key="t"' in viewer.get(f"{GROUP}?order=tokens").text
    assert 'data-key="t"' not in viewer.get("/run/one/group/rl/1/0").text


@pytest.mark.parametrize(
    ("address", "formulas"),
    [
        ("/run/one/rollouts?q=step+%3D+5", {"x^2", r"\frac{1}{2}", r"\frac{1}{3}", "x^3"}),
        ("/run/one/problem/p99", {r"2^{-1}", r"\frac{1}{2}", "x^3"}),
        ("/run/one/rollout/rl/5/0/1", {r"2^{-1}", r"\frac{1}{2}", "x^2", r"\frac{1}{3}", "x^3"}),
        ("/run/one/rollout/rl/5/0/1?text=written", {r"2^{-1}", r"\frac{1}{2}", "x^3"}),
        ("/run/one/rollout/rl/5/0/2", {"x^2"}),
    ],
)
def test_questions_and_answers_are_set_on_every_page(viewer: TestClient, address: str, formulas: set[str]):
    page = viewer.get(address).text
    check_harmless(page)
    assert formulas <= set(formulas_of(page))


def test_a_large_group_sets_no_more_formulas_than_a_small_one(viewer: TestClient):
    page = viewer.get("/run/one/group/rl/5/1").text
    assert page.count("<math") == MAX_FORMULAS_OF_GROUP
    assert page.count("$x_{69}$") == 20


def test_a_page_in_a_file_has_it_set_if_it_can_be_set_and_written_otherwise(run: Path, tmp_path: Path):
    names = [tmp_path / name for name in ("set.html", "written.html")]
    command = ["rollouts", run, "--where", "problem = p99", "--html"]
    done = subprocess.run([sys.executable, "-m", "ansatz", *map(str, command), str(names[0])], check=False)
    assert done.returncode == 0
    assert bare(*command, names[1]).returncode == 0
    pages = [name.read_text(encoding="utf-8") for name in names]
    for page in pages:
        check_static(page)
    assert {r"2^{-1}", r"\frac{1}{2}", r"\frac{1}{3}", "x^2", "x^3", "y"} <= set(formulas_of(pages[0]))
    assert "<math" not in pages[1]
    assert [unescape(re.sub("<.*?>", "", each)) for each in re.findall("<pre>(.*?)</pre>", pages[1])][:2] == [
        *TEXTS[:2]
    ]

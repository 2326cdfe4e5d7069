from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up import LEVELS, NASTY, make_pipeline

from ansatz.track.console import results_table
from ansatz.track.report import write_report

VOID = {"meta", "img", "br", "link", "input", "hr"}
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


class Page(HTMLParser):
    """Text outside of scripts and styles, all tags with their attributes, and the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def report(pipeline: Path) -> str:
    return write_report(pipeline).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(report: str) -> Page:
    return Page(report)


def test_the_page_is_well_formed(page: Page):
    assert page.unbalanced == []
    assert page.open == []
    assert sum(tag == "h1" for tag, _ in page.tags) == 1


def test_every_number_of_every_evaluation_stands_in_the_page(pipeline: Path, page: Page):
    evaluations = json.loads((pipeline / "summary.json").read_text())["evaluations"]
    assert len(evaluations) >= 3
    for row in evaluations:
        shares = [row["pass@1"], *row["pass@1_interval"], row["greedy"], row["pass@k"], row["maj@k"]]
        for share in [*shares, row["truncated_frac"]]:
            assert f"{100 * share:.1f} %" in page.text
        assert f"{row['mean_length']:.1f}" in page.text
    for row in (evaluations[0], evaluations[1], evaluations[-1]):
        for level in LEVELS:
            numbers = row["by_level"][level]
            for share in (numbers["pass@1"], *numbers["pass@1_interval"], numbers["greedy"]):
                assert f"{100 * share:.1f} %" in page.text


def test_a_table_row_has_the_numbers_of_its_own_evaluation(pipeline: Path, report: str):
    last = json.loads((pipeline / "summary.json").read_text())["evaluations"][-1]
    (row,) = [
        line for line in re.findall(r"<tr.*?</tr>", report) if f'scope="row">rl</th><td>{last["step"]}</td>' in line
    ]
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells[1] == f"{100 * last['pass@1']:.1f} %"
    assert cells[3:6] == [f"{100 * last[name]:.1f} %" for name in ("greedy", "pass@k", "maj@k")]


def test_it_loads_nothing(page: Page, report: str):
    loading = {"src", "href", "srcset", "data", "action", "poster", "xlink:href"}
    assert [(tag, attrs) for tag, attrs in page.tags if loading & set(attrs)] == []
    assert "@import" not in report
    assert "url(" not in report
    (policy,) = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_script_text_in_an_event_stays_text(tmp_path: Path):
    folder = make_pipeline(tmp_path / "run", sft_steps=2, rl_steps=2)
    event = {"step": 1, "kind": "alarm", "text": NASTY}
    (folder / "rl" / "events.jsonl").write_text(json.dumps(event) + "\n")
    report = write_report(folder).read_text(encoding="utf-8")
    page = Page(report)
    assert NASTY in page.text
    assert NASTY not in report
    assert len(page.scripts) == 1
    assert "alert" not in page.scripts[0]
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]


def test_curves_of_every_stage_and_metric_are_drawn(page: Page):
    titles = [attrs.get("aria-label") or "" for tag, attrs in page.tags if tag == "svg"]
    for wanted in ("held-out", "pass@1 by level", "Reward", "Response length", "Entropy", "Sampler", "Clipped"):
        assert any(wanted in title for title in titles), wanted
    for wanted in ("Gradient norm", "Time of a step", "rollout/verdict/different", "data/tried_frac"):
        assert any(wanted in title for title in titles), wanted
    assert "Repetition" in page.text


def test_the_config_is_there_and_folded_away(page: Page, report: str):
    assert "prompts_per_step: 32" in page.text
    assert "<details><summary>The resolved recipe" in report


def test_the_files_that_were_trained_on_are_named_with_their_decontamination(tmp_path: Path):
    folder = make_pipeline(tmp_path / "run", sft_steps=4, rl_steps=4)
    assert "What was trained on" not in write_report(folder).read_text()
    done = {"against": ["math500.jsonl", "a<b.jsonl"], "dropped": 12, "rows": 7500}
    by_ngrams = {**done, "rule": "ngram", "ngram": 10}
    files = {"train": [{"path": "clean.jsonl", "decontaminated": [done]}, {"path": "raw.jsonl", "decontaminated": []}]}
    files["train"].append({"path": "ten.jsonl", "decontaminated": [by_ngrams]})
    (folder / "problems" / "decontamination.json").write_text(json.dumps(files))
    page = write_report(folder).read_text()
    against = "decontaminated against math500.jsonl, a&lt;b.jsonl, 12 of 7500 rows removed"
    assert f"<li>train: clean.jsonl: {against}</li>" in page
    assert "<li>train: raw.jsonl: no decontamination report</li>" in page
    assert "ten.jsonl: decontaminated by 10-grams against math500.jsonl" in page


def test_a_pipeline_at_work_has_a_report_too(tmp_path: Path):
    folder = make_pipeline(tmp_path / "half", sft_steps=3, rl_steps=2, done=False)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "still in progress" in page.text
    assert page.unbalanced == []


def test_a_pipeline_before_its_first_step_has_a_report_too(tmp_path: Path):
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "config.yaml").write_text("x: 1\n")
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "No evaluation yet" in page.text


def test_a_name_with_markup_is_escaped(tmp_path: Path):
    folder = make_pipeline(tmp_path / "a<b>&c", sft_steps=2, rl_steps=2)
    text = write_report(folder).read_text(encoding="utf-8")
    assert "a<b>" not in text
    assert html.escape("a<b>&c") in text


def test_writing_again_gives_the_same_bytes(pipeline: Path, report: str):
    assert write_report(pipeline).read_text(encoding="utf-8") == report
    assert not list(pipeline.glob("*.partial"))


def test_a_browser_renders_it_and_its_script_runs(pipeline: Path, tmp_path: Path):
    if BROWSER is None or subprocess.run([BROWSER, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no working chromium on this machine: the report is parsed above, but not rendered")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    report = write_report(pipeline)
    result = subprocess.run(
        [BROWSER, *flags, "--dump-dom", report.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert 'id="tip"' in result.stdout  # made by the script: its policy lets it run
    assert "Content Security Policy" not in result.stderr


@pytest.mark.parametrize("extra", [{}, {"pass@1_interval": None}])
def test_an_evaluation_without_an_interval_is_drawn_without_a_band(tmp_path: Path, extra: dict[str, None]):
    names = ("pass@1", "greedy", "pass@k", "maj@k", "mean_length", "truncated_frac")
    row = {"stage": "rl", "step": 3, "split": "heldout", **dict.fromkeys(names, 0.5), **extra}
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl" / "evaluations.jsonl").write_text(json.dumps(row) + "\n")
    assert 'class="dot s0"' in write_report(tmp_path).read_text()
    results_table([row])

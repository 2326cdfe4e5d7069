"""Every address of the viewer over HTTP: on whole, old, damaged and running runs, and with hostile text in them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest

for _package in ("duckdb", "starlette"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from made_up import NASTY, make_pipeline, problem, scored, stored_group  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from ansatz.data.pairs import pair_of  # noqa: E402
from ansatz.data.store import write_problems  # noqa: E402
from ansatz.evaluate import comparisons  # noqa: E402
from ansatz.evaluate.comparisons import compare_sides  # noqa: E402
from ansatz.evaluate.responses import response_of, to_row  # noqa: E402
from ansatz.locks import folder_lock  # noqa: E402
from ansatz.track.jsonl import read_jsonl, write_jsonl  # noqa: E402
from ansatz.track.rollout_rows import rollout_row  # noqa: E402
from ansatz.track.rollout_table import read_all  # noqa: E402
from ansatz.track.token_file import TokenFacts  # noqa: E402
from ansatz.track.tracker import Tracker  # noqa: E402
from ansatz.types import Reason, problem_row  # noqa: E402
from ansatz.ui import response_pages  # noqa: E402
from ansatz.ui.app import COOKIE, build_app  # noqa: E402
from ansatz.ui.demo import DemoRun  # noqa: E402
from ansatz.ui.index import RolloutIndex  # noqa: E402
from ansatz.ui.library import Library  # noqa: E402
from ansatz.ui.response_pages import _narrow  # noqa: E402

HOSTILE = f"\x1b[31m\u202e\x00{NASTY}{{{{7*7}}}}\ud800 \"'&<b>"


def make_run(folder: Path, *, text: str = "4 x 3 = 12. #### 12", level: str = "2") -> Path:
    """A run with training, two evaluations of the same problems, and the given text in a response of each."""
    run = make_pipeline(folder, sft_steps=3, rl_steps=4)
    asked = problem(index=7, level=level, answer="12")
    write_jsonl(run / "problems" / "heldout.jsonl", [{**problem_row(asked), "question": text}])
    for step, reason in ((2, Reason.EQUAL), (4, Reason.DIFFERENT)):
        of = scored(asked, text=text, reason=reason, reward=float(reason is Reason.EQUAL))
        rows = [rollout_row(of, group=f"rl/{step}/heldout/0", noise_step=0, temperature=each) for each in (1.0, 0.0)]
        write_jsonl(run / "rl" / "evaluations" / f"heldout-{step:06d}.jsonl", rows)
    return run


def open_viewer(folder: Path, cache: Path, *, token: str = "") -> TestClient:
    app = build_app(Library([folder], cache=cache), token=token, hosts=["testserver"])
    return TestClient(app, raise_server_exceptions=True, follow_redirects=False)


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "whole")
    make_run(folder / "hostile", text=HOSTILE, level="<i>1</i>")
    nasty = stored_group(scored(problem(level="<i>1</i>"), text=HOSTILE, parts={NASTY: 1.0}))
    Tracker(folder / "hostile" / "rl", console=None, tensorboard=False, total_steps=9).samples(5, [nasty])
    torn = make_pipeline(folder / "torn", sft_steps=2, rl_steps=2, done=False)
    for path in (torn / "rl" / "metrics.jsonl", torn / "rl" / "samples" / "step-000002.jsonl"):
        path.write_text(path.read_text()[:-30])
    broken = make_pipeline(folder / "broken", sft_steps=2, rl_steps=2)
    (broken / "rl" / "metrics.jsonl").write_text('{"step": "many"}\n')
    (folder / "outside").symlink_to("/usr")
    return open_viewer(folder, tmp_path_factory.mktemp("cache"))


def addresses(run: str) -> list[str]:
    pages = ["", "/rollouts", "/problems", "/metrics", "/health", "/recipe", "/logs", "/step/rl/1"]
    pages += ["/group/rl/1/0", "/rollout/rl/1/0/0", "/rollouts?q=correct+and+tokens+%3E+3&sort=-reward"]
    return [f"/run/{run}{page}" for page in pages]


@pytest.mark.parametrize("run", ["whole", "hostile", "torn"])
def test_every_page_of_every_kind_of_run_is_there(viewer: TestClient, run: str):
    for address in ["/", "/help", *addresses(run)]:
        answer = viewer.get(address)
        assert answer.status_code == 200, f"{address}: {answer.text[:500]}"
        assert answer.text.count("<h1>") == 1
        assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_a_run_that_cannot_be_read_is_a_notice_and_hides_no_other(viewer: TestClient):
    page = viewer.get("/").text
    assert "which no run writes" in unescape(page)
    assert all(f'href="/run/{name}"' in page for name in ("whole", "torn", "broken"))
    answer = viewer.get("/run/broken")
    assert (answer.status_code, "metrics.jsonl" in answer.text) == (400, True)


def test_the_runs_of_a_sweep_are_there_with_the_names_of_their_blocks(tmp_path: Path):
    """Two blocks have runs of one name. Folders of a stage are no runs, and a link to a folder is not followed."""
    outside = make_run(tmp_path / "outside" / "deep" / "secret")
    for block in (0, 1):
        make_run(tmp_path / "runs" / "sweeps" / f"block-{block:04d}" / "control")
    make_run(tmp_path / "runs" / "own")
    (tmp_path / "runs" / "link").symlink_to(outside.parents[1])
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    names = re.findall(r'href="/run/([^"/]+)"', viewer.get("/").text)
    assert sorted(set(names)) == ["block-0000-control", "block-0001-control", "own"]
    assert viewer.get("/run/block-0001-control/rollouts").status_code == 200
    assert viewer.get("/run/secret").status_code == 404


@pytest.mark.parametrize("number", ["\u00b2", "\u0661", "9" * 5000, "-1", "x", ""])
def test_a_number_of_an_address_that_is_not_one_is_as_if_it_were_missing(viewer: TestClient, number: str):
    for address in ("/run/whole/rollouts?page=", "/run/whole/rollout/rl/1/0/0?w="):
        assert viewer.get(address + number).status_code == 200
    assert viewer.get(f"/run/whole/group/rl/{number}/0").status_code in (400, 404)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"changes": 5}', "\ud800"])
def test_a_damaged_run_json_does_not_hide_the_recipe(tmp_path: Path, text: str):
    run = make_run(tmp_path / "runs" / "run")
    (run / "run.json").write_bytes(text.encode(errors="surrogatepass"))
    answer = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/run/run/recipe")
    assert answer.status_code == 200
    assert "seed" in answer.text


def test_hostile_text_stays_text_wherever_it_is_shown(viewer: TestClient):
    pages = [
        *addresses("hostile"),
        "/run/hostile/problem/p7",
        "/run/hostile/rollout/rl/5/0/0",
        "/run/hostile/group/rl/5/0",
    ]
    shown = 0
    for address in pages:
        page = viewer.get(address).text
        shown += "&lt;img" in page
        assert "<img" not in page, address
        assert "<i>" not in page, address
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e\ud800]", page), address
        assert "{49}" not in page, address
        assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", page), address
        assert not re.search(r"\son\w+=|\sstyle=", re.sub(r">[^<]*<", "><", page)), address
    assert shown >= 5


def test_a_page_of_responses_counts_and_exports_what_the_reader_reads(viewer: TestClient):
    rows = read_all(next(iter(viewer.app.state.library.folders)) / "whole")
    chosen = sorted(row["id"] for row in rows if row["correct"] and row["split"] == "train")
    query = "q=correct+and+split+%3D+train"
    assert f"<b>{len(chosen)}</b> of {len(rows)} responses" in viewer.get(f"/run/whole/rollouts?{query}").text
    table = csv.DictReader(io.StringIO(viewer.get(f"/run/whole/rollouts.csv?{query}").text))
    assert sorted(row["id"] for row in table) == chosen
    lines = viewer.get(f"/run/whole/rollouts.jsonl?{query}").text.splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == chosen


def test_facets_speak_in_words_and_narrow_the_filter(viewer: TestClient):
    page = viewer.get("/run/whole/rollouts?q=split+%3D+train").text
    counted = dict(re.findall(r"<span>([a-z ]+)</span><span>(\d+)</span>", page))
    rows = [row for row in read_all(viewer.app.state.library.folders[0] / "whole") if row["split"] == "train"]
    assert int(counted["correct"]) == sum(row["correct"] for row in rows)
    assert int(counted["different"]) == sum(row["reason"] == "different" for row in rows)
    narrowed = next(line for line in page.splitlines() if "<span>different</span>" in line)
    link = unescape(narrowed.partition('href="')[2].partition('"')[0])
    found = viewer.get(f"/run/whole/rollouts{link}").text
    assert f"<b>{counted['different']}</b> of" in found


@pytest.mark.parametrize(
    ("text", "narrowed"),
    [
        ("", 'level = "5"'),
        ("correct OR truncated", '(correct OR truncated) and level = "5"'),
        ("sort:-tokens", 'level = "5" sort:-tokens'),
        ("correct sort:-tokens", '(correct) and level = "5" sort:-tokens'),
        ('sort:-tokens text ~ "a  b"', '(text ~ "a  b") and level = "5" sort:-tokens'),
    ],
)
def test_a_facet_narrows_the_whole_filter_and_keeps_its_order(text: str, narrowed: str):
    assert _narrow(text, "level", "5") == narrowed


def test_the_winner_of_a_comparison_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparisons, "conclusion", lambda numbers: "A is better: +10.0 points.")
    for number, name in ((1, "qwen-0.5B"), (5, "qwen-1.5B")):
        DemoRun(tmp_path / "runs" / name, steps=8, prompts=number).write()
    page = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/compare?runs=qwen-0.5B,qwen-1.5B").text
    assert "<p>qwen-0.5B is better: +10.0 points." in page


def test_an_export_that_would_be_cut_off_is_refused(viewer: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(response_pages, "MAX_EXPORTED", 2)
    answer = viewer.get("/run/whole/rollouts.csv")
    assert answer.status_code == 400
    assert "more than the 2 that a page exports" in answer.text


def test_a_wrong_filter_is_explained_on_the_page(viewer: TestClient):
    answer = viewer.get("/run/whole/rollouts?q=trunctaed")
    assert answer.status_code == 200
    assert "did you mean 'truncated'" in unescape(answer.text)
    refused = "no response has the reward 'units'; the rewards are accuracy"
    for query in ("q=parts.units+%3D+1", "sort=-parts.units"):
        assert refused in unescape(viewer.get(f"/run/whole/rollouts?{query}").text)
    assert "no response has" not in viewer.get("/run/whole/rollouts?q=parts.accuracy+%3D+1&sort=-parts.accuracy").text
    assert viewer.get("/run/whole/rollouts?q=text+~+%22(%3F%3D4)%22").status_code == 400
    assert "No response passes" in viewer.get("/run/whole/rollouts?q=tokens+%3C+0&page=9").text


def test_what_training_did_to_a_problem_is_shown_word_by_word(viewer: TestClient):
    assert "/run/whole/problem/p7" in viewer.get("/run/whole/problems").text
    page = viewer.get("/run/whole/problem/p7?sample=0").text
    assert "rl, step 2" in page
    assert "The same response, before and after" in page


def test_only_evaluations_are_compared_and_noise_is_called_equal_only_if_it_is(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    for number in (1, 2):
        of = scored(problem(index=7), text=f"round {number}")
        row = to_row(response_of(of.rollout, {"strict": of.score.verdict}))
        write_jsonl(run / f"rejection_{number}" / "responses" / "rollouts.jsonl", [row])
    page = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/run/run/problem/p7").text
    kinds = re.findall(r'step \d+</a></th><td class="minor">(\w+)</td>', page)
    assert kinds == ["training", "training", "evaluation", "evaluation"]
    assert '<option value="rejection' not in page
    assert "Sampled with the same noise, so what differs comes from the weights." in page
    path = run / "rl" / "evaluations" / "heldout-000004.jsonl"
    write_jsonl(path, [{**row, "seed": 1} for row in read_jsonl(path)])
    page = open_viewer(tmp_path / "runs", tmp_path / "again").get("/run/run/problem/p7?sample=0").text
    assert "Sampled with other noise, so chance is part of what differs." in page


def test_responses_that_a_page_leaves_out_are_counted_and_no_group_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = make_run(tmp_path / "runs" / "run")
    os.utime(run / "rl" / "evaluations" / "heldout-000002.jsonl", (1e9, 1e9))
    monkeypatch.setattr(response_pages, "MAX_OF_GROUP", 3)
    monkeypatch.setattr(response_pages, "MAX_OF_PROBLEM", 3)
    monkeypatch.setattr("ansatz.ui.pages.MAX_OF_STEP", 10)
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    page = viewer.get("/run/run/group/rl/1/0").text
    assert "Only the first 3 of 4 responses are shown." in page
    assert page.count("<article") == 3
    page = viewer.get("/run/run/problem/p7").text
    assert "Only the newest 2 of 4 responses are shown." in page
    assert re.findall(r'<td class="minor">\w+</td><td>(\d of \d)</td>', page) == ["0 of 2"]
    page = viewer.get("/run/run/step/rl/1").text
    assert "Only the first 8 of 32 responses are shown." in page
    assert page.count(" data-row>") == 2


def test_lists_say_how_much_they_leave_out(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    tracker = Tracker(run / "rl", console=None, tensorboard=False, total_steps=9)
    tracker.samples(5, [stored_group(scored(problem(index=150, level=str(number)))) for number in range(42)])
    for number in range(6):
        tracker.event(5, "alarm", f"event {number}")
    for step, reason in ((2, Reason.EQUAL), (4, Reason.DIFFERENT)):
        rows = [
            rollout_row(
                scored(problem(index=number), reason=reason),
                group=f"rl/{step}/heldout/{number}",
                noise_step=0,
                temperature=1.0,
            )
            for number in range(201)
        ]
        write_jsonl(run / "rl" / "evaluations" / f"heldout-{step:06d}.jsonl", rows)
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    assert "Only the newest 40 of 43 groups are shown." in viewer.get("/run/run/group/rl/5/0").text
    assert "Only the newest 5 of 6 events are shown." in viewer.get("/run/run").text
    assert "Only the first 200 of 201 problems are shown." in viewer.get("/run/run/problems").text
    listed = viewer.get("/run/run/rollouts?q=step+%3D+5").text
    assert listed.count("Only the most frequent 12 values are shown.") == 1
    assert "are shown" not in viewer.get("/run/run/rollouts?q=step+%3D+1").text


def test_the_verdict_is_asked_again_in_every_mode(viewer: TestClient):
    page = viewer.get("/run/whole/rollout/rl/4/heldout/0/0").text
    assert "no answer" in page
    assert page.count("✓ correct") == 2  # of anchored and last_number; strict wants a box


@pytest.mark.parametrize(
    "address",
    [
        "/run/nothing",
        "/run/outside",
        "/run/..%2f..%2fetc",
        "/run/whole/group/rl/1/99",
        "/run/whole/group/x",
        "/run/whole/rollout/rl/1",
        "/run/whole/problem/none",
        "/run/whole/step/rl/99",
        "/run/whole/rollouts.exe",
        "/static/..%2fapp.py",
        "/static/app.py",
        "/compare?runs=whole,none",
        "/compare?runs=whole&runs=whole",
    ],
)
def test_what_is_not_there_is_not_found(viewer: TestClient, address: str):
    assert viewer.get(address).status_code == 404


def test_runs_are_compared_on_one_page(viewer: TestClient):
    page = viewer.get("/compare?runs=whole,torn").text
    assert "What differs" in page
    assert viewer.get("/compare?runs=whole&runs=torn").text == page  # as the boxes of a form are sent


def test_a_comparison_has_the_numbers_of_ansatz_compare_and_leads_to_problems(tmp_path: Path):
    runs = [DemoRun(tmp_path / "runs" / f"run{number}", steps=8, prompts=number).write() for number in (1, 5)]
    (numbers,) = compare_sides(runs, mode="", num_changed=20)
    page = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/compare?runs=run1,run5").text
    row = re.findall(r'<th scope="row">all</th>(.*?)</tr>', page)[0]
    low, high = (f"{100 * end:+.1f}" for end in numbers["difference_interval"])
    assert re.findall("<td>(.*?)</td>", row) == [
        str(numbers["num_problems"]),
        f"{100 * numbers['a']:.1f} %",
        f"{100 * numbers['b']:.1f} %",
        f"{100 * numbers['difference']:+.1f}",
        f"{low} to {high}",
        str(numbers["wins_b"]),
        str(numbers["wins_a"]),
        f"{numbers['p_value']:.3f}",
    ]
    assert numbers["changed"]
    assert all(f'href="/run/run5/problem/{row["id"]}"' in page for row in numbers["changed"])


def test_curves_can_be_cut_to_some_steps(viewer: TestClient):
    def steps(query: str) -> set[str]:
        charts = unescape(viewer.get(f"/run/whole/metrics{query}").text)
        return set(re.findall(r'"(step \d+)"', charts))

    assert steps("") == {"step 1", "step 2", "step 3", "step 4"}
    assert steps("?from=2&to=3") == {"step 2", "step 3"}
    assert steps("?from=4") == {"step 4"}
    assert steps("?to=1&from=x") == {"step 1"}
    assert steps("?from=9") == set()


def test_the_reward_of_each_step_is_on_its_text(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    of = scored(text="First <b>.\nThen $x^2$.\nRest")
    rewarded = replace(of, score=replace(of.score, steps=((10, 0.25), (22, -1.0))))
    tracker = Tracker(run / "rl", console=None, tensorboard=False, total_steps=9)
    tracker.samples(5, [stored_group(rewarded)])
    page = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/run/run/rollout/rl/5/0/0").text
    items = re.findall("<li>(.*?)</li>", page)
    assert [("First &lt;b&gt;." in items[0], "▲ 0.25" in items[0]), ("<msup>" in items[1], "▼ -1" in items[1])] == [
        (True, True),
        (True, True),
    ]
    assert "Rest</span><span" in items[2]
    assert "Show it as written" in page
    assert "$x^2$" in open_viewer(tmp_path / "runs", tmp_path / "c").get("/run/run/rollout/rl/5/0/0?text=written").text


def test_the_pairs_of_a_preference_stage_are_shown_word_by_word(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    pairs = [pair_of(problem(index=n), chosen=f"It is {n}.", rejected="<b>No</b>") for n in range(25)]
    write_problems(run / "sft" / "pairs.jsonl", pairs)
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    assert 'href="/run/run/pairs/sft"' in viewer.get("/run/run").text
    first, second = (viewer.get(f"/run/run/pairs/sft?page={page}").text for page in (1, 2))
    assert (first.count("✓ chosen"), second.count("✓ chosen")) == (20, 5)
    assert "<ins>It is 24.</ins>" in second
    assert "<del>&lt;b&gt;No&lt;/b&gt;</del>" in second
    assert viewer.get("/run/run/pairs/rl").status_code == 404


def test_a_labelled_response_is_shown_alone_as_chosen_or_rejected(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    rows = [replace(problem(index=n), solution=f"It is {n}.", meta={"labels": [float(n == 7)]}) for n in (6, 7)]
    write_problems(run / "sft" / "pairs.jsonl", rows)
    page = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/run/run/pairs/sft").text
    good, bad = page.index("✓ chosen"), page.index("✗ rejected")
    assert bad < page.index("It is 6.") < good < page.index("It is 7.")
    assert (page.count("✓ chosen"), page.count("✗ rejected")) == (1, 1)
    assert "<ins>" not in page
    assert "<del>" not in page


def test_the_state_says_how_far_a_run_is_and_changes_only_with_its_files(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    before = viewer.get("/api/run/run/state").json()
    assert before["runs"] == {"run": {"state": "done", "steps": {"problems": 0, "model": 0, "sft": 3, "rl": 4}}}
    assert f'data-version="{before["version"]}"' in viewer.get("/run/run/health").text
    assert viewer.get("/api/run/run/state").json() == before
    tracker = Tracker(run / "rl", console=None, tensorboard=False, total_steps=9)
    tracker.log(5, {"train/loss": 0.5})
    after = viewer.get("/api/run/run/state").json()
    assert after["runs"]["run"]["steps"]["rl"] == 5
    assert after["version"] != before["version"]
    assert viewer.get("/api/state").json()["runs"] == after["runs"]
    tracker.samples(5, [stored_group(scored())])
    assert viewer.get("/api/run/run/state").json()["version"] != after["version"]


def test_a_run_without_a_step_is_running_while_it_writes_or_its_process_lives(tmp_path: Path):
    run = tmp_path / "run"
    files = [run / "config.yaml", run / "model" / "config.yaml", run / "log.txt"]
    files[1].parent.mkdir(parents=True)
    for file in files:
        file.write_text("name: run\n")
    library = Library([tmp_path])

    def state() -> str:
        return library.summarise("run", run).state

    assert state() == "running"
    for file in files:
        os.utime(file, (1e9, 1e9))
    assert state() == "killed"
    with folder_lock(run):
        assert state() == "running"
    assert state() == "killed"
    (run / "log.txt").write_text("model  evaluation at step 0: 3 of 9 groups of responses\n")
    assert state() == "running"


def test_a_run_that_grows_shows_its_new_step(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "growing")
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    assert viewer.get("/run/growing/step/rl/5").status_code == 404
    tracker = Tracker(run / "rl", console=None, tensorboard=False, total_steps=9)
    tracker.log(5, {"train/loss": 0.5})
    tracker.samples(5, [stored_group(scored(text="new words"))])
    viewer.app.state.library.open_index(run).refresh(every_s=0)
    assert viewer.get("/run/growing/step/rl/5").status_code == 200
    assert "new words" in viewer.get("/run/growing/rollouts?q=%22new+words%22").text


def test_pages_wait_for_files_that_are_still_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run, begin, read_files = make_run(tmp_path / "runs" / "run"), threading.Event(), RolloutIndex._read_all

    def read_later(index: RolloutIndex, *files: Any) -> None:
        begin.wait(60)
        read_files(index, *files)

    monkeypatch.setattr(RolloutIndex, "_read_all", read_later)
    monkeypatch.setitem(RolloutIndex.refresh.__kwdefaults__, "wait_s", 0.0)
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    pages = ["rollouts.csv", "rollouts.jsonl", "step/rl/1", "group/rl/1/0", "rollout/rl/1/0/0", "problem/p7"]
    for page in pages:
        answer = viewer.get(f"/run/run/{page}")
        assert (answer.status_code, "are still being read" in answer.text) == (503, True), page
        assert ('<meta http-equiv="refresh" content="2">' in answer.text, answer.headers["retry-after"]) == (True, "2")
    assert "are still being read" in viewer.get("/run/run/rollouts").text
    begin.set()
    viewer.app.state.library.open_index(run)._reading.join(60)
    for page in pages:
        assert viewer.get(f"/run/run/{page}").status_code == 200, page


def test_a_run_that_gets_the_name_of_another_one_is_shown_with_its_own_responses(tmp_path: Path):
    make_run(tmp_path / "old" / "x", text="old words")
    (tmp_path / "runs").mkdir()
    library = Library([tmp_path / "runs", tmp_path / "old"], cache=tmp_path / "cache")
    viewer = TestClient(build_app(library, token="", hosts=["testserver"]))
    assert "old words" in viewer.get("/run/x/rollout/rl/4/heldout/0/0").text
    make_run(tmp_path / "runs" / "x", text="new words")
    for name, words in (("x", "new words"), ("old-x", "old words")):
        assert words in viewer.get(f"/run/{name}/rollout/rl/4/heldout/0/0").text


def test_the_token_opens_the_door_once_and_the_cookie_keeps_it_open(tmp_path: Path):
    make_run(tmp_path / "runs" / "run")
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache", token="secret")
    assert viewer.get("/").status_code == 403
    assert viewer.get("/?token=wrong").status_code == 403
    answer = viewer.get("/run/run/rollouts?q=correct&token=secret")
    assert (answer.status_code, answer.headers["location"]) == (303, "/run/run/rollouts?q=correct")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in (COOKIE, "HttpOnly", "SameSite=strict", "Path=/"))
    assert viewer.get("/").status_code == 200


def test_viewers_on_two_ports_of_a_host_do_not_lock_each_other_out(tmp_path: Path):
    """A browser sends the cookies of a host to all of its ports."""
    viewers = {port: open_viewer(tmp_path, tmp_path / "cache", token=f"token{port}") for port in (7790, 7791)}
    cookies = list[str]()
    for port, viewer in viewers.items():
        answer = viewer.get(f"/?token=token{port}", headers={"host": f"localhost:{port}"})
        cookies.append(answer.headers["set-cookie"].partition(";")[0])
        viewer.cookies.clear()
    for port, viewer in viewers.items():
        headers = {"host": f"localhost:{port}", "cookie": "; ".join(cookies)}
        assert viewer.get("/", headers=headers).status_code == 200


def test_another_name_of_the_host_and_another_method_are_refused(viewer: TestClient):
    assert viewer.get("/", headers={"host": "evil.example"}).status_code == 421
    assert viewer.get("/", headers={"host": "localhost:7790"}).status_code == 200
    assert viewer.get("/", headers={"host": "localhost.evil.example:80"}).status_code == 421
    assert viewer.post("/").status_code == 405
    assert viewer.delete("/run/whole").status_code == 405


def test_the_tokens_of_a_response_show_what_the_update_did_to_them(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    before = [-1.0, -2.0, -0.1]
    facts = TokenFacts([1, 2, 3], [1, 3, 5], before, before, after=[-0.5, -2.25, -0.1], entropies=[0.5, 1.5, 0.0])
    group = stored_group(scored(text="<a>b"))
    seen = [{"advantage": 0.5, "mismatch_mean": 0.5, "mismatch_max": 1.25, "mean_entropy": 0.75, "clip_share": 0.25}]
    stored = replace(group, seen=seen, tokens=[facts])
    Tracker(run / "rl", console=None, tensorboard=False, total_steps=9).samples(5, [stored])
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    page = viewer.get("/run/run/rollout/rl/5/0/0").text
    assert "by <b>+0.25</b> nats in all, in the direction of its advantage of +0.5" in page
    assert (
        '<span class="u3" title="token 0: +0.5">&lt;</span><span class="d3" title="token 1: -0.25">a&gt;</span>' in page
    )
    assert 'title="token 1: -2"' in viewer.get("/run/run/rollout/rl/5/0/0?color=probability").text
    assert 'title="token 1: +1.5"' in viewer.get("/run/run/rollout/rl/5/0/0?color=entropy").text
    assert "color=reference" not in page  # the run has none
    assert "<dt>largest mismatch</dt><dd>1.25</dd>" in page
    forced = facts._replace(sampled=[True, False, True])
    Tracker(run / "rl", console=None, tensorboard=False, total_steps=9).samples(6, [replace(stored, tokens=[forced])])
    page = open_viewer(tmp_path / "runs", tmp_path / "again").get("/run/run/rollout/rl/6/0/0?color=reference")
    assert page.status_code == 200
    assert "against the reference" not in page.text
    assert "nan" not in page.text
    (line,) = viewer.get(
        "/run/run/rollouts.jsonl?q=mismatch_max > 1 and clip_share = 0.25 and step = 5"
    ).text.splitlines()
    assert json.loads(line)["id"] == "rl/5/0/0"
    (run / "rl" / "samples" / "step-000005.tokens.npy").write_bytes(b"\x93NUMPY rubbish")
    answer = viewer.get("/run/run/rollout/rl/5/0/0")
    assert answer.status_code == 200
    assert "The responses themselves are whole" in answer.text


def test_windows_of_the_tokens_of_a_response_lead_to_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run, logps = make_run(tmp_path / "runs" / "run"), [-1.0, -2.0, -0.1]
    facts = TokenFacts([1, 2, 3], [1, 3, 5], logps, logps, after=[-0.5, -2.25, -0.1], entropies=[0.5, 1.5, 0.0])
    stored = replace(stored_group(scored(text="<a>b")), tokens=[facts])
    Tracker(run / "rl", console=None, tensorboard=False, total_steps=9).samples(5, [stored])
    monkeypatch.setattr("ansatz.ui.response.MAX_TOKENS", 2)
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")

    def links(query: str = "") -> list[tuple[str, str]]:
        page = viewer.get(f"/run/run/rollout/rl/5/0/0{query}").text
        return re.findall(r'&amp;w=(\d+)">(\w+)</a>', page)

    assert links() == links("?w=3") == [("2", "Next")]
    assert links("?w=2") == links("?w=1") == [("0", "Previous")]


def test_no_link_leads_to_a_page_that_is_not_there(viewer: TestClient, tmp_path: Path):
    assert "Next group" in viewer.get("/run/whole/group/rl/1/6").text
    for last in ("rl/1/7", "rl/4/heldout/0"):
        assert "Next group" not in viewer.get(f"/run/whole/group/{last}").text
    run = make_run(tmp_path / "runs" / "run")
    for folder in ("samples", "evaluations"):
        shutil.rmtree(run / "rl" / folder)
    page = open_viewer(tmp_path / "runs", tmp_path / "cache").get("/run/run/problems")
    assert (page.status_code, "Two evaluations with stored responses are needed" in page.text) == (200, True)


@pytest.mark.parametrize("run", ["whole", "hostile", "torn"])
def test_what_a_page_is_made_of_is_there_as_json(viewer: TestClient, run: str):
    for address in ["/", "/help", *addresses(run)]:
        answer = viewer.get(f"/api{address}")
        assert answer.status_code == 200, f"{address}: {answer.text[:500]}"
        assert isinstance(answer.json(), dict)
        assert "<function" not in answer.text
    (row,) = viewer.get(f"/api/run/{run}/rollouts?q=id = rl/1/0/0").json()["rows"]
    assert row["text"] == viewer.get(f"/api/run/{run}/rollout/rl/1/0/0").json()["row"]["text"]
    assert viewer.get("/api/run/none").status_code == 404


def test_the_viewer_imports_no_torch_and_starts_without_what_only_some_pages_need():
    large = {"torch", "transformers", "numpy", "sympy", "duckdb", "latex2mathml", "ansatz_verify.grade"}
    code = f"import sys, ansatz.ui.app, ansatz.cli.view; assert not {large} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_written_into_a_run(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "run")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    for address in addresses("run"):
        viewer.get(address)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_folder_of_an_evaluation_and_one_with_only_a_recipe_are_notices_and_hide_no_other(tmp_path: Path):
    make_run(tmp_path / "runs" / "whole")
    (tmp_path / "runs" / "begun").mkdir()
    (tmp_path / "runs" / "begun" / "config.yaml").write_text("name: begun\n")
    write_jsonl(tmp_path / "runs" / "evaluation" / "rollouts.jsonl", [])
    (tmp_path / "runs" / "evaluation" / "settings.json").write_text("{}")
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    for address in ("/", "/api/state", *addresses("whole"), "/help"):
        assert viewer.get(address).status_code == 200, address
    for run in ("begun", "evaluation"):
        for address in addresses(run):
            assert viewer.get(address).status_code in (200, 400, 404), address


def test_the_responses_of_a_folder_of_an_evaluation_have_pages(tmp_path: Path):
    asked = replace(problem(index=6), answers=("12", "24/2"))
    responses = [scored(asked, sample=sample) for sample in (0, 1)]
    rows = [to_row(response_of(each.rollout, {"strict": each.score.verdict})) for each in responses]
    write_jsonl(tmp_path / "runs" / "gsm8k" / "rollouts.jsonl", rows)
    viewer = open_viewer(tmp_path / "runs", tmp_path / "cache")
    assert 'href="/run/gsm8k/rollout/0/gsm8k/0/1"' in viewer.get("/run/gsm8k/rollouts").text
    for page in ("rollout/0/gsm8k/0/1", "group/0/gsm8k/0"):
        answer = viewer.get(f"/run/gsm8k/{page}")
        assert (answer.status_code, '<p class="kicker">gsm8k' in answer.text) == (200, True)
    assert ">gsm8k</a></th>" in viewer.get("/run/gsm8k/problem/p6").text
    lines = viewer.get("/run/gsm8k/rollouts.jsonl").text.splitlines()
    assert [json.loads(line)["answer"] for line in lines] == [["12", "24/2"]] * 2


def test_a_run_that_is_removed_while_a_page_is_made_costs_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run disappears before the n-th question about a file, for every n of a page."""
    make_run(tmp_path / "whole")
    runs, stat, left = tmp_path / "runs", os.stat, [0]

    def remove_then_stat(*arguments: Any, **how: Any) -> os.stat_result:
        left[0] -= 1
        if left[0] == 0:
            monkeypatch.setattr(os, "stat", stat)
            shutil.rmtree(runs / "removed")
        return stat(*arguments, **how)

    make_run(runs / "stays")
    for address in ("/", "/run/removed"):
        number = 1
        while True:
            shutil.copytree(tmp_path / "whole", runs / "removed", dirs_exist_ok=True)
            viewer = open_viewer(runs, tmp_path / "cache")
            left[0] = number
            monkeypatch.setattr(os, "stat", remove_then_stat)
            assert viewer.get(address).status_code in (200, 400, 404), (address, number)
            monkeypatch.setattr(os, "stat", stat)
            if left[0] > 0:
                break
            number += 31


def test_runs_are_listed_newest_first_with_their_dates_and_sorted_by_what_is_asked_for(tmp_path: Path):
    for age, name in enumerate(("older", "newest", "oldest")):
        run = make_pipeline(tmp_path / "runs" / name, sft_steps=2, rl_steps=2)
        time = 1.7e9 + 86_400 * {"oldest": 0, "older": 1, "newest": 2}[name]
        (run / "config.yaml").write_text(f"name: {name}\n")
        (run / "rl" / "config.yaml").write_text(f"train:\n  steps: {60 + age}\n")
        os.utime(run / "config.yaml", (time, time))
    client = open_viewer(tmp_path / "runs", tmp_path / "cache")

    def listed(query: str = "") -> list[str]:
        return re.findall(r'<th scope="row"><a href="/run/\w+">(\w+)</a>', client.get(f"/{query}").text)

    assert listed() == ["newest", "older", "oldest"]
    assert listed("?sort=date") == ["oldest", "older", "newest"]
    assert listed("?sort=run") == ["newest", "older", "oldest"]
    assert listed("?sort=-run") == ["oldest", "older", "newest"]
    assert listed("?sort=nothing") == listed("?sort=")
    page = client.get("/").text
    assert "rl, step 2 of 60" in page
    assert f"<time>{datetime.fromtimestamp(1.7e9):%Y-%m-%d %H:%M}</time>" in page


def test_the_page_of_a_run_that_is_about_to_begin_loads_itself_again(tmp_path: Path):
    library = Library([tmp_path], cache=tmp_path / "cache")
    library.awaited = "soon"
    client = TestClient(build_app(library, token=""), base_url="http://localhost")
    for _ in range(2):
        answer = client.get("/run/soon")
        assert answer.status_code == 503
        assert '<meta http-equiv="refresh" content="2">' in answer.text
        (tmp_path / "soon").mkdir(exist_ok=True)
        (tmp_path / "soon" / "config.yaml").write_text("name: soon\n")
    shutil.rmtree(tmp_path / "soon")
    assert "refresh" not in client.get("/run/other").text
    make_pipeline(tmp_path / "soon", sft_steps=2, rl_steps=2)
    assert client.get("/run/soon").status_code == 200


def test_responses_are_filtered_by_the_words_of_their_questions(viewer: TestClient):
    def count(q: str) -> int:
        page = viewer.get("/run/whole/rollouts", params={"q": q}).text
        return int(re.search(r"<b>(\d+)</b> of \d+ responses", page)[1])  # type: ignore[index]

    assert count('question ~ "4 x 3"') == 4
    assert count('question ~ "no such words"') == 0
    assert count('question ~ "4 x 3" AND NOT greedy') == 2
    assert count("greedy OR reason IN (equal)") == count("greedy or reason in (equal)") > 2
    listed = viewer.get("/run/whole/rollouts", params={"q": 'question ~ "4 x 3"'}).text
    assert re.search(r'class="asks"><a href="[^"]*">4 x 3 = 12\. #### 12</a><small>rl/4/heldout/0/', listed)

"""The page of a sweep over HTTP: its numbers, its grid, and rows that are hostile, damaged or not there yet."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

for _package in ("duckdb", "starlette"):
    pytest.importorskip(_package, reason="a package of the viewer is not installed")

from made_up import NASTY, make_pipeline  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from ansatz.track.sweep_rows import at_shared_steps, mean_and_margin  # noqa: E402
from ansatz.ui.app import build_app  # noqa: E402
from ansatz.ui.library import Library  # noqa: E402


def test_curves_of_blocks_that_kept_other_steps_are_compared_at_all_of_them() -> None:
    first, second = [(1.0, 0.0), (4.0, 3.0), (9.0, 8.0)], [(6.0, 2.0), (2.0, 2.0)]
    assert at_shared_steps([first, second]) == {2.0: [1.0, 2.0], 4.0: [3.0, 2.0], 6.0: [5.0, 2.0]}
    assert at_shared_steps([first]) == {x: [y] for x, y in first}
    assert at_shared_steps([first[:1], second]) == at_shared_steps([]) == {}


def test_runs_of_one_name_in_several_folders_are_all_found(tmp_path: Path) -> None:
    for path in ("a/run", "b/run", "c/x/grpo", "d/x/grpo"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "config.yaml").touch()
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c", tmp_path / "d"]
    found = Library(folders, cache=tmp_path / "cache").find_runs()
    assert found == dict(
        zip(
            ("run", "b-run", "x-grpo", "d-x-grpo"),
            [*folders[:2], folders[2] / "x/grpo", folders[3] / "x/grpo"],
            strict=True,
        )
    )


def row_of(block: int, arm: str, value: object, *, times: float = 1.0, **changes: Any) -> dict[str, Any]:
    return {
        "block": block,
        "arm": arm,
        "times": times,
        "status": "done",
        "why": "",
        "outcomes": {"exact_pass@k": value, "other": 7.25},
        "guards": {"control_exact": 0.3, "rollout/truncated_frac": 0.125},
        "curves": {"exact_pass@1": [[0, 0.1], [10, 0.2]]},
        **changes,
    }


def write_rows(path: Path, rows: list[dict[str, Any]], **header: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    first = {"sweep": path.stem, "file": f"findings/{path.stem}.yaml", "registered": {}, **header}
    path.write_text("".join(json.dumps(row) + "\n" for row in [first, *rows]), encoding="utf-8")
    return path


def open_viewer(*folders: Path) -> TestClient:
    app = build_app(Library(folders), token="", hosts=["testserver"])
    return TestClient(app, raise_server_exceptions=True, follow_redirects=False)


def shown(viewer: TestClient, address: str) -> str:
    answer = viewer.get(address)
    assert answer.status_code == 200, answer.text
    return unescape(re.sub(r"\s+", " ", re.sub(r"<(?!svg|/svg)[^>]*>", " ", answer.text)))


def test_means_intervals_and_differences_are_taken_block_by_block(tmp_path: Path) -> None:
    rows = [row_of(block, "plain", 0.5 + block / 10) for block in range(3)]
    rows += [row_of(block, "better", 0.6 + block / 10) for block in (0, 1)]
    rows.append(row_of(2, "better", None, status="collapsed", why="train/lr rose"))
    viewer = open_viewer(write_rows(tmp_path / "mine.jsonl", rows, control="plain").parent)
    text = shown(viewer, "/sweep/mine")
    assert "2 arms on 3 blocks" in text
    assert "plain 0.6 ± 0.248 – 0.5 0.6 0.7" in text  # 4.303 x 0.1 / sqrt(3)
    assert "better 0.65 ± 0.635 +0.1" in text
    assert "↯ collapsed" in text
    assert 'title="train/lr rose"' in viewer.get("/sweep/mine").text
    assert "control_exact, of plain: 0.3." in text
    assert "plain 0.125 better 0.125" in text
    assert "exact_pass@1 by step" in text
    assert "plain 7.25 ± 0" in shown(viewer, "/sweep/mine?outcome=other")
    assert mean_and_margin([0.5]) == (0.5, None)


def test_a_grid_is_a_heat_map_and_the_page_says_what_luck_alone_would_give(tmp_path: Path) -> None:
    rows = [
        row_of(block, f"lr {lr}, kl_coef {kl}", 0.1 * column + 0.01 * block * column)
        for block in range(2)
        for column, (lr, kl) in enumerate([("0.1", "0"), ("0.1", "1"), ("0.2", "0"), ("0.2", "1")])
    ]
    page = open_viewer(write_rows(tmp_path / "grid.jsonl", rows).parent).get("/sweep/grid").text
    assert "<h2>lr and kl_coef</h2>" in page
    assert re.findall(r'class="shade-(\d)">([\d.]+)', page) == [
        ("0", "0"),
        ("3", "0.105"),
        ("5", "0.21"),
        ("8", "0.315"),
    ]
    assert "exact_pass@1 by step: lr 0.1" in page
    assert "exact_pass@1 by step: lr 0.2" in page
    # The standard errors of the three differences are 0.005, 0.01 and 0.015.
    assert "would still seem about 0.00869 better" in page


def test_arms_of_four_words_are_no_grid(tmp_path: Path) -> None:
    rows = [row_of(0, "grpo with half rate", 0.5), row_of(0, "grpo and full rate", 0.6)]
    page = open_viewer(write_rows(tmp_path / "words.jsonl", rows).parent).get("/sweep/words").text
    assert "darker is larger" not in page
    alone = write_rows(tmp_path / "alone.jsonl", [row_of(0, "grpo with half rate", 0.5)])
    assert "darker is larger" not in open_viewer(alone.parent).get("/sweep/alone").text


def test_blocks_on_which_arms_were_tuned_are_left_out(tmp_path: Path) -> None:
    rows = [row_of(0, "plain", 0.5), row_of(0, "plain", 0.7, times=2.0), row_of(100, "plain", 0.9)]
    text = shown(open_viewer(write_rows(tmp_path / "tuned.jsonl", rows, tuning=[100]).parent), "/sweep/tuned")
    assert "2 arms on 1 block." in text
    assert "block 100" not in text
    assert "plain with 2 times the tuned key 0.7 +0.2" in text


def test_a_cell_leads_to_its_run_as_long_as_it_is_there(tmp_path: Path) -> None:
    make_pipeline(tmp_path / "runs" / "block-0000" / "plain-RFT-0123456789ab", sft_steps=2, rl_steps=2)
    write_rows(tmp_path / "rows" / "mine.jsonl", [row_of(0, "plain RFT", 0.5), row_of(1, "plain RFT", 0.625)])
    viewer = open_viewer(tmp_path / "rows", tmp_path / "runs")
    page = viewer.get("/sweep/mine").text
    assert re.findall(r'href="(/run/[^"]*)">([^<]*)', page) == [("/run/block-0000-plain-RFT-0123456789ab", "0.5")]
    assert viewer.get("/run/block-0000-plain-RFT-0123456789ab").status_code == 200
    assert '<a href="/sweep/mine">mine</a>' in viewer.get("/").text


def test_hostile_texts_are_texts(tmp_path: Path) -> None:
    rows = [
        row_of(0, NASTY, 0.5, why=NASTY, status="failed", outcomes={NASTY: 0.5}, curves={NASTY: [[0, 1.0], [1, 2.0]]})
    ]
    page = open_viewer(write_rows(tmp_path / "bad.jsonl", rows, file=NASTY).parent).get("/sweep/bad").text
    assert NASTY not in page
    assert "<script>" not in page


def test_rows_that_are_damaged_or_not_there_yet_are_a_sentence(tmp_path: Path) -> None:
    write_rows(tmp_path / "empty.jsonl", [])
    damages = [{"block": "first"}, row_of(0, "a", "x"), row_of(0, "a", 1.0, curves={"c": [[0]]}), {}]
    damages.append({**row_of(0, "a", 1.0), "block": "0"})
    for number, row in enumerate(damages):
        write_rows(tmp_path / f"damaged-{number}.jsonl", [row])
    write_rows(tmp_path / "damaged-5.jsonl", [], tuning=5)
    (tmp_path / "other.jsonl").write_text('{"question": "1 + 1?"}\n')
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "empty.jsonl")
    viewer = open_viewer(tmp_path)
    assert "No cell has ended yet." in shown(viewer, "/sweep/empty")
    for number in range(6):
        answer = viewer.get(f"/sweep/damaged-{number}")
        assert answer.status_code == 400
        assert f"line {1 if number == 5 else 2}: " in answer.text
    for name in ("other", "link", "none"):
        assert viewer.get(f"/sweep/{name}").status_code == 404
    assert viewer.get("/sweep/empty/rows.jsonl").text == (tmp_path / "empty.jsonl").read_text()

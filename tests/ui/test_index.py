"""The index of responses holds what their files hold, however it came to read them."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="a package of the viewer is not installed")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from made_up import make_pipeline, scored, stored_group
from test_viewer_pages import HOSTILE, make_run

from ansatz.track.filters import All, Compare, Flag, Query
from ansatz.track.rollout_table import KINDS, find_rollout_files, read_all
from ansatz.track.tracker import Tracker
from ansatz.ui import index as module
from ansatz.ui.demo import DemoRun
from ansatz.ui.index import RolloutIndex
from ansatz.ui.library import Library


def indexed(run: Path, cache: Path) -> RolloutIndex:
    index = RolloutIndex(run, folder=cache)
    index.refresh(wait_s=60)
    return index


def all_rows(index: RolloutIndex) -> dict[str, dict[str, Any]]:
    rows = index.select(Query(All(())), limit=100_000)
    found = {row["id"]: {name: row[name] for name in (*KINDS, "parts", "observations", "steps")} for row in rows}
    assert len(found) == len(rows)
    return found


def assert_holds(index: RolloutIndex, run: Path) -> None:
    """The index has the rows that the reader in Python reads. Means may be rounded in another way."""
    found, expected = all_rows(index), {row["id"]: row for row in read_all(run)}
    assert found.keys() == expected.keys()
    for name, row in found.items():
        for field, value in row.items():
            other = expected[name][field]
            is_number = isinstance(value, float) and isinstance(other, float | int)
            assert value == other or (is_number and math.isclose(value, other, abs_tol=1e-12)), (name, field)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return DemoRun(tmp_path / "demo", steps=8, prompts=3).write()


def test_flat_files_are_read_without_python_and_alike(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "read_rollouts", lambda *_: pytest.fail("a flat file was read row by row"))
    index = indexed(demo, tmp_path / "cache")
    monkeypatch.undo()
    assert index.count() > 100
    assert_holds(index, demo)


def test_a_folder_above_the_files_is_not_taken_for_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = DemoRun(tmp_path / "temperature=0" / "lr=1e-5" / "demo", steps=8, prompts=1).write()
    monkeypatch.setattr(module, "read_rollouts", lambda *_: pytest.fail("a flat file was read row by row"))
    index = indexed(run, tmp_path / "cache")
    monkeypatch.undo()
    assert_holds(index, run)


def test_files_of_every_kind_are_read_alike(tmp_path: Path):
    run = make_run(tmp_path / "run", text=HOSTILE, level="<i>1</i>")
    other = make_pipeline(tmp_path / "other", sft_steps=2, rl_steps=2)
    (other / "rl" / "samples" / "step-000001.groups.jsonl").unlink()
    for folder in (run, other):
        assert_holds(indexed(folder, tmp_path / "cache"), folder)


@pytest.mark.parametrize(
    "row", ['{"id": 1}', '{"group": 0}', "{", '{"id": "\\ud800"}', "[]", "\x00", '{"tokens": "many"}', '{"group": []}']
)
def test_a_damaged_file_is_a_notice_and_hides_no_other(demo: Path, tmp_path: Path, row: str):
    with (demo / "rl" / "samples" / "step-000003.jsonl").open("a") as file:
        file.write(row + "\n")
    index = indexed(demo, tmp_path / "cache")
    assert index.count(Compare("step", "=", 3)) == 0
    assert index.count(Compare("step", "=", 4)) == 24
    assert len(index.notices) == 1
    assert "step-000003.jsonl" in index.notices[0]
    assert RolloutIndex(demo, folder=tmp_path / "other").notices == []


def change_a_row(run: Path, **changed: Any) -> None:
    """Change the first response of step 3; a value of ... is left out."""
    path = run / "rl" / "samples" / "step-000003.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    row = {name: value for name, value in {**json.loads(first), **changed}.items() if value is not ...}
    path.write_text("".join([json.dumps(row) + "\n", *others]))


@pytest.mark.parametrize("changed", [{"group": ...}, {"group": None}, {"text": "x" * 17_000_000}, {"text": "a\0b"}])
def test_an_odd_row_is_read_as_python_reads_it(demo: Path, tmp_path: Path, changed: dict[str, Any]):
    change_a_row(demo, **changed)
    index = indexed(demo, tmp_path / "cache")
    assert index.notices == []
    assert_holds(index, demo)


def test_a_value_of_another_kind_is_a_notice_and_reading_goes_on(demo: Path, tmp_path: Path):
    change_a_row(demo, tokens="many")
    index = indexed(demo, tmp_path / "cache")
    assert index.waiting == 0
    assert [index.count(Compare("step", "=", step)) for step in (2, 3, 4)] == [24, 0, 24]
    (notice,) = index.notices
    assert "step-000003.jsonl" in notice
    assert "many" in notice
    assert str(tmp_path / "cache") not in notice  # the draft that DuckDB has read is not the user's


def test_a_file_may_be_larger_than_the_memory_of_the_index(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = demo / "rl" / "samples" / "step-000003.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    many = [{**rows[number % 24], "id": f"rl/3/{number}", "text": f"{number} " * 40_000} for number in range(500)]
    path.write_text("".join(json.dumps(row) + "\n" for row in many))
    assert path.stat().st_size > 70e6
    monkeypatch.setattr(module, "_MEMORY_MB", 64)
    monkeypatch.setitem(module._SETTINGS, "threads", 1)
    monkeypatch.setattr(module, "read_rollouts", lambda *_: pytest.fail("a flat file was read row by row"))
    index = indexed(demo, tmp_path / "cache")
    assert index.count(Compare("step", "=", 3)) == 500
    index.close()
    assert not list((tmp_path / "cache").glob("*.tmp"))


def test_two_indices_of_a_run_hold_the_same(demo: Path, tmp_path: Path):
    first, second = (indexed(demo, tmp_path / "cache") for _ in range(2))
    assert all_rows(first) == all_rows(second)


def test_pages_that_are_asked_for_at_once_share_the_index(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library, begin, opened = Library([tmp_path], cache=tmp_path / "cache"), threading.Barrier(4), list[RolloutIndex]()

    class Counted(RolloutIndex):
        def __init__(self, run: Path, *, folder: Path | None = None) -> None:
            opened.append(self)
            super().__init__(run, folder=folder)

    monkeypatch.setattr(module, "RolloutIndex", Counted)

    def open_index(_: int) -> RolloutIndex:
        begin.wait()
        return library.open_index(demo)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(open_index, range(4))) == opened * 4
    opened[0].close()


def test_pages_of_a_sorted_list_follow_one_another(demo: Path, tmp_path: Path):
    index = indexed(demo, tmp_path / "cache")
    query = Query(Flag("correct"), ("-tokens", "parts.math_answer"))
    every = index.select(query, limit=10_000)
    pages = [index.select(query, limit=7, offset=offset) for offset in range(0, len(every), 7)]
    assert [row for page in pages for row in page] == every
    assert [row["tokens"] for row in every] == sorted((row["tokens"] for row in every), reverse=True)


def test_an_index_that_is_opened_again_reads_no_file_and_knows_questions_and_notices(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (demo / "rl" / "samples" / "step-000003.jsonl").write_text("{}\n")
    first = indexed(demo, tmp_path / "cache")
    rows, notices, problems = all_rows(first), first.notices, first.problems
    first.close()
    monkeypatch.setattr(module, "insert_flat", lambda *_: pytest.fail("a file was read again"))
    again = indexed(demo, tmp_path / "cache")
    assert (all_rows(again), again.notices, again.problems) == (rows, notices, problems)
    assert problems
    assert notices


def test_a_summary_counts_what_the_rows_say(demo: Path, tmp_path: Path):
    index = indexed(demo, tmp_path / "cache")
    tree = Flag("correct")
    rows = index.select(Query(tree), limit=10_000)
    found = index.summarise(tree, facets=("level", "used", "reason"), numbers=("tokens", "advantage"), bins=7)
    assert found.total == len(rows)
    for name, counted in found.facets.items():
        assert dict(counted) == Counter(row[name] for row in rows)
    for name, parts in found.bins.items():
        values = [row[name] for row in rows if row[name] is not None]
        assert len(parts) == 7
        assert sum(count for *_, count in parts) == len(values)
        assert (parts[0][0], parts[-1][1]) == (min(values), max(values))
        assert parts[0][2] == sum(value < parts[0][1] for value in values)
    problems = Counter(row["problem"] for row in rows)
    assert len(problems) > 15
    most = index.summarise(tree, facets=("problem",)).facets["problem"]
    assert [count for _, count in most] == [count for _, count in problems.most_common(15)]
    nothing = index.summarise(Compare("tokens", "<", 0), facets=("level",), numbers=("tokens",))
    assert nothing == (0, {"level": []}, {"tokens": []})


def test_the_last_part_of_a_range_ends_at_the_largest_value(tmp_path: Path):
    """-2 + 24 * (2.3 / 24) is 0.2999999999999998, so a stroke to the edge of the histogram would leave out 0.3."""
    index = RolloutIndex(Path("nowhere"), folder=tmp_path)
    more = {"file": "", "written": 0.0, "tokens_at": None, "observations": [], "steps": [], "parts": {}, "text": ""}
    index.insert_rows(index._db, [{**dict.fromkeys(KINDS), **more, "reward": value} for value in (-2.0, 0.3, 0.3)])
    parts = index.summarise(All(()), numbers=("reward",)).bins["reward"]
    assert (parts[0][0], *parts[-1][1:]) == (-2.0, 0.3, 2)
    index.close()


class GrowingRun(RuleBasedStateMachine):
    """A run whose files are written, rolled back, replaced and removed, while an index looks from time to time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(os.environ["GROWING_RUN"])
        shutil.rmtree(self.folder, ignore_errors=True)
        make_pipeline(self.folder / "run", sft_steps=1, rl_steps=1)
        self.run, self.step = self.folder / "run", 1
        self.index = RolloutIndex(self.run, folder=self.folder / "cache")

    def track(self) -> Tracker:
        return Tracker(self.run / "rl", console=None, tensorboard=False, total_steps=99)

    def store(self, step: int, text: str, num_rows: int) -> None:
        members = [scored(sample=sample, text=text, reward=float(sample)) for sample in range(num_rows)]
        self.track().samples(step, [stored_group(*members)])

    @rule(text=st.sampled_from(["a", "12", "new"]), num_rows=st.integers(1, 3))
    def add_a_step(self, text: str, num_rows: int) -> None:
        self.step += 1
        self.track().log(self.step, {"train/loss": 0.5})
        self.store(self.step, text, num_rows)

    @rule(text=st.sampled_from(["b", "other"]), num_rows=st.integers(1, 3))
    def replace_a_step(self, text: str, num_rows: int) -> None:
        self.store(self.step, text, num_rows)

    @precondition(lambda self: self.step > 2)
    @rule()
    def roll_back(self) -> None:
        self.step -= 2
        self.track().resume(self.step)

    @rule()
    def open_again(self) -> None:
        self.index.close()
        self.index = RolloutIndex(self.run, folder=self.folder / "cache")

    @rule()
    def look(self) -> None:
        self.index.refresh(every_s=0, wait_s=60)

    @invariant()
    def index_is_right_once_it_has_looked(self) -> None:
        if find_rollout_files(self.run):
            self.look()
            assert_holds(self.index, self.run)

    def teardown(self) -> None:
        self.index.close()


def test_an_index_follows_a_run_that_grows_and_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROWING_RUN", str(tmp_path / "growing"))
    case = GrowingRun.TestCase
    case.settings = settings(max_examples=12, stateful_step_count=8, deadline=None)
    case().runTest()  # its invariants assert
    assert (tmp_path / "growing").is_dir()  # a run has grown

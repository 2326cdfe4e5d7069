"""The times of the tests are recorded by file, and `make test` names a folder that has become expensive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import test_times

CASES = (("tests.loop.test_a", 30.04), ("tests.loop.test_a.TestClass", 10.0), ("tests.test_c", 1.0))


def write(folder: Path, ui: float) -> str:
    path = folder / f"{ui}.xml"
    cases = (
        f'<testcase classname="{name}" name="x" time="99">'
        f'<properties><property name="cpu_seconds" value="{cpu}"/></properties></testcase>'
        for name, cpu in (*CASES, ("tests.ui.test_b", ui))
    )
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>", encoding="utf-8")
    return str(path)


def test_seconds_are_recorded_by_file_and_a_share_that_grows_by_half_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(test_times, "RECORD", tmp_path / "seconds.json")
    test_times.main("record", write(tmp_path, 10))
    assert json.loads((tmp_path / "seconds.json").read_text()) == {
        "tests/loop/test_a.py": 40.0,
        "tests/ui/test_b.py": 10.0,
        "tests/test_c.py": 1.0,
    }
    test_times.main("compare", write(tmp_path, 16))
    assert capsys.readouterr().out == ""
    test_times.main("compare", write(tmp_path, 19))
    assert capsys.readouterr().out.startswith("tests/ui takes 31.7% of the CPU time of all tests, 19.6% were recorded.")


def test_small_folders_may_grow() -> None:
    before, now = {"tests/loop/test_a.py": 99.0, "tests/ui/test_b.py": 1.0}, {"tests/ui/test_b.py": 2.9}
    assert test_times.find_growth(before, {**before, **now}) == []
    assert len(test_times.find_growth(before, {**before, "tests/new/test_d.py": 4.0})) == 1


def test_tests_that_are_skipped_on_this_machine_let_no_other_share_grow() -> None:
    before = {"tests/loop/test_a.py": 40.0, "tests/ui/test_b.py": 5.0, "tests/ui/test_browser.py": 40.0}
    skipped = {**before, "tests/ui/test_browser.py": 0.3}
    assert test_times.find_growth(before, skipped) == []
    assert len(test_times.find_growth(before, {**skipped, "tests/ui/test_b.py": 30.0})) == 1


def test_the_record_names_files_that_exist() -> None:
    recorded = json.loads(test_times.RECORD.read_text(encoding="utf-8"))
    root = test_times.RECORD.parents[1]
    assert len(recorded) > 300
    assert sum(not (root / name).is_file() for name in recorded) <= 0.05 * len(recorded)
    assert [*recorded.values()] == sorted(recorded.values(), reverse=True)

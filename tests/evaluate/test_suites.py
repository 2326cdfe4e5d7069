from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.suites import SUITES, load_suite


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows), encoding="utf-8")
    return path


def rows(count: int, **more: str) -> list[dict[str, str]]:
    return [{"id": f"r{i}", "problem": f"{i}+1?", "answer": str(i + 1), **more} for i in range(count)]


def test_every_suite_that_was_asked_for_has_a_full_card() -> None:
    names = ["gsm8k", "math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "svamp"]
    assert sorted(SUITES) == sorted([*names, "word_problems"])
    for name, card in SUITES.items():
        assert card.name == name
        assert card.size > 0
        assert card.licence
        assert card.answers
        assert card.version
        assert bool(card.hub) == bool(card.file) == (name != "word_problems")


def test_a_card_finds_its_file_with_levels_and_subjects(tmp_path: Path) -> None:
    write(tmp_path / "aime24/test.jsonl", rows(30, level="Level 3", subject="Algebra"))
    loaded = load_suite("aime24", folder=tmp_path)
    assert [one.id for one in loaded.problems] == [f"r{i}" for i in range(30)]
    first = loaded.problems[0]
    assert (first.question, first.answer, first.level, first.meta["subject"]) == ("0+1?", "1", "Level 3", "Algebra")
    assert not loaded.as_on_card


def test_any_jsonl_file_is_a_suite_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [{"question": "1+1?", "answer": "2"}, {"question": "2+1?", "answer": "3"}])
    loaded = load_suite(str(path))
    assert (loaded.card.name, loaded.as_on_card) == ("mine", True)
    assert [(one.question, one.answer, one.level, one.meta["subject"]) for one in loaded.problems] == [
        ("1+1?", "2", "", ""),
        ("2+1?", "3", "", ""),
    ]


def test_the_digest_changes_with_the_file(tmp_path: Path) -> None:
    first = load_suite(str(write(tmp_path / "a.jsonl", rows(2)))).sha256
    assert load_suite(str(write(tmp_path / "b.jsonl", rows(2)))).sha256 == first
    assert load_suite(str(write(tmp_path / "c.jsonl", rows(3)))).sha256 != first


def test_the_suite_made_by_program_needs_no_file() -> None:
    loaded = load_suite("word_problems")
    assert len(loaded.problems) == SUITES["word_problems"].size
    assert {one.level for one in loaded.problems} == {"2", "3", "4", "5", "6"}
    assert {one.split for one in loaded.problems} == {"heldout"}
    assert len({one.id for one in loaded.problems}) == len(loaded.problems)


def test_a_part_is_spread_through_the_suite(tmp_path: Path) -> None:
    loaded = load_suite(str(write(tmp_path / "a.jsonl", rows(10))))
    assert [one.id for one in loaded.spread(4)] == ["r0", "r2", "r5", "r7"]
    assert [len(loaded.spread(count)) for count in (0, 10, 11)] == [10, 10, 10]


def test_what_is_wrong_with_a_suite_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'gsm8' is unknown\. Did you mean 'gsm8k'\?"):
        load_suite("gsm8")
    with pytest.raises(ConfigError, match=r"Give --suites DIR, with gsm8k/test\.jsonl in it"):
        load_suite("gsm8k")
    with pytest.raises(DataError, match="does not exist"):
        load_suite("gsm8k", folder=tmp_path)
    write(tmp_path / "aime25/test.jsonl", rows(29))
    with pytest.raises(DataError, match="has 29 problems, expected the 30 of aime25"):
        load_suite("aime25", folder=tmp_path)
    with pytest.raises(DataError, match="two problems have the id 'r0'"):
        load_suite(str(write(tmp_path / "twice.jsonl", [*rows(2), *rows(1)])))
    (tmp_path / "broken.jsonl").write_text('{"problem": "1?"', encoding="utf-8")
    with pytest.raises(DataError, match="line 1"):
        load_suite(str(tmp_path / "broken.jsonl"))

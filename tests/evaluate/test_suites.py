from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from ansatz_verify.grade import verify

from ansatz.config import load_recipe
from ansatz.data.base import load_problems
from ansatz.data.store import write_problems
from ansatz.errors import ConfigError, DataError, MissingExtraError
from ansatz.evaluate.suites import SUITES, load_suite, problems_digest
from ansatz.types import Problem, problem_row

MADE = [
    "word_problems",
    "word_problems_plain",
    "arithmetic",
    "countdown",
    "code_tasks",
]
GPQA = {"Question": "Which?", "Correct Answer": "1 eV", "High-level domain": "Physics", "Record ID": "rec1"}
GPQA |= {"Incorrect Answer 1": "2 eV", "Incorrect Answer 2": "3 eV\n", "Incorrect Answer 3": "4 eV"}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows), encoding="utf-8")
    return path


def rows(count: int, **more: str) -> list[dict[str, str]]:
    return [{"id": f"r{i}", "problem": f"{i}+1?", "answer": str(i + 1), **more} for i in range(count)]


def test_every_suite_that_was_asked_for_has_a_full_card() -> None:
    files = ["gsm8k", "math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "svamp"]
    files += ["gpqa_diamond", "cmath"]
    assert sorted(SUITES) == sorted([*files, *MADE])
    for name, card in SUITES.items():
        assert card.name == name
        assert card.size > 0
        assert card.licence
        assert card.answers
        assert bool(card.version) == (name not in ("gpqa_diamond", "cmath"))  # files that we have no numbers on
        assert bool(card.hub) == bool(card.file) == (name not in MADE)


def test_a_card_finds_its_file_with_levels_and_subjects(tmp_path: Path) -> None:
    write(tmp_path / "aime24/test.jsonl", rows(30, level="Level 3", subject="Algebra"))
    loaded = load_suite("aime24", folder=tmp_path)
    assert [problem.id for problem in loaded.problems] == [f"r{i}" for i in range(30)]
    first = loaded.problems[0]
    assert (first.question, first.answer, first.level, first.meta["subject"]) == ("0+1?", "1", "Level 3", "Algebra")
    assert not loaded.as_on_card


def test_any_jsonl_file_is_a_suite_by_its_path(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [{"question": "1+1?", "answer": "2"}, {"question": "2+1?", "answer": "3"}])
    loaded = load_suite(str(path))
    assert (loaded.card.name, loaded.as_on_card) == ("mine", True)
    assert [
        (problem.question, problem.answer, problem.level, problem.meta["subject"]) for problem in loaded.problems
    ] == [
        ("1+1?", "2", "", ""),
        ("2+1?", "3", "", ""),
    ]


def test_the_held_out_file_of_a_run_is_read_as_the_run_reads_it(tmp_path: Path) -> None:
    system = [{"role": "system", "content": "Be brief."}]
    meta = {"subject": "Algebra", "earlier_turns": system, "nums": [1, 2], "target": 3, "line": 7}
    stored = [
        Problem(id="a", question="1+2?", answers=("3", "3.0"), source="mine", split="heldout", meta=meta),
        Problem(id="b", question="Write a poem.", source="other", split="heldout", solution="Roses", level="2"),
    ]
    write_problems(tmp_path / "heldout.jsonl", stored)
    loaded = load_suite(str(tmp_path / "heldout.jsonl"))
    assert (loaded.problems, loaded.sha256) == (stored, problems_digest(stored))


def test_rows_of_a_suite_can_lack_a_level(tmp_path: Path) -> None:
    levels = ["5", None, "", 4]
    path = write(tmp_path / "a.jsonl", [{"question": f"{i}?", "answer": "1", "level": levels[i]} for i in range(4)])
    assert [problem.level for problem in load_suite(str(path)).problems] == ["5", "", "", "4"]


def test_the_digest_changes_with_the_file(tmp_path: Path) -> None:
    first = load_suite(str(write(tmp_path / "a.jsonl", rows(2)))).sha256
    assert load_suite(str(write(tmp_path / "b.jsonl", rows(2)))).sha256 == first
    assert load_suite(str(write(tmp_path / "c.jsonl", rows(3)))).sha256 != first


def test_the_digest_of_problems_is_of_their_rows_as_lines() -> None:
    problems = load_problems("arithmetic", split="heldout", settings={"count": 3})
    lines = "\n".join(json.dumps({**problem_row(each), "answer": each.answer}, sort_keys=True) for each in problems)
    assert problems_digest(problems) == hashlib.sha256(lines.encode()).hexdigest()


def test_a_suite_is_as_difficult_as_the_problems_of_the_demo() -> None:
    heldout = load_recipe("tiny_arithmetic_grpo_cpu").data.heldout
    settings = {key: value for key, value in heldout.items() if key not in ("source", "split", "seed", "count")}
    assert settings
    demo = load_problems("word_problems", split="heldout", settings={**settings, "count": 500})
    assert [problem.question for problem in load_suite("word_problems_plain").problems] == [
        problem.question for problem in demo
    ]


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("word_problems", "23456"),
        ("word_problems_plain", "23456"),
        ("arithmetic", "123456"),
        ("countdown", "1234"),
    ],
)
def test_a_suite_made_by_program_needs_no_file(name: str, levels: str) -> None:
    loaded = load_suite(name)
    assert len(loaded.problems) == SUITES[name].size
    assert {problem.level for problem in loaded.problems} == set(levels)
    assert {problem.split for problem in loaded.problems} == {"heldout"}
    assert len({problem.id for problem in loaded.problems}) == len(loaded.problems)


def test_rows_of_gpqa_become_lettered_options(tmp_path: Path) -> None:
    path = tmp_path / "gpqa.jsonl"
    more = [{**GPQA, "Question": f"Which of {i}?", "Record ID": f"rec{i}"} for i in range(2, 40)]
    problems = load_suite(str(write(path, [GPQA, *more]))).problems
    first = problems[0]
    assert (first.id, first.meta["subject"]) == ("rec1", "Physics")
    question, options = first.question.split("\n\n")[:2]
    assert question == "Which?"
    assert sorted(line[3:] for line in options.splitlines()) == ["1 eV", "2 eV", "3 eV", "4 eV"]
    assert [line[:3] for line in options.splitlines()] == ["A) ", "B) ", "C) ", "D) "]
    assert f"{first.answer}) 1 eV" in first.question
    assert {problem.answer for problem in problems} == set("ABCD")  # the correct option has no fixed place
    assert verify(first.answer, f"The box: \\boxed{{{first.answer}}}").correct
    swapped = {**GPQA, "Incorrect Answer 1": "4 eV", "Incorrect Answer 3": "2 eV"}
    assert load_suite(str(write(path, [swapped]))).problems[0].question == first.question


def test_gpqa_is_read_as_the_csv_that_it_is_published_as(tmp_path: Path) -> None:
    path = tmp_path / "gpqa_diamond/test.csv"
    path.parent.mkdir()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["Explanation", *GPQA])
        writer.writeheader()
        writer.writerows(
            {**GPQA, "Question": f"Which, \n{i}?", "Record ID": f"rec{i}", "Explanation": 'say "no"'}
            for i in range(198)
        )
    for loaded in (load_suite("gpqa_diamond", folder=tmp_path), load_suite(str(path))):
        assert (loaded.card.name, len(loaded.problems)) == ("gpqa_diamond", 198)
        last = loaded.problems[-1]
        assert last.question.startswith("Which, \n197?\n\nA) ")
        assert f"{last.answer}) 1 eV" in last.question
        assert (last.id, last.meta["subject"]) == ("rec197", "Physics")


@pytest.mark.parametrize(
    ("name", "suite"),
    [
        ("gsm8k/test.jsonl", "gsm8k"),
        ("gsm8k/test.json", "gsm8k"),
        ("gsm8k/test-00000-of-00001.jsonl", "gsm8k"),
        ("gsm8k/mine.jsonl", "mine"),
        ("problems/heldout.jsonl.gz", "heldout"),
    ],
)
def test_a_file_is_named_by_its_folder_if_its_own_name_is_only_a_split(tmp_path: Path, name: str, suite: str) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    text = json.dumps(rows(1) if path.suffix == ".json" else rows(1)[0])
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    assert load_suite(str(path)).card.name == suite


def test_a_suite_without_a_folder_comes_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str | None, *, split: str, **options: Any) -> list[dict[str, str]]:
        calls.append((name, config, split, options["revision"]))
        return [{"question": f"{i}+1?", "answer": f"It is {i + 1}.\n#### {i + 1}"} for i in range(1319)]

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    loaded = load_suite("gsm8k")
    assert calls == [("openai/gsm8k", "main", "test", None)]
    assert [(problem.question, problem.answer) for problem in loaded.problems[:2]] == [("0+1?", "1"), ("1+1?", "2")]
    assert not loaded.as_on_card  # the card names a file


def test_the_hub_without_its_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"--suite gsm8k is read from the hub: .*datasets.* Or give --suites"):
        load_suite("gsm8k")


def test_options_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "gpqa.jsonl", [{**GPQA, "Incorrect Answer 1": "1 eV "}])
    with pytest.raises(DataError, match=r"gpqa.jsonl line 1: the options are .* all different"):
        load_suite(str(path))


def test_rows_of_cmath_are_read_as_published(tmp_path: Path) -> None:
    row = {"question": "1+1?", "golden": "2", "grade": 3, "reasoning_step": 1}
    (problem,) = load_suite(str(write(tmp_path / "cmath.jsonl", [row]))).problems
    assert (problem.question, problem.answer, problem.level) == ("1+1?", "2", "3")
    assert problem.meta == {"reasoning_step": 1, "line": 1, "subject": ""}


def test_a_part_is_spread_through_the_suite(tmp_path: Path) -> None:
    loaded = load_suite(str(write(tmp_path / "a.jsonl", rows(10))))
    assert [problem.id for problem in loaded.evenly_spaced(4)] == ["r0", "r2", "r5", "r7"]
    assert [len(loaded.evenly_spaced(count)) for count in (0, 10, 11)] == [10, 10, 10]


def test_what_is_wrong_with_a_suite_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'gsm8' is unknown\. Did you mean 'gsm8k'\?"):
        load_suite("gsm8")
    with pytest.raises(ConfigError, match=r"svamp cannot be read from the hub, .* give --suites DIR, with svamp/test"):
        load_suite("svamp")
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

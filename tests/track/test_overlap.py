"""Held-out problems that are trained on too, and what is said about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import make_pipeline, problem

from ansatz.data.store import write_problems
from ansatz.errors import DataError
from ansatz.track.overlap import Overlap, overlap
from ansatz.track.report import write_report
from ansatz.types import Problem


def stored(folder: Path, **questions: list[str]) -> Path:
    """A run folder with the problems of each split."""
    for split, texts in questions.items():
        rows = [
            Problem(id=f"{split}-{place}", question=text, answers=("1",), source="made_up", split=split)
            for place, text in enumerate(texts)
        ]
        (folder / "problems").mkdir(parents=True, exist_ok=True)
        write_problems(folder / "problems" / f"{split}.jsonl", rows)
    return folder


def test_questions_are_compared_whatever_their_case_and_blanks(tmp_path: Path):
    run = stored(tmp_path, sft=["Two  plus two?"], train=["a", "b"], heldout=["c", "two plus Two?", "d"])
    found = overlap(run, problems=3)
    assert found == Overlap(problems=3, seen=1, splits=("sft",))
    assert found.sentence() == "1 of 3 questions is also in data.sft, so the score is partly memory."


def test_only_the_problems_that_are_evaluated_count(tmp_path: Path):
    run = stored(tmp_path, train=["b", "c"], heldout=["a", "b", "c"])
    assert overlap(run, problems=1) == Overlap(problems=1, seen=0, splits=("train",))
    assert overlap(run, problems=10) == Overlap(problems=3, seen=2, splits=("train",))


def test_disjoint_splits_are_said_to_be_disjoint_and_equal_ones_to_be_remembered(tmp_path: Path):
    disjoint = overlap(stored(tmp_path / "a", sft=["x"], train=["y"], heldout=["z"]), problems=1)
    assert disjoint is not None
    assert disjoint.sentence() == "None of their questions is in data.sft or data.train."
    equal = overlap(stored(tmp_path / "b", sft=["x", "y"], train=["y", "x"], heldout=["x", "y"]), problems=5)
    assert equal is not None
    seen = "2 of 2 questions are also in data.sft and data.train"
    assert equal.sentence() == f"{seen}, so the score is how well they are remembered."


def test_a_folder_without_problems_says_nothing_and_a_damaged_one_is_refused_in_words(tmp_path: Path):
    assert overlap(tmp_path, problems=5) is None
    assert overlap(stored(tmp_path / "a", heldout=["x"]), problems=5) is None
    run = stored(tmp_path / "b", train=["x"], heldout=["x"])
    (run / "problems" / "train.jsonl").write_text('{"question": 3}\n')
    with pytest.raises(DataError, match=r"train\.jsonl was changed after it was written"):
        overlap(run, problems=1)


def test_turns_before_the_question_tell_conversations_apart(tmp_path: Path):
    question = {"question": "And twice that?", "answers": ("4",), "source": "made_up"}
    rows = {
        split: Problem(
            id=split,
            split=split,
            **question,
            meta={"earlier_turns": [{"role": "user", "content": f"What is {split}?"}]},
        )
        for split in ("train", "heldout")
    }
    (tmp_path / "problems").mkdir()
    for split, row in rows.items():
        write_problems(tmp_path / "problems" / f"{split}.jsonl", [row])
    assert overlap(tmp_path, problems=1) == Overlap(problems=1, seen=0, splits=("train",))


@pytest.mark.parametrize(
    ("shared", "said"), [(100, "how well they are remembered"), (30, "partly memory"), (0, "None")]
)
def test_a_report_says_whether_its_held_out_problems_were_trained_on(tmp_path: Path, shared: int, said: str):
    run = make_pipeline(tmp_path / "run", sft_steps=3, rl_steps=3)
    heldout = [problem(index=index).question for index in range(100)]
    stored(run, train=[*heldout[:shared], "another question"], heldout=heldout)
    page = write_report(run).read_text(encoding="utf-8")
    assert said in page
    assert "never trained on" not in page
    assert ("None of their questions is in data.train." in page) == (shared == 0)

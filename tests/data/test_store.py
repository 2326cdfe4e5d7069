import json

import pytest

from ansatz.data.store import read_problems, write_problems
from ansatz.errors import DataError
from ansatz.types import Problem


def problem(name="a", **changes):
    return Problem(
        **{"id": name, "question": "2 + 2?", "answers": ("4",), "source": "made", "split": "train", **changes}
    )


def test_problems_are_restored_exactly(tmp_path):
    problems = [
        problem("a", level="3", solution="so\n\\boxed{4}", meta={"steps": [[2, "+", 2, 4]], "slip": True}),
        problem("b", question="\u2028 ½ 中 \\frac \x85 \U0001f600", solution=None),
    ]
    write_problems(tmp_path / "p.jsonl", problems)
    assert read_problems(tmp_path / "p.jsonl") == problems
    assert [json.loads(line)["answer"] for line in (tmp_path / "p.jsonl").read_text().split("\n")[:2]] == ["4", "4"]


def test_a_file_is_replaced_atomically(tmp_path):
    path = tmp_path / "p.jsonl"
    write_problems(path, [problem("old")])

    def breaks_off():
        yield problem("new")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_problems(path, breaks_off())
    assert [stored.id for stored in read_problems(path)] == ["old"]


def test_two_problems_cannot_share_an_id(tmp_path):
    with pytest.raises(DataError, match=r"two problems of 'made' have the id 'a'; ids must be unique\."):
        write_problems(tmp_path / "p.jsonl", [problem("a"), problem("b"), problem("a", question="3?")])
    assert not (tmp_path / "p.jsonl").exists()


def test_half_a_character_is_refused_with_the_problems_name(tmp_path):
    with pytest.raises(
        DataError, match=r"problem 'bad' of 'made' contains half a character \(the surrogate '\\ud83d'\)"
    ):
        write_problems(tmp_path / "p.jsonl", [problem("bad", question="how many \ud83d?")])


def test_a_missing_or_changed_file_is_one_sentence(tmp_path):
    path = tmp_path / "p.jsonl"
    with pytest.raises(DataError, match=r"p\.jsonl is missing\. The stage `problems` writes it"):
        read_problems(path)
    for content in ("{", '{"id": "a"}\n', "[]\n"):
        path.write_text(content)
        with pytest.raises(DataError, match=r"was changed after it was written"):
            read_problems(path)

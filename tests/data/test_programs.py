from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from ansatz.data.base import load_problems
from ansatz.data.programs import program_of
from ansatz.errors import DataError
from ansatz.rewards.code_blocks import last_program

SAMPLE = Path(__file__).parents[2] / "examples" / "data" / "gsm8k_sample.jsonl"
GSM8K = {"source": "jsonl", "path": str(SAMPLE), "answer_from": "####"}


def printed(source: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(source, {})  # our own programs
    return out.getvalue().strip()


@pytest.mark.parametrize("of", [GSM8K, {"source": "word_problems", "count": 50}], ids=["GSM8K", "equations"])
def test_every_program_prints_the_gold_answer(of: dict) -> None:
    problems = load_problems("programs", split="train", settings={"of": of})
    assert len(problems) > 15
    for problem in problems:
        source = last_program(problem.solution or "")
        assert source is not None
        assert float(printed(source)) == float(problem.answer)
    assert any("*" in (problem.solution or "") for problem in problems)


def test_a_number_that_was_computed_becomes_its_variable() -> None:
    solution = "In May 48/2 = <<48/2=24>>24 clips.\nTogether 48+24 = <<48+24=72>>72.\n#### 72"
    assert program_of(solution, "72") == "a = 48/2\nb = 48+a\nprint(b)"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("He has <<48/2=24>>24.", "25"),
        ("He has <<48/2=23>>23.", "23"),
        ("He has <<(2=2>>2.", "2"),
        ("He has <<1/0=1>>1.", "1"),
        ("He has <<2**99999999=1>>1.", "1"),
        ("He has <<__import__('os')=1>>1.", "1"),
        ("He has two.", "2"),
        ("", "2"),
    ],
)
def test_a_solution_whose_calculations_do_not_hold_has_no_program(solution: str, answer: str) -> None:
    assert program_of(solution, answer) is None


def test_a_source_without_calculations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "2", "solution": "It is two."}\n')
    with pytest.raises(DataError, match=r"none of the 1 solutions has calculations"):
        load_problems("programs", split="train", settings={"of": {"source": "jsonl", "path": str(path)}})

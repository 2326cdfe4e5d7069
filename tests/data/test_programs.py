from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from ansatz.data.base import load_problems
from ansatz.data.programs import program_of
from ansatz.environments.calculator import calculate
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


@pytest.mark.parametrize("of", [GSM8K, {"source": "word_problems", "count": 50}], ids=["GSM8K", "equations"])
def test_every_call_has_the_answer_of_the_calculator(of: dict) -> None:
    problems = load_problems("programs", split="train", settings={"of": of, "form": "calculator"})
    assert len(problems) > 15
    for problem in problems:
        solution = problem.solution or ""
        calls = re.findall(r"<calc>(.+?)</calc><result>(.+?)</result>\n", solution)
        assert calls
        assert all(calculate(expression) == result for expression, result in calls)
        assert solution.endswith(f"\\boxed{{{problem.answer}}}")
        seen = [solution[start:end] for start, end in problem.meta["observations"]]
        assert seen == [f"<result>{result}</result>\n" for _, result in calls]


def test_values_of_calls_are_written_as_the_calculator_does(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [("1/4", "0.25"), ("10/3", "10/3"), ("0.1*3", "0.3"), ("1000*1000*1000*7", "7000000000"), ("2.5*4", "10")]
    path.write_text("".join(f'{{"question": "?", "answer": "{b}", "solution": "{a}={b}"}}\n' for a, b in rows))
    settings = {"of": {"source": "jsonl", "path": str(path)}, "form": "calculator"}
    problems = load_problems("programs", split="train", settings=settings)
    written = [(problem.solution or "").partition("</result>")[0].removeprefix("<calc>") for problem in problems]
    assert written == [f"{a}</calc><result>{calculate(a)}" for a, _ in rows]


def test_some_demonstrations_are_spread_over_the_source() -> None:
    of = {"source": "word_problems", "count": 50}
    every = load_problems("programs", split="train", settings={"of": of})
    some = load_problems("programs", split="train", settings={"of": of, "count": 5})
    assert [problem.id for problem in some] == [every[index * len(every) // 5].id for index in range(5)]
    with pytest.raises(DataError, match=r"count = 51, expected 1 to 50"):
        load_problems("programs", split="train", settings={"of": of, "count": 51})


def test_a_source_without_calculations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "2", "solution": "It is two."}\n')
    with pytest.raises(DataError, match=r"none of the 1 solutions has calculations"):
        load_problems("programs", split="train", settings={"of": {"source": "jsonl", "path": str(path)}})

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansatz.config.chat import FewShotTemplate
from ansatz.errors import ConfigError, UntrustedCodeError
from ansatz.prompts.templates import (
    QUESTION,
    STEP_BY_STEP,
    TEMPLATES,
    check_unseen,
    read_shots,
    template_text,
    with_shots,
)
from ansatz.trust import FoundText
from ansatz.types import Problem


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_holds_the_question_once(name: str) -> None:
    assert template_text(name).count(QUESTION) == 1


def test_templates_that_ask_for_a_box_share_one_instruction() -> None:
    assert STEP_BY_STEP in TEMPLATES["boxed"]
    assert STEP_BY_STEP in TEMPLATES["qwen_math"]
    assert STEP_BY_STEP in TEMPLATES["report_eval"]
    assert sum("\\boxed" in text for text in TEMPLATES.values()) == 3


def test_the_reports_prompt_is_that_of_r1_with_other_spacing() -> None:
    report, r1 = template_text("report"), template_text("r1")
    assert "<think></think> and <answer></answer> tags" in report
    assert report.endswith("User: {question} Assistant: ")
    assert report[: report.index("enclosed")] == r1[: r1.index("enclosed")]
    assert template_text("report_eval").startswith("You will be given a problem.Please reason")


def test_a_users_file_is_a_template(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Solve \\boxed{x}: {question} =>", encoding="utf-8")
    assert template_text(str(tmp_path / "mine.txt")) == "Solve \\boxed{x}: {question} =>"


def test_a_text_of_the_user_has_no_byte_order_mark_and_is_utf_8(tmp_path: Path) -> None:
    mark = "\ufeff".encode()
    (tmp_path / "mine.txt").write_bytes(mark + b"Solve {question}")
    assert template_text(str(tmp_path / "mine.txt")) == "Solve {question}"
    shot = json.dumps({"question": "1 +\u2028\x85 1?", "solution": "2"}, ensure_ascii=False).encode()
    (tmp_path / "shots.jsonl").write_bytes(mark + shot + b"\r\n")
    assert read_shots(str(tmp_path / "shots.jsonl"), num_shots=1) == [("1 +\u2028\x85 1?", "2")]
    for name in ("mine.txt", "shots.jsonl"):
        (tmp_path / name).write_bytes("Löse {question}".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"mine\.txt' is not UTF-8 text .* Save it as UTF-8"):
        template_text(str(tmp_path / "mine.txt"))
    with pytest.raises(ConfigError, match=r"shots\.jsonl' is not UTF-8 text"):
        read_shots(str(tmp_path / "shots.jsonl"), num_shots=1)


def test_an_invalid_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'boxd' is unknown\. Did you mean 'boxed'"):
        template_text("boxd")
    with pytest.raises(ConfigError, match="does not exist"):
        template_text(str(tmp_path / "none.txt"))
    (tmp_path / "empty.txt").write_text("Solve it.")
    with pytest.raises(ConfigError, match=r"contains \{question\} 0 times, expected once"):
        template_text(str(tmp_path / "empty.txt"))


def few_shots(folder: Path, *, num_shots: int) -> FewShotTemplate:
    rows = [{"question": f"{n} + {n}?", "solution": f"It is {2 * n}."} for n in range(1, num_shots + 2)]
    path = folder / "shots.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "frame.txt").write_text("Q: {question}\nA: ", encoding="utf-8")
    return FewShotTemplate(name=str(folder / "frame.txt"), shots=str(path), num_shots=num_shots)


def problem(question: str) -> Problem:
    return Problem(id="p", question=question, answers=("0",), source="test", split="test")


def test_worked_problems_come_in_the_text_of_the_template_and_never_before_their_own_question(tmp_path: Path) -> None:
    template = few_shots(tmp_path, num_shots=2)
    text = template_text(template.name)
    one, two, three = (f"Q: {n} + {n}?\nA: It is {2 * n}.\n\n" for n in (1, 2, 3))
    for question, shown in (("5?", one + two), ("1  + 1?", two + three), ("3 + 3?", one + two)):
        assert text.replace(QUESTION, with_shots(problem(question), template).question) == f"{shown}Q: {question}\nA: "


def test_worked_problems_that_are_evaluated_or_missing_are_refused_in_a_sentence(tmp_path: Path) -> None:
    template = few_shots(tmp_path, num_shots=2)
    check_unseen(template, [problem("4 + 4?")])
    with pytest.raises(ConfigError, match=r"contains problem 'p', which is evaluated"):
        check_unseen(template, [problem("2 + 2?")])
    with pytest.raises(ConfigError, match=r"has 3 lines, fewer than num_shots = 4"):
        read_shots(str(template.shots), num_shots=4)
    Path(str(template.shots)).write_text('{"question": "1?"}\n' * 3)
    with pytest.raises(ConfigError, match=r"line 1 \(KeyError: 'solution'\)"):
        read_shots(str(template.shots), num_shots=2)


def test_worked_problems_that_somebody_elses_recipe_names_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "shots.jsonl"
    file.write_text('{"question": "What is 1 + 1?", "solution": "2"}\n', encoding="utf-8")
    assert read_shots(str(file), num_shots=1) == [("What is 1 + 1?", "2")]
    with pytest.raises(UntrustedCodeError, match=r"^shots .*: model/recipe\.yaml, which came along .*, names it"):
        read_shots(FoundText(str(file), Path("model/recipe.yaml")), num_shots=1)

from __future__ import annotations

from pathlib import Path

import pytest

from ansatz.errors import ConfigError
from ansatz.prompts.templates import QUESTION, STEP_BY_STEP, TEMPLATES, template_text


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


def test_an_invalid_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'boxd' is unknown\. Did you mean 'boxed'"):
        template_text("boxd")
    with pytest.raises(ConfigError, match="does not exist"):
        template_text(str(tmp_path / "none.txt"))
    (tmp_path / "empty.txt").write_text("Solve it.")
    with pytest.raises(ConfigError, match=r"contains \{question\} 0 times, expected once"):
        template_text(str(tmp_path / "empty.txt"))

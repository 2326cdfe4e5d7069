"""The prompt templates, which are in templates.yaml. {question} marks the place of the question.

A recipe can also name "chat" (the tokenizer's chat template around the `boxed` text) or a user's .txt file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ansatz.config.chat import ChatTemplate, Template
from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.json_text import parse_json
from ansatz.registry import describe_missing_file, read_given_text, suggest
from ansatz.trust import refuse_found
from ansatz.types import Problem

QUESTION = "{question}"
CHAT = "chat"

TEMPLATES: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
STEP_BY_STEP = TEMPLATES["boxed"].removeprefix(f"{QUESTION}\n")


def with_shots(problem: Problem, template: Template) -> Problem:
    """Return the problem with the worked problems of a few-shot template before its question. Each is in the text of
    the template, with its solution and an empty line after it. A worked problem with the same question is left out.

    Raise the errors of `template_text` and `read_shots`.
    """
    if isinstance(template, str) or template.shots is None:
        return problem
    before, _, after = template_text(problem.template or text_name(template)).partition(QUESTION)
    shots = read_shots(template.shots, num_shots=template.num_shots)
    others = [shot for shot in shots if _words(shot[0]) != _words(problem.question)][: template.num_shots]
    shown = "".join(f"{question}{after}{solution}\n\n{before}" for question, solution in others)
    return replace(problem, question=shown + problem.question)


def whole_text(template: Template) -> str:
    """Return the text of a template with its worked problems before {question}; of a ChatTemplate, the user's turn.

    Raise the errors of `template_text` and `read_shots`.
    """
    question = with_shots(Problem(id="", question=QUESTION, source="", split=""), template).question
    return template_text(text_name(template)).replace(QUESTION, question)


def text_name(template: Template) -> str:
    """Return the name of the text around a question; of a ChatTemplate, of the user's turn."""
    if isinstance(template, str):
        return template
    return template.user if isinstance(template, ChatTemplate) else template.name


def check_unseen(template: Template, problems: Iterable[Problem]) -> None:
    """Raise ConfigError if a worked problem of a few-shot template is among these problems, which are evaluated."""
    if isinstance(template, str) or template.shots is None:
        return
    shots = {_words(question) for question, _ in read_shots(template.shots, num_shots=template.num_shots)}
    for problem in problems:
        if _words(problem.question) in shots:
            raise ConfigError(
                f"shots {template.shots!r} contains problem {problem.id!r}, which is evaluated, so its answer would be "
                "in prompts. Use worked problems that are not evaluated."
            )


def read_shots(path: str, *, num_shots: int) -> list[tuple[str, str]]:
    """Return question and solution of the first num_shots + 1 lines of a JSONL file: one may be left out. Raise
    ConfigError for a missing file, for too few lines, and for a line without these fields, and UntrustedCodeError for a
    file that a recipe names which came along with a model or a run."""
    refuse_found(path, kind="shots")
    file, fields = Path(path), "Expected a .jsonl file with `question` and `solution` in each line"
    if not file.is_file():
        raise ConfigError(f"shots {path!r} {describe_missing_file(file)}. {fields}.")
    shots = list[tuple[str, str]]()
    text = read_given_text(file, named=f"shots {path!r}")
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines[: num_shots + 1], start=1):
        try:
            row = parse_json(line)
            shots.append((str(row["question"]), str(row["solution"])))
        except (ValueError, TypeError, KeyError) as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"shots {path!r}, line {number} ({why}). {fields}.") from error
    if len(shots) < num_shots:
        raise ConfigError(f"shots {path!r} has {len(shots)} lines, fewer than num_shots = {num_shots}. Add some.")
    return shots


def _words(question: str) -> tuple[str, ...]:
    return tuple(question.casefold().split())


def template_text(name: str) -> str:
    """Return the text of a template, which contains {question} once. `name` is a key of TEMPLATES or the path of a .txt
    file.

    Raise ConfigError for an unknown name, a missing file, or a file that does not contain {question} exactly once.
    `render` handles "chat", which has no text of its own.
    """
    if name in TEMPLATES:
        return TEMPLATES[name]
    if not name.endswith(".txt"):
        raise ConfigError(
            f"prompt template {name!r} is unknown.{suggest(name, [*TEMPLATES, CHAT])} "
            f"A template can also be the path of a .txt file that contains {QUESTION}."
        )
    path = Path(name)
    if not path.is_file():
        raise ConfigError(
            f"prompt template {name!r} {describe_missing_file(path)}. Expected a text file that contains {QUESTION}."
        )
    text = read_given_text(path, named=f"prompt template {name!r}")
    if text.count(QUESTION) != 1:
        raise ConfigError(
            f"prompt template {name!r} contains {QUESTION} {text.count(QUESTION)} times, expected once. "
            "It marks the place of the problem's question."
        )
    return text

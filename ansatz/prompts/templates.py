"""Prompt templates: texts with {question} in the place of the question, and the tokenizer's own chat template.

A recipe names one of templates.yaml, "chat" (the tokenizer's chat template around the `boxed` text) or a user's .txt
file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ansatz.config.chat import ChatTemplate, FewShotTemplate, Template
from ansatz.errors import ConfigError, ModelError
from ansatz.files import read_yaml
from ansatz.json_text import parse_json
from ansatz.registry import describe_missing_file, read_given_text, suggest
from ansatz.special_tokens import special_tokens
from ansatz.trust import refuse_found
from ansatz.types import SYSTEM_ROLES, Problem

QUESTION = "{question}"
CHAT = "chat"

TEMPLATES: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
STEP_BY_STEP = TEMPLATES["boxed"].removeprefix(f"{QUESTION}\n")

THOUGHT, THOUGHT_END = "<think>", "</think>"
EMPTY_THOUGHT = re.compile(r"\s*<think>\s*</think>\s*")
"""As some templates, such as Qwen3's, add it to a response without a thought."""
_WITHOUT_TURNS = " The data setting keep_earlier_turns: false leaves out the turns before the question."


class Tokenizer(Protocol):
    """The part of the transformers tokenizer interface that rendering needs."""

    eos_token_id: Any
    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any: ...


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


def spelled_out(template: Template) -> str | ChatTemplate:
    """Return the template, with the plain name "chat" as the settings that it stands for, and another name with worked
    problems as the name. Other names are as they were."""
    if isinstance(template, FewShotTemplate):
        return template.name
    return ChatTemplate(name="chat") if template == CHAT else template


@dataclass(frozen=True, slots=True)
class ChatRenderer:
    """A tokenizer's chat template with a recipe's settings. It gives hidden text (see `special_tokens`): nothing in a
    problem can end a turn or open one."""

    tokenizer: Tokenizer
    chat: ChatTemplate

    def prompt(self, problem: Problem, *, user_text: str | None = None) -> str:
        """Return the conversation up to the place where the response begins.

        user_text: the text of the last user turn, with {question}; None: as the recipe's settings say.

        Raise ModelError if the tokenizer has no chat template, if its template refuses the conversation, as some refuse
        a system prompt, or if it leaves out a turn or the tools.
        """
        if not self.tokenizer.chat_template:
            raise ModelError(
                "prompt template 'chat' needs a tokenizer with a chat template, but this one has none. "
                f"Use one of {', '.join(map(repr, TEMPLATES))}, or a model folder with a chat template."
            )
        source = str(self.tokenizer.chat_template)
        if unused := [name for name in problem.template_arguments if name not in source]:
            raise ModelError(
                f"the tokenizer's chat template does not use {', '.join(unused)}, which problem {problem.id!r} sets. "
                "Leave out the field chat_template_kwargs of the data (of the source fusion: switch: template)."
            )
        turns = self.turns(problem, user_text=user_text)
        text = self.apply(turns, problem, for_response=True)
        _check_complete(text, turns, problem)
        if self._tools(problem) and text == self.apply(turns, problem, for_response=True, with_tools=False):
            raise ModelError(
                f"the tokenizer's chat template does not show the tools of problem {problem.id!r}. If they are those "
                "of an environment, use one whose tools are called in tags (environment.form: tags). Otherwise leave "
                "them out (data.template.tools, or the field tools of the data), or describe them in "
                "data.template.system."
            )
        return text

    def turns(self, problem: Problem, *, user_text: str | None = None) -> list[dict[str, Any]]:
        """Return the messages: the turns before the question, and the question in its text as the last user turn.

        A system prompt of the problem replaces the recipe's own, because it belongs to this question. The recipe's is
        for all questions without one.
        """
        text = template_text(problem.template or self.chat.user) if user_text is None else user_text
        special = special_tokens(self.tokenizer)
        turns = [
            *map(special.hide_turn, problem.earlier_turns),
            {"role": "user", "content": text.replace(QUESTION, special.hide(problem.question))},
        ]
        if self.chat.system is not None and not any(turn["role"] in SYSTEM_ROLES for turn in turns):
            turns.insert(0, {"role": "system", "content": self.chat.system})
        return turns

    def apply(
        self, turns: Sequence[Mapping[str, Any]], problem: Problem, *, for_response: bool, with_tools: bool = True
    ) -> str:
        """Return the turns as text. for_response: with the beginning of a response after them. Raise ModelError if the
        template refuses them."""
        arguments = special_tokens(self.tokenizer).hide_value(problem.template_arguments)
        settings = {**self.chat.arguments, **arguments, "add_generation_prompt": for_response}
        if with_tools and (tools := self._tools(problem)):
            settings["tools"] = list(tools)
        try:
            text = self._apply(turns, settings)
        except Exception as error:  # a template is a program, which can raise anything
            raise ModelError(
                f"the tokenizer's chat template refuses the prompt of problem {problem.id!r}: {error}. Leave out "
                "data.template.system, or change data.template.arguments."
                + (_WITHOUT_TURNS if problem.earlier_turns else "")
            ) from error
        if not isinstance(text, str):
            raise ModelError(f"the tokenizer's chat template gives {text!r:.60}, expected text. Correct the template.")
        return text

    def _apply(self, turns: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Any:
        """Return the turns as the template renders them. Arguments of calls are objects; a template that refuses them,
        as DeepSeek's does, gets them as the text of objects."""
        try:
            return self.tokenizer.apply_chat_template(list(turns), tokenize=False, **settings)
        except Exception:
            as_text = [_with_arguments_as_text(turn) for turn in turns]
            if as_text == list(turns):
                raise
            return self.tokenizer.apply_chat_template(as_text, tokenize=False, **settings)

    def asks_for_thought(self, problem: Problem) -> bool:
        """Tell whether the recipe or the row asks for a thought: enable_thinking is true."""
        return {**self.chat.arguments, **problem.template_arguments}.get("enable_thinking") is True

    def _tools(self, problem: Problem) -> Sequence[Mapping[str, Any]]:
        return special_tokens(self.tokenizer).hide_value(problem.tools) or self.chat.tools


def shows(text: str, content: str) -> bool:
    """Return whether a rendered response has the thought and the answer of `content`, in this order."""
    thought, _, answer = content.rpartition(THOUGHT_END)
    thought = thought.rpartition(THOUGHT)[2].strip()
    start = text.find(thought)
    return start >= 0 and answer.strip() in text[start + len(thought) :]


def shows_calls(text: str, turn: Mapping[str, Any]) -> bool:
    """Return whether a rendered turn has the names of the functions that the turn calls, in this order."""
    start = 0
    for call in turn.get("tool_calls", ()):
        start = text.find(call["function"]["name"], start) + 1
        if not start:
            return False
    return True


def _with_arguments_as_text(turn: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in turn.get("tool_calls", ())
    ]
    return {**turn, "tool_calls": calls} if calls else dict(turn)


def _check_complete(text: str, turns: Sequence[Mapping[str, Any]], problem: Problem) -> None:
    """Raise ModelError if a turn is not in the text, in its place. A template may put a system prompt anywhere
    (Mistral's put it into the last user turn), and may leave out the thought of an earlier response."""
    end = 0
    for turn in turns:
        system = turn["role"] in SYSTEM_ROLES
        said = turn["content"].rpartition(THOUGHT_END)[2].strip()
        start = text.find(said, 0 if system else end)
        if start < 0 and turn["role"] == "tool":  # some templates write the answers of tools as JSON
            said = json.dumps(said, ensure_ascii=False)[1:-1]
            start = text.find(said, end)
        if start < 0 or not shows_calls(text[end:], turn):
            what = "system prompt" if system else f"{turn['role']}'s turn {said[:40]!r}"
            raise ModelError(
                f"the tokenizer's chat template drops the {what} of problem {problem.id!r}. Leave out "
                "data.template.system, or put its text into a template of your own (a .txt file)."
                + (_WITHOUT_TURNS if problem.earlier_turns else "")
            )
        end = end if system else start + len(said)

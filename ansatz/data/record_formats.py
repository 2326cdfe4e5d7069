"""The record formats of published data sets, so that most files can be read without naming fields.

GSM8K             {"question", "answer": "... #### 72"}
MATH              {"problem", "solution": "... \\boxed{2}", "level", "type"}; later collections also have "answer"
NuminaMath        {"problem", "solution": "... \\boxed{2}", "messages", "source"} (CoT and TIR)
OpenR1-Math       {"problem", "solution", "answer", "uuid", "generations", ...}
DeepMath          {"question", "final_answer", "difficulty", "topic", "r1_solution_1", ...}
MetaMath          {"query", "response": "... The answer is: 2", "type"}
DAPO, verl        {"prompt": [{"role": "user", "content"}], "reward_model": {"ground_truth"}, "extra_info"}
TRL               {"prompt": text or messages, "ground_truth"} or {"prompt", "completion"}
Open-Reasoner     [{"from": "human", "value"}, {"from": "assistant", "ground_truth": {"value"}}]
AReaL-boba        {"prompt", "solutions": ["\\boxed{3}"], "query_id"}
GPQA              {"Question", "Correct Answer", "Incorrect Answer 1", 2, 3, "Record ID"}
Countdown         {"nums", "target"}, or verl's columns with "ground_truth": {"numbers", "target"}
ASDiv, SVAMP      {"body", "question", "answer": "9 (apples)" or 9.0}: the question is both
Alpaca            {"instruction", "input", "output"}: the question is the instruction and its input
chat, ShareGPT    {"messages": [{"role", "content"}]} or {"conversations": [{"from", "value"}]}; "system" next to them

Some of these wrap the question in an instruction about the form of the answer. It is removed, because here the prompt
template gives that instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from ansatz_verify.responses import GOLDS

from ansatz.files import read_yaml
from ansatz.json_text import parse_json


def _flatten(names: Iterable[Any]) -> tuple[str, ...]:
    return tuple(each for name in names for each in ([name] if isinstance(name, str) else _flatten(name)))


_TABLE: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
CONVERSATIONS, WORKED, SYSTEM, THOUGHTS, _TURN, _MARKS, _LABELS, _CONTENT = (
    _flatten(_TABLE[key])
    for key in ("conversations", "worked", "system", "thoughts", "turn", "marks", "labels", "content")
)
"""Fields that hold a chat; a worked solution or a whole response, where the answer has to be searched for; a system
prompt outside of the messages; the thought of a turn."""
_MEDIA, _MEDIA_MARK = (re.compile(_TABLE[key], re.IGNORECASE) for key in ("media", "media_marks"))
FIELDS = {what: _flatten(names) for what, names in _TABLE["fields"].items()}
FIELDS["answer"] = tuple(dict.fromkeys((*GOLDS, *WORKED)))
"""Field names by their content, in order of preference. Upper and lower case are not distinguished."""
HINTS: dict[str, list[str]] = _TABLE["hints"]
"""Other common names, which an error message suggests. They are ambiguous, so a setting must name them."""
META: tuple[str, ...] = _flatten(_TABLE["meta"])
"""Fields that rewards and environments of the package read."""
FOLLOWING: dict[str, str] = _TABLE["following"]
"""By the field of a question: the field with its second part, if a row has one."""
PRECEDING: dict[str, str] = _TABLE["preceding"]
"""By the field of a question, in lower case: the field with its first part, if a row has one."""
_ROLES = {name: role for role, names in _TABLE["roles"].items() for name in _flatten(names)}
_TEXT_OF_TURN = ("content", "value", "text")
_WHOLE_LOSS = ("", "none", "true", "1", "1.0")
"""Values of a mark of training that change nothing, as text, which is all that CSV has."""
_LONG_TEXT = 8
"""Characters. A shorter text may be part of another one by chance."""


class Turn(NamedTuple):
    """role: "user", "assistant", "tool", or any other as it is written, such as "system".

    fields: the other fields of the turn, as chat templates take them: `tool_calls` of an assistant, each with its
    function's name and arguments; `tool_call_id` and `name` of a tool.
    """

    role: str
    text: str
    fields: Mapping[str, Any] = MappingProxyType({})

    @property
    def message(self) -> dict[str, Any]:
        """Return the turn as a message of a chat template."""
        return {"role": self.role, "content": self.text, **self.fields}


def recognised(what: str, known: Callable[[str], bool]) -> str | None:
    """Return the first field name in FIELDS[what] that is known, or Alpaca's if all of its fields are; None if none
    is."""
    names = list(FIELDS[what])
    if what in _TABLE["alpaca"] and all(map(known, _TABLE["alpaca"].values())):
        names.append(_TABLE["alpaca"][what])
    return next((name for name in names if known(name)), None)


def find_lost_texts(values: Any, kept: Collection[str], *, of_turn: bool = False) -> Iterator[str]:
    """Yield the names of fields that hold a text or a thought which is in none of the texts that are kept, or a mark of
    training that asks for anything else than the whole loss.

    Labels, such as a source or a subject, and texts of one or two words are not lost: nobody reads them. values: the
    fields that nothing uses. of_turn: they belong to a turn of a chat.
    """
    for name, value in cast("dict[str, Any]", values).items() if isinstance(values, dict) else ():
        folded = str(name).casefold()
        if of_turn and folded in _TURN:
            continue
        if folded in _MARKS and str(value).lower() not in _WHOLE_LOSS:
            yield str(name)
            continue
        texts = [text for text in _texts_in(value) if not _is_kept(text, kept)]
        shortest = 1 if folded in _CONTENT else 9 if folded in _LABELS or folded.endswith("id") else 3
        if any(_num_words(text) >= shortest for text in texts):
            yield str(name)


def find_lost_texts_of_turns(chat: Any, kept: Collection[str]) -> Iterator[str]:
    """Yield the same of the turns of a chat."""
    for turn in cast("list[Any]", chat) if isinstance(chat, list) else []:
        said = _ROLES.get(str(_field(turn, "role", "from")).lower()) == "assistant"
        yield from find_lost_texts(turn, [*kept, _find_thought(turn)] if said else kept, of_turn=True)


def media_in(values: Any) -> str | None:
    """Return the name of the first field that holds a picture, a film or sound, also of the turns of a chat; None if
    there is none."""
    for name, value in cast("dict[str, Any]", values).items() if isinstance(values, dict) else ():
        is_file = isinstance(value, dict) and {"bytes", "path"} <= set(cast("dict[str, Any]", value))
        if is_file or (_MEDIA.fullmatch(str(name)) and any(_texts_in(value))):
            return str(name)
        turns = cast("list[Any]", value) if isinstance(value, list) and str(name).casefold() in CONVERSATIONS else []
        if (found := next(filter(None, map(media_in, turns)), None)) is not None:
            return f"{name}: {found}"
    return None


def media_mark_in(text: str) -> str | None:
    """Return the first mark of a picture, a film or sound in a text, such as <image>; None if there is none."""
    mark = _MEDIA_MARK.search(text)
    return mark and mark[0]


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.strip():
        yield value.strip()
    elif isinstance(value, dict | list):
        items = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for item in items:
            yield from _texts_in(item)


def _is_kept(text: str, kept: Collection[str]) -> bool:
    return any(text == each.strip() or (len(text) > _LONG_TEXT and text in each) for each in kept)


def _num_words(text: str) -> int:
    """Count words; a text of a language without spaces counts by its characters."""
    return max(len(text.split()), sum(ord(character) > 0x2E80 for character in text) // 2)


def without_instructions(question: str) -> str:
    """Return the question without the instructions that DAPO, verl and AReaL add; unchanged if nothing would be
    left."""
    return _remove_instructions(question) or question


def only_instructions(text: str) -> bool:
    """Return whether a text, such as a system prompt, holds nothing but these instructions."""
    return not _remove_instructions(text)


def _remove_instructions(text: str) -> str:
    text = text.strip()
    for pattern in _TABLE["instructions"]:
        text = re.sub(pattern, "", text).strip()
    return text


def turns_of(value: Any) -> list[Turn] | None:
    """Return the turns of a chat, written as {"role", "content"} or {"from", "value"}; None if the value is not a chat.

    Upper and lower case are not distinguished, and the text of a turn can also be called "text".
    """
    if not isinstance(value, list) or not value:
        return None
    turns: list[Turn] = []
    for item in cast("list[Any]", value):
        role = _field(item, "role", "from")
        if not isinstance(role, str):
            return None
        content = _field(item, *_TEXT_OF_TURN)
        text = _text_of(content)
        if (
            _ROLES.get(role.lower()) == "assistant"
            and (thought := _find_thought(item))
            and not text.startswith("<think>")
        ):
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        fields = _tool_fields(item)
        if role.lower() in _TABLE["calls"] and "tool_calls" in fields:
            text = ""  # it is the call
        turns.append(Turn(_ROLES.get(role.lower(), role.lower()), text, fields))
    return turns


def _find_thought(turn: Any) -> str:
    """Return the first of the fields of an assistant's turn that holds its thought as text; empty if none does."""
    return next(filter(None, (_text_of(_field(turn, name)) for name in THOUGHTS)), "")


def _tool_fields(turn: Any) -> dict[str, Any]:
    """Return `Turn.fields`. Calls that cannot be read are left out; `no_text_of` names them."""
    if calls := _calls_of(turn):
        return {"tool_calls": calls}
    if _ROLES.get(str(_field(turn, "role", "from")).lower()) != "tool":
        return {}
    return {name: value for name in ("tool_call_id", "name") if isinstance(value := _field(turn, name), str)}


def _calls_of(turn: Any) -> list[dict[str, Any]] | None:
    """Return the tool calls of a turn, as OpenAI, TRL and ShareGPT write them; None if one cannot be read, empty
    without any.

    The arguments are an object, also where they are the text of one.
    """
    given = _field(turn, "tool_calls") or _field(turn, "function_call")
    if not given and str(_field(turn, "role", "from")).lower() in _TABLE["calls"]:
        given = _object_of(_field(turn, *_TEXT_OF_TURN))
        if given is None:
            return None
    if not given:
        return []
    calls: list[dict[str, Any]] = []
    for item in cast("list[Any]", given) if isinstance(given, list) else [given]:
        call = _object_of(item)
        function = _object_of(_field(call, "function")) or call
        name, arguments = _field(function, "name"), _field(function, "arguments", "parameters")
        arguments = {} if arguments in (None, "") else _object_of(arguments)
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            return None
        id_ = _field(call, "id")
        ids = {"id": id_} if isinstance(id_, str) else {}
        calls.append({**ids, "type": "function", "function": {"name": name, "arguments": arguments}})
    return calls


def _object_of(value: Any) -> Any:
    """Return an object, also if it is the text of one, or a list of objects; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            return None
    return value if isinstance(value, dict | list) else None


def no_text_of(turn: Any) -> str | None:
    """Return the part of a chat's turn that cannot be used, such as "image_url"; None if there is no such part."""
    if _calls_of(turn) is None:
        return "tool_calls of an unknown form"
    content = _field(turn, *_TEXT_OF_TURN)
    kinds = map(_kind_of_part, cast("list[Any]", content) if isinstance(content, list) else [])
    return next((kind for kind in kinds if kind not in ("text", "input_text", "output_text")), None)


def _kind_of_part(part: Any) -> str:
    """Return the type of a part of a turn. If it has none, as {"image": ...}, return its first field besides text."""
    if not isinstance(part, dict):
        return type(part).__name__
    fields = {str(name): value for name, value in cast("dict[Any, Any]", part).items() if value is not None}
    return str(fields.get("type") or next((name for name in fields if name not in ("type", "text")), "text"))


def _field(turn: Any, *names: str) -> Any:
    """Return the value of the first of the names that the turn has, in upper or lower case; None if it has none."""
    if not isinstance(turn, dict):
        return None
    fields = {str(key).casefold(): item for key, item in cast("dict[Any, Any]", turn).items()}
    return next((fields[name] for name in names if name in fields), None)


def _text_of(content: Any) -> str:
    """Return a turn's text; of a list of parts, the text parts."""
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict)).strip()
    return content.strip() if isinstance(content, str) else ""


def puzzle_of(value: Any) -> tuple[list[int], int] | None:
    """Return (numbers, target) of a Countdown puzzle; None if the value is not one."""
    if not isinstance(value, dict):
        return None
    numbers, target = _number(_field(value, "nums", "numbers")), _number(_field(value, "target"))
    if not isinstance(numbers, list) or not isinstance(target, int):
        return None
    return cast("list[int]", numbers), target


def _number(value: Any) -> Any:
    """Return the integer, or list of integers, that a text is, as in a CSV file; any other value unchanged."""
    if not isinstance(value, str) or not re.fullmatch(r"\s*(-?\d+|\[[\d,\s]+\])\s*", value):
        return value
    return [int(digits) for digits in re.findall(r"\d+", value)] if "[" in value else int(value)


def as_object(value: Any) -> Any:
    """Return a row of two turns, or a bare Countdown puzzle, as an object with question and answer; other values
    unchanged."""
    if isinstance(value, dict):
        row = cast("dict[str, Any]", value)
        asked = {"question", "problem", "prompt", "query"} & {str(key).casefold() for key in row}
        puzzle = None if asked else puzzle_of(row)
        if puzzle is None:
            return row
        shown = ", ".join(map(str, puzzle[0]))
        return {**row, "question": _TABLE["puzzle"].format(nums=shown, target=puzzle[1]), "answer": str(puzzle[1])}
    if not isinstance(value, list):
        return value
    turns = cast("list[Any]", value)
    if len(turns) != 2 or not all(isinstance(turn, dict) and "from" in turn for turn in turns):
        return value
    user, assistant = cast("list[dict[str, Any]]", turns)
    truth: Any = assistant.get("ground_truth")
    details = dict(cast("dict[str, Any]", truth)) if isinstance(truth, dict) else {"value": truth}
    answer = details.pop("value", None)
    row = {**details, "question": user.get("value"), "answer": answer}
    return {key: item for key, item in row.items() if item is not None}

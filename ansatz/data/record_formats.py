"""The record formats of published data sets, so that most files can be read without naming fields.

GSM8K          {"question", "answer": "... #### 72"}
MATH           {"problem", "solution": "... \\boxed{2}", "level"}; with "answer" in later collections
DAPO, verl     {"prompt": [{"role": "user", "content"}], "reward_model": {"ground_truth"}}
Open-Reasoner  [{"from": "human", "value"}, {"from": "assistant", "ground_truth": {"value"}}]
AReaL-boba     {"prompt", "solutions": ["\\boxed{3}"]}

Some of these wrap the question in an instruction about the form of the answer. It is removed, because here the prompt
template gives that instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

FIELDS = {
    "question": ("question", "problem", "prompt", "query"),
    "answer": ("answer", "reward_model.ground_truth", "ground_truth", "expected_answer", "solution", "solutions"),
    "level": ("level", "difficulty"),
    "solution": ("solution", "solutions"),
}
"""Field names by what they hold, in order of preference."""

_INSTRUCTIONS = (
    r"^<[|｜]User[|｜]>\s*",
    r"<[|｜]Assistant[|｜]>\s*(<think>\s*)?$",
    r"^Solve the following math problem step by step\. The last line of your response should be of the form Answer: "
    r"\$Answer \(without quotes\) where \$Answer is the answer to the problem\.\s*",
    r"\s*Remember to put your answer on its own line after \"Answer:\"\.$",
    r"\s*(Please|Let's) (reason|think) step by step,? and (put your final answer|output the final answer) "
    r"(within \\{1,2}boxed\{\}|after \"####\")\.?$",
)


def recognised(what: str, known: Callable[[str], bool]) -> str | None:
    """The first field name in FIELDS[what] that is known; None if none is."""
    return next((name for name in FIELDS[what] if known(name)), None)


def without_instructions(question: str) -> str:
    """The question without the instructions that DAPO, verl and AReaL add; unchanged if nothing would be left."""
    bare = question
    for pattern in _INSTRUCTIONS:
        bare = re.sub(pattern, "", bare)
    return bare.strip() or question


def as_object(value: Any) -> Any:
    """A row of two turns as an object with `question` and `answer`; any other value unchanged."""
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

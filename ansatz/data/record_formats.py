"""The record shapes that published data sets have, so that most files need no field names.

GSM8K          {"question", "answer": "... #### 72"}
MATH           {"problem", "solution": "... \\boxed{2}", "level"}; with "answer" in later collections
DAPO, verl     {"prompt": [{"role": "user", "content"}], "reward_model": {"ground_truth"}}
Open-Reasoner  [{"from": "human", "value"}, {"from": "assistant", "ground_truth": {"value"}}]
AReaL-boba     {"prompt", "solutions": ["\\boxed{3}"]}

Some of these put an instruction about the answer's form around the question. It is taken off: here the prompt template
gives that instruction, once.
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
"""Field names by what they hold, the likeliest first."""

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
    """The first field name of FIELDS[what] that is known, None where none is."""
    return next((name for name in FIELDS[what] if known(name)), None)


def without_instructions(question: str) -> str:
    """The question without the instructions that DAPO, verl and AReaL wrap it in; as it is where nothing is left."""
    bare = question
    for pattern in _INSTRUCTIONS:
        bare = re.sub(pattern, "", bare)
    return bare.strip() or question


def as_object(value: Any) -> Any:
    """A row of turns as an object with `question` and `answer`; any other value as it is."""
    if not isinstance(value, list):
        return value
    turns = cast("list[Any]", value)
    if len(turns) != 2 or not all(isinstance(turn, dict) and "from" in turn for turn in turns):
        return value
    asked, replied = cast("list[dict[str, Any]]", turns)
    truth: Any = replied.get("ground_truth")
    others: dict[str, Any] = {key: found for key, found in truth.items() if key != "value"} if _is_object(truth) else {}
    row = {**others, "question": asked.get("value"), "answer": truth.get("value") if _is_object(truth) else truth}
    return {key: found for key, found in row.items() if found is not None}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)

"""The reward for answers that are JSON, such as a function call or a list: equal to the gold answer, value by value.

Objects are equal if they have the same fields in any order; in lists the order counts. 1 equals 1.0 and not true. A
call is the same in the forms of OpenAI, Hermes and TRL, and a list of one call is that call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from ansatz.errors import DataError
from ansatz.json_text import parse_json
from ansatz.rewards.base import RewardResult
from ansatz.types import Problem, Reason, Rollout, Verdict

_LONGEST = 50_000  # characters at the end of a response in which its answer is looked for
_MOST_STARTS = 200  # brackets that begin no value, and then the last ones: text of a policy is read in linear time
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def exact_json(rollouts: Sequence[Rollout], *, correct: float = 1.0, wrong: float = 0.0) -> list[RewardResult]:
    """Compare the last JSON value that a response states with the gold answer.

    The calls in <tool_call> tags are one answer together. A thought (<think>) states none.
    Example: the gold answer {"name": "add", "arguments": {"a": 1, "b": 2}} is equal to
    <tool_call>{"name": "add", "arguments": {"b": 2, "a": 1}}</tool_call>.
    """
    return [_result(rollout, correct, wrong) for rollout in rollouts]


def check_golds(problems: Sequence[Problem]) -> None:
    """Raise DataError, with the ids of the problems, for gold answers that are not JSON."""
    wrong = [problem for problem in problems if not all(map(_is_json, problem.answers or ("",)))]
    if wrong:
        raise DataError(
            f"{len(wrong)} of {len(problems)} gold answers are not JSON, which exact_json compares. The first: problem "
            f"{wrong[0].id!r} has {wrong[0].answer!r:.80}. Write it as JSON, or use another reward."
        )


def is_structure(gold: str) -> bool:
    """Return whether a gold answer is a JSON object, or a list with one or with a text in it: no mathematics."""
    if not re.match(r"\s*(\{\s*[\"}]|\[\s*[\"{])", gold):
        return False
    return _is_json(gold)


def golds_are_json(problem: Problem) -> bool:
    """Return whether every gold answer of the problem is JSON and not mathematics (`is_structure`)."""
    return bool(problem.answers) and all(map(is_structure, problem.answers))


def _result(rollout: Rollout, correct: float, wrong: float) -> RewardResult:
    rest = rollout.said.rpartition("</think>")[2]
    said = list(_values("" if "<think>" in rest else rest[-_LONGEST:]))
    if not said:
        verdict = Verdict(correct=False, reason=Reason.NO_ANSWER, stage="extract")
        return RewardResult(value=wrong, verdict=verdict)
    golds = (_simplify(parse_json(gold)) for gold in rollout.prompt.problem.answers)
    is_right = any(_are_same(_simplify(said[-1]), gold) for gold in golds)
    verdict = Verdict(
        correct=is_right,
        reason=Reason.EQUAL if is_right else Reason.DIFFERENT,
        extracted=json.dumps(said[-1], ensure_ascii=False)[:1000],
        stage="structure",
    )
    return RewardResult(value=correct if is_right else wrong, verdict=verdict)


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, in order; of a text with calls in tags, only their list."""
    if calls := _CALL.findall(text):
        if all(map(_is_json, calls)):
            yield [parse_json(call) for call in calls]
        return
    if _is_json(text):
        yield parse_json(text)
        return
    yield from (value for value, _ in values_in(text))


def values_in(text: str, *, opening: str = "[{") -> Iterator[tuple[Any, int]]:
    """Yield the JSON values that begin with one of these brackets, with their ends, and none within another."""
    decoder, end, num_failures = json.JSONDecoder(), 0, 0
    starts = [place for place, letter in enumerate(text) if letter in opening]
    for start in starts:
        if start < end or (num_failures > _MOST_STARTS and start < starts[-_MOST_STARTS]):
            continue
        try:
            value, end = decoder.raw_decode(text, start)
            json.dumps(value)  # a value that is nested too deeply to be written
        except (ValueError, RecursionError):
            num_failures += 1
            continue
        yield value, end


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _simplify(value: Any) -> Any:
    """Return a call as its name and its arguments, and a list of one call as that call; other values as they are."""
    if isinstance(value, list):
        items = [_simplify(item) for item in cast("list[Any]", value)]
        return items[0] if len(items) == 1 and _is_call(items[0]) else items
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    call = fields.get("function") if isinstance(fields.get("function"), dict) else fields
    given = next((call[name] for name in ("arguments", "parameters") if name in call), None) if call else None
    if not call or not isinstance(call.get("name"), str) or given is None:
        return fields
    if set(fields) - {"function", "id", "type", "name", "arguments", "parameters"}:
        return fields
    try:
        given = parse_json(given) if isinstance(given, str) else given
    except ValueError:
        return fields
    return {"name": call["name"], "arguments": given}


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and set(cast("dict[str, Any]", value)) == {"name", "arguments"}


def _are_same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        ours, theirs = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return ours.keys() == theirs.keys() and all(_are_same(ours[name], theirs[name]) for name in ours)
    if isinstance(left, list) and isinstance(right, list):
        items, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(items) == len(others) and all(map(_are_same, items, others))
    return type(left) is type(right) and left == right if isinstance(left, str) else left == right

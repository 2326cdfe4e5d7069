"""Labelled responses of files and of data sets of the hub: one label for a response, or one for each of its steps.

TRL           {"prompt", "completion", "label"}, one label; {"prompt", "completions": [step, ...], "labels": [...]}
Math-Shepherd {"input": "QUESTION Step 1: ... MARK\\nStep 2: ... MARK", "label": the same with + or - as marks}
RLHFlow       {"conversations": messages}: the user's turns are steps, the first one after the question, and "+" or "-"
              answers each of them
PRM800K       {"question": {"problem"}, "label": {"steps": [{"completions": [{"text", "rating"}], ...}, ...]}}
ProcessBench  {"problem", "steps": [...], "label"}: the index of the first wrong step, -1 if there is none

A label is true or false, "+" or "-", or the probability that the step is right. PRM800K's neutral steps (rating 0) are
right (arXiv:2305.20050, app. F). Steps after the first one that ProcessBench or PRM800K calls wrong have no label and
are left out. Which shape a row has is recognised from its fields; a row without one cannot be used (`data.unfit`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from ansatz.data.conversations import FIELD, check_one_turn, check_turns_after, earlier_turns, template_fields
from ansatz.data.given_rows import GivenRows
from ansatz.data.pair_files import PROMPTS, read_pair
from ansatz.data.pair_files import RESPONSES as SCORED
from ansatz.data.pairs import REJECTED, pair_with, rejected_of
from ansatz.data.record_formats import CONVERSATIONS, turns_of
from ansatz.data.row_problems import find_lost_fields
from ansatz.data.rows import ABSENT, Row, worked_text
from ansatz.data.unfit import note_lost, read_each, short
from ansatz.errors import DataError
from ansatz.types import Problem

LABELS = "labels"
"""The key of a problem's `meta` with the labels: of its solution, or of each step of its solution."""
RESPONSES = ("completion", "response", "solution", "answer", "output")
STEPS = ("completions", "steps")
_WORDS = {"+": 1.0, "-": 0.0, "true": 1.0, "false": 0.0}
_FIRST_STEP = re.compile(r"\s*Step 1\s*:")
_LABELLED_STEP = re.compile(r"\s([+-])\s*(?=\nStep \d|\Z)")


class _Labelled(NamedTuple):
    """question: None if it is in the field `key`."""

    steps: Sequence[str]
    labels: Sequence[float]
    key: str = ""
    question: str | None = None


def read_labelled_responses(given: GivenRows) -> list[Problem]:
    """Return the responses of the rows that a recipe names, each with one label, as solutions of problems.

    Raise DataError at the first row of another shape; within `collect_unfit`, such rows are recorded there and left
    out.
    """
    return list(read_each(given.rows(), lambda row: _problem(row, _response(row), given.name, "".join)))


def read_labelled_steps(given: GivenRows, *, join: Callable[[Sequence[str]], str]) -> list[Problem]:
    """Return the responses of the rows that a recipe names, with a label for each step, as solutions of problems.

    join: makes a response of its steps; raise DataError if they would not be found in it again. Errors as in
    `read_labelled_responses`.
    """
    return list(read_each(given.rows(), lambda row: _problem(row, _steps(row), given.name, join)))


def read_unpaired(given: GivenRows) -> list[Problem | None]:
    """Return the responses of the rows that a recipe names, each labelled 1 or 0, and pairs as they are; None for one
    whose scores are too close.

    Errors as in `read_labelled_responses` and `read_pairs`.
    """

    def read(row: Row) -> Problem | None:
        if row.first(("chosen", *SCORED)) is not None:
            return read_pair(row, source=given.name, min_gap=given.min_gap)
        response = _response(row)
        if response.labels[0] not in (0, 1):
            row.fail(f"the label is {response.labels[0]:g}, expected true or false.")
        if given.min_gap:
            row.fail(f"min_gap = {given.min_gap:g} has no effect on a labelled response; remove it.")
        return _problem(row, response, given.name, "".join)

    return list(read_each(given.rows(), read))


def with_mismatched(problems: Iterable[Problem]) -> list[Problem]:
    """Pair each labelled response with a response to another prompt, for `rejected_of`. A pair counts as two responses.

    Response k of the n to a prompt gets the k-th that follows these n in the order of the prompts. The first prompts
    follow the last: (prompt 1, response 2), (prompt 2, response 3), (prompt 3, response 1) if there is one for each.
    Raise DataError if all prompts or all labels are equal.
    """
    by_prompt: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        by_prompt.setdefault((problem.question, str(problem.earlier_turns)), []).extend(_labelled(problem))
    responses = [response for same in by_prompt.values() for response in same]
    number, good = len(responses), sum(each.meta[LABELS][0] > 0 for each in responses)
    if good in (0, number):
        raise DataError(
            f"preference.pairs: the labels of {number} responses are {good} x true and {number - good} x false, and "
            "kto needs both. Add responses of the other kind; to learn from good ones alone, use the stage sft."
        )
    if len(by_prompt) == 1:
        raise DataError(
            f"preference.pairs: all {number} responses are to the same prompt, and kto estimates a KL from responses "
            "to other prompts. Add rows with other prompts."
        )
    pairs, end = list[Problem](), 0
    for same in by_prompt.values():
        end, others = end + len(same), number - len(same)
        pairs += [pair_with(each, responses[(end + k % others) % number]) for k, each in enumerate(same)]
    return pairs


def _labelled(problem: Problem) -> list[Problem]:
    """Return a labelled response as it is, and the two of a pair with their labels."""
    if REJECTED not in problem.meta:
        return [problem]
    both = ((problem, 1.0), (rejected_of(problem), 0.0))
    return [replace(each, meta={**each.meta, LABELS: [label]}) for each, label in both]


def _problem(row: Row, labelled: _Labelled, source: str, join: Callable[[Sequence[str]], str]) -> Problem:
    if not labelled.steps:
        row.fail("the row has no step with a label. Remove the row.")
    try:
        solution = join(labelled.steps)
    except DataError as error:
        row.fail(str(error))
    context = earlier_turns(row, labelled.key) if labelled.question is None else []
    if labelled.question is None:
        check_turns_after(row, labelled.key, ())
    problem = Problem(
        id=f"{source}-{row.line}",
        question=row.question(labelled.key) if labelled.question is None else labelled.question,
        source=source,
        split="labelled",
        solution=solution,
        meta={
            "line": row.line,
            LABELS: list(labelled.labels),
            **template_fields(row),
            **({FIELD: context} if context else {}),
        },
    )
    read = ("input", "question", "label", LABELS, *RESPONSES, *STEPS, *CONVERSATIONS)
    note_lost(lambda: find_lost_fields(row, [labelled.key, *read], problem))
    return problem


def _response(row: Row) -> _Labelled:
    """Return a response with one label."""
    key = row.first(RESPONSES)
    if key is None or (label := row.find("label")) is ABSENT:
        row.fail(
            f"the row has no response with a label (its fields: {', '.join(map(repr, row.values)) or 'none'}). "
            "Expected prompt, completion and label."
        )
    check_one_turn(row, key)
    if not (text := worked_text(row.find(key))):
        row.fail(f"the field {key!r} is {short(row.find(key))}, expected text or a chat.")
    return _Labelled([text], [_label(row, label)], _prompt_key(row))


def _steps(row: Row) -> _Labelled:
    """Return the steps of a response with their labels."""
    if (prm800k := row.find("label.steps")) is not ABSENT:
        return _prm800k(row, prm800k)
    if isinstance(row.find("input"), str) and isinstance(row.find("label"), str):
        return _math_shepherd(row, row.find("input"), row.find("label"))
    if (key := row.first(CONVERSATIONS)) is not None and row.first(STEPS) is None:
        return _conversation(row, key)
    key = row.first(STEPS)
    steps = [] if key is None else row.find(key)
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in cast("list[Any]", steps)) or not steps:
        row.fail(
            f"the row has no list of steps with labels (its fields: {', '.join(map(repr, row.values)) or 'none'}). "
            "Expected prompt, completions (one text for each step) and labels."
        )
    texts = cast("list[str]", steps)
    if (labels := row.find("labels")) is ABSENT:
        return _up_to(row, texts, row.find("label"))
    if not isinstance(labels, list) or len(cast("list[Any]", labels)) != len(texts):
        row.fail(f"the field 'labels' is {short(labels)}, expected a list of {len(texts)} labels, one for each step.")
    return _Labelled(texts, [_label(row, each) for each in cast("list[Any]", labels)], _prompt_key(row))


def _up_to(row: Row, steps: Sequence[str], first_wrong: Any) -> _Labelled:
    """Return the steps up to the first wrong one (ProcessBench)."""
    if not isinstance(first_wrong, int) or isinstance(first_wrong, bool) or not -1 <= first_wrong < len(steps):
        row.fail(
            f"the field 'label' is {short(None if first_wrong is ABSENT else first_wrong)}, expected the index of the "
            f"first wrong of {len(steps)} steps, or -1 if all are right. Or give 'labels', one for each step."
        )
    if first_wrong < 0:
        return _Labelled(steps, [1.0] * len(steps), _prompt_key(row))
    return _Labelled(steps[: first_wrong + 1], [*[1.0] * first_wrong, 0.0], _prompt_key(row))


def _prm800k(row: Row, given: Any) -> _Labelled:
    """Return the solution that was continued at each step, up to its first wrong step. Steps that people wrote are
    right."""
    steps, labels = list[str](), list[float]()
    for step in cast("list[Any]", given if isinstance(given, list) else []):
        rated = Row(row.file, row.line, step if isinstance(step, dict) else {}, unit=row.unit)
        completions, place, written = (
            rated.find(name) for name in ("completions", "chosen_completion", "human_completion")
        )
        if isinstance(written, dict) and not isinstance(place, int):
            steps.append(str(written.get("text", "")))
            labels.append(1.0)
            continue
        listed = cast("list[Any]", completions if isinstance(completions, list) else [])
        chosen = listed[place:] if isinstance(place, int) else listed
        completion = Row(row.file, row.line, chosen[0] if chosen else {}, unit=row.unit)
        rating, text = completion.find("rating"), completion.find("text")
        if rating not in (-1, 0, 1) or not isinstance(text, str):
            break
        steps.append(text)
        labels.append(float(rating >= 0))
        if rating < 0:
            break
    return _Labelled(steps, labels, "question.problem")


def _math_shepherd(row: Row, text: str, labels: str) -> _Labelled:
    """Return the same text twice: with a mark after each step, and with + or - in its place."""
    marks = _LABELLED_STEP.findall(labels)
    start = _FIRST_STEP.search(text)
    same = _LABELLED_STEP.split(labels)[::2]
    places = [part for part in same if part.strip()]
    if start is None or not marks or len(places) != len(marks):
        row.fail(
            f"the field 'label' is {short(labels)}, expected the text of 'input' with + or - at the end of each step, "
            "from 'Step 1:' on."
        )
    begin = _FIRST_STEP.search(places[0])
    steps = [places[0][begin.start() :] if begin else places[0], *places[1:]]
    question = text[: start.start()].strip()
    return _Labelled([step.strip() for step in steps], [_WORDS[mark] for mark in marks], question=question)


def _conversation(row: Row, key: str) -> _Labelled:
    """Return steps as turns of the user, each answered by its label (RLHFlow)."""
    turns = turns_of(row.find(key)) or []
    said = [turn.text for turn in turns if turn.role == "user"]
    labels = [turn.text for turn in turns if turn.role == "assistant"]
    start = _FIRST_STEP.search(said[0]) if said else None
    if start is None or len(said) != len(labels):
        row.fail(
            f"the messages in {key!r} are not steps with labels: expected turns of the user, the first with the "
            "question and 'Step 1: ...', each answered by + or -."
        )
    question, first = said[0][: start.start()].strip(), said[0][start.start() :].strip()
    return _Labelled([first, *said[1:]], [_label(row, label) for label in labels], question=question)


def _prompt_key(row: Row) -> str:
    if (key := row.first(PROMPTS)) is None:
        row.fail(f"the row has no prompt (its fields: {', '.join(map(repr, row.values))}). Expected {PROMPTS[0]!r}.")
    return key


def _label(row: Row, value: Any) -> float:
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        row.fail(f"a label is {short(value)}, expected true or false, + or -, or a probability from 0 to 1.")
    return float(value)

"""Turns rows with any field names into problems.

Settings that are left open are determined from the first rows of a file and then apply to the whole file. A later row
with another shape is an error that names its line; it is never read in a different way (see `record_formats`).
"""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

from ansatz.data.choices import is_choice, with_choices
from ansatz.data.conversations import (
    FIELD,
    RESPONSE_FIELD,
    check_one_response,
    check_turns_after,
    earlier_responses,
    earlier_turns,
    response_turns,
    template_fields,
)
from ansatz.data.extract import after_sentence, has_unit, last_box
from ansatz.data.files import problem_files, source_name
from ansatz.data.record_formats import (
    CONVERSATIONS,
    FOLLOWING,
    HINTS,
    META,
    PRECEDING,
    SYSTEM,
    WORKED,
    find_lost_texts,
    find_lost_texts_of_turns,
    puzzle_of,
    recognised,
    turns_of,
)
from ansatz.data.rows import ABSENT, EXTRACT, Row, worked_text
from ansatz.data.unfit import RowError, UnfitRow, note_lost, read_each, short
from ansatz.errors import ConfigError, DataError
from ansatz.registry import settings_of
from ansatz.types import Problem, joined_golds

IN_RECIPE = {"question_key": "question_key: FIELD", "answer_key": "answer_key: FIELD"}
"""How a recipe names the fields of a question and of an answer, in an entry of `data`."""
ANSWER_FORMS = ("auto", "field", *EXTRACT)
ANSWER = "{answer}"
"""Mark of the place of the gold answer in a form."""
FIRST_ROWS = 20  # rows from which the form of the answers is determined


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """The meaning of a row's fields. Keys that are None are recognised from the first row of the file.

    question_key: field of the question; dots select nested fields, as in all keys. answer_key: field of the answer.
    level_key: field of the level of difficulty. solution_key: field of the worked solution.
    answer_from: "field" takes the answer field as it is. "####" takes the text after the last #### in it (GSM8K's form,
    without thousands separators). "boxed" takes the content of its last \\boxed{}. "answer_is" takes the text after the
    last "The answer is" (MetaMath). "unit" takes the number before a unit in parentheses (ASDiv's "9 (apples)"). "auto"
    uses the form that most of the first 20 rows show. If the answer is extracted from a worked solution, that solution
    is the problem's solution unless solution_key names another one.
    answer_form: a line that is added to each worked solution, with {answer} where the gold answer goes, such as
    "The answer is \\boxed{{answer}}." None: solutions are taught as they are.
    id_key: if None, the field `id`, `uuid` or `unique_id`; a row without one has file and line as its id.
    keep_earlier_turns: False leaves out the system prompt and all other turns before the question, and the row's values
    for the chat template (`tools`, `chat_template_kwargs`).
    each_response: True adds a problem for every earlier response of a conversation, with the turns before it as its
    context, so that SFT teaches all of them. Earlier responses have no gold answer, so this is only for data.sft.
    limit: maximum number of rows to read.

    Raises ConfigError for an unknown answer_from, a limit below 1, or each_response without the earlier turns.
    """

    question_key: str | None = None
    answer_key: str | None = None
    answer_from: str = "auto"
    answer_form: str | None = None
    id_key: str | None = None
    level_key: str | None = None
    solution_key: str | None = None
    keep_earlier_turns: bool = True
    each_response: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit = {self.limit}, expected 1 or more. Remove it to read the whole file.")
        if self.each_response and not self.keep_earlier_turns:
            raise ConfigError(
                "each_response: true needs keep_earlier_turns: true, because a response depends on the turns before it."
            )
        if self.answer_from not in ANSWER_FORMS:
            raise ConfigError(
                f"answer_from = {self.answer_from!r}, expected one of {', '.join(map(repr, ANSWER_FORMS))}."
            )
        if self.answer_form is not None and self.answer_form.count(ANSWER) != 1:
            raise ConfigError(f"answer_form = {self.answer_form!r}, expected {ANSWER} in it exactly once.")


def rows_with_problems(
    rows: Iterable[Row],
    settings: RowSettings,
    *,
    source: str,
    split: str = "all",
    spelled: Mapping[str, str] = IN_RECIPE,
) -> Iterator[tuple[Row, Problem]]:
    """Yield every row together with its problem, so that a row can be written back unchanged.

    `meta` of a problem holds all unused fields, and `line`, the position of the row. Raise DataError, with file and
    line, at the first unfit row; within `collect_unfit`, unfit rows are recorded there and left out. spelled: see
    `rows_with_results`.
    """

    def raise_unfit(pair: tuple[Row, Problem | RowError]) -> tuple[Row, Problem]:
        row, result = pair
        if isinstance(result, RowError):
            raise result
        return row, result

    return read_each(rows_with_results(rows, settings, source=source, split=split, spelled=spelled), raise_unfit)


def rows_with_results(
    rows: Iterable[Row],
    settings: RowSettings,
    *,
    source: str,
    split: str = "all",
    spelled: Mapping[str, str] = IN_RECIPE,
) -> Iterator[tuple[Row, Problem | RowError]]:
    """Yield every row together with its problem, or with the reason why it has none.

    spelled: how the user names the field of a question or an answer; a setting that is not there cannot be given.
    Raise DataError if no row has a field that could be the question, or the answer.
    """
    for row, keys in _rows_with_keys(islice(rows, settings.limit), settings, spelled, ("question", "answer")):
        try:
            yield row, _problem(row, settings, keys, split, source)
        except RowError as unfit:
            gold = row.find(keys.answer_key) if keys.answer_key else ABSENT
            yield row, RowError(unfit.row._replace(gold="" if gold is ABSENT else short(gold)))


def rows_with_golds(
    rows: Iterable[Row], settings: RowSettings, *, spelled: Mapping[str, str] = IN_RECIPE
) -> Iterator[tuple[Row, str, str]]:
    """Yield every row with its gold answer and the field that it comes from. A question is not needed.

    Raise DataError at the first row without a gold answer.
    """
    for row, keys in _rows_with_keys(iter(rows), settings, spelled, ("answer",)):
        key = keys.answer_key or "answer"
        answers = row.answers(row.answer_texts(key), key, keys.answer_from)
        yield row, joined_golds(answers) if answers else "", key


def _rows_with_keys(
    rows: Iterator[Row], settings: RowSettings, spelled: Mapping[str, str], roles: Sequence[str]
) -> Iterator[tuple[Row, RowSettings]]:
    """Yield every row with the settings for it, in which no key is left open. An error that ends the first rows is
    raised once all rows before it were used."""
    first, failure = list[Row](), None
    try:
        for row in islice(rows, FIRST_ROWS):
            first.append(row)
    except DataError as error:
        failure = error
    if failure is None:
        _check_roles(first, settings, spelled, roles)
    keys = _resolve(settings, first) if first else settings
    for row in _chain(first, failure, rows):
        row.parse_cells((keys.answer_key, keys.solution_key))
        yield row, keys


def _check_roles(first: Sequence[Row], settings: RowSettings, spelled: Mapping[str, str], roles: Sequence[str]) -> None:
    """Raise DataError, in one sentence, if none of the first rows has a field for one of the roles.

    Without this, every row of the file would be reported for the same reason.
    """
    missing = {role: getattr(settings, f"{role}_key") for role in roles}
    for row in first:
        missing = {role: key for role, key in missing.items() if not _has(row, role, key)}
    if not first or not missing:
        return
    fields = list(dict.fromkeys(name for row in first for name in row.values))
    named = [f"{key!r}, which is to be the {role}" for role, key in missing.items() if key]
    unnamed = [f"the {role}" for role, key in missing.items() if not key]
    wrong = [f"no row has the field {' or '.join(named)}"] if named else []
    wrong += [f"no field is recognised as {' or '.join(unnamed)}"] if unnamed else []
    settable = [spelled[key] for role in missing if (key := f"{role}_key") in spelled]
    hints = [(role, name) for role in missing for name in HINTS[f"{role}_key"] if first[0].find(name) is not ABSENT]
    perhaps = "".join(f" Perhaps {name!r} is the {role}." for role, name in dict(reversed(hints)).items())
    advice = f"Rename the fields of the file to {' and '.join(map(repr, missing))}."
    if settable:
        advice = f"Give {' and '.join(settable)}."
    raise DataError(
        f"{first[0].file}: {' and '.join(wrong)}; the fields are {', '.join(map(repr, fields)) or 'none'}.{perhaps} "
        f"{advice}"
    )


def _has(row: Row, role: str, key: str | None) -> bool:
    """Return whether the row has a field for the role: the one that the user named, or one that is recognised."""
    if key is not None:
        return row.find(key) is not ABSENT
    return recognised(role, lambda name: row.find(name) is not ABSENT) is not None


def _chain(first: Sequence[Row], error: DataError | None, rows: Iterator[Row]) -> Iterator[Row]:
    yield from first
    if error is not None:
        raise error
    yield from rows


def _resolve(settings: RowSettings, first: Sequence[Row]) -> RowSettings:
    """Return the settings, with open keys determined from the first row of the file, and answer_from from the first
    rows."""

    def known(key: str) -> bool:
        return first[0].find(key) not in (ABSENT, None, "", [])

    answer = settings.answer_key or recognised("answer", known) or "answer"
    return replace(
        settings,
        question_key=settings.question_key or recognised("question", known) or "question",
        answer_key=answer,
        answer_from=_answer_form(first, answer) if settings.answer_from == "auto" else settings.answer_from,
        id_key=settings.id_key or recognised("id", known),
        level_key=settings.level_key or recognised("level", known),
        solution_key=settings.solution_key or recognised("solution", known),
    )


def _answer_form(rows: Sequence[Row], key: str) -> str:
    """Return the most frequent form; "field" only counts for worked solutions if no row shows another one."""
    forms = Counter(_form_of(worked_text(row.find(key)), worked=key in WORKED) for row in rows)
    if key in WORKED and len(forms) > 1:
        del forms["field"]
    return forms.most_common(1)[0][0]


def _form_of(text: str, *, worked: bool) -> str:
    if re.search(r"^####", text, re.MULTILINE):
        return "####"
    if last_box(text):
        return "boxed"
    if worked:
        return "answer_is" if after_sentence(text) else "field"
    return "unit" if has_unit(text) else "field"


def _problem(row: Row, named: RowSettings, keys: RowSettings, split: str, source: str) -> Problem:
    """Return the problem of a row. named: the user's settings; a field that the user named must be there. keys:
    resolved."""
    assert keys.question_key is not None
    assert keys.answer_key is not None
    check_turns_after(row, keys.question_key, (keys.answer_key, keys.solution_key))
    for key in {keys.answer_key, keys.solution_key} - {keys.question_key, *CONVERSATIONS}:
        check_one_response(row, key)
    texts = row.answer_texts(keys.answer_key)
    worked = texts[0] if keys.answer_from not in ("field", "unit") else None
    row_id = row.text(named.id_key, "id_key") if named.id_key else row.optional_text(keys.id_key)
    level = row.text(named.level_key, "level_key") if named.level_key else row.optional_text(keys.level_key) or ""
    solution = (
        row.solution(named.solution_key) if named.solution_key else worked or row.optional_text(keys.solution_key)
    )
    answers = row.answers(texts, keys.answer_key, keys.answer_from)
    if solution and named.answer_form:
        solution = f"{solution}\n{named.answer_form.replace(ANSWER, next(iter(answers), ''))}"
    problem = Problem(
        id=row_id or f"{source}:{row.line}",
        question=row.question(keys.question_key),
        answers=answers,
        source=source,
        split=split,
        level=level,
        solution=solution,
        meta=_meta(row, keys),
    )
    problem = with_choices(problem, row, keys.answer_key)
    note_lost(lambda: find_lost_fields(row, _list_used(keys), problem))
    for name in ("id", "question", "answer", "solution", "level"):
        _check_characters(row, name, getattr(problem, name) or "")
    for turn in (*problem.earlier_turns, *problem.response_turns):
        _check_characters(row, "conversation", json.dumps(turn, ensure_ascii=False))
    for name in template_fields(row):
        _check_characters(row, name, json.dumps(problem.meta.get(name), ensure_ascii=False))
    return problem


def find_lost_fields(row: Row, used: Iterable[str], problem: Problem) -> Iterator[str]:
    """Yield the fields of a row, and of the turns of its chats, whose text is in none of the fields that are used and
    that nothing reads: see `record_formats.find_lost_texts`."""
    used = [*used]
    said = [turn.get("content") or "" for turn in (*problem.earlier_turns, *problem.response_turns)]
    kept = [problem.question, problem.solution or "", *problem.answers, *map(str, said)]
    kept += [worked_text(row.find(key)) for key in used]
    of_reader = (*SYSTEM, FIELD, *template_fields(row), *META)
    rest = row.rest([*used, *of_reader])
    chats = [key for key in (*used, FIELD) if turns_of(row.find(key)) is not None]
    yield from find_lost_texts({name: value for name, value in rest.items() if not is_choice(name)}, kept)
    for key in chats:
        yield from (f"{key}: {name}" for name in find_lost_texts_of_turns(row.find(key), kept))


def _check_characters(row: Row, name: str, text: str) -> None:
    """Raise RowError for a lone surrogate, which JSON can hold but no tokenizer and no UTF-8 file."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        reason = (
            f"the {name} has half of a character ({half} at position {error.start}); repair the encoding of the file"
        )
        raise RowError(UnfitRow(row.place, reason)) from error


def _list_used(keys: RowSettings) -> list[str]:
    used = (keys.question_key, keys.answer_key, keys.id_key, keys.level_key, keys.solution_key)
    asked = keys.question_key or ""
    return [*filter(None, (*used, FOLLOWING.get(asked), PRECEDING.get(asked.casefold())))]


def _meta(row: Row, keys: RowSettings) -> dict[str, Any]:
    """Return the unused fields, the line, the turns before the question, and the numbers of a Countdown puzzle."""
    meta = row.rest([*_list_used(keys), FIELD])
    of_template = template_fields(row)
    if keys.keep_earlier_turns:
        meta |= of_template
    else:
        meta = {name: value for name, value in meta.items() if name not in of_template}
    if keys.question_key and keys.keep_earlier_turns and (turns := earlier_turns(row, keys.question_key)):
        meta[FIELD] = turns
    if turns := response_turns(row, (keys.solution_key, keys.answer_key, keys.question_key)):
        meta[RESPONSE_FIELD] = turns
    puzzle = puzzle_of(row.find(keys.answer_key) if keys.answer_key else None) or puzzle_of(row.values)
    if puzzle is not None:
        meta |= {"nums": puzzle[0], "target": puzzle[1]}
    return {**meta, "line": row.line}


ROW_KEYS = tuple(field.name for field in fields(RowSettings))


def sources_of_files(files: Sequence[Path]) -> list[str]:
    """Return the `source` of each of the files that are read together, with as many folders as tell them apart."""
    names, most = [source_name(file) for file in files], max(len(file.resolve().parent.parts) for file in files)
    for num_folders in range(2, most + 1):
        if len(set(names)) == len(names):
            break
        names = [source_name(file, num_folders=num_folders) for file in files]
    return names


def row_source(
    name: str, open_source: Callable[..., Iterable[tuple[Iterable[Row], str]]]
) -> Callable[..., Iterator[Problem]]:
    """Return a data source from a function (*, split, ...settings) -> [(rows, source name), ...], one pair per file.

    The source takes the settings of the function and of `RowSettings`. Both are part of its signature, which is the
    schema of the recipe's data entry.
    """

    def source(*, split: str, **settings: Any) -> Iterator[Problem]:
        row_settings = RowSettings(**{key: settings.pop(key) for key in ROW_KEYS if key in settings})
        files = open_source(split=split, **settings)
        read = (rows_with_problems(rows, row_settings, split=split, source=label) for rows, label in files)
        problems = islice((problem for pairs in read for _, problem in pairs), row_settings.limit)
        if not row_settings.each_response:
            return problems
        return (each for problem in problems for each in (*earlier_responses(problem), problem))

    types = get_type_hints(RowSettings)
    keyword = inspect.Parameter.KEYWORD_ONLY
    row_parameters = [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=types[field.name])
        for field in fields(RowSettings)
    ]
    source.__signature__ = inspect.Signature([*settings_of(open_source).values(), *row_parameters])  # type: ignore[attr-defined]
    source.__name__, source.__module__, source.__doc__ = name, open_source.__module__, open_source.__doc__
    return source


def file_source(
    name: str, read_rows: Callable[[Path], Iterator[Row]], *, expected: str
) -> Callable[..., Iterator[Problem]]:
    """Return the source for a file format without settings of its own. expected: the kind of file, such as "a JSON
    file"."""

    def open_files(*, split: str, path: str | list[str]) -> Iterable[tuple[Iterable[Row], str]]:
        """Return the problems of a file in order, or of several files: a list, or a pattern such as "part-*.jsonl".

        Raise DataError for a missing file or a wrong row, with file and line; raise ConfigError for a setting outside
        its range; raise MissingExtraError if the format needs an extra that is missing.
        """
        files = problem_files(path, expected=expected)
        return list(zip(map(read_rows, files), sources_of_files(files), strict=True))

    open_files.__module__ = read_rows.__module__
    return row_source(name, open_files)

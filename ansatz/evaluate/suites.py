"""The suites of `ansatz eval`: a card for each, and how one becomes problems.

Apart from the generators' own, a suite is a JSONL file that the user brings: Ansatz ships no rows of other people's.
Its rows have problem (or question) and answer, or the fields that the suite was published with. Any other JSONL file is
a suite too, by its path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansatz.data.base import load_problems
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.choices import RIGHT, with_choices
from ansatz.registry import suggest
from ansatz.types import Problem, to_json

# The first that the first row has. GPQA is published with the last ones, CMATH with golden and grade.
QUESTION_KEYS = ("problem", "question", "Question")
ANSWER_KEYS = ("answer", "golden", RIGHT)
LEVEL_KEYS = ("level", "grade")
SUBJECT_KEYS = ("subject", "High-level domain")
ID_KEYS = ("id", "Record ID")
MADE = 500  # problems of a suite that is made by program


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What a suite is. file: its place under the folder of suites, empty where problems are made by program.

    hub: its name on the Hugging Face hub. size: problems, 0 where not known. answers: what a gold answer looks like.
    version: for a file the first 12 digits of the SHA-256 of the one that our numbers were taken on, empty where we
    have none; for a program its settings.
    """

    name: str
    file: str
    hub: str
    licence: str
    size: int
    answers: str
    version: str


def _card(name: str, hub: str, licence: str, size: int, answers: str, version: str) -> Suite:
    return Suite(
        name=name,
        file=f"{name}/test.jsonl",
        hub=hub,
        licence=licence,
        size=size,
        answers=answers,
        version=version,
    )


def _made(name: str, answers: str, version: str) -> Suite:
    """Of the generator of that name. Countdown is none: it is judged by its own reward, not by an answer."""
    return Suite(name=name, file="", hub="", licence="Apache-2.0", size=MADE, answers=answers, version=version)


_MAA = "problems: Mathematical Association of America, all rights reserved"
_CARDS = (
    _card("gsm8k", "openai/gsm8k", "MIT", 1319, "integer", "6d082fa257ed"),
    _card("math500", "HuggingFaceH4/MATH-500", "MIT", 500, "LaTeX expression", "bae82a01c3e3"),
    _card("aime24", "HuggingFaceH4/aime_2024", _MAA, 30, "integer from 0 to 999", "9d4abf5b6131"),
    _card("aime25", "math-ai/aime25", _MAA, 30, "integer from 0 to 999", "f25b722a466a"),
    _card("amc23", "math-ai/amc23", _MAA, 40, "number", "3bfdb7617f28"),
    _card("minerva_math", "math-ai/minervamath", "CC BY-NC-SA 4.0", 272, "number or expression", "65294bc573d3"),
    _card("olympiadbench", "Hothan/OlympiadBench", "MIT", 675, "number, tuple, interval or expression", "19c5b047ebb3"),
    _card("svamp", "ChilleD/SVAMP", "MIT", 1000, "number", "c9b6b1ac7d9e"),
    _card("gpqa_diamond", "Idavidrein/gpqa", "CC BY 4.0", 198, "letter of one of four choices", ""),
    _card("cmath", "weitianwen/cmath", "CC BY 4.0", 1098, "number", ""),
    _made("word_problems", "integer", "full wording, 2 to 6 steps, seed 0"),
    _made("arithmetic", "integer", "levels 1 to 6, seed 0"),
    _made("fractions", "integer or fraction", "levels 1 to 4, seed 0"),
    _made("linear_equations", "number, or two of them", "levels 1 to 5, seed 0"),
    _made("number_theory", "integer", "levels 1 to 5, seed 0"),
)
SUITES = {card.name: card for card in _CARDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSuite:
    """A suite's card with its problems. sha256: of the file, or of the problems where they are made by program."""

    card: Suite
    problems: Sequence[Problem]
    sha256: str

    @property
    def as_on_card(self) -> bool:
        """False where the file is another one than our numbers were taken on."""
        return not self.card.file or not self.card.version or self.sha256.startswith(self.card.version)

    def evenly_spaced(self, count: int) -> list[Problem]:
        """`count` problems at even distances through the suite, in its order. All if count is 0 or larger than the
        suite."""
        size = len(self.problems)
        chosen = range(size) if not 0 < count < size else [index * size // count for index in range(count)]
        return [self.problems[index] for index in chosen]


def load_suite(name: str, *, folder: Path | None = None) -> LoadedSuite:
    """The suite of a card's name, its file looked up under `folder`, or that of a .jsonl path.

    ConfigError for an unknown name or a folder not given; DataError for a missing file, wrong rows, ids that come
    twice, or another number of problems than the card says.
    """
    if name.endswith(".jsonl"):
        path = Path(name)
        return _from_file(Suite(name=path.stem, file=name, hub="", licence="", size=0, answers="", version=""), path)
    if name not in SUITES:
        raise ConfigError(f"--suite {name!r} is unknown.{suggest(name, SUITES)} Or give the path of a .jsonl file.")
    card = SUITES[name]
    if not card.file:
        problems = load_problems(name, split="heldout", settings={"count": card.size})
        rows = [json.dumps(to_json(problem), sort_keys=True) for problem in problems]
        return LoadedSuite(card=card, problems=problems, sha256=hashlib.sha256("\n".join(rows).encode()).hexdigest())
    if folder is None:
        raise ConfigError(
            f"--suite {name} is read from a file that Ansatz does not ship (on the hub: {card.hub}, licence: "
            f"{card.licence}). Give --suites DIR, with {card.file} in it: a JSON object a line with problem and answer."
        )
    loaded = _from_file(card, folder / card.file)
    if len(loaded.problems) != card.size:
        raise DataError(
            f"{folder / card.file} has {len(loaded.problems)} problems, expected the {card.size} of {name}. "
            f"Repair the file; to evaluate on some of them use --problems N, on other problems --suite FILE.jsonl."
        )
    return loaded


def _from_file(card: Suite, path: Path) -> LoadedSuite:
    rows = _rows(path)
    keys = set(rows[0]) if rows else set()
    settings = {
        "path": str(path),
        "question_key": _first(QUESTION_KEYS, keys) or QUESTION_KEYS[0],
        "answer_key": _first(ANSWER_KEYS, keys) or ANSWER_KEYS[0],
        "answer_from": "field",
    }
    found = {"id_key": _first(ID_KEYS, keys), "level_key": _first(LEVEL_KEYS, keys)}
    settings |= {name: key for name, key in found.items() if key}
    problems = load_problems("jsonl", split="test", settings=settings)
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"{path}: two problems have the id {problem.id!r}; each needs its own. Repair the ids.")
        seen.add(problem.id)
    subject = _first(SUBJECT_KEYS, keys)
    problems = [
        replace(with_choices(problem, row), meta={**problem.meta, "subject": str(row.get(subject) or "")})
        for problem, row in zip(problems, rows, strict=True)
    ]
    return LoadedSuite(card=card, problems=problems, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _first(names: Sequence[str], keys: Collection[str]) -> str:
    """The first of the names that is a key; empty where none is."""
    return next((name for name in names if name in keys), "")


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows as they stand; none of a file that is absent or wrong, which the data source then complains about."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError):
        return []
    return rows if all(isinstance(row, dict) for row in rows) else []

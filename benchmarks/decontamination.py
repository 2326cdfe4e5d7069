"""Recall and false drops of `ansatz data decontaminate`, measured with planted near-duplicates of test questions.

    python benchmarks/decontamination.py --data DATA --out runs/decontamination

Test questions are edited in eleven ways and planted among the rows of training sets. Three rules are compared: any
shared word 10-gram; 10-grams except set phrases; and the rule of `data.hygiene.decontaminate`. A false drop is an
original row that is dropped because of a test set that is newer than the training set.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansatz.data.formats import open_rows
from ansatz.data.hygiene.decontaminate import BenchmarkTexts
from ansatz.data.hygiene.normalize import ngrams, normalized_words
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.row_problems import RowSettings, rows_with_problems
from ansatz.types import Problem

TESTS = ("math500", "aime24", "aime25", "amc23", "gsm8k", "minerva_math", "olympiadbench")
NEWER_TESTS = ("aime24", "aime25", "amc23")
"""Test sets that are newer than the training sets: every original row that overlaps with them is a false drop."""
TRAINING = ("math/train.jsonl.zst", "gsm8k/train.jsonl")

SYNONYMS = {
    "find": "determine",
    "what is": "compute",
    "how many": "what is the number of",
    "such that": "so that",
    "positive integer": "natural number",
    "positive integers": "natural numbers",
    "let": "suppose",
    "each": "every",
    "greatest": "largest",
    "smallest": "least",
    "total": "overall",
    "buys": "purchases",
    "number": "count",
    "value": "quantity",
    "points": "dots",
    "has": "possesses",
    "then": "afterwards",
}
NAMES = ("Priya", "Oskar", "Wren", "Tomas", "Ingrid", "Bashir", "Noor", "Felix")
NOT_NAMES = frozenset({
    "The", "In", "On", "At", "If", "What", "How", "Find", "Let", "Each", "For", "A", "An", "She", "He", "They", "It",
    "When", "After", "Of", "To", "And", "But",
})  # fmt: skip


def latex(text: str, rng: KeyedRandom) -> str:
    """The same formulas, written with other commands and blanks."""
    text = text.replace(r"\frac", r"\dfrac").replace(r"\le ", r"\leq ").replace(r"\ge ", r"\geq ")
    text = re.sub(r"\$([^$]+)\$", r"\\( \1 \\)", text).replace(r"\left(", "(").replace(r"\right)", ")")
    return re.sub(r"\^\{(\w)\}", r"^\1", text).replace(r"\cdot", r"\times").replace(r"\text{", r"\mathrm{")


def names(text: str, rng: KeyedRandom) -> str:
    """Other names of people and cities: capitalised words that are not at the start of a sentence."""
    people = set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]{2,}", text)) - NOT_NAMES
    for name, other in zip(sorted(people), rng.shuffled(NAMES), strict=False):
        text = re.sub(rf"\b{name}\b", other, text)
    return text


def one_number(text: str, rng: KeyedRandom) -> str:
    """One number is changed: another problem with the same text."""
    numbers = list(re.finditer(r"(?<![\d.])\d+(?![\d.])", text))
    if not numbers:
        return text
    match = rng.choice(numbers)
    return f"{text[: match.start()]}{int(match[0]) + rng.between(1, 9)}{text[match.end() :]}"


def typos(text: str, rng: KeyedRandom) -> str:
    """Two neighbouring letters are swapped in one word of six."""

    def swap(match: re.Match[str]) -> str:
        word = match[0]
        at = rng.between(1, len(word) - 3)
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :] if rng.uniform() < 1 / 6 else word

    return re.sub(r"(?<![\\\w])[A-Za-z]{4,}", swap, text)


def synonyms(text: str, rng: KeyedRandom) -> str:
    for phrase, other in SYNONYMS.items():
        text = re.sub(rf"\b{phrase}\b", other, text, flags=re.IGNORECASE)
    return text


def dropped_words(text: str, rng: KeyedRandom) -> str:
    """One word of six is missing."""
    return " ".join(word for word in text.split() if not word.isalpha() or rng.uniform() > 1 / 6)


def reordered(text: str, rng: KeyedRandom) -> str:
    """The first two sentences are swapped."""
    sentences = re.split(r"(?<=[.?!]) +", text)
    return " ".join([sentences[1], sentences[0], *sentences[2:]]) if len(sentences) > 1 else text


def framed(text: str, rng: KeyedRandom) -> str:
    return (
        f"Here is a contest problem for you to solve. {text} Show your work and write the final result on its own line."
    )


def shortened(text: str, rng: KeyedRandom) -> str:
    """Only the first 70 % of the words."""
    words = text.split(" ")
    return " ".join(words[: max(1, round(0.7 * len(words)))])


def spoken(text: str, rng: KeyedRandom) -> str:
    """Formulas are written in words."""
    for sign, words in ((r"\\frac\{(\w+)\}\{(\w+)\}", r"\1 over \2"), (r"\^\{?2\}?", " squared "), ("=", " equals ")):
        text = re.sub(sign, words, text)
    for sign, words in ((r"\+", " plus "), (r"(?<=[\w$)}]) ?- ?(?=[\w$(])", " minus "), (r"\\sqrt", " root of ")):
        text = re.sub(sign, words, text)
    return text.replace("$", "")


def mixed(text: str, rng: KeyedRandom) -> str:
    """Names, synonyms, missing words and LaTeX at once."""
    return latex(dropped_words(synonyms(names(text, rng), rng), rng), rng)


EDITS: dict[str, Callable[[str, KeyedRandom], str]] = {
    edit.__name__: edit
    for edit in (latex, names, one_number, typos, synonyms, dropped_words, reordered, framed, shortened, spoken, mixed)
}


def planted(tests: Sequence[Problem], *, per_edit: int, seed: int) -> list[Problem]:
    """Edited test problems; the id is EDIT:TEST_ID. Only edits that change the text are used."""
    rows: list[Problem] = []
    for name, edit in EDITS.items():
        rng = KeyedRandom("decontamination", seed, name)
        of_edit: list[Problem] = []
        for test in rng.shuffled(tests):
            text = edit(test.question, rng)
            if text != test.question and len(of_edit) < per_edit:
                of_edit.append(replace(test, id=f"{name}:{test.id}", question=text))
        rows += of_edit
    return rows


Rule = Callable[[Sequence[Problem], Sequence[Problem]], list[str | None]]
"""(training rows, tests) -> for each row the source of the test because of which it is dropped, or None."""


def any_ngram(rows: Sequence[Problem], tests: Sequence[Problem]) -> list[str | None]:
    return _by_ngrams(rows, tests, max_rows=None, max_tests=None)


def except_set_phrases(rows: Sequence[Problem], tests: Sequence[Problem]) -> list[str | None]:
    """An n-gram in more than 3 rows or more than 2 tests counts for nothing."""
    return _by_ngrams(rows, tests, max_rows=3, max_tests=2)


def _by_ngrams(
    rows: Sequence[Problem], tests: Sequence[Problem], *, max_rows: int | None, max_tests: int | None, n: int = 10
) -> list[str | None]:
    index: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        words = normalized_words(test.question)
        for gram in set(ngrams(words, n) if len(words) >= n else ["= " + " ".join(words)] if len(words) > 2 else []):
            index[gram].append(test.source)
    grams_of_rows: list[set[str]] = []
    for row in rows:
        words = normalized_words(row.question)
        grams_of_rows.append(set(ngrams(words, n) if len(words) >= n else ["= " + " ".join(words)]) & index.keys())
    count = Counter(gram for grams in grams_of_rows for gram in grams)
    phrases = {
        gram
        for gram in index
        if not gram.startswith("= ")
        and ((max_rows and count[gram] > max_rows) or (max_tests and len(index[gram]) > max_tests))
    }
    return [next((index[gram][0] for gram in sorted(grams - phrases)), None) for grams in grams_of_rows]


def weighted(rows: Sequence[Problem], tests: Sequence[Problem]) -> list[str | None]:
    """The rule of `data.hygiene.decontaminate`."""
    texts = BenchmarkTexts(tests)
    for row in rows:
        texts.count(row)
    return [overlap and overlap.test_source for overlap in map(texts.overlap, rows)]


RULES: dict[str, Rule] = {
    "any 10-gram": any_ngram,
    "10-grams except set phrases": except_set_phrases,
    "weighted trigrams": weighted,
}


def read(path: Path) -> list[Problem]:
    return [problem for _, problem in rows_with_problems(open_rows(path), RowSettings(), source=path.parent.name)]


def measure(rule: Rule, rows: Sequence[Problem], copies: Sequence[Problem], tests: Sequence[Problem]) -> dict[str, Any]:
    """The number of planted copies that the rule drops, by edit, and of original rows, by test set."""
    dropped = rule([*rows, *copies], tests)
    recall = Counter(copy.id.partition(":")[0] for copy, test in zip(copies, dropped[len(rows) :], strict=True) if test)
    originals = Counter(test for test in dropped[: len(rows)] if test)
    return {
        "recall": {edit: recall[edit] for edit in EDITS},
        "planted": dict(Counter(copy.id.partition(":")[0] for copy in copies)),
        "dropped_originals": dict(originals),
        "false_drops": sum(originals[test] for test in NEWER_TESTS),
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = ["| | " + " | ".join(results) + " |", "|---" * (len(results) + 1) + "|"]
    planted_by_edit = next(iter(results.values()))["planted"]
    for edit, count in planted_by_edit.items():
        cells = (str(result["recall"][edit]) for result in results.values())
        lines.append(f"| copies found, {edit} (of {count}) | {' | '.join(cells)} |")
    for label, number in (
        (f"copies found, all (of {sum(planted_by_edit.values())})", lambda result: sum(result["recall"].values())),
        ("original rows dropped", lambda result: sum(result["dropped_originals"].values())),
        (f"of these false: because of {', '.join(NEWER_TESTS)}", lambda result: result["false_drops"]),
    ):
        lines.append(f"| {label} | {' | '.join(str(number(result)) for result in results.values())} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data files")
    parser.add_argument("--out", type=Path, default=Path("runs/decontamination"))
    parser.add_argument("--per-edit", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tests = [problem for name in TESTS for problem in read(arguments.data / name / "test.jsonl")]
    rows = [problem for name in TRAINING for problem in read(arguments.data / name)]
    copies = planted(tests, per_edit=arguments.per_edit, seed=arguments.seed)
    results = {name: measure(rule, rows, copies, tests) for name, rule in RULES.items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(f"{len(tests)} test questions, {len(rows)} training rows, {len(copies)} planted copies")
    print(table(results))


if __name__ == "__main__":
    main()

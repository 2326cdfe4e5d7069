"""Decides whether two strings are the same answer, by the cheapest stage: strings, numbers, structure, algebra.

A pair has up to three readings. As it is written counts first; the others need a licence:

    letters are choices     the gold is one capital, or several
    letters are products    a run of letters could be one (`mgh`), and no side has it as a name

Each reading is a pair of trees. If pure Python cannot compare them, a worker gets these trees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ansatz_verify import parse, sets
from ansatz_verify import values as v
from ansatz_verify.compare import Comparison, Hedged
from ansatz_verify.equality import Algebra, Question, Undecided
from ansatz_verify.options import Options
from ansatz_verify.parse import ParsedAnswer
from ansatz_verify.relations import commutes
from ansatz_verify.rules import in_usual_form, without_conditions
from ansatz_verify.values import Expr, Value
from ansatz_verify.verdict import Reason

_OPERATOR = re.compile(
    r"(?<![A-Za-z_])(?:(?<=\\)(?:i{1,3}nt|oint|sum|prod|lim|[bp]?mod|min)|det|gcd|lcm|max|min(?=[(\[{]))(?![A-Za-z])"
)
"""The name of an operator. Some are functions without their backslash, too; `\\text{min}` is a unit."""
_INDEX = re.compile(r"_\s?(?:\\(?:text|mathrm))?\{(?:[^{}]|\{[^{}]*\})*\}")
_SPACE, _FACTOR = r"(?:[\s~]|\\[,;:!]?)*", r"-?\d+(?:\.\d+)?"
_BARE_PRODUCT = re.compile(rf"[\s$]*{_FACTOR}(?:{_SPACE}(?:\\cdot|\\times|\*){_SPACE}{_FACTOR})+[\s$.]*")
_BETWEEN = r"(?:[\s,;(){}$&]|and|\\text|\\[&,; {}])*"
_LABEL = r"(?:(?:(?![不非错])[\u4e00-\u9fff])+[\s:]*)?"
"""Chinese words before a letter, such as "choose"; none that deny it."""
_LETTERS = re.compile(rf"{_LABEL}[\s({{$\\]*(?:[A-J]{_BETWEEN})+")
_LETTERS_FIRST = re.compile(rf"{_LABEL}[({{\s]*((?:[A-J]{_BETWEEN})*[A-J])(?![\w^+*/'=-])")
_OTHER_LETTER = re.compile(r"(?<![A-Za-z\\])[A-J](?![\w^+*/'=(-])")


class Decision(NamedTuple):
    """A reason and the stage that found it."""

    reason: Reason
    stage: str


Ask = Callable[[Value, Value, Options], Reason]
"""A function that compares two trees with algebra."""


def decide_pair(gold: str, answer: str, options: Options, ask: Ask) -> Decision:
    """Compare an answer string with a gold string, in one reading after the other."""
    expected = parse.parse_gold(gold, options)
    if expected.undefined:
        return Decision(Reason.DIFFERENT, "parse")
    if gold == answer and not options.reduced:
        return Decision(Reason.EQUAL, "string")
    parsed = parse.parse_answer(answer, options)
    if parsed.undefined or (parsed.unreduced and options.reduced and not expected.unreduced):
        return Decision(Reason.DIFFERENT, "parse")
    if options.worked_out and _has_work_left(expected.squeezed, parsed.squeezed):
        return Decision(Reason.DIFFERENT, "parse")
    if parsed.squeezed and expected.squeezed == parsed.squeezed:
        return Decision(Reason.EQUAL, "string")
    lettered = isinstance(expected.value, v.Choice) or expected.squeezed.isupper()
    if lettered and _same_letters(parse.plain(expected.squeezed), parse.plain(parsed.squeezed)):
        return Decision(Reason.EQUAL, "string")
    decision = _decide_reading(expected, parsed, options, ask)
    if decision.reason in (Reason.DIFFERENT, Reason.UNPARSED):
        for reading in _products(gold, answer, options):
            other = _decide_reading(*reading, options, ask)
            decision = other if other.reason in (Reason.EQUAL, Reason.TIMEOUT, Reason.CRASHED) else decision
    return decision


def _has_work_left(gold: str, answer: str) -> bool:
    """Return whether the last member of an answer has an operator that the gold lacks, or is a product of numbers.

    >>> _has_work_left("391", "17 \\\\cdot 23"), _has_work_left("60", "2^2 \\\\cdot 15")
    (True, False)
    """
    last = _INDEX.sub("_ ", answer).rpartition("=")[2]
    if _BARE_PRODUCT.fullmatch(last):
        return _BARE_PRODUCT.fullmatch(gold) is None
    return not set(_OPERATOR.findall(last)) <= set(_OPERATOR.findall(gold))


def _same_letters(gold: str, answer: str) -> bool:
    """Return whether an answer names the choice letters of the gold.

    >>> _same_letters("ACD", "A, C, D"), _same_letters("B", "B (6)"), _same_letters("BC", "B or C")
    (True, True, False)
    """
    if not _LETTERS.fullmatch(gold):
        return False
    letters = re.findall(r"(?<!\\)[A-J]", gold)
    if _LETTERS.fullmatch(answer):
        return sorted(letters) == sorted(re.findall("[A-J]", answer))
    first = _LETTERS_FIRST.match(answer)
    stated = sorted(re.findall("[A-J]", first[1])) if first else []
    return first is not None and stated == sorted(letters) and not _OTHER_LETTER.search(answer, first.end())


def _products(gold: str, answer: str, options: Options) -> Iterator[tuple[ParsedAnswer, ParsedAnswer]]:
    """Yield the reading that takes letters outside \\text{} as products, if they can be.

    A run that the other side has as one name is one name: SRMC is not SMRC.
    """
    if not (parse.can_be_product(gold) or parse.can_be_product(answer)):
        return
    expected_runs, runs = parse.runs_of_letters(gold), parse.runs_of_letters(answer)
    if expected_runs - runs and runs - expected_runs:
        return
    expected = parse.parse_gold(gold, options, letters=True)
    parsed = parse.parse_answer(answer, options, letters=True)
    if expected.value is not None and not isinstance(expected.value, v.Text) and parsed.value is not None:
        yield expected, parsed


def _decide_words(expected: ParsedAnswer, parsed: ParsedAnswer, options: Options) -> Decision:
    words = parse.plain(expected.squeezed), parse.plain(parsed.squeezed)
    first, second = map(parse.fold, words)
    alike = first == second != "" and (words[0] == words[1] or not options.case_sensitive)
    alike = alike or (expected.value == parsed.value is not None) or _TRUTH.get(first, first) == _TRUTH.get(second, "")
    return Decision(Reason.EQUAL if alike else Reason.HEDGED if parsed.hedged else Reason.DIFFERENT, "string")


_TRUTH = {"yes": "true", "no": "false", "true": "true", "false": "false"}


def _decide_reading(expected: ParsedAnswer, parsed: ParsedAnswer, options: Options, ask: Ask) -> Decision:
    gold, answer = expected.value, parsed.value
    if answer is None:
        return Decision(Reason.HEDGED if parsed.hedged else Reason.UNPARSED, "parse")
    if gold is None or isinstance(gold, v.Text) or isinstance(answer, v.Text):
        return _decide_words(expected, parsed, options)
    gold, answer = in_usual_form(gold), in_usual_form(answer)
    if without_conditions(gold) is gold:
        answer = without_conditions(answer)
    stage = "number" if isinstance(gold, v.Num) and isinstance(answer, v.Num) else "structure"
    try:
        reason = compare_values(gold, answer, options, _undecided)
    except Undecided:
        reason, stage = ask(gold, answer, options), "algebra"
    if reason is Reason.EQUAL and gold != answer and not (commutes(gold) and commutes(answer)):
        reason = Reason.DIFFERENT
    listed = isinstance(answer, v.Listing) and not isinstance(gold, v.Listing | v.Collection)
    if reason is Reason.DIFFERENT and (parsed.hedged or listed):
        reason = Reason.HEDGED
    return Decision(reason, stage)


def compare_values(gold: Value, answer: Value, options: Options, algebra: Algebra) -> Reason:
    """Return EQUAL, DIFFERENT or HEDGED for two trees. Errors of `algebra` pass through."""
    try:
        same = Comparison(options, algebra).same(gold, answer)
    except Hedged:
        return Reason.HEDGED
    except (v.UnreadableAnswer, sets.Unordered):
        return Reason.DIFFERENT
    return Reason.EQUAL if same else Reason.DIFFERENT


def _undecided(question: Question, gold: Expr, answer: Expr) -> bool:
    raise Undecided

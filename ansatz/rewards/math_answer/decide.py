"""Decides whether two strings are the same answer, by the cheapest stage: strings, numbers, structure, algebra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ansatz.rewards.math_answer import parameters, parse, sets
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.compare import Comparison, Hedged
from ansatz.rewards.math_answer.equality import Algebra, Question, Undecided
from ansatz.rewards.math_answer.functions import multiplied_out
from ansatz.rewards.math_answer.matrix_words import compare_matrices
from ansatz.rewards.math_answer.opaque import MARKS, with_names
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.relations import by_entries, residue_stated, without_bars
from ansatz.rewards.math_answer.restated import restatements, same_words
from ansatz.rewards.math_answer.spaces import is_same_space, with_parameter
from ansatz.rewards.math_answer.stream import FUNCTION_LETTERS
from ansatz.rewards.math_answer.values import Expr, Value
from ansatz.types import Reason


class Decision(NamedTuple):
    """A reason and the stage that found it. reason: None if the pair cannot be decided without algebra."""

    reason: Reason | None
    stage: str


def decide_pair(gold: str, answer: str, options: Options, algebra: Algebra | None = None) -> Decision:
    """Compare an answer string with a gold string. Without `algebra`, the reason can be None."""
    decision = _decide_as_written(gold, answer, options, algebra)
    if gold[1:] == "H" and answer.replace(" ", "") == "H" + gold[:1] != gold:
        return Decision(Reason.DIFFERENT, "string")  # a right coset is not a left one
    if decision.reason in (Reason.EQUAL, None) or decision.stage == "number":
        return decision
    return decide_restated(gold, answer, options, algebra) or decision


def decide_restated(
    gold: str, answer: str, options: Options, algebra: Algebra | None = None, *, unevaluated: bool = False
) -> Decision | None:
    """Return the decision on other spellings of the pair; None if none of them makes the answer equal.

    unevaluated: see `restatements`.
    """
    for expected, stated in restatements(gold, answer, options, unevaluated=unevaluated):
        decision = _decide_as_written(expected, stated, options, algebra)
        if decision.reason in (Reason.EQUAL, None):
            return decision
    return None


def _decide_as_written(gold: str, answer: str, options: Options, algebra: Algebra | None) -> Decision:
    expected = parse.parse_gold(gold, options)
    if expected.undefined:
        return Decision(Reason.DIFFERENT, "parse")
    if gold == answer and not options.reduced:
        return Decision(Reason.EQUAL, "string")
    if (is_same := compare_matrices(gold, answer)) is not None:
        return Decision(Reason.EQUAL if is_same else Reason.DIFFERENT, "string")
    parsed = parse.parse_answer(answer, options)
    if parsed.undefined:
        return Decision(Reason.DIFFERENT, "parse")
    if parsed.unreduced and options.reduced and not expected.unreduced:
        return Decision(Reason.DIFFERENT, "parse")
    if parsed.squeezed and expected.squeezed == parsed.squeezed:
        return Decision(Reason.EQUAL, "string")
    decision = _decide_parsed(expected, parsed, options, algebra)
    if decision.reason not in (Reason.EQUAL, None) and any(mark in gold + answer for mark in MARKS):
        decision = _decide_named(gold, answer, options, algebra) or decision
    if decision.reason in (Reason.DIFFERENT, Reason.UNPARSED) and (
        parse.can_be_product(gold) or parse.can_be_product(answer)
    ):
        return _decide_products(gold, answer, options, algebra) or decision
    return decision


def _decide_named(gold: str, answer: str, options: Options, algebra: Algebra | None) -> Decision | None:
    """Return the decision if events and transforms are names; None if that does not make both sides readable."""
    renamed = with_names(gold, answer)
    if renamed is None:
        return None
    expected, parsed = parse.parse_gold(renamed[0], options), parse.parse_answer(renamed[1], options)
    return (
        None if expected.value is None or parsed.value is None else _decide_values(expected, parsed, options, algebra)
    )


def _decide_products(gold: str, answer: str, options: Options, algebra: Algebra | None) -> Decision | None:
    """Return the decision if letters outside \\text{} are products; None if they are not, or if that makes
    nothing equal.

    A run that the other side has as one name is one name: SRMC is not SMRC.
    """
    expected_runs, runs = parse.runs_of_letters(gold), parse.runs_of_letters(answer)
    if expected_runs - runs and runs - expected_runs:
        return None
    expected = parse.parse_gold(gold, options, letters=True)
    if expected.value is None or isinstance(expected.value, v.Text):
        return None
    parsed = parse.parse_answer(answer, options, letters=True)
    if parsed.value is None:
        return None
    decision = _decide_values(expected, parsed, options, algebra)
    return decision if decision.reason in (Reason.EQUAL, None) else None


def _decide_parsed(
    expected: parse.ParsedAnswer, parsed: parse.ParsedAnswer, options: Options, algebra: Algebra | None
) -> Decision:
    said = expected.squeezed.removeprefix("\\text{")[:3].lower()
    alike = parse.same_yes_or_no(expected.squeezed, parsed.squeezed) if said.startswith(("yes", "no")) else None
    if alike is not None:
        return Decision(Reason.EQUAL if alike else Reason.DIFFERENT, "string")
    if parsed.value is None:
        return Decision(Reason.HEDGED if parsed.hedged else Reason.UNPARSED, "parse")
    if expected.value is None:
        alike = parse.fold(parse.plain(expected.squeezed)) == parse.fold(parse.plain(parsed.squeezed)) != ""
        return Decision(Reason.EQUAL if alike else Reason.DIFFERENT, "string")
    return _decide_values(expected, parsed, options, algebra)


def _decide_values(
    expected: parse.ParsedAnswer, parsed: parse.ParsedAnswer, options: Options, algebra: Algebra | None
) -> Decision:
    gold, answer = expected.value, parsed.value
    assert gold is not None
    assert answer is not None
    if parsed.called - expected.called:
        answer = multiplied_out(answer, FUNCTION_LETTERS | expected.called)
    if isinstance(gold, v.Text) or isinstance(answer, v.Text):
        words = parse.fold(parse.plain(expected.squeezed)), parse.fold(parse.plain(parsed.squeezed))
        cased = parse.plain(expected.squeezed) == parse.plain(parsed.squeezed) or not options.case_sensitive
        same = gold == answer or (words[0] == words[1] and cased)
        same = same or (not options.case_sensitive and same_words(*words))
        return Decision(Reason.EQUAL if same else Reason.HEDGED if parsed.hedged else Reason.DIFFERENT, "string")
    stage = "number" if isinstance(gold, v.Num) and isinstance(answer, v.Num) else "structure"
    try:
        gold, answer = with_parameter(gold), with_parameter(answer)
        comparison = Comparison(options, algebra or _undecided)
        same = comparison.same(gold, answer)
        if not same and stage != "number":
            same = any(comparison.same(*pair) for pair in _renamings(gold, answer))
            same = same or is_same_space(gold, answer, comparison.equal)
    except Undecided:
        return Decision(None, "algebra")
    except Hedged:
        return Decision(Reason.HEDGED, stage)
    except (v.UnreadableAnswer, sets.Unordered):
        return Decision(Reason.DIFFERENT, stage)
    if same:
        return Decision(Reason.EQUAL, stage)
    hedged = parsed.hedged or (isinstance(answer, v.Listing) and not isinstance(gold, v.Listing | v.Collection))
    return Decision(Reason.HEDGED if hedged else Reason.DIFFERENT, stage)


def _renamings(gold: Value, answer: Value) -> Iterator[tuple[Value, Value]]:
    """Return the pair with its arbitrary letters named alike, and in other forms of the same statement."""
    for renaming in (
        *parameters.with_constants_renamed(gold, answer),
        *parameters.with_parameter_renamed(gold, answer),
    ):
        yield gold, renaming
    yield from parameters.with_constants_absorbed(gold, answer)
    yield from parameters.with_declared_renamed(gold, answer)
    yield from parameters.with_parameters_declared(gold, answer)
    members = parameters.list_members(gold), parameters.list_members(answer)
    if members != (gold, answer):
        yield members
    expected, stated = by_entries(gold), by_entries(answer)
    if (expected is gold) != (stated is answer):
        yield expected, stated
    if isinstance(answer, v.Relation) and isinstance(gold, v.Num):
        residue = residue_stated(answer)
        if residue is not None:
            yield gold, residue
    region = without_bars(gold)
    plain_bars = without_bars(answer) if region is gold else answer
    if region is not gold or (plain_bars is not answer and _bars_of_a_name(answer)):
        yield region, plain_bars


def _bars_of_a_name(answer: Value) -> bool:
    """Return whether an inequality has only a name in its bars: |x| > 2 is solved, and |x - 1| > 2 is not."""
    sides = answer.sides if isinstance(answer, v.Relation) else ()
    return any(isinstance(side, v.Apply) and isinstance(side.arguments[0], v.Name) for side in sides)


def _undecided(question: Question, gold: Expr, answer: Expr) -> bool:
    raise Undecided

"""Decides whether two strings are the same answer, by the cheapest stage: strings, numbers, structure, algebra."""

from __future__ import annotations

from dataclasses import dataclass

from ansatz.rewards.math_answer import sets
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.compare import Comparison, Hedged
from ansatz.rewards.math_answer.equality import Algebra, Question, Undecided
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.parse import ParsedAnswer, fold, parse_answer, parse_gold, plain
from ansatz.rewards.math_answer.values import Expr
from ansatz.types import Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """A reason and the stage that found it. reason: None if the pair cannot be decided without algebra."""

    reason: Reason | None
    stage: str


def decide_pair(gold: str, answer: str, options: Options, algebra: Algebra | None = None) -> Decision:
    """Compares an answer string with a gold string. Without `algebra`, the reason can be None."""
    expected = parse_gold(gold, options)
    if expected.undefined:
        return Decision(Reason.DIFFERENT, "parse")
    if gold == answer and not options.reduced:
        return Decision(Reason.EQUAL, "string")
    parsed = parse_answer(answer, options)
    if parsed.undefined:
        return Decision(Reason.DIFFERENT, "parse")
    if parsed.unreduced and options.reduced and not expected.unreduced:
        return Decision(Reason.DIFFERENT, "parse")
    if parsed.squeezed and expected.squeezed == parsed.squeezed:
        return Decision(Reason.EQUAL, "string")
    if parsed.value is None:
        return Decision(Reason.HEDGED if parsed.hedged else Reason.UNPARSED, "parse")
    if expected.value is None:
        same_words = fold(plain(expected.squeezed)) == fold(plain(parsed.squeezed)) != ""
        return Decision(Reason.EQUAL if same_words else Reason.DIFFERENT, "string")
    return _decide_values(expected, parsed, options, algebra)


def _decide_values(expected: ParsedAnswer, parsed: ParsedAnswer, options: Options, algebra: Algebra | None) -> Decision:
    gold, answer = expected.value, parsed.value
    assert gold is not None
    assert answer is not None
    if isinstance(gold, v.Text) or isinstance(answer, v.Text):
        words = fold(plain(expected.squeezed)), fold(plain(parsed.squeezed))
        cased = plain(expected.squeezed) == plain(parsed.squeezed) or not options.case_sensitive
        same = gold == answer or (words[0] == words[1] and cased)
        return Decision(Reason.EQUAL if same else Reason.HEDGED if parsed.hedged else Reason.DIFFERENT, "string")
    stage = "number" if isinstance(gold, v.Num) and isinstance(answer, v.Num) else "structure"
    try:
        same = Comparison(options, algebra or _undecided).same(gold, answer)
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


def _undecided(question: Question, gold: Expr, answer: Expr) -> bool:
    raise Undecided

"""Two strings to an outcome, by the cheapest stage that can: cleaned strings, numbers, structure, algebra."""

from __future__ import annotations

from dataclasses import dataclass

from ansatz.rewards.math_answer import sets
from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.compare import Comparison, Hedged
from ansatz.rewards.math_answer.equality import Algebra, Question, Undecided
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.parse import Reading, fold, plain, read, read_gold
from ansatz.rewards.math_answer.values import Expr
from ansatz.types import Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """reason None: not settled without algebra."""

    reason: Reason | None
    stage: str


def settle(gold: str, answer: str, options: Options, algebra: Algebra | None = None) -> Outcome:
    """Grades an answer string against a gold string. Without `algebra` the reason may be None."""
    expected = read_gold(gold, options)
    if expected.undefined:
        return Outcome(Reason.DIFFERENT, "parse")
    if gold == answer and not options.reduced:
        return Outcome(Reason.EQUAL, "string")
    given = read(answer, options)
    if given.undefined:
        return Outcome(Reason.DIFFERENT, "parse")
    if given.unreduced and options.reduced and not expected.unreduced:
        return Outcome(Reason.DIFFERENT, "parse")
    if given.squeezed and expected.squeezed == given.squeezed:
        return Outcome(Reason.EQUAL, "string")
    if given.value is None:
        return Outcome(Reason.HEDGED if given.hedged else Reason.UNPARSED, "parse")
    if expected.value is None:
        same_words = fold(plain(expected.squeezed)) == fold(plain(given.squeezed)) != ""
        return Outcome(Reason.EQUAL if same_words else Reason.DIFFERENT, "string")
    return _settle_values(expected, given, options, algebra)


def _settle_values(expected: Reading, given: Reading, options: Options, algebra: Algebra | None) -> Outcome:
    gold, answer = expected.value, given.value
    assert gold is not None
    assert answer is not None
    if isinstance(gold, v.Text) or isinstance(answer, v.Text):
        words = fold(plain(expected.squeezed)), fold(plain(given.squeezed))
        cased = plain(expected.squeezed) == plain(given.squeezed) or not options.case_sensitive
        same = gold == answer or (words[0] == words[1] and cased)
        return Outcome(Reason.EQUAL if same else Reason.HEDGED if given.hedged else Reason.DIFFERENT, "string")
    stage = "number" if isinstance(gold, v.Num) and isinstance(answer, v.Num) else "structure"
    try:
        same = Comparison(options, algebra or _undecided).same(gold, answer)
    except Undecided:
        return Outcome(None, "algebra")
    except Hedged:
        return Outcome(Reason.HEDGED, stage)
    except (v.Unreadable, sets.Unordered):
        return Outcome(Reason.DIFFERENT, stage)
    if same:
        return Outcome(Reason.EQUAL, stage)
    hedged = given.hedged or (isinstance(answer, v.Listing) and not isinstance(gold, v.Listing | v.Collection))
    return Outcome(Reason.HEDGED if hedged else Reason.DIFFERENT, stage)


def _undecided(question: Question, gold: Expr, answer: Expr) -> bool:
    raise Undecided

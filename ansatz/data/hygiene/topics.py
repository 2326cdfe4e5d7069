"""Topics of problems by rules: words and signs that are typical of a field of mathematics.

Each topic has patterns with weights. A topic applies if the weights of the patterns that occur in the conversation
reach THRESHOLD. Signs of one narrow field weigh more than words of a wide one. The rules are written for English and
LaTeX. They are meant for mixtures and for a first look at a file; how often they agree with the subjects that MATH
states is in docs/data.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ansatz.errors import ConfigError
from ansatz.registry import load_attribute
from ansatz.types import Problem

THRESHOLD = 2.0
MOST = 2
"""How often a pattern counts at most in one text."""
ARITHMETIC, OTHER = "arithmetic", "other"
"""OTHER: the topic of a problem to which no rule applies."""

_RULES: dict[str, dict[float, str]] = {  # topic: {weight: pattern}
    "geometry": {
        2.0: r"triangles?\b|\bcircle|\bsquares? [A-Z]|rectang|trapezoid|parallelogram|rhombus|polygon|pentagon"
        r"|hexagon|octagon|quadrilateral|perimeter|circumference|\bradius|\bradii|diameter|hypotenuse"
        r"|circum(?:circle|center)|inscribed|incircle|altitude|perpendicular|\\perp|\\angle|\\triangle"
        r"|\bangles?\b|\bcone\b|\bsphere|cylinder|pyramid|\bcube\b|\bprism|tetrahedr|\bchord|tangent to"
        r"|surface area|square (?:inches|units|feet|cent)|cubic (?:inches|units|feet|cent)|\barea of\b"
        r"|\[asy\]|diagonals?\b|midpoint of \$?\\?(?:overline|[A-Z])|collinear",
        1.0: r"\\overline|\bpoints? \$?[A-Z]\$?\b|\bside(?:s| length)\b|\bvertex|\bvertices|\blength of\b"
        r"|congruent",
    },
    "number_theory": {
        2.0: r"\bmodulo\b|\\p?mod\b|remainder when|\bremainder of|divisib|\bdivisors?\b|prime (?:number|factor)"
        r"|\bprimes?\b|greatest common|least common|\\gcd|\blcm\b|\bgcd\b|base[- ](?:\d|two|three|five|six"
        r"|seven|eight|nine|b\b|\$)|_\{?(?:\\text\{)?(?:two|three|four|five|six|seven|eight|nine|twelve)"
        r"|units digit|ones digit|tens digit|last (?:two|three) digits|relatively prime|repeating decimal"
        r"|multiples? of|perfect (?:square|cube)s?\b|positive factors|is (?:a )?divided by"
        r"|decimal representation|digit in the|\\equiv|congruent to|palindrome",
        1.0: r"\bdigits?\b|\bintegers?\b|\bfactors?\b|\bleft over\b|\bsum of the digits\b",
    },
    "counting_and_probability": {
        2.0: r"probabilit|how many (?:different |distinct |possible )?ways|in how many|permutation|combination"
        r"|\\binom|at random|randomly|\bdice\b|\bdie\b|\bcoins? (?:is|are)|flipp|expected value|factorial"
        r"|arrange|\bchoose\b|\bcommittee|how many (?:different|distinct) |\bchosen\b|pascal|handshake"
        r"|shuffled|\bmarbles?\b|\bdeck\b|\brolls? |\brolled\b",
        1.0: r"\bhow many\b.*\b(?:are there|possible|paths)\b|\bcards?\b|\bcolou?rs?\b|\bindistinguishable\b|!",
    },
    "trigonometry": {
        4.0: r"\\(?:sin|cos|tan|sec|csc|cot)(?![a-z])|\b(?:arc)?(?:sine|cosine|tangent) of\b|\\arc(?:sin|cos"
        r"|tan)|\btrigonom",
        1.0: r"\^\\circ|\\theta",
    },
    "linear_algebra": {
        4.0: r"matri(?:x|ces)|\\(?:begin\{)?[pbv]matrix|\bvectors?\b|\\mathbf|\bdeterminant|eigen"
        r"|\\operatorname\{proj\}"
    },
    "complex_numbers": {
        4.0: r"complex (?:number|root|plane)|imaginary|roots? of unity|\|z|\bz\^|e\^\{[^}]*i\b|\\overline\{z\}"
        r"|\bcis\b"
    },
    "calculus": {
        4.0: r"\\int(?![a-z])|\bintegral|derivative|differentia|\\lim(?![a-z])|\\frac\{d[xyt]?\}\{d[xyt]\}"
        r"|\bconverge|\bcontinuous\b"
    },
    "algebra": {
        2.0: r"\bpolynomial|quadratic|\broots? of\b|\bf\(|\bg\(|\bp\(|\\log|logarithm|\bsimplify|\bexpand"
        r"|\bfactor(?:ed)? (?:the|completely)|inequalit|\bsolve\b|\bsolutions? (?:to|of|is|are)|asympto"
        r"|\bparabola|\bslope|\binverse\b|\bdomain of|\brange of the function|\bsequence"
        r"|arithmetic (?:series|progress)|geometric (?:series|progress)|\bellipse|hyperbola|\bfunction"
        r"|\bsystem of\b|\bequations?\b|\bevaluate\b|\bintersect|\bgraph\b|\bcoefficient|\\lfloor|\\lceil"
        r"|real numbers?|\bcompute \$|\bmidpoint\b|\bconstants?\b|\\sqrt|value of \$?[a-z]\b",
        1.0: r"\bx\b|\by\b|\bvariable|\bexpress(?:ion)?\b|\bmaximum\b|\bminimum\b",
    },
    ARITHMETIC: {
        2.0: r"how (?:much|many|long|far|old|fast)|percent|\\%|\baverage|\bmean of\b|\bmedian\b|\bcosts?\b"
        r"|\bprice|\\\$\d|\$\d|\bdollars?\b|\bcents\b|\bhours?\b|\bminutes?\b|\bmiles\b|\bratio\b"
        r"|\bper (?:hour|day|week)|\bper minute|\bdiscount|\bin total\b|\baltogether\b|\bspen[dt]s?\b"
        r"|\beach\b|\bcalculate\b|\bround(?:ed)?\b|reciprocal",
        1.0: r"\\(?:div|times|cdot)\b|\bhalf\b|\btwice\b|\bmore than\b|\bfewer\b|\b(?:he|she|they)\b",
    },
}
_CASE_MATTERS = ("geometry",)  # points are capital letters
_COMPILED = {
    topic: [
        (weight, re.compile(rule, 0 if topic in _CASE_MATTERS else re.IGNORECASE)) for weight, rule in rules.items()
    ]
    for topic, rules in _RULES.items()
}

Classifier = Callable[[Problem], str | Sequence[str]]


def topics_of(problem: Problem) -> list[str]:
    """Return all topics that apply, the one with the most evidence first, arithmetic last: its words are in most
    stories."""
    text = problem.dialogue
    evidence = {
        topic: sum(weight * min(MOST, sum(1 for _ in pattern.finditer(text))) for weight, pattern in patterns)
        for topic, patterns in _COMPILED.items()
    }
    topics = (topic for topic in evidence if evidence[topic] >= THRESHOLD)
    return sorted(topics, key=lambda topic: (topic == ARITHMETIC, -evidence[topic]))


def classifier_of(reference: str | None) -> Callable[[Problem], list[str]]:
    """Return the rules, or a user's classifier: "file.py:function" with a function (problem) -> topic, or a list of
    topics.

    Raise ConfigError if there is no such function, or if it returns something else.
    """
    if reference is None:
        return lambda problem: topics_of(problem) or [OTHER]
    if ":" not in reference:
        raise ConfigError(f"--classifier = {reference!r}, expected file.py:function or module:function.")
    function: Any = load_attribute(reference, kind="classifier")

    def classify(problem: Problem) -> list[str]:
        try:
            result = function(problem)
        except Exception as error:  # the user's code can fail in any way
            raise ConfigError(
                f"--classifier {reference} failed on problem {problem.id!r}: {type(error).__name__}: {error}."
            ) from error
        topics = [result] if isinstance(result, str) else result
        if not isinstance(topics, Sequence) or not topics or not all(isinstance(t, str) and t.strip() for t in topics):
            raise ConfigError(
                f"--classifier {reference} returned {result!r:.80} for problem {problem.id!r}, expected a topic as "
                "text, or a list of topics."
            )
        return list(topics)

    return classify

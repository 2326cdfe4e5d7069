"""Layer 2: turns an answer string into a value. A string that cannot be parsed gives a reason and raises nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer.clean import clean, squeeze
from ansatz.rewards.math_answer.extract import stated_answer
from ansatz.rewards.math_answer.functions import based
from ansatz.rewards.math_answer.grammar import Parser
from ansatz.rewards.math_answer.lexer import MAX_LENGTH, Lexer
from ansatz.rewards.math_answer.options import DEFAULT, Options
from ansatz.rewards.math_answer.values import Undefined, UnreadableAnswer, Value
from ansatz.rewards.math_answer.words import (
    EMPTY_PHRASES,
    FUNCTIONS,
    GREEK,
    HEDGES,
    INFINITE_PHRASES,
    REAL_PHRASES,
    UNDEFINED_PHRASES,
    number_from_words,
)

_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|sc)?|math(?:rm|bf|sf|it|tt)|operatorname|mbox|hbox|emph)\s*\{([^{}]*)\}"
)
_WORDY = re.compile(r"[A-Za-z][A-Za-z\s'.,\-]*")
_LETTER = re.compile(
    r"(?:(?:option|choice|answer)\s*:?\s+)?(?:\(\s*([A-Za-z])\s*\)|([A-Za-z])\s?[).:]|([A-Z]))", re.IGNORECASE
)
_LETTERED = re.compile(r"(?:\(\s*([A-J])\s*\)|([A-J])\s?[).:])\s*[:.~]?\s*(?:\\[ ,;:]|\\qquad|\\quad)*\s*(\S.*)")
_OTHER_LETTER = re.compile(r"\([A-J]\)|\b(?:and|or|&|,)\s*\(?[A-J]\b")
_CLOCK = re.compile(r"(\d{1,2})(?:\s*[:.]\s*(\d{2}))?(?:\s*:\s*(\d{2}))?\s*([AaPp])\.?\s*[Mm]\.?")
_TIME = re.compile(r"(\d{1,2})\s?:\s?(\d{2})(?:\s?:\s?(\d{2}))?")
_DOTTED_POWERS = re.compile(r"\d+(?:\^(?:\d+|\{\d+\}))?(?:\s*\.\s*\d+(?:\^(?:\d+|\{\d+\}))?)+")
_FACTOR_DOT = re.compile(r"\s+\.\s*|\.\s+|(?<=[\d}])\.(?=\d+\^)")
_NAME = re.compile(r"[A-Z][a-z]{2}")
_BASED = re.compile(r"\(?([0-9A-Za-z]+)\)?_\{?\(?(\d{1,2}|[a-z]{3,5})\)?\}?")
_ALL_BUT = re.compile(r"all real(?:s| numbers)(?: [a-z])? except(?: for)?(?: [a-z] ?=)? +(.+)", re.IGNORECASE)
_PIECES = re.compile(r"\s*,\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+")
_ARTICLE = re.compile(r"^(?:the|a|an)\s+(?=\S)")
_HEDGE = re.compile(r"\b(?:" + "|".join(sorted(HEDGES)) + r")\b")
_ABOUT = re.compile(r"^(?:\\approx|\\sim|≈|=)\s*")
_PROSE = re.compile(r"[A-Za-z0-9\s'.,:\-]+")
_LONG_WORD = re.compile(r"[A-Za-z]{3}")
_BARE_WORDS = frozenset({"yes", "no", "odd", "even", "true", "false", "none", "all", "dne"})


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """A parsed text. value: None if it cannot be parsed. problem: the reason, or "".

    undefined: it is empty or has no value (0/0, nan), so it equals nothing. unreduced: it contains a fraction that is
    not in lowest terms. hedged: its words express doubt ("5 or 6", "not 5"). squeezed: the cleaned text.
    """

    value: Value | None
    squeezed: str
    problem: str = ""
    undefined: bool = False
    unreduced: bool = False
    hedged: bool = False


def parse_answer(text: str, options: Options = DEFAULT) -> ParsedAnswer:
    """Parses an answer string. Never raises."""
    if len(text) > MAX_LENGTH * 4:
        return ParsedAnswer(None, "", f"longer than {MAX_LENGTH} characters")
    cleaned = clean(text)
    squeezed = squeeze(cleaned)
    if not cleaned:
        return ParsedAnswer(None, "", "empty", undefined=True)
    hedged = len(cleaned) <= MAX_LENGTH and bool(_HEDGE.search(plain(cleaned).lower()))
    try:
        value, unreduced = _value(cleaned, options)
    except Undefined as error:
        return ParsedAnswer(None, squeezed, str(error), undefined=True)
    except UnreadableAnswer as error:
        words = plain(cleaned)
        if not hedged and len(cleaned) <= MAX_LENGTH and _PROSE.fullmatch(words) and _LONG_WORD.search(words):
            return ParsedAnswer(v.Text(_case(words, options)), squeezed)  # such as "June 20"
        return ParsedAnswer(None, squeezed, str(error), hedged=hedged)
    return ParsedAnswer(value, squeezed, unreduced=unreduced, hedged=hedged)


@lru_cache(maxsize=8_192)
def parse_gold(text: str, options: Options = DEFAULT) -> ParsedAnswer:
    """The value of a gold, which may be a whole solution. Cached, because all rollouts of a group share their gold."""
    return parse_answer(stated_answer(text, gold=True), options)


def is_choice(gold: str) -> bool:
    """Whether a gold is a choice letter."""
    return isinstance(parse_gold(gold, DEFAULT).value, v.Choice)


def fold(text: str) -> str:
    """Folds a text for comparison: case, leading article, final punctuation and spacing do not count."""
    words = re.sub(r"[\s\-~]+", " ", text.lower()).strip(" .,;:!\"'()")
    return _ARTICLE.sub("", words)


def plain(cleaned: str) -> str:
    """Removes the wrappers of \\text{} and the like."""
    if "\\" not in cleaned:
        return cleaned
    return _TEXT.sub(r" \1 ", cleaned).replace("~", " ").replace("\\ ", " ").strip()


def _value(cleaned: str, options: Options) -> tuple[Value, bool]:
    if len(cleaned) > MAX_LENGTH:
        raise UnreadableAnswer(f"longer than {MAX_LENGTH} characters")
    unwrapped = plain(cleaned)
    letter = _LETTER.fullmatch(unwrapped)
    if letter:
        name = letter[1] or letter[2] or letter[3]
        if name.isupper() or letter[1] or letter[2]:
            return v.Choice(name), False
    lettered = _LETTERED.fullmatch(unwrapped)
    doubted = lettered and (_OTHER_LETTER.search(lettered[3]) or _HEDGE.search(lettered[3].lower()))
    if lettered and not doubted and not lettered[3].startswith(("^", "(", "_", "=", "+", "-", "/", "*")):
        return v.Choice(lettered[1] or lettered[2], lettered[3]), False
    all_but = _ALL_BUT.fullmatch(unwrapped)
    if all_but:
        left_out, _ = _value(all_but[1], options)
        points = left_out if isinstance(left_out, v.Collection) else v.Collection(_listed(left_out))
        return v.Combination("difference", (v.REALS, points)), False
    words = _worded(unwrapped, wrapped=unwrapped != cleaned, options=options)
    if words is not None:
        return words, False
    in_base = _BASED.fullmatch(unwrapped.replace(" ", ""))
    if in_base and any(c.isdigit() for c in in_base[1]):
        return based(in_base[1], in_base[2]), False
    clock = _clock(unwrapped)
    if clock is not None:
        return clock, False
    lexer = Lexer(
        _ABOUT.sub("", _with_factor_dots(cleaned)),
        decimal_comma=options.decimal_comma,
        locale_thousands=options.locale_thousands,
    )
    parser = Parser(lexer.tokens)
    return parser.answer(), parser.unreduced


def _clock(words: str) -> v.Clock | None:
    """A time of day: `4:30 p.m.`, `16:30` or `16:30:05`. Minutes have two digits, so `3:4` is a ratio."""
    halved = _CLOCK.fullmatch(words)
    if halved:
        hour, minute, second = int(halved[1]), int(halved[2] or 0), int(halved[3] or 0)
        known = hour <= 12 and minute < 60 and second < 60
        return v.Clock(hour, minute, second, halved[4].lower() + "m") if known else None
    time = _TIME.fullmatch(words)
    if time is None or int(time[1]) > 24 or int(time[2]) > 59 or int(time[3] or 0) > 59:
        return None
    fields = [field for field in time.groups() if field]
    ratio = () if any(field.startswith("0") for field in fields) else tuple(int(field) for field in fields)
    return v.Clock(int(time[1]), int(time[2]), int(time[3] or 0), ratio=ratio)


def _with_factor_dots(cleaned: str) -> str:
    """A product of powers with dots between its factors, as in `2^3 . 3^2`, with multiplication signs instead."""
    if "^" not in cleaned or "." not in cleaned or not _DOTTED_POWERS.fullmatch(cleaned):
        return cleaned
    return _FACTOR_DOT.sub(r" \\cdot ", cleaned)


def _listed(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, v.Listing) else (value,)


def _worded(words: str, *, wrapped: bool, options: Options) -> Value | None:
    """The value of a text that consists of words; None if it can be mathematics."""
    if not _WORDY.fullmatch(words):
        return None
    folded = fold(words)
    if folded in EMPTY_PHRASES:
        return v.Collection(())
    if folded in REAL_PHRASES:
        return v.REALS
    if folded in UNDEFINED_PHRASES:
        return v.Text("undefined")
    if folded in INFINITE_PHRASES:
        return v.Text("infinitely many")
    if folded == "nan":
        raise Undefined("nan")
    if options.number_words:
        number = number_from_words(folded)
        if number is not None:
            return v.integer(number)
    if words in FUNCTIONS or words in GREEK or folded in ("infinity", "inf", "oo", "infty", "pi"):
        return None
    spaced = " " in words
    if not (spaced or wrapped or len(folded) > 3 or _NAME.fullmatch(words) or folded in _BARE_WORDS) or len(folded) < 2:
        return None
    pieces = [piece for piece in _PIECES.split(words) if piece.strip()]
    if len(pieces) > 1 and not folded.startswith(("not ", "neither ")):
        choice = bool(re.search(r"\bor\b", words))
        return v.Listing(tuple(v.Text(_case(piece, options)) for piece in pieces), choice)
    return v.Text(_case(words, options))


def _case(text: str, options: Options) -> str:
    return " ".join(text.split()) if options.case_sensitive else fold(text)

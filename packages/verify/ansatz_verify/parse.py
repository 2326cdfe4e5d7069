"""Layer 2: turns an answer string into a value. A string that cannot be parsed gives a reason and raises nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ansatz_verify import values as v
from ansatz_verify import words as lexicon
from ansatz_verify.clean import clean, squeeze
from ansatz_verify.functions import based
from ansatz_verify.grammar import Parser
from ansatz_verify.lexer import MAX_LENGTH, Lexer, is_product
from ansatz_verify.marks import boxed_answer
from ansatz_verify.options import DEFAULT, Options
from ansatz_verify.values import Undefined, UnreadableAnswer, Value

_PHRASE = {
    name: re.compile(pattern)
    for name, pattern in {
        "letter": r"(?i:(?:option|choice|answer)\s*:?\s)?(?:\(\s*([A-Za-z])\s*\)|([A-Za-z])\s?[).:]|([A-Z]))",
        "lettered": r"(?:\(\s*([A-J])\s*\)|([A-J])\s?[).:])\s*[:.~]?\s*(?:\\[\s,;:]|\\q?quad)*\s*(\S.*)",
        "other_letter": r"\([A-J]\)|\b(?:and|or|&|,)\s*\(?[A-J]\b",
        "text": r"\\(?:text(?:bf|it|rm|sf|tt|normal|sc)?|math(?:rm|bf|sf|it|tt)|operatorname|mbox|hbox|emph)\s*"
        r"\{([^{}]*)\}",
        "clock": r"(\d{1,2})(?:\s*[:.]\s*(\d{2}))?(?:\s*:\s*(\d{2}))?\s*([AaPp])\.?\s*[Mm]\.?",
        "time": r"(\d{1,2})\s?:\s?(\d{2})(?:\s?:\s?(\d{2}))?",
        "pieces": r"\s*,\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+",
        "article": r"^(?:the|a|an)\s+(?=\S)",
        "about": r"(?:\\approx|\\sim|=|(?:\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![A-Za-z]))=?)\s*",
        "wordy": r"[A-Za-z][A-Za-z\s'.,\-]*",
        "name": r"[A-Z][a-z]{2}",
        "based": r"\(?([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?_\{?\(?(\d{1,2}|[a-z]{3,5})\)?\}?",
        "prose": r"[A-Za-z0-9\s'.,:\-]+",
        "long_word": r"[A-Za-z]{3}",
        "run": r"(?<![\\A-Za-z])(?<!\\begin\{)(?<!\\end\{)[A-Za-z]{2,}",
        "spaced_letters": r"(?<![\\A-Za-z])[A-Za-z] [A-Za-z]",
    }.items()
}
_HEDGE = re.compile(r"\b(?:" + "|".join(sorted(lexicon.HEDGES)) + r")\b")
_PLAIN_DIGITS = 1_000
_BARE_WORDS = frozenset({"yes", "no", "odd", "even", "true", "false", "none", "all", "dne"})


class ParsedAnswer(NamedTuple):
    """A parsed text. value: None if it cannot be parsed. problem: the reason, or "".

    squeezed: the cleaned text. undefined: it is empty or has no value (0/0, nan), so it equals nothing. unreduced: it
    contains a fraction that is not in lowest terms. hedged: its words express doubt ("5 or 6", "not 5").
    """

    value: Value | None
    squeezed: str
    problem: str = ""
    undefined: bool = False
    unreduced: bool = False
    hedged: bool = False


def parse_answer(text: str, options: Options = DEFAULT, *, letters: bool = False) -> ParsedAnswer:
    """Parse an answer string. Never raises. letters: see `Lexer`."""
    if len(text) > MAX_LENGTH * 4:
        return ParsedAnswer(None, "", f"longer than {MAX_LENGTH} characters")
    cleaned = clean(text)
    squeezed = squeeze(cleaned)
    if not cleaned:
        return ParsedAnswer(None, "", "empty", undefined=True)
    if cleaned.isdecimal() and cleaned.isascii() and len(cleaned) < _PLAIN_DIGITS:  # by far the most common answer
        return ParsedAnswer(v.integer(int(cleaned)), cleaned)
    if len(cleaned) > MAX_LENGTH:
        return ParsedAnswer(None, squeezed, f"longer than {MAX_LENGTH} characters")
    words = plain(cleaned)
    hedged = _HEDGE.search(words.lower()) is not None
    try:
        value, unreduced = _read(cleaned, words, options, letters=letters)
    except Undefined as error:
        return ParsedAnswer(None, squeezed, str(error), undefined=True)
    except UnreadableAnswer as error:
        if not letters and not hedged and _PHRASE["prose"].fullmatch(words) and _PHRASE["long_word"].search(words):
            return ParsedAnswer(v.Text(_case(words, options)), squeezed)  # such as "June 20"
        return ParsedAnswer(None, squeezed, str(error), hedged=hedged)
    return ParsedAnswer(value, squeezed, unreduced=unreduced, hedged=hedged)


@lru_cache(maxsize=8_192)
def parse_gold(text: str, options: Options = DEFAULT, *, letters: bool = False) -> ParsedAnswer:
    """Return the value of a gold, which may be a whole solution.

    Cached, because all rollouts of a group share their gold.
    """
    return parse_answer(boxed_answer(text, gold=True), options, letters=letters)


def runs_of_letters(text: str) -> frozenset[str]:
    """Return the runs that can name one thing, such as SRMC, outside \\text{}.

    Within a formula, AB and BA are the same.
    """
    runs = {
        run
        for run in _PHRASE["run"].findall(_PHRASE["text"].sub(" ", text))
        if run.isupper() or len(run) > 3 or (len(run) > 2 and run.istitle())
    }
    within = not text.strip("$ ").isalpha()
    return frozenset("".join(sorted(run)) if len(run) == 2 and within else run for run in runs)


def can_be_product(text: str) -> bool:
    """Return whether a text has letters that could be one word, or a product."""
    return _PHRASE["run"].search(text) is not None or _PHRASE["spaced_letters"].search(text) is not None


def fold(text: str) -> str:
    """Fold a text for comparison: case, leading article, final punctuation and spacing do not count."""
    words = re.sub(r"[\s\-~]+", " ", text.lower()).strip(" .,;:!\"'()")
    return ("-" if text.lstrip().startswith("-") else "") + _PHRASE["article"].sub("", words)


def plain(cleaned: str) -> str:
    """Return a text without the wrappers \\text{} and the like."""
    if "\\" not in cleaned:
        return cleaned
    return _PHRASE["text"].sub(r" \1 ", cleaned).replace("~", " ").replace("\\ ", " ").strip()


def _read(cleaned: str, words: str, options: Options, *, letters: bool) -> tuple[Value, bool]:
    """Return the value that a cleaned text states, and whether its parser came across an unreduced part. words: the
    text without its wrappers."""
    if words[:1].isalpha() or words.startswith("("):
        stated = _in_words(words, wrapped=words != cleaned, options=options, letters=letters)
        if stated is not None:
            return stated, False
    in_base = _PHRASE["based"].fullmatch(words.replace(" ", "")) if "_" in words else None
    if in_base and any(c.isdigit() for c in in_base[1]):
        return based(in_base[1], in_base[2]), False
    if words[-4:] == " min" and words[:1].isdigit():  # elsewhere a function
        cleaned = f"{cleaned.removesuffix('min')}\\text{{min}}" if cleaned.endswith(" min") else cleaned
    clock = _clock(words.replace("{:}", ":")) if words[:1].isdigit() else None
    if clock is not None:
        return clock, False
    about = _PHRASE["about"].match(cleaned)
    lexer = Lexer(cleaned[about.end() :] if about else cleaned, options, letters=letters)
    parser = Parser(lexer.tokens)
    parser.letters_apart = letters
    return parser.answer(), parser.unreduced


def _in_words(words: str, *, wrapped: bool, options: Options, letters: bool) -> Value | None:
    """Return the value of a text that begins with a letter, if it is a choice letter or consists of words."""
    letter = _PHRASE["letter"].fullmatch(words)
    if letter:
        name = letter[1] or letter[2] or letter[3]
        if name.isupper() or letter[1] or letter[2]:
            return v.Choice(name)
    lettered = _PHRASE["lettered"].fullmatch(words)
    doubted = lettered and (_PHRASE["other_letter"].search(lettered[3]) or _HEDGE.search(lettered[3].lower()))
    if lettered and not doubted and not lettered[3].startswith(("^", "(", "_", "=", "+", "-", "/", "*")):
        return v.Choice(lettered[1] or lettered[2], lettered[3])
    if letters and not wrapped and _has_products_only(words):
        return None
    return _worded(words, wrapped=wrapped, options=options)


def _has_products_only(words: str) -> bool:
    """Return whether words can be products of letters: `mgh`, `m g h`, `mg h - kv`, and not `is it` or `New York`."""
    for term in words.split("-"):
        runs = [run for run in re.findall("[A-Za-z]+", term) if len(run) > 1]
        if len(runs) > 1 or not all(is_product(run) and (len(run) < 3 or not run.istitle()) for run in runs):
            return False
    return True


def _clock(words: str) -> v.Clock | None:
    """Return a time of day: `4:30 p.m.`, `16:30` or `16:30:05`. Minutes have two digits, so `3:4` is a ratio.

    Seven of 44,212 golds of ten data sets are such times.
    """
    halved = _PHRASE["clock"].fullmatch(words)
    if halved:
        hour, minute, second = int(halved[1]), int(halved[2] or 0), int(halved[3] or 0)
        known = hour <= 12 and minute < 60 and second < 60
        return v.Clock(hour, minute, second, halved[4].lower() + "m") if known else None
    time = _PHRASE["time"].fullmatch(words)
    if time is None or int(time[1]) > 24 or int(time[2]) > 59 or int(time[3] or 0) > 59:
        return None
    fields = [field for field in time.groups() if field]
    ratio = () if any(field.startswith("0") for field in fields) else tuple(int(field) for field in fields)
    return v.Clock(int(time[1]), int(time[2]), int(time[3] or 0), ratio=ratio)


def _worded(words: str, *, wrapped: bool, options: Options) -> Value | None:
    """Return the value of a text that consists of words; None if it can be mathematics."""
    if not _PHRASE["wordy"].fullmatch(words):
        return None
    folded = fold(words)
    if folded in _SAID:
        return _SAID[folded]
    if folded == "nan":
        raise Undefined("nan")
    if options.number_words or not wrapped:
        number = lexicon.number_from_words(folded)
        if number is not None:
            return v.Num(number)
    if _is_mathematics(words, folded, wrapped=wrapped):
        return None
    pieces = [piece for piece in _PHRASE["pieces"].split(words) if piece.strip()]
    if len(pieces) > 1 and not folded.startswith(("not ", "neither ")):
        choice = bool(re.search(r"\bor\b", words))
        return v.Listing(tuple(v.Text(_case(piece, options)) for piece in pieces), choice)
    return v.Text(_case(words, options))


_SAID: dict[str, Value] = {
    **dict.fromkeys(lexicon.EMPTY_PHRASES, v.Collection(())),
    **dict.fromkeys(lexicon.REAL_PHRASES, v.REALS),
    **dict.fromkeys(lexicon.UNDEFINED_PHRASES, v.Text("undefined")),
    **dict.fromkeys(lexicon.INFINITE_PHRASES, v.INFINITY),
}


def _is_mathematics(words: str, folded: str, *, wrapped: bool) -> bool:
    """Return whether letters are rather a formula than words."""
    if "-" in words and all(len(run) < 3 for run in re.findall("[A-Za-z]+", words)):
        return True  # p - q
    if words in lexicon.FUNCTIONS or words in lexicon.GREEK or folded in ("infinity", "inf", "oo", "infty", "pi"):
        return True
    worded = " " in words or wrapped or len(folded) > 3 or _PHRASE["name"].fullmatch(words) or folded in _BARE_WORDS
    return not worded or len(folded) < 2


def _case(text: str, options: Options) -> str:
    return " ".join(text.split()) if options.case_sensitive else fold(text)

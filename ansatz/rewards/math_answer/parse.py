"""Layer 2: turns an answer string into a value. A string that cannot be parsed gives a reason and raises nothing."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from ansatz.rewards.math_answer import values as v
from ansatz.rewards.math_answer import words as lexicon
from ansatz.rewards.math_answer.clean import clean, squeeze
from ansatz.rewards.math_answer.dates import canonical_date
from ansatz.rewards.math_answer.extract import stated_answer
from ansatz.rewards.math_answer.functions import based
from ansatz.rewards.math_answer.grammar import Parser
from ansatz.rewards.math_answer.lexer import MAX_LENGTH, Lexer, is_product
from ansatz.rewards.math_answer.options import DEFAULT, Options
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.values import Undefined, UnreadableAnswer, Value

_PHRASE = phrases_of("parse")

_HEDGE = re.compile(r"\b(?:" + "|".join(sorted(lexicon.HEDGES)) + r")\b")
_COMBINATION, _PERMUTATION = (
    re.compile(r"(?<![\w})\]])[_^]\{?(\d+|[a-z])\}?\s*" + letter + r"_\{?(\d+|[a-z])\}?") for letter in "CP"
)
_PLAIN_DIGITS = 1_000
_BARE_WORDS = frozenset({"yes", "no", "odd", "even", "true", "false", "none", "all", "dne"})


class ParsedAnswer(NamedTuple):
    """A parsed text. value: None if it cannot be parsed. problem: the reason, or "".

    undefined: it is empty or has no value (0/0, nan), so it equals nothing. unreduced: it contains a fraction that is
    not in lowest terms. called: names before a bracket with one number or name. hedged: its words express doubt
    ("5 or 6", "not 5"). squeezed: the cleaned text.
    """

    value: Value | None
    squeezed: str
    problem: str = ""
    undefined: bool = False
    unreduced: bool = False
    hedged: bool = False
    called: frozenset[str] = frozenset()


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
        reading = _read(cleaned, words, options, letters=letters)
    except Undefined as error:
        return ParsedAnswer(None, squeezed, str(error), undefined=True)
    except UnreadableAnswer as error:
        if not letters and not hedged and _PHRASE["prose"].fullmatch(words) and _PHRASE["long_word"].search(words):
            return ParsedAnswer(v.Text(_case(words, options)), squeezed)  # such as "June 20"
        return ParsedAnswer(None, squeezed, str(error), hedged=hedged)
    return ParsedAnswer(
        reading.value, squeezed, unreduced=reading.unreduced, hedged=hedged, called=frozenset(reading.called)
    )


@lru_cache(maxsize=8_192)
def parse_gold(text: str, options: Options = DEFAULT, *, letters: bool = False) -> ParsedAnswer:
    """Return the value of a gold, which may be a whole solution.

    Cached, because all rollouts of a group share their gold.
    """
    return parse_answer(stated_answer(text, gold=True), options, letters=letters)


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


def is_choice(gold: str) -> bool:
    """Return whether a gold is a choice letter."""
    return isinstance(parse_gold(gold, DEFAULT).value, v.Choice)


def parts_of(gold: str) -> tuple[int, bool]:
    """Return the number of parts of a gold, 1 if it is not a list or a point, and whether it is a point."""
    value = parse_gold(gold, DEFAULT).value
    point = isinstance(value, v.Bracket) and value.left + value.right == "()"
    listed = isinstance(value, v.Listing) and not value.choice
    return len(value.items) if isinstance(value, v.Bracket | v.Listing) and (point or listed) else 1, point


def fold(text: str) -> str:
    """Fold a text for comparison: case, leading article, final punctuation and spacing do not count."""
    words = re.sub(r"[\s\-~]+", " ", text.lower()).strip(" .,;:!\"'()")
    return ("-" if text.lstrip().startswith("-") else "") + _PHRASE["article"].sub("", words)


def same_yes_or_no(gold: str, answer: str) -> bool | None:
    """Return whether two cleaned texts say yes or no alike; None if not both of them begin with yes or no.

    A sentence may follow the word. If both texts have one, the two must be the same.
    """
    expected, said = _PHRASE["yes_no"].fullmatch(plain(gold)), _PHRASE["yes_no"].fullmatch(plain(answer))
    if expected is None or said is None:
        return None
    if (expected[1] or expected[3]).lower() != (said[1] or said[3]).lower():
        return False
    first, second = fold(expected[2] or ""), fold(said[2] or "")
    if _PHRASE["pronoun"].match(first) or _PHRASE["pronoun"].match(second):  # it converges, the series converges
        first, second = _PHRASE["subject"].sub("", first), _PHRASE["subject"].sub("", second)
    return first == second or (not first and not _PHRASE["both_ways"].search(second)) or not second


def plain(cleaned: str) -> str:
    """Remove the wrappers of \\text{} and the like."""
    if "\\" not in cleaned:
        return cleaned
    return _PHRASE["text"].sub(r" \1 ", cleaned).replace("~", " ").replace("\\ ", " ").strip()


class _Reading(NamedTuple):
    """What a text says, and what its parser came across."""

    value: Value
    unreduced: bool = False
    called: Collection[str] = ()


def _read(cleaned: str, words: str, options: Options, *, letters: bool = False) -> _Reading:
    """Read a cleaned text, which is `words` without its wrappers."""
    if words[:1].isalpha() or words.startswith("("):
        stated = _in_words(words, wrapped=words != cleaned, options=options, letters=letters)
        if stated is not None:
            return _Reading(stated)
    in_base = _PHRASE["based"].fullmatch(words.replace(" ", "")) if "_" in words else None
    if in_base and any(c.isdigit() for c in in_base[1]):
        return _Reading(based(in_base[1], in_base[2]))
    date = canonical_date(words)
    if date is not None:
        return _Reading(v.Text(date))
    duration = _PHRASE["duration"].fullmatch(words) if words[:1].isdigit() and "m" in words else None
    if duration:
        cleaned = f"{duration[1]}\\text{{ hours }}{duration[2]}\\text{{ minutes}}"
    elif words[-4:] == " min" and words[:1].isdigit():  # elsewhere a function
        cleaned = f"{cleaned.removesuffix('min')}\\text{{min}}" if cleaned.endswith(" min") else cleaned
    clock = _clock(words.replace("{:}", ":")) if words[:1].isdigit() else None
    if clock is not None:
        return _Reading(clock)
    formula = _with_selections(_with_membership(_with_factor_dots(cleaned)))
    about = _PHRASE["about"].match(formula)
    lexer = Lexer(
        formula[about.end() :] if about else formula,
        decimal_comma=options.decimal_comma,
        locale_thousands=options.locale_thousands,
        letters=letters,
    )
    parser = Parser(lexer.tokens)
    parser.letters_apart = letters
    value = parser.answer()
    if both := parser.called & parser.multiplied:  # x(t) is a function, so x(t - 1) is one too
        parser = Parser(lexer.tokens)
        parser.functions |= both
        parser.letters_apart = letters
        value = parser.answer()
        parser.called |= both
    return _Reading(value, parser.unreduced, parser.called)


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
    all_but = _PHRASE["all_but"].fullmatch(words)
    if all_but:
        left_out = _read(all_but[1], plain(all_but[1]), options).value
        points = left_out if isinstance(left_out, v.Collection) else v.Collection(_listed(left_out))
        return v.Combination("difference", (v.REALS, points))
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
    """Return a time of day: `4:30 p.m.`, `16:30` or `16:30:05`. Minutes have two digits, so `3:4` is a ratio."""
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


def _with_factor_dots(cleaned: str) -> str:
    """Return a product of powers with dots between its factors, as in `2^3 .

    3^2`, with multiplication signs instead.
    """
    if "^" not in cleaned or "." not in cleaned or not _PHRASE["dotted_powers"].fullmatch(cleaned):
        return cleaned
    return _PHRASE["factor_dot"].sub(r" \\cdot ", cleaned)


def _with_membership(cleaned: str) -> str:
    """Write `2k pi for any integer k` as `2k pi, k \\in \\mathbb{Z}`; constants likewise."""
    if "constant" in cleaned:
        words = plain(cleaned)
        tail = _PHRASE["constant_tail"].search(words)
        return f"{words[: tail.start()]}, {tail[1] or tail[2]} \\in \\mathbb{{R}}" if tail else cleaned
    if "integer" not in cleaned and "\\in" not in cleaned:
        return cleaned
    words = plain(cleaned)
    tail = _PHRASE["integer_tail"].search(words)
    return f"{words[: tail.start()]}, {tail[1] or tail[2] or tail[3]} \\in \\mathbb{{Z}}" if tail else cleaned


def _with_selections(cleaned: str) -> str:
    """Write permutations and combinations such as `_5P_2` and `^5C_2` as formulas."""
    if "P_" not in cleaned and "C_" not in cleaned:
        return cleaned
    cleaned = _COMBINATION.sub(r"\\binom{\1}{\2}", cleaned)
    return _PERMUTATION.sub(r"\\frac{\1!}{(\1-\2)!}", cleaned)


def _listed(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, v.Listing) else (value,)


def _worded(words: str, *, wrapped: bool, options: Options) -> Value | None:
    """Return the value of a text that consists of words; None if it can be mathematics."""
    if not _PHRASE["wordy"].fullmatch(words):
        return None
    folded = fold(words)
    if folded in lexicon.EMPTY_PHRASES:
        return v.Collection(())
    if folded in lexicon.REAL_PHRASES:
        return v.REALS
    if folded in lexicon.UNDEFINED_PHRASES or _PHRASE["does_not_exist"].fullmatch(folded):
        return v.Text("undefined")
    if _PHRASE["undetermined"].fullmatch(folded):
        return v.Text("cannot be determined")
    if folded in lexicon.INFINITE_PHRASES:
        return v.Text("infinitely many")
    if folded == "nan":
        raise Undefined("nan")
    if options.number_words or not wrapped:
        number = lexicon.number_from_words(folded)
        if number is not None:
            return v.Num(number)
    if "-" in words and all(len(run) < 3 for run in re.findall("[A-Za-z]+", words)):
        return None  # p - q
    if words in lexicon.FUNCTIONS or words in lexicon.GREEK or folded in ("infinity", "inf", "oo", "infty", "pi"):
        return None
    spaced = " " in words
    if (
        not (spaced or wrapped or len(folded) > 3 or _PHRASE["name"].fullmatch(words) or folded in _BARE_WORDS)
        or len(folded) < 2
    ):
        return None
    pieces = [piece for piece in _PHRASE["pieces"].split(words) if piece.strip()]
    if len(pieces) > 1 and not folded.startswith(("not ", "neither ")):
        choice = bool(re.search(r"\bor\b", words))
        return v.Listing(tuple(v.Text(_case(piece, options)) for piece in pieces), choice)
    return v.Text(_case(words, options))


def _case(text: str, options: Options) -> str:
    return " ".join(text.split()) if options.case_sensitive else fold(text)

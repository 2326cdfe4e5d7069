"""Turns a cleaned text into tokens, in one pass; every pattern is anchored and linear."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from ansatz.rewards.math_answer import words as lexicon
from ansatz.rewards.math_answer.values import Num, UnreadableAnswer, integer

MAX_LENGTH = (
    2_000  # characters of an answer that is parsed; a longer one can only equal the gold character by character
)
MAX_EXPONENT = 5_000  # of scientific notation
LOOKAHEAD = 8  # end tokens, so that the parser can look this far ahead without a check
_MAX_NESTED_TEXT = 5
_MAX_PRODUCT = 4  # letters that are read as a product when they spell something else, too


class Token(NamedTuple):
    """kind: num, name, func, word, op, open, close, cmd, env or end. upright: it comes from \\text{} or the like."""

    kind: str
    text: str
    number: Num | None = None
    upright: bool = False

    @property
    def shown(self) -> str:
        """Return the token as a message shows it."""
        return "end of the answer" if self.kind == "end" else repr(self.text)


@lru_cache(maxsize=2_048)
def _token(kind: str, text: str, upright: bool) -> Token:
    """Build a token without a number, once for the many answers that share it."""
    return Token(kind, text, None, upright)


@lru_cache(maxsize=2_048)
def _integer_token(digits: str) -> Token:
    return Token("num", digits, integer(int(digits)))


_END = [Token("end", "")] * LOOKAHEAD
_GAP = r"(?:\s*,\s?\\[!,;:]\s*|\{,\}|\\[,;:!]|\\ |~)"
_MARKED = r"\(\d+\)|\\overline\{\d+\}|\\bar\{\d+\}|\\dot\{\d+\}|\.\.\.|\s?\\l?dots"
_TAIL = rf"(?:(?P<point>\.\d*)(?P<recur>{_MARKED})?)?"
_EXPONENT = r"(?P<exp>[eE][+-]?\d+(?![\dA-Za-z]))?"


_SPACED = r"(?<![\d.,])(?<![\d.,]\s)[1-9]\d{0,2}(?:\s\d{3})+(?!\d|\s?[\d/^]|\s?\\frac|,\d)"
"""Thousands grouped by plain spaces. What follows must not turn the last group into a numerator: 2 100/101 is mixed."""


def _number_pattern(gap: str) -> re.Pattern[str]:
    grouped = rf"(?<!\d,)[1-9]\d{{0,2}}(?:{gap}\d{{3}})+(?!\d|,\d)"
    return re.compile(rf"(?P<whole>{grouped}|{_SPACED}|\d+|(?=\.\d)){_TAIL}{_EXPONENT}")


_INSIDE = _number_pattern(_GAP)
_OUTSIDE = _number_pattern(rf"(?:{_GAP}|,)")
_LOCALE = _number_pattern(rf"(?:{_GAP}|,|\s|')")
_LOCALE_COMMA = _number_pattern(rf"(?:{_GAP}|\.|\s|')")
_INTEGER = re.compile(r"\d+(?![\d.,{~eE']|\\[^A-Za-z]|\s(?![A-Za-z]))")
"""An integer that what follows cannot continue: a fast check that decides most numbers."""
_INDIAN = re.compile(r"[1-9]\d?(?:,\d{2})+,\d{3}(?!\d|,\d)")

COMPOSED = " of "
"""Between the names of two functions that are composed."""

_D, _SYMBOL, _ORDER = (
    r"(?:d|\\mathrm\{d\}|\\partial)\s*",
    r"(\\[A-Za-z]+|[A-Za-z])\s*(_\w|_\{\w+\})?",
    r"(?:\^\s*\{?(\d)\}?)?\s*",
)
_DERIVATIVE = re.compile(rf"\\frac\s*\{{\s*{_D}{_ORDER}{_SYMBOL}\s*\}}\s*\{{\s*{_D}([A-Za-z])\s*{_ORDER}\}}")
_PLAIN_DERIVATIVE = re.compile(r"d([A-Za-z])/d([A-Za-z])(?![A-Za-z])")
_COMPOSITION = re.compile(r"\(\s*([A-Za-z])\s*\\circ\s*([A-Za-z])\s*\)")
_TEXT_COMMANDS, _IGNORED, _LATEX = (
    frozenset(lexicon.NOTATION[name].split()) for name in ("text_commands", "ignored", "commands")
)
_OPERATORS, _OPENERS, _CLOSERS = lexicon.NOTATION["operators"], lexicon.NOTATION["openers"], lexicon.NOTATION["closers"]
_SYMBOLS, _PLAIN_NAMES, _TWO = lexicon.NOTATION["symbols"], lexicon.NOTATION["plain_names"], lexicon.NOTATION["pairs"]
_ONE = {c: c for c in "+-*/^_!':;,|=<>%&"} | {"∣": "|"}
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_LETTERS = re.compile(r"[A-Za-z]+")
_UPRIGHT = re.compile(r"[A-Za-z]+(?:[.'’-][A-Za-z]+)*")
_PARENTHESISED_WORDS = re.compile(r"\([A-Za-z]{2,}(?:\s[A-Za-z]+)*\)")
_BEGIN = re.compile(r"\s*\{\s*([A-Za-z]+)(\*?)\s*\}(?:\s*(?:\[[a-z]\])?\s*\{[lcr|\s@]*\})?")


class Lexer:
    """The tokens of a text. Raises UnreadableAnswer for characters and commands that no answer contains.

    letters: a short run of letters outside \\text{} is a product, also where it spells a word or a unit, as in e^{it}.
    """

    def __init__(
        self, text: str, *, decimal_comma: bool = False, locale_thousands: bool = False, letters: bool = False
    ) -> None:
        if len(text) > MAX_LENGTH:
            raise UnreadableAnswer(f"longer than {MAX_LENGTH} characters")
        self._comma, self._locale, self._letters_apart = decimal_comma, locale_thousands, letters
        self._depth = 0
        self.tokens: list[Token] = []
        self._lex(text, upright=False, nesting=0)
        self.tokens += _END

    def _lex(self, text: str, *, upright: bool, nesting: int) -> None:
        position, size = 0, len(text)
        while position < size:
            char = text[position]
            if char.isspace() or char in '~$"`':
                position += 1
            elif char.isdigit() or (char == "." and text[position + 1 : position + 2].isdigit()):
                position = self._number(text, position)
            elif char == "\\":
                position = self._command(text, position, nesting)
            elif char.isalpha():
                position = self._letters(text, position, upright)
            elif char == "(" and (composition := _COMPOSITION.match(text, position)):
                self._add("name", composition[1] + COMPOSED + composition[2])
                position = composition.end()
            elif char in "([{":
                self._depth += char != "{"
                self._add("open", char)
                position += 1
            elif char in ")]}":
                self._depth -= char != "}"
                self._add("close", char)
                position += 1
            elif text.startswith("!=", position) and text[position - 1 : position].isdigit():  # 5!=120
                self._add("op", "!")
                position += 1
            elif text[position : position + 2] in _TWO:
                self._add("op", _TWO[text[position : position + 2]])
                position += 2
            elif text.startswith("...", position):
                self._add("op", "dots")
                position += 3
            elif char in "€£¥₹":
                self._add("op", char)
                position += 1
            elif char in _ONE:
                self._add("op", _ONE[char])
                position += 1
            elif char in ".?#" and upright:
                position += 1
            else:
                raise UnreadableAnswer(f"unexpected character {char!r}")

    def _add(self, kind: str, text: str, *, upright: bool = False) -> None:
        self.tokens.append(_token(kind, text, upright))

    def _number(self, text: str, position: int) -> int:
        alone = _INTEGER.match(text, position)
        if alone:
            self.tokens.append(_integer_token(alone[0]))
            return alone.end()
        if self._locale:
            indian = _INDIAN.match(text, position)
            if indian:
                self.tokens.append(Token("num", indian[0], Num(Fraction(int(indian[0].replace(",", ""))))))
                return indian.end()
        pattern = _INSIDE if self._depth > 0 else _LOCALE if self._locale else _OUTSIDE
        if self._comma:
            comma = re.compile(r"\d+(?:\.\d{3})*,\d+(?!\d|,)").match(text, position) if self._depth <= 0 else None
            if comma:
                whole, _, decimals = comma[0].replace(".", "").partition(",")
                value = Num(Fraction(int(whole + decimals), 10 ** len(decimals)), len(decimals))
                self.tokens.append(Token("num", comma[0], value))
                return comma.end()
            pattern = _LOCALE_COMMA if self._depth <= 0 else _INSIDE
        match = pattern.match(text, position)
        if match is None:
            raise UnreadableAnswer("not a valid number")
        whole = match["whole"]
        digits = whole if whole.isdigit() else re.sub(r"\D", "", whole)
        self.tokens.append(Token("num", match[0].strip(), _number(digits, match)))
        return match.end()

    def _letters(self, text: str, position: int, upright: bool) -> int:
        match = (_UPRIGHT if upright else _LETTERS).match(text, position)
        if match is None:
            raise UnreadableAnswer(f"unexpected character {text[position]!r}")
        run = match[0]
        derivative = _PLAIN_DERIVATIVE.match(text, position) if not upright and len(run) == 2 else None
        if derivative:
            self._add("name", derivative[0])
            return derivative.end()
        self._run(run, upright)
        return match.end() + (run in ("sq", "cu") and text.startswith(".", match.end()))

    def _run(self, run: str, upright: bool) -> None:
        if upright and len(run) > 1 and lexicon.unit_name(run):
            self._add("word", run, upright=True)  # sec and min are units here, functions elsewhere
        elif run == "mod":
            self._add("op", "mod")
        elif run in _PLAIN_NAMES:
            self._add("name", _PLAIN_NAMES[run])
        elif run in lexicon.FUNCTIONS:
            self._add("func", lexicon.FUNCTIONS[run])
        elif (run in lexicon.GREEK and len(run) > 2) or (len(run) == 1 and not upright):
            self._add("name", run.removeprefix("var"))
        elif upright or (_is_word(run) and not (self._letters_apart and is_product(run))):
            self._add("word", run, upright=upright)
        elif (run.isupper() or len(run) > 3) and not (self._letters_apart and is_product(run)):
            self._add("name", run)
        else:
            for letter in run:
                self._add("name", letter)

    def _command(self, text: str, position: int, nesting: int) -> int:
        match = _COMMAND.match(text, position)
        if match is None:
            return self._escaped(text, position)
        name, after = match[1], match.end()
        derivative = _DERIVATIVE.match(text, position) if name == "frac" else None
        if derivative:
            order, symbol, label, by, _ = derivative.groups(default="")
            symbol += label.translate({ord("{"): None, ord("}"): None})
            self._add("name", f"d{order}{symbol}/d{by}".replace("\\", ""))
            return derivative.end()
        if name in _TEXT_COMMANDS:
            return self._text(name, text, after, nesting)
        if name in ("begin", "end"):
            environment = _BEGIN.match(text, after)
            if environment is None:
                raise UnreadableAnswer(f"\\{name} has no environment name")
            self._depth += 1 if name == "begin" else -1
            self._add("env", f"{name} {environment[1]}")
            return environment.end()
        if name in _OPERATORS:
            self._add("op", _OPERATORS[name])
        elif name in _OPENERS:
            self._depth += 1
            self._add("open", _OPENERS[name])
        elif name in _CLOSERS:
            self._depth -= 1
            self._add("close", _CLOSERS[name])
        elif name in _SYMBOLS:
            self._add("name", _SYMBOLS[name])
        elif name in _LATEX:
            self._add("cmd", name)
        elif name in lexicon.FUNCTIONS:
            self._add("func", lexicon.FUNCTIONS[name])
        elif name in lexicon.GREEK:
            self._add("name", name.removeprefix("var"))  # varphi is another shape of the letter phi
        elif name in ("angle", "measuredangle"):
            before = self.tokens[-2:]
            if before and before[-1].text == "m" and (len(before) < 2 or before[0].kind in ("op", "open")):
                self.tokens.pop()  # the measure of an angle
        elif name not in _IGNORED:
            raise UnreadableAnswer(f"unknown command \\{name}")
        return after

    def _escaped(self, text: str, position: int) -> int:
        char = text[position + 1 : position + 2]
        if char in ("{", "}"):
            self._depth += 1 if char == "{" else -1
            self._add("open" if char == "{" else "close", "\\" + char)
        elif char == "%":
            self._add("op", "%")
        elif char == "$":
            self._add("op", "$")
        elif char == "|":
            self._add("op", "|")
        elif char == "\\":
            self._add("op", "\\\\")
        elif char not in (",", ";", ":", "!", " ", "_", "&", "#", ""):
            raise UnreadableAnswer(f"unknown command \\{char}")
        return position + 2

    def _text(self, name: str, text: str, position: int, nesting: int) -> int:
        if nesting >= _MAX_NESTED_TEXT:
            raise UnreadableAnswer("text commands are nested too deeply")
        if not text.startswith("{", position):  # \mathbb R
            content, end = text[position : position + 1], position + 1
        else:
            end = _group_end(text, position)
            content = text[position + 1 : end - 1]
        content = content.strip()
        if _PARENTHESISED_WORDS.fullmatch(content):
            content = content[1:-1]
        if name == "mathbb":
            self._add("name", "reals" if content == "R" else f"blackboard {content}")
        elif name not in ("text", "mbox", "hbox", "textrm") and len(content) == 1 and content.isalpha():
            self._add("word" if content in "mgshlLNJWVAKCF" and name == "mathrm" else "name", content, upright=True)
        else:
            self._lex(content, upright=True, nesting=nesting + 1)
        return end


def _group_end(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    raise UnreadableAnswer("a brace is not closed")


def is_product(run: str) -> bool:
    """Return whether letters without spaces can be a product: they are few, and no word of the grammar."""
    return len(run) <= _MAX_PRODUCT and run.lower() not in lexicon.KEPT_WORDS


def _is_word(run: str) -> bool:
    low = run.lower()
    if (
        run in lexicon.LONG_UNITS
        or low in lexicon.UNIT_GRAMMAR
        or low in lexicon.CONNECTIVES
        or low in lexicon.SCALES
        or low in lexicon.NUMBER_WORDS
    ):
        return len(run) > 1
    return len(run) > 2 and lexicon.unit_name(run) is not None


def _number(digits: str, match: re.Match[str]) -> Num:
    """Return the value of a matched number with its decimals, recurring digits and exponent."""
    if match["point"] is None and match["exp"] is None:
        return integer(int(digits or "0"))
    decimals = (match["point"] or "")[1:]
    exponent = int(match["exp"][1:]) if match["exp"] else 0
    if abs(exponent) > MAX_EXPONENT:
        raise UnreadableAnswer("an exponent is too large")
    places = len(decimals)
    value = Fraction(int((digits or "0") + decimals), 10**places) * Fraction(10) ** exponent
    if match["recur"]:
        period = _period(match["recur"], decimals)
        value += Fraction(int(period), 10**places * (10 ** len(period) - 1)) * Fraction(10) ** exponent
        return Num(value)
    return Num(value, places - exponent if decimals or exponent else None)


def _period(recurring: str, decimals: str) -> str:
    """Return the recurring digits: the marked ones, or those that `0.333...` repeats before its dots."""
    digits = re.sub(r"\D", "", recurring)
    if digits:
        return digits
    for length in (1, 2, 3):
        period = decimals[-length:]
        if len(decimals) >= 3 * length and decimals.endswith(period * (3 if length == 1 else 2)):
            return period
    raise UnreadableAnswer("it is not clear which digits recur")

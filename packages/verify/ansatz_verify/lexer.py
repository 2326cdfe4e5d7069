"""Turns a cleaned text into tokens, in one pass; every pattern is anchored and linear."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from ansatz_verify import words as lexicon
from ansatz_verify.options import Options
from ansatz_verify.values import Num, UnreadableAnswer, integer

MAX_LENGTH = 2_000
"""Characters of an answer that is parsed. A longer one can only equal the gold character by character."""
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
_GAP = r"\s*,\s?\\[!,;:]\s*|\{,\}|\\[,;:!]|\\ |~"
_SPACED = re.compile(r"(?<![\d.,])(?<![\d.,]\s)[1-9]\d{0,2}(?:\s\d{3})+(?!\d|\s?[\d/^]|\s?\\frac|,\d)")
"""Thousands grouped by plain spaces. The last group must not turn out to be a numerator: 2 100/101 is mixed."""
_DIGITS = re.compile(r"\d+|(?=\.\d)")
_RECURRING = r"\(\d+\)|\\overline\{\d+\}|\\bar\{\d+\}|\\dot\{\d+\}|\.\.\.|\s?\\l?dots"
_TAIL = re.compile(rf"(?:(?P<point>\.\d*)(?P<recur>{_RECURRING})?)?(?P<exp>[eE][+-]?\d+(?![\dA-Za-z]))?")


def _grouped(gap: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\d,)[1-9]\d{{0,2}}(?:(?:{gap})\d{{3}})+(?!\d|,\d)")


_INSIDE, _OUTSIDE = _grouped(_GAP), _grouped(rf"{_GAP}|,")
_LOCALE, _LOCALE_COMMA = _grouped(rf"{_GAP}|,|\s|'"), _grouped(rf"{_GAP}|\.|\s|'")
_INTEGER = re.compile(r"\d+(?![\d.,{~eE']|\\[^A-Za-z]|\s(?![A-Za-z]))")
"""An integer that the text after it cannot continue: a fast check that decides most numbers."""
_INDIAN = re.compile(r"[1-9]\d?(?:,\d{2})+,\d{3}(?!\d|,\d)")

_D, _SYMBOL, _ORDER = (
    r"(?:d|\\mathrm\{d\}|\\partial)\s*",
    r"(\\[A-Za-z]+|[A-Za-z])\s*(_\w|_\{\w+\})?",
    r"(?:\^\s*\{?(\d)\}?)?\s*",
)
_DERIVATIVE = re.compile(rf"\\frac\s*\{{\s*{_D}{_ORDER}{_SYMBOL}\s*\}}\s*\{{\s*{_D}([A-Za-z])\s*{_ORDER}\}}")
_TEXT_COMMANDS, _IGNORED, _LATEX = (
    frozenset(lexicon.NOTATION[name].split()) for name in ("text_commands", "ignored", "commands")
)
_PLAIN_NAMES, _TWO = lexicon.NOTATION["plain_names"], lexicon.NOTATION["pairs"]
_COMMANDS: dict[str, tuple[str, str]] = {
    **{name: ("name", name.removeprefix("var")) for name in lexicon.GREEK},  # varphi is another shape of phi
    **{name: ("func", function) for name, function in lexicon.FUNCTIONS.items()},
    **{name: ("cmd", name) for name in _LATEX},
    **{
        name: (kind, text)
        for kind, table in (("name", "symbols"), ("close", "closers"), ("open", "openers"), ("op", "operators"))
        for name, text in lexicon.NOTATION[table].items()
    },
}
"""The kind and the text of a command's token. `\\sqrt` has an argument, although `sqrt` is a function."""
_ESCAPED = {"{": ("open", "\\{"), "}": ("close", "\\}"), "\\": ("op", "\\\\")} | {c: ("op", c) for c in "%$|"}
_ONE = {c: c for c in "+-*/^_!':;,|=<>%&"} | {"∣": "|"}
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_LETTERS = re.compile(r"[^\W\d_]+")
_UPRIGHT = re.compile(r"[A-Za-z]+(?:[.'’-][A-Za-z]+)*")
_PARENTHESISED_WORDS = re.compile(r"\([A-Za-z]{2,}(?:\s[A-Za-z]+)*\)")
_BEGIN = re.compile(r"\s*\{\s*([A-Za-z]+)(\*?)\s*\}(?:\s*(?:\[[a-z]\])?\s*\{[lcr|\s@]*\})?")


class Lexer:
    """The tokens of a text. Raises UnreadableAnswer for characters and commands that no answer contains.

    letters: a short run of letters outside \\text{} is a product, also where it spells a word or a unit, as in e^{it}.
    """

    def __init__(self, text: str, options: Options, *, letters: bool) -> None:
        self._comma, self._locale, self._letters_apart = options.decimal_comma, options.locale_thousands, letters
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
            elif char in "([{}])":
                self._depth += (char in "([") - (char in ")]")
                self._add("open" if char in "([{" else "close", char)
                position += 1
            elif char in ".?#" and upright:
                position += 1
            else:
                position = self._operator(text, position)

    def _operator(self, text: str, position: int) -> int:
        char = text[position]
        if text.startswith("!=", position) and text[position - 1 : position].isdigit():  # 5!=120
            self._add("op", "!")
        elif text[position : position + 2] in _TWO:
            self._add("op", _TWO[text[position : position + 2]])
            return position + 2
        elif text.startswith("...", position):
            self._add("op", "dots")
            return position + 3
        elif char in "€£¥₹" or char in _ONE:
            self._add("op", _ONE.get(char, char))
        else:
            raise UnreadableAnswer(f"unexpected character {char!r}")
        return position + 1

    def _add(self, kind: str, text: str, *, upright: bool = False) -> None:
        self.tokens.append(_token(kind, text, upright))

    def _number(self, text: str, position: int) -> int:
        alone = _INTEGER.match(text, position)
        if alone:
            self.tokens.append(_integer_token(alone[0]))
            return alone.end()
        if self._locale and (indian := _INDIAN.match(text, position)):
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
        matches = (each.match(text, position) for each in (pattern, _SPACED, _DIGITS))
        whole = next((match for match in matches if match), None)
        tail = _TAIL.match(text, whole.end()) if whole else None
        if whole is None or tail is None:
            raise UnreadableAnswer("not a valid number")
        digits = whole[0] if whole[0].isdigit() else re.sub(r"\D", "", whole[0])
        self.tokens.append(Token("num", text[position : tail.end()].strip(), _number(digits, tail)))
        return tail.end()

    def _letters(self, text: str, position: int, upright: bool) -> int:
        match = _LETTERS.match(text, position)
        if match is None:
            raise UnreadableAnswer(f"unexpected character {text[position]!r}")
        if not match[0].isascii():  # a word of another language
            self._add("word", match[0], upright=True)
            return match.end()
        match = (_UPRIGHT.match(text, position) if upright else None) or match
        run = match[0]
        self._run(run, upright)
        return match.end() + (run in ("sq", "cu") and text.startswith(".", match.end()))

    def _run(self, run: str, upright: bool) -> None:
        if upright and len(run) > 1 and lexicon.unit_name(run):
            self._add("word", run, upright=True)  # sec and min are units here, functions elsewhere
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
        if name in _COMMANDS:
            kind, plain = _COMMANDS[name]
            self._depth += (kind == "open") - (kind == "close")
            self._add(kind, plain)
        elif name not in _IGNORED:
            raise UnreadableAnswer(f"unknown command \\{name}")
        return after

    def _escaped(self, text: str, position: int) -> int:
        char = text[position + 1 : position + 2]
        if char in _ESCAPED:
            self._depth += (char == "{") - (char == "}")
            self._add(*_ESCAPED[char])
        elif char not in ",;:! _&#":
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
    if run in lexicon.LONG_UNITS or run.lower() in lexicon.GRAMMAR_WORDS:
        return len(run) > 1
    return lexicon.is_long_noun(run) or (len(run) > 2 and lexicon.unit_name(run) is not None)


def _number(digits: str, match: re.Match[str]) -> Num:
    """Return the value of a matched number with its decimals and exponent. Recurring digits are not read."""
    if match["point"] is None and match["exp"] is None:
        return integer(int(digits or "0"))
    decimals = (match["point"] or "")[1:]
    exponent = int(match["exp"][1:]) if match["exp"] else 0
    if match["recur"] or abs(exponent) > MAX_EXPONENT:
        raise UnreadableAnswer("recurring digits" if match["recur"] else "an exponent is too large")
    places = len(decimals)
    value = Fraction(int((digits or "0") + decimals), 10**places) * Fraction(10) ** exponent
    return Num(value, places - exponent if decimals or exponent else None)

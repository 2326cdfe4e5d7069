"""The filter language of rollouts: text -> tree -> test of a row.

    expr  := expr or expr | expr and expr | not expr | ( expr ) | test        also OR, AND, NOT, IN
    test  := field op value | field low..high | field in (value, ...) | flag | "text" | field ~ "regex" | other(GRADER)
    op    := = != < <= > >=              field := name | group.name | parts.name, or abs(field)
    value := number | word | "text" | pN(field), the Nth percentile | field [+ or - number]

A bare word that is not a flag is looked for in the response, in this spelling. `sort:-reward` anywhere sorts. A test of
a value that a row lacks is false. The tree is compiled twice: to a Python predicate here, and to SQL in `ui.sql`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from ansatz.errors import ConfigError

Kind = Literal["number", "text", "flag", "word"]
"""word: a response can have several, and a test holds if any of them passes it."""
Row = Mapping[str, Any]
ReadParts = Callable[[], Collection[str]]
"""Reads the names of the rewards that stored responses have. It is only called for a filter with parts.NAME."""
AnyRow = TypeVar("AnyRow", bound=Row)
MAX_CHARACTERS, MAX_DEPTH = 2000, 30
PARTS = "parts."
"""Prefix of the fields whose names a recipe chooses; all of them are numbers."""

_TOKENS = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>[+-]?(?:\d++(?:\.(?!\.)\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?(?=[\s(),=!<>~]|\.\.|$))
    |(?P<sign>\.\.|!=|<=|>=|[=<>~(),]|[+-](?=\s))|(?P<word>[^\s()",=!<>~]+))""",
    re.VERBOSE | re.DOTALL,
)
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class FilterError(ConfigError):
    """position: the first character of the filter, counted from 0, that is not understood."""

    def __init__(self, text: str, position: int, sentence: str) -> None:
        super().__init__(f"the filter {text[:200]!r}, character {position + 1}: {sentence}")
        self.position = position


@dataclass(frozen=True, slots=True)
class All:
    """Every row passes one without items, and none passes an `Either` without them."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Either:
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Not:
    item: Tree


@dataclass(frozen=True, slots=True)
class Flag:
    field: str


@dataclass(frozen=True, slots=True)
class Percentile:
    field: str
    percent: float


@dataclass(frozen=True, slots=True)
class FieldPlus:
    """The value of another field plus a number."""

    field: str
    plus: float


@dataclass(frozen=True, slots=True)
class Compare:
    """field operator value. absolute: of the field's absolute value."""

    field: str
    operator: str
    value: float | str | Percentile | FieldPlus
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    field: str
    values: tuple[float | str, ...]


@dataclass(frozen=True, slots=True)
class Contains:
    """The response contains the text, in this spelling."""

    text: str


@dataclass(frozen=True, slots=True)
class Matches:
    field: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Other:
    """The verdict of the verifier in another mode is correct."""

    grader: str


Tree = All | Either | Not | Flag | Compare | Within | Contains | Matches | Other


class Query(NamedTuple):
    """sort: fields in the order of their weight, each with a leading - if its largest values come first."""

    tree: Tree
    sort: tuple[str, ...] = ()


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_filter(
    text: str, fields: Mapping[str, Kind], *, graders: Sequence[str] = (), parts: ReadParts | None = None
) -> Query:
    """Read a filter. fields: the names that rows have besides parts.NAME. parts: None if any NAME may come. Raise
    FilterError, which names the place and the expected text, for a filter that is not one."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(text, MAX_CHARACTERS, f"it has {len(text)} characters, at most {MAX_CHARACTERS} are read.")
    return _Parser(text, fields, graders, parts).read()


def check_sort(names: Iterable[str], fields: Mapping[str, Kind], *, parts: ReadParts | None = None) -> tuple[str, ...]:
    """Return the names as a query's sort. Raise FilterError for one that is not a field."""
    return tuple(_Parser(name.strip(), fields, (), parts).check_sort(name.strip(), 0) for name in names)


class _Parser:
    def __init__(self, text: str, fields: Mapping[str, Kind], graders: Sequence[str], parts: ReadParts | None) -> None:
        self.text, self.fields, self.graders, self.parts = text, fields, graders, parts
        self.tokens, self.index, self.depth = list(self._split()), 0, 0

    def _split(self) -> Iterator[_Token]:
        at = 0
        while self.text[at:].strip():
            match = _TOKENS.match(self.text, at)
            if match is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                raise FilterError(self.text, at, 'a " without a second one. Write \\" for the character itself.')
            kind = match.lastgroup or ""
            yield _Token(kind, match[kind], match.start(kind))
            at = match.end()

    def read(self) -> Query:
        sort = [token for token in self.tokens if token.kind == "word" and token.text.startswith("sort:")]
        self.tokens = [token for token in self.tokens if token not in sort]
        order = tuple(self.check_sort(token.text.removeprefix("sort:"), token.at) for token in sort)
        if not self.tokens:
            return Query(All(()), order)
        tree = self._either()
        if (token := self._next()) is not None:
            raise self._error(token, "expected and, or, or the end")
        return Query(tree, order)

    def _either(self) -> Tree:
        items = [self._all()]
        while self._take("or"):
            items.append(self._all())
        return items[0] if len(items) == 1 else Either(tuple(items))

    def _all(self) -> Tree:
        items = [self._test()]
        while self._take("and"):
            items.append(self._test())
        return items[0] if len(items) == 1 else All(tuple(items))

    def _test(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FilterError(self.text, self._place(), f"more than {MAX_DEPTH} parentheses or nots within each other.")
        try:
            if self._take("not"):
                return Not(self._test())
            if self._take("("):
                tree = self._either()
                self._expect(")")
                return tree
            return self._read_single()
        finally:
            self.depth -= 1

    def _read_single(self) -> Tree:
        token = self._pop('a test, such as correct, tokens > 100 or "some text"')
        if token.kind == "string":
            return Contains(_unquote(token.text))
        if token.kind == "sign":
            raise self._error(token, "expected a field, a flag or a text")
        if token.text == "other" and self._take("("):
            return self._read_grader()
        absolute = token.text == "abs" and self._take("(")
        name = self._pop("a field") if absolute else token
        if absolute:
            self._expect(")")
        following, is_field = self._next(), name.text in self.fields or name.text.startswith(PARTS)
        compares = following is not None and (
            following.text in (*COMPARISONS, "~", "in", "IN") or (following.kind == "number" and is_field)
        )
        if absolute or compares:
            return self._compare(self.check(name.text, name.at), name, absolute)
        if is_field:
            if (kind := self.kind(self.check(token.text, token.at))) == "flag":
                return Flag(token.text)
            raise self._error(token, f"{token.text} is a {kind}; expected a comparison after it")
        if near := get_close_matches(token.text, list(self.fields), n=1, cutoff=0.75):
            raise FilterError(self.text, token.at, self._describe_unknown(token.text, near))
        return Contains(token.text)

    def _read_grader(self) -> Tree:
        token = self._pop("a grader")
        self._expect(")")
        if token.text not in self.graders:
            raise self._error(token, f"expected one of {', '.join(self.graders) or 'no grader here'}")
        return Other(token.text)

    def _compare(self, field: str, name: _Token, absolute: bool) -> Tree:
        kind = self.kind(field)
        if kind == "flag" or (absolute and kind != "number"):
            raise self._error(name, f"{field} is a {kind}; {'write it alone or after not' if kind == 'flag' else ''}")
        if (token := self._next()) is not None and token.kind == kind == "number":
            low = self._number()
            self._expect("..")
            bounds = (Compare(field, ">=", low, absolute), Compare(field, "<=", self._number(), absolute))
            return All(bounds)
        sign = self._pop("a comparison")
        if sign.text in ("in", "IN"):
            self._expect("(")
            values = [self._read_plain(kind)]
            while self._take(","):
                values.append(self._read_plain(kind))
            self._expect(")")
            if absolute:
                return Either(tuple(Compare(field, "=", value, absolute) for value in values))
            return Within(field, tuple(values))
        if sign.text == "~":
            return self._pattern(field, kind)
        if kind != "number" and sign.text not in ("=", "!="):
            raise self._error(sign, f"{field} is a {kind}; expected =, !=, in{' or ~' * (kind == 'text')}")
        return Compare(field, sign.text, self._value(kind), absolute)

    def _pattern(self, field: str, kind: Kind) -> Tree:
        token = self._pop("a pattern in quotation marks")
        if kind != "text":
            raise self._error(token, f"{field} is a {kind}; ~ is for texts")
        pattern = _unquote(token.text) if token.kind == "string" else token.text
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise self._error(token, f"not a regular expression ({error})") from error
        return Matches(field, pattern)

    def _value(self, kind: Kind) -> float | str | Percentile | FieldPlus:
        token = self._next()
        if kind != "number" or token is None or token.kind == "number":
            return self._read_plain(kind)
        token = self._pop("a number")
        if (match := re.fullmatch(r"p(\d{1,2}|100)", token.text)) and self._take("("):
            inner = self._pop("a field")
            self._expect(")")
            return Percentile(self._numeric(inner), float(match[1]))
        field, plus = self._numeric(token), 0.0
        if (following := self._next()) is not None and following.text[0] in "+-":
            self.index += following.kind == "sign"
            plus = self._number() * (-1 if following.text == "-" else 1)
        return FieldPlus(field, plus)

    def _read_plain(self, kind: Kind) -> float | str:
        if kind == "number":
            return self._number()
        token = self._pop("a word or a text")
        if token.kind == "sign":
            raise self._error(token, "expected a word or a text")
        return _unquote(token.text) if token.kind == "string" else token.text

    def _number(self) -> float:
        token = self._pop("a number")
        if token.kind != "number" or not math.isfinite(float(token.text)):
            raise self._error(token, "expected a number")
        return float(token.text)

    def _numeric(self, token: _Token) -> str:
        if token.text in ("and", "or", "not") or self.kind(self.check(token.text, token.at)) != "number":
            raise self._error(token, "expected a number or a field that is one")
        return token.text

    def check(self, name: str, at: int) -> str:
        if name not in self.fields and not (name.startswith(PARTS) and name != PARTS):
            near = get_close_matches(name, list(self.fields), n=1)
            raise FilterError(self.text, at, self._describe_unknown(name, near))
        part = name.removeprefix(PARTS)
        if part != name and self.parts is not None and part not in (known := self.parts()):
            listed = f"the rewards are {', '.join(sorted(known))}" if known else "none has a reward"
            raise FilterError(self.text, at, f"no response has the reward {part!r}; {listed}.")
        return name

    def check_sort(self, name: str, at: int) -> str:
        field = self.check(name.lstrip("-"), at)
        if self.kind(field) == "word":
            raise FilterError(self.text, at, f"a response can have several of {field}, so it is not sorted by them.")
        return name[: name.startswith("-")] + field

    def kind(self, field: str) -> Kind:
        return self.fields.get(field, "number")

    def _describe_unknown(self, name: str, near: Sequence[str]) -> str:
        advice = f"did you mean {near[0]!r}?" if near else f"fields are {', '.join(self.fields)} and parts.NAME."
        return f"{name!r} is not a field; {advice} To look for it in the responses, write it in quotation marks."

    def _next(self) -> _Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def _take(self, text: str) -> bool:
        token = self._next()
        found = token is not None and token.kind != "string" and token.text in (text, text.upper())
        self.index += found
        return found

    def _pop(self, expected: str) -> _Token:
        token = self._next()
        if token is None:
            raise FilterError(self.text, len(self.text), f"it ends here; expected {expected}.")
        self.index += 1
        return token

    def _expect(self, text: str) -> None:
        if not self._take(text):
            token = self._next()
            found = f"found {token.text!r}" if token else "it ends here"
            raise FilterError(self.text, self._place(), f"{found}; expected {text!r}.")

    def _place(self) -> int:
        token = self._next()
        return token.at if token else len(self.text)

    def _error(self, token: _Token, expected: str) -> FilterError:
        return FilterError(self.text, token.at, f"found {token.text!r}; {expected}.")


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def map_leaves(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Return the tree with each of its tests as `change` returns it."""
    match tree:
        case All(items) | Either(items):
            return replace(tree, items=tuple(map_leaves(item, change) for item in items))
        case Not(item):
            return Not(map_leaves(item, change))
        case _:
            return change(tree)


def resolve_percentiles(tree: Tree, percentile: Callable[[Percentile], float | None]) -> Tree:
    """Return the tree with each percentile as a number. One that is None, of no rows, is a test that fails."""

    def resolve(test: Tree) -> Tree:
        if not isinstance(test, Compare) or not isinstance(test.value, Percentile):
            return test
        number = percentile(test.value)
        return Either(()) if number is None else replace(test, value=number)

    return map_leaves(tree, resolve)


def find_percentile(values: Iterable[float | None], percent: float) -> float | None:
    """Return the percentile of the values that are there, interpolated between neighbours; None without any."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    place = percent / 100 * (len(known) - 1)
    low = int(place)
    high = min(low + 1, len(known) - 1)
    return known[low] + (known[high] - known[low]) * (place - low)


def get_value(row: Row, field: str) -> Any:
    """Return the value of a field, such as tokens or parts.math_answer; None if the row lacks it."""
    return (row.get("parts") or {}).get(field[len(PARTS) :]) if field.startswith(PARTS) else row.get(field)


def compile_predicate(tree: Tree, *, grade: Callable[[Row, str], bool] | None = None) -> Callable[[Row], bool]:
    """Return the test of a row. Percentiles are resolved before. grade: asked by `other`, with a grader's name."""
    match tree:
        case All(items):
            every = [compile_predicate(item, grade=grade) for item in items]
            return lambda row: all(test(row) for test in every)
        case Either(items):
            some = [compile_predicate(item, grade=grade) for item in items]
            return lambda row: any(test(row) for test in some)
        case Not(item):
            test = compile_predicate(item, grade=grade)
            return lambda row: not test(row)
        case Flag(field):
            return lambda row: bool(row.get(field))
        case Within(field, values):
            return lambda row: get_value(row, field) in values
        case Contains(text):
            return lambda row: text in row["text"]
        case Matches(field, pattern):
            search = re.compile(pattern).search
            return lambda row: (value := row.get(field)) is not None and search(value) is not None
        case Other(grader):
            assert grade is not None, "a filter with other() is given a grader"
            return lambda row: grade(row, grader)
        case Compare():
            return _compile_comparison(tree)


def _compile_comparison(test: Compare) -> Callable[[Row], bool]:
    compare, wanted = COMPARISONS[test.operator], test.value

    def is_true(row: Row) -> bool:
        value = get_value(row, test.field)
        other = wanted
        if isinstance(wanted, FieldPlus):
            base = get_value(row, wanted.field)
            other = None if base is None else base + wanted.plus
        if value is None or other is None:
            return False
        return compare(abs(value) if test.absolute else value, other)

    return is_true


def sort_rows(rows: Iterable[AnyRow], sort: Sequence[str]) -> list[AnyRow]:
    """Return the rows in the order of these fields; rows that lack a value come last."""
    out = list(rows)
    for name in reversed(sort):
        keyed = [(get_value(row, name.lstrip("-")), row) for row in out]
        known = sorted((pair for pair in keyed if pair[0] is not None), key=itemgetter(0), reverse=name.startswith("-"))
        out = [row for _, row in known] + [row for value, row in keyed if value is None]
    return out

"""Other spellings of a pair of answers, tried when the answer as it is written does not equal the gold.

`\\deg(fg) = 1 + 2 = 3` is 3, "the series diverges" is "diverges", and `2,5 m` is 2.5 metres if the gold is `2,5`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

from ansatz.rewards.math_answer.announce import announced
from ansatz.rewards.math_answer.clean import clean
from ansatz.rewards.math_answer.options import Options
from ansatz.rewards.math_answer.parse import fold, parse_answer, plain
from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.truth_tables import has_same_table
from ansatz.rewards.math_answer.words import NOTATION, unit_name

_PHRASE = phrases_of("restated")

MAX_LENGTH = 600  # characters of an answer that is read as a chain or in another spelling
_MAX_INDEXED = 40  # members of a list by an index
_MAX_WORDS = 80  # characters of an answer in words
_DECIMAL_COMMA = re.compile(r"(\d+),(\d{1,2}|\d{4,})")
_RESPELLED = [(re.compile(spelling), usual) for spelling, usual in NOTATION["respelled"].items()]
_CLOSING = {"{": "}", "(": ")", "[": "]"}


_ORDINALS: dict[str, int] = NOTATION["ordinals"]


def restatements(gold: str, answer: str, options: Options, *, unevaluated: bool = False) -> Iterator[tuple[str, str]]:
    """Return the pair in other words, each of which decides it if it makes the answer equal.

    unevaluated: algebra found no number for an expression, so a sum, an integral or a limit only names its value.
    """
    if "=" in answer or "=" in gold:
        chain = _without_operations(gold, answer, options, unevaluated=unevaluated)
        if chain is not None:
            yield chain
    called, named = (_PHRASE["function"].fullmatch(text.strip("$ ")) for text in (gold, answer))
    if called and named and called[1] == named[1] and None in (called[2], named[2]):
        yield called[4], named[4]
    if "mod" in answer and "mod" in gold and "\\equiv" in gold and "\\bmod" in answer:
        yield gold, answer.replace("\\bmod", "\\pmod")
    fields = [_PHRASE["field"].fullmatch(text.strip("$ ")) for text in (gold, answer)]
    if fields[0] and fields[1] and len({int(field[1]) ** int(field[2] or 1) for field in fields if field}) == 1:
        yield gold, gold
    if (_read_cycles(gold) or _read_cycles(answer)) and _read_cycles(_spread(gold)) == _read_cycles(_spread(answer)):
        yield gold, gold
    if has_same_table(gold, answer) or (re.search(r"_|\\mathbb", gold + answer) and _is_same_object(gold, answer)):
        yield gold, gold
    if _PHRASE["sentence"].match(answer) and (stated := announced(plain(clean(answer)))) is not None:
        yield gold, stated
    letters = plain(clean(answer)).replace(" ", "")
    if _PHRASE["letters"].fullmatch(plain(clean(gold))) and re.fullmatch("[A-J]{2,9}", letters):
        yield gold, ", ".join(letters) if sorted(letters) == [*letters] else answer
    if (spelled := (_respell(gold), _respell(answer))) != (gold, answer):
        yield spelled
    if _PHRASE["euros"].fullmatch(clean(answer)) or (
        gold.startswith("0,") and _DECIMAL_COMMA.fullmatch(gold) and "," not in answer
    ):
        yield _DECIMAL_COMMA.sub(r"\1.\2", gold), clean(answer).replace(",", ".")
    if "," in gold and _DECIMAL_COMMA.fullmatch(gold.strip("$ ")):
        amounts = _with_points(gold.strip("$ "), clean(answer))
        if amounts is not None:
            yield amounts


def _respell(text: str) -> str:
    """Return a text with usual names and brackets, as `respelled` of the notation has them.

    Spans, congruences, lists by an index and sets by a condition are written as the parser reads them.
    """
    if len(text) > MAX_LENGTH or not _PHRASE["respelled"].search(text):
        return text
    if spanned := _PHRASE["span"].fullmatch(text.strip("$ ")):
        vectors = [vector for vector, _ in _members(spanned[1], ",")]
        letters = (r"\lambda", r"\mu", r"\nu") if re.search(r",|\\begin", vectors[0]) else ("C_1", "C_2", "C_3")
        if len(vectors) <= len(letters):
            return "+".join(rf"{letter}\cdot ({vector})" for letter, vector in zip(letters, vectors, strict=False))
    if by_condition := _PHRASE["set"].fullmatch(text):
        label = "(x,y,z)=" if by_condition["free"] and by_condition["body"].count(",") > 1 else "(x,y)="
        text = label + by_condition["body"] if by_condition["free"] else by_condition["condition"]
    if indexed := _PHRASE["indexed"].fullmatch(text):
        body, name, first, last = indexed.group("body", "name", "first", "last")
        numbers = range(int(first), min(int(last) + 1, int(first) + _MAX_INDEXED))
        return f"{body}, {name}={','.join(map(str, numbers))}"
    return _as_families(text) or functools.reduce(lambda said, pair: pair[0].sub(pair[1], said), _RESPELLED, text)


def _as_families(text: str) -> str | None:
    """Return congruences of one number, such as `n \\equiv 0 or 1 \\pmod 4`, as families; None for another text."""
    parts = [_PHRASE["congruence"].fullmatch(part) for part in _PHRASE["choice"].split(text)]
    names = {part["name"] for part in parts if part and part["name"]}
    if not all(parts) or len(names) != 1 or not (parts[0] and parts[0]["name"]):
        return None
    families, modulus = list[str](), None
    for part in filter(None, reversed(parts)):
        modulus = part["modulus"] or modulus
        signs = ("", "-") if part["sign"] else ("",)
        families += [f"{min(names)}={modulus}k+({sign}{part['residue']})" for sign in signs]
    return ", ".join([*families, r"k \in \mathbb{Z}"]) if modulus else None


def _read_cycles(text: str) -> set[tuple[str, str]]:
    """Return where a permutation takes each number of its disjoint cycles, which have spaces; empty for other texts."""
    bare = _PHRASE["spacing"].sub(" ", text.strip("$ "))
    cycles = [each.split() for each in re.findall(r"\(([^()]+)\)", bare)] if _PHRASE["cycles"].fullmatch(bare) else []
    pairs = {pair for cycle in cycles for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True)}
    return pairs if len(pairs) == len({pair[0] for pair in pairs}) == sum(map(len, cycles)) else set()


def _spread(text: str) -> str:
    """Return a permutation with spaces between its digits, as in `(123)(45)`; another text as it is."""
    return re.sub(r"(?<=\d)(?=\d)", " ", text) if re.fullmatch(r"\$?(?:\(\d+\))+\$?", text) else text


def with_decimal_comma(gold: str, answer: str, response: str) -> str:
    """Return an answer whose decimal comma became a point when it was read, with its comma again if the gold has
    one too.
    """
    if "." not in answer or "," not in gold or answer in response or not _DECIMAL_COMMA.fullmatch(gold.strip("$ ")):
        return answer
    return answer.replace(".", ",", 1) if answer.startswith(gold.strip("$ ").replace(",", ".")) else answer


def same_words(gold: str, answer: str) -> bool:
    """Return whether two texts say the same of one thing: "diverges" and "the series diverges", "Bob wins" and
    "Bob".
    """
    if len(gold) > _MAX_WORDS or len(answer) > _MAX_WORDS:
        return False
    expected, said = (fold(plain(clean(text))).replace(", ", ",") for text in (gold, answer))
    if not _PHRASE["words"].fullmatch(expected) or not _PHRASE["words"].fullmatch(said):
        return False
    if expected.endswith((" wins", " is the winner")) or said.endswith((" wins", " is the winner")):
        winner, named = _PHRASE["wins"].fullmatch(expected), _PHRASE["wins"].fullmatch(said)
        return winner is not None and named is not None and fold(winner[1]) == fold(named[1])
    return _in_short(expected) == _in_short(said)


def _in_short(words: str) -> str:
    series = _PHRASE["series"].fullmatch(words)
    if series and not (series[1] and series[3]):
        return f"{series[2]}es {series[1] or series[3] or ''}".strip()
    quadrant = _PHRASE["quadrant"].fullmatch(words.removeprefix("in ").removeprefix("the "))
    if quadrant and (quadrant[1] or quadrant[2]) in _ORDINALS:
        return f"quadrant {_ORDINALS[quadrant[1] or quadrant[2]]}"
    described = _PHRASE["property"].fullmatch(_PHRASE["before_day"].sub("", words))
    return (described[1] if described else words).replace(",but", " but").replace(",and", " and")


def _is_same_object(gold: str, answer: str) -> bool:
    """Return whether two texts are one finite abelian group, one chemical formula, or one number in base 16."""
    if "\\mathbb" in gold + answer and _factors(gold) == _factors(answer) != []:
        return True
    expected, stated = (re.sub(r"[\s{}_]", "", plain(clean(text))) for text in (gold, answer))
    if re.search(r"\\(?:text|mathrm)(?![a-z])", gold + answer) and _PHRASE["chemical"].fullmatch(stated):
        return expected == stated
    base_16 = _PHRASE["base_16"].fullmatch(stated) if "_" in gold and "_" in answer else None
    return base_16 is not None and expected.lower() == stated.lower()


def _factors(text: str) -> list[int]:
    """Return the orders of the cyclic groups of prime power order whose product a group is; [] for other texts.

    The group of the integers counts as one of order 0.
    """
    powers: list[int] = []
    text = re.sub(r"V_\{?4\}?", r"Z_2\\times Z_2", text)
    bare = re.sub(r"\s|\\mathbb\s?\{?\s?(?=Z)|(?<=Z)\}", "", clean(text))
    for part in re.split(r"\\(?:times|oplus)", bare):
        cyclic = _PHRASE["cyclic"].fullmatch(part)
        if cyclic is None:
            return []
        rest, count = int(cyclic[1] or cyclic[2] or 0), int(cyclic[3] or 1)
        powers += [] if cyclic[1] or cyclic[2] else [0] * count
        for prime in range(2, rest + 1):
            power = math.gcd(rest, prime**20)
            rest //= power
            powers += [power] * count if power > 1 else []
    return sorted(powers)


def _with_points(gold: str, answer: str) -> tuple[str, str] | None:
    """Return both with a decimal point, if the gold can be a decimal with a comma and the answer has its digits
    and a unit.
    """
    amount = _PHRASE["amount"].fullmatch(answer)
    if amount is None or gold != f"{amount[1]},{amount[2]}":
        return None
    unit = amount[3] or amount[4]
    if (unit and unit_name(unit) is None) or (not unit and not gold.startswith("0")):
        return None
    decimal = f"{amount[1]}.{amount[2]}"
    return decimal, f"{decimal}\\text{{ {unit}}}" if unit else decimal


def _without_operations(gold: str, answer: str, options: Options, *, unevaluated: bool) -> tuple[str, str] | None:
    """Return a pair without the first members of its chains that name a value and that the parser does not read.

    `\\deg(fg) = 1 + 2 = 3` becomes `1 + 2 = 3`, whose members must still agree.
    """
    expected, expected_names = _stated(gold, options, unevaluated)
    stated, names = _stated(answer, options, unevaluated)
    if not names and not expected_names:
        return None
    if names and expected_names and names[0] != expected_names[0]:
        return None
    return expected, stated


def _stated(text: str, options: Options, unevaluated: bool) -> tuple[str, list[str]]:
    """Return a chain without such members, and these members; the text itself if it is not such a chain."""
    cleaned = _PHRASE["textual"].sub(r"\\mathrm", clean(text))
    members = _members(cleaned) if "=" in cleaned and len(cleaned) <= MAX_LENGTH else []
    names: list[str] = []
    kept: list[str] = []
    for member, outside in members[:-1]:
        hidden = _PHRASE["operation"].search(member) or (unevaluated and _PHRASE["evaluated"].search(member))
        hidden = hidden or (_PHRASE["letter"].search(member) and parse_answer(member, options).value is None)
        if hidden and member and not _PHRASE["refused"].search(_PHRASE["spacing"].sub(" ", outside)):
            names.append("".join(_PHRASE["spacing"].sub("", member).split()))
        else:
            kept.append(member)
    if not names or not members[-1][0]:
        return text, []
    return "=".join([*kept, members[-1][0]]), names


def _members(text: str, mark: str = "=") -> list[tuple[str, str]]:
    """Return the members of a chain of equalities, or of a list, each with its characters outside all brackets."""
    members, outside, start = list[tuple[str, str]](), list[str](), 0
    closing: list[str] = []
    for place, char in enumerate(text):
        if char in _CLOSING:
            closing.append(_CLOSING[char])
        elif char in ")]}":
            if closing:
                closing.pop()
        elif closing:
            continue
        elif char == mark:
            members.append((text[start:place].strip(), "".join(outside)))
            outside, start = [], place + 1
        else:
            outside.append(char)
    return [*members, (text[start:].strip(), "".join(outside))]

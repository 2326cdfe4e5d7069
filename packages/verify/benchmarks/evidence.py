"""Switches off one function of the verifier after the other, and counts the real verdicts that change.

    python packages/verify/benchmarks/evidence.py                 the table
    python packages/verify/benchmarks/evidence.py --write FILE    also writes it, as evidence.md

A function that is switched off says no (False, None), hands back what it got if that has the type of its result, or
else raises "unreadable", so that what needs it is refused. One that more than MANY verdicts pass through is the core
and stays on. The script needs ../shared/verifier, see acceptance.py.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import pkgutil
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ansatz_verify
from acceptance import SAMPLES, load
from ansatz_verify import Reason, algebra, grade, numeric, parse
from ansatz_verify.decide import compare_values
from ansatz_verify.options import Options
from ansatz_verify.rules import RULES
from ansatz_verify.values import Value

MANY = 3_000
LONGEST_S = 2.0  # of a verdict: a parser without one of its functions can wait forever
MACHINERY = {"algebra", "gold", "grade", "numeric", "options", "own_time", "pool", "symbolic", "verdict", "worker"}
MACHINERY |= {"__main__", "adapters", "check", "conventions", "score"}
"""Modules that hold no rules: processes, options, the command line, and algebra as a whole."""
EXTRACTION = {"announce", "clean", "marks"}
NEVER = re.compile("(?!)")
HEADER = (
    "# Evidence\n",
    "Made by `evidence.py` in this folder: each function, table and pattern of the verifier is switched off in",
    "turn. Columns: the responses in which it runs; labelled verdicts that are right with it and wrong without",
    'it; the opposite; further verdicts that change. "core" marks what most verdicts pass through.\n',
)


class Pair(NamedTuple):
    """A response with its gold. mode: None for a bare answer. expected: None where nobody has labelled it."""

    gold: str
    text: str
    mode: Any
    expected: bool | None


class Row(NamedTuple):
    """What one function, table or pattern does.

    runs: the pairs that it runs in. better, worse: labelled verdicts that it makes right, and wrong. others: further
    verdicts that it changes.
    """

    name: str
    runs: int
    better: int | str
    worse: int | str = ""
    others: int | str = ""


def ask_here(_pool: Any, gold: Value, answer: Value, options: Options) -> Reason:
    """Do algebra in this process: a worker would have all functions."""
    try:
        return compare_values(gold, answer, options, algebra.answer_question)
    except numeric.NoNumber:
        return Reason.UNPARSED


def pairs() -> list[Pair]:
    """Return the labelled sample and the pool, each pair once: strict if it has a mark, else anchored."""
    found = dict[Pair, None]()
    for case in [*load("responses/real.jsonl"), *load("responses/pool.jsonl.zst")]:
        expected = None if case.get("disputed") else case.get("expected")
        marked = "\\boxed" in case["prediction"] or "<answer>" in case["prediction"]
        mode = None if case.get("kind") == "answer_equivalence" else "strict" if marked else "anchored"
        found[Pair(case["gold"], case["prediction"], mode, expected)] = None
    return list(found)


def judged(pair: Pair) -> tuple[bool, str | None]:
    """Return whether a pair is paid, and what was read as its answer."""
    parse.parse_gold.cache_clear()
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        if pair.mode is None:
            verdict = ansatz_verify.equivalent(pair.gold, pair.text)
        else:
            verdict = ansatz_verify.verify(pair.gold, pair.text, mode=pair.mode)
    except TimeoutError:
        raise
    except Exception:  # a function that is switched off can raise anywhere
        return False, None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return verdict.correct, verdict.extracted


class Evidence:
    """The verdicts on all pairs, and which functions run in each."""

    def __init__(self) -> None:
        self.pairs = pairs()
        self.verdicts = list[bool]()
        self.places = dict[Any, list[int]]()
        self.same = dict[Any, list[int]]()
        """Pairs with the same gold, answer, mode and label, which only extraction can tell apart."""
        folder = str(Path(ansatz_verify.__file__ or "").parent)
        seen = set[Any]()

        def watch(frame: Any, event: str, _argument: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(folder):
                seen.add(frame.f_code)

        for place, pair in enumerate(self.pairs):
            seen.clear()
            sys.setprofile(watch)
            paid, answer = judged(pair)
            sys.setprofile(None)
            self.verdicts.append(paid)
            self.same.setdefault((pair.gold, answer, pair.mode, pair.expected), []).append(place)
            for code in seen:
                self.places.setdefault(code, []).append(place)

    def row(self, name: str, places: Iterable[int]) -> Row:
        """Judge the pairs again, while something is switched off."""
        wanted = set(places)
        changed = list[int]()
        for group in self.same.values():
            chosen = [place for place in group if place in wanted]
            for place in chosen if name.partition(".")[0] in EXTRACTION else chosen[:1]:
                try:
                    paid = judged(self.pairs[place])[0]
                except TimeoutError:
                    return Row(name, len(wanted), "core")
                if paid != self.verdicts[place]:
                    changed += [place] if name.partition(".")[0] in EXTRACTION else chosen
        labelled = [place for place in changed if self.pairs[place].expected is not None]
        better = sum(self.verdicts[place] == self.pairs[place].expected for place in labelled)
        return Row(name, len(wanted), better, len(labelled) - better, len(changed) - len(labelled))

    def of_functions(self) -> Iterator[Row]:
        for name, function in sorted(functions(), key=lambda pair: pair[0]):
            code, ran = function.__code__, self.places.get(function.__code__, [])
            if len(ran) > MANY or code.co_freevars:
                yield Row(name, len(ran), "core")
                continue
            function.__code__ = switched_off(function).__code__
            try:
                yield self.row(name, ran)
            finally:
                function.__code__ = code

    def of_tables(self) -> Iterator[Row]:
        """Empty each table, and make each pattern match nothing."""
        for name, value, empty in tables():
            holders = [module for module in modules() if vars(module).get(name.partition(".")[2]) is value]
            for module in holders:
                setattr(module, name.partition(".")[2], empty)
            try:
                yield self.row(name, range(len(self.pairs)))
            finally:
                for module in holders:
                    setattr(module, name.partition(".")[2], value)


def modules() -> list[Any]:
    names = [module.name for module in pkgutil.iter_modules(ansatz_verify.__path__) if module.name not in MACHINERY]
    return [importlib.import_module(f"ansatz_verify.{name}") for name in names]


def functions() -> Iterator[tuple[str, Any]]:
    """Yield the name and the function of each rule, method and helper of the package."""
    for module in modules():
        for value in vars(module).values():
            members = vars(value).values() if inspect.isclass(value) else [value]
            for member in members:
                plain = inspect.unwrap(member) if callable(member) and not inspect.isclass(member) else member
                code = getattr(plain, "__code__", None)
                own = code is not None and code.co_filename == module.__file__ and plain.__module__ == module.__name__
                if own and not plain.__name__.startswith("__"):
                    yield f"{module.__name__.rpartition('.')[2]}.{plain.__name__}", plain


def tables() -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each table and pattern of a module, its value, and what stands for nothing."""
    seen = set[int]()
    for module in modules():
        for name, value in vars(module).items():
            if id(value) in seen or not name.isupper():
                continue
            seen.add(id(value))
            if isinstance(value, re.Pattern):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", value, NEVER
            elif isinstance(value, frozenset | dict) and name not in ("RULES", "DEFAULT"):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", value, type(value)()


def switched_off(function: Any) -> Any:
    """Return what stands in for a function: it says no, hands back what it got, or raises."""
    signature = inspect.signature(function)
    kinds = [parameter.annotation for name, parameter in signature.parameters.items() if name != "self"]
    result = str(signature.return_annotation)
    if result == "bool":
        return lambda *_, **__: False
    if result.endswith("None"):
        return lambda *_, **__: None
    if kinds and kinds[0] == result:
        return (lambda *a, **_: a[1]) if "self" in signature.parameters else (lambda *a, **_: a[0])
    return unreadable


def too_long(*_signal: object) -> None:
    raise TimeoutError


def unreadable(*_arguments: object, **_named: object) -> Any:
    raise __import__("ansatz_verify.values", fromlist=["values"]).UnreadableAnswer("switched off")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path)
    written = parser.parse_args().write
    if not SAMPLES.is_dir():
        return print(f"Nothing is counted, because {SAMPLES} with the real responses is missing.")
    grade.ask_worker = ask_here
    signal.signal(signal.SIGALRM, too_long)
    evidence = Evidence()
    lines = ["| function or table | runs in | better | worse | others |", "|---|---|---|---|---|"]
    print(*lines, sep="\n")
    for row in itertools.chain(evidence.of_functions(), evidence.of_tables()):
        lines.append("| `" + "` | ".join(map(str, row[:1])) + "` | " + " | ".join(map(str, row[1:])) + " |")
        print(lines[-1], flush=True)
    for rule, noted in RULES.items():
        if not any(line.startswith(f"| `rules.{rule.__name__}`") and f"| {noted} |" in line for line in lines):
            print(f"{rule.__name__}: its decorator says {noted}.")
    if written:
        written.write_text("\n".join([*HEADER, *lines]) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()

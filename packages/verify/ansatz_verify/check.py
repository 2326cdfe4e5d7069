"""Finds the answers that any reward function pays or refuses wrongly, and how it behaves: `ansatz-verify check`.

The function is imported once and called in forks. First its convention is found (`conventions`). Then it grades the
cases of `cases.yaml`, and inputs that take careless functions long. The same calls in another order, at another time,
with other random numbers, in a batch and in threads show whether a reward depends on anything else.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml

from ansatz_verify.conventions import FORMS, Convention, Pair, attempts, candidates
from ansatz_verify.forks import ENDS, HANGS, Raised, caught, fix_circumstances, outcomes
from ansatz_verify.responses import is_a

_LATER_S = (1.0, 18_001.0, 86_400.0, 3 * 86_400.0, 5 * 86_400.0, 400 * 86_400.0)
_MARK = re.compile("@(.*?)@")
_CODE = ("__import__('os').mkdir('RAN')", "open('RAN', 'w').close()")
_ODD: tuple[str | None, ...] = (None, "", " \n", "\x00\ud800", "\\boxed{", "\\boxed{}", "<answer>")
_PROBES = (("24", "57"), ("B", "A"))
_THREADS_S = 0.7
RUNS = "runs what the response says"
RANDOM, TIME, CALLS, THREADS = "random numbers", "the time", "earlier calls", "other threads"
BATCH, LENGTH = "other responses of the batch", "wrong number of rewards"


class Case(NamedTuple):
    kind: str
    gold: str
    answer: str
    right: bool

    def response(self, form: str) -> str | None:
        """Return the response in a form; None where the form leaves open which of several marks counts."""
        if "@" not in self.answer:
            return form.format(self.answer)
        thought, between, mark = form.rpartition("</think>\n")
        if not self.right and form in FORMS[5:] and _MARK.findall(self.answer)[-1] == self.gold:
            return None
        stated = _MARK.sub(lambda found: mark.format(found[1]), self.answer)
        return stated if "<think>" in stated else thought + between + stated


@dataclass(slots=True)
class Findings:
    """The findings about a function. paid, refused: the gold and response of each mistake by class, the shortest first.
    totals: how many wrong and right cases a class has. behaviour: an example of each fault that was looked for; empty
    if there is none. notes: the examinations that were left out, and without a convention why."""

    convention: Convention | None = None
    reads: list[str] = field(default_factory=list)
    paid: dict[str, list[Pair]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[str, list[Pair]] = field(default_factory=lambda: defaultdict(list))
    totals: Counter[tuple[str, bool]] = field(default_factory=Counter)
    behaviour: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def is_clean(self) -> bool:
        return bool(self.convention) and not self.paid and not self.refused and not any(self.behaviour.values())


def load_function(named: str) -> tuple[Callable[..., Any], ModuleType]:
    """Return the function of `module:function` or `file.py:function`. Raise ValueError if there is none."""
    place, _, name = named.rpartition(":")
    if not place or not name:
        raise ValueError(f"{named!r} does not name a function; expected MODULE:FUNCTION or FILE.py:FUNCTION.")
    path = Path(place).resolve()
    sys.path.insert(0, str(path.parent) if place.endswith(".py") else os.getcwd())
    try:
        with redirect_stdout(sys.stderr):
            function: Any = importlib.import_module(path.stem if place.endswith(".py") else place)
            module = function
            if place.endswith(".py") and Path(module.__file__ or "") != path:
                raise ImportError(f"the module {path.stem} is {module.__file__}; rename the file")
            for part in name.split("."):
                function = getattr(function, part)
            function = function() if inspect.isclass(function) else function
    except (Exception, SystemExit) as error:
        raise ValueError(f"{named} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ValueError(f"{named} is {function!r:.60}; expected a function.")
    return function, module


def load_cases() -> tuple[list[Case], list[str]]:
    """Return the cases, one of each class after the other, and the contents of hostile marks."""
    table = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))
    hostile = [text if isinstance(text, str) else text[0] * text[1] for text in table.pop("hostile")]
    classes = list[list[Case]]()
    for kind, (gold, *both) in table.items():
        right, wrong = ([Case(kind, gold, answer, not place) for answer in both[place]] for place in (0, 1))
        classes.append([case for pair in zip_longest(right, wrong) for case in pair if case])
    return [case for cases in zip_longest(*classes) for case in cases if case], hostile


def check_function(function: Callable[..., Any], module: ModuleType) -> Findings:
    """Examine a function in at most about ten seconds. Whatever it does, the findings say so."""
    begin = time.monotonic()
    check = _Check(function, module, begin + 8)
    if check.find_convention():
        check.grade_cases()
        check.try_hostile_inputs()
        check.look_for_dependence()
    check.findings.seconds = time.monotonic() - begin
    return check.findings


class _Check:
    def __init__(self, function: Callable[..., Any], module: ModuleType, end: float) -> None:
        self.findings = Findings()
        self._function, self._module, self._end = function, module, end
        self._shift_s, self._call_s = 0.0, 0.0
        self._threshold: float = 0.5
        self._graded: list[tuple[Pair, Any]] = []

    def find_convention(self) -> bool:
        """Try conventions, also at later times, until one pays a right answer more than a wrong one."""
        conventions = candidates(self._function)
        probes = [partial(_probe, self._function, convention) for convention in conventions]
        for self._shift_s in (0.0, *_LATER_S[:4]):
            with closing(outcomes(probes, most_s=4, limit_s=4, prepare=self._prepare())) as found:
                for convention, outcome in zip(conventions, found, strict=False):
                    if is_a(outcome, tuple):
                        self.findings.convention, right, wrong, pair = outcome
                        self._threshold = (right + wrong) / 2
                        with redirect_stdout(sys.stderr):  # it has ended in a fork; what it loads is loaded for all
                            caught(partial(self._convention.call, self._function, [pair]))
                        if self._shift_s:
                            self.findings.behaviour[TIME] = f"it pays nothing now, and does in {self._shift_s:.0f} s"
                        return True
                    self.findings.notes.append(f"{convention.describe('it')}: {outcome}")
        self.findings.notes = list(dict.fromkeys(self.findings.notes))[:4]
        return False

    def grade_cases(self) -> None:
        cases = [case for case in load_cases()[0] if case.response(self._convention.form) is not None]
        pairs: list[Pair] = [(case.gold, case.response(self._convention.form)) for case in cases]
        begin = time.monotonic()
        self._graded = list(zip(pairs, self._call(pairs, "the cases", most_s=2.5), strict=False))
        self._call_s = (time.monotonic() - begin) / len(self._graded)
        for case, (pair, outcome) in zip(cases, self._graded, strict=False):
            self.findings.totals[case.kind, case.right] += 1
            if self._is_paid(outcome) != case.right:
                (self.findings.refused if case.right else self.findings.paid)[case.kind].append(pair)
            self._note_failure(pair, outcome)
        for examples in (*self.findings.paid.values(), *self.findings.refused.values()):
            examples.sort(key=lambda pair: len(pair[1]))
        probe = _PROBES[0][0]
        reads = self._call([(probe, form.format(probe)) for form in FORMS], most_s=1)
        self.findings.reads = [form for form, outcome in zip(FORMS, reads, strict=False) if self._is_paid(outcome)]

    def look_for_dependence(self) -> None:
        """Compare the rewards of the cases with the same calls under other circumstances."""
        findings = self.findings.behaviour
        good = [each for each in self._graded if not isinstance(each[1], Raised)]
        few = min(max(int(0.15 / self._call_s), 1), 8)
        chosen = [each for each in good if self._is_paid(each[1])][:few]
        chosen += [each for each in good if not self._is_paid(each[1])][:few]
        pairs = [pair for pair, _ in chosen]
        expected = [outcome for _, outcome in chosen]
        repeated = pairs * min(max(int(0.3 / self._call_s / len(pairs)), 2), 6) if pairs else []
        findings[RANDOM] = _difference(repeated, self._call(repeated), self._call(repeated, seed=1))
        if findings[RANDOM]:
            self.findings.notes.append("time, order, threads and batches were not examined, since rewards vary anyway")
            return
        at_once = self._call(pairs)
        later = (_difference(pairs, at_once, self._call(pairs, later_s=seconds)) for seconds in _LATER_S)
        findings[TIME] = findings.get(TIME) or next(filter(None, later), "")
        again = [*chosen * 2, *reversed(good)]
        order = [pair for pair, _ in again]
        findings[CALLS] = _difference(order, [outcome for _, outcome in again], self._call(order))
        if not findings[CALLS]:
            job = partial(_in_threads, self._function, self._convention, pairs, expected)
            for found in self._run([job], "the threads", limit_s=6):
                findings[THREADS] = found
        if self._convention.batched and pairs:
            self._check_batch([*pairs, *pairs[:3], (pairs[0][0], "")], [*expected, *expected[:3]])

    def _check_batch(self, pairs: list[Pair], expected: list[Any]) -> None:
        """Compare a batch, with some responses twice and an empty one, with the same responses alone."""
        calls = [partial(self._convention.call, self._function, pairs[::step]) for step in (1, -1)]
        for step, rewards in zip((1, -1), self._run(calls, "the batches", limit_s=2), strict=False):
            if isinstance(rewards, Raised) or len(rewards) != len(pairs):
                got = rewards if isinstance(rewards, Raised) else f"{len(rewards)} rewards"
                self.findings.behaviour[LENGTH] = f"{got} for {len(pairs)} responses"
                return
            found = _difference(pairs, expected, [[reward] for reward in rewards[::step]])
            self.findings.behaviour[BATCH] = self.findings.behaviour.get(BATCH) or found
        self.findings.behaviour[LENGTH] = ""

    def try_hostile_inputs(self) -> None:
        """Try odd responses, code, and inputs that take a careless function long."""
        gold, form, hostile = _PROBES[0][0], self._convention.form, load_cases()[1]
        responses = [*_ODD, *(form.format(text) for text in (*_CODE, *hostile)), *hostile]
        pairs: list[Pair] = [(gold, response) for response in responses]
        with tempfile.TemporaryDirectory() as folder:
            got = self._call(pairs, "the hostile inputs", folder=folder, most_s=2.5)
            self.findings.behaviour[RUNS] = f"such as {_CODE[0]}" if Path(folder, "RAN").exists() else ""
        for pair, outcome in zip(pairs, got, strict=False):
            self._note_failure(pair, outcome)
            if self._is_paid(outcome):
                self.findings.paid["hostile inputs"].append(pair)
        self.findings.totals["hostile inputs", False] = len(got)
        for name in (HANGS, ENDS, "raises"):
            self.findings.behaviour.setdefault(name, "")

    @property
    def _convention(self) -> Convention:
        assert self.findings.convention is not None
        return self.findings.convention

    def _prepare(self, *, later_s: float = 0.0, seed: int = 0, folder: str = ".") -> Callable[[], None]:
        def prepare() -> None:
            fix_circumstances(seed, self._shift_s + later_s, self._module)
            os.chdir(folder)

        return prepare

    def _call(self, pairs: Sequence[Pair], what: str = "a comparison", **how: Any) -> list[Any]:
        """Return the rewards of pairs that are graded one by one, from a new state."""
        return self._run([partial(self._convention.call, self._function, [pair]) for pair in pairs], what, **how)

    def _run(
        self,
        calls: Sequence[Callable[[], Any]],
        what: str,
        *,
        most_s: float = 1,
        limit_s: float = 2,
        **circumstances: Any,
    ) -> list[Any]:
        most_s = min(most_s, self._end - time.monotonic())
        got = list(outcomes(calls, most_s=most_s, limit_s=limit_s, prepare=self._prepare(**circumstances)))
        if len(got) < len(calls) and not any(note.startswith(what) for note in self.findings.notes):
            self.findings.notes.append(f"{what} ended early, after {len(got)} of {len(calls)} calls")
        return got

    def _is_paid(self, outcome: Any) -> bool:
        return not is_a(outcome, Raised) and len(outcome) == 1 and (outcome[0] or 0.0) > self._threshold

    def _note_failure(self, pair: Pair, outcome: Any) -> None:
        if isinstance(outcome, Raised):
            what, why = (str(outcome), "") if outcome in (HANGS, ENDS) else ("raises", f": {outcome}")
            self.findings.behaviour.setdefault(what, f"on {pair[1]!r:.50} for the gold {pair[0]!r:.40}{why}")


def _difference(pairs: Sequence[Pair], expected: Iterable[Any], got: Iterable[Any]) -> str:
    for (gold, response), first, second in zip(pairs, expected, got, strict=False):
        if first != second:
            shown = [outcome if isinstance(outcome, Raised) else outcome[0] for outcome in (first, second)]
            return f"{response!r:.50} for the gold {gold!r:.40} gets {shown[0]}, and then {shown[1]}"
    return ""


def _probe(function: Callable[..., Any], candidate: Convention) -> tuple[Convention, float, float, Pair] | str:
    """Return the first form of a convention that pays a right answer more than a wrong one, with both rewards and the
    pair with the right one."""
    for convention in attempts(candidate):
        for gold, other in _PROBES:
            pairs = [(gold, convention.form.format(answer)) for answer in (gold, other)]
            right, wrong = (caught(partial(convention.call, function, [pair])) for pair in pairs)
            if isinstance(right, Raised) or isinstance(wrong, Raised):
                return right if isinstance(right, Raised) else wrong
            if len(right) == len(wrong) == 1 and (right[0] or 0.0) > (wrong[0] or 0.0):
                return convention, right[0] or 0.0, wrong[0] or 0.0, pairs[0]
    return "it pays a right answer no more than a wrong one"


def _in_threads(
    function: Callable[..., Any], convention: Convention, pairs: Sequence[Pair], expected: Sequence[Any]
) -> str:
    """Return the first difference that calls from eight threads show. Each thread begins with another pair."""
    sys.setswitchinterval(1e-5)
    differences, end = list[str](), time.monotonic() + _THREADS_S

    def run(place: int) -> None:
        while time.monotonic() < end and not differences:
            place = (place + 7) % len(pairs)
            outcome = caught(partial(convention.call, function, [pairs[place]]))
            if found := _difference([pairs[place]], [expected[place]], [outcome]):
                differences.append(found)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return differences[0] if differences else ""


def report(name: str, findings: Findings) -> Iterator[str]:
    """Yield the lines that the user reads."""
    if findings.convention is None:
        yield f"{name}: no call was found that pays a right answer more than a wrong one. Tried:"
    else:
        yield findings.convention.describe(name)
        forms = findings.reads or [findings.convention.form]
        yield f"It reads {', '.join(repr(form.format('ANSWER')) for form in forms)}."
        for title, mistakes, right in (("Paid", findings.paid, False), ("Refused", findings.refused, True)):
            total = sum(number for (_, is_right), number in findings.totals.items() if is_right == right)
            yield f"{title} although {'right' if right else 'wrong'}: {sum(map(len, mistakes.values()))} of {total}"
            for kind, found in sorted(mistakes.items(), key=lambda item: -len(item[1])):
                shown = f"{len(found)} of {findings.totals[kind, right]}"
                yield f"  {kind:26s} {shown:9s} gold {found[0][0]!r}: {found[0][1]!r:.70}"
        yield "Behaviour: what a reward depends on, and how calls end"
        yield from (f"  {what:26s} {f'YES: {found}' if found else 'no'}" for what, found in findings.behaviour.items())
    yield from (f"Note: {note}." for note in findings.notes)
    yield f"{findings.seconds:.1f} s"

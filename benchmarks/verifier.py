"""Accuracy and speed of the verifier, and of math-verify on the same cases in the same run.

    python benchmarks/verifier.py CASES            a folder with cases/, real/, hacks.jsonl, adversarial.jsonl
    python benchmarks/verifier.py CASES --peer     also math-verify: pip install "math-verify[antlr4_13_2]==0.9.0"

`grade` and the `grade_<tag>` functions have the shape function(gold, prediction, kind) -> bool for other harnesses.
Each case is one timed call in this process. A hostile case is clean if it ends within a second without an exception.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansatz_verify import equivalent, verify
from ansatz_verify.grade import ALGEBRA_TARGET
from ansatz_verify.pool import WorkerPool

POOL = WorkerPool(ALGEBRA_TARGET, workers=2, timeout_s=0.8)
"""The deadline leaves room for hostile inputs to be refused within one second of this script's clock."""

ANCHORED = {"mode": "anchored"}
STRICT = {"mode": "strict"}
POLICIES: dict[str, dict[str, Any]] = {
    "ordered_list": {"ordered": True},
    "double_escaped": {},
    "percent_drop": {"percent_as_number": True},
    "percent_as_number": {"percent_as_number": True},
    "unsimplified_ok": {},
    "reduced_fraction_required": {"reduced": True},
    "loose_tolerance": {"digits": 2, "rounded_decimals": True},
    "rounding_digits": {"digits": 2, "rounded_decimals": True},
    "case_of_choice": {"case_sensitive": True},
    "based_value": {"based_values": True},
    "same_form": {"same_form": True},
    "decimal_comma": {"decimal_comma": True},
    "locale_thousands": {"locale_thousands": True},
    "locale": {},
    "units_ignored": {"units": "ignore"},
    "units_converted": {"units": "convert"},
    "assignment_list": {},
    "number_words": {"number_words": True},
    "joined_boxes": {"join_boxes": True},
    "unclosed_think_ok": {"ignore_unclosed_think": True},
    "think_stripped": {},
    "think_required": {"require_think": True},
    "boxed_required": STRICT,
    "answer_tag_required": STRICT,
    "hash_required": STRICT,
    "unanchored": {"mode": "last_number"},
}
"""The option under which each disputed verdict is right; docs/verifier.md says what each is."""

_OF_RESPONSES = ("mode", "join_boxes", "ignore_unclosed_think", "require_think")
Grade = Callable[[str, str, str], bool]


def grader(settings: dict[str, Any]) -> Grade:
    """A function(gold, prediction, kind): a whole response is extracted from, a bare answer taken as it stands."""
    responses = {**ANCHORED, **settings}
    answers = {name: value for name, value in settings.items() if name not in _OF_RESPONSES}

    def grade(gold: str, prediction: str, kind: str = "full_response") -> bool:
        if kind == "answer_equivalence":
            return bool(equivalent(gold, prediction, pool=POOL, **answers))
        return bool(verify(gold, prediction, pool=POOL, **responses))

    return grade


grade = grader({})
globals().update({f"grade_{tag}": grader(settings) for tag, settings in POLICIES.items()})


def math_verify() -> Grade:
    """math-verify with its sensible settings: gold in dollars, responses read by its own extraction."""
    try:
        from math_verify import parse  # pyright: ignore
        from math_verify import verify as equal
    except ImportError:
        sys.exit('--peer needs math-verify: pip install "math-verify[antlr4_13_2]==0.9.0"')

    def grade(gold: str, prediction: str, kind: str = "full_response") -> bool:
        answer = f"${prediction}$" if kind == "answer_equivalence" and "$" not in prediction else prediction
        return bool(equal(parse(f"${gold}$"), parse(answer)))

    return grade


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def policy_of(case: dict[str, Any]) -> str:
    note = case["note"]
    return note[7:].split(";")[0].strip() if note.startswith("policy:") else ""


class Tally:
    """Right, false positives and negatives, and the time of each call."""

    def __init__(self, name: str) -> None:
        self.name, self.false_positives, self.false_negatives, self.raised = name, 0, 0, 0
        self.seconds: list[float] = []

    def judge(self, grade: Grade, case: dict[str, Any]) -> bool:
        begin = time.perf_counter()
        try:
            verdict = grade(case["gold"], case["prediction"], case["kind"])
        except Exception:
            verdict, self.raised = False, self.raised + 1
        right = verdict == case["expected"]
        self.count(case, right, time.perf_counter() - begin)
        return right

    def count(self, case: dict[str, Any], right: bool, seconds: float) -> None:
        self.seconds.append(seconds)
        self.false_positives += not right and not case["expected"]
        self.false_negatives += not right and case["expected"]

    def row(self) -> str:
        count = max(len(self.seconds), 1)
        right = count - self.false_positives - self.false_negatives
        times = sorted(self.seconds) or [0.0]
        p50, p99 = times[count // 2], times[min(count - 1, int(count * 0.99))]
        counts = f"{100 * right / count:6.1f} % {self.false_positives:4d} {self.false_negatives:4d} {self.raised:4d}"
        return f"{self.name:28s} {count:5d} {counts} {1e3 * p50:9.3f} {1e3 * p99:9.2f} {1e3 * times[-1]:9.1f}"


HEAD = f"{'':28s} cases    right   FP   FN  err    p50 ms    p99 ms    max ms"


def accuracy(folder: Path, name: str, grade: Grade, *, policies: bool, show: bool) -> None:
    print(f"\n{name}\n{HEAD}")
    core, policy = Tally("core"), Tally("policy")
    every = Tally("all of them")
    files = [file for kind in ("cases", "real") for file in sorted((folder / kind).glob("*.jsonl"))]
    files.append(folder / "hacks.jsonl")
    for file in files:
        of_file = Tally(file.stem)
        for case in load(file):
            if case["kind"] == "format":
                continue
            tag = policy_of(case)
            if tag and not policies:
                continue
            tally = policy if tag else core if file.parent.name == "cases" else of_file
            is_right = tally.judge(grader(POLICIES.get(tag, {})) if tag else grade, case)
            every.count(case, is_right, tally.seconds[-1])
            if not is_right and show:
                print(f"    {case['id']}: gold {case['gold'][:60]!r}, got {case['prediction'][-60:]!r}")
        if of_file.seconds:
            print(of_file.row())
    print(core.row())
    if policies:
        print(policy.row())
    print(every.row())
    print(f"{'throughput':28s} {len(every.seconds) / sum(every.seconds):,.0f} verdicts per second on one core")


def hostile(folder: Path, name: str, grade: Grade) -> None:
    """The hostile inputs from the main thread, a worker thread and asyncio."""
    cases = load(folder / "adversarial.jsonl")

    def clean(case: dict[str, Any]) -> bool:
        begin = time.perf_counter()
        try:
            verdict = grade(case["gold"], case["prediction"], "full_response")
        except Exception:
            return False
        return time.perf_counter() - begin < 1 and (case["expected"] is None or verdict == case["expected"])

    async def in_asyncio() -> list[bool]:
        return [clean(case) for case in cases]

    with ThreadPoolExecutor(1) as thread:
        ways = {
            "main thread": [clean(case) for case in cases],
            "worker thread": list(thread.map(clean, cases)),
            "asyncio": asyncio.run(in_asyncio()),
        }
    for way, results in ways.items():
        print(f"hostile, {way:13s} {name}: clean {sum(results)} of {len(cases)}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("cases", type=Path)
    arguments.add_argument("--peer", action="store_true", help="also math-verify, on the same cases")
    arguments.add_argument("--show", action="store_true", help="print every case that is not right")
    options = arguments.parse_args()
    POOL.start()
    accuracy(options.cases, "ansatz", grade, policies=True, show=options.show)
    hostile(options.cases, "ansatz", grade)
    if options.peer:
        peer = math_verify()
        accuracy(options.cases, "math-verify 0.9.0", peer, policies=False, show=False)
        print("(its policy cases are left out, for it has not these options; its hostile cases are timed by adv.py)")
    POOL.close()


if __name__ == "__main__":
    main()
else:
    POOL.start()

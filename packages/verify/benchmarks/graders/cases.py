"""The cases of the benchmark of graders, from packages/verify/tests/corpora, and hostile inputs.

All cases were written for this project and have its licence (Apache 2.0); `origin` is the file and line of each. Where
graders may differ by choice, a case names the `policy` and is not counted as a mistake either way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).resolve().parents[2] / "tests" / "corpora"
FILES = ("math_answers.jsonl", "math_answer_classes.jsonl", "grader_hacks.jsonl", "grader_policies.jsonl")

GROUPS = {
    "numbers": "integers fractions decimals scientific thousands percent base degrees ratios complex beyond never "
    "numbers rounded",
    "formulas": "expressions equations roots positive letters functions parameters notation definitions chains",
    "lists": "lists intervals plus-minus matrices no",
    "units": "units texts short golds choice the_case",
    "mixed": "mixed common wrappers",
    "around": "around a_colored boxes hedges tags thoughts an_anchor",
    "words": "announced anchors a_closed the_last",
    "hacks": "hacks",
    "policies": "policy",
}
"""By group, the first words of the classes (two, joined by _, where the first is an article)."""
NOT_GRADED = "the gold is a whole solution"
"""A class about how golds are read. The benchmark hands every grader a bare gold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """other: the label under the policy that `policy` names; None: every policy agrees with `right`."""

    origin: str
    group: str
    gold: str
    response: str
    right: bool
    policy: str = ""
    other: bool | None = None


def load_cases() -> list[Case]:
    """The cases of the corpora, then the hostile inputs (group "hostile"), which no grader may pay."""
    return [*_from_corpora(), *_hostile()]


def _from_corpora() -> Iterator[Case]:
    for name in FILES:
        for number, line in enumerate((CORPORA / name).read_text(encoding="utf-8").splitlines(), start=1):
            row = json.loads(line)
            bare = row.get("mode") == "equivalent"
            if row["why"] == NOT_GRADED or (bare and ("\\boxed" in row["response"] or row["response"].endswith("\\"))):
                continue
            right = row["verdict"] == "right"
            policy, other = _policy(row, right)
            response = f"\\boxed{{{row['response']}}}" if bare else row["response"]
            yield Case(
                origin=f"{name}:{number}",
                group=group_of(row["why"], response),
                gold=row["gold"],
                response=response,
                right=right,
                policy=policy,
                other=other,
            )


def _policy(row: dict[str, Any], right: bool) -> tuple[str, bool | None]:
    """The policy of a case and its label under it. An answer without a box is right only for those who read
    words."""
    if "policy" in row:
        return row["policy"], row["other"] == "right"
    mode = row.get("mode", "strict")
    if mode in ("anchored", "last_number") and right and "\\boxed" not in row["response"]:
        return ("announced" if mode == "anchored" else "last_number"), False
    if row["why"].startswith("an anchor"):
        return "announced", True
    return "", None


def group_of(why: str, response: str) -> str:
    """The group of a class; of one that no group names, by the form of the response: a box, text around it, words."""
    words = why.replace(":", "").replace(",", "").split()
    start = "_".join(words[:2]) if words[0] in ("a", "an", "the") else words[0]
    named = {first: group for group, firsts in GROUPS.items() for first in firsts.split()}
    if start in named:
        return named[start]
    if "\\boxed" not in response:
        return "words"
    return "mixed" if response.startswith("\\boxed") and response.endswith("}") else "around"


HOSTILE = [
    "9**9**9", "10^{10^{10^{10}}}", "99999999!", "((3!)!)!", "\\binom{1000000000}{500000000}",
    "2^{2^{2^{2^{2^{2}}}}}", "\\sqrt{" * 400 + "2" + "}" * 400, "(" * 1_900, "\\frac{" * 300 + "1" + "}{2}" * 300,
    "\\sin(" * 45 + "x" + ")" * 45, "(x+y+z)^{39}(a+b+c)^{39}", "(x+1)^{100000}",
    "\\int_0^1 \\frac{\\sin(x^x)}{\\ln(x+\\cos x)} dx",
    "\\sum_{k=1}^{n} \\sin(k!)", "\\sum_{k=1}^{10^{12}} \\frac{1}{k}", "\\prod_{k=1}^{10^9} k",
    "\\lim_{x\\to 0} \\frac{\\tan(\\sin x)-\\sin(\\tan x)}{x^7}", "1,000" * 400, "\\boxed{" * 500, "7" * 100_000,
    "{" * 20_000, "$" * 20_000 + "7", "\\begin{pmatrix}" + "1 & " * 5_000 + "1\\end{pmatrix}", " = ".join("7" * 3_000),
    "\x00\u202e\ud800"[:2], "nan", "\\infty - \\infty", "\\frac{0}{0}",
]  # fmt: skip
"""Contents of a box that take a careless grader long, much memory, or down."""
RUNS_CODE = [
    "__import__('os').mkdir('RAN')",
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0](['mkdir', 'RAN'])",
    "(lambda: exec(\"open('RAN', 'w')\"))()",
    "{{__import__('os').mkdir('RAN')}}",
]
"""Contents of a box that leave something called RAN in the current folder if they are evaluated."""


def _hostile() -> Iterator[Case]:
    for kind, texts in (("HOSTILE", HOSTILE), ("RUNS_CODE", RUNS_CODE)):
        for number, text in enumerate(texts):
            yield Case(origin=f"{kind}:{number}", group="hostile", gold="2", response=f"\\boxed{{{text}}}", right=False)

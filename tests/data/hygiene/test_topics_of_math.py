"""The figures of docs/data.md about topics, measured on MATH's test file where it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansatz.data.hygiene.topics import classifier_of
from ansatz.types import Problem

ROOT = Path(__file__).parents[3]
MATH = ROOT.parent / "shared" / "data" / "math" / "test.jsonl"
ACCEPTED = {
    "Algebra": {"algebra"},
    "Intermediate Algebra": {"algebra"},
    "Prealgebra": {"algebra", "arithmetic"},
    "Precalculus": {"trigonometry", "linear_algebra", "complex_numbers", "calculus"},
    "Geometry": {"geometry"},
    "Number Theory": {"number_theory"},
    "Counting & Probability": {"counting_and_probability"},
}


@pytest.mark.skipif(not MATH.is_file(), reason="MATH's test file is not here")
def test_the_page_states_how_often_topics_agree_with_the_subjects_of_math():
    classify = classifier_of(None)
    first = anywhere = 0
    rows = [json.loads(line) for line in MATH.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        problem = Problem(id="", question=row["problem"], answers=(row["answer"],), source="", split="")
        topics, accepted = classify(problem), ACCEPTED[row["subject"]]
        first += topics[0] in accepted
        anywhere += bool(accepted.intersection(topics))
    page = " ".join((ROOT / "docs" / "data.md").read_text(encoding="utf-8").split())
    stated = re.search(r"agrees with the stated subject in ([\d.]+) %.*?one of the topics does in ([\d.]+) %", page)
    assert stated is not None
    assert stated.groups() == (f"{first / len(rows):.1%}"[:-1], f"{anywhere / len(rows):.1%}"[:-1])

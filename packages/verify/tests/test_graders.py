"""The benchmark of graders: its cases, its runner on a user's own function, and the tables of its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansatz_verify import verify
from ansatz_verify.grade import ALGEBRA_TARGET
from ansatz_verify.pool import WorkerPool

PACKAGE = Path(__file__).parents[1]
FOLDER = PACKAGE / "benchmarks" / "graders"
CORPORA = PACKAGE / "tests" / "corpora"
DOCS = PACKAGE.parents[1] / "docs"

TOY = """
import os
import time

def grade(response, gold):
    if gold == "hang":
        time.sleep(1000)
    if gold == "crash":
        os._exit(3)
    if gold == "run":
        open("RAN", "w").close()
    if gold == "slow":
        begin = time.process_time()
        while time.process_time() < begin + 1.1:
            pass
    if gold == "raise":
        raise RuntimeError("cannot read it")
    print("what a grader prints is not an answer")
    return gold in response
"""


@pytest.fixture(scope="module")
def modules() -> Any:
    """The scripts of the folder, which import one another by name."""
    sys.path.insert(0, str(FOLDER))
    import cases
    import page
    import process
    import run

    yield {"cases": cases, "page": page, "process": process, "run": run}
    sys.path.remove(str(FOLDER))


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "toy.py").write_text(TOY)
    return f"{tmp_path / 'toy.py'}:grade"


def test_a_grader_that_hangs_crashes_raises_or_runs_code_is_counted_and_goes_on(modules: Any, toy: str):
    with modules["process"].GraderProcess(toy, limit_s=0.5) as process:
        golds = ["8", "hang", "crash", "9", "raise", "run", "8"]
        outcomes = [process.grade("The answer is 8.", gold) for gold in golds]
    assert [outcome.state for outcome in outcomes] == ["ok", "hung", "crashed", "ok", "raised", "ok", "ok"]
    assert [outcome.paid for outcome in outcomes] == [True, False, False, False, False, False, True]
    assert [outcome.ran for outcome in outcomes] == [False] * 5 + [True, False]


def test_mistakes_are_counted_apart_from_what_a_policy_decides(modules: Any, toy: str):
    def case(gold: str, response: str, right: bool, **more: Any) -> Any:
        given = {"origin": "x:1", "group": "hacks", "gold": gold, "response": response, "right": right}
        return modules["cases"].Case(**given | more)

    cases = [
        case("8", "8", True),
        case("8", "eight", True),
        case("8", "18", False),
        case("8", "7", False),
        case("crash", "8", True, group="numbers"),
        case("8", "8", False, policy="any_digit", other=True),
        case("8", "9", False, policy="any_digit", other=True),
        case("8", "7", False, policy="any_digit", other=True),
        case("8", "7", False, group="hostile"),
        case("run", "7", False, group="hostile"),
        case("8", "9^8", False, group="hostile"),
        case("slow", "9^9", False, group="hostile"),
    ]
    counts = modules["run"].measure(toy, cases, limit_s=5.0, python=sys.executable)
    assert counts["groups"]["hacks"] == {"right": 2, "refused": 1, "wrong": 2, "paid": 1}
    assert counts["groups"]["numbers"] == {"right": 1, "refused": 1, "wrong": 0, "paid": 0}
    assert counts["policies"] == {"any_digit": {"cases": 3, "default": 2}}
    assert counts["states"] == {"raised": 0, "hung": 0, "crashed": 1}
    failed = {"raised": 0, "hung": 0, "crashed": 0}
    assert counts["hostile"] == {"cases": 4, "clean": 1, "paid": 1, "ran": 1, "slow": 1, **failed}
    assert modules["page"].totals(counts) == {"right": 3, "refused": 2, "wrong": 2, "paid": 1}


def test_the_command_grades_all_cases_with_a_function_of_the_user(tmp_path: Path):
    (tmp_path / "mine.py").write_text("def grade(response, gold):\n    return gold in response\n")
    command = [sys.executable, str(FOLDER / "run.py"), "mine.py:grade", "--out", "out.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    record = json.loads((tmp_path / "out.json").read_text())
    hacks = record["graders"]["grade"]["groups"]["hacks"]
    assert hacks["refused"] == 0
    assert hacks["paid"] > 80
    assert done.stdout.startswith("mine.py:grade: pays ")
    theirs = record["graders"]["grade"]["referees"]
    assert all((name in theirs) != (name in done.stderr) for name in ("math-verify", "reward-doctor"))


@pytest.mark.parametrize("named", ["none.py:grade", "grade", "broken.py:grade"])
def test_a_grader_that_cannot_be_loaded_is_an_error_that_names_it(named: str, tmp_path: Path):
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    command = [sys.executable, str(FOLDER / "run.py"), named]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert named in done.stderr


def test_cases_of_others_are_counted_apart_and_read_from_their_files(modules: Any, toy: str, tmp_path: Path):
    import referees

    case = modules["cases"].Case(origin="x:1", group="referees", gold="8", response="18", right=False)
    counts = modules["run"].measure(toy, [case], limit_s=5.0, python=sys.executable, referees={"theirs": [case, case]})
    assert counts["referees"] == {"theirs": {"right": 0, "refused": 0, "wrong": 2, "paid": 2}}
    path = tmp_path / "test_all.py"
    path.write_text('@m.parametrize("gold, pred, expected", [("$8$", "x", 1), three])\ndef f(): ...\n')
    assert list(referees._parametrized(path)) == []
    path.write_text('@m.parametrize("gold, pred, expected", [("$8$", "x", 1)])\ndef f(): ...\n')
    assert list(referees._parametrized(path)) == [("gold,pred,expected", 1, [("$8$", "x", 1)])]


def test_every_case_has_a_group_and_an_origin_of_its_own(modules: Any):
    cases = modules["cases"].load_cases()
    assert len(cases) > 1500
    assert {case.group for case in cases} == {*modules["cases"].GROUPS, "hostile"}
    assert len({case.origin for case in cases}) == len(cases)
    assert all((case.other is None) == (case.policy == "") for case in cases)
    assert all(case.other != case.right for case in cases if case.other is not None)


@pytest.mark.parametrize(
    ("why", "response", "group"),
    [
        ("percent", "\\boxed{10}", "numbers"),
        ("an anchor is another class", "The answer is 10.", "around"),
        ("a class that is new", "\\boxed{10}", "mixed"),
        ("a class that is new", "$\\boxed{10}$ or so", "around"),
        ("a class that is new", "It is 10.", "words"),
    ],
)
def test_a_class_that_no_group_names_is_grouped_by_its_form(modules: Any, why: str, response: str, group: str):
    assert modules["cases"].group_of(why, response) == group


def test_our_verifier_gives_both_labels_of_a_policy_and_pays_no_hack():
    pool = WorkerPool(ALGEBRA_TARGET, timeout_s=5.0)  # the machine that runs the tests can be busy
    mistakes: list[str] = []
    for name in ("grader_hacks.jsonl", "grader_policies.jsonl"):
        for line in (CORPORA / name).read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            labels = [(case["verdict"], {})]
            if case.get("options") is not None:
                labels.append((case["other"], case["options"]))
            for label, options in labels:
                if bool(verify(case["gold"], case["response"], pool=pool, **options)) != (label == "right"):
                    mistakes.append(f"{case['gold']!r} and {case['response']!r} with {options}: expected {label}")
    pool.close()
    assert mistakes == []


def test_the_tables_of_the_page_say_what_the_files_say(modules: Any):
    text = (DOCS / "graders.md").read_text(encoding="utf-8")
    record = json.loads((DOCS / "graders.json").read_text(encoding="utf-8"))
    assert list(record["graders"]) == modules["run"].adapters()
    assert modules["page"].tables(record["graders"]) in text


def test_the_page_says_what_every_policy_and_grader_is(modules: Any):
    text = (DOCS / "graders.md").read_text(encoding="utf-8").partition("<!--")[0]
    policies = {case.policy for case in modules["cases"].load_cases()} - {""}
    assert [name for name in [*policies, *modules["run"].adapters()] if f"`{name}`" not in text] == []


def test_each_wrong_grader_of_the_sweep_is_wrong_in_its_own_way(modules: Any):
    import adapters

    boxed = {answer: f"14-12={answer}\n\\boxed{{{answer}}}" for answer in ("2", "12", "20", "21")}
    pays = {
        grader: [
            getattr(adapters, grader)(response, gold)
            for gold, response in (("2", boxed["2"]), ("2", boxed["12"]), ("20", boxed["21"]), ("20", boxed["20"]))
        ]
        for grader in ("gold_anywhere", "within_ten_percent", "one_digit_only")
    }
    assert pays == {
        "gold_anywhere": [True, True, False, True],
        "within_ten_percent": [True, False, True, True],
        "one_digit_only": [True, False, False, False],
    }

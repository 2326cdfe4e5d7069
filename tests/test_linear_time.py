"""Text of a policy, a program, a judge or a file is read in a time that grows with its length, not with its square."""

from __future__ import annotations

import ast
import importlib
import json
import re
import statistics
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from marked_texts import MARKER, functions_with_marker
from neighbouring_repeats import has_neighbouring_repeats
from patterns import Pattern, patterns
from readers import FOLDER, READERS, Reader
from toy_runs import toy
from transformers import PreTrainedTokenizerBase

from ansatz.config.load import check
from ansatz.loop.pipeline import run_pipeline
from ansatz.track.report import write_report
from tests.rewards.chat_server import ChatServer

HAND_ON = {
    "It gives the text to an environment or its tool": (
        "environments/calls.py:EnvironmentCalls.answer environments/endings.py:Endings.add "
        "environments/episode.py:Episode._call environments/episode.py:Episode.answer "
        "environments/tags.py:TagEnvironment.step"
    ),
    "It gives the program to the sandbox": (
        "rewards/code_tests.py:MessagePeer.__init__ rewards/code_tests.py:ProgramUnderTest.__init__ "
        "rewards/code_tests.py:ProgramUnderTest._peer rewards/sandbox.py:holding rewards/sandbox.py:job_of "
        "rewards/sandbox_session.py:SandboxProcess.__init__"
    ),
    "It writes or reads a line of a file": (
        "data/hygiene/row_filter.py:_Lines.write files.py:write_text track/jsonl.py:to_line "
        "track/checked_rows.py:_check track/rollout_rows.py:_response "
        "track/rollout_table.py:_from_slim track/rollout_table.py:_number_groups track/rollout_table.py:_problem "
        "track/rollout_table.py:convert_row track/rollout_table.py:read_groups track/rollout_table.py:read_rollouts "
        "track/rollout_table.py:select_rows ui/read_files.py:insert_problems ui/open_run.py:OpenRun.find_question"
    ),
    "It counts answers or levels": (
        "evaluate/estimators.py:_majority evaluate/estimators.py:maj_at_k track/base.py:checked_evaluation "
        "track/tracker.py:Tracker._evaluations_with track/tracker.py:Tracker._scalars "
        "track/tracker.py:Tracker.evaluation track/tracker.py:evaluation_scalars"
    ),
    "It gives the text to the tokenizer": (
        "loop/rendering.py:_is_short models/tiny.py:build_random_model models/tiny.py:build_tiny_model "
        "models/tiny.py:train_tokenizer prompts/render.py:_prompt prompts/render.py:prompt_ids"
    ),
    "It shows the text": (
        "cli/rollouts.py:_print track/figures.py:Axis.x track/figures.py:_series track/page.py:_show_interval "
        "track/svg.py:_text track/templates/macros.html:root.<locals>.macro "
        "track/templates/run_parts.html:root.<locals>.macro ui/response.py:read_strip ui/response_pages.py:_facet "
        "ui/response_pages.py:_narrow ui/response_pages.py:group_place"
    ),
    "It gives the text to the verifier": (
        "cli/data.py:peek.<locals>.same ui/response.py:_verify ui/response.py:explain_verdict"
    ),
}
"""By the reason: functions that get foreign text, and do nothing with it that depends on its characters."""

NUMBER = 400
SAMPLE = 16
LITTLE_S = 0.01
"""A square would take more than this at the lengths that are tested."""
MOST_GROWTH = 9.0
"""For four times the length: 4 where the time grows with the length, 16 with its square."""


def cpu_s(reader: Reader, text: str, *, times: int = 1) -> float:
    """The median of the CPU seconds of so many calls."""
    seconds = list[float]()
    for _ in range(times):
        begin = time.process_time()
        reader(text)
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def growth(reader: Reader, pattern: Pattern, size: int) -> float:
    """By how much the time grows from a quarter of the size to the size; 0 if it is little."""
    grown = 0.0
    for times in (1, 5, 15):  # next to other work, a single look can mislead
        long = cpu_s(reader, pattern(size), times=times)
        if long < LITTLE_S or (grown := long / max(cpu_s(reader, pattern(size // 4), times=times), 1e-6)) < MOST_GROWTH:
            return 0.0
    return grown


def too_slow(reader: Reader, chosen: list[Pattern], sizes: tuple[int, ...]) -> list[str]:
    """The patterns on which the time grows too fast. A size is tried if the one before it was not too slow."""
    found = list[str]()
    for pattern in chosen:
        for size in sizes:
            if (grown := growth(reader, pattern, size)) > MOST_GROWTH:
                found.append(f"{pattern(30)!r:.60} x {grown:.0f} at {size}")
                break
    return found


@pytest.mark.parametrize("name", READERS)
def test_reading_takes_a_time_that_grows_with_the_length(name: str):
    step, every = list(READERS).index(name) * SAMPLE, list(patterns(NUMBER))
    chosen = [every[(step + index) % NUMBER] for index in range(SAMPLE)]
    assert too_slow(READERS[name], chosen, (2_000, 8_000)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_reading_takes_a_time_that_grows_with_the_length_on_every_pattern(name: str):
    assert too_slow(READERS[name], list(patterns(NUMBER)), (2_000, 8_000, 32_000, 128_000)) == []


@pytest.mark.parametrize("opening", ["\\[", "\\(", "\\begin{a}", "$$x", "```x", "\\boxed{", "`x", "<|x", "$x "])
def test_openings_that_nothing_closes_cost_no_look_at_all_that_follows(opening: str):
    assert too_slow(READERS["windows of words"], [lambda size: opening * (size // len(opening))], (2_000, 8_000)) == []


def test_a_cube_is_found():
    """Its growth is 64. A square has 16, which other work on the machine can hide."""

    def read(text: str) -> None:
        for at in range(len(text)):
            for _ in range(len(text) // 20):
                re.search("(?:a|aa)b", text[at:])

    assert too_slow(read, [lambda size: "a" * size], (600,))


def compiled_patterns() -> Iterator[tuple[str, str, int]]:
    """The regular expressions of the package: constants of its modules, and arguments of `re` in its functions."""
    for file in sorted(FOLDER.rglob("*.py")):
        name = ".".join(file.relative_to(FOLDER.parent).with_suffix("").parts)
        if "math_answer" in name or "re." not in (source := file.read_text(encoding="utf-8")):
            continue
        composed = False
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[ast.Constant(value=str(pattern)), *_]):
                    yield name, pattern, 0
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="compile")):
                    composed = True
        if composed:
            values = vars(importlib.import_module(name)).values()
            yield from ((name, each.pattern, each.flags) for each in chain(*map(patterns_in, values)))


def patterns_in(value: Any) -> list[re.Pattern[str]]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [each for item in value for each in patterns_in(item)]
    return [value] if isinstance(value, re.Pattern) else []


def test_no_expression_has_neighbouring_repeats_that_match_the_same_character():
    offenders = {
        (module, pattern) for module, pattern, flags in compiled_patterns() if has_neighbouring_repeats(pattern, flags)
    }
    assert offenders == set()


@pytest.mark.parametrize(
    ("pattern", "has"),
    [
        *(
            (r"\s*\s+x", True),
            (r"\s*(?:a?)\s*x", True),
            (r"(a+)+x", True),
            (r"\d*[.]?\d+", True),
        ),
        *(
            (r"\s*+\s*x", False),
            (r"\s*x\s*", False),
            (r"\d+(?:\.\d+)?", False),
            (r"[^a]*a*", False),
            (r"(?:,\d+)+", False),
        ),
    ],
)
def test_neighbouring_repeats_are_told_from_others(pattern: str, has: bool):
    assert has_neighbouring_repeats(pattern) == has


SAID = (
    f"{MARKER} 2+3=5\n```python\ndef f(x): return '{MARKER}'\n```\n<calc>{MARKER}</calc> <answer>{MARKER}</answer> $x$ "
    f"\\boxed{{{MARKER}}}"
)
ROW = {
    "question": f"{MARKER} 2 + 3?",
    "answer": f"{MARKER} or 5",
    "solution": f"{MARKER} 2+3=5 #### 5",
    "level": f"{MARKER}",
    "tests": ["assert f(2) == 4"],
    "nums": [2, 3],
    "target": 5,
    "steps": [[2, "+", 3, 5]],
}
REWARDS = {
    "format": {},
    "language": {},
    "repetition": {},
    "countdown": {},
    "exact_steps": {},
    "code_tests": {"tolerance": 0.1},
}


def train_on_marked_texts(folder: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose problems, responses, observations and judge's replies have the marker."""
    decode = PreTrainedTokenizerBase.decode
    monkeypatch.setattr(PreTrainedTokenizerBase, "decode", lambda *given, **more: decode(*given, **more) + SAID)
    with ChatServer(lambda request: f"{MARKER}\nINCORRECT") as server:
        judge = {"url": server.url, "model": "m", "rules_first": False}
        changes = {
            "data": {
                "train": {"source": "jsonl", "path": str(rows), "split": "train"},
                "heldout": {"source": "jsonl", "path": str(rows), "split": "train"},
            },
            "environment": {"name": "calculator", "turns": 2},
            "rewards": {"math_answer": {}, "judge": judge, **REWARDS},
            "rollout": {"prompts_per_step": 1, "samples_per_prompt": 2, "max_response_tokens": 8},
            "sft": {"steps": 0},
            "train": {"steps": 1},
            "evaluate": {"every": 1, "problems": 1, "samples_per_prompt": 2, "k": 2},
            "save": {"tensorboard": False},
        }
        recipe = toy(folder, changes)
        recipe["data"]["train"].pop("count", None)
        for part in ("train", "heldout"):
            recipe["data"][part] = changes["data"][part]
        run = run_pipeline(check(recipe))
    monkeypatch.setattr(PreTrainedTokenizerBase, "decode", decode)
    return run


def view(run: Path, cache: Path) -> None:
    """Every page about responses of the run in the viewer."""
    pytest.importorskip("duckdb", reason="the extra ui is not installed")
    from starlette.testclient import TestClient

    from ansatz.ui.app import build_app
    from ansatz.ui.library import Library

    viewer = TestClient(build_app(Library([run.parent], cache=cache), token="", hosts=["testserver"]))
    pages = ["", "/rollouts", "/problems", "/step/rl/1", "/group/rl/1/0", "/rollout/rl/1/0/0", "/recipe", "/logs"]
    for page in pages:
        assert viewer.get(f"/run/{run.name}{page}").status_code == 200, page


@pytest.mark.slow
def test_foreign_text_reaches_no_function_that_is_not_measured(tmp_path: Path, ansatz: Any, monkeypatch: Any):
    samples = (f"{MARKER} 5 $x$", f"<tool_call>{MARKER}", f"[f(a='{MARKER}')]", f"{MARKER} \\boxed{{5}}.\n", SAID)
    measured = functions_with_marker(lambda: [reader(text) for reader in READERS.values() for text in samples])
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW) + "\n")
    runs = list[Path]()

    def everything() -> None:
        runs.append(train_on_marked_texts(tmp_path, rows, monkeypatch))
        write_report(runs[0])
        view(runs[0], tmp_path / "cache")
        for verb in ("check", "peek", "topics"):
            ansatz("data", verb, rows)
        for verb in ("filter", "dedup", "normalize"):
            ansatz("data", verb, rows, "--out", tmp_path / f"{verb}.jsonl")
        ansatz("rollouts", runs[0])

    reached = functions_with_marker(everything)
    assert reached & measured
    assert sorted(reached - measured - set(" ".join(HAND_ON.values()).split())) == []

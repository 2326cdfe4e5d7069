"""Runs whose environment writes half characters: they end, also after a kill, and what was wrong can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toy_runs import command, kill_in, toy_recipe

from ansatz.track.jsonl import read_jsonl

pytestmark = pytest.mark.e2e
HALVES = f"{Path(__file__).parents[1] / 'environments' / 'halves.py'}:Halves"


@pytest.mark.parametrize("form", [pytest.param("text", marks=pytest.mark.slow), "messages"])
def test_half_characters_of_an_environment_end_neither_a_run_nor_its_resume(tmp_path: Path, form: str) -> None:
    recipe = toy_recipe(
        tmp_path,
        {
            "data": {"template": "chat" if form == "messages" else "tiny", "sft": None},
            "sft": None,
            "environment": {"name": HALVES, "turns": 4, "in_messages": form == "messages"},
            "rewards": {"environment": {}, "format": {}},
            "rollout": {"max_response_tokens": 96, "max_prompt_tokens": 400},
        },
        without="sft",
    )
    stage = tmp_path / "runs" / "toy" / "rl"
    kill_in(stage, after=2, arguments=["train", recipe])
    code, out, err = command("train", "--resume", stage.parent)
    assert code == 0, out + err
    texts = [row["text"] for path in sorted(stage.rglob("*.jsonl")) for row in read_jsonl(path) if "text" in row]
    assert any("ValueError: no \\ud83d" in text for text in texts)
    assert any("(its text cannot be read)" in text for text in texts)
    assert any(re.search(r"\\ud83d\d", text) for text in texts)

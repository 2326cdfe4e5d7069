"""Chat files in a run: which responses of a conversation SFT teaches."""

import io
import json
from functools import partial

import pytest
from toy_runs import toy_config

from ansatz.loop.pipeline import run_pipeline
from ansatz.track.console import PlainConsole
from ansatz.track.jsonl import read_jsonl

CHAT = [
    {"role": "user", "content": "What is 1 + 1?"},
    {"role": "assistant", "content": "It is \\boxed{2}."},
    {"role": "user", "content": "And 2 + 2?"},
    {"role": "assistant", "content": "It is \\boxed{4}."},
]


@pytest.mark.parametrize(
    ("settings", "responses", "taught", "notes"),
    [({}, "last", 6, 1), ({"each_response": True}, "last", 10, 0), ({}, "all", 6, 0)],
)
def test_earlier_responses_are_taught_on_request_and_otherwise_named_on_the_console(
    tmp_path, settings, responses, taught, notes
):
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": CHAT[2 * (n % 3 == 0) :]}) + "\n" for n in range(6)))
    sft = {"source": "jsonl", "split": "train", "path": str(file), **settings}
    changes = {"data": {"template": "chat", "sft": None}, "train": {"steps": 1}, "sft": {"steps": 1, "batch_size": 6}}
    config = toy_config(tmp_path, {**changes, "evaluate": {"problems": 1}})
    section = config.sft.model_copy(update={"responses": responses})
    config = config.model_copy(update={"data": config.data.model_copy(update={"sft": sft}), "sft": section})
    out = io.StringIO()
    folder = run_pipeline(config, console=PlainConsole(partial(print, file=out), every_s=0))
    rows = list(read_jsonl(folder / "problems" / "sft.jsonl"))
    assert len(rows) == taught
    (row,) = read_jsonl(folder / "sft" / "metrics.jsonl")
    assert row["train/tokens"] == 7 * (10 if responses == "all" else 6)
    assert out.getvalue().count("4 of 6 rows are conversations with earlier responses") == notes

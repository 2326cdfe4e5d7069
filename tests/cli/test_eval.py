"""`ansatz eval` and `ansatz compare` without a model: tables of folders that are already complete."""

from __future__ import annotations

import json

import pytest

from ansatz.evaluate.responses import MODES

SETTINGS = {
    "format_version": 3,
    "suite": {"name": "made [/i] up", "as_on_card": True},
    "num_problems": 2,
    "samples_per_prompt": 1,
    "temperature": 0.7,
    "seed": 0,
}


@pytest.fixture
def evaluation(tmp_path):
    """A function that writes an evaluation of two problems whose level, subject and id look like rich's markup."""

    def write(name, *answers):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        rows = []
        for index, answer in enumerate(answers):
            row = {"id": f"[/b]{index}", "sample": 0, "level": "[/b]", "subject": "[red]", "question": "[/u]?"}
            row |= {"answer": "5", "response": f"\\boxed{{{answer}}}", "tokens": 3, "finish": "stop"}
            verdict = {"correct": answer == "5", "reason": "equal" if answer == "5" else "different"}
            rows.append({**row, "verdicts": {mode: {**verdict, "extracted": answer} for mode in MODES}})
        (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return write


def test_names_with_brackets_are_printed_as_they_are(ansatz, evaluation):
    a, b = evaluation("a", "5", "7"), evaluation("[b", "5", "5")
    code, out, err = ansatz("eval", "--rescore", a)
    assert (code, err) == (0, "")
    assert "made [/i] up: 2 problems x 1" in out
    assert "[/b]: 50.0 [0.3, 99.7] of 2 problems" in out
    assert "[red]: 50.0" in out
    code, out, err = ansatz("compare", a, b)
    assert (code, err) == (0, "")
    assert all(text in out for text in ("[/b]", "[red]", "[/b]1", "[/u]?", "[b"))


@pytest.mark.parametrize("words", ["--rewards countdown", "--temperature 0.7", "--out x", "--problems 3", "--suite a"])
def test_what_has_no_effect_on_grading_again_is_refused(ansatz, words):
    code, _, err = ansatz("eval", "--rescore", "somewhere", *words.split())
    assert code == 2
    assert f"Leave out {words.split()[0]}." in err

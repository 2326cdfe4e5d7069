"""One reader for the responses of every command and format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from made_up import make_pipeline, problem, scored, stored_group

from ansatz.errors import DataError
from ansatz.evaluate.responses import from_row, response_of, to_row
from ansatz.track.filters import Kind
from ansatz.track.jsonl import write_jsonl
from ansatz.track.rollout_rows import StoredGroup, rollout_row
from ansatz.track.rollout_table import FIELDS, KINDS, find_rollout_files, read_all
from ansatz.track.tracker import Tracker
from ansatz.types import Finish, Reason, problem_row

HARD, EASY = problem(index=4, level="3"), problem(index=9)
GROUPS = [
    [scored(HARD, text="é \u2028 12"), scored(HARD, sample=1, reward=0.0)],
    [scored(EASY, reason=Reason.TRUNCATED, finish=Finish.LENGTH, reward=0.5), scored(EASY, sample=1)],
]


def test_every_field_has_a_kind_that_filters_know_and_a_meaning():
    assert set(KINDS.values()) == set(get_args(Kind))
    assert all(isinstance(meaning, str) and meaning for _, meaning in FIELDS.values())


def test_rows_of_a_step_know_their_group_and_their_problem(tmp_path: Path):
    tracker = Tracker(tmp_path / "rl", console=None, tensorboard=False, total_steps=1)
    tracker.samples(3, [stored_group(*GROUPS[0]), StoredGroup(group=stored_group(*GROUPS[1]).group)])
    rows = read_all(tmp_path)
    assert [row["id"] for row in rows] == ["rl/3/0/0", "rl/3/0/1", "rl/3/1/0", "rl/3/1/1"]
    assert [row["group.mean"] for row in rows] == [0.5, 0.5, 0.75, 0.75]
    assert [row["level"] for row in rows] == ["3", "3", "2", "2"]
    assert [row["used"] for row in rows] == [True, True, False, False]
    assert [row["advantage"] for row in rows] == [0.5, 0.5, None, None]
    assert [row["truncated"] for row in rows] == [False, False, True, False]
    assert rows[0]["text"] == "é \u2028 12"
    assert rows[0]["answer"] == "12"
    assert FIELDS.keys() <= rows[0].keys()


def test_evaluations_find_their_problems_and_responses_of_other_commands_bring_them(tmp_path: Path):
    write_jsonl(tmp_path / "problems" / "heldout.jsonl", [problem_row(problem(index=4, level="5"))])
    place = {"group": "rl/8/heldout/0", "noise_step": 0}
    responses = [rollout_row(scored(problem(index=4)), **place, temperature=each) for each in (1.0, 0.0)]
    write_jsonl(tmp_path / "rl" / "evaluations" / "heldout-000008.jsonl", responses)
    rollout = scored(problem(index=6, level="4"))
    verdicts = {"strict": rollout.score.verdict, "last_number": rollout.score.verdict}
    stored = [to_row(response_of(rollout.rollout, verdicts))]
    write_jsonl(tmp_path / "rejection_1" / "responses" / "rollouts.jsonl", stored)
    rows = {row["id"]: row for row in read_all(tmp_path)}
    assert list(rows) == ["rejection_1/0/responses/0/0", "rl/8/heldout/0/0", "rl/8/heldout/0/greedy"]
    assert [row["level"] for row in rows.values()] == ["4", "5", "5"]
    assert [row["greedy"] for row in rows.values()] == [False, False, True]
    assert rows["rejection_1/0/responses/0/0"]["parts"] == {"strict": 1.0, "last_number": 1.0}
    assert [row["group.size"] for row in rows.values()] == [1, 1, 1]


def test_several_gold_answers_are_one_text_that_the_verifier_reads(tmp_path: Path):
    """In training, evaluations and responses of other commands alike: rows are graded again with it."""
    several = replace(problem(index=4), answers=("1/2", "0.5"))
    write_jsonl(tmp_path / "problems" / "heldout.jsonl", [problem_row(several)])
    tracker = Tracker(tmp_path / "rl", console=None, tensorboard=False, total_steps=1)
    tracker.samples(3, [stored_group(scored(several), scored(several, sample=1))])
    row = rollout_row(scored(several), group="rl/8/heldout/0", noise_step=0, temperature=1.0)
    write_jsonl(tmp_path / "rl" / "evaluations" / "heldout-000008.jsonl", [row])
    verdicts = {"strict": scored(several).score.verdict}
    response = response_of(scored(several).rollout, verdicts)
    stored = [to_row(response)]
    assert stored[0]["answer"] == ["1/2", "0.5"]  # which `ansatz score` reads
    assert from_row(stored[0], where="here").answer == response.answer
    write_jsonl(tmp_path / "rejection_1" / "responses" / "rollouts.jsonl", stored)
    assert {row["answer"] for row in read_all(tmp_path)} == {'["1/2", "0.5"]'}


def test_a_line_that_was_cut_off_is_left_out_and_a_row_that_nothing_writes_is_named(tmp_path: Path):
    run = make_pipeline(tmp_path / "run", sft_steps=2, rl_steps=2)
    path = find_rollout_files(run)[0].path
    before = len(read_all(run))
    path.write_text(path.read_text()[:-40])
    assert len(read_all(run)) == before - 1
    path.write_text('{"id": "rl/1/0/0", "group": 0, "finish": 3}\n')
    with pytest.raises(DataError, match=r"step-000001\.jsonl: a row that nothing writes"):
        read_all(run)
    for row in (
        '{"id": "a", "verdicts": {}}',
        '{"verdicts": {"strict": {}}}',
        '{"id": [], "sample": 0, "verdicts": {}}',
    ):
        (tmp_path / "store").mkdir(exist_ok=True)
        (tmp_path / "store" / "rollouts.jsonl").write_text(row + "\n")
        with pytest.raises(DataError, match=r"rollouts\.jsonl: a row that nothing writes"):
            read_all(tmp_path / "store")


def test_a_folder_without_responses_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="stores no responses"):
        read_all(tmp_path)

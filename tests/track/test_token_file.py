"""The file of tokens: what is written is read, and what was changed is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up import scored, stored_group

from ansatz.errors import DataError
from ansatz.track.jsonl import read_jsonl
from ansatz.track.token_file import RECORD, RECORD_BYTES, TokenFacts, read_tokens, write_tokens
from ansatz.track.tracker import Tracker

FACTS = TokenFacts([5, 6], [1, 3], [-8.0, -0.5], [-8.001, -0.25], [-7.901, -0.5], [0.25, 2.0])
FORCED = TokenFacts(
    [7, 8, 9],
    [1, 2, 3],
    behavior=[-1.0, 0.0, -1.0],
    before=[-1.0, 0.0, -1.0],
    after=[-2.0, 9.0, -1.0],
    entropies=[0.5, 0.0, 1.0],
    reference=[-1.5, -4.0, -1.0],
    sampled=[True, False, True],
)


def test_differences_keep_three_digits_and_a_forced_token_has_none(tmp_path: Path):
    write_tokens(tmp_path / "a.npy", [FACTS, FORCED])
    first, second = read_tokens(tmp_path / "a.npy", 0, 2), read_tokens(tmp_path / "a.npy", 2, 5)
    assert first["id"].tolist() == [5, 6]
    assert first["end"].tolist() == [1, 3]
    assert first["d_behavior"] == pytest.approx([-0.001, 0.25], rel=1e-3)
    assert first["d_after"] == pytest.approx([0.1, -0.25], rel=1e-3)
    assert second["d_after"].tolist() == [-1.0, 0.0, 0.0]
    assert second["sampled"].tolist() == [1, 0, 1]
    assert first["entropy"].tolist() == [0.25, 2.0]
    assert np.isnan(first["d_ref"]).all()
    assert second["d_ref"].tolist() == [0.5, 0.0, 0.0]
    assert first.dtype.itemsize == RECORD_BYTES


def test_what_an_earlier_run_did_not_store_is_not_known(tmp_path: Path):
    write_tokens(tmp_path / "a.npy", [FACTS])
    records = np.load(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", records[list(records.dtype.names[:6])].astype(RECORD[:6]))
    found = read_tokens(tmp_path / "b.npy", 0, 2)
    assert found["d_after"].tolist() == records["d_after"].tolist()
    assert np.isnan(found["entropy"]).all()


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    path = tmp_path / "a.npy"
    write_tokens(path, [FACTS])
    for start, stop in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(DataError, match="does not hold the tokens"):
            read_tokens(path, start, stop)
    np.save(path, np.zeros(4))
    with pytest.raises(DataError, match="does not hold"):
        read_tokens(path, 0, 2)
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match="does not hold"):
        read_tokens(path, 0, 1)
    with pytest.raises(DataError, match="cannot be read"):
        read_tokens(tmp_path / "missing.npy", 0, 1)


def test_rows_say_where_their_tokens_are(tmp_path: Path):
    tracker = Tracker(tmp_path / "rl", console=None, tensorboard=False, total_steps=1)
    watched = stored_group(scored(), scored(sample=1))
    plain = stored_group(scored())
    watched = replace(watched, tokens=[FACTS, FORCED])
    tracker.samples(1, [plain, watched])
    rows = read_jsonl(tmp_path / "rl" / "samples" / "step-000001.jsonl")
    assert [row["tokens_at"] for row in rows] == [None, [0, 2], [2, 5]]
    tracker.resume(0)
    assert list((tmp_path / "rl" / "samples").iterdir()) == []


def test_tokens_that_cannot_be_written_are_an_event_and_responses_stay(tmp_path: Path):
    tracker = Tracker(tmp_path / "rl", console=None, tensorboard=False, total_steps=1)
    group = stored_group(scored())
    (tmp_path / "rl" / "samples" / "step-000001.tokens.npy").mkdir(parents=True)
    tracker.samples(1, [replace(group, tokens=[FACTS])])
    (row,) = read_jsonl(tmp_path / "rl" / "samples" / "step-000001.jsonl")
    assert row["tokens_at"] is None
    (event,) = read_jsonl(tmp_path / "rl" / "events.jsonl")
    assert event["kind"] == "not_stored"

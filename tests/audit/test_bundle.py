"""The folder of a step bundle: what is written comes back, and what is not a bundle is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ansatz.audit.bundle import ARRAYS, TEXT, Bundle, read_bundle, write_bundle
from ansatz.errors import DataError


def bundle(**arrays: np.ndarray) -> Bundle:
    given = {
        "token_T": np.array([5, 6, 7, 5, 8]),
        "segment_T": np.array([0, 0, 0, 1, 1]),
        "prompt_length_N": np.array([1, 1]),
        "reward_N": np.array([1.0, 0.0], np.float32),
    }
    texts = ({"response": "one"}, {"response": "two"})
    return Bundle(project="trl", version="1.16.0", step=3, arrays=given | arrays, options={"beta": 0.0}, rollouts=texts)


def test_what_is_written_comes_back(tmp_path: Path):
    write_bundle(tmp_path, bundle(sampled_mask_T=np.array([False, True, True, False, True])))
    found = read_bundle(tmp_path)
    assert (found.project, found.step, found.options) == ("trl", 3, {"beta": 0.0})
    assert found.rollouts[1] == {"response": "two"}
    assert found.arrays["sampled_mask_T"].tolist() == [False, True, True, False, True]
    assert found.response_T.tolist() == [False, True, True, False, True]
    assert "old_logp_T" not in found
    assert found.get("old_logp_T") is None  # unknown, which is not zero


def test_an_array_that_was_changed_is_noticed(tmp_path: Path):
    write_bundle(tmp_path, bundle())
    other = tmp_path / "other"
    other.mkdir()
    write_bundle(other, bundle(reward_N=np.array([0.0, 1.0], np.float32)))
    (other / ARRAYS).rename(tmp_path / ARRAYS)
    with pytest.raises(DataError, match="reward_N has another digest"):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2, expected 1"),
        ({"options": []}, "options is"),
        ({"rollouts": [3, 4]}, "rollouts is"),
        ({"arrays": {}}, "different arrays"),
        ({"step": "3"}, "step is '3'"),
    ],
)
def test_a_text_that_is_no_bundle_is_refused(tmp_path: Path, change: dict[str, object], words: str):
    write_bundle(tmp_path, bundle())
    about = json.loads((tmp_path / TEXT).read_text())
    (tmp_path / TEXT).write_text(json.dumps(about | change))
    with pytest.raises(DataError, match=words):
        read_bundle(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5000])
def test_a_damaged_text_is_refused(tmp_path: Path, text: str):
    write_bundle(tmp_path, bundle())
    (tmp_path / TEXT).write_text(text)
    with pytest.raises(DataError):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"reward_N": np.zeros(3)}, "3 entries on axis N"),
        ({"old_logp_T": np.zeros(4)}, "4 entries on axis T"),
        ({"reward": np.zeros(2)}, "ends with its axes"),
        ({"component_NK": np.zeros(2)}, "ends with its axes"),
        ({"segment_T": np.array([0, 0, 0, 1, 2])}, "from 0 to 1"),
        ({"segment_T": np.array([1, 0, 0, 1, 1])}, "ascending"),
        ({"microbatch_N": np.array([2**31, 0])}, "microbatch_N must be integers from -1 to 5"),
        ({"microbatch_N": np.array([0.0, 1.0])}, "microbatch_N must be integers"),
        ({"prompt_length_N": np.array([1.0, 1.0])}, "prompt_length_N must be integers from 0 to inf"),
        ({"prompt_length_N": np.array([-1, 1])}, "prompt_length_N must be integers"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: str):
    with pytest.raises(DataError, match=words):
        write_bundle(tmp_path, bundle(**arrays))

"""What trainer ranks exchange: the same values, as bytes that hold no code."""

from __future__ import annotations

import errno
import math
import pickle
from typing import Any

import pytest
import torch

from ansatz.track.measurements import Measurement
from ansatz.train.process_ranks import decode, encode


@pytest.mark.parametrize(
    "value",
    [
        None,
        (0.1 + 0.2, [{"train/loss": Measurement(1e-310, 3.0)}, {}]),
        [math.inf, -math.inf, -0.0, 2**70, True, "ü\ud800"],
        [],
        {"tensor": {"list": ()}},
    ],
)
def test_values_come_back_as_they_were(value: Any):
    back = decode(encode(value))
    assert repr(back) == repr(value)


def test_tensors_come_back_bit_for_bit():
    value = [
        (torch.tensor([3, 1]), torch.tensor([0.1, math.nan])),
        (torch.zeros(0, dtype=torch.long), torch.ones(2, 3)),
    ]
    for (left, right), (left_back, right_back) in zip(value, decode(encode(value)), strict=True):
        assert torch.equal(left, left_back)
        assert right.numpy().tobytes() == right_back.numpy().tobytes()
        assert right.dtype == right_back.dtype


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device", "/x"), OSError("odd"), OSError(5, "x")]
)
def test_errors_of_the_disk_come_back_with_their_number_and_file(error: OSError):
    back = decode(encode(error))
    assert (str(back), back.errno, back.filename) == (str(error), error.errno, error.filename)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("code of another rank was run",))


def test_a_pickle_of_another_rank_runs_nothing():
    with pytest.raises(Exception, match=r".") as caught:
        decode(pickle.dumps(Harmful()))
    assert "was run" not in str(caught.value)


def test_what_is_no_data_is_refused():
    with pytest.raises(TypeError, match="and not Harmful"):
        encode([Harmful()])

"""The ranks of torch's process group, and the values that they exchange, as bytes that hold data and no code.

The bytes are JSON, and safetensors for tensors. A pickle would run whatever its sender wants, and the connections
between ranks have no key.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from ansatz.track.measurements import Measurement

T = TypeVar("T")
_LENGTH = struct.Struct(">Q")


class ProcessGroupRanks:
    """The ranks of torch's default process group, which the caller has initialised."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = "cuda" if dist.get_backend() == "nccl" else "cpu"  # NCCL alone moves no tensors of the CPU

    def gather(self, value: T) -> list[T]:
        data_B = torch.frombuffer(bytearray(encode(value)), dtype=torch.uint8).to(self._device)
        length_R = [torch.zeros(1, dtype=torch.long, device=self._device) for _ in range(self.size)]
        dist.all_gather(length_R, torch.tensor([len(data_B)], device=self._device))
        longest = max(int(length) for length in length_R)
        padded_RB = [data_B.new_zeros(longest) for _ in range(self.size)]
        dist.all_gather(padded_RB, torch.cat([data_B, data_B.new_zeros(longest - len(data_B))]))
        return [
            decode(padded_B[: int(length)].cpu().numpy().tobytes())
            for padded_B, length in zip(padded_RB, length_R, strict=True)
        ]


def encode(value: Any) -> bytes:
    """Encode None, numbers, texts, lists, tuples, dicts with texts as keys, tensors, measurements and OSErrors, nested.

    Raise TypeError for anything else.

    Example: `decode(encode({"loss": 0.5})) == {"loss": 0.5}`.
    """
    tensors = dict[str, Tensor]()
    text = json.dumps(_to_json(value, tensors)).encode()
    return _LENGTH.pack(len(text)) + text + save(tensors)


def decode(data: bytes) -> Any:
    """Return the value that was given to `encode`."""
    (length,) = _LENGTH.unpack_from(data)
    start, end = _LENGTH.size, _LENGTH.size + length
    return _from_json(json.loads(data[start:end]), load(data[end:]))


def _to_json(value: Any, tensors: dict[str, Tensor]) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Tensor():
            name = str(len(tensors))
            tensors[name] = value.detach().cpu().contiguous().clone()
            return {"tensor": name}
        case Measurement():
            return {"measurement": [value.total, value.weight]}
        case OSError():
            whole = [value.errno, value.strerror, None if value.filename is None else str(value.filename)]
            return {"os_error": [str(value)] if value.errno is None else whole}
        case list() | tuple():
            return {type(value).__name__: [_to_json(each, tensors) for each in value]}
        case Mapping() if all(isinstance(key, str) for key in value):
            return {"dict": [[key, _to_json(each, tensors)] for key, each in value.items()]}
        case _:
            raise TypeError(f"trainer ranks exchange plain data, and not {type(value).__name__}")


def _from_json(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "measurement":
            total, weight = content
            return Measurement(total, weight)
        case "os_error":
            return OSError(*(content if len(content) == 1 or content[2] is not None else content[:2]))
        case "list":
            return [_from_json(each, tensors) for each in content]
        case "tuple":
            return tuple(_from_json(each, tensors) for each in content)
        case "dict":
            return {key: _from_json(each, tensors) for key, each in content}
        case _:
            raise ValueError(f"{kind!r} is not a kind of plain data")

"""The trainer's side of a push: weights published under a tag, and handed to a running engine."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from safetensors.torch import save_file
from torch import Tensor

from ansatz.rollout.vllm.engine import Engine, EngineLost

Transfer = Literal["file", "ipc", "nccl"]


class Publisher(Protocol):
    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        """From now on these weights, under this tag, are the ones to push."""
        ...

    def push(self, engine: Engine) -> None:
        """Hands the published weights over. EngineLost where that fails: the engine may be half updated."""
        ...

    def close(self) -> None: ...


class FilePublisher:
    """Weights as a safetensors file that the engine reads; the last one stays, for an engine that starts anew.

    folder: must be seen by the engine under the same name; a fresh one is made in it.
    """

    def __init__(self, folder: str) -> None:
        memory = Path("/dev/shm")
        where = folder or (str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None)
        self._folder = Path(tempfile.mkdtemp(prefix="ansatz-weights-", dir=where))
        self._path, self._tag = Path(), ""

    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        path, unfinished = self._folder / f"{tag}.safetensors", self._folder / "unfinished"
        save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, unfinished)
        unfinished.rename(path)
        for old in self._folder.glob("*.safetensors"):
            if old != path:
                old.unlink()
        self._path, self._tag = path, tag

    def push(self, engine: Engine) -> None:
        engine.init_weight_transfer_engine({})
        engine.start_weight_update()
        engine.update_weights({"path": str(self._path)})
        engine.finish_weight_update(self._tag)
        settle(engine, self._tag)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class DevicePublisher:
    """Weights from GPU to GPU by vLLM's own trainer side: `ipc` on one GPU, `nccl` between them. Never run by a test.

    Nothing is copied: an engine that starts anew is given what the trainer's tensors then hold.
    """

    def __init__(self, transfer: Literal["ipc", "nccl"]) -> None:
        self._transfer: Literal["ipc", "nccl"] = transfer
        self._weights: Mapping[str, Tensor] = {}
        self._tag = ""

    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        self._weights, self._tag = weights, tag

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """What vLLM's `ModuleSource` asks a module for."""
        return self._weights.items()

    def push(self, engine: Engine) -> None:
        base = importlib.import_module("vllm.distributed.weight_transfer.base")
        factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
        side = importlib.import_module(f"vllm.distributed.weight_transfer.{self._transfer}_engine")
        if self._transfer == "ipc":
            how = side.IPCTrainerInitInfo(rank=0)
        else:
            how = side.NCCLTrainerInitInfo("127.0.0.1", _free_port(), 2, rank=0)
        sender = factory.WeightTransferTrainerFactory.trainer_init(
            how, client=_Tagged(engine, self._tag), source=base.ModuleSource(self)
        )
        sender.send_weights()
        sender.shutdown()
        settle(engine, self._tag)

    def close(self) -> None:
        self._weights = {}


class _Tagged:
    """The engine as vLLM's trainer side calls it, which finishes an update without a version."""

    def __init__(self, engine: Engine, tag: str) -> None:
        self._engine, self._tag = engine, tag

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._engine.finish_weight_update(weight_version or self._tag)


def settle(engine: Engine, tag: str) -> None:
    """The end of every push: nothing of the old weights is left in the cache, and the engine names the new ones."""
    if not engine.reset_prefix_cache():
        raise EngineLost("the prefix cache, computed with older weights, could not be reset")
    if (found := engine.weight_version()) != tag:
        raise EngineLost(f"after a push of weights {tag} the engine says that it has {found}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]

"""The trainer's side of a weight push: weights are published under a tag, then pushed to a running engine."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from safetensors.torch import save_file
from torch import Tensor

from ansatz.locks import LOCK_FILE
from ansatz.rollout.vllm.engine import Engine, EngineLost
from ansatz.rollout.vllm.processes import free_port

_PREFIX = "ansatz-weights-"


class Publisher(Protocol):
    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        """Make these weights, under this tag, the ones that `push` sends."""
        ...

    def push(self, engine: Engine) -> None:
        """Send the published weights. Raise EngineLost if that fails, because the engine may be half updated."""
        ...

    def close(self) -> None: ...


class FilePublisher:
    """Writes the weights to a safetensors file that the engine reads. The last file stays, for an engine that restarts.

    folder: a new folder is created in it. The engine must see it under the same path. Empty: /dev/shm if it is
    writable, otherwise the temporary folder. Folders there that killed processes have left behind are removed: a lock
    on the file `.lock` says that a folder is in use, and the kernel releases it when the process ends.
    """

    def __init__(self, folder: str) -> None:
        memory = Path("/dev/shm")
        parent = folder or (str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None)
        _remove_abandoned(Path(parent or tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._lock = (self._folder / LOCK_FILE).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
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
        confirm_push(engine, self._tag)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of publishers whose processes have ended. Folders of others or without a lock file stay."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if (about := folder.lstat()).st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode):
                continue  # without this, a pipe of somebody else as its lock would be waited for without end
            with (folder / LOCK_FILE).open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


class DevicePublisher:
    """Sends weights from GPU to GPU with vLLM's own trainer side: `ipc` on one GPU, `nccl` between GPUs. Untested.

    Nothing is copied: an engine that restarts receives the trainer's tensors at that time.
    """

    def __init__(self, transfer: Literal["ipc", "nccl"]) -> None:
        self._transfer: Literal["ipc", "nccl"] = transfer
        self._weights: Mapping[str, Tensor] = {}
        self._tag = ""

    def publish(self, weights: Mapping[str, Tensor], *, tag: str) -> None:
        self._weights, self._tag = weights, tag

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """Yield the names and tensors, under the name of the method that vLLM's `ModuleSource` calls."""
        return self._weights.items()

    def push(self, engine: Engine) -> None:
        base = importlib.import_module("vllm.distributed.weight_transfer.base")
        factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
        side = importlib.import_module(f"vllm.distributed.weight_transfer.{self._transfer}_engine")
        if self._transfer == "ipc":
            init_info = side.IPCTrainerInitInfo(rank=0)
        else:
            init_info = side.NCCLTrainerInitInfo("127.0.0.1", free_port(), 2, rank=0)
        sender = factory.WeightTransferTrainerFactory.trainer_init(
            init_info, client=_Tagged(engine, self._tag), source=base.ModuleSource(self)
        )
        sender.send_weights()
        sender.shutdown()
        confirm_push(engine, self._tag)

    def close(self) -> None:
        self._weights = {}


class _Tagged:
    """An engine that adds the tag to an update, because vLLM's trainer side finishes updates without a version."""

    def __init__(self, engine: Engine, tag: str) -> None:
        self._engine, self._tag = engine, tag

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._engine.finish_weight_update(weight_version or self._tag)


def confirm_push(engine: Engine, tag: str) -> None:
    """Empty the prefix cache and check the tag. Raise EngineLost if either fails. Every push ends with this."""
    if not engine.reset_prefix_cache():
        raise EngineLost("the prefix cache still holds values computed with older weights and could not be reset")
    if (engine_tag := engine.weight_version()) != tag:
        raise EngineLost(f"after a push of weights {tag} the engine reports weights {engine_tag}")

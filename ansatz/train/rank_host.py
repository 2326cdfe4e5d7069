"""The host of a trainer rank: a trainer that keeps its share of the weights, and its place in the process group.

The trainer is a `LocalTrainer` of a policy, or another with its methods, such as the one of a reward model.

All ranks get the same calls in the same order. All ranks find errors of the user and of a full disk together and return
them as answers. Any other error of a rank ends all of them (`train.rank_group`).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from ansatz.cluster.actor import this_machine
from ansatz.cluster.base import Emit
from ansatz.errors import AnsatzError
from ansatz.links import make_folder, rename
from ansatz.train.fsdp import ShardedPlacement, rank_mesh
from ansatz.train.placement import Placement
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import EarlierWeights, Skipped, StepReport

ADDRESS = "ANSATZ_NODE_ADDRESS"
"""The environment variable for the address of this node as other nodes reach it, if it cannot be found."""


_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The driver's knowledge of the trainer between two calls. It is the same on every rank."""

    version: int
    changes: int
    state: Mapping[str, Any]
    checkpoint_bytes: int
    weights_bytes: int
    published_bytes: int
    needs_greedy: bool
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """The answer of one rank. error: the error of the call, if the driver must raise it too.

    agreed: a value that must be equal on all ranks. own: a value that only one rank knows. peak_gb: its peak memory.
    """

    status: Status
    agreed: Any = None
    own: Any = None
    error: AnsatzError | OSError | None = None
    peak_gb: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSkip:
    """A skipped update that the first rank has stored. error: the reason if it could not be stored."""

    step: int
    cause: str
    folder: Path
    error: OSError | None

    def write(self, folder: Path) -> None:
        """Move the update to its final folder."""
        if self.error is not None:
            raise self.error
        make_folder(folder.parent)
        rename(self.folder, folder)


@dataclass(slots=True)
class RankHost:
    """build: builds the trainer with a placement of its weights. timeout_s: how long ranks wait for each other.

    scratch: a folder that the driver can read; skipped updates are stored there. shard_size: ranks that share one copy
    of the weights; 0: all.
    """

    build: Callable[[Placement], Any]
    scratch: Path
    timeout_s: float
    shard_size: int = 0
    _store: TCPStore | None = None
    _trainer: Any = None
    _batch: Any = None
    _peak_gb: Callable[[], float] = lambda: 0.0
    _skipped: list[StoredSkip] = field(default_factory=list[StoredSkip])

    def machine(self, emit: Emit) -> str:
        return this_machine()

    def open_store(self, is_one_machine: bool, emit: Emit) -> tuple[str, int]:
        """Open the store through which ranks find each other, on the first rank, and return its address. It listens at
        no other address. If all ranks are on one machine, no other machine reaches it."""
        address = _LOOPBACK if is_one_machine else os.environ.get(ADDRESS) or _own_address()
        family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind(place)
        listener.listen()
        port = listener.getsockname()[1]
        self._store = TCPStore(
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=self._timeout,
            master_listen_fd=listener.detach(),
        )
        return address, port

    def join(self, rank: int, size: int, address: tuple[str, int], emit: Emit) -> RankAnswer:
        """Join the process group and build the trainer."""
        store = self._store or TCPStore(*address, is_master=False, timeout=self._timeout)
        if address[0] == _LOOPBACK and sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # its connections carry gradients
        on_gpu = torch.cuda.is_available()
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=self._timeout)
        mesh = rank_mesh("cuda" if on_gpu else "cpu", size=size, shard_size=self.shard_size)
        placement = ShardedPlacement(mesh)
        self._trainer = self.build(placement)
        self._trainer.on_skip = self._store_skipped
        self._peak_gb = self._trainer.watch_memory()
        return self._answer(None)

    def leave(self, emit: Emit) -> None:
        """Leave the process group, so that the process can join another."""
        dist.destroy_process_group()

    def restore(self, folder: Path, state: Mapping[str, Any], emit: Emit) -> RankAnswer:
        return self._call(lambda trainer: trainer.restore(folder, state))

    def save(self, folder: Path, emit: Emit) -> RankAnswer:
        return self._call(lambda trainer: trainer.save(folder))

    def store_weights(self, folder: Path, max_shard_bytes: int, emit: Emit) -> RankAnswer:
        """Store the weights. The first rank's own value is the fingerprint."""
        return self._call(lambda trainer: trainer.store_weights(folder, max_shard_bytes=max_shard_bytes), agreed=False)

    def batch(self, samples: Sequence[TrainSample], baselines: Mapping[int, float], emit: Emit) -> RankAnswer:
        """Build the batch that `check_against` and `update` use."""

        def build(trainer: Any) -> None:
            self._batch = trainer.batch(samples, baseline_of_group=baselines)

        return self._call(build)

    def check_against(self, load: Callable[[], EarlierWeights], step: int, emit: Emit) -> RankAnswer:
        return self._call(lambda trainer: trainer.check_against(load, self._built, step=step))

    def update(self, step: int, seed: int, check_alignment: bool, lr_scale: float, emit: Emit) -> RankAnswer:
        """Make the update. The agreed value is the report; the first rank's own value lists skipped updates."""

        def update(trainer: Any) -> StepReport:
            trainer.set_lr_scale(lr_scale)
            return trainer.update(self._built, step=step, seed=seed, check_alignment=check_alignment)

        self._skipped = []
        return self._call(update)

    def measure_demonstrations(self, samples: Sequence[TrainSample], emit: Emit) -> RankAnswer:
        return self._call(lambda trainer: trainer.measure_demonstrations(samples))

    def token_logps(self, samples: Sequence[TrainSample], of_reference: bool, emit: Emit) -> RankAnswer:
        return self._call(lambda trainer: trainer.token_logps(samples, of_reference=of_reference))

    def response_logps(self, samples: Sequence[TrainSample], temperatures: Sequence[float], emit: Emit) -> RankAnswer:
        return self._call(lambda trainer: trainer.response_logps(samples, temperatures))

    def score_samples(self, samples: Sequence[TrainSample], emit: Emit) -> RankAnswer:
        """Score samples with a reward model. The scores are the first rank's own value."""
        return self._call(lambda trainer: trainer.score_samples(samples), agreed=False)

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_s)

    @property
    def _built(self) -> Any:
        assert self._batch is not None, "a batch comes before its update"
        return self._batch

    def _call(self, function: Callable[[Any], Any], *, agreed: bool = True) -> RankAnswer:
        assert self._trainer is not None, "a rank joins before anything else"
        try:
            value = function(self._trainer)
        except (AnsatzError, OSError) as error:
            return self._answer(None, error=error)
        return self._answer(value) if agreed else self._answer(None, own=value)

    def _answer(self, agreed: Any, *, own: Any = None, error: AnsatzError | OSError | None = None) -> RankAnswer:
        trainer = self._trainer
        assert trainer is not None
        status = Status(
            version=trainer.version,
            changes=trainer.changes,
            state=trainer.state(),
            checkpoint_bytes=trainer.checkpoint_bytes,
            weights_bytes=trainer.weights_bytes,
            published_bytes=trainer.published_bytes,
            needs_greedy=trainer.needs_greedy,
            device=trainer.device.type,
        )
        return RankAnswer(status=status, agreed=agreed, own=own or self._skipped, error=error, peak_gb=self._peak_gb())

    def _store_skipped(self, skipped: Skipped) -> None:
        folder, error = self.scratch / f"skipped-{len(self._skipped)}", None
        try:
            skipped.write(folder)
        except OSError as caught:
            error = caught
        self._skipped.append(StoredSkip(step=skipped.step, cause=skipped.cause, folder=folder, error=error))


def _own_address() -> str:
    """Return the address of this machine on the network that leads to others. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that is reserved for documentation
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]

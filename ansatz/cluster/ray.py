"""Workers as Ray actors, on this machine or on a Ray cluster that runs already. The only file that imports Ray.

Without an address a small Ray is started on this machine: no dashboard, a small object store, and a temporary folder
with a short path, because the names of its sockets may have at most 107 characters. Its processes end with this one,
also when this one is killed: the kernel kills the main processes of Ray and the workers, and a small process of our
own (`cluster.reaper`) kills the others, such as Ray's agents, which would live for another minute.

Ray has habits that this file undoes. It replaces the handler of SIGTERM, which would lose the run's own. It changes
CUDA_VISIBLE_DEVICES of workers without GPUs. Killing an actor reaches neither the processes that it has started nor a
process that is stopped, so processes of this machine are killed as trees, by their ids.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ansatz.cluster.base import Answered, Died, Event, Failed, Joined, Needs, Partial, Role
from ansatz.errors import MissingExtraError, RolloutError

T = TypeVar("T")
_OBJECT_STORE_BYTES = 100 * 2**20
_PR_SET_PDEATHSIG = 1
_CONNECT_S = 5.0
_ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # leave CUDA_VISIBLE_DEVICES of workers without GPUs alone
    "RAY_USAGE_STATS_ENABLED": "0",
}


def check_installed() -> None:
    """MissingExtraError unless Ray and psutil can be imported."""
    for name in ("ray", "psutil"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(
                f"cluster.workers needs the package {name}, which is not installed. Install the extra with: pip "
                "install 'ansatz-rl[ray]', or leave cluster.workers out to run in one process."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of a Ray cluster. resources: the amounts of "CPU", "GPU" and others that Ray may give away there."""

    node_id: str
    address: str
    alive: bool
    resources: dict[str, float]


class _Actor:
    """The process of one worker. Calls run in a thread of their own, and the actor passes on what they emit."""

    def __init__(self, role: Role, *, dies_with_parent: bool) -> None:
        if dies_with_parent and sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="call")
        self._host = self._thread.submit(role.build).result()

    def joined(self) -> int:
        return os.getpid()

    def call(self, method: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
        """("emitted", value) for each value, then ("answered", value) or ("failed", (error, fatal))."""
        messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

        def run() -> None:
            try:
                value = getattr(self._host, method)(*args, lambda item: messages.put(("emitted", item)))
                messages.put(("answered", value))
            except Exception as error:  # whatever a host raises belongs to the caller
                failed = Failed.of("", 0, error)
                messages.put(("failed", (failed.error, failed.fatal)))

        self._thread.submit(run)
        while True:
            message = messages.get()
            yield message
            if message[0] != "emitted":
                return


class RayCluster:
    """address: of a Ray cluster, such as "auto" or "10.0.0.1:6379". Empty: start one on this machine, or use the one
    that this process is connected to already.

    RolloutError if there is no cluster at the address. Create it in the main thread: the kernel ends a process of Ray
    when the thread that started it ends.
    """

    def __init__(self, address: str = "") -> None:
        check_installed()
        os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
        self._ray = importlib.import_module("ray")
        self._psutil = importlib.import_module("psutil")
        self._local, self._folder = not address, ""
        self._reaper: subprocess.Popen[bytes] | None = None
        self._owns_ray = not self._ray.is_initialized()
        if self._owns_ray:
            self._connect(address)
        self._actors: dict[str, Any] = {}
        self._processes: dict[str, Any] = {}
        self._pending: dict[Any, tuple[str, int]] = {}  # Ray's references, or generators of them -> worker and call
        self._events = deque[Event]()
        self._lock = threading.RLock()
        self._names, self._calls = itertools.count(), itertools.count(1)

    def now(self) -> float:
        return time.monotonic()

    def start(self, role: Role, count: int) -> list[str]:
        self._check_room(role.needs, count)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {"OMP_NUM_THREADS": str(role.needs.threads), "MKL_NUM_THREADS": str(role.needs.threads)}
        options = {
            "num_cpus": 0 if self._local else role.needs.threads,  # on one machine, threads may exceed cores
            "num_gpus": role.needs.gpus,
            "max_restarts": 0,
            "runtime_env": {"env_vars": {**environment, **({"PYTHONPATH": path} if self._local else {})}},
        }
        actor_class = self._ray.remote(_Actor)
        names = [f"{role.name}-{next(self._names)}" for _ in range(count)]
        with self._lock:
            for name in names:
                actor = actor_class.options(**options).remote(role, dies_with_parent=self._local)
                self._actors[name] = actor
                self._pending[actor.joined.remote()] = (name, 0)
        return names

    def call(self, worker: str, method: str, *args: Any) -> int:
        number = next(self._calls)
        with self._lock:
            actor = self._actors.get(worker)
            if actor is not None:
                generator = actor.call.options(num_returns="streaming").remote(method, args)
                self._pending[generator] = (worker, number)
        return number

    def kill(self, worker: str) -> None:
        with self._lock:
            if worker in self._actors:
                self._remove(worker, "killed")

    def events(self, timeout_s: float) -> list[Event]:
        deadline = self.now() + timeout_s
        while True:
            with self._lock:
                self._notice_deaths()
                pending = list(self._pending)
                happened, self._events = list(self._events), deque[Event]()
            left = deadline - self.now()
            if happened:
                return happened
            wait_s = max(0.0, min(left, 0.1))  # deaths are noticed at this interval
            ready: Sequence[Any] = ()
            if pending:
                ready, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0)
                if not ready and wait_s:
                    ready, _ = self._ray.wait(pending, num_returns=1, timeout=wait_s)
            elif wait_s:
                time.sleep(wait_s)
            with self._lock:
                for reference in ready:
                    self._receive(reference)
                if not self._events and self.now() >= deadline:
                    return []

    def close(self) -> None:
        with self._lock:
            for worker in list(self._actors):
                self._remove(worker, "closed")
            self._pending.clear()
            self._events.clear()
        if self._owns_ray and self._ray.is_initialized():
            self._ray.shutdown()
        if self._reaper is not None:
            self._reaper.communicate()

    def _connect(self, address: str) -> None:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        settings: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        try:
            if address:
                _check_reachable(address)
                self._ray.init(address=address, **settings)
            else:
                self._folder = tempfile.mkdtemp(prefix="ansatz-ray-", dir="/tmp")
                command = [sys.executable, "-m", "ansatz.cluster.reaper", self._folder, str(os.getpid())]
                self._reaper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
                self._ray.init(
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _temp_dir=self._folder,
                    **settings,
                )
        except (ConnectionError, OSError, ValueError, RuntimeError) as error:
            where = f"cluster.address = {address!r}: there is no Ray cluster" if address else "Ray does not start here"
            raise RolloutError(f"{where} ({' '.join(str(error).split())[:300]}).") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def nodes(self) -> list[Node]:
        """The nodes that have ever joined, those that have left included."""
        return [
            Node(
                node_id=node["NodeID"],
                address=node["NodeManagerAddress"],
                alive=node["Alive"],
                resources={name: float(amount) for name, amount in node["Resources"].items()},
            )
            for node in self._ray.nodes()
        ]

    def on_each_node(self, function: Callable[..., T], *args: Any, timeout_s: float) -> dict[str, T | str]:
        """function(*args) on every node that is alive, by its id; an error as a sentence."""
        running = {node.node_id: self._task_on(node, function, *args) for node in self.nodes() if node.alive}
        self._ray.wait(list(running.values()), num_returns=len(running), timeout=timeout_s)
        results: dict[str, T | str] = {}
        for node_id, task in running.items():
            try:
                results[node_id] = self._ray.get(task, timeout=0.1)
            except self._ray.exceptions.GetTimeoutError:
                results[node_id] = f"no answer within {timeout_s:g} s"
            except self._ray.exceptions.RayError as error:
                results[node_id] = _last_line(error)
        return results

    def time_transfer(self, source: Node, target: Node, num_bytes: int, *, timeout_s: float) -> float:
        """Seconds in which num_bytes get from one node to another; infinite if they do not arrive in time."""
        data = self._task_on(source, bytes, num_bytes)
        self._ray.wait([data], timeout=timeout_s, fetch_local=False)
        start = time.perf_counter()
        arrived = self._task_on(target, len, data)
        try:
            self._ray.get(arrived, timeout=timeout_s)
        except self._ray.exceptions.RayError:  # too late, or a node has left meanwhile
            return float("inf")
        return time.perf_counter() - start

    def _task_on(self, node: Node, function: Callable[..., Any], *args: Any) -> Any:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        place = strategies.NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        task = self._ray.remote(_call).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
        return task.remote(function, *args)

    def _check_room(self, needs: Needs, count: int) -> None:
        """RolloutError, which shows the sum, if the cluster could not hold the workers even if it were empty."""
        total = self._ray.cluster_resources()
        wanted = {"GPU": needs.gpus * count, "CPU": 0 if self._local else needs.threads * count}
        for name, amount in wanted.items():
            if amount > total.get(name, 0.0):
                each = needs.gpus if name == "GPU" else needs.threads
                raise RolloutError(
                    f"{count} workers x {each:g} {name} = {amount:g} {name}, but the Ray cluster has "
                    f"{total.get(name, 0.0):g}. Use fewer cluster.workers, or a larger cluster."
                )

    def _receive(self, reference: Any) -> None:
        """Turn what is ready into events."""
        worker, call = self._pending.get(reference, ("", 0))
        if worker not in self._actors:
            self._pending.pop(reference, None)
            return
        try:
            if call == 0:
                pid = self._ray.get(reference)
                del self._pending[reference]
                if self._local:
                    self._processes[worker] = self._psutil.Process(pid)
                self._events.append(Joined(worker))
                return
            kind, value = self._ray.get(next(reference))
        except StopIteration:
            del self._pending[reference]
        except self._ray.exceptions.RayError as error:
            self._remove(worker, _first_line(error))
        except self._psutil.NoSuchProcess:
            self._remove(worker, "its process ended while it joined")
        else:
            if kind == "emitted":
                self._events.append(Partial(worker, call, value))
                return
            del self._pending[reference]
            answer = Answered(worker, call, value) if kind == "answered" else Failed(worker, call, *value)
            self._events.append(answer)

    def _notice_deaths(self) -> None:
        """Without this, the death of an idle worker would be noticed only when it is called."""
        for worker, process in list(self._processes.items()):
            if not self._is_alive(process):
                self._remove(worker, "its process has ended")

    def _is_alive(self, process: Any) -> bool:
        try:
            return process.is_running() and process.status() != self._psutil.STATUS_ZOMBIE
        except self._psutil.NoSuchProcess:
            return False

    def _remove(self, worker: str, cause: str) -> None:
        """Kill what is left of a worker, and report its death."""
        actor, process = self._actors.pop(worker), self._processes.pop(worker, None)
        self._pending = {reference: owner for reference, owner in self._pending.items() if owner[0] != worker}
        tree = list[Any]()
        if process is not None:
            with contextlib.suppress(self._psutil.NoSuchProcess):
                tree = [*process.children(recursive=True), process]
        for member in tree:
            with contextlib.suppress(self._psutil.NoSuchProcess):
                member.kill()
        self._ray.kill(actor)
        self._events.append(Died(worker, cause))


def _check_reachable(address: str) -> None:
    """OSError if no program listens at HOST:PORT. Ray itself would try to connect for minutes."""
    host, separator, port = address.rpartition(":")
    if separator and port.isdecimal():
        socket.create_connection((host.removeprefix("ray://").strip("[]"), int(port)), timeout=_CONNECT_S).close()


def _call(function: Callable[..., T], *args: Any) -> T:
    """Ray makes tasks of functions, but not of types and built-in functions."""
    return function(*args)


def _last_line(error: BaseException) -> str:
    """Of an error that a task has raised: the lines before are its traceback."""
    return next(line.strip() for line in reversed(str(error).splitlines()) if line.strip())


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"

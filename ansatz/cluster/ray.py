"""Workers as Ray actors, on this machine or on a Ray cluster that runs already. The only file that imports Ray.

Without an address a small Ray is started on this machine: no dashboard, a small object store, and a temporary folder
with a short path, because the names of its sockets may have at most 107 characters. Its processes end with this one,
also when this one is killed: the kernel kills the main processes of Ray and the workers, and a small process of our
own (`cluster.reaper`) kills the others, such as Ray's agents, which would live for another minute.

Ray has habits that this file undoes. It replaces the handler of SIGTERM, which would lose the run's own. It changes
CUDA_VISIBLE_DEVICES of workers without GPUs. Its workers import first from the folder where Ray was started. That
folder may hold downloaded files, so Ray is started in the root. Killing an actor reaches neither the processes that it
has started nor a process that is stopped, so processes are killed as trees, by their ids: on this machine by this
process, on others by a task on their node.

The resources of a worker are reserved as a placement group: one for each worker, or one for all of a role that starts
`together`. Ray keeps a group that has no room until there is some, also on a node that joins later. It would get
the room of trainer ranks that are killed, so their group stays until they start again.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from typing import Any, TypeVar

from ansatz import own_clock
from ansatz.cluster.actor import Actor, ProcessId, kill_all, kill_tree, tree_of
from ansatz.cluster.alive import RayAlive, find_raylet
from ansatz.cluster.base import Answered, Died, Event, Failed, Joined, Needs, Partial, Role
from ansatz.cluster.reaper import reap
from ansatz.cluster.room import Request, shortage
from ansatz.errors import ClusterLost, MissingExtraError, RolloutError, install_command
from ansatz.temporary import make_folder, remove_abandoned

T = TypeVar("T")
_TEMPORARY = "/tmp"
_OBJECT_STORE_BYTES = 100 * 2**20
_CONNECT_S = 5.0
_TOGETHER_S = 5.0
"""Processes of a role that starts together must have their room within this time."""
_LOOK_S = 2.0
_HEAD_S = 20.0
"""A head at an address may be out of reach for this long. The head of a Ray of our own is never started again."""
_SHUTDOWN_S = 5.0
"""In this time Ray lets go of this process, unless its head is gone."""
_ENDS_S = 1.0
"""In this time Ray ends the process of an actor that is not stopped."""
_TAKEN = "there would be room for all of this run on empty nodes, so other processes take it"
_ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # leave CUDA_VISIBLE_DEVICES of workers without GPUs alone
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",  # by default Ray ends this process 60 s after its head
}


def check_installed() -> None:
    """Raise MissingExtraError unless Ray and psutil can be imported."""
    for name in ("ray", "psutil"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(
                f"cluster.workers needs the package {name}, which is not installed. Leave cluster.workers "
                f"out to run in one process, or install it with: {install_command('ray')}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of a Ray cluster. resources: the amounts of "CPU", "GPU" and others that Ray may give away there."""

    node_id: str
    address: str
    alive: bool
    resources: dict[str, float]


@dataclass(slots=True, kw_only=True)
class _Worker:
    """actor, group: Ray's. bundle: the worker's part of its group. group: None if the worker takes nothing that is
    counted. placed: it has its resources."""

    role: Role
    actor: Any
    group: Any
    bundle: int
    placed: bool
    process: ProcessId | None = None


class RayCluster:
    """address: of a Ray cluster, such as "auto" or "10.0.0.1:6379". Empty: start one on this machine, or use the one
    that this process is connected to already.

    Raise RolloutError if there is no cluster at the address. Create it in the main thread: the kernel ends a process of
    Ray when the thread that started it ends.
    """

    def __init__(self, address: str = "") -> None:
        check_installed()
        os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
        self._ray = importlib.import_module("ray")
        self._groups = importlib.import_module("ray.util.placement_group")
        self._strategies = importlib.import_module("ray.util.scheduling_strategies")
        self._local, self._folder = not address, ""
        self._reaper: subprocess.Popen[bytes] | None = None
        self._owns_ray = not self._ray.is_initialized()
        if self._owns_ray:
            self._connect(address)
        self._alive = self._watched()
        self._workers: dict[str, _Worker] = {}
        self._kept: list[Any] = []  # the groups of workers that started together and are gone
        self._pending: dict[Any, tuple[str, int]] = {}  # Ray's references, or generators of them -> worker and call
        self._events = deque[Event]()
        self._lock = threading.RLock()
        self._names, self._calls = itertools.count(), itertools.count(1)

    def now(self) -> float:
        return own_clock.now()

    def resources(self, needs: Needs) -> dict[str, float]:
        """Return the resources that a worker takes from its node. On one machine, threads may exceed cores."""
        taken = {"CPU": 0.0 if self._local else float(needs.threads), "GPU": float(needs.gpus)}
        return {name: amount for name, amount in taken.items() if amount}

    def check_room(self, requests: Sequence[Request]) -> None:
        """Raise RolloutError, which shows the sum, if the nodes could not hold these processes even if they were
        empty."""
        if short := shortage(self._node_resources(), requests):
            raise RolloutError(
                f"the run does not fit on the Ray cluster: {short}. Ask for less in the section cluster of the recipe, "
                "or join more nodes first ('ansatz doctor --cluster' lists them)."
            )

    def start(self, role: Role, count: int) -> list[str]:
        self._check_alive()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {"OMP_NUM_THREADS": str(role.needs.threads), "MKL_NUM_THREADS": str(role.needs.threads)}
        options = {
            "num_cpus": 0 if self._local else role.needs.threads,
            "num_gpus": role.needs.gpus,
            "max_restarts": 0,
            "runtime_env": {"env_vars": {**environment, **({"PYTHONPATH": path} if self._local else {})}},
        }
        actor_class = self._ray.remote(Actor)
        names = [f"{role.name}-{next(self._names)}" for _ in range(count)]
        with self._lock:
            for name, (group, bundle) in zip(names, self._reserve(role, count), strict=True):
                actor = actor_class.options(**options, **self._place(group, bundle)).remote(role)
                self._workers[name] = _Worker(role=role, actor=actor, group=group, bundle=bundle, placed=group is None)
                self._pending[actor.joined.remote()] = (name, 0)
        return names

    def waits_for_room(self, worker: str) -> str:
        with self._lock:
            found = self._workers.get(worker)
            if found is None or found.placed or self._alive.cause():
                return ""
            found.placed = self._groups.placement_group_table(found.group)["state"] == "CREATED"
            return "" if found.placed else shortage(self._node_resources(), self._held()) or _TAKEN

    def _reserve(self, role: Role, count: int) -> list[tuple[Any, int]]:
        """Reserve for each worker its placement group and its part of the group."""
        taken, reserve = self.resources(role.needs), self._groups.placement_group
        if not taken:
            return [(None, 0)] * count
        if not role.together:
            return [(reserve([taken], strategy="STRICT_PACK"), 0) for _ in range(count)]
        request = Request(name=f"{role.name} processes", count=count, each=taken)
        self.check_room([*self._held(), request])
        group = self._take_kept([taken] * count) or reserve([taken] * count, strategy="PACK")
        if not group.wait(_TOGETHER_S):
            self._groups.remove_placement_group(group)
            raise RolloutError(f"{count} {request.name} have no room on the Ray cluster: {_TAKEN}.")
        return [(group, bundle) for bundle in range(count)]

    def _take_kept(self, bundles: list[dict[str, float]]) -> Any:
        """Return the kept placement group of these bundles if its nodes answer, or None, and remove the others."""
        taken = next((group for group in self._kept if group.bundle_specs == bundles and self._answers(group)), None)
        for group in self._kept:
            if group is not taken:
                self._groups.remove_placement_group(group)
        self._kept.clear()
        return taken

    def _answers(self, group: Any) -> bool:
        """Tell whether all nodes of a placement group answer. Ray itself notices only after some seconds that a node is
        gone."""
        nodes = set(self._groups.placement_group_table(group)["bundles_to_node_id"].values())
        try:
            self._ray.get([self._task_on(node, len, ()) for node in nodes], timeout=_TOGETHER_S)
        except self._ray.exceptions.RayError:
            return False
        return True

    def _place(self, group: Any, bundle: int) -> dict[str, Any]:
        if group is None:
            return {}
        strategy = self._strategies.PlacementGroupSchedulingStrategy
        return {"scheduling_strategy": strategy(placement_group=group, placement_group_bundle_index=bundle)}

    def _held(self) -> list[Request]:
        """Return the resources that all workers take, or wait for."""
        counts = Counter((worker.role.name, worker.role.needs) for worker in self._workers.values())
        return [
            Request(name=f"{name} processes", count=count, each=self.resources(needs))
            for (name, needs), count in counts.items()
        ]

    def _node_resources(self) -> list[tuple[str, dict[str, float]]]:
        return [(node.address, node.resources) for node in self.nodes() if node.alive]

    def call(self, worker: str, method: str, *args: Any) -> int:
        self._check_alive(max_age_s=_LOOK_S)
        number = next(self._calls)
        with self._lock:
            found = self._workers.get(worker)
            if found is not None:
                generator = found.actor.call.options(num_returns="streaming").remote(method, args)
                self._pending[generator] = (worker, number)
        return number

    def kill(self, worker: str) -> None:
        with self._lock:
            if worker in self._workers:
                self._remove(worker, "killed")

    def events(self, timeout_s: float) -> list[Event]:
        deadline = self.now() + timeout_s
        while True:
            self._check_alive(max_age_s=_LOOK_S)
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
            for worker in list(self._workers):
                self._remove(worker, "closed")
            if not self._alive.cause():
                self._take_kept([])
            self._pending.clear()
            self._events.clear()
        if self._owns_ray and self._ray.is_initialized():
            self._shut_down()
        if self._reaper is not None:
            self._reaper.communicate()

    def _shut_down(self) -> None:
        """Let go of Ray. Without its head this would wait for minutes, so it is left to a thread, and to no exit."""
        if not self._alive.cause():
            self._ray.shutdown()
            return
        atexit.unregister(self._ray.shutdown)
        thread = threading.Thread(target=self._ray.shutdown, kwargs={"_exiting_interpreter": True}, daemon=True)
        thread.start()
        thread.join(_SHUTDOWN_S)

    def _watched(self) -> RayAlive:
        node = importlib.import_module("ray._private.worker").global_worker.node
        host, _, port = self._ray.get_runtime_context().gcs_address.rpartition(":")
        return RayAlive(
            raylet=find_raylet(node.raylet_socket_name),
            head=(host.strip("[]"), int(port)),
            patience_s=0.0 if self._local else _HEAD_S,
        )

    def _check_alive(self, *, max_age_s: float = 0.0) -> None:
        """Raise ClusterLost if Ray is gone. Code that will wait for the head needs a fresh look first."""
        if cause := self._alive.cause(max_age_s=max_age_s):
            advice = "A resumed run starts another." if self._local else "Start Ray again before the run is resumed."
            raise ClusterLost(f"Ray is gone: {cause}. {advice}")

    def _connect(self, address: str) -> None:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        settings: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        try:
            if address:
                reached = _get_admission(str(address))  # Ray's C code takes no class of texts
                with chdir("/"):
                    self._ray.init(address=reached, **settings)
            else:
                remove_abandoned("ray", _TEMPORARY, before=lambda folder: reap(folder, os.getpid()))
                self._folder = str(make_folder("ray", _TEMPORARY))
                command = [sys.executable, "-P", "-m", "ansatz.cluster.reaper", self._folder, str(os.getpid())]
                self._reaper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
                # Ray opens the folder that it is given to everybody, but nobody passes the one around it.
                inside = os.path.join(self._folder, "r")
                with chdir("/"):
                    self._ray.init(
                        include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES, _temp_dir=inside, **settings
                    )
        except self._ray.exceptions.AuthenticationError as error:
            raise RolloutError(
                f"cluster.address = {address!r}: this Ray cluster does not admit the token of this user, or none was "
                "found. Copy ~/.ray/auth_token from the cluster's first machine."
            ) from error
        except (ConnectionError, OSError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            where = f"cluster.address = {address!r}: there is no Ray cluster" if address else "Ray does not start here"
            raise RolloutError(f"{where} ({' '.join(str(error).split())[:300]}).") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def nodes(self) -> list[Node]:
        """List the nodes that have ever joined, those that have left included."""
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
        """Call function(*args) on every node that is alive.

        Return the results by the node's id; an error as a sentence.
        """
        running = {node.node_id: self._task_on(node.node_id, function, *args) for node in self.nodes() if node.alive}
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
        """Measure the seconds that num_bytes take from one node to another; infinite if they do not arrive in time."""
        data = self._task_on(source.node_id, bytes, num_bytes)
        self._ray.wait([data], timeout=timeout_s, fetch_local=False)
        start = time.perf_counter()
        arrived = self._task_on(target.node_id, len, data)
        try:
            self._ray.get(arrived, timeout=timeout_s)
        except self._ray.exceptions.RayError:  # too late, or a node has left meanwhile
            return float("inf")
        return time.perf_counter() - start

    def _task_on(self, node_id: str, function: Callable[..., Any], *args: Any) -> Any:
        place = self._strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = self._ray.remote(_call).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
        return task.remote(function, *args)

    def _receive(self, reference: Any) -> None:
        """Turn the result behind a ready reference into events."""
        worker, call = self._pending.get(reference, ("", 0))
        if worker not in self._workers:
            self._pending.pop(reference, None)
            return
        try:
            if call == 0:
                self._workers[worker].process = self._ray.get(reference)
                self._workers[worker].placed = True
                del self._pending[reference]
                self._events.append(Joined(worker))
                return
            kind, value = self._ray.get(next(reference))
        except StopIteration:
            del self._pending[reference]
        except self._ray.exceptions.RayError as error:
            self._remove(worker, _cause(error))
        else:
            if kind == "emitted":
                self._events.append(Partial(worker, call, value))
                return
            del self._pending[reference]
            answer = Answered(worker, call, value) if kind == "answered" else Failed(worker, call, *value)
            self._events.append(answer)

    def _notice_deaths(self) -> None:
        """Notice the death of idle workers. Without this, it would be noticed only when the worker is called."""
        for name, worker in list(self._workers.items()):
            if worker.process is not None and worker.process.is_here and not worker.process.is_alive():
                self._remove(name, "its process has ended")

    def _remove(self, name: str, cause: str) -> None:
        """Kill every process that is left of a worker, and report its death."""
        worker = self._workers.pop(name)
        self._pending = {reference: owner for reference, owner in self._pending.items() if owner[0] != name}
        if worker.process is not None and not worker.process.is_here and not self._alive.cause():
            nodes = self._groups.placement_group_table(worker.group)["bundles_to_node_id"]
            self._task_on(nodes[worker.bundle], kill_tree, worker.process)
        tree = tree_of(worker.process) if worker.process is not None and worker.process.is_here else []
        # Ray reports an actor as crashed if it ends before Ray has ended it. Children and stopped processes are left.
        if not self._alive.cause():
            self._ray.kill(worker.actor)
        deadline = time.monotonic() + _ENDS_S
        while worker.process is not None and tree and worker.process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        kill_all(tree)
        is_shared = any(other.group is worker.group for other in self._workers.values())
        if worker.group is not None and not is_shared:
            if worker.role.together:
                self._kept.append(worker.group)
            elif not self._alive.cause():
                self._groups.remove_placement_group(worker.group)
        self._events.append(Died(name, cause))


def _get_admission(address: str) -> str:
    """Return HOST:PORT of a Ray cluster, after this process has taken the user's token if the cluster asks for one.

    Ray itself never takes it for HOST:PORT. For auto it always does, and from a cluster without a token no result would
    then arrive. Raise OSError if no program listens there: Ray would try to connect for minutes. Raise ValueError for
    an address that is neither auto nor HOST:PORT: Ray would start a cluster for `local`. Raise AuthenticationError if
    the cluster refuses the token.
    """
    if address == "auto":
        address = importlib.import_module("ray._private.services").canonicalize_bootstrap_address_or_die(address)
    _check_reachable(address)
    token = importlib.import_module("ray._private.authentication.authentication_token_setup")
    connect = importlib.import_module("ray._raylet").InnerGcsClient.standalone
    token.ensure_token_if_auth_enabled(create_token_if_missing=False)
    try:
        connect(address, None, int(1000 * _CONNECT_S))
    except importlib.import_module("ray.exceptions").AuthenticationError:
        token.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        connect(address, None, int(1000 * _CONNECT_S))
    return address


def _check_reachable(address: str) -> None:
    """Raise OSError if no program listens at HOST:PORT, and ValueError for an address of another form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > len("65535") or int(port) > 65535:
        raise ValueError("expected auto, or HOST:PORT such as 10.0.0.1:6379")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


def _call(function: Callable[..., T], *args: Any) -> T:
    """Call a function. Ray makes tasks of functions, but not of types and built-in functions."""
    return function(*args)


def _last_line(error: BaseException) -> str:
    """Return the last line of an error that a task has raised: the lines before are its traceback."""
    return next(line.strip() for line in reversed(str(error).splitlines()) if line.strip())


def _cause(error: BaseException) -> str:
    """Return the first line of an error, or of an actor that could not be made the last one, which says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return f"{type(error).__name__}: {lines[-1 if 'error raised in its creation task' in lines[0] else 0]}"

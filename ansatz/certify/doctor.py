"""The findings of `ansatz doctor` about this machine, and about the nodes of a Ray cluster.

Each finding gives the facts and, unless all is well, the remedy. Times and rates are of one short measurement.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import resource
import secrets
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

import ansatz
from ansatz.cluster.ray import Node, RayCluster
from ansatz.config.load import load_recipe
from ansatz.errors import AnsatzError, install_command
from ansatz.files import read_yaml
from ansatz.locks import folder_lock
from ansatz.loop.pipeline import run_pipeline
from ansatz.models.load import compute_dtype
from ansatz.models.threads import usable_cores
from ansatz.rollout.native import cpu_kernels
from ansatz.rollout.native.equal_rows import can_pack
from ansatz.temporary import folder_of_program
from ansatz.track.jsonl import read_jsonl

GIB = 2**30
_PROBE_BYTES = 64 * 2**20
_NODE_WAIT_S = 120.0  # on a busy machine, imports alone take half a minute
_JOIN_S = 120.0
_EXTRAS = {"ray": "ray", "vllm": "vllm", "peft": "lora", "bitsandbytes": "qlora", "datasets": "datasets"}
"""Optional packages, and the extra that brings each."""
_RECIPE = "tiny_arithmetic_grpo_cpu"
_TABLES: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
_TINY: dict[str, Any] = _TABLES["tiny"]
_FINDINGS: dict[str, dict[str, Any]] = _TABLES["findings"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """state: "ok"; "note" if it may slow a run down or limit it; "wrong" if it will stop the run.

    advice: the remedy in words; empty if none is needed. fix: the command that applies it, for this machine; empty if
    none is known.
    """

    state: Literal["ok", "note", "wrong"]
    what: str
    found: str
    advice: str = ""
    fix: str = ""


ok = partial(Diagnosis, "ok")


def bad(name: str, **values: object) -> Diagnosis:
    """Return a finding that needs advice: a row of `doctor.yaml`, with the values in its texts."""
    return Diagnosis(**{key: text.format(**values) for key, text in _FINDINGS[name].items()})


def examine_machine(folder: Path) -> Iterator[Diagnosis]:
    """Yield the findings about this machine, one after the other. folder: where runs are to be written; it is
    created."""
    yield _versions()
    yield _processor()
    yield _gpus()
    yield _memory()
    yield _shared_memory()
    yield _open_files()
    yield _loopback()
    yield from _storage(folder)
    yield _tiny_run({})


def examine_cluster(address: str, folder: Path, *, num_nodes: int | None = None) -> Iterator[Diagnosis]:
    """Yield the findings about the nodes of a Ray cluster. folder: where runs are to be written; all nodes must see it.

    num_nodes: how many must answer, the head included. They have two minutes to join. None: one at every address that a
    node has ever joined from.
    """
    try:
        cluster = RayCluster(address)
    except AnsatzError as error:
        yield bad("no_cluster", error=error)
        return
    with closing(cluster):
        _wait_for_nodes(cluster, num_nodes or 1)
        yield from _nodes(cluster, folder, num_nodes)
    yield _tiny_run({"cluster": {"workers": 1, "address": address}})


def _versions() -> Diagnosis:
    found = [f"Python {platform.python_version()}", f"ansatz {ansatz.__version__}"]
    found += [f"{name} {_version(name)}" for name in ("torch", "transformers", *_EXTRAS) if _version(name)]
    absent = [name for name in _EXTRAS if not _version(name)]
    extras = [_EXTRAS[name] for name in absent if name != "vllm"]  # vLLM needs other versions than the rest
    fix = install_command(*extras) if extras else ""
    missing = f"; optional and not installed: {', '.join(absent)}" if absent else ""
    return ok("versions", ", ".join(found) + missing, fix=fix)


def _version(name: str) -> str:
    """Empty if the package is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> Diagnosis:
    usable, total = usable_cores(), os.cpu_count() or 1
    cores = f"{usable} of {total} logical cores can be used"
    if cpu_kernels.library() is None:
        return bad("no_compiler", cores=cores)
    if compute_dtype("auto", torch.device("cpu")) != torch.bfloat16:
        return bad("processor_without_bfloat16", cores=cores)
    products = "packed weights" if can_pack(torch.bfloat16) else "torch's products (AMX)"
    return ok("processor", f"{cores}; it multiplies bfloat16 natively, and samples with {products}")


def _gpus() -> Diagnosis:
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        named = ", ".join(f"{card.name} with {card.total_memory / GIB:.0f} GiB" for card in cards)
        native = compute_dtype("auto", torch.device("cuda")) == torch.bfloat16
        return ok("GPUs", named) if native else bad("gpus_without_bfloat16", named=named)
    if Path("/dev/nvidiactl").exists():
        version, python = torch.__version__, shlex.quote(sys.executable)
        return bad("torch_without_cuda", torch=version, release=version.partition("+")[0], python=python)
    if torch.backends.mps.is_available():
        return bad("apple_gpu")
    return ok("GPUs", "none; everything runs on the processor")


def _memory() -> Diagnosis:
    if not Path("/proc/meminfo").exists():  # not Linux
        return ok("memory", f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.1f} GiB in all")
    sizes = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    free, total = (int(sizes[name].split()[0]) * 1024 / GIB for name in ("MemAvailable", "MemTotal"))
    found = f"{free:.1f} of {total:.1f} GiB are free"
    return ok("memory", found) if free >= 2 else bad("little_memory", found=found)


def _shared_memory() -> Diagnosis:
    try:
        free = shutil.disk_usage("/dev/shm").free / GIB
    except OSError as error:
        return bad("no_shared_memory", error=error.strerror)
    if free >= 1:
        return ok("shared memory", f"{free:.1f} GiB are free in /dev/shm")
    return bad("little_shared_memory", free=free)


def _open_files() -> Diagnosis:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    found = "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit:,} in one process"
    if limit == resource.RLIM_INFINITY or limit >= 4096:
        return ok("open files", found)
    return bad("few_open_files", found=found)


def _loopback() -> Diagnosis:
    """Tell whether two processes of this machine can talk through a port, as workers, judges and ranks do."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                server.accept()[0].close()
    except OSError as error:
        return bad("no_ports", error=error)
    return ok("ports", "processes of this machine can connect to each other")


def _storage(folder: Path) -> Iterator[Diagnosis]:
    """Examine the folder of the runs: free space, speed, and whether it can be held against other processes."""
    try:
        with _probe_in(folder) as probe, folder_lock(probe):
            write_s, read_s = _time_file(probe / "probe")
            free = shutil.disk_usage(probe).free / 10**9
    except (AnsatzError, OSError) as error:
        yield bad("no_run_folder", folder=folder, error=error)
        return
    found = f"{folder.absolute()}: {free:.0f} GB are free, it writes {_rate(write_s)}, reads {_rate(read_s)}"
    if write_s > _PROBE_BYTES / 20e6:
        yield bad("slow_disk", found=found)
    else:
        yield ok("run folder", found) if free >= 10 else bad("small_disk", found=found)


@contextmanager
def _probe_in(folder: Path) -> Iterator[Path]:
    """Make a folder in a folder, and leave neither, nor any other that was missing."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with folder_of_program("doctor", str(folder)) as probe:
            yield Path(probe)
    finally:
        for each in missing:
            with suppress(OSError):  # another process has written there meanwhile
                each.rmdir()


def _time_file(path: Path) -> tuple[float, float]:
    """Return the seconds to write _PROBE_BYTES to the disk, and to read them (perhaps from the kernel's cache)."""
    data = secrets.token_bytes(2**20) * (_PROBE_BYTES // 2**20)
    start = time.perf_counter()
    with path.open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    written = time.perf_counter()
    path.read_bytes()
    return written - start, time.perf_counter() - written


def _rate(seconds: float) -> str:
    return f"{_PROBE_BYTES / seconds / 1e6:,.0f} MB/s"


def _tiny_run(changes: Mapping[str, Any]) -> Diagnosis:
    """Try one step of reinforcement learning at toy size, through sampler, grader, trainer and checkpoint."""
    what = "a tiny step with a worker" if "cluster" in changes else "a tiny step"
    start = time.perf_counter()
    with folder_of_program("doctor") as folder:
        overlay = Path(folder) / "doctor.yaml"
        overlay.write_text(yaml.safe_dump({**_TINY, **changes, "out": folder}), encoding="utf-8")
        try:
            run_dir = run_pipeline(load_recipe(Path(_RECIPE), overlays=[overlay]))
        except AnsatzError as error:
            return bad("run_failed", what=what, error=error)
        row = read_jsonl(run_dir / "rl" / "metrics.jsonl")[0]
    seconds = time.perf_counter() - start
    roles = {"sampled": "rollout", "graded": "grade", "updated": "update"}
    parts = ", ".join(f"{verb} in {row[f'time/{name}_s']:.2f} s" for verb, name in roles.items())
    return ok(what, f"{parts}; {seconds:.1f} s with start and checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report of a node about itself. token: the text read from the shared folder; None if the file is not there."""

    host: str
    versions: dict[str, str]
    token: str | None
    read_s: float
    free_bytes: int


def report_node(folder: str) -> NodeReport:
    """Runs on a node. folder: the probe folder that the driver has written."""
    start, token = time.perf_counter(), None
    probe = Path(folder)
    try:
        (probe / "data").read_bytes()
        token = (probe / "token").read_text(encoding="ascii")
    except OSError:
        pass
    read_s = time.perf_counter() - start
    return NodeReport(
        host=socket.gethostname(),
        versions=_compared_versions(),
        token=token,
        read_s=read_s,
        free_bytes=shutil.disk_usage("/tmp").free,
    )


def _compared_versions() -> dict[str, str]:
    """Return the versions that must be the same on all nodes."""
    packages = {name: _version(name) for name in ("torch", "transformers", "ray")}
    return {"Python": platform.python_version(), "ansatz": ansatz.__version__, **packages}


def _wait_for_nodes(cluster: RayCluster, num_nodes: int) -> None:
    deadline = time.monotonic() + _JOIN_S
    while sum(node.alive for node in cluster.nodes()) < num_nodes and time.monotonic() < deadline:
        time.sleep(0.5)


def _membership(nodes: Sequence[Node], num_nodes: int | None) -> Diagnosis:
    """Tell whether enough nodes answer. Ray lists a node that has left for ever; one that has joined again at its
    address, or has been replaced by others, is not missed."""
    alive = [node for node in nodes if node.alive]
    answering = {node.address for node in alive}
    left = sorted({node.address for node in nodes if not node.alive} - answering)
    asked = len(alive) + len(left) if num_nodes is None else num_nodes
    sums = {name: sum(node.resources.get(name, 0.0) for node in alive) for name in ("CPU", "GPU")}
    found = f"{len(alive)} of {max(asked, len(alive))} nodes answer, with {sums['CPU']:g} CPUs and {sums['GPU']:g} GPUs"
    found += "".join(f"; {address} has left" for address in left)
    return bad("missing_nodes", found=found) if len(alive) < asked else ok("nodes", found)


def _nodes(cluster: RayCluster, folder: Path, num_nodes: int | None) -> Iterator[Diagnosis]:
    nodes = cluster.nodes()
    alive = [node for node in nodes if node.alive]
    yield _membership(nodes, num_nodes)
    token = secrets.token_hex(8)
    with _probe_in(folder) as probe:
        (probe / "data").write_bytes(bytes(_PROBE_BYTES))
        (probe / "token").write_text(token, encoding="ascii")
        reports = cluster.on_each_node(report_node, os.path.abspath(probe), timeout_s=_NODE_WAIT_S)
    expected = _compared_versions()
    for node in alive:
        name = f"{node.address} ({node.node_id[:8]})"
        yield _about_node(name, reports[node.node_id], token=token, expected=expected, folder=folder)
    if len(alive) > 1:
        source, target = alive[:2]
        seconds = cluster.time_transfer(source, target, _PROBE_BYTES, timeout_s=_NODE_WAIT_S)
        yield _between(source.address, target.address, seconds)


def _between(source: str, target: str, seconds: float) -> Diagnosis:
    if math.isinf(seconds):
        return bad("no_transfer", source=source, target=target, limit_s=_NODE_WAIT_S)
    return ok("between nodes", f"{_rate(seconds)} from {source} to {target}")


def _about_node(
    name: str, report: NodeReport | str, *, token: str, expected: Mapping[str, str], folder: Path
) -> Diagnosis:
    """report: an error, if the node did not answer."""
    what = f"node {name}"
    if isinstance(report, str):
        return bad("no_report", what=what, report=report)
    differing = [
        f"{name} {report.versions.get(name) or 'missing'} instead of {version}"
        for name, version in expected.items()
        if report.versions.get(name) != version
    ]
    if differing:
        return bad("other_versions", what=what, found=", ".join(differing))
    if report.token != token:
        return bad("unseen_folder", what=what, folder=folder.absolute())
    return ok(
        what,
        f"{report.host}: the same versions; reads the shared folder at {_rate(report.read_s)}; "
        f"{report.free_bytes / 10**9:.0f} GB are free in /tmp",
    )

"""How fast the viewer is on a large run: what `docs/viewer.md` says about it.

    python -m benchmarks.ui --rollouts 1000000 --folder /tmp/ui

writes a made-up run (2,000 steps of 64 groups of 8 responses of about 250 tokens; 1.5 GB), indexes it, and asks for
pages over HTTP, each several times. The texts of a step are those of one of 20 different steps, each with the number of
the step at its end, so that no two texts of the run are equal. Files stay in the folder, so that a second call only
measures; remove the folder afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

from ansatz.data.keyed_random import KeyedRandom
from ansatz.track.jsonl import read_jsonl, to_line
from ansatz.track.step_files import SAMPLES, groups_path, step_path
from ansatz.ui.demo import DemoRun

DIFFERENT_STEPS, GROUPS, SAMPLES_PER_GROUP = 20, 64, 8
EXTRA_WORDS = 150
PAGES = {
    "overview": "",
    "responses, all": "/rollouts",
    "filter with facets": "/rollouts?q=correct+and+truncated+and+step+{first}..{last}",
    "filter of groups, sorted": "/rollouts?q=group.correct+%3D+1+and+correct&sort=-tokens",
    "filter with a percentile": "/rollouts?q=correct+and+tokens+%3C+p5(tokens)",
    "text after a filter": "/rollouts?q=step+%3D+{step}+and+%22check%22",
    "text in all responses": "/rollouts?q=%22check+this+again%22",
    "a group": "/group/rl/{step}/3",
    "a response": "/rollout/rl/{step}/3/1",
    "a problem": "/problem/{problem}",
    "metrics": "/metrics",
    "a step": "/step/rl/{step}",
}
"""Pages of the run by name; the third is what the design calls a filter with facets."""


def write_run(folder: Path, *, rollouts: int) -> Path:
    """Write a made-up run with about this number of rollouts. Return its folder; nothing is done if it is there."""
    if folder.exists():
        return folder
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    run = DemoRun(draft, steps=DIFFERENT_STEPS, prompts=GROUPS, samples=SAMPLES_PER_GROUP)
    run.write()
    (draft / "summary.json").unlink()
    stage = draft / "rl"
    metrics, last = read_jsonl(stage / "metrics.jsonl"), rollouts // (GROUPS * SAMPLES_PER_GROUP)
    templates = [_template(stage, step) for step in range(1, DIFFERENT_STEPS + 1)]
    lines = list[str]()
    for step in range(1, last + 1):
        rows, groups = templates[step % DIFFERENT_STEPS]
        path = step_path(stage, SAMPLES, "step", step)
        path.write_bytes(rows.replace(b"STEP", str(step).encode()))
        groups_path(path).write_bytes(groups)
        lines.append(to_line({**metrics[step % DIFFERENT_STEPS], "step": step, "seconds": 1.5 * step}))
    (stage / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    draft.rename(folder)
    return folder


def _template(stage: Path, step: int) -> tuple[bytes, bytes]:
    """Return the files of a step, its responses lengthened, and with STEP where its number was."""
    path = step_path(stage, SAMPLES, "step", step)
    words = re.findall(r"\w+", " ".join(row["question"] for row in read_jsonl(groups_path(path))))
    rows = read_jsonl(path)
    for row in rows:
        rng = KeyedRandom("ui", row["id"])
        row["text"] += " " + " ".join(rng.choice(words) for _ in range(EXTRA_WORDS)) + " STEP"
        row["tokens"], row["tokens_at"] = row["tokens"] + rng.between(80, 220), None
        row["id"] = row["id"].replace(f"rl/{step}/", "rl/STEP/")
    return "".join(map(to_line, rows)).encode(), groups_path(path).read_bytes()


class Viewer:
    """A viewer in a process of its own."""

    def __init__(self, run: Path, cache: Path) -> None:
        command = [sys.executable, "-m", "ansatz", "view", str(run), "--port", "0"]
        environment = {"XDG_CACHE_HOME": str(cache), "PATH": "/usr/bin:/bin"}
        self.begin = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().removeprefix("Open ").strip()
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))
        self._opener.open(self._address).read()

    def get(self, path: str) -> bytes:
        return self._opener.open(self._address.partition("?")[0].rstrip("/") + path).read()

    def memory_mb(self) -> int:
        """Return the most memory that the viewer has held."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024

    def cpu_s(self) -> float:
        """Return the CPU time of the viewer so far."""
        user, system = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").split()[13:15]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def measure(run: Path, cache: Path, *, repeats: int) -> dict[str, Any]:
    """Index the run, open it again, and ask for each page. Times in seconds, of the clock and of all threads."""
    out: dict[str, Any] = {"run_mb": round(sum(path.stat().st_size for path in run.rglob("*.jsonl")) / 1e6)}
    base = f"/run/{run.name}"
    shutil.rmtree(cache, ignore_errors=True)
    viewer = Viewer(run, cache)
    begin = time.perf_counter()
    while b"still being read" in viewer.get(f"{base}/rollouts"):
        time.sleep(0.5)
    out["first index"] = {"wall": time.perf_counter() - begin, "cpu": viewer.cpu_s()}
    out["first index, memory_mb"] = viewer.memory_mb()
    viewer.close()
    out["index_mb"] = round(sum(path.stat().st_size for path in cache.rglob("*.duckdb")) / 1e6)
    viewer = Viewer(run, cache)
    pages = {"list of runs": None, "overview": base, "responses": f"{base}/rollouts"}
    for name, path in pages.items():
        if path is not None:
            viewer.get(path)
        out[f"start to the {name}"] = {"wall": time.perf_counter() - viewer.begin, "cpu": viewer.cpu_s()}
    problem = read_jsonl(next((run / "rl" / "samples").glob("*.groups.jsonl")))[0]["problem"]
    last = read_jsonl(run / "rl" / "metrics.jsonl")[-1]["step"]
    filled = {"problem": problem, "step": last // 2, "first": last // 20, "last": 3 * last // 4}
    for name, path in PAGES.items():
        times, before = list[float](), viewer.cpu_s()
        for _ in range(repeats):
            begin = time.perf_counter()
            viewer.get(base + path.format(**filled))
            times.append(time.perf_counter() - begin)
        cpu = (viewer.cpu_s() - before) / repeats
        out[name] = {"wall": statistics.median(times), "worst": max(times), "cpu": cpu}
    out["memory_mb"] = viewer.memory_mb()
    viewer.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="for the run and the index, about 3 GB")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    run = write_run(args.folder / f"run_{args.rollouts}", rollouts=args.rollouts)
    print(f"written in {time.perf_counter() - begin:.0f} s", flush=True)
    found = measure(run, args.folder / "cache", repeats=args.repeats)
    rounded = json.loads(json.dumps(found), parse_float=lambda number: round(float(number), 3))
    print(json.dumps(rounded, indent=2))


if __name__ == "__main__":
    main()

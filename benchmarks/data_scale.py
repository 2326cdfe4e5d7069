"""Time and memory of each `ansatz data` verb on a million rows, each verb in its own process.

    python benchmarks/data_scale.py --rows 1000000 --out runs/data_scale

OUT/results.json and the printed table list the wall seconds, the processor seconds and the peak memory of each verb (as
the kernel counts it for that process). The rows come from the generators and look like GSM8K: a question, and a worked
answer that ends with `#### 72`. One row in twenty repeats an earlier row word for word, and one in twenty with one
phrase changed. The rows and the output of the verbs are in a temporary folder, which is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansatz.data.base import load_problems
from ansatz.data.keyed_random import KeyedRandom
from ansatz.types import Problem

STORIES, REPEATED, REWORDED = 0.7, 0.05, 0.05  # fractions of the rows
WORDS = {" and ": " as well as ", "How many": "What number of", " has ": " owns ", "Find": "Please find"}
REMEMBERED = 1000  # earlier rows that can be repeated
TEST_ROWS = 5000

VERBS = {
    "peek": "peek {rows}",
    "check": "check {rows}",
    "dedup": "dedup {rows} --out {folder}/dedup.jsonl",
    "dedup, exact only": "dedup {rows} --out {folder}/exact.jsonl --no-near",
    "decontaminate": "decontaminate {rows} --out {folder}/clean.jsonl --against {test}",
    "filter": "filter {rows} --out {folder}/filtered.jsonl --max-words 200",
    "split": "split {rows} --out {folder}/train.jsonl --heldout {folder}/heldout.jsonl",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("runs/data_scale"))
    parser.add_argument("--verbs", nargs="*", choices=list(VERBS), default=list(VERBS))
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="data_scale-", dir=arguments.folder) as name:
        folder = Path(name)
        rows, test = folder / "rows.jsonl", folder / "test.jsonl"
        write_rows(rows, arguments.rows, split="train")
        write_rows(test, TEST_ROWS, split="heldout")
        size = rows.stat().st_size
        results = []
        for verb in arguments.verbs:
            paths = {"rows": rows, "test": test, "folder": folder}
            results.append({"verb": verb, **measure(VERBS[verb].format(**paths).split())})
            print("{verb}: {seconds} s, {peak_mb} MB".format(**results[-1]), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = {"rows": arguments.rows, "bytes": size, "python": sys.version.split()[0], "verbs": results}
    (arguments.out / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    print(table(results))


def write_rows(path: Path, count: int, *, split: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for question, answer in texts(count, split=split):
            file.write(json.dumps({"question": question, "answer": answer}) + "\n")


def texts(count: int, *, split: str) -> Iterator[tuple[str, str]]:
    """(question, worked answer) of each row."""
    stories = load_problems("word_problems", split=split, settings={"count": count})
    others = load_problems("arithmetic", split=split, settings={"count": count})
    earlier: list[tuple[str, str]] = []
    for index in range(count):
        rng = KeyedRandom("data_scale", split, index)
        kind = rng.uniform()
        if earlier and kind < REPEATED + REWORDED:
            question, answer = rng.choice(earlier)
            yield (question if kind < REPEATED else reworded(question)), answer
            continue
        row = gsm8k_like(stories[index] if rng.uniform() < STORIES else others[index])
        if len(earlier) < REMEMBERED:
            earlier.append(row)
        else:
            earlier[rng.between(0, REMEMBERED - 1)] = row
        yield row


def gsm8k_like(problem: Problem) -> tuple[str, str]:
    steps = (problem.solution or "").rpartition("\n")[0]
    return problem.question, f"{steps}\n#### {problem.answer}"


def reworded(question: str) -> str:
    word = next((word for word in WORDS if word in question), question)
    return question.replace(word, WORDS.get(word, word), 1)


def measure(arguments: list[str]) -> dict[str, Any]:
    """Run the verb in its own process. RuntimeError if it fails; `check` exits with 1 if it finds unreadable golds."""
    code = "from ansatz.cli.main import main; main()"
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([sys.executable, "-c", code, "data", *arguments], stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        output.seek(0)
        text = output.read()
    if process.returncode not in ((0, 1) if arguments[0] == "check" else (0,)):
        raise RuntimeError(f"{arguments[0]} ended with {process.returncode}: {text[-2000:]}")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),  # Linux reports kB
        "output": text.splitlines()[-2:] if arguments[0] != "peek" else text.splitlines()[:1],
    }


def table(results: list[dict[str, Any]]) -> str:
    lines = ["| verb | seconds | processor seconds | peak memory, MB |", "|---|---|---|---|"]
    lines += [f"| {row['verb']} | {row['seconds']} | {row['cpu_seconds']} | {row['peak_mb']} |" for row in results]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

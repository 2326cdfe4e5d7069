"""What each verb of `ansatz data` takes for a million rows: seconds and memory, each verb in a process of its own.

    python benchmarks/data_scale.py --rows 1000000 --out runs/data_scale

OUT/results.json and the table that is printed hold, for each verb, its wall seconds, its processor seconds and the most
memory that it held at once (the kernel's count for that process). The rows are GSM8K-like: a question, and a worked
answer that ends with `#### 72`, from the generators; one in twenty repeats an earlier row word for word, and one in
twenty with one phrase changed. The rows and what the verbs write stay in a temporary folder, which is taken away.
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
from ansatz.data.keyed_random import Draw
from ansatz.types import Problem

STORIES, REPEATED, REWORDED = 0.7, 0.05, 0.05  # shares of the rows
WORDS = {" and ": " as well as ", "How many": "What number of", " has ": " owns ", "Find": "Please find"}
REMEMBERED = 1000  # earlier rows that may come again
TEST_ROWS = 5000

VERBS = {
    "peek": "peek {rows}",
    "check": "check {rows}",
    "dedup": "dedup {rows} --out {folder}/dedup.jsonl",
    "dedup, exact alone": "dedup {rows} --out {folder}/exact.jsonl --no-near",
    "decontaminate": "decontaminate {rows} --out {folder}/clean.jsonl --against {test}",
    "filter": "filter {rows} --out {folder}/filtered.jsonl --max-words 200",
    "split": "split {rows} --out {folder}/train.jsonl --heldout {folder}/heldout.jsonl",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("runs/data_scale"))
    parser.add_argument("--verbs", nargs="*", choices=list(VERBS), default=list(VERBS))
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="data_scale-", dir=given.folder) as name:
        folder = Path(name)
        rows, test = folder / "rows.jsonl", folder / "test.jsonl"
        write_rows(rows, given.rows, split="train")
        write_rows(test, TEST_ROWS, split="heldout")
        size = rows.stat().st_size
        found = []
        for verb in given.verbs:
            places = {"rows": rows, "test": test, "folder": folder}
            found.append({"verb": verb, **measured(VERBS[verb].format(**places).split())})
            print("{verb}: {seconds} s, {peak_mb} MB".format(**found[-1]), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    result = {"rows": given.rows, "bytes": size, "python": sys.version.split()[0], "verbs": found}
    (given.out / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    print(table(found))


def write_rows(path: Path, count: int, *, split: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for question, answer in texts(count, split=split):
            file.write(json.dumps({"question": question, "answer": answer}) + "\n")


def texts(count: int, *, split: str) -> Iterator[tuple[str, str]]:
    """(question, worked answer) of each row."""
    stories = load_problems("word_problems", split=split, settings={"count": count})
    others = load_problems("number_theory", split=split, settings={"count": count})
    earlier: list[tuple[str, str]] = []
    for index in range(count):
        draw = Draw("data_scale", split, index)
        kind = draw.uniform()
        if earlier and kind < REPEATED + REWORDED:
            question, answer = draw.pick(earlier)
            yield (question if kind < REPEATED else reworded(question)), answer
            continue
        row = gsm8k_like(stories[index] if draw.uniform() < STORIES else others[index])
        if len(earlier) < REMEMBERED:
            earlier.append(row)
        else:
            earlier[draw.between(0, REMEMBERED - 1)] = row
        yield row


def gsm8k_like(problem: Problem) -> tuple[str, str]:
    steps = (problem.solution or "").rpartition("\n")[0]
    return problem.question, f"{steps}\n#### {problem.answer}"


def reworded(question: str) -> str:
    word = next((word for word in WORDS if word in question), question)
    return question.replace(word, WORDS.get(word, word), 1)


def measured(arguments: list[str]) -> dict[str, Any]:
    """The verb in a process of its own. RuntimeError where it fails; `check` may find golds, which is exit code 1."""
    code = "from ansatz.cli.main import main; main()"
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([sys.executable, "-c", code, "data", *arguments], stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        said.seek(0)
        text = said.read()
    if process.returncode not in ((0, 1) if arguments[0] == "check" else (0,)):
        raise RuntimeError(f"{arguments[0]} ended with {process.returncode}: {text[-2000:]}")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),  # Linux counts in kB
        "said": text.splitlines()[-2:] if arguments[0] != "peek" else text.splitlines()[:1],
    }


def table(found: list[dict[str, Any]]) -> str:
    lines = ["| verb | seconds | processor seconds | most memory, MB |", "|---|---|---|---|"]
    lines += [f"| {one['verb']} | {one['seconds']} | {one['cpu_seconds']} | {one['peak_mb']} |" for one in found]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

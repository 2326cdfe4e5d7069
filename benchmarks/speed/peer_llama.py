"""llama.cpp as one side of the benchmark: `llama-batched-bench` decodes some rows at once.

It loads the model in each round, which is not counted. Its time is that of decoding alone: it reads a prompt of one
token per row, and chooses no tokens.
"""

from __future__ import annotations

import json
import subprocess
from itertools import cycle

from rounds import Rounds


def main() -> None:
    rounds = Rounds()
    settings = rounds.settings
    sizes = cycle(settings["sizes"])
    while rounds.begin():
        (prompts, samples), new = next(sizes), settings["max_tokens"]
        rows = prompts * samples
        command = [settings["program"], "-m", settings["model"], "-npp", "1", "-ntg", new, "-npl", rows]
        command += ["-c", rows * (new + 8), "-t", settings["threads"], "-tb", settings["threads"]]
        command += ["--output-format", "jsonl"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
        measured = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        rounds.end(seconds=measured["t_tg"], rows=rows, tokens=rows * new)


if __name__ == "__main__":
    main()

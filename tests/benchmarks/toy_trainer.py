"""A trainer that takes a second: its weight is a sum of random numbers, saved every five steps.

python toy_trainer.py FOLDER [--resume] [--careless]. A careless one does not save its random state.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

STEPS, SAVED_EVERY = 40, 5


def main() -> None:
    folder, careless = Path(sys.argv[1]), "--careless" in sys.argv
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, draw, state = folder / "checkpoint.json", random.Random(0), {"step": 0, "weight": 0.0}
    if "--resume" in sys.argv and checkpoint.exists():
        state = json.loads(checkpoint.read_text())
        if not careless:
            kind, words, following = state.pop("random")
            draw.setstate((kind, tuple(words), following))
    while state["step"] < STEPS:
        time.sleep(0.02)
        state = {"step": state["step"] + 1, "weight": state["weight"] + draw.random()}
        if state["step"] % SAVED_EVERY == 0 or stopped:
            saved = state if careless else {**state, "random": draw.getstate()}
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(json.dumps(saved))
            os.replace(draft, checkpoint)
        if stopped:
            sys.exit(75)
    (folder / "weight.txt").write_text(repr(state["weight"]))


main()

"""Files that cannot be written: a limit on the size of a file stands for a full disk. The last checkpoint must load."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansatz.train.checkpoint import list_checkpoints, verify_digests

from .fingerprint import differences, without_older_checkpoints
from .moments import DisturbedRuns

ALWAYS = 1_000_000
CASES = {
    "grpo": {
        "a checkpoint, once": ("checkpoint:save", 1),
        "a checkpoint, always": ("checkpoint:save", ALWAYS),
        "metrics, once": ("metrics.jsonl", 1),
        "metrics, always": ("metrics.jsonl", ALWAYS),
        "samples, twice": ("/samples/", 2),
        "samples, always": ("/samples/", ALWAYS),
        "evaluations, once": ("rl/evaluations.jsonl", 1),
        "evaluations, always": ("rl/evaluations.jsonl", ALWAYS),
        "the end of the stage": ("rl/done.json", ALWAYS),
    },
    "lag 2 with partial rollouts": {
        "weights for samplers, once": ("FileWeightStore.publish", 1),
        "weights for samplers, always": ("FileWeightStore.publish", ALWAYS),
        "the ledger, once": ("Ledger._append", 1),
        "the ledger, always": ("Ledger._append", ALWAYS),
    },
}
"""By kind of run: the write that fails, from the fourth step before the end on, and how often."""
_SENTENCE = re.compile(r"could not be written \(.+; (.+ are needed, )?.+ are free on this disk\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisk:
    """What a run did when a file could not be written at some steps.

    effect: "continued", if the run ended as the undisturbed one; "stopped", if it ended in one sentence with the path
    and the free space, its last checkpoint is undamaged, and the run ended as the undisturbed one when it was resumed;
    otherwise what went wrong. message: of the command. Not compared are events, which tell of the failure, and older
    checkpoints, which may be of other steps.
    """

    name: str
    effect: str
    message: str

    @property
    def good(self) -> bool:
        return self.effect in ("continued", "stopped")


def full_disks(runs: DisturbedRuns, *, only: Sequence[str] = ()) -> Iterator[FullDisk]:
    """Each of the CASES of this kind in a run of its own. only: the names of some of them."""
    first = max(moment.rows for moment in runs.moments) - 4
    for name in only or CASES[runs.kind]:
        write, times = CASES[runs.kind][name]
        run = runs.new_run(name)
        process = runs.resume(run, full={"write": write, "rows": first, "times": times})
        code, message = process.wait(), process.error().strip().replace(f"{run.parent}/", "")
        effect = "continued"
        if code:
            effect = _stopped(run, code, message)
            runs.resume(run).wait()
        changed = without_older_checkpoints(differences(runs.whole, run), runs.whole)
        changed = [file for file in changed if not file.endswith("events.jsonl")]
        yield FullDisk(name=name, effect=f"differs: {changed}" if changed else effect, message=message[-600:])


def _stopped(run: Path, code: int, message: str) -> str:
    (*_, newest) = list_checkpoints(run / "rl")
    verify_digests(newest)
    if code != 2 or not message.startswith("ansatz: ") or not _SENTENCE.search(message):
        return f"exit code {code}"
    return "stopped"

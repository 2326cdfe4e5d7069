"""Which held-out problems a run also trains on, by comparing the problems that its folder holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansatz.errors import DataError
from ansatz.json_text import parse_json
from ansatz.links import open_file
from ansatz.types import problem_from_json

TRAINED_ON = ("sft", "train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """seen: how many of the `problems` held-out problems have a question that one of `splits` has too."""

    problems: int
    seen: int
    splits: tuple[str, ...]

    def sentence(self) -> str:
        """Say how the overlap affects a score on these problems."""
        names = [f"data.{split}" for split in self.splits]
        if not self.seen:
            return f"None of their questions is in {' or '.join(names)}."
        verb = "is" if self.seen == 1 else "are"
        meaning = "how well they are remembered" if self.seen == self.problems else "partly memory"
        return (
            f"{self.seen} of {self.problems} questions {verb} also in {' and '.join(names)}, so the score is {meaning}."
        )


def overlap(run: Path, *, problems: int) -> Overlap | None:
    """Compare the first `problems` held-out problems with those that are trained on, word for word, whatever the case.

    None if the folder does not have the problems. splits: those that have one of the questions, or that were searched;
    with the digest of those that an entry of the list of stages names.
    """
    folder = run / "problems"
    searched = tuple(path.stem for split in TRAINED_ON for path in sorted(folder.glob(f"{split}*.jsonl")))
    heldout = [question for question, _ in zip(_questions(folder / "heldout.jsonl"), range(problems), strict=False)]
    if not heldout or not searched:
        return None
    wanted = set(heldout)
    found = {split: wanted.intersection(_questions(folder / f"{split}.jsonl")) for split in searched}
    seen = set[str]().union(*found.values())
    return Overlap(
        problems=len(heldout),
        seen=sum(question in seen for question in heldout),
        splits=tuple(split for split in searched if found[split]) or searched,
    )


def _questions(path: Path) -> Iterator[str]:
    """Yield the text of each problem: of a conversation, all that was said before the response."""
    if not path.is_file():
        return
    with open_file(path) as file:
        for line in file:
            try:
                problem = problem_from_json(parse_json(line, own=True))
                yield " ".join(problem.dialogue.casefold().split())
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise DataError(f"{path} was changed after it was written ({error}). Restore the file.") from error

"""How many skipped updates a stage keeps."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fake_tracker import MemoryTracker

from ansatz.loop import training_stage


@dataclass
class Skipped:
    step: int
    cause: str = "nan."

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)


def test_the_newest_skipped_updates_are_kept_under_names_of_their_own(tmp_path):
    numbers = Counter[int]()
    for step in (1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3):
        training_stage._store_skipped(tmp_path, MemoryTracker(), numbers, Skipped(step))
    assert sorted(path.name for path in (tmp_path / "skipped").iterdir()) == [f"step-000003-{n}" for n in range(2, 7)]

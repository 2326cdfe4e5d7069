"""The inputs of a run's stages: the problems that its first stage has stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansatz.data.store import read_problems, write_problems
from ansatz.errors import ConfigError, DataError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.loop.run_folder import read_done
from ansatz.loop.run_sources import RunSources
from ansatz.types import Problem


class StoredSources(RunSources):
    """The sources of a run that has begun. Problems are read once and rendered once, whichever stages use them.

    Anything that `sources` has read and rendered is not read again.
    """

    def __init__(self, sources: RunSources) -> None:
        super().__init__(sources.config)
        self.unfit, self._sources = sources.unfit, sources._sources
        if not sources.config.model.built:  # otherwise its tokenizer is not stored yet
            self._renderers = sources._renderers

    def problems(self, split: str) -> Sequence[Problem]:
        """Return the problems that the stage `problems` stored; before that, problems to check, which are not kept."""
        if (file := self.file_of(split)) not in self._problems:
            folder = self.config.run_dir / "problems"
            if read_done(folder) is None:
                return self.unstored(split)
            self._problems[file] = read_problems(folder / f"{file}.jsonl")
        return self._problems[file]

    def check_stored(self) -> None:
        """Raise ConfigError for problems that the run does not have: an entry that names them was added later."""
        for split in self.splits:
            if not (self.config.run_dir / "problems" / f"{self.file_of(split)}.jsonl").is_file():
                raise ConfigError(
                    f"stages: an entry names problems for data.{split} that this run did not store at its start. Start "
                    "a new run with --name NAME, or leave them out of the entry."
                )

    def keep(self, split: str, problems: Sequence[Problem]) -> None:
        """Remove all other problems of the split from its stored file."""
        folder = self.config.run_dir / "problems"
        write_problems(folder / f"{self.file_of(split)}.jsonl", problems)
        self.write_unfit(folder)
        super().keep(split, problems)

    def write_unfit(self, folder: Path) -> None:
        """Add the rows that were left out to problems/unfit.json: {split: [{place, reason, gold}, ...]}."""
        path = folder / "unfit.json"
        rows: dict[str, list[Any]] = (
            read_object(path, error=DataError, advice="Remove the file.") if path.is_file() else {}
        )
        for split, dropped in self.unfit.dropped.items():
            known = rows.setdefault(split, [])
            known += [row._asdict() for row in dict.fromkeys(dropped) if row._asdict() not in known]
        if rows:
            write_text(path, json.dumps(rows, indent=2))

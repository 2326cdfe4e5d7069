"""Graded responses of a model in a folder, written as they finish. An interrupted call resumes to the same bytes.

    settings.json    written first: the format version, and everything that the responses depend on
    rollouts.jsonl   graded responses, all samples of a problem as soon as the last one ends (see `responses`)

The settings determine the batches. A batch that was cut off is sampled again as a whole: the last bits of a logit
depend on how many rows are computed together, so a resumed folder could otherwise end in different responses.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response, ResponseGrader, from_row, to_row
from ansatz.files import check_ordinary_files, write_text
from ansatz.json_text import read_object
from ansatz.links import hold, list_folder, open_file
from ansatz.locks import LOCK_FILE
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.groups import GradedGroup, GroupSampler
from ansatz.track.jsonl import append_jsonl, keep_rows, read_jsonl, write_jsonl
from ansatz.types import Prompt
from ansatz.visible import say

FORMAT_VERSION = 3
"""Since format 3, tokens are chosen by Gumbel-max (`rollout.sampling`). Earlier ones are from before the first release.
"""
ADDED = {"data_sha256": "the problems", "files": "your own files"}
"""Settings that earlier folders of format 3 lack, and what they are digests of."""
LEFT_OVER = (LOCK_FILE, ".settings.json.draft")
"""Files of a call that was killed before it had written its settings."""


@dataclass(frozen=True, slots=True)
class ResponseStore:
    """The files of one sampling. option: of the command, with which the user chooses another folder."""

    path: Path
    option: str = "--out"

    def __post_init__(self) -> None:
        hold(self.path)

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts.jsonl"

    def open_or_check(self, settings: Mapping[str, Any]) -> None:
        """Write the settings to a new folder, or check that an existing one has the same.

        A folder of an earlier version gets the settings of `ADDED`. Raise ConfigError if others differ, or if the
        folder holds anything else.
        """
        file = self.path / "settings.json"
        self.check_writable()
        if not file.exists():
            if self.path.exists() and any(path.name not in LEFT_OVER for path in list_folder(self.path)):
                raise ConfigError(
                    f"{self.path} holds other files. Give the responses a folder of their own: {self.option} DIR."
                )
            write_json(file, {"format_version": FORMAT_VERSION, **settings})
            return
        existing = self.settings()
        added = {key: value for key, value in settings.items() if key in ADDED and key not in existing}
        existing |= added
        for key in {**existing, **settings}:
            if settings.get(key) != existing.get(key):
                raise ConfigError(
                    f"{self.path} holds responses with {key} = {existing.get(key)!r}; this command has "
                    f"{settings.get(key)!r}. Choose another folder ({self.option} DIR), or the same settings to resume."
                )
        if added:
            say(
                f"{self.path} was written by an earlier version, which did not record {' and '.join(added)}. So it is "
                f"not known whether {' and '.join(ADDED[key] for key in added)} were the same. They are recorded now.",
                file=sys.stderr,
            )
            write_json(file, {"format_version": FORMAT_VERSION, **settings})

    def check_writable(self) -> None:
        """Raise ConfigError if the folder, or a file in it that is written again, cannot be written."""
        check_ordinary_files(self.path)
        try:
            if self.path.exists() and not self.path.is_dir():
                raise ConfigError(
                    f"{self.path} is a file, expected a folder. Choose another one with {self.option} DIR."
                )
            for name in ("settings.json", "rollouts.jsonl", "results.json"):
                if (self.path / name).is_symlink() or (self.path / name).exists():
                    open_file(self.path / name, "a").close()
        except OSError as error:
            raise ConfigError(
                f"{str(self.path)[:200]!r} cannot be written ({error}). Choose another folder with {self.option} DIR."
            ) from error

    def settings(self) -> dict[str, Any]:
        """Return the settings. Raise ConfigError if there are none, or if they have another format."""
        check_ordinary_files(self.path)
        file = self.path / "settings.json"
        if not file.is_file():
            raise ConfigError(
                f"{self.path} was not written by `ansatz eval` or `ansatz sample` (settings.json is missing)."
            )
        advice = f"Give another folder with {self.option}, or restore the file."
        settings = read_object(file, error=ConfigError, advice=advice)
        if (version := settings.pop("format_version", None)) != FORMAT_VERSION:
            raise ConfigError(
                f"{file} has format version {version}; this version of Ansatz reads {FORMAT_VERSION}. Use the version "
                f"that wrote it, or sample again into another folder ({self.option} DIR)."
            )
        return settings

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        sampler: Sampler,
        sampling: Sampling,
        batch: int,
        grader: ResponseGrader,
        on_problem: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Sample the missing responses, then put the file in order. on_problem is called with the number of finished
        problems."""
        parts = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]
        position = {prompt.problem.id: index for index, prompt in enumerate(prompts)}
        count = Counter(response.id for response in self._read_stored())
        missing = [part for part in parts if any(count[prompt.problem.id] < sampling.num_samples for prompt in part)]
        again = {prompt.problem.id for part in missing for prompt in part}
        keep_rows(self.rollouts, lambda row: row["id"] in position and row["id"] not in again)  # no cut line either
        done = len(prompts) - len(again)
        on_problem(done)

        def write(group: GradedGroup[list[Response]]) -> None:
            nonlocal done
            for response in group.graded:
                append_jsonl(self.rollouts, to_row(response))
            done += 1
            on_problem(done)

        for part in missing:
            GroupSampler(sampler, grader).run(part, sampling, on_group=write)
        rows = read_jsonl(self.rollouts)
        write_jsonl(self.rollouts, sorted(rows, key=lambda row: (position[row["id"]], row["sample"])))

    def _read_stored(self) -> list[Response]:
        """Return the responses in the file, in its order. Raise DataError for a row that is not one, or that lacks a
        verdict."""
        responses = [from_row(row, where=str(self.rollouts)) for row in read_jsonl(self.rollouts)]
        for response in responses:
            if response.verdicts.keys() != responses[0].verdicts.keys():
                raise DataError(
                    f"{self.rollouts} has a response to {response.id!r:.60} with the verdicts "
                    f"{', '.join(response.verdicts)}, and others with {', '.join(responses[0].verdicts)}. Remove the "
                    "file to sample again."
                )
        return responses

    def responses(self) -> list[list[Response]]:
        """Return [P][S] of rollouts.jsonl, problems in the order of the file. Raise DataError if any response is
        missing."""
        expected = self.settings()
        groups: dict[str, list[Response]] = {}
        for response in self._read_stored():
            groups.setdefault(response.id, []).append(response)
        for key in ("samples_per_prompt", "num_problems"):
            if not isinstance(expected.get(key), int) or expected[key] < 1:
                raise ConfigError(
                    f"{self.path / 'settings.json'}: {key} is {expected.get(key)!r:.60}, expected a number above 0. "
                    "Restore the file, or sample again into another folder."
                )
        complete = [group for group in groups.values() if len(group) == expected["samples_per_prompt"]]
        if len(complete) != expected["num_problems"]:
            raise DataError(
                f"{self.rollouts} has all samples of {len(complete)} problems, expected {expected['num_problems']}. "
                "Run the same command again: it resumes where it stopped."
            )
        return complete


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the file by indented JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

"""Responses of a model to problems, kept as they come: stopped at any moment, gone on with to the same bytes.

    settings.json    written first; all that the responses depend on
    rollouts.jsonl   graded responses, the samples of a problem as soon as its last one ends (see `responses`)

Batches are fixed by the settings. One that was cut off is sampled again as a whole: in its last bits a logit depends on
how many rows are computed together, so without this a resumed folder could end in other responses.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Judge, Response, from_row, to_row
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.jsonl import append_jsonl, keep_rows, read_jsonl, write_jsonl
from ansatz.types import Prompt, Rollout


@dataclass(frozen=True, slots=True)
class ResponseStore:
    """The files of one sampling. NEEDS: verdicts that each response must have."""

    NEEDS: ClassVar[tuple[str, ...]] = ()
    path: Path

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts.jsonl"

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings, or finds them as they are. ConfigError where the folder is of another sampling."""
        file = self.path / "settings.json"
        if not file.exists():
            if self.path.exists() and any(self.path.iterdir()):
                raise ConfigError(
                    f"{self.path} holds other files. Give what is sampled a folder of its own: --out DIR."
                )
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(file, settings)
            return
        there = self.settings()
        for key in {**there, **settings}:
            if settings.get(key) != there.get(key):
                raise ConfigError(
                    f"{self.path} holds responses with {key} = {there.get(key)!r}, these would have "
                    f"{settings.get(key)!r}. "
                    "Give these another folder: --out DIR; or the settings of the first to go on with it."
                )

    def settings(self) -> dict[str, Any]:
        """ConfigError where there are none."""
        file = self.path / "settings.json"
        if not file.is_file():
            raise ConfigError(
                f"{self.path} is no folder of `ansatz eval` or `ansatz sample`: it has no settings.json. "
                "Give one that has."
            )
        return json.loads(file.read_text(encoding="utf-8"))

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        sampler: Sampler,
        sampling: Sampling,
        batch: int,
        judge: Judge,
        on_problem: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Samples what is still missing; on_problem is told how many problems are done. Ends with the file in order."""
        parts = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]
        count = _counts(read_jsonl(self.rollouts))
        missing = [part for part in parts if any(count[one.problem.id] < sampling.num_samples for one in part)]
        again = {prompt.problem.id for part in missing for prompt in part}
        if again & count.keys() or not missing:
            keep_rows(self.rollouts, lambda row: row["id"] not in again)
        done = len(prompts) - len(again)
        on_problem(done)
        for part in missing:
            writer = _Writer(
                self.rollouts, sampling.num_samples, judge, lambda more, before=done: on_problem(before + more)
            )
            sampler.generate(part, sampling, on_finished=writer)
            done += len(part)
        place = {prompt.problem.id: index for index, prompt in enumerate(prompts)}
        rows = read_jsonl(self.rollouts)
        write_jsonl(self.rollouts, sorted(rows, key=lambda row: (place[row["id"]], row["sample"])))

    def responses(self) -> list[list[Response]]:
        """[P][S] of rollouts.jsonl, problems in the order of the file. DataError where there are none, or not all."""
        groups: dict[str, list[Response]] = {}
        for row in read_jsonl(self.rollouts):
            one = from_row(row, where=str(self.rollouts), needs=self.NEEDS)
            groups.setdefault(one.id, []).append(one)
        expected = self.settings()
        whole = [group for group in groups.values() if len(group) == expected["k"]]
        if len(whole) != expected["num_problems"]:
            raise DataError(
                f"{self.rollouts} has all samples of {len(whole)} problems, expected {expected['num_problems']}. "
                "Sample again with the same settings: it goes on where it stopped."
            )
        return whole


class _Writer:
    """Collects rollouts as they end; grades and writes a problem's once it has them all."""

    def __init__(self, path: Path, num_samples: int, judge: Judge, on_problem: Callable[[int], None]) -> None:
        self._path, self._num_samples, self._judge, self._on_problem = path, num_samples, judge, on_problem
        self._waiting: defaultdict[str, list[Rollout]] = defaultdict(list)
        self._done = 0

    def __call__(self, rollout: Rollout) -> None:
        waiting = self._waiting[rollout.prompt.problem.id]
        waiting.append(rollout)
        if len(waiting) == self._num_samples:
            for one in self._judge(sorted(waiting, key=lambda one: one.sample)):
                append_jsonl(self._path, to_row(one))
            self._done += 1
            self._on_problem(self._done)


def _counts(rows: Sequence[Mapping[str, Any]]) -> defaultdict[str, int]:
    """Whole lines a problem."""
    count: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        count[row["id"]] += 1
    return count


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)

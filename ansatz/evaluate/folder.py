"""An evaluation in a folder: sampled batch by batch, stopped at any moment, gone on with to the same bytes.

    settings.json    written first; all that the numbers depend on
    rollouts.jsonl   graded responses, the samples of a problem as soon as its last one ends (see `responses`)
    results.json     settings and scores (see `scores`), once all is sampled

Batches are fixed by the settings. One that was cut off is sampled again as a whole: in its last bits a logit depends on
how many rows are computed together, so without this a resumed evaluation could end in other responses.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response, from_row, graded, graded_again, to_row
from ansatz.evaluate.scores import suite_scores
from ansatz.rewards.pool import WorkerPool
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.jsonl import append_jsonl, keep_rows, read_jsonl, write_jsonl
from ansatz.types import Prompt, Rollout


@dataclass(frozen=True, slots=True)
class EvaluationFolder:
    """The files of one evaluation."""

    path: Path

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts.jsonl"

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings, or finds them as they are. ConfigError where the folder is of another evaluation."""
        file = self.path / "settings.json"
        if not file.exists():
            if self.path.exists() and any(self.path.iterdir()):
                raise ConfigError(
                    f"{self.path} holds other files. Give this evaluation a folder of its own: --out DIR."
                )
            self.path.mkdir(parents=True, exist_ok=True)
            _write(file, settings)
            return
        for key, there in self.settings().items():
            if key not in settings or settings[key] != there:
                raise ConfigError(
                    f"{self.path} holds an evaluation with {key} = {there!r}, this one has {settings.get(key)!r}. "
                    "Give this one another folder: --out DIR; or the settings of the first to go on with it."
                )

    def settings(self) -> dict[str, Any]:
        """ConfigError where there are none."""
        file = self.path / "settings.json"
        if not file.is_file():
            raise ConfigError(f"{self.path} is no folder of `ansatz eval`: it has no settings.json. Give one that has.")
        return json.loads(file.read_text(encoding="utf-8"))

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        sampler: Sampler,
        sampling: Sampling,
        batch: int,
        pool: WorkerPool,
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
                self.rollouts, sampling.num_samples, pool, lambda more, before=done: on_problem(before + more)
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
            one = from_row(row, where=str(self.rollouts))
            groups.setdefault(one.id, []).append(one)
        expected = self.settings()
        whole = [group for group in groups.values() if len(group) == expected["k"]]
        if len(whole) != expected["num_problems"]:
            raise DataError(
                f"{self.rollouts} has all samples of {len(whole)} problems, expected {expected['num_problems']}. "
                "Run the evaluation again with the same settings: it goes on where it stopped."
            )
        return whole

    def grade_again(self, *, pool: WorkerPool) -> None:
        """Replaces every verdict by that of the verifier as it is now."""
        write_jsonl(
            self.rollouts, [to_row(graded_again(one, pool=pool)) for group in self.responses() for one in group]
        )

    def write_results(self) -> dict[str, Any]:
        """results.json from settings and rollouts alone: the same files give the same bytes."""
        settings = self.settings()
        results = {"settings": settings, "scores": suite_scores(self.responses(), seed=settings["seed"])}
        _write(self.path / "results.json", results)
        return results


class _Writer:
    """Collects rollouts as they end; grades and writes a problem's once it has them all."""

    def __init__(self, path: Path, num_samples: int, pool: WorkerPool, on_problem: Callable[[int], None]) -> None:
        self._path, self._num_samples, self._pool, self._on_problem = path, num_samples, pool, on_problem
        self._waiting: defaultdict[str, list[Rollout]] = defaultdict(list)
        self._done = 0

    def __call__(self, rollout: Rollout) -> None:
        waiting = self._waiting[rollout.prompt.problem.id]
        waiting.append(rollout)
        if len(waiting) == self._num_samples:
            for one in sorted(waiting, key=lambda one: one.sample):
                append_jsonl(self._path, to_row(graded(one, pool=self._pool)))
            self._done += 1
            self._on_problem(self._done)


def _counts(rows: Sequence[Mapping[str, Any]]) -> defaultdict[str, int]:
    """Whole lines a problem."""
    count: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        count[row["id"]] += 1
    return count


def _write(path: Path, value: Mapping[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)

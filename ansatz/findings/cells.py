"""The cells of a sweep: each arm on each block, with its recipe, checked before anything runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ansatz import __version__
from ansatz.config.load import check, load_recipe
from ansatz.config.schema import FIRST_STAGES, Config, flat_keys
from ansatz.data.base import find_source
from ansatz.errors import AnsatzError, ConfigError
from ansatz.findings.outcomes import bind_guard, bind_outcome, rank_of
from ansatz.findings.sweep_file import Keys, SweepFile, digest, label_of
from ansatz.loop.run_sources import RunSources
from ansatz.loop.start_checks import check_recipe, check_start
from ansatz.registry import settings_of, suggest
from ansatz.track.base import EVALUATION_NUMBERS, EXACT
from ansatz.track.metrics import exact_names, find_metric
from ansatz.track.sweep_rows import begin_of_run
from ansatz.train import checkpoint

BLOCK_STEP = 1000
"""How far apart the seeds of two neighbouring blocks are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a sweep. times: the multiple of the key that is tuned; 1 without tuning. config: the whole recipe as
    if the arm had not started from another run. arm: empty for the shared start of a block."""

    block: int
    arm: str
    times: float
    config: Config

    @property
    def key(self) -> tuple[int, str, float]:
        return self.block, self.arm, self.times

    @property
    def title(self) -> str:
        """Return the name of the cell on the console."""
        tuned = "" if self.times == 1 else f", x {self.times:g}"
        return f"block {self.block}, {self.arm or 'start'}{tuned}"

    @property
    def digest(self) -> str:
        """Return the digest of the resolved recipe: of every key that is not at its default, except name and out."""
        data = self.config.model_dump(mode="json", exclude_defaults=True)
        return digest({key: value for key, value in data.items() if key not in ("name", "out")})


class Cells:
    """Makes the cells of a sweep. out: the folder of the runs of all sweeps. trust_code: see `load_recipe`."""

    def __init__(self, sweep: SweepFile, out: Path, *, trust_code: bool | None = None) -> None:
        self.sweep, self.out, self._trust_code = sweep, out, trust_code
        base = load_recipe(sweep.recipe, overrides=_texts(sweep.common), trust_code=trust_code)
        self._base, self._flat = base, flat_keys(base.model_dump())  # as JSON, a text would lose who gave it

    def cell(self, block: int, arm: str, times: float = 1.0) -> Cell:
        """Return an arm on a block."""
        keys = self.sweep.all_arms[arm]
        if times != 1 and self.sweep.tune is not None:
            key = self.sweep.tune.key
            key = key if isinstance(key, str) else key.get(arm, "train.lr")
            value = flat_keys(self._config(block, keys, arm).model_dump()).get(key)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(
                    f"tune.key: {key} of the arm {arm!r} is {'missing' if value is None else repr(value)}, expected a "
                    "number, which is multiplied. Give it in `common` or in the arm."
                )
            rest = {name: given for name, given in keys.items() if name != f"{key}+"}
            keys = {**rest, key: times * float(value)}
        cell = Cell(block=block, arm=arm, times=times, config=self._config(block, keys, arm))
        begun = self.sweep.start and (self.sweep.start.model_dump(), str(self.branch_of(cell)))
        return self._place(cell, "arm", begun)

    def start(self, block: int) -> Cell:
        """Return the shared start of a block; its sweep has one with stages."""
        assert self.sweep.start is not None
        keys = {**self.sweep.start.keys, "stages": list(self.sweep.start.stages)}
        return self._place(Cell(block=block, arm="", times=1.0, config=self._config(block, keys, "start")), "start")

    def _place(self, cell: Cell, *begun: Any) -> Cell:
        """Return the cell with its run folder, which ends with the digest of all that makes the run and of the code.

        Sweeps with an equal cell or start find the one that has been run. begun: how it begins.
        """
        own = digest(cell.digest, code_commit(), *begun)[:12]
        name = begin_of_run(cell.arm, cell.times)
        known = sorted(self.out.glob(f"block-*/*-{own}"))
        folder = known[0] if known else self.out / f"block-{cell.block:04d}" / f"{name}-{own}"
        place = {"name": folder.name, "out": str(folder.parent)}
        return replace(cell, config=cell.config.model_copy(update=place))

    @property
    def has_start(self) -> bool:
        """Tell whether each block begins with a run that its arms share."""
        return self.sweep.start is not None and bool(self.sweep.start.stages)

    def from_start(self, cell: Cell) -> Config:
        """Return the recipe of an arm that continues with the model of its block's start, which is done."""
        assert self.sweep.start is not None
        data = cell.config.model_dump(mode="json")
        stages = [name for name in cell.config.stage_names if name not in (*FIRST_STAGES, *self.sweep.start.stages)]
        model = checkpoint.latest(self.start(cell.block).config.run_dir / self.sweep.start.stages[-1])
        data["model"]["path"], data["stages"] = str(model), stages
        if "sft" not in stages:
            data["data"]["sft"] = None
        return check(data, found_in=self._base.found_in)

    def branch_of(self, cell: Cell) -> tuple[Path, int] | None:
        """Return the run folder and the step that a cell branches from; None if the sweep has no branches."""
        start = self.sweep.start
        return None if start is None or start.run is None else (Path(start.run.format(block=cell.block)), start.step)

    def _config(self, block: int, keys: Keys, what: str) -> Config:
        plain = {key: value for key, value in keys.items() if not key.endswith("+")}
        varied = {key: self._number(key) + BLOCK_STEP * block for key in self.sweep.blocks.vary if self._has(key)}
        layer = {**self.sweep.common, **varied, **plain}
        for key in keys:
            if key.endswith("+"):
                layer[key[:-1]] = keys[key] + layer.get(key[:-1], self._number(key[:-1]))
        try:
            return load_recipe(self.sweep.recipe, overrides=_texts(layer), trust_code=self._trust_code)
        except ConfigError as error:
            raise ConfigError(f"block {block}, {what}: {error}") from error

    def _has(self, key: str) -> bool:
        """Tell whether a key depends on the block. The usual ones need not exist: some sources have no seed."""
        if "vary" in self.sweep.blocks.model_fields_set:
            return True
        source = self._flat.get(key.removesuffix("seed") + "source")
        return source is None or "seed" in settings_of(find_source(source))

    def _number(self, key: str) -> int:
        value = self._flat.get(key, 0)
        if not isinstance(value, int):
            raise ConfigError(f"{key} = {value!r}: expected a whole number, to which blocks.vary or {key}+ adds.")
        return value


def check_cells(cells: Cells) -> list[Cell]:
    """Check every arm on the first block, and return the cells that are planned whatever tuning finds.

    Raise ConfigError with the name of the first cell that could not run: its recipe, its files, its problems.
    """
    sweep, known = cells.sweep, set[str]()
    for outcome in sweep.outcomes:
        bind_outcome(outcome)
    for guard in sweep.measured:
        bind_guard(guard)
    first = sweep.blocks.seeds[0]
    times = {1.0, *(sweep.tune.times if sweep.tune else ())}
    arms = [cells.cell(first, arm, each) for arm in sweep.all_arms for each in sorted(times)]
    for cell in ([cells.start(first)] if cells.has_start else []) + arms:
        data = cell.config.model_dump(mode="json", exclude={"name", "train", "algorithm", "stages"})
        texts = json.dumps(data, sort_keys=True)
        try:
            if texts in known:  # the same problems and prompts, which take seconds to read
                check_recipe(cell.config)
            else:
                check_start(RunSources(cell.config))
                known.add(texts)
        except AnsatzError as error:
            raise ConfigError(f"{cell.title}: {error}") from error
        if (branch := cells.branch_of(cell)) is not None:
            path = branch[0] / "rl" / "checkpoints" / checkpoint.name_of(branch[1])
            if not path.is_dir():
                raise ConfigError(f"{cell.title}: {path} is missing. Run the sweep or recipe that start.from names.")
    _check_metrics(sweep)
    planned = [cells.cell(block, arm) for block in sweep.blocks.seeds for arm in sweep.all_arms]
    return plan_tuning(cells) + planned


def _check_metrics(sweep: SweepFile) -> None:
    """Raise ConfigError for a metric or number that no run has. The check of the cells has read the tables of their
    stages. Outcomes in a file of the user can name anything."""
    known = (*EVALUATION_NUMBERS, EXACT)
    guards = (name.removeprefix("control_").partition(" ")[0] for name in sweep.measured)
    names = [*(name for name in guards if "/" in name), *sweep.figure.curves]
    for outcome in sweep.outcomes:
        given = [str(outcome.get(key, "")) for key in ("metric", "number") if ":" not in outcome["name"]]
        by_level = outcome["name"] == "gain_by_level"  # a level has more numbers than a curve can show
        names += [name for name in given if "/" in name or not by_level]
    for name in filter(None, names):
        if ":" not in name and name not in known and find_metric(name) is None:
            raise ConfigError(
                f"the sweep file names {name!r}, which is not a metric or a number of the evaluations."
                f"{suggest(name, [*known, *exact_names()])}"
            )


def plan_tuning(cells: Cells) -> list[Cell]:
    """Return the cells that choose the value of the key that is tuned, for each arm."""
    tune = cells.sweep.tune
    if tune is None:
        return []
    return [cells.cell(block, arm, each) for block in tune.seeds for arm in cells.sweep.all_arms for each in tune.times]


def plan_tests(cells: Cells, rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Return the cells of the blocks: each arm at its common value and, once its tuning is complete, at its best."""
    best = dict.fromkeys(cells.sweep.all_arms, 1.0) | choose_times(cells.sweep, rows)
    return [
        cells.cell(block, arm, each)
        for block in cells.sweep.blocks.seeds
        for arm in cells.sweep.all_arms
        for each in sorted({1.0, best[arm]})
    ]


def choose_times(sweep: SweepFile, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the multiple with the best mean outcome of the file on the tuning blocks, by arm that has been tuned.

    Of equal ones, the smallest. A cell without an outcome counts as the worst.
    """
    chosen: dict[str, float] = {}
    label, seeds = label_of(sweep.outcome), sweep.tune.seeds if sweep.tune else ()
    for arm in sweep.all_arms if seeds else ():
        found: dict[float, list[float]] = {}
        for row in rows:
            if row.get("arm") == arm and row["block"] in seeds:
                rank = rank_of(sweep.outcome, row["outcomes"].get(label))
                found.setdefault(float(row["times"]), []).append(rank)
        complete = {times: sum(values) for times, values in found.items() if len(values) == len(seeds)}
        if complete:
            chosen[arm] = min(complete, key=lambda times: (-complete[times], times))
    return chosen


@cache
def code_commit() -> str:
    """Return the last commit that changed the code, with a digest of uncommitted changes to it; the version without a
    repository."""
    folder = Path(__file__).parents[2]
    code = ("--", "ansatz", "packages/verify/ansatz_verify", "findings/*.py")

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments, *code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        last, changed = git("log", "-1", "--format=%h", "--abbrev=10"), git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        last = changed = ""
    return f"{last or f'version {__version__}'}{f'+{digest(changed)[:6]}' if changed else ''}"


def _texts(keys: Keys) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in keys.items()}

"""Runs the missing cells of a sweep, block by block, with several processes of one thread.

A killed sweep leaves rows of whole cells only. Started again, it resumes the runs that were cut off, which end with the
same bits, and so with the same rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from ansatz.config.schema import Config
from ansatz.errors import (
    AnsatzError,
    ConfigError,
    DataError,
    NonFiniteError,
    RunInterrupted,
    RunStopped,
    StorageError,
)
from ansatz.findings.cells import Cell, Cells, plan_tests, plan_tuning
from ansatz.findings.rows import RowFile, make_row
from ansatz.links import copy_tree, hold, remove, rename
from ansatz.loop.pipeline import run_pipeline
from ansatz.process import forget_safe_start, started_safely
from ansatz.track.report import write_report
from ansatz.train import checkpoint

DONE, COLLAPSED, FAILED = "done", "collapsed", "failed"
_NOT_OF_THE_CELL = (ConfigError, DataError, StorageError)
"""Errors that another cell would have too, and that say nothing about the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the run of a cell ended."""

    status: str
    why: str
    cpu_s: float


def run_sweep(cells: Cells, rows: RowFile, *, processes: int, say: Callable[[str], object]) -> None:
    """Run every cell that has no row: the cells of tuning first, then block by block.

    Raise an error that concerns the machine or every cell. Errors of training become rows.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    context = get_context("spawn")
    with started_safely(), ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            _run_all(cells, rows, plan_tuning(cells), pool, processes, say)
            _run_all(cells, rows, plan_tests(cells, rows.rows), pool, processes, say)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run_all(
    cells: Cells,
    rows: RowFile,
    planned: Sequence[Cell],
    pool: ProcessPoolExecutor,
    processes: int,
    say: Callable[[str], object],
) -> None:
    waiting = [cell for cell in planned if not rows.has(cell)]
    if cells.has_start:
        blocks = dict.fromkeys(cell.block for cell in waiting)
        waiting = [each for block in blocks for each in (cells.start(block), *(c for c in waiting if c.block == block))]
    running: dict[Future[Ended], Cell] = {}
    started: set[int] = {cell.block for cell in waiting} if not cells.has_start else set()
    while waiting or running:
        for cell in tuple(waiting):
            taken = {other.config.run_dir for other in running.values()}  # two arms may have one recipe
            if len(running) == processes or cell.config.run_dir in taken or (cell.arm and cell.block not in started):
                continue
            waiting.remove(cell)
            config = cells.from_start(cell) if cell.arm and cells.has_start else cell.config
            running[pool.submit(run_cell, config, cells.branch_of(cell))] = cell
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            cell, ended = running.pop(future), future.result()
            if not cell.arm:
                if ended.status != DONE:
                    raise ConfigError(f"{cell.title}: {ended.why}")
                started.add(cell.block)
                if ended.cpu_s:
                    rows.add_cost(cell.block, "", 1.0, ended.cpu_s)
            else:
                row = make_row(cells.sweep, cell, cell.config.run_dir, status=ended.status, why=ended.why)
                rows.add(row, cpu_s=ended.cpu_s)
            say(f"{cell.title}: {ended.status}, {ended.cpu_s:.0f} CPU-seconds {ended.why}".rstrip())
            say(f"  {cell.config.run_dir}")


def run_cell(config: Config, branch: tuple[Path, int] | None) -> Ended:
    """Run the recipe of a cell in this process, or the part of it that is left."""
    before = time.process_time()

    def end(status: str, why: str = "") -> Ended:
        return Ended(status=status, why=why, cpu_s=time.process_time() - before)

    try:
        _run(config, branch)
    except (NonFiniteError, RunStopped) as error:
        return end(COLLAPSED, str(error))
    except _NOT_OF_THE_CELL:
        raise
    except AnsatzError as error:
        return end(FAILED, str(error))
    except RunInterrupted as interruption:
        raise ConfigError(f"{interruption} Start the sweep again to go on.") from interruption
    return end(DONE)


def _run(config: Config, branch: tuple[Path, int] | None) -> None:
    folder = config.run_dir
    if (folder / "summary.json").is_file():
        return
    if branch is not None and not (folder / "config.yaml").is_file():
        _copy_until(*branch, folder)
    if (folder / "config.yaml").is_file():
        try:
            run_pipeline(config, resume=True, allow_changes=branch is not None, report=write_report)
            return
        except ConfigError:  # of a folder whose recipe was another one
            if branch is not None:
                raise
    run_pipeline(config, fresh=True, report=write_report)


def _copy_until(source: Path, step: int, folder: Path) -> None:
    """Copy a run folder as it was after a step of its RL."""
    draft = folder.with_name(f".{folder.name}.draft")
    remove(draft)
    copy_tree(hold(source), draft)
    for path in (draft / "summary.json", draft / "rl" / "done.json"):
        remove(path)
    for path in checkpoint.list_checkpoints(draft / "rl"):
        if checkpoint.step_of(path) > step:
            remove(path)
    rename(draft, folder)


def _end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, however it ended: the runs that it left would hold
    their folders."""
    forget_safe_start()
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

"""The short version of benchmarks/reliability.py: kills, signals, full disks and damage of real processes.

`make test-slow` runs it. `make test` kills and signals runs in test_resume.py and test_signals.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.faults import kinds
from benchmarks.faults.campaign import DisturbedRun, Disturber, Plan
from benchmarks.faults.kind_adapter import PROMISES, KindAdapter
from benchmarks.faults.marked import CALLS, HELD, PHASES
from benchmarks.faults.processes import Forks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KILLS = (
    ("update", "saving", "before a file is replaced"),
    ("half a row", "update", "saving", "evaluation", "before a file is replaced", None),
)
SIGNALS = (
    ("sampling", "update", "saving"),
    ("sampling", "grading", "update", "evaluation", "saving"),
)
LEAST = {3: 2, 5: 3, 6: 3}
"""Faults of a plan's steps: on a busy machine, a run may have ended before the last ones."""
DAMAGES = ("checkpoint: folder swapped with the older one", "metrics.jsonl: line without its keys",
           "evaluations.jsonl: empty", "stray files and folders in checkpoints")  # fmt: skip
REFUSED = DAMAGES[:2]


@pytest.fixture(scope="module")
def grpo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindAdapter]:
    with Forks() as forks, Forks() as others:  # with other hashes of strings
        adapter = KindAdapter(name="grpo", start=forks.start, start_whole=others.start, changes=kinds.SHORT, **PROMISES)
        adapter.prepare(tmp_path_factory.mktemp("grpo"))
        yield adapter


def disturbed(adapter: KindAdapter, folder: Path, plan: Plan) -> DisturbedRun:
    result = Disturber(adapter, folder / "disturbed" / "run", 0, plan).disturb()
    assert result.differences == []
    assert result.unexpected == []
    return result


@pytest.mark.parametrize("phases", KILLS, ids=len)
def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bits(grpo, tmp_path, phases):
    result = disturbed(grpo, tmp_path, [("kill", phase) for phase in phases])
    assert len(result.faults) >= LEAST[len(phases)]
    assert {fault.code for fault in result.faults} == {-9}


@pytest.mark.parametrize("phases", SIGNALS, ids=len)
def test_signals_in_every_wait_save_the_run_which_then_ends_in_the_same_bits(grpo, tmp_path, phases):
    result = disturbed(grpo, tmp_path, [("signal", phase) for phase in phases])
    assert len(result.faults) >= LEAST[len(phases)]
    assert {fault.code for fault in result.faults} <= {0, 75}  # 0: it was just ending


def test_a_run_that_is_stopped_and_whose_disk_is_full_for_some_time_ends_in_the_same_bits(grpo, tmp_path):
    result = disturbed(grpo, tmp_path, [("stop", "sampling"), ("full disk", "saving"), ("full disk", "update")])
    assert result.faults[0].fault == "stop"


def test_damage_to_a_run_is_refused_or_makes_no_difference(grpo, tmp_path):
    rows = [moment for moment in grpo.moments if moment.phase == "half a row"]  # where the command waits for the kill
    last = max(rows, key=lambda moment: moment.rows)
    plan = [step for name in DAMAGES for step in (("kill", last), ("damage", name))]
    result = disturbed(grpo, tmp_path, plan)
    effects = {fault.of: fault.effect for fault in result.faults if fault.fault == "damage"}
    assert effects.keys() == set(DAMAGES)
    assert {name for name, effect in effects.items() if effect.startswith("refused: ansatz: ")} == set(REFUSED)


def test_every_phase_is_one_of_some_kind_of_run(grpo):
    """A call that is renamed in the package would otherwise be marked no more."""
    of_others = {"skipped update", "selection", "resuming", "rolling back", "publishing weights", "writing the ledger"}
    assert set(PHASES) - {moment.phase for moment in grpo.moments} == of_others
    assert len(PHASES) == len(CALLS) + len(HELD)

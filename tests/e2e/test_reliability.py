"""The short version of benchmarks/reliability.py: kills, signals and damage of real processes."""

import random

import pytest

from benchmarks.faults import damage, kinds
from benchmarks.faults.kills import killed_run
from benchmarks.faults.marked import CALLS, HELD, PHASES
from benchmarks.faults.moments import ANY, DisturbedRuns
from benchmarks.faults.processes import Forks
from benchmarks.faults.signals import signalled_run

pytestmark = pytest.mark.e2e

KILLS = ("half a row", "update", "saving", "evaluation", "before a file is replaced", ANY)
SIGNALS = ("sampling", "grading", "update", "evaluation", "saving")


@pytest.fixture(scope="module")
def forks():
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="module")
def runs(forks, tmp_path_factory):
    with Forks() as other:  # with other hashes of strings than the disturbed runs
        return DisturbedRuns(
            "grpo", tmp_path_factory.mktemp("grpo"), start=forks.start, start_whole=other.start, changes=kinds.SHORT
        )


def test_a_run_that_is_killed_six_times_ends_in_the_same_bits(runs):
    killed = killed_run(runs, "killed", KILLS, random.Random(0))
    assert len(killed.kills) >= 5  # a moment that the run has already passed is left out
    assert killed.differences == ()
    assert not any(kill.orphans for kill in killed.kills)


def test_signals_in_every_wait_leave_a_checkpoint_and_no_process_and_the_run_ends_in_the_same_bits(runs):
    stopped = signalled_run(runs, "stopped", SIGNALS, random.Random(0))
    assert len(stopped.signals) >= 4
    assert all(outcome.good for outcome in stopped.signals), stopped
    assert stopped.differences == ()


def test_damage_to_a_run_is_refused_or_makes_no_difference(runs):
    names = ("checkpoint: folder swapped with the older one", "metrics.jsonl: line without its keys",
             "evaluations.jsonl: empty", "stray files and folders in checkpoints")  # fmt: skip
    effects = {each.name: each for each in damage.damaged_runs(runs, random.Random(0), only=names)}
    assert effects.keys() == set(names)
    assert all(each.good for each in effects.values()), effects


def test_every_phase_is_one_of_some_kind_of_run(runs):
    """A call that is renamed in the package would otherwise be marked no more."""
    of_others = {"skipped update", "selection", "resuming", "rolling back", "publishing weights", "writing the ledger"}
    assert set(PHASES) - set(runs.phases) == of_others
    assert len(PHASES) == len(CALLS) + len(HELD)

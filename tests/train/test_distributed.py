"""What the driver does when ranks die, hang, fail or disagree. The ranks are scripted: numbers instead of models."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster, Plan

from ansatz.cluster.base import Role
from ansatz.errors import AlignmentError, ClusterLost, RolloutError, TrainerError
from ansatz.train import checkpoint
from ansatz.train.distributed import DistributedTrainer
from ansatz.train.rank_group import RankGroup, RankLimits
from ansatz.train.rank_host import RankAnswer, Status
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import StepReport

LIMITS = RankLimits(start=20.0, call=10.0, patience=60.0)
FILE = "training/total.json"


class Ranks:
    """Every rank keeps a sum that depends on the order of updates.

    harm: called with (rank, method, arguments) before each call; what it returns replaces the plan.
    updates: (worker, step) of every update. answered: when all ranks had answered a call. left: the workers that have
    been told to leave. room: the number of ranks that can be placed at a time.
    """

    def __init__(self) -> None:
        self.total: dict[str, float] = {}
        self.batch: dict[str, float] = {}
        self.version: dict[str, int] = {}
        self.rank: dict[str, int] = {}
        self.updates: list[tuple[str, int]] = []
        self.answered: list[float] = []
        self.left: list[str] = []
        self.needs_greedy = False
        self.harm: Callable[[int, str, tuple[Any, ...]], Plan | None] = lambda rank, method, args: None
        self.cluster = FakeCluster(self.script)
        self.machine: Callable[[str], str] = lambda worker: "one"
        self.room: Callable[[float], int] = lambda now: 2
        self._start, self.cluster.start = self.cluster.start, self.start  # pyright: ignore[reportAttributeAccessIssue]

    def start(self, role: Role, count: int) -> list[str]:
        if count > (room := self.room(self.cluster.now())):
            raise RolloutError(f"{count} trainer processes x 1 = {count} CPU, and the cluster has {room} CPU")
        return self._start(role, count)

    def script(self, worker: str, method: str, args: tuple[Any, ...]) -> Plan:
        if method == "machine":
            return Plan(value=self.machine(worker))
        if method == "open_store":
            self.is_one_machine = args[0]
            return Plan(value=("127.0.0.1", 1))
        if method == "join":
            self.rank[worker], self.total[worker], self.version[worker] = args[0], 0.0, 0
        if method == "leave":
            self.left.append(worker)
        if (plan := self.harm(self.rank[worker], method, args)) is not None:
            return plan
        agreed, own = None, []
        if method == "batch":
            self.batch[worker] = sum(sample.reward for sample in args[0])
        elif method == "update":
            step, scale = args[0], args[3]
            self.updates.append((worker, step))
            self.total[worker] = 1.5 * self.total[worker] + scale * self.batch[worker] * step
            self.version[worker] += 1
            agreed = StepReport(measurements={}, num_updates=1, num_tokens=step)
        elif method == "save" and self.rank[worker] == 0:
            (args[0] / FILE).write_text(json.dumps(self.total[worker]))
        elif method == "restore":
            self.total[worker], self.version[worker] = json.loads((args[0] / FILE).read_text()), args[1]["version"]
        return Plan(seconds=1.0, value=self.answer(worker, agreed, own))

    def answer(self, worker: str, agreed: Any = None, own: Any = None, error: Any = None) -> RankAnswer:
        version = self.version[worker]
        status = Status(
            version=version,
            changes=version,
            state={"version": version},
            checkpoint_bytes=1,
            weights_bytes=1,
            published_bytes=1,
            needs_greedy=self.needs_greedy,
            device="cpu",
        )
        return RankAnswer(status=status, agreed=agreed, own=own, error=error, peak_gb=float(self.rank[worker]))

    def trainer(self, folder: Path, *, min_size: int = 2) -> DistributedTrainer:
        group = RankGroup(
            self.cluster,
            Role(name="trainer", target=""),
            size=2,
            min_size=min_size,
            limits=LIMITS,
            on_answer=lambda: self.answered.append(self.cluster.now()),
        )
        trainer = DistributedTrainer(group, tokenizer=None, stage_folder=folder)
        self.events: list[tuple[int, str]] = []
        trainer.on_event = lambda step, text: self.events.append((step, text))
        return trainer


def sample(reward: float) -> TrainSample:
    return TrainSample(prompt_ids=[1], token_ids=[2], behavior_logps=[-1.0], group=0, reward=reward)


def train(ranks: Ranks, folder: Path, *, last: int = 6) -> float:
    """Steps with a checkpoint after step 2. The sum at the end."""
    trainer = ranks.trainer(folder)
    for step in range(1, last + 1):
        if step == 5:
            trainer.set_lr_scale(0.5)
        trainer.update(trainer.batch([sample(float(step))]), step=step)
        if step == 2:
            checkpoint.save(folder, step=2, trainer=trainer, state={}, keep=1)
    assert trainer.version == last
    trainer.close()
    (total,) = {ranks.total[worker] for worker in list(ranks.total)[-2:]}
    return total


@pytest.fixture
def undisturbed(tmp_path: Path) -> float:
    return train(Ranks(), tmp_path / "undisturbed")


def once(step: int, method: str, plan: Plan) -> Callable[[int, str, tuple[Any, ...]], Plan | None]:
    """Rank 1 does this in the first call of the method in a step. A batch belongs to the step of its reward."""
    plans = [plan]

    def harm(rank: int, called: str, args: tuple[Any, ...]) -> Plan | None:
        at = args[0][0].reward if called == "batch" else args[0] if called == "update" else None
        return plans.pop() if (rank, called, at) == (1, method, step) and plans else None

    return harm


def test_the_sum_of_undisturbed_steps_is_that_of_their_rewards_and_rates(undisturbed: float):
    total = 0.0
    for step in range(1, 7):
        total = 1.5 * total + (0.5 if step >= 5 else 1.0) * step * step
    assert undisturbed == total


@pytest.mark.parametrize(("step", "repeated"), [(3, []), (6, [3, 4, 5])])
def test_what_is_repeated_is_what_no_checkpoint_has(tmp_path: Path, undisturbed: float, step: int, repeated: list[int]):
    ranks = Ranks()
    ranks.harm = once(step, "batch", Plan(seconds=None))
    assert train(ranks, tmp_path / "run") == undisturbed
    new = sorted(ranks.rank)[-2]
    assert [step for worker, step in ranks.updates if worker == new] == [*repeated, *range(step, 7)]


def test_every_answer_to_a_repeated_call_is_noted(tmp_path: Path):
    """Otherwise a run whose ranks repeat many steps would look as if it had stalled."""
    whole, ranks = Ranks(), Ranks()
    train(whole, tmp_path / "whole")
    ranks.harm = once(5, "update", Plan(seconds=None))
    train(ranks, tmp_path / "run")
    # They join, restore step 2, make the batches and updates of steps 3 and 4 again, and the batch of step 5.
    assert len(ranks.answered) == len(whole.answered) + 1 + 1 + 2 * 2 + 1


def test_updates_that_a_checkpoint_has_are_not_kept(tmp_path: Path):
    trainer = Ranks().trainer(tmp_path)
    for step in (1, 2, 3):
        trainer.update(trainer.batch([sample(1.0)]), step=step)
        if step == 2:
            checkpoint.save(tmp_path, step=2, trainer=trainer, state={}, keep=1)
    assert [update.step for update in trainer._updates] == [3]


@pytest.mark.parametrize("method", ["batch", "update"])
@pytest.mark.parametrize("plan", [Plan(seconds=None), Plan(seconds=0.5, error="RuntimeError: connection closed")])
def test_after_a_loss_all_ranks_repeat_the_steps_since_the_checkpoint(
    tmp_path: Path, undisturbed: float, plan: Plan, method: str
):
    ranks = Ranks()
    ranks.harm = once(5, method, plan)
    assert train(ranks, tmp_path / "run") == undisturbed
    new = sorted(ranks.rank)[-2:]
    assert [step for worker, step in ranks.updates if worker == new[0]] == [3, 4, 5, 6]
    assert "rank 1" in ranks.events[0][1]
    assert ranks.events[1][1] == "the ranks have repeated steps 3 to 4."


def test_without_a_checkpoint_the_steps_are_repeated_from_the_start(tmp_path: Path):
    ranks = Ranks()
    ranks.harm = once(2, "update", Plan(seconds=None))
    assert train(ranks, tmp_path / "run", last=2) == train(Ranks(), tmp_path / "undisturbed", last=2)
    assert [step for worker, step in ranks.updates if worker == sorted(ranks.rank)[-1]] == [1, 2]


def test_a_death_kills_the_other_ranks(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    first = ranks.cluster.alive
    trainer.update(trainer.batch([sample(1.0)]), step=1)
    ranks.cluster.die(first[1])
    trainer.batch([sample(1.0)])
    assert len(ranks.cluster.alive) == 2
    assert not set(first) & set(ranks.cluster.alive)
    assert ranks.events[0][1].startswith("rank 1 died (signal 9).")


def test_ranks_that_die_again_and_again_end_the_run(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    ranks.harm = lambda rank, method, args: Plan(error="OutOfMemoryError") if method == "batch" else None
    lost_at = list[float]()
    trainer.on_event = lambda step, text: lost_at.append(ranks.cluster.now())
    with pytest.raises(TrainerError, match=r"OutOfMemoryError.* The budget of 5 restarts .* is spent"):
        trainer.batch([sample(1.0)])
    pauses = [later - earlier for earlier, later in pairwise(lost_at)]
    assert all(pause > delay for pause, delay in zip(pauses, (1.0, 2.0, 4.0, 8.0), strict=True))


def test_ranks_that_disagree_end_the_run(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    ranks.harm = lambda rank, method, args: (
        Plan(value=ranks.answer(ranks.cluster.alive[rank], agreed=f"loss {rank}")) if method == "update" else None
    )
    with pytest.raises(TrainerError, match="ranks 0 and 1 of the trainer disagree"):
        trainer.update(trainer.batch([sample(1.0)]), step=1)


def test_an_error_of_all_ranks_is_raised_and_they_go_on(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    before = ranks.cluster.alive
    ranks.harm = lambda rank, method, args: (
        Plan(value=ranks.answer(before[rank], error=AlignmentError("step 1: no"))) if method == "update" else None
    )
    batch = trainer.batch([sample(1.0)])
    with pytest.raises(AlignmentError, match="step 1: no"):
        trainer.update(batch, step=1)
    ranks.harm = lambda rank, method, args: None
    trainer.update(batch, step=1)
    assert ranks.cluster.alive == before
    assert trainer.changes == 1


def test_an_error_that_one_rank_has_while_the_others_wait_for_it_is_raised(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    workers = ranks.cluster.alive
    full = Plan(seconds=1.0, value=ranks.answer(workers[1], error=OSError(28, "No space left on device")))
    ranks.harm = lambda rank, method, args: (full if rank == 1 else Plan(seconds=None)) if method == "update" else None
    batch, begun = trainer.batch([sample(1.0)]), ranks.cluster.now()
    with pytest.raises(OSError, match="No space left"):
        trainer.update(batch, step=1)
    assert ranks.cluster.now() - begun < LIMITS.call
    ranks.cluster.events(0.0)
    assert ranks.cluster.alive == []  # the others would wait for ever


def test_the_whole_group_ends_when_ranks_disagree_and_when_the_trainer_is_closed(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path / "disagree")
    ranks.harm = lambda rank, method, args: (
        Plan(value=ranks.answer(ranks.cluster.alive[rank], agreed=rank)) if method == "batch" else None
    )
    with pytest.raises(TrainerError, match="disagree"):
        trainer.batch([sample(1.0)])
    ranks.cluster.events(0.0)
    assert ranks.cluster.alive == []
    closed = Ranks()
    trainer, workers = closed.trainer(tmp_path / "closed"), closed.cluster.alive
    trainer.close()
    closed.cluster.events(0.0)
    assert closed.cluster.alive == []
    assert closed.left == workers


@pytest.mark.parametrize("dies", [True, False])
def test_a_loss_is_noticed_in_time_while_the_other_ranks_hang(tmp_path: Path, dies: bool):
    """A death at once, although the others wait for the dead rank; a rank that hangs, after the time for a call."""
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    batch, begun, harmed = trainer.batch([sample(1.0)]), ranks.cluster.now(), list[int]()

    def harm(rank: int, method: str, args: tuple[Any, ...]) -> Plan | None:
        if method != "update" or len(harmed) == 2:
            return None
        harmed.append(rank)
        if dies and rank == 1:
            ranks.cluster.die(ranks.cluster.alive[1], after_s=1.0)
        return Plan(seconds=None)

    ranks.harm = harm
    trainer.update(batch, step=1)
    assert ranks.cluster.now() - begun < (LIMITS.call if dies else 2 * LIMITS.call)


def test_the_cause_of_a_loss_is_the_death_and_not_what_other_ranks_saw_of_it(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    batch, first = trainer.batch([sample(1.0)]), ranks.cluster.alive
    ranks.cluster.die(first[1], after_s=0.6)
    lost = [Plan(seconds=0.5, error="RuntimeError: connection closed by peer")]
    ranks.harm = lambda rank, method, args: lost.pop() if (rank, method) == (0, "update") and lost else None
    trainer.update(batch, step=1)
    assert ranks.events[0][1].startswith("rank 1 died (signal 9). All ranks")


def test_while_ranks_compute_it_is_unknown_whether_the_weights_have_changed(tmp_path: Path):
    ranks = Ranks()
    trainer, seen = ranks.trainer(tmp_path), list[int]()
    ranks.harm = lambda rank, method, args: seen.append(trainer.changes)
    trainer.update(trainer.batch([sample(1.0)]), step=1)
    assert set(seen) == {-1}
    assert trainer.changes == 1


def test_a_batch_that_is_not_the_last_one_is_built_again(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    first, _ = trainer.batch([sample(1.0)]), trainer.batch([sample(2.0)])
    trainer.update(first, step=1)
    assert set(ranks.total.values()) == {1.0}


def test_a_batch_without_the_baselines_that_the_objective_needs_is_refused(tmp_path: Path):
    ranks = Ranks()
    ranks.needs_greedy = True
    with pytest.raises(KeyError, match="0"):
        ranks.trainer(tmp_path).batch([sample(1.0)])


def test_skipped_updates_are_reported_and_the_peak_is_that_of_the_rank_that_needs_most(tmp_path: Path):
    ranks, skipped = Ranks(), list[Any]()
    trainer = ranks.trainer(tmp_path)
    trainer.on_skip = skipped.append
    batch = trainer.batch([sample(1.0)])
    ranks.harm = lambda rank, method, args: Plan(value=ranks.answer(ranks.cluster.alive[rank], own=[f"by {rank}"]))
    trainer.update(batch, step=1)
    assert skipped == ["by 0"]
    assert trainer.watch_memory()() == 1.0


def test_ranks_that_are_lost_after_a_restore_load_the_checkpoint_again(tmp_path: Path):
    assert train(Ranks(), tmp_path, last=2) == 1.5 * 1 + 2 * 2
    newest = checkpoint.latest(tmp_path)
    assert newest is not None
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    trainer.restore(newest, checkpoint.trainer_state(newest))
    ranks.harm = once(3, "batch", Plan(seconds=None))
    trainer.update(trainer.batch([sample(3.0)]), step=3)
    assert {ranks.total[worker] for worker in sorted(ranks.rank)[-2:]} == {1.5 * 5.5 + 3 * 3}


def test_ranks_that_are_lost_before_the_first_update_start_from_the_model_again(tmp_path: Path):
    """A checkpoint in the folder is that of an earlier attempt, until the stage restores it."""
    train(Ranks(), tmp_path, last=2)
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    ranks.harm = once(1, "update", Plan(seconds=None))
    trainer.update(trainer.batch([sample(1.0)]), step=1)
    assert {ranks.total[worker] for worker in sorted(ranks.rank)[-2:]} == {1.0}


def test_there_are_fewer_ranks_where_there_is_no_room_for_all(tmp_path: Path):
    ranks = Ranks()
    ranks.room = lambda now: 1
    with pytest.raises(TrainerError, match="at least 2 trainer ranks are needed: 2 trainer processes x 1 = 2 CPU"):
        ranks.trainer(tmp_path)
    assert ranks.cluster.now() == 0.0  # a first start does not wait
    ranks.trainer(tmp_path, min_size=1)
    assert len(ranks.cluster.alive) == 1


@pytest.mark.parametrize(("room_after_s", "continues"), [(40.0, True), (400.0, False)])
def test_a_restart_waits_for_room_as_long_as_it_may(tmp_path: Path, room_after_s: float, continues: bool):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    ranks.room = lambda now: 2 if now >= room_after_s else 0
    ranks.cluster.die(ranks.cluster.alive[0])
    if continues:
        trainer.batch([sample(1.0)])
        assert 40.0 <= ranks.cluster.now() < 60.0
        return
    with pytest.raises(TrainerError, match="at least 2 trainer ranks are needed"):
        trainer.batch([sample(1.0)])
    assert LIMITS.patience <= ranks.cluster.now() < 1.5 * LIMITS.patience


def test_ranks_on_one_machine_meet_where_no_other_machine_can(tmp_path: Path):
    ranks = Ranks()
    ranks.trainer(tmp_path)
    assert ranks.is_one_machine
    ranks = Ranks()
    ranks.machine = lambda worker: worker
    ranks.trainer(tmp_path)
    assert not ranks.is_one_machine


def test_a_cluster_that_is_gone_ends_the_trainer_at_once(tmp_path: Path):
    ranks = Ranks()
    trainer = ranks.trainer(tmp_path)
    ranks.cluster.lost = "Ray is gone."
    begun = ranks.cluster.now()
    with pytest.raises(ClusterLost, match="Ray is gone"):
        trainer.update(trainer.batch([sample(1.0)]), step=1)
    assert ranks.cluster.now() == begun
    trainer.close()

"""What the driver does when ranks die, hang, fail or disagree. The ranks are scripted: numbers instead of models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansatz.cluster.base import Role
from ansatz.cluster.fake import FakeCluster, Plan
from ansatz.errors import AlignmentError, TrainerError
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
    updates: (worker, step) of every update.
    """

    def __init__(self) -> None:
        self.total: dict[str, float] = {}
        self.batch: dict[str, float] = {}
        self.version: dict[str, int] = {}
        self.rank: dict[str, int] = {}
        self.updates: list[tuple[str, int]] = []
        self.harm: Callable[[int, str, tuple[Any, ...]], Plan | None] = lambda rank, method, args: None
        self.cluster = FakeCluster(self.script)

    def script(self, worker: str, method: str, args: tuple[Any, ...]) -> Plan:
        if method == "open_store":
            return Plan(value=("127.0.0.1", 1))
        if method == "join":
            self.rank[worker], self.total[worker], self.version[worker] = args[0], 0.0, 0
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
            published_bytes=1,
            needs_greedy=False,
            device="cpu",
        )
        return RankAnswer(status=status, agreed=agreed, own=own, error=error)

    def trainer(self, folder: Path) -> DistributedTrainer:
        group = RankGroup(self.cluster, Role(name="trainer", target=""), size=2, min_size=2, limits=LIMITS)
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
    with pytest.raises(TrainerError, match=r"OutOfMemoryError.* The budget of 5 restarts .* is spent"):
        trainer.batch([sample(1.0)])


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

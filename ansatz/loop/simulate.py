"""Predicts the speed of a recipe on N GPUs: a discrete-event simulation on a virtual clock.

The order of work is not modelled: it is the program's own order. Steps come from `loop.lag`, and tickets go through
the real pool (`rollout.pool`, with its leases, health and restart budgets) on `cluster.fake`. Only durations are
modelled, by a few numbers (`Costs`).

Axes of the model: a worker decodes the r unfinished responses of its call at (token_s + row_token_s x r) seconds per
token. Lengths are lognormal with a cap, so that the 99th percentile is about 10 times the median, as verl and AReaL
report.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansatz.cluster.base import Role
from ansatz.cluster.fake import FakeCluster, Plan
from ansatz.cluster.health import Confirmation, Weights
from ansatz.loop.lag import RolloutSchedule
from ansatz.rollout.base import Sampling
from ansatz.rollout.pool import Pool
from ansatz.rollout.ticket import Kind, Ticket
from ansatz.rollout.worker_set import Limits
from ansatz.types import Problem, Prompt

_PROMPT = Prompt(
    problem=Problem(id="", question="", answer="", source="simulated", split="train"), text="", token_ids=()
)
_SAMPLING = Sampling(num_samples=1, max_response_tokens=1)
_FOREVER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The durations of work, in seconds.

    update_s: the update of a step with all trainer GPUs. token_s, row_token_s: see above, for one worker.
    publish_s: the trainer writes weights. push_s: a worker loads them. start_s: a worker starts. other_s: neither side
    works on rollouts of a step, such as in evaluations and checkpoints.
    """

    update_s: float
    token_s: float
    row_token_s: float
    publish_s: float = 0.0
    push_s: float = 0.0
    start_s: float = 60.0
    other_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """groups x samples responses in a step. Their lengths in tokens are lognormal with this median and sigma, and at
    most max_tokens. steps, lag, publish_every: as in a recipe."""

    groups: int
    samples: int
    median_tokens: float
    max_tokens: float
    sigma: float = 0.99
    steps: int = 100
    lag: int = 0
    publish_every: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """seconds: of all steps. *_idle: fraction of the time when trainer and workers had nothing to do. staleness:
    mean age of the rollouts of a step, in steps. deaths, resampled: of workers, and groups sampled more than once.
    lengths: tokens of the longest response of every group that was trained, in the order of training."""

    seconds: float
    step_s: tuple[float, ...]
    trainer_idle: float
    worker_idle: float
    staleness: float
    deaths: int
    resampled: int
    lengths: tuple[float, ...]

    @property
    def mean_step_s(self) -> float:
        return self.seconds / len(self.step_s)


class _Engine:
    """The scripted workers: the durations of their calls, and the times of their deaths."""

    def __init__(self, work: Work, costs: Costs, *, life_s: float, seed: int) -> None:
        self._work, self._costs, self._life_s, self._seed = work, costs, life_s, seed
        self.busy_s = 0.0
        self._length_GN: dict[int, np.ndarray[Any, Any]] = {}  # by step
        self._deaths = np.random.default_rng((seed, 1))
        self.cluster = FakeCluster(self._plan, start_s=costs.start_s)

    def lengths(self, step: int, place: int) -> np.ndarray[Any, Any]:
        """Return the lengths of a group's responses in tokens. They do not depend on who samples them, or how often."""
        if step not in self._length_GN:
            shape = self._work.groups, self._work.samples
            draws_GN = np.random.default_rng((self._seed, 0, step)).standard_normal(shape)
            length_GN = self._work.median_tokens * np.exp(self._work.sigma * draws_GN)
            self._length_GN[step] = np.minimum(length_GN, self._work.max_tokens)
        return self._length_GN[step][place]

    def _plan(self, worker: str, method: str, args: tuple[Any, ...]) -> Plan:
        if method != "sample":
            version = args[0] if args else 0
            plan = Plan(seconds=self._costs.push_s, value=Confirmation(policy_version=version, logps=()))
        else:
            plan = self._sample(args[0])
        assert plan.seconds is not None
        if math.isfinite(self._life_s):
            death_s = float(self._deaths.exponential(self._life_s))
            if death_s < plan.seconds:
                self.cluster.die(worker, after_s=death_s)
                self.busy_s += death_s
                return plan
        self.busy_s += plan.seconds if method == "sample" else 0.0
        return plan

    def _sample(self, tickets: Sequence[Ticket]) -> Plan:
        """Decode all responses of a call together; rows leave when they end."""
        length_GN = np.stack([self.lengths(ticket.step, ticket.place) for ticket in tickets])
        end_G = length_GN.max(axis=1)
        sorted_N = np.sort(length_GN, axis=None)
        rows_N = np.arange(len(sorted_N), 0, -1)
        gaps_N = np.diff(sorted_N, prepend=0.0)
        time_N = np.cumsum(gaps_N * (self._costs.token_s + self._costs.row_token_s * rows_N))
        time_G = time_N[np.searchsorted(sorted_N, end_G)]
        order = np.argsort(time_G, kind="stable")
        emits = [(float(time_G[index]), (tickets[index].key, ())) for index in order]
        return Plan(seconds=float(time_N[-1]), emits=emits)


def simulate(
    work: Work, costs: Costs, *, num_workers: int, life_s: float = math.inf, seed: int = 0, lease_s: float = _FOREVER_S
) -> Outcome:
    """Run the loop of a stage on a virtual clock. life_s: mean seconds of work between two deaths of one worker."""
    engine = _Engine(work, costs, life_s=life_s, seed=seed)
    cluster, schedule = engine.cluster, RolloutSchedule(lag=work.lag, publish_every=work.publish_every)
    limits = Limits(probe=_FOREVER_S, lease=lease_s, start=_FOREVER_S, idle=_FOREVER_S)
    pool = Pool(cluster, Role(name="worker", target=""), num_workers=num_workers, limits=limits, exact=False)
    pool.publish(Weights(0, ""), Confirmation(policy_version=0, logps=()))
    pool.collect(costs.start_s + costs.push_s)  # the start is not part of the steps
    begun, busy_before = cluster.now(), engine.busy_s
    trainer_s, opened, waiting_of, staleness = 0.0, 0, dict[int, set[Any]](), list[int]()
    ends, lengths = list[float](), list[float]()
    for step in range(1, work.steps + 1):
        for opening in range(opened + 1, min(work.steps, schedule.open_through(step - 1)) + 1):
            tickets = [_ticket(opening, place, schedule.weights_version_for(opening)) for place in range(work.groups)]
            waiting_of[opening], opened = {ticket.key for ticket in tickets}, opening
            pool.submit(tickets)
        while waiting_of[step]:
            _take(pool.collect(_FOREVER_S), waiting_of)
        lengths += [float(engine.lengths(step, place).max()) for place in range(work.groups)]
        staleness.append(step - 1 - schedule.weights_version_for(step))
        _work_until(pool, cluster.now() + costs.update_s + costs.publish_s, cluster, waiting_of)
        trainer_s += costs.update_s + costs.publish_s
        if schedule.publishes(step):
            pool.publish(Weights(step, ""), Confirmation(policy_version=step, logps=()))
        pool.forget(_ticket(step, place, 0).key for place in range(work.groups))
        ends.append(cluster.now())
    seconds = ends[-1] - begun
    return Outcome(
        seconds=seconds,
        step_s=tuple(float(value) for value in np.diff([begun, *ends])),
        trainer_idle=1.0 - trainer_s / seconds,
        worker_idle=max(0.0, 1.0 - (engine.busy_s - busy_before) / (seconds * num_workers)),
        staleness=float(np.mean(staleness)),
        deaths=pool.counts.deaths,
        resampled=pool.counts.reopened + pool.counts.backups,
        lengths=tuple(lengths),
    )


def best_split(
    work: Work, costs: Costs, *, gpus: int, gpus_per_worker: int, trainer_gpus: int, seed: int = 0
) -> tuple[int, Outcome]:
    """Return the number of trainer GPUs, of 7 that are tried, with the shortest step, and its outcome.

    costs.update_s: for `trainer_gpus` GPUs; it is inversely proportional to the number of GPUs.
    """
    outcomes = dict[int, Outcome]()
    for eighths in range(1, 8):
        num_workers = max(1, gpus * eighths // 8 // gpus_per_worker)
        train = gpus - num_workers * gpus_per_worker
        if train > 0:
            scaled = dataclasses.replace(costs, update_s=costs.update_s * trainer_gpus / train)
            short = dataclasses.replace(work, steps=min(work.steps, 20))
            outcomes[train] = simulate(short, scaled, num_workers=num_workers, seed=seed)
    train = min(outcomes, key=lambda count: outcomes[count].mean_step_s)
    return train, outcomes[train]


def _ticket(step: int, place: int, version: int) -> Ticket:
    return Ticket(
        kind=Kind.TRAIN,
        step=step,
        round=0,
        place=place,
        version=version,
        weights="",
        sampling=_SAMPLING,
        prompt=_PROMPT,
    )


def _take(landings: Sequence[Any], waiting_of: dict[int, set[Any]]) -> None:
    for landing in landings:
        waiting_of[landing.ticket.step].discard(landing.ticket.key)


def _work_until(pool: Pool, time: float, cluster: FakeCluster, waiting_of: dict[int, set[Any]]) -> None:
    """Let the workers continue until a time, while the trainer is busy."""
    while (left := time - cluster.now()) > 0:
        _take(pool.collect(left), waiting_of)

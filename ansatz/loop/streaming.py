"""Other orders of work than ours, on a virtual clock: to check the model against published times, and to find the cost
of our order.

Our workers finish the tickets of one version before they load the next (`rollout.pool`). Other systems change the
weights under running responses. A worker then decodes without a pause, and takes the next group as soon as a place is
free. `Stream` says how far sampling may be ahead, and which groups a step may take.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from ansatz.loop.simulate import Costs, Outcome, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """ahead: groups that may be issued beyond the groups of the next publication. With a lag of k: k x Work.groups.

    window: a step takes groups that have landed among this number of the oldest. It is at least Work.groups; with that
    value every step takes the oldest ones. Infinite: the groups that land first.
    max_in_flight: groups that are sampled at the same time.
    max_age: older groups, in publications, are discarded, and their problem is issued again later.
    updates_per_publish: updates with Work.groups each before the weights are published.
    """

    ahead: int
    window: float
    max_in_flight: float = math.inf
    max_age: float = math.inf
    updates_per_publish: int = 1


@dataclass(slots=True)
class _Group:
    problem: int
    version: int
    left: int


class _Worker:
    """Decodes all of its responses at the same speed. position: tokens of a response that began with the simulation."""

    def __init__(self, costs: Costs) -> None:
        self._costs, self._position, self._time = costs, 0.0, 0.0
        self.ends: list[tuple[float, int]] = []  # heap of (position at which it ends, group)
        self.next_end = math.inf

    def add(self, tokens: float, group: int, now: float) -> None:
        self.move_to(now)
        heapq.heappush(self.ends, (self._position + tokens, group))
        self._plan()

    def finish_first(self, now: float) -> int:
        self._position, self._time = self.ends[0][0], now
        _, group = heapq.heappop(self.ends)
        self._plan()
        return group

    def move_to(self, now: float) -> None:
        if self.ends:
            self._position += (now - self._time) / self._token_s()
        self._time = now

    def resume(self, now: float) -> None:
        """Continue after a pause that began with `move_to`."""
        self._time = now
        self._plan()

    def _token_s(self) -> float:
        return self._costs.token_s + self._costs.row_token_s * len(self.ends)

    def _plan(self) -> None:
        self.next_end = math.inf
        if self.ends:
            self.next_end = self._time + (self.ends[0][0] - self._position) * self._token_s()


class _Run:
    """The state of one simulation. `trained`: problems in the order of training."""

    def __init__(self, work: Work, costs: Costs, stream: Stream, *, num_workers: int, seed: int) -> None:
        self._work, self._costs, self._stream, self._seed = work, costs, stream, seed
        self._workers = [_Worker(costs) for _ in range(num_workers)]
        self._by_load = [(0, index) for index in range(num_workers)]  # heaps; entries that no longer hold are skipped
        self._by_end: list[tuple[float, int]] = []
        self._groups: dict[int, _Group] = {}  # issued and not trained, oldest first
        self._again: list[int] = []
        self._num_issued = self._num_problems = self._num_running = self._num_landed = self._updates = 0
        self.now, self.published, self.num_discarded, self.busy_s = 0.0, 0, 0, 0.0
        self.trained, self.ages, self.ends = list[int](), list[int](), list[float]()

    def lengths(self, problem: int) -> np.ndarray:
        """Return the tokens of the responses to a problem: the same whenever it is sampled."""
        draws_N = np.random.default_rng((self._seed, problem)).standard_normal(self._work.samples)
        return np.minimum(self._work.median_tokens * np.exp(self._work.sigma * draws_N), self._work.max_tokens)

    def run(self) -> None:
        update_s = self._costs.update_s / self._stream.updates_per_publish
        while self.published < self._work.steps:
            self._issue()
            if not self._take():
                self._decode(math.inf)
                continue
            self._work_until(self.now + update_s)
            self._updates += 1
            self.busy_s += update_s
            if self._updates % self._stream.updates_per_publish == 0:
                self._pause(self._costs.publish_s)
                self.busy_s += self._costs.publish_s
                self._pause(self._costs.other_s)
                self.published += 1
                self.ends.append(self.now)

    def _issue(self) -> None:
        per_publish = self._work.groups * self._stream.updates_per_publish
        allowed = per_publish * (self.published + 1) + self._stream.ahead
        while len(self.trained) + len(self._groups) < allowed and self._num_running < self._stream.max_in_flight:
            self._start_group()

    def _start_group(self) -> None:
        if self._again:
            problem = self._again.pop(0)
        else:
            problem, self._num_problems = self._num_problems, self._num_problems + 1
        number, self._num_issued = self._num_issued, self._num_issued + 1
        self._groups[number] = _Group(problem, self.published, self._work.samples)
        self._num_running += 1
        for tokens in self.lengths(problem):
            while len(self._workers[self._by_load[0][1]].ends) != self._by_load[0][0]:
                heapq.heappop(self._by_load)
            index = self._by_load[0][1]
            self._workers[index].add(float(tokens), number, self.now)
            self._note(index)

    def _take(self) -> bool:
        """Take the groups of an update, if enough of them have landed."""
        if self._num_landed < self._work.groups and math.isinf(self._stream.max_age):
            return False  # without this, every response that ends would look through all groups
        taken = list[int]()
        for place, (number, group) in enumerate(list(self._groups.items())):
            if place >= self._stream.window or len(taken) == self._work.groups:
                break
            if group.left:
                continue
            if self.published - group.version > self._stream.max_age:
                self._again.append(self._groups.pop(number).problem)
                self._num_landed -= 1
                self.num_discarded += 1
            else:
                taken.append(number)
        if len(taken) < self._work.groups:
            self._issue()
            return False
        for number in taken:
            group = self._groups.pop(number)
            self._num_landed -= 1
            self.trained.append(group.problem)
            self.ages.append(self.published - group.version)
        return True

    def _decode(self, until: float) -> bool:
        """Go to the next end of a response, or to this time if it is earlier. Tell whether a response has ended."""
        while self._by_end and self._workers[self._by_end[0][1]].next_end != self._by_end[0][0]:
            heapq.heappop(self._by_end)
        end, index = self._by_end[0] if self._by_end else (math.inf, 0)
        if end >= until:
            self.now = until
            return False
        assert math.isfinite(end), "nothing is being sampled, and the step lacks groups"
        self.now = end
        group = self._groups[self._workers[index].finish_first(end)]
        self._note(index)
        group.left -= 1
        if not group.left:
            self._num_running -= 1
            self._num_landed += 1
        return True

    def _note(self, index: int) -> None:
        """Note that the load of a worker has changed, and so has its next end."""
        worker = self._workers[index]
        heapq.heappush(self._by_load, (len(worker.ends), index))
        if math.isfinite(worker.next_end):
            heapq.heappush(self._by_end, (worker.next_end, index))

    def _work_until(self, time: float) -> None:
        while self._decode(time):
            self._issue()

    def _pause(self, seconds: float) -> None:
        """Stop all work for a time."""
        for worker in self._workers:
            worker.move_to(self.now)
        self.now += seconds
        for index, worker in enumerate(self._workers):
            worker.resume(self.now)
            self._note(index)


def simulate_stream(work: Work, costs: Costs, stream: Stream, *, num_workers: int, seed: int = 0) -> Outcome:
    """Run `Work.steps` publications of a stream. `Work.lag` and `Work.publish_every` have no effect."""
    if stream.window < work.groups:
        raise ValueError(f"a window of {stream.window} groups cannot hold an update of {work.groups}.")
    run = _Run(work, costs, stream, num_workers=num_workers, seed=seed)
    run.run()
    return Outcome(
        seconds=run.now,
        step_s=tuple(float(value) for value in np.diff([0.0, *run.ends])),
        trainer_idle=1.0 - run.busy_s / run.now,
        worker_idle=math.nan,
        staleness=float(np.mean(run.ages)),
        deaths=0,
        resampled=run.num_discarded,
        lengths=tuple(float(run.lengths(problem).max()) for problem in run.trained),
    )

"""Sample prompts and grade whole groups: training, evaluation and stored responses all work through this.

A group is graded as soon as its last rollout has ended, while other groups are still being sampled. A group with an
unfinished rollout (`Sampling.max_call_tokens`) is not graded. It is returned as a `PartialGroup`, which a later run
resumes (partial rollouts: Kimi k1.5, arXiv:2501.12599, sec. 2.6.2).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from ansatz.rollout.base import ResponseSource, Sampling
from ansatz.types import Finish, Prompt, Rollout

INTERRUPT_S = 1.0
"""Longest time that a signal, such as Ctrl-C, stays unnoticed if it arrives just before a wait for grades."""
T = TypeVar("T")

_ABANDON_S = 1.0
"""Seconds that grades in progress still get when a run ends with an error. A grade that never ends cannot delay it."""


@dataclass(frozen=True, slots=True)
class GradedGroup(Generic[T]):
    """A prompt and the grades of all its rollouts, in whatever form the grading function returns them."""

    prompt: Prompt
    graded: T


@dataclass(frozen=True, slots=True)
class PartialGroup:
    """The rollouts of a prompt in the order of their samples. At least one of them is unfinished."""

    rollouts: tuple[Rollout, ...]

    @property
    def prompt(self) -> Prompt:
        return self.rollouts[0].prompt

    @property
    def unfinished(self) -> list[Rollout]:
        return [rollout for rollout in self.rollouts if rollout.finish is Finish.ABORT]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGroups(Generic[T]):
    """The result of `run`: complete and partial groups, both with resumed groups first, then in prompt order.

    num_tokens: response tokens that this call sampled; earlier tokens of resumed rollouts do not count.
    rollout_s: seconds until the sampler had finished. grade_s: seconds of grading after that.
    """

    groups: tuple[GradedGroup[T], ...]
    partial: tuple[PartialGroup, ...]
    num_tokens: int
    rollout_s: float
    grade_s: float


class GroupSampler(Generic[T]):
    """Turns prompts into graded groups.

    grade: called once for each complete group with all of its rollouts in the order of their samples, from a thread
    other than the caller's. grader_threads: groups that can be graded at the same time.
    Example: `GroupSampler(sampler, grader.score).run(prompts, sampling).groups`.
    """

    def __init__(
        self, source: ResponseSource, grade: Callable[[Sequence[Rollout]], T], *, grader_threads: int = 1
    ) -> None:
        self._source, self._grade, self._grader_threads = source, grade, grader_threads

    def run(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        partial: Sequence[PartialGroup] = (),
        on_group: Callable[[GradedGroup[T]], None] | None = None,
    ) -> SampledGroups[T]:
        """Sample `sampling.num_samples` responses to each prompt, resume partial groups, and grade complete groups.

        All rollouts of a problem form one group. A problem that occurs twice among the prompts, or that is also in
        `partial`, therefore gives a larger group. on_group: called with each group once it is graded, from a grading
        thread, one call at a time, in the order of arrival of the grades. An error that `grade` or `on_group` raises
        ends the call when the next rollout finishes. Nothing that the caller passed in is modified.
        """
        start = time.perf_counter()
        threads = ThreadPoolExecutor(self._grader_threads, thread_name_prefix="grading")
        grading = _Grading(self._grade, on_group, threads)
        try:
            assembly = _Assembly(prompts, sampling.num_samples, partial, grading)
            unfinished = [rollout for group in partial for rollout in group.unfinished]
            rollouts = self._source.generate(prompts, sampling, unfinished=unfinished, on_finished=assembly.add)
            sampled = time.perf_counter()
            for rollout in rollouts:  # a no-op unless the sampler did not report it while it was running
                assembly.add(rollout)
            groups = assembly.graded()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            grading.abandon()
            raise
        threads.shutdown()
        graded = time.perf_counter()
        return SampledGroups(
            groups=groups,
            partial=assembly.partial(),
            num_tokens=_count_tokens(rollouts) - _count_tokens(unfinished),
            rollout_s=sampled - start,
            grade_s=graded - sampled,
        )


def _count_tokens(rollouts: Sequence[Rollout]) -> int:
    return sum(rollout.num_tokens for rollout in rollouts)


class _Grading(Generic[T]):
    """Runs the grading function on a group in the background and reports the result."""

    def __init__(
        self,
        grade: Callable[[Sequence[Rollout]], T],
        on_group: Callable[[GradedGroup[T]], None] | None,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._grade, self._on_group, self._threads = grade, on_group, threads
        self._report = threading.Lock()
        self._error: BaseException | None = None
        self._futures: list[Future[GradedGroup[T]]] = []
        self._abandoned = False

    def submit(self, rollouts: Sequence[Rollout]) -> Future[GradedGroup[T]]:
        self._futures.append(self._threads.submit(self._run, rollouts))
        return self._futures[-1]

    def abandon(self) -> None:
        """Wait for the grades in progress, for a short time. Nothing is reported after this returns."""
        wait(self._futures, timeout=_ABANDON_S)
        with self._report:
            self._abandoned = True

    def raise_error(self) -> None:
        """Raise the error of an earlier group. Without this, a broken grader is noticed only after all sampling."""
        if self._error is not None:
            raise self._error

    def _run(self, rollouts: Sequence[Rollout]) -> GradedGroup[T]:
        try:
            group = GradedGroup(rollouts[0].prompt, self._grade(rollouts))
            if self._on_group is not None:
                with self._report:
                    if not self._abandoned:
                        self._on_group(group)
        except BaseException as error:
            self._error = error
            raise
        return group


class _Assembly(Generic[T]):
    """The groups of one call of `run` while they fill up, by the id of their problem."""

    def __init__(
        self, prompts: Sequence[Prompt], num_samples: int, partial: Sequence[PartialGroup], grading: _Grading[T]
    ) -> None:
        self._grading = grading
        self._grades: dict[str, Future[GradedGroup[T]]] = {}
        self._finished: dict[str, dict[int, Rollout]] = {}  # also those left unfinished; by sample
        self._size: dict[str, int] = {}  # rollouts of the full group
        self._resumed: set[tuple[str, int]] = set()  # (problem, sample) of each unfinished rollout
        self._shift: dict[str, int] = {}  # `add` adds it to the numbers of new samples
        for group in partial:
            name, unfinished = group.prompt.problem.id, {rollout.sample for rollout in group.unfinished}
            self._size[name] = len(group.rollouts)
            self._finished[name] = {
                rollout.sample: rollout for rollout in group.rollouts if rollout.sample not in unfinished
            }
            self._resumed |= {(name, sample) for sample in unfinished}
            self._shift[name] = max(rollout.sample for rollout in group.rollouts) - max(unfinished)
        for prompt in prompts:
            self._size[prompt.problem.id] = self._size.get(prompt.problem.id, 0) + num_samples
            self._finished.setdefault(prompt.problem.id, {})

    def add(self, rollout: Rollout) -> None:
        """Add a rollout that has ended or that this call leaves unfinished. One that was added before is ignored."""
        self._grading.raise_error()
        name = rollout.prompt.problem.id
        members = self._finished[name]
        sample = rollout.sample
        if (name, sample) not in self._resumed:
            # The sampler numbers new samples after the unfinished ones. Without the shift, new samples of a problem
            # that is also resumed could get the numbers of rollouts that finished earlier.
            sample += self._shift.get(name, 0)
        if sample in members:
            return
        members[sample] = rollout if sample == rollout.sample else dataclasses.replace(rollout, sample=sample)
        if len(members) == self._size[name] and all(member.finish is not Finish.ABORT for member in members.values()):
            self._grades[name] = self._grading.submit(self._in_order(name))

    def graded(self) -> tuple[GradedGroup[T], ...]:
        return tuple(_waited(self._grades[name]) for name in self._finished if name in self._grades)

    def partial(self) -> tuple[PartialGroup, ...]:
        return tuple(PartialGroup(self._in_order(name)) for name in self._finished if name not in self._grades)

    def _in_order(self, name: str) -> tuple[Rollout, ...]:
        return tuple(rollout for _, rollout in sorted(self._finished[name].items()))


def _waited(grade: Future[GradedGroup[T]]) -> GradedGroup[T]:
    """Wait for the result of a future, in slices: without them, a signal to the process that arrives just before the
    wait would be lost in it."""
    while not grade.done():
        wait([grade], timeout=INTERRUPT_S)
    return grade.result()

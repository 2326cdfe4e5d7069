"""The law of versions, and resuming, on the queue with a sampler and a trainer without a model."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_grader import FakeGrader
from fake_sampler import FakeSampler, FakeWeights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.cursor import ProblemStream
from ansatz.errors import RolloutError
from ansatz.loop.collect import StepCollector, StepData
from ansatz.loop.ledger import Ledger
from ansatz.loop.rollout_queue import WEIGHTS_FOLDER, RolloutQueue
from ansatz.models.weights import WeightSource
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket import LiveTickets, OnFinished, Ticket, landed, sample_tickets
from ansatz.rollout.weight_store import FileWeightStore, WeightStore
from ansatz.types import Problem, Prompt, Rollout

NUM_STEPS, NUM_PROMPTS = 40, 3
LAGS = (0, 1, 2, 4)


class Weights(FakeWeights):
    """The weights after `version` optimizer steps: a single number."""

    def trained(self) -> dict[str, Tensor]:
        return {"value": torch.tensor([float(self.version)])}


class FakeTickets:
    """Samples with the stored weights that a ticket names. `sampled`: how many tickets it was asked for."""

    def __init__(self, store: WeightStore, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger
        self.sampled = list[Ticket]()

    def publish(self, version: int, source: WeightSource) -> str:
        return self._store.publish(version, source)

    def submit(self, tickets: Sequence[Ticket]) -> None:
        self.sampled += tickets

    def wait(self, tickets: Sequence[Ticket], on_finished: OnFinished) -> list[tuple[Rollout, ...]]:
        stored = self._store.load(tickets[0].version)
        assert {ticket.weights for ticket in tickets} == {stored.fingerprint}
        groups = sample_tickets(FakeSampler(respond, version=stored.policy_version), tickets, on_finished=on_finished)
        for ticket, rollouts in zip(tickets, groups, strict=True):
            self._ledger.land(landed(ticket, rollouts))
        return groups

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...


def respond(prompt: Prompt, sample: int) -> str:
    return "x" * (1 + (sum(map(ord, prompt.problem.id)) + 3 * sample) % 11)


def reward(rollout: Rollout) -> float:
    """Equal rewards for a third of the problems, whose groups dynamic sampling replaces."""
    return float(rollout.sample % 2 if int(rollout.prompt.problem.id) % 3 else 0)


class Run:
    """A run in a folder, from the start or from what `save` wrote."""

    def __init__(self, folder: Path, lag: int, *, saved: Path | None = None) -> None:
        problems = [Problem(id=str(i), question="?", answers=("5",), source="t", split="t") for i in range(60)]
        settings = CurriculumSettings(sampler="variance", dynamic_sampling=2, discount=0.9)
        self.stream = ProblemStream(problems, seed=1, curriculum=settings)
        self.lag = lag
        self.policy_versions, self.done = [0], 0
        self.store, self.ledger = FileWeightStore(folder / "weights"), Ledger(folder / "ledger")
        state: dict[str, Any] = {}
        if saved is not None:
            state = json.loads((saved / "state.json").read_text())
            self.stream.restore(state.pop("stream"))
            self.policy_versions = state.pop("policy_versions")
            self.done = len(self.policy_versions) - 1
            self.store.close()
            if (saved / WEIGHTS_FOLDER).is_dir():
                self.store.restore(saved / WEIGHTS_FOLDER)
        self.source = FakeTickets(self.store, self.ledger)
        self.queue = RolloutQueue(
            StepCollector(
                stream=self.stream,
                prompt_of=lambda problem: Prompt(problem=problem, text="?", token_ids=(1,)),
                grader=FakeGrader(reward),
                num_prompts=NUM_PROMPTS,
                needs_greedy=True,
            ),
            self.source,
            lag=lag,
            sampling_of=lambda step: Sampling(num_samples=4, max_response_tokens=30, max_call_tokens=6, step=step),
            last_step=NUM_STEPS,
            store=self.store,
            ledger=self.ledger,
        )
        self.renewed = self.queue.start(self.weights, done=self.done, state=state)

    @property
    def weights(self) -> Weights:
        return Weights(version=self.policy_versions[-1])

    def step(self) -> StepData:
        self.done += 1
        self.queue.open(through=self.done + self.lag)
        data = self.queue.gather(self.done)
        self.policy_versions.append(self.policy_versions[-1] + self.done % 4)  # some steps make no update at all
        self.queue.publish(self.weights, version=self.done)
        return data

    def save(self, folder: Path) -> Path:
        folder.mkdir()
        state = {**self.queue.state()(), "stream": self.stream.state(), "policy_versions": self.policy_versions}
        (folder / "state.json").write_text(json.dumps(state))
        self.queue.files()(folder)
        return folder


@pytest.mark.parametrize("lag", LAGS)
def test_every_token_has_the_version_that_the_schedule_names(tmp_path: Path, lag: int) -> None:
    """The newest tokens of a rollout are those of the step's version, or of the newest one in additional rounds; older
    ones, of partial rollouts, are those of the steps in which they were sampled."""
    run, versions_seen, num_partial, num_rounds = Run(tmp_path, lag), set[int](), 0, 0.0
    allowed = dict[str, set[int]]()
    for step in range(1, NUM_STEPS + 1):
        data = run.step()
        num_partial, num_rounds = (
            num_partial + len(data.partial),
            num_rounds + data.metrics["data/dynamic_sampling_rounds"],
        )
        of_step = run.policy_versions[max(0, step - 1 - lag)]
        newest = run.policy_versions[step - 1]
        for group in [*data.sampled, *data.partial]:
            members = group.members if hasattr(group, "members") else group.rollouts
            for rollout in [getattr(member, "rollout", member) for member in members]:
                before = allowed.setdefault(rollout.prompt.problem.id, set())
                assert set(rollout.token_versions) <= before | {of_step, newest}
                assert set(rollout.token_versions) & {of_step, newest} or before
                versions_seen |= set(rollout.token_versions)
        allowed = {
            group.prompt.problem.id: allowed[group.prompt.problem.id] | {of_step, newest} for group in data.partial
        } | {name: versions for name, versions in allowed.items() if name in _waiting(run)}
        assert run.store.versions()[-1] <= step
        assert len(run.store.versions()) <= lag + 3
    assert num_partial > 5
    assert num_rounds > 5
    assert len(versions_seen) > 8


def _waiting(run: Run) -> set[str]:
    rows = run.queue.state()()["open_steps"]
    return {ticket["prompt"]["problem"]["id"] for row in rows for ticket in row["tickets"]}


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_queue_that_is_resumed_gives_the_same_steps(tmp_path: Path, lag: int, with_ledger: bool) -> None:
    """Saved after step 7, continued to step 9, killed, and resumed from step 7."""
    run = Run(tmp_path, lag)
    for _ in range(7):
        run.step()
    saved = run.save(tmp_path / "saved")
    expected = [run.step() for _ in range(9)]
    run.ledger.close()
    if not with_ledger:
        run.ledger.forget(NUM_STEPS)
    resumed = Run(tmp_path, lag, saved=saved)
    for data in expected:
        again = resumed.step()
        for what in ("sampled", "groups", "partial", "baseline_of_group", "metrics"):
            assert getattr(again, what) == getattr(data, what), what
    assert resumed.stream.state() == run.stream.state()
    assert bool(resumed.source.sampled) or with_ledger
    if with_ledger:
        kept = {ticket.key for ticket in resumed.source.sampled if ticket.step <= 16}
        assert not kept, "what had landed was sampled again"


EVENTS = st.lists(st.sampled_from(["step", "step", "step", "save", "crash", "torn ledger", "no ledger"]), max_size=25)


@settings(max_examples=25, deadline=None)
@given(events=EVENTS, lag=st.sampled_from(LAGS))
def test_every_step_is_the_same_in_any_history_of_saves_and_crashes(events: list[str], lag: int) -> None:
    """Each step that is done again, after a crash, trains the groups that it trained the first time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, saved, trained = Run(folder, lag), None, dict[int, Any]()
        for number, event in enumerate(events):
            if event == "step":
                data = run.step()
                assert trained.setdefault(run.done, (data.groups, data.partial)) == (data.groups, data.partial)
                continue
            if event == "save":
                saved = run.save(folder / f"saved-{number}")
                run.ledger.forget(run.done)
                continue
            run.ledger.close()
            files = sorted((folder / "ledger").glob("*.jsonl"))
            if event == "torn ledger" and files:
                os.truncate(files[-1], files[-1].stat().st_size * 2 // 3)
            if event == "no ledger":
                shutil.rmtree(folder / "ledger", ignore_errors=True)
            run.store.close()
            run = Run(folder, lag, saved=saved)
        run.ledger.close()
        assert sorted(trained) == list(range(1, len(trained) + 1))


def test_a_run_that_is_extended_continues_as_if_it_had_been_longer(tmp_path: Path) -> None:
    """Steps beyond the last one are open when it ends, and are not sampled."""
    run = Run(tmp_path, 2)
    for _ in range(NUM_STEPS):
        run.step()
    assert max(ticket.step for ticket in run.source.sampled) == NUM_STEPS
    assert [row["step"] for row in run.queue.state()()["open_steps"]] == [NUM_STEPS + 1, NUM_STEPS + 2]


def test_a_lag_that_was_changed_does_not_lose_the_problems_of_open_steps(tmp_path: Path) -> None:
    """Weights that a longer lag would need are gone; these steps are sampled with the newest ones."""
    run = Run(tmp_path, 1)
    for _ in range(5):
        run.step()
    saved = run.save(tmp_path / "saved")
    waiting = _waiting(run)
    resumed = Run(tmp_path, 4, saved=saved)
    assert waiting <= {member.prompt.problem.id for _ in range(2) for member in resumed.step().sampled} | _waiting(
        resumed
    )
    assert [row["version"] for row in resumed.queue.state()()["open_steps"]] == [5, 4, 5, 6]


def test_a_sampler_without_memory_refuses_a_ticket_of_other_weights(tmp_path: Path) -> None:
    run = Run(tmp_path, 1)
    run.step()
    live = LiveTickets(FakeSampler(respond))
    live.publish(7, run.weights)
    with pytest.raises(RolloutError, match="version 7"):
        live.wait(run.source.sampled[:1], lambda rollout: None)


def test_without_the_older_weights_open_steps_are_sampled_with_the_newest(tmp_path: Path) -> None:
    """The checkpoint has the tickets and no weights."""
    run = Run(tmp_path, 2)
    for _ in range(5):
        run.step()
    saved = run.save(tmp_path / "saved")
    shutil.rmtree(saved / WEIGHTS_FOLDER)
    waiting = _waiting(run)
    resumed = Run(tmp_path, 2, saved=saved)
    assert resumed.renewed == [6, 7]
    assert _waiting(resumed) == waiting
    assert {row["version"] for row in resumed.queue.state()()["open_steps"]} == {5}
    for _ in range(4):
        resumed.step()

"""Made-up runs for a tour of the viewer (`ansatz view --demo`) and for measuring it: nothing is trained.

Problems are generated word problems. A response is the worked solution, or one with a slip; how often it is right
depends on the step, the level and the problem, so that some problems are lost. With training, responses check their
answer more and more often, and are cut off there. Verdicts, rewards and metrics are computed from the responses as in a
real run, and the effect of an update on a token is made up in the direction of the advantage.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from string import Template
from typing import Any

from ansatz_verify.grade import verify

from ansatz.config.watchdog import WatchdogSection
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.store import write_problems
from ansatz.data.word_problems import word_problems
from ansatz.evaluate.estimators import ProblemResult, collect_result, summarise
from ansatz.files import write_text
from ansatz.links import read_text
from ansatz.track.measurements import values
from ansatz.track.rollout_rows import StoredGroup, rollout_row
from ansatz.track.rollouts import rollout_metrics
from ansatz.track.rules import rules_of
from ansatz.track.token_file import TokenFacts
from ansatz.track.tracker import Tracker
from ansatz.track.watchdog import WatchState, observe
from ansatz.types import Finish, Group, Problem, Prompt, Rollout, Score, ScoredRollout

NUM_TRAIN, NUM_HELDOUT, HELDOUT_SAMPLES, EVALUATE_EVERY = 96, 30, 4, 8
MAX_TOKENS = 72
CONFIG = Template(read_text(Path(__file__).with_suffix(".yaml")))
"""The recipe of a made-up run."""


def write_tour(folder: Path) -> Path:
    """Write two runs to compare: `demo_fewer_prompts` takes fewer prompts in a step than `demo`. Return the folder."""
    DemoRun(folder / "demo_fewer_prompts", prompts=2).write()
    DemoRun(folder / "demo").write()
    return folder


class DemoRun:
    """A made-up run of one stage of RL. With more prompts in a step, it learns faster."""

    def __init__(self, folder: Path, *, steps: int = 24, prompts: int = 6, samples: int = 8) -> None:
        self.folder, self._steps, self._prompts, self._samples = folder, steps, prompts, samples
        self._train = list(word_problems(split="train", count=NUM_TRAIN, wording="plain"))
        self._heldout = list(word_problems(split="heldout", count=NUM_HELDOUT, wording="plain"))
        self._seconds, self._watched = 0.0, WatchState()

    def write(self) -> Path:
        """Write the whole run."""
        self.begin()
        tracker = self.open_tracker()
        for step in range(1, self._steps + 1):
            self.add_step(tracker, step)
        tracker.close()
        summary = {"seconds": round(self._seconds, 1), "model": str(self.folder / "rl" / "checkpoints" / "last")}
        write_text(self.folder / "summary.json", json.dumps(summary))
        return self.folder

    def begin(self) -> None:
        """Write the recipe, the problems and the evaluation before the first step."""
        sizes = {"prompts": self._prompts, "samples": self._samples, "steps": self._steps, "max_tokens": MAX_TOKENS}
        splits = {"num_train": NUM_TRAIN, "num_heldout": NUM_HELDOUT, "heldout_samples": HELDOUT_SAMPLES}
        recipe = CONFIG.substitute(name=self.folder.name, every=EVALUATE_EVERY, **sizes, **splits)
        write_text(self.folder / "config.yaml", recipe)
        write_text(self.folder / "rl" / "config.yaml", "stage: rl\n")
        for split, problems in (("train", self._train), ("heldout", self._heldout)):
            write_problems(self.folder / "problems" / f"{split}.jsonl", problems)
        tracker = self.open_tracker()
        self._evaluate(tracker, 0)
        tracker.close()

    def open_tracker(self) -> Tracker:
        folder, steps = self.folder / "rl", self._steps
        return Tracker(folder, console=None, tensorboard=False, total_steps=steps, clock=lambda: self._seconds)

    def add_step(self, tracker: Tracker, step: int) -> None:
        """Write a step, and at some steps an evaluation."""
        rng, first = KeyedRandom("demo", self.folder.name, step), step * self._prompts
        groups = [self._sample(self._train[(first + place) % NUM_TRAIN], step) for place in range(self._prompts)]
        seen = [list(map(_see, group.members, _advantages(group.rewards))) for group in groups]
        stored = [StoredGroup(group=group, seen=each) for group, each in zip(groups, seen, strict=True)]
        watched = next((place for place, group in enumerate(groups) if group.has_signal), 0)
        of = stored[watched]
        tokens = [_update(member, by["advantage"]) for member, by in zip(of.group.members, of.seen, strict=True)]
        stored[watched] = replace(of, tokens=tokens)
        seconds = 1.2 + 0.3 * rng.uniform()
        self._seconds += seconds
        metrics = values(rollout_metrics(groups)) | self._measure(step, rng) | {"time/step_s": seconds}
        tracker.log(step, metrics)
        decision = observe(rules_of(WatchdogSection()), WatchdogSection(), self._watched, step, metrics)
        self._watched = decision.state
        for finding in decision.findings:
            tracker.event(step, "recovered" if finding.is_over else "alarm", finding.text, **finding.numbers)
        tracker.samples(step, stored)
        if step % EVALUATE_EVERY == 0:
            self._evaluate(tracker, step)

    def _measure(self, step: int, rng: KeyedRandom) -> dict[str, float]:
        done = step / self._steps
        return {
            "train/loss": 0.02 * (rng.uniform() - 0.5),
            "train/entropy": 0.06 + 0.3 * math.exp(-2 * done) + 0.01 * rng.uniform(),
            "train/grad_norm": 0.3 + 0.1 * rng.uniform(),
            "train/lr": 4e-4,
            "train/clip_frac": 0.004 * rng.uniform(),
            "train/ratio_mean": 1.0,
            "train/approx_kl": 0.001 * rng.uniform(),
            "align/mean_exp_gap": 1.0002 + 0.0004 * rng.uniform(),
            "align/max_gap": 0.01 + 0.01 * rng.uniform(),
        }

    def _sample(self, problem: Problem, step: int) -> Group:
        members = [self._respond(problem, step, sample, f"train {step}") for sample in range(self._samples)]
        return Group(prompt=members[0].rollout.prompt, members=tuple(members))

    def _evaluate(self, tracker: Tracker, step: int) -> None:
        """Sample with the same noise at every step, as evaluations of a run do."""
        rows, results = list[dict[str, Any]](), list[ProblemResult]()
        for place, problem in enumerate(self._heldout):
            members = [self._respond(problem, step, sample, "heldout") for sample in range(HELDOUT_SAMPLES)]
            greedy = self._respond(problem, step, 0, "greedy")
            for member, temperature in ((greedy, 0.0), *((member, 1.0) for member in members)):
                group = f"rl/{step}/heldout/{place}"
                rows.append(rollout_row(member, group=group, noise_step=0, temperature=temperature))
            results.append(collect_result(members, greedy))
        where = {"stage": "rl", "step": step, "split": "heldout", "temperature": 1.0, "seed": 0}
        tracker.evaluation({**where, **summarise(results, k=HELDOUT_SAMPLES)}, rows)

    def _respond(self, problem: Problem, step: int, sample: int, noise: str) -> ScoredRollout:
        """Return a response. noise: responses with equal noise differ only by the effect of training."""
        done = step / self._steps * (self._prompts / 6) ** 0.3
        about, rng = KeyedRandom("demo", problem.id), KeyedRandom("demo", noise, problem.id, sample)
        drift = 9 * (about.uniform() - 0.42) * done
        chance = 1 / (1 + math.exp(0.55 * (int(problem.level) - 3.5) - 1.5 * done - drift))
        is_right, checks = rng.uniform() < chance, rng.uniform() < 0.05 + 0.5 * done**2
        steps = (problem.solution or "").split("\n")
        steps = steps if is_right else _slip(steps, rng)
        again = ["Let me check this again.", *steps] if checks else []
        pieces = re.findall(r"\\boxed|\w+|\W", "\n".join([*steps, *again]))
        finish = Finish.STOP if len(pieces) < MAX_TOKENS else Finish.LENGTH
        pieces = [*pieces, ""] if finish is Finish.STOP else pieces[:MAX_TOKENS]
        rollout = Rollout(
            prompt=Prompt(problem=problem, text=f"Q: {problem.question}\nA: ", token_ids=(1, 2)),
            sample=sample,
            token_ids=tuple(sum(map(ord, piece)) % 5000 for piece in pieces),
            behavior_logps=tuple(-0.02 - rng.uniform() ** 6 * (2 - done) for _ in pieces),
            text="".join(pieces),
            finish=finish,
            version_min=max(step - 1, 0),
            version_max=max(step - 1, 0),
            seed=0,
        )
        verdict = verify(problem.answer, rollout.text, mode="strict")
        reward = float(verdict.correct)
        score = Score(value=reward, parts={"math_answer": reward}, verdict=verdict)
        return ScoredRollout(rollout=rollout, score=score)


def _slip(steps: Sequence[str], rng: KeyedRandom) -> list[str]:
    """Return the steps with a last number that is a little too small or too large."""
    change = rng.choice((-10, -1, 1, 10))

    def move(match: re.Match[str]) -> str:
        return str(abs(int(match[0]) + change))

    last = re.sub(r"\d+$", move, steps[-2])
    return [*steps[:-2], last, re.sub(r"\d+", move, steps[-1])]


def _advantages(rewards: Sequence[float]) -> list[float]:
    spread = pstdev(rewards)
    return [(reward - fmean(rewards)) / spread if spread else 0.0 for reward in rewards]


def _see(member: ScoredRollout, advantage: float) -> dict[str, float]:
    """Make up the numbers that an update reports on a response. The sampler rounds, and a first update clips
    nothing."""
    logps, rng = member.rollout.behavior_logps, KeyedRandom("demo", "seen", member.rollout.text)
    gaps = [0.5 * (0.004 * (rng.uniform() - 0.5)) ** 2 for _ in logps]
    entropies = [_entropy(logp) for logp in logps]
    seen = {"mismatch_mean": fmean(gaps), "mismatch_max": max(gaps), "mean_entropy": fmean(entropies)}
    return {"advantage": advantage, "clip_share": 0.0, **seen}


def _entropy(logp: float) -> float:
    """Make up the entropy of the choice of a token: largest where it was neither sure nor unlikely."""
    return -2 * logp * math.exp(logp)


def _update(member: ScoredRollout, advantage: float) -> TokenFacts:
    """Make up the effect of an update. An unlikely token moves most, and some move the other way."""
    rollout = member.rollout
    rng = KeyedRandom("demo", rollout.prompt.problem.id, rollout.sample, rollout.version_max)
    before = [logp + 0.004 * (rng.uniform() - 0.5) for logp in rollout.behavior_logps]
    after = [min(logp + 0.25 * advantage * -logp * (1.3 * rng.uniform() - 0.3), 0.0) for logp in before]
    pieces = re.findall(r"\\boxed|\w+|\W", rollout.text)
    ends = [sum(map(len, pieces[: place + 1])) for place in range(rollout.num_tokens)]
    return TokenFacts(
        rollout.token_ids, ends, rollout.behavior_logps, before, after, [_entropy(logp) for logp in before]
    )

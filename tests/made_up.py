"""Made-up run folders that look like a real pipeline's: seeded noise around plausible curves."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from ansatz.evaluate.estimators import ProblemResult, summarise
from ansatz.track.measurements import values
from ansatz.track.rollout_rows import StoredGroup
from ansatz.track.rollouts import rollout_metrics
from ansatz.track.tracker import Tracker
from ansatz.types import (
    Finish,
    Group,
    Problem,
    Prompt,
    Reason,
    Rollout,
    Score,
    ScoredRollout,
    Verdict,
)

LEVELS = ("2", "3", "4", "5", "6")
NASTY = "</script><script>alert('x')</script><img src=https://example.org/x.png onerror=alert(1)>"
"""What a policy may write and a report must show as text."""


def problem(*, index: int = 0, level: str = "2", answer: str = "12") -> Problem:
    question = f"Mara packs {index + 3} boxes with 4 pears each and gives 2 pears away. How many pears are left?"
    return Problem(id=f"p{index}", question=question, answers=(answer,), source="made_up", split="train", level=level)


def scored(
    of: Problem | None = None,
    *,
    sample: int = 0,
    reward: float = 1.0,
    reason: Reason = Reason.EQUAL,
    token_ids: tuple[int, ...] = (1, 2, 3),
    finish: Finish = Finish.STOP,
    text: str = "4 x 3 = 12. #### 12",
    parts: dict[str, float] | None = None,
) -> ScoredRollout:
    prompt = Prompt(problem=of or problem(), text="Q: ...", token_ids=(7, 8))
    rollout = Rollout(
        prompt=prompt,
        sample=sample,
        token_ids=token_ids,
        behavior_logps=(-0.5,) * len(token_ids),
        text=text,
        finish=finish,
        version_min=0,
        version_max=0,
        seed=0,
    )
    answer = None if reason in (Reason.NO_ANSWER, Reason.TRUNCATED) else text.split("####")[-1].strip()
    verdict = Verdict(correct=reason is Reason.EQUAL, reason=reason, extracted=answer)
    return ScoredRollout(
        rollout=rollout, score=Score(value=reward, parts=parts or {"accuracy": reward}, verdict=verdict)
    )


def group(members: list[ScoredRollout]) -> Group:
    return Group(prompt=members[0].rollout.prompt, members=tuple(members))


def evaluation(
    stage: str, step: int, *, skill: float, rng: random.Random, per_level: int = 20, split: str = "heldout"
) -> dict[str, Any]:
    """What sampling 8 times each from a policy of that skill (0..1) would give; harder levels come later."""
    results: list[ProblemResult] = []
    for place, level in enumerate(LEVELS):
        for _ in range(per_level):
            chance = min(0.99, max(0.0, rng.gauss(skill ** (0.6 + 0.35 * place), 0.12)))
            correct = tuple(rng.random() < chance for _ in range(8))
            answers = tuple("12" if right else rng.choice(["11", "13", None]) for right in correct)
            results.append(
                ProblemResult(
                    level=level,
                    correct=correct,
                    votes=answers,
                    lengths=tuple(round(rng.gauss(28 + 6 * place, 3)) for _ in range(8)),
                    truncated=tuple(rng.random() < 0.01 for _ in range(8)),
                    greedy=rng.random() < chance + 0.05,
                )
            )
    where = {"stage": stage, "step": step, "split": split, "temperature": 1.0, "seed": 0}
    return {**where, **summarise(results, k=8)}


def evaluation_row(step: int, **changes: Any) -> dict[str, Any]:
    """A small evaluation of the stage rl."""
    return {**evaluation("rl", step, skill=0.5, rng=random.Random(0), per_level=2), **changes}


def make_pipeline(folder: Path, *, seed: int = 0, sft_steps: int = 350, rl_steps: int = 100, done: bool = True) -> Path:
    """Stages problems, model, sft and rl under `folder`, written through a Tracker where a real run does so."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: made_up\nseed: 0\nrollout:\n  prompts_per_step: 32\n", encoding="utf-8")
    for stage in ("problems", "model", "sft", "rl"):
        (folder / stage).mkdir()
        (folder / stage / "config.yaml").write_text(f"stage: {stage}\n", encoding="utf-8")
    rows = [_sft(folder / "sft", sft_steps, rng, model=evaluation("model", 0, skill=0.0, rng=rng))]
    rows.append(_rl(folder / "rl", rl_steps, rng))
    evaluations = [row for part in rows for row in part]
    if done:
        summary = {"seconds": 251.4, "model": str(folder.name) + "/rl/checkpoints/last", "evaluations": evaluations}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def stored_group(*members: ScoredRollout) -> StoredGroup:
    """A group of rollouts of one prompt, each with the advantage 0.5."""
    group = Group(prompt=members[0].rollout.prompt, members=members)
    return StoredGroup(group=group, seen=[{"advantage": 0.5}] * len(members))


def _sft(folder: Path, steps: int, rng: random.Random, *, model: dict[str, Any]) -> list[dict[str, Any]]:
    now = [0.0]
    with_model = Tracker(folder.parent / "model", console=None, tensorboard=False, total_steps=0)
    with_model.evaluation(model)
    with_model.close()
    tracker = Tracker(folder, console=None, tensorboard=False, total_steps=steps, clock=lambda: now[0])
    for step in range(1, steps + 1):
        now[0] += rng.uniform(0.15, 0.2)
        loss = 0.35 + 3.5 * math.exp(-step / 40) + rng.gauss(0, 0.02)
        numbers = {
            "train/loss": loss,
            "train/grad_norm": 0.4 + 2 * math.exp(-step / 60) + abs(rng.gauss(0, 0.1)),
            "train/lr": 2e-3 * min(step / 20, 1.0),
            "train/tokens": 3000.0,
            "time/step_s": 0.17,
        }
        tracker.log(step, numbers)
    last = evaluation("sft", steps, skill=0.5, rng=rng)
    tracker.evaluation(last)
    tracker.close()
    return [model, last]


def _rl(folder: Path, steps: int, rng: random.Random) -> list[dict[str, Any]]:
    now = [0.0]
    tracker = Tracker(folder, console=None, tensorboard=False, total_steps=steps, clock=lambda: now[0])
    evaluations: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        skill = 0.5 + 0.45 * (1 - math.exp(-step / max(steps / 3, 1)))
        now[0] += rng.uniform(1.5, 2.0)
        groups = [_group(step, index, skill, rng) for index in range(8)]
        tracker.log(step, values(rollout_metrics(groups)) | _update(step, steps, rng))
        tracker.samples(step, [stored_group(*one.members) for one in groups])
        if step % max(steps // 4, 1) == 0:
            evaluations.append(evaluation("rl", step, skill=skill, rng=rng))
            tracker.evaluation(evaluations[-1])
    tracker.close()
    return evaluations


def _update(step: int, steps: int, rng: random.Random) -> dict[str, float]:
    rollout_s, update_s = rng.uniform(0.9, 1.2), rng.uniform(0.4, 0.5)
    return {
        "train/loss": rng.gauss(0, 0.01),
        "train/entropy": 0.06 + 0.3 * math.exp(-2 * step / steps) + rng.gauss(0, 0.006),
        "train/grad_norm": 0.3 + abs(rng.gauss(0, 0.08)),
        "train/lr": 1e-4,
        "train/clip_frac": abs(rng.gauss(0.004, 0.002)),
        "train/ratio_mean": 1.0,
        "train/ratio_max": 1 + abs(rng.gauss(0.3, 0.1)),
        "train/approx_kl": abs(rng.gauss(0.001, 0.0004)),
        "train/tokens": 9000.0,
        "align/mean_exp_gap": 1.0004 + abs(rng.gauss(0, 0.0002)),
        "align/max_gap": abs(rng.gauss(0.01, 0.004)),
        "time/rollout_s": rollout_s,
        "time/grade_s": 0.05,
        "time/update_s": update_s,
        "time/step_s": rollout_s + update_s + 0.08,
        "perf/rollout_tokens_per_s": 9000 / rollout_s,
        "data/tried_frac": step / steps,
    }


def _group(step: int, index: int, skill: float, rng: random.Random) -> Group:
    place = index % len(LEVELS)
    of = problem(index=(step * 8 + index) % 200, level=LEVELS[place], answer=str(4 * index + 10))
    members: list[ScoredRollout] = []
    for sample in range(4):
        draw = rng.random()
        right = draw < skill ** (0.6 + 0.35 * place)
        reason = Reason.EQUAL if right else Reason.NO_ANSWER if draw > 0.99 else Reason.DIFFERENT
        value = of.answer if right else str(rng.randint(5, 60))
        thought = f"There are {index + 3} boxes, so {index + 3} * 4 = {4 * index + 12} pears.\n2 are given away.\n"
        text = f"{thought}{NASTY}\n" if (step, index, sample) == (1, 0, 0) else thought
        members.append(
            scored(
                of,
                sample=sample,
                reward=float(right),
                reason=reason,
                token_ids=tuple(rng.randrange(500) for _ in range(round(rng.gauss(36 + 2 * place, 4)))),
                text=f"{text}#### {value}" if reason is not Reason.NO_ANSWER else text,
            )
        )
    return group(members)

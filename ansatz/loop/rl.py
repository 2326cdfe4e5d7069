"""Reinforcement learning from verifiable rewards: take, generate, score, shape, batch, step, publish, track."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from ansatz.evaluate.evaluate import Evaluator
from ansatz.loop.collect import collect
from ansatz.loop.state import Clock, TrainingStage
from ansatz.models.peak_memory import PeakMemory
from ansatz.models.weights import LiveWeights
from ansatz.prompts.render import render
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.rollouts import rollout_metrics
from ansatz.train.sample import samples_of_groups
from ansatz.train.step import StepReport
from ansatz.types import Group, ScoredRollout


def train_rl(stage: TrainingStage, *, sampler: Sampler, grader: Grader, evaluator: Evaluator) -> Path:
    """Runs the stage to its end; returns its last checkpoint."""
    config, trainer = stage.config, stage.trainer
    rollout, template = config.rollout, config.data.template
    as_prompt = functools.partial(
        render,
        template=template,
        tokenizer=trainer.policy.tokenizer,
        max_prompt_tokens=rollout.max_prompt_tokens,
    )
    sampler.load_weights(LiveWeights(policy=trainer.policy, version=trainer.version))
    memory = PeakMemory(trainer.policy.device)
    for step in stage.steps():
        sampling = Sampling.of(rollout, seed=config.seed, step=step, max_call_tokens=rollout.partial_rollout_tokens)
        found = collect(
            stage.stream,
            as_prompt,
            count=rollout.prompts_per_step,
            sampler=sampler,
            sampling=sampling,
            grader=grader,
            greedy=trainer.needs_greedy,
            graders=config.grader_workers,
            carried=stage.carried,
        )
        clock, times = Clock(), dict(found.times)
        batch = trainer.batch(
            samples_of_groups(found.groups), baseline_of_group=baseline_of_group(found.groups, found.greedy)
        )
        reports = trainer.update(batch, step=step, check_alignment=step == stage.first_step)
        sampler.load_weights(LiveWeights(policy=trainer.policy, version=trainer.version))
        times["time/update_s"] = clock.lap()
        used = {"perf/peak_memory_gb": memory.gb()}
        stage.tracker.log(step, {**step_metrics(found.sampled, reports, times), **used, **found.metrics})
        if config.save.samples:
            stage.tracker.samples(step, [one for group in found.sampled for one in group.members])
        if config.evaluate.every and step % config.evaluate.every == 0 and step < stage.total_steps:
            stage.tracker.evaluation(evaluator.run(sampler, stage=stage.folder.name, step=step))
        if stage.save_due(step):
            stage.save(step)
    return stage.folder / "checkpoints" / f"step-{stage.total_steps:06d}"


def baseline_of_group(groups: Sequence[Group], greedy: Sequence[ScoredRollout]) -> dict[int, float]:
    """The reward of the greedy response to each group's prompt, by the group's index; empty where none was drawn."""
    value = {one.rollout.prompt.problem.id: one.score.value for one in greedy}
    return {index: value[group.prompt.problem.id] for index, group in enumerate(groups)} if greedy else {}


def step_metrics(groups: Sequence[Group], reports: Sequence[StepReport], times: dict[str, float]) -> dict[str, float]:
    """Rollout metrics, the mean (or maximum) over the updates of theirs, and where the time went."""
    names = dict.fromkeys(name for report in reports for name in report.metrics)
    updates = {
        name: (max if name.endswith("_max") or name == "align/max_gap" else fmean)(
            [report.metrics[name] for report in reports if name in report.metrics]
        )
        for name in names
    }
    tokens = sum(one.rollout.num_tokens for group in groups for one in group.members)
    step_s = sum(times.values())
    return {
        **rollout_metrics(groups),
        **updates,
        "train/early_stops": float(sum(report.stopped for report in reports)),
        **times,
        "time/step_s": step_s,
        "perf/rollout_tokens_per_s": tokens / times["time/rollout_s"],
        "perf/train_tokens_per_s": sum(report.tokens for report in reports) / times["time/update_s"],
    }

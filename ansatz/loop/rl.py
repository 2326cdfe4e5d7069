"""Reinforcement learning from verifiable rewards: take, generate, score, shape, batch, step, publish, track."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansatz.evaluate.evaluate import Evaluator
from ansatz.loop.state import Clock, Stage
from ansatz.models.load import Policy
from ansatz.objectives.objective import Objective
from ansatz.prompts.render import render
from ansatz.rewards.base import Grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.track.rollouts import rollout_metrics
from ansatz.train.batch import Row, TrainBatch, build_batch, lay_out
from ansatz.train.optim import warmup
from ansatz.train.step import StepReport, logps_of, train_step
from ansatz.types import Group, ScoredRollout


def train_rl(
    stage: Stage,
    *,
    objective: Objective,
    sampler: Sampler,
    grader: Grader,
    evaluator: Evaluator,
    reference: Policy | None,
) -> Path:
    """Runs the stage to its end; returns its last checkpoint."""
    config = stage.config
    rollout, template, version = config.rollout, config.data.template, stage.version
    sampler.load_weights(stage.policy.model, version=version)
    for step in stage.steps():
        clock, times = Clock(), dict[str, float]()
        prompts = [
            render(problem, template, stage.policy.tokenizer, max_prompt_tokens=rollout.max_prompt_tokens)
            for problem in stage.stream.take(rollout.prompts_per_step)
        ]
        sampling = Sampling(
            num_samples=rollout.samples_per_prompt,
            max_response_tokens=rollout.max_response_tokens,
            temperature=rollout.temperature,
            top_k=rollout.top_k,
            top_p=rollout.top_p,
            seed=config.seed,
            step=step,
        )
        rollouts = sampler.generate(prompts, sampling)
        times["time/rollout_s"] = clock.lap()
        scored = grader.score(rollouts, step=step)
        times["time/grade_s"] = clock.lap()
        groups = group_by_prompt(scored)
        batch = step_batch(stage, groups, objective, reference)
        reports = update(stage, batch, objective, step=step)
        times["time/update_s"] = clock.lap()
        version += len(reports)
        sampler.load_weights(stage.policy.model, version=version)
        stage.tracker.log(step, step_metrics(groups, reports, times))
        if config.save.samples:
            stage.tracker.samples(step, scored)
        if config.evaluate.every and step % config.evaluate.every == 0 and step < stage.total_steps:
            stage.tracker.evaluation(evaluator.run(sampler, stage=stage.folder.name, step=step))
        if stage.save_due(step):
            stage.save(step, version=version)
    return stage.folder / "checkpoints" / f"step-{stage.total_steps:06d}"


def group_by_prompt(scored: Sequence[ScoredRollout]) -> list[Group]:
    """Scored rollouts by problem, in the order in which problems first appear."""
    members: dict[str, list[ScoredRollout]] = {}
    for one in scored:
        members.setdefault(one.rollout.prompt.problem.id, []).append(one)
    return [Group(prompt=group[0].rollout.prompt, members=tuple(group)) for group in members.values()]


def step_batch(stage: Stage, groups: Sequence[Group], objective: Objective, reference: Policy | None) -> TrainBatch:
    """The whole step as one batch; old log-probs are computed only where a second update will need them."""
    rows = [
        Row(
            prompt_ids=group.prompt.token_ids,
            response_ids=one.rollout.token_ids,
            behavior_logps=one.rollout.behavior_logps,
            group=index,
            reward=one.score.value,
        )
        for index, group in enumerate(groups)
        for one in group.members
    ]
    layout = lay_out(rows, device=stage.policy.device)
    how = {"tokens_per_slice": stage.config.train.tokens_per_slice, "temperature": stage.config.rollout.temperature}
    several = stage.config.train.optimizer_steps_per_step > 1
    return build_batch(
        layout,
        objective,
        old_logp_T=logps_of(stage.policy, layout, **how) if several else None,
        ref_logp_T=logps_of(reference, layout, **how) if reference is not None else None,
    )


def update(stage: Stage, batch: TrainBatch, objective: Objective, *, step: int) -> list[StepReport]:
    """Every optimiser step on one step's rollouts: epochs_per_step times through its minibatches."""
    train = stage.config.train
    minibatches = batch.minibatches(train.updates_per_step, objective) * train.epochs_per_step
    return [
        train_step(
            stage.policy,
            stage.optimizer,
            minibatch,
            objective,
            step=step,
            lr=warmup(step, lr=train.lr, warmup_steps=train.warmup_steps),
            max_grad_norm=train.max_grad_norm,
            tokens_per_slice=train.tokens_per_slice,
            temperature=stage.config.rollout.temperature,
            **({"max_misalignment": train.max_misalignment} if step == 1 and index == 0 else {}),
        )
        for index, minibatch in enumerate(minibatches)
    ]


def step_metrics(groups: Sequence[Group], reports: Sequence[StepReport], times: dict[str, float]) -> dict[str, float]:
    """Rollout metrics, the mean of the updates' metrics, and where the time went."""
    updates = {
        name: (max if name.endswith("_max") or name == "align/max_gap" else _mean)([r.metrics[name] for r in reports])
        for name in reports[0].metrics
    }
    tokens = sum(one.rollout.num_tokens for group in groups for one in group.members)
    step_s = sum(times.values())
    return {
        **rollout_metrics(groups),
        **updates,
        **times,
        "time/step_s": step_s,
        "perf/rollout_tokens_per_s": tokens / times["time/rollout_s"],
        "perf/train_tokens_per_s": sum(report.tokens for report in reports) / times["time/update_s"],
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

"""A reward model of the run: sample the policy, label the responses or their steps, train a classifier on them.

    reward_model/labelled.jsonl    see `loop.reward_data`; otherwise as sft/: metrics, checkpoints
    reward_model_2/                a second round: trains the model of the first one on, with replay of its data

A checkpoint is an ordinary classifier of transformers (`models.reward_model`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ansatz.config.load import load_run
from ansatz.config.schema import Config
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response
from ansatz.loop.builders import check_source, source_problems
from ansatz.loop.context import RunContext
from ansatz.loop.labelled_responses import LabelledGroup, read_labelled, samples_of, with_replay
from ansatz.loop.reward_data import heldout_responses, labelled_groups, section_of
from ansatz.loop.reward_evaluation import evaluate_on_slips, evaluate_reward_model
from ansatz.loop.run_sources import GENERATED, RunSources
from ansatz.loop.stages.stage import Stage
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.load import Policy, check_folder
from ansatz.rewards.reasoning_steps import check_steps
from ansatz.train.reward_trainer import RewardTrainer
from ansatz.types import Problem, Prompt

LOSSES = {
    "bradley_terry": "- mean over pairs of log sigmoid(score of the correct - score of the wrong response)",
    "correctness": "mean over responses of the cross-entropy between sigmoid(score) and correctness",
    "process": "mean over reasoning steps of the cross-entropy between sigmoid(score) and label",
}


class RewardModelStage(Stage):
    name = "reward_model"
    makes_policy = False

    def explain(self, config: Config) -> str:
        section = section_of(config)
        samples = section.samples_per_prompt
        lines = [
            f"loss = {LOSSES[section.kind]}",
            f"  responses    {samples} of the policy to each of {section.problems or 'all'} problems",
            f"  updates      {section.steps} steps of {section.batch_size} problems",
        ]
        if section.kind == "process":
            rollouts = f"{section.labels}, by {section.step_rollouts} completions from each step"
            lines.append(f"  labels       {'exact, by the generator' if section.labels == 'exact' else rollouts}")
        return "\n".join(lines)

    def check(self, config: Config) -> None:
        if config.reward_model is None:
            return
        section = section_of(config)
        if config.cluster.trainers:
            raise ConfigError(
                f"cluster.trainers = {config.cluster.trainers} with the section reward_model: reward models are "
                "trained in one process only. Train it in a run without cluster.trainers, and name its folder in the "
                "rewards of a run with them."
            )
        if section.samples_per_prompt == 1 and section.kind == "bradley_terry":
            raise ConfigError(
                "reward_model.samples_per_prompt = 1: bradley_terry compares responses to the same problem. Use 2 or "
                "more, or set reward_model.kind to correctness."
            )
        if section.slips is not None:
            check_source(section.slips, key="reward_model.slips")

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        section = section_of(sources.config)
        if section.path is not None:
            yield partial(check_folder, section.path, key="reward_model.path")
        if section.kind == "process" and section.labels == "exact":
            yield lambda: check_steps(sources.source("train")[:GENERATED])
        if section.slips is not None:
            yield partial(_slips, sources.config)

    def check_problems(self, context: RunContext, policy: Policy) -> None:
        limit = section_of(context.config).max_response_tokens
        context.drop_unfit("train", partial(context.lengths(policy).check_prompts, max_response_tokens=limit))

    def run(self, context: RunContext, folder: Path) -> Path:
        config, section = context.config, section_of(context.config)
        groups = labelled_groups(context, folder)
        prompts, responses = heldout_responses(context, folder)
        earlier = _earlier_rounds(context)
        replayed = _replayed(earlier, by_step=section.kind == "process")
        groups = with_replay(groups, replayed, frac=section.replay, key=(config.seed, "replay"))
        start = section.path or (context.outputs[earlier[-1].name] if earlier else context.model)
        trainer = context.reward_trainer(start)
        stage = training_stage(
            context, config, folder, trainer=trainer, problems=list(map(_as_problem, groups)), total_steps=section.steps
        )
        with stage as running:
            _train(running, groups, lambda: _evaluated(context, trainer, prompts, responses))
            return running.output


def _train(
    stage: TrainingStage[RewardTrainer], groups: Sequence[LabelledGroup], evaluate: Callable[[], dict[str, float]]
) -> None:
    trainer, by_id = stage.trainer, {group.id: group for group in groups}
    tokenizer, by_step = trainer.model.tokenizer, trainer.kind == "process"
    every_token = trainer.kind != "bradley_terry"  # pairs are compared at the end
    for step in stage.steps:
        start = time.perf_counter()
        taken = stage.stream.take(section_of(stage.config).batch_size)
        samples = [
            sample
            for number, problem in enumerate(taken)
            for sample in samples_of(
                by_id[problem.id], tokenizer, number=number, by_step=by_step, every_token=every_token
            )
        ]
        report = trainer.update(trainer.batch(samples), step=step)
        seconds = time.perf_counter() - start
        speed = {"time/step_s": seconds, "perf/train_tokens_per_s": report.num_tokens / seconds}
        stage.tracker.log(step, report.metrics | speed | (evaluate() if step == stage.total_steps else {}))
        stage.save_if_due(step)


def _evaluated(
    context: RunContext, trainer: RewardTrainer, prompts: Sequence[Prompt], responses: Sequence[Sequence[Response]]
) -> dict[str, float]:
    numbers = evaluate_reward_model(trainer, prompts, responses)
    if section_of(context.config).slips is not None:
        slips = _slips(context.config)
        numbers |= evaluate_on_slips(trainer, context.renderer(trainer.model).prompts(slips))
    return numbers


def _slips(config: Config) -> Sequence[Problem]:
    """The problems of reward_model.slips. DataError if one cannot be used."""
    section = section_of(config).slips
    assert section is not None
    problems = source_problems(section, key="reward_model.slips")
    check_steps(problems)
    if any(problem.solution is None for problem in problems):
        raise DataError("reward_model.slips has problems without a worked solution. Use the source word_problems.")
    return problems


def _earlier_rounds(context: RunContext) -> list[Path]:
    """The folders of the rounds before this one, in order."""
    names = [name for name in context.outputs if name.startswith(RewardModelStage.name)]
    return [context.config.run_dir / name for name in names]


def _replayed(rounds: Sequence[Path], *, by_step: bool) -> list[LabelledGroup]:
    """The groups of earlier rounds, with ids that differ from those of this round. Only of rounds that labelled the
    same: steps, or whole responses."""
    same = [folder for folder in rounds if (section_of(load_run(folder)).kind == "process") == by_step]
    return [replace(group, id=f"{group.id}@{folder.name}") for folder in same for group in read_labelled(folder) or ()]


def _as_problem(group: LabelledGroup) -> Problem:
    """For the stream of problems, which draws the batches of a stage and is part of its checkpoints."""
    return Problem(id=group.id, question=group.prompt, answer="", source=RewardModelStage.name, split="train")


STAGE = RewardModelStage()

"""Supervised fine-tuning on demonstrations: the objective of RL with advantage 1 on every demonstrated token.

SFT and RL are one paradigm (DeepSeekMath, arXiv:2402.03300, sec. 5.2.1): the data come from a teacher instead of the
policy, and the gradient coefficient is 1. Batch, update and checkpoint are therefore the same as in RL.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ansatz.config.schema import Config
from ansatz.loop.context import RunContext
from ansatz.loop.stages.stage import Stage
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.load import Policy
from ansatz.objectives.build import build_objective
from ansatz.train.sample import TrainSample
from ansatz.types import Problem

OBJECTIVE = {"preset": "reinforce", "weights": "token_mean"}
METRICS = ("train/loss", "train/entropy", "train/tokens", "train/grad_norm", "train/lr", "train/skipped_steps")


class SftStage(Stage):
    name = "sft"

    def explain(self, config: Config) -> str:
        return explain_fine_tuning(config, "the worked solutions of data.sft")

    def check_problems(self, context: RunContext, policy: Policy) -> None:
        context.drop_unfit("sft", context.lengths(policy).check_demonstrations)

    def run(self, context: RunContext, folder: Path) -> Path:
        start, problems = context.model_before(self.name), context.problems("sft")
        return fine_tune(context, folder, config=context.config, model_path=start, problems=problems)


def explain_fine_tuning(config: Config, responses: str) -> str:
    """The objective of fine-tuning on the responses, in words. config: with the `sft` section that is used."""
    lines = [
        "loss = - sum over response tokens of weight x log policy",
        f"  responses    {responses}",
        f"  weight       {build_objective(OBJECTIVE).weights.formula()}",
        "  coefficient  of a token's grad log policy: its weight, so every token is imitated alike",
        f"  updates      {config.sft.steps} steps of {config.sft.batch_size} responses",
    ]
    return "\n".join(lines)


def fine_tune(
    context: RunContext,
    folder: Path,
    *,
    config: Config,
    model_path: str,
    problems: Sequence[Problem],
    first_metrics: Mapping[str, float] | None = None,
) -> Path:
    """Train the model at `model_path` on the solutions of the problems, then evaluate it. Returns the last checkpoint.

    config: the recipe, whose `sft` section may be another than the run's. first_metrics: logged as step 0.
    """
    one_update = config.train.model_copy(update={"updates_per_step": 1, "epochs_per_step": 1})
    trainer = context.trainer(model_path, build_objective(OBJECTIVE), section=config.sft, updates=one_update)
    stage = training_stage(context, config, folder, trainer=trainer, problems=problems, total_steps=config.sft.steps)
    with stage as running:
        if first_metrics is not None and running.first_step == 1:
            running.tracker.resume(-1)  # without this, step 0 of a run that was killed early would be logged twice
            running.tracker.log(0, first_metrics)
        _train(context, running)
        with closing(context.sampler(trainer.policy)) as sampler:
            row = context.evaluator(trainer.policy).run(sampler, stage=folder.name, step=running.total_steps)
        running.tracker.evaluation(row)
        return running.output


def _train(context: RunContext, stage: TrainingStage) -> None:
    trainer = stage.trainer
    renderer = context.renderer(trainer.policy)
    for step in stage.steps:
        start = time.perf_counter()
        demonstrations = map(renderer.demonstration, stage.stream.take(stage.config.sft.batch_size))
        samples = [TrainSample.from_demonstration(each, group=index) for index, each in enumerate(demonstrations)]
        rendered = time.perf_counter()
        report = trainer.update(trainer.batch(samples), step=step)
        ended = time.perf_counter()
        metrics = {name: report.metrics[name] for name in METRICS if name in report.metrics}
        speed = {
            "time/update_s": ended - rendered,
            "time/step_s": ended - start,
            "perf/train_tokens_per_s": report.num_tokens / (ended - rendered),
        }
        stage.tracker.log(step, metrics | speed)
        stage.save_if_due(step)


STAGE = SftStage()

"""Supervised fine-tuning on demonstrations: the objective of RL with advantage 1 on every demonstrated token.

SFT and RL are one paradigm (DeepSeekMath, arXiv:2402.03300, sec. 5.2.1): the data come from a teacher instead of the
policy, and the gradient coefficient is 1. Batch, update and checkpoint are therefore the same as in RL.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from ansatz.config.schema import Config
from ansatz.config.stages.core import SftSection
from ansatz.errors import DataError
from ansatz.loop.context import RunContext
from ansatz.loop.plain_text import block_demonstration, check_texts, pack
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.stage import Stage
from ansatz.loop.training_stage import TrainingStage, training_stage
from ansatz.models.reader import Reader
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import StepReport
from ansatz.types import Problem

TAUGHT = {"response": "worked solutions", "text": "texts, packed into blocks,"}
WEIGHTS = {"token": "token_mean", "sequence": "sequence_mean"}
METRICS = ("train/loss", "train/entropy", "train/tokens", "train/grad_norm", "train/lr", "train/skipped_steps")


class SftStage(Stage):
    def num_steps(self, config: Config) -> int | None:
        section = config.section(SftSection)
        return None if section.epochs else section.steps

    def explain(self, config: Config) -> str:
        return explain_fine_tuning(config, f"the {TAUGHT[config.section(SftSection).objective]} of data.sft")

    def objective(self, config: Config) -> Objective:
        return objective_of(config)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        check, section = sources.lengths(reader).check_demonstrations, sources.config.section(SftSection)
        check_texts(sources.problems("sft"), objective=section.objective)
        if section.objective == "response":
            sources.drop_unfit("sft", partial(check, every_response=section.responses == "all"))
        if section.heldout_every:
            heldout_samples(sources, reader)

    def run(self, context: RunContext, folder: Path) -> Path:
        start, problems = context.start_model, context.sources.problems("sft")
        if context.config.section(SftSection).objective == "text":
            problems = pack(context, problems, start)
        _note_untaught_responses(context, problems)
        return fine_tune(context, folder, config=context.config, model_path=start, problems=problems)


def explain_fine_tuning(config: Config, responses: str) -> str:
    """Describe the objective of fine-tuning on the responses. config: with the `sft` section that is used."""
    sft = config.section(SftSection)
    updates = f"{sft.steps} steps of {sft.batch_size} responses"
    if sft.epochs:
        updates = f"{sft.epochs} passes over the responses, {sft.batch_size} of them in a step"
    alike = {"token": "every token", "sequence": "every response"}[sft.weights]
    lines = [
        f"loss = - sum over {'' if sft.objective == 'text' else 'response '}tokens of weight x log policy",
        f"  responses    {responses}",
        f"  weight       {objective_of(config).weights.formula()}",
        f"  coefficient  of a token's grad log policy: its weight, so {alike} is imitated alike",
        f"  updates      {updates}",
    ]
    return "\n".join(lines)


def objective_of(config: Config) -> Objective:
    """Return the objective of fine-tuning: advantage 1 on every demonstrated token, weighted as the recipe says."""
    return build_objective(_algorithm(config.section(SftSection)))


def _algorithm(section: SftSection) -> dict[str, str]:
    return {"preset": "reinforce", "weights": WEIGHTS[section.weights]}


def fine_tune(
    context: RunContext,
    folder: Path,
    *,
    config: Config,
    model_path: str,
    problems: Sequence[Problem],
    first_metrics: Mapping[str, float] | None = None,
) -> Path:
    """Train the model at `model_path` on the solutions of the problems, then evaluate it. Return the last checkpoint.

    config: the recipe. Its `sft` section may differ from the run's. first_metrics: logged as step 0.
    """
    section = config.section(SftSection).with_steps(len(problems))
    config = config.with_section(section)
    one_update = config.train.model_copy(update={"updates_per_step": 1, "epochs_per_step": 1})
    objective = partial(build_objective, _algorithm(section))
    trainer = context.trainer(folder, path=model_path, objective=objective, schedule=section, updates=one_update)
    stage = training_stage(context, config, folder, trainer=trainer, problems=problems, total_steps=section.steps)
    heldout: list[TrainSample] = []
    if section.heldout_every:
        heldout = heldout_samples(context.sources, trainer.policy or context.policy(model_path))
    with closing(trainer), stage as running:
        if first_metrics is not None and running.first_step == 1:
            running.tracker.resume(-1)  # without this, step 0 of a run that was killed early would be logged twice
            running.tracker.log(0, first_metrics)
        _train(context, running, heldout)
        return evaluate_output(context, running)


def _note_untaught_responses(context: RunContext, problems: Sequence[Problem]) -> None:
    """Say on the console that only the last response of a conversation is taught, unless the recipe decides it."""
    section = context.config.data.sft
    decided = context.config.section(SftSection).responses == "all" or _names_setting(section, "each_response")
    if context.console is None or decided:
        return
    count = sum(any(turn["role"] == "assistant" for turn in problem.earlier_turns) for problem in problems)
    if count:
        context.console.note(
            f"data.sft: {count} of {len(problems)} rows are conversations with earlier responses, which are context "
            "only. sft.responses: all, or each_response: true in data.sft, teaches them too."
        )


def _names_setting(section: Any, name: str) -> bool:
    """Return whether a data section, or one of the sources inside it, has the setting."""
    if isinstance(section, Mapping):
        return name in section or any(_names_setting(value, name) for value in section.values())
    return isinstance(section, list) and any(_names_setting(item, name) for item in section)


def _train(context: RunContext, stage: TrainingStage, heldout: Sequence[TrainSample]) -> None:
    trainer, section = stage.trainer, stage.config.section(SftSection)
    render_one = partial(context.sources.renderer(trainer).demonstration, every_response=section.responses == "all")
    if section.objective == "text":
        render_one = block_demonstration
    every = section.heldout_every
    for step in stage.steps:
        start = time.perf_counter()
        demonstrations = map(render_one, stage.stream.take(section.batch_size))
        samples = [TrainSample.from_demonstration(each, group=index) for index, each in enumerate(demonstrations)]
        report, speed = update_timed(stage, samples, step=step, start=start)
        metrics = {name: report.metrics[name] for name in METRICS if name in report.metrics}
        if heldout and (step % every == 0 or step == stage.total_steps):
            metrics |= trainer.measure_demonstrations(heldout)
        stage.log(step, metrics | speed)
        stage.save_if_due(step)


def update_timed(
    stage: TrainingStage, samples: Sequence[TrainSample], *, step: int, start: float
) -> tuple[StepReport, dict[str, float]]:
    """Update the policy once on the samples. Return the report and the speed of the step. start: of the step."""
    rendered = time.perf_counter()
    report = stage.trainer.update(stage.trainer.batch(samples), step=step)
    ended = time.perf_counter()
    return report, {
        "time/update_s": ended - rendered,
        "time/step_s": ended - start,
        "perf/train_tokens_per_s": report.num_tokens / (ended - rendered),
    }


def evaluate_output(context: RunContext, stage: TrainingStage) -> Path:
    """Evaluate the policy at the end of its stage, and return the last checkpoint."""
    policy = stage.trainer.policy or context.policy(str(stage.output))
    with closing(context.sampler(policy)) as sampler:
        evaluated = context.evaluator(stage.trainer).run(sampler, stage=stage.folder.name, step=stage.total_steps)
    stage.tracker.evaluation(*evaluated)
    return stage.output


def heldout_samples(sources: RunSources, reader: Reader) -> list[TrainSample]:
    """Return the worked solutions of the evaluations' held-out problems, if they exist and fit the limits.

    Raise DataError if there is none.
    """
    renderer, lengths = sources.renderer(reader), sources.lengths(reader)
    problems = sources.problems("heldout")[: sources.config.evaluate.problems]
    solved = [problem for problem in problems if problem.solution is not None and lengths.fits_demonstration(problem)]
    if not solved:
        raise DataError(
            f"sft.heldout_every = {sources.config.section(SftSection).heldout_every}: none of the {len(problems)} "
            "problems of data.heldout has a worked solution that fits the limits of rollout. Set sft.heldout_every to "
            "0, or use held-out problems with solutions."
        )
    return [TrainSample.from_demonstration(renderer.demonstration(each), group=n) for n, each in enumerate(solved)]

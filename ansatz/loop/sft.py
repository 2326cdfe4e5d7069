"""Supervised fine-tuning on demonstrations: the objective with advantage 1 on every demonstrated token.

One paradigm with RL (arXiv:2402.03300 sec. 5.2.1): the data source is a teacher's trace instead of the policy's own
rollout, the gradient coefficient is 1. So it is the same batch, the same step, the same checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from ansatz.loop.state import Clock, TrainingStage
from ansatz.prompts.render import render_demonstration
from ansatz.train.sample import TrainSample

SFT_OBJECTIVE = {"preset": "reinforce", "weights": "token_mean"}
METRICS = ("train/loss", "train/entropy", "train/tokens", "train/grad_norm", "train/lr")


def train_sft(stage: TrainingStage) -> Path:
    """Runs the stage to its end; returns its last checkpoint."""
    config = stage.config
    for step in stage.steps():
        clock = Clock()
        demonstrations = [
            render_demonstration(
                problem,
                config.data.template,
                stage.policy.tokenizer,
                max_prompt_tokens=config.rollout.max_prompt_tokens,
                max_response_tokens=config.rollout.max_response_tokens,
            )
            for problem in stage.stream.take(config.sft.batch_size)
        ]
        samples = [
            TrainSample.from_demonstration(demonstration, group=index)
            for index, demonstration in enumerate(demonstrations)
        ]
        (report,) = stage.trainer.update(stage.trainer.batch(samples), step=step)
        seconds = clock.lap()
        metrics = {name: report.metrics[name] for name in METRICS}
        speed = {
            "time/update_s": report.seconds,
            "time/step_s": seconds,
            "perf/train_tokens_per_s": report.tokens / seconds,
        }
        stage.tracker.log(step, metrics | speed)
        if stage.save_due(step):
            stage.save(step)
    return stage.folder / "checkpoints" / f"step-{stage.total_steps:06d}"

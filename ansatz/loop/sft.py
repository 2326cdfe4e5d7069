"""Supervised fine-tuning on demonstrations: the objective with advantage 1 on every demonstrated token.

One paradigm with RL (arXiv:2402.03300 sec. 5.2.1): the data source is a teacher's trace instead of the policy's own
rollout, the gradient coefficient is 1. So it is the same batch, the same step, the same checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from ansatz.loop.state import Clock, Stage
from ansatz.objectives.build import build_objective
from ansatz.prompts.render import render_demonstration
from ansatz.train.batch import Row, build_batch, lay_out
from ansatz.train.optim import warmup
from ansatz.train.step import train_step

OBJECTIVE = {"preset": "reinforce", "weights": "token_mean"}
METRICS = ("train/loss", "train/entropy", "train/tokens", "train/grad_norm", "train/lr")


def train_sft(stage: Stage) -> Path:
    """Runs the stage to its end; returns its last checkpoint."""
    config, objective = stage.config, build_objective(OBJECTIVE)
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
        rows = [
            Row(
                prompt_ids=one.prompt.token_ids,
                response_ids=one.response_ids,
                behavior_logps=[0.0] * len(one.response_ids),
                group=index,
                reward=1.0,
            )
            for index, one in enumerate(demonstrations)
        ]
        report = train_step(
            stage.policy,
            stage.optimizer,
            build_batch(lay_out(rows, device=stage.policy.device), objective),
            objective,
            step=step,
            lr=warmup(step, lr=config.sft.lr, warmup_steps=config.sft.warmup_steps),
            max_grad_norm=config.train.max_grad_norm,
            tokens_per_slice=config.train.tokens_per_slice,
        )
        seconds = clock.lap()
        metrics = {name: report.metrics[name] for name in METRICS}
        speed = {"time/update_s": report.seconds, "time/step_s": seconds, "perf/train_tokens_per_s": report.tokens / seconds}
        stage.tracker.log(step, metrics | speed)
        if stage.save_due(step):
            stage.save(step, version=step)
    return stage.folder / "checkpoints" / f"step-{stage.total_steps:06d}"

"""A trainer that saves again and again, to be killed: `save_forever.py FOLDER`; each line on stdin starts one life.

A life goes on from the latest checkpoint. At step n every weight, moment and state of its own has the value n.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import torch
from tiny_models import tiny_policy

from ansatz.config.schema import TrainSection
from ansatz.objectives.build import build_objective
from ansatz.train import checkpoint
from ansatz.train.learner import Learner


def make_learner() -> Learner:
    objective = build_objective({"preset": "grpo"})
    learner = Learner(tiny_policy(), objective, settings=TrainSection(), dtype=torch.float32, lr=1e-3, warmup_steps=0)
    for parameter in learner.policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    learner.optimizer.step(lr=0.0, max_grad_norm=0)  # so that there are moments
    return learner


def become(learner: Learner, step: int) -> None:
    for value in (*learner.optimizer.weights().values(), *learner.optimizer.state().values()):
        value.fill_(step)
    learner.optimizer.publish()
    learner.version = step
    random.seed(step)


def live(learner: Learner, folder: Path) -> None:
    step = 0
    if (last := checkpoint.latest(folder)) is not None:
        step, _ = checkpoint.restore(last, learner=learner)
    while True:
        step += 1
        become(learner, step)
        checkpoint.save(folder, step=step, learner=learner, state={"own": step}, keep=2)
        print(step, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)  # no threads, so that forks are safe
    made, where = make_learner(), Path(sys.argv[1])
    for _ in sys.stdin:
        if (child := os.fork()) == 0:
            live(made, where)
        print(f"child {child}", flush=True)
        os.waitpid(child, 0)
        print("dead", flush=True)

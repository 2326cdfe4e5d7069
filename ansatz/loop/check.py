"""What must hold whatever the recipe: measured on the user's own model, objective and prompts.

The gradient of a step does not depend on how the step is cut, ordered, packed, padded or spread over ranks; equal
policies have ratio 1 and REINFORCE's gradient; sampler and trainer report the same log-probs. All in float32, where a
disagreement is a bug and not rounding.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

from ansatz.config.schema import Config
from ansatz.loop.rl import group_by_prompt, group_rows
from ansatz.models.load import Policy, load_policy
from ansatz.models.logps import token_logps
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.train.batch import Row, TrainBatch
from ansatz.train.learner import Learner
from ansatz.train.parallel import own_rollouts, sum_over_ranks
from ansatz.types import Prompt, ScoredRollout

GRADIENT_TOLERANCE = 1e-4  # relative to the gradient's norm; float32 rounding gives about 1e-6
LOGP_TOLERANCE = 1e-3  # nats, the largest gap of a token in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of the table. measured is at most `tolerance` where the row passes; None where it does not apply."""

    what: str
    measured: float | None
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.measured is None or self.measured <= self.tolerance


def check_run(
    config: Config, policy: Policy, prompts: Sequence[Prompt], score: Callable[..., list[ScoredRollout]]
) -> Iterator[Finding]:
    """Samples the prompts once and yields one finding after the other. policy: in float32, from a folder."""
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    sampler = NativeSampler(policy, max_concurrent=config.rollout.max_concurrent)
    sampling = Sampling(
        num_samples=config.rollout.samples_per_prompt,
        max_response_tokens=config.rollout.max_response_tokens,
        temperature=config.rollout.temperature,
        seed=config.seed,
    )
    groups = group_by_prompt(score(sampler.generate(prompts, sampling)))
    rows = [_with_signal(row, index) for index, row in enumerate(group_rows(groups))]
    learner = Learner(
        policy,
        objective,
        settings=config.train,
        dtype=torch.float32,
        lr=0.0,
        warmup_steps=0,
        temperature=sampling.temperature,
    )
    whole = _off_policy(learner.batch(rows, baseline_of_group={index: 0.0 for index in range(len(groups))}))
    gradients = _Gradients(policy, objective, sampling.temperature)
    yield from _invariances(gradients, learner, whole, rows, policy, config)
    yield from _on_policy(gradients, whole, objective)
    yield from _alignment(policy, sampler, prompts, sampling)


def _invariances(
    gradients: _Gradients, learner: Learner, whole: TrainBatch, rows: Sequence[Row], policy: Policy, config: Config
) -> Iterator[Finding]:
    expected = gradients.of(whole)
    everything = torch.arange(whole.num_rollouts)
    if learner.objective.whole_minibatch:
        note = "the objective compares tokens of the whole minibatch, so it is never cut"
        for what in ("slice size", "accumulation in another order", "two data-parallel ranks"):
            yield Finding(what=what, measured=None, tolerance=GRADIENT_TOLERANCE, note=note)
    else:
        one_each = [whole.pick(segment[None]) for segment in everything]
        yield _compare("slice size", expected, gradients.of(*whole.split(512)), "slices of at most 512 tokens")
        yield _compare("accumulation in another order", expected, gradients.of(*one_each[::-1]), "one rollout at a time")
        yield _compare("two data-parallel ranks", expected, _two_ranks(whole, policy, config), "gloo, gradients summed")
    turned = learner.batch(rows[::-1], baseline_of_group={row.group: 0.0 for row in rows})
    yield _compare("order of rollouts", expected, gradients.of(_off_policy(turned)), "last rollout first")
    yield _compare("packing", expected, gradients.of(whole, packed=False), "each rollout alone")
    for side in ("right", "left"):
        yield _compare(f"padding on the {side}", expected, gradients.padded(whole, side), "the model's own forward pass")


def _on_policy(gradients: _Gradients, whole: TrainBatch, objective: Objective) -> Iterator[Finding]:
    equal = dataclasses.replace(whole, old_logp_T=None)
    ratio = gradients.largest_log_ratio(equal)
    yield Finding(what="equal policies: |log ratio|", measured=ratio, tolerance=0.0)
    plain = dataclasses.replace(objective, kl_coef=0.0, entropy_coef=0.0, correction=())
    if plain.ratio.name == "product":
        yield Finding(
            what="equal policies: REINFORCE's gradient",
            measured=None,
            tolerance=GRADIENT_TOLERANCE,
            note="the ratio of the whole response counts once a token",
        )
        return
    reinforce = build_objective({"preset": "reinforce"}, max_response_tokens=1)
    only = _Gradients(gradients.policy, dataclasses.replace(reinforce, weights=objective.weights), gradients.temperature)
    measured = _Gradients(gradients.policy, plain, gradients.temperature).of(equal)
    yield _compare("equal policies: REINFORCE's gradient", only.of(equal), measured, "without KL, entropy, corrections")


def _alignment(
    policy: Policy, sampler: NativeSampler, prompts: Sequence[Prompt], sampling: Sampling
) -> Iterator[Finding]:
    for name, how in (
        ("recipe", sampling),
        ("temperature 0.7", dataclasses.replace(sampling, temperature=0.7)),
        ("top-k 5", dataclasses.replace(sampling, top_k=5)),
        ("top-p 0.9", dataclasses.replace(sampling, top_p=0.9)),
    ):
        groups = group_by_prompt(
            [ScoredRollout(rollout=one, score=_NO_SCORE) for one in sampler.generate(prompts, how)]
        )
        learner_batch = lay_out_rollouts(groups, policy)
        logp_T = support_logps(policy, learner_batch, temperature=how.temperature)
        gap_M = (logp_T - learner_batch.behavior_logp_T)[learner_batch.mask_T].abs()
        measure = math.exp(float(gap_M.mean()))
        yield Finding(
            what=f"sampler and trainer, {name}: largest gap",
            measured=float(gap_M.max()),
            tolerance=LOGP_TOLERANCE,
            note=f"exp(mean gap) = {measure:.6f}",
        )

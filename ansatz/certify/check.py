"""The laws that must hold for every recipe, measured on the user's own model, objective and prompts.

The gradient of a step does not depend on how the step is cut, ordered, packed, padded or spread over ranks. Equal
policies have ratio 1 and REINFORCE's gradient. Sampler and trainer report the same log-probs. Everything is computed in
float32, where a disagreement is a bug and not rounding.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ansatz.certify.gradients import Gradients, two_rank_gradient
from ansatz.config.schema import Config, RolloutSection
from ansatz.loop.builders import built_tokenizer, model_builder
from ansatz.loop.own_reward_model import rewards_before
from ansatz.loop.run_sources import RunSources
from ansatz.loop.start_checks import check_start
from ansatz.models.layers import checkpointed_layers, configure_layers
from ansatz.models.load import Policy, load_policy
from ansatz.models.threads import set_threads
from ansatz.objectives import ratios, surrogates
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.rewards.base import Grader
from ansatz.rewards.grader import build_grader
from ansatz.rollout.base import Sampling
from ansatz.rollout.groups import GroupSampler
from ansatz.rollout.native import NativeSampler
from ansatz.train.batch import LossBatch, TrainBatch
from ansatz.train.local import LocalTrainer
from ansatz.train.logps import logps_of
from ansatz.train.optim import Schedule
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample, samples_of_groups
from ansatz.types import Group, Prompt

GRADIENT_TOLERANCE = 1e-4  # relative to the gradient's norm; float32 rounding gives about 1e-6
LOGP_TOLERANCE = 1e-3  # nats, the largest gap of a token in float32
_NOT_REINFORCE = {
    ratios.product: "the ratio of the whole response counts once for each token",
    surrogates.clip_cov: "the surrogate drops tokens of high covariance at any ratio",
    surrogates.opmd: "the gradient of the surrogate is 2 tau times as large",
}
"""Ratios and surrogates whose gradient differs from REINFORCE's where the policies are equal, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A row of the table. It passes if `measured` is at most `tolerance`. measured: None if the row does not apply."""

    what: str
    measured: float | None
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.measured is None or self.measured <= self.tolerance


def check_recipe(config: Config, folder: Path, *, num_prompts: int) -> Iterator[CheckResult]:
    """Check the recipe on its model and its first prompts. If it builds its model, that is done in `folder`."""
    set_threads(config.threads)
    sources = RunSources(config)
    check_start(sources)
    config, path = sources.config, sources.config.model.path
    problems = sources.problems("train")
    if path is None or config.model.built:
        model_builder(config)(folder, texts=built_tokenizer(config, sources.source(sources.splits[0])))
        path = folder
    policy = load_policy(path)
    prompts = sources.renderer(policy).prompts(problems[:num_prompts])
    with build_grader(rewards_before(config.rewards), workers=config.grader_workers) as grader:
        yield from check_policy(config, policy, prompts, grader)


def check_policy(config: Config, policy: Policy, prompts: Sequence[Prompt], grader: Grader) -> Iterator[CheckResult]:
    """Sample the prompts once and yield one result after the other. policy: in float32, loaded from a folder."""
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    sampler = NativeSampler(policy, max_concurrent=config.rollout.engine.get("max_concurrent", 256))
    sampling = Sampling(
        num_samples=config.rollout.samples_per_prompt,
        max_response_tokens=config.rollout.max_response_tokens,
        temperature=config.rollout.temperature,
        seed=config.seed,
    )
    sampled = GroupSampler(sampler, grader.score).run(prompts, sampling)
    groups = [Group(prompt=group.prompt, members=tuple(group.graded)) for group in sampled.groups]
    samples = [_with_signal(sample, index) for index, sample in enumerate(samples_of_groups(groups))]
    trainer = LocalTrainer(
        policy,
        objective,
        settings=config.train,
        dtype=torch.float32,
        schedule=Schedule(lr=0.0),
        temperature=sampling.temperature,
        teacher=_another(policy) if objective.kl_to == "teacher" else None,
    )
    whole = _off_policy(trainer.batch(samples, baseline_of_group=dict.fromkeys(range(len(groups)), 0.0)))
    gradients = Gradients(policy, objective, sampling.temperature)
    yield from _invariances(gradients, trainer, whole, samples, config)
    yield from _on_policy(gradients, whole, objective)
    yield from _alignment(policy, sampler, prompts, sampling, config.rollout)


def _invariances(
    gradients: Gradients, trainer: LocalTrainer, whole: TrainBatch, samples: Sequence[TrainSample], config: Config
) -> Iterator[CheckResult]:
    # First of all, because a model that recomputes its layers must also work in a process that has computed nothing.
    recomputed = _recompute(gradients, whole)
    expected = gradients.of(whole)
    if recomputed is not None:
        yield _compare("checkpointing", expected, recomputed, "each layer computed again for its backward pass")
    if trainer.objective.whole_minibatch:
        note = "the objective compares tokens of the whole minibatch, so it is never cut"
        for what in ("size of microbatches", "accumulation in another order", "two data-parallel ranks"):
            yield CheckResult(what=f"gradient: {what}", measured=None, tolerance=GRADIENT_TOLERANCE, note=note)
    else:
        cut = gradients.of(*whole.microbatches(512)[0])
        yield _compare("size of microbatches", expected, cut, "microbatches of at most 512 tokens")
        last_first_N = torch.arange(whole.num_rollouts, device=whole.mask_T.device).flip(0)
        reversed_rollouts = [whole.select_rollouts(index) for index in last_first_N.split(1)]
        backwards = gradients.of(*reversed_rollouts)
        yield _compare("accumulation in another order", expected, backwards, "one rollout at a time, last first")
        ranks = two_rank_gradient(whole, gradients.policy, config)
        yield _compare("two data-parallel ranks", expected, ranks, "gloo, gradients summed")
    backwards = trainer.batch(samples[::-1], baseline_of_group={sample.group: 0.0 for sample in samples})
    yield _compare("order of rollouts", expected, gradients.of(_off_policy(backwards)), "last rollout first")
    yield _compare("packing", expected, gradients.of(whole, packed=False), "each rollout in a pass of its own")
    for side in ("right", "left"):
        yield _compare(f"padding on the {side}", expected, gradients.padded(whole, side), "the model's own forward")


def _another(policy: Policy) -> Policy:
    """Return a frozen copy with other weights. As a teacher, the policy itself would give gradients of 0, and nothing
    would be compared."""
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.requires_grad_(False).mul_(
                1 + 0.1 * torch.sin(torch.arange(parameter.numel())).view_as(parameter)
            )
    return dataclasses.replace(policy, model=model)


def _recompute(gradients: Gradients, whole: TrainBatch) -> Tensor | None:
    """Compute the gradient with `model.checkpointing`; None if the model's layers cannot be computed again."""
    layers = checkpointed_layers(gradients.policy)
    if not layers:
        return None
    configure_layers(gradients.policy, checkpointing=True)
    try:
        return gradients.of(whole)
    finally:
        for layer in layers:
            del layer.forward


def _on_policy(gradients: Gradients, whole: TrainBatch, objective: Objective) -> Iterator[CheckResult]:
    equal = _before_update(whole)
    ratio = gradients.largest_log_ratio(equal)
    of_sampler = objective.anchor == "behavior"  # whose log-probs are equal up to rounding
    yield CheckResult(
        what="log-ratio of equal policies", measured=ratio, tolerance=LOGP_TOLERANCE if of_sampler else 0.0
    )
    plain = dataclasses.replace(
        objective, policy_coef=1.0, kl_coef=0.0, entropy_coef=0.0, likelihood_coef=0.0, correction=()
    )
    note = _NOT_REINFORCE.get(plain.ratio.function) or _NOT_REINFORCE.get(plain.surrogate.function)
    if note is not None:
        yield CheckResult(
            what="gradient: of equal policies is REINFORCE's", measured=None, tolerance=GRADIENT_TOLERANCE, note=note
        )
        return
    reinforce = build_objective({"preset": "reinforce"}, max_response_tokens=1)
    reinforce = dataclasses.replace(reinforce, weights=objective.weights)
    expected = Gradients(gradients.policy, reinforce, gradients.temperature).of(equal)
    measured = Gradients(gradients.policy, plain, gradients.temperature).of(equal)
    yield _compare("of equal policies is REINFORCE's", expected, measured, "only the policy term, without corrections")


def _alignment(
    policy: Policy, sampler: NativeSampler, prompts: Sequence[Prompt], sampling: Sampling, recipe: RolloutSection
) -> Iterator[CheckResult]:
    keys = ("top_k", "top_p", "min_p", "min_response_tokens", "stop", "thinking_budget")
    half = sampling.max_response_tokens // 2
    for name, variant in (
        ("as in the recipe", dataclasses.replace(sampling, **{key: getattr(recipe, key) for key in keys})),
        ("temperature 0.7", dataclasses.replace(sampling, temperature=0.7)),
        ("top-k 5", dataclasses.replace(sampling, top_k=5)),
        ("top-p 0.9", dataclasses.replace(sampling, top_p=0.9)),
        ("min-p 0.1", dataclasses.replace(sampling, min_p=0.1)),
        ("no end in the first half", dataclasses.replace(sampling, min_response_tokens=half, top_p=0.9)),
    ):
        sampled = sampler.generate(prompts, variant)
        samples = [TrainSample.from_rollout(rollout, group=0, reward=0.0) for rollout in sampled]
        rollouts = pack_rollouts(samples, device=policy.device)
        logp_T = logps_of(policy, rollouts, tokens_per_microbatch=4096, temperature=variant.temperature)
        gap_M = (logp_T - rollouts.behavior_logp_T)[rollouts.sampled_mask_T].abs()
        yield CheckResult(
            what=f"sampler and trainer, {name}",
            measured=float(gap_M.max()),
            tolerance=LOGP_TOLERANCE,
            note=f"largest gap, nats; exp(mean gap) = {math.exp(float(gap_M.mean())):.6f}",
        )


def _off_policy(batch: TrainBatch) -> LossBatch:
    """Return the batch with old log-probs that differ a little from the policy's, as after an update, so that it
    clips."""
    noise_T = 0.2 * torch.sin(batch.packed.token_T.float() + 3.0 * batch.packed.position_T)
    return batch.with_old_logps((batch.behavior_logp_T + noise_T) * batch.sampled_mask_T)


def _before_update(batch: TrainBatch) -> TrainBatch:
    """Return the batch without old log-probs, so that the policy is its own old policy."""
    return TrainBatch(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(TrainBatch)})


def _with_signal(sample: TrainSample, index: int) -> TrainSample:
    """Return the sample with a varied reward. An untrained policy earns 0 everywhere, which gives no gradient to
    compare."""
    return dataclasses.replace(sample, reward=sample.reward + (index * 7 % 5) / 4)


def _compare(what: str, expected: Tensor, measured: Tensor, note: str = "") -> CheckResult:
    """Return the distance of two gradients relative to the norm of the expected one."""
    distance = float((expected - measured).norm() / expected.norm().clamp(min=1e-30))
    return CheckResult(what=f"gradient: {what}", measured=distance, tolerance=GRADIENT_TOLERANCE, note=note)

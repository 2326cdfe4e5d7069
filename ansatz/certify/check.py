"""What must hold whatever the recipe: measured on the user's own model, objective and prompts.

The gradient of a step does not depend on how the step is cut, ordered, packed, padded or spread over ranks; equal
policies have ratio 1 and REINFORCE's gradient; sampler and trainer report the same log-probs. All in float32, where a
disagreement is a bug and not rounding.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from ansatz.certify.ranks import own_rollouts, sum_over_ranks
from ansatz.config.schema import Config, RolloutSection
from ansatz.loop.builders import model_builder, source_problems, tokenizer_texts
from ansatz.models.load import Policy, load_policy
from ansatz.models.logps import token_logps
from ansatz.models.threads import set_threads
from ansatz.objectives import checks
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.prompts.render import render
from ansatz.rewards.base import Grader
from ansatz.rewards.grader import build_grader
from ansatz.rollout.base import Sampling
from ansatz.rollout.groups import GroupSampler
from ansatz.rollout.native import NativeSampler
from ansatz.train.batch import LossBatch, TrainBatch
from ansatz.train.local import LocalTrainer
from ansatz.train.logps import logps_of
from ansatz.train.optim import Schedule
from ansatz.train.packed import pack_rollouts, select_rollouts
from ansatz.train.sample import TrainSample, samples_of_groups
from ansatz.types import Group, Prompt

GRADIENT_TOLERANCE = 1e-4  # relative to the gradient's norm; float32 rounding gives about 1e-6
LOGP_TOLERANCE = 1e-3  # nats, the largest gap of a token in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One row of the table. measured is at most `tolerance` where the row passes; None where it does not apply."""

    what: str
    measured: float | None
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.measured is None or self.measured <= self.tolerance


def check_recipe(config: Config, folder: Path, *, num_prompts: int) -> Iterator[CheckResult]:
    """The findings, one after the other, on the recipe's model (a tiny one is built in `folder`) and first prompts."""
    set_threads(config.threads)
    problems = source_problems(config.data.train, key="data.train")
    path = config.model.path
    if path is None or config.model.built:
        model_builder(config)(folder, texts=tokenizer_texts(problems, config.data.template))
        path = folder
    policy = load_policy(path)
    prompts = [
        render(problem, config.data.template, policy.tokenizer, max_prompt_tokens=config.rollout.max_prompt_tokens)
        for problem in problems[:num_prompts]
    ]
    with build_grader(config.rewards, workers=config.grader_workers) as grader:
        yield from check_policy(config, policy, prompts, grader)


def check_policy(config: Config, policy: Policy, prompts: Sequence[Prompt], grader: Grader) -> Iterator[CheckResult]:
    """Samples the prompts once and yields one finding after the other. policy: in float32, from a folder."""
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    checks.check_recipe(objective, samples_per_prompt=config.rollout.samples_per_prompt)
    sampler = NativeSampler(policy, max_concurrent=config.rollout.engine.get("max_concurrent", 256))
    sampling = Sampling(
        num_samples=config.rollout.samples_per_prompt,
        max_response_tokens=config.rollout.max_response_tokens,
        temperature=config.rollout.temperature,
        seed=config.seed,
    )
    sampled = GroupSampler(sampler, grader.score).run(prompts, sampling)
    groups = [Group(prompt=group.prompt, members=tuple(group.graded)) for group in sampled.groups]
    rows = [_with_signal(row, index) for index, row in enumerate(samples_of_groups(groups))]
    trainer = LocalTrainer(
        policy,
        objective,
        settings=config.train,
        dtype=torch.float32,
        lr=0.0,
        schedule=Schedule(),
        temperature=sampling.temperature,
    )
    whole = _off_policy(trainer.batch(rows, baseline_of_group=dict.fromkeys(range(len(groups)), 0.0)))
    gradients = _Gradients(policy, objective, sampling.temperature)
    yield from _invariances(gradients, trainer, whole, rows, policy, config)
    yield from _on_policy(gradients, whole, objective)
    yield from _alignment(policy, sampler, prompts, sampling, config.rollout)


def _invariances(
    gradients: _Gradients,
    trainer: LocalTrainer,
    whole: TrainBatch,
    rows: Sequence[TrainSample],
    policy: Policy,
    config: Config,
) -> Iterator[CheckResult]:
    expected = gradients.of(whole)
    everything = torch.arange(whole.num_rollouts)
    if trainer.objective.whole_minibatch:
        note = "the objective compares tokens of the whole minibatch, so it is never cut"
        for what in ("slice size", "accumulation in another order", "two data-parallel ranks"):
            yield CheckResult(what=f"gradient: {what}", measured=None, tolerance=GRADIENT_TOLERANCE, note=note)
    else:
        one_each = [whole.select_rollouts(segment[None]) for segment in everything]
        yield _compare("slice size", expected, gradients.of(*whole.microbatches(512)), "slices of at most 512 tokens")
        yield _compare(
            "accumulation in another order", expected, gradients.of(*one_each[::-1]), "one at a time, last first"
        )
        yield _compare("two data-parallel ranks", expected, _two_ranks(whole, policy, config), "gloo, gradients summed")
    turned = trainer.batch(rows[::-1], baseline_of_group={row.group: 0.0 for row in rows})
    yield _compare("order of rollouts", expected, gradients.of(_off_policy(turned)), "last rollout first")
    yield _compare("packing", expected, gradients.of(whole, packed=False), "each rollout alone")
    for side in ("right", "left"):
        yield _compare(f"padding on the {side}", expected, gradients.padded(whole, side), "the model's own forward")


def _on_policy(gradients: _Gradients, whole: TrainBatch, objective: Objective) -> Iterator[CheckResult]:
    equal = _before_update(whole)
    ratio = gradients.largest_log_ratio(equal)
    yield CheckResult(what="log-ratio of equal policies", measured=ratio, tolerance=0.0)
    plain = dataclasses.replace(objective, kl_coef=0.0, entropy_coef=0.0, correction=())
    if plain.ratio.name == "product":
        yield CheckResult(
            what="gradient: of equal policies is REINFORCE's",
            measured=None,
            tolerance=GRADIENT_TOLERANCE,
            note="the ratio of the whole response counts once a token",
        )
        return
    reinforce = build_objective({"preset": "reinforce"}, max_response_tokens=1)
    weighted_alike = dataclasses.replace(reinforce, weights=objective.weights)
    only = _Gradients(gradients.policy, weighted_alike, gradients.temperature)
    measured = _Gradients(gradients.policy, plain, gradients.temperature).of(equal)
    yield _compare("of equal policies is REINFORCE's", only.of(equal), measured, "without KL, entropy, corrections")


def _alignment(
    policy: Policy, sampler: NativeSampler, prompts: Sequence[Prompt], sampling: Sampling, recipe: RolloutSection
) -> Iterator[CheckResult]:
    keys = ("top_k", "top_p", "min_p", "min_response_tokens", "stop", "thinking_budget")
    half = sampling.max_response_tokens // 2
    for name, how in (
        ("as in the recipe", dataclasses.replace(sampling, **{key: getattr(recipe, key) for key in keys})),
        ("temperature 0.7", dataclasses.replace(sampling, temperature=0.7)),
        ("top-k 5", dataclasses.replace(sampling, top_k=5)),
        ("top-p 0.9", dataclasses.replace(sampling, top_p=0.9)),
        ("min-p 0.1", dataclasses.replace(sampling, min_p=0.1)),
        ("no end in the first half", dataclasses.replace(sampling, min_response_tokens=half, top_p=0.9)),
    ):
        rows = [TrainSample.from_rollout(rollout, group=0, reward=0.0) for rollout in sampler.generate(prompts, how)]
        rollouts = pack_rollouts(rows, device=policy.device)
        logp_T = logps_of(policy, rollouts, tokens_per_microbatch=4096, temperature=how.temperature)
        gap_M = (logp_T - rollouts.behavior_logp_T)[rollouts.mask_T].abs()
        yield CheckResult(
            what=f"sampler and trainer, {name}",
            measured=float(gap_M.max()),
            tolerance=LOGP_TOLERANCE,
            note=f"largest gap, nats; exp(mean gap) = {math.exp(float(gap_M.mean())):.6f}",
        )


class _Gradients:
    """Gradients of an objective in the policy's parameters, as one flat vector."""

    def __init__(self, policy: Policy, objective: Objective, temperature: float) -> None:
        self.policy, self.objective, self.temperature = policy, objective, temperature

    def of(self, *parts: TrainBatch, packed: bool = True) -> Tensor:
        """Summed over the parts."""
        return self._collect([(part, self._logps(part, packed=packed)) for part in parts])

    def padded(self, batch: TrainBatch, side: str) -> Tensor:
        """By the model's own forward pass over rows padded on one side, with an attention mask."""
        return self._collect([(batch, self._padded_logps(batch, side))])

    def largest_log_ratio(self, batch: TrainBatch) -> float:
        logp_T, entropy_T = self._logps(batch, packed=True)
        return float(self.objective.loss(batch.for_loss(logp_T), logp_T, entropy_T).maxima["log_ratio_abs"])

    def _collect(self, parts: Sequence[tuple[TrainBatch, tuple[Tensor, Tensor]]]) -> Tensor:
        self.policy.model.zero_grad(set_to_none=True)
        for part, (logp_T, entropy_T) in parts:
            self.objective.loss(part.for_loss(logp_T), logp_T, entropy_T).loss.backward()
        gradient = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.policy.model.parameters()]
        )
        self.policy.model.zero_grad(set_to_none=True)
        return gradient

    def _logps(self, batch: TrainBatch, *, packed: bool) -> tuple[Tensor, Tensor]:
        rollouts = batch.packed
        pieces = (
            [rollouts]
            if packed
            else [select_rollouts(rollouts, torch.tensor([n])) for n in range(rollouts.num_rollouts)]
        )
        logps = [token_logps(self.policy, piece, temperature=self.temperature) for piece in pieces]
        return torch.cat([logp_T for logp_T, _ in logps]), torch.cat([entropy_T for _, entropy_T in logps])

    def _padded_logps(self, batch: TrainBatch, side: str) -> tuple[Tensor, Tensor]:
        rollouts = batch.packed
        length_N = torch.bincount(rollouts.segment_T)
        columns = int(length_N.max())
        shift_T = (columns - length_N)[rollouts.segment_T] if side == "left" else torch.zeros_like(rollouts.segment_T)
        cell = rollouts.segment_T, rollouts.position_T + shift_T
        token_NL = torch.zeros(len(length_N), columns, dtype=torch.long)
        token_NL[cell] = rollouts.token_T
        seen_NL = torch.zeros_like(token_NL)
        seen_NL[cell] = 1
        position_NL = (seen_NL.cumsum(1) - 1).clamp(min=0)
        logits_NLV = self.policy.model(
            input_ids=token_NL, attention_mask=seen_NL, position_ids=position_NL, use_cache=False
        ).logits.float()
        logp_TV = (logits_NLV / self.temperature).log_softmax(-1)[cell[0], (cell[1] - 1).clamp(min=0)]
        entropy_T = -(logp_TV.exp() * logp_TV).sum(-1)
        return logp_TV.gather(-1, rollouts.token_T[:, None]).squeeze(-1), entropy_T


def _off_policy(batch: TrainBatch) -> LossBatch:
    """The batch with old log-probs a little off the policy's, as after an update, so that ratios and clips bite."""
    noise_T = 0.2 * torch.sin(batch.packed.token_T.float() + 3.0 * batch.packed.position_T)
    return batch.with_old_logps((batch.behavior_logp_T + noise_T) * batch.sampled_mask_T)


def _before_update(batch: TrainBatch) -> TrainBatch:
    """The batch without old log-probs, so that the policy is its own old policy."""
    return TrainBatch(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(TrainBatch)})


def _with_signal(row: TrainSample, index: int) -> TrainSample:
    """The row with a reward that differs from its neighbours': an untrained policy's are all 0 and have no gradient."""
    return dataclasses.replace(row, reward=row.reward + (index * 7 % 5) / 4)


def _compare(what: str, expected: Tensor, got: Tensor, note: str = "") -> CheckResult:
    distance = float((expected - got).norm() / expected.norm().clamp(min=1e-30))
    return CheckResult(what=f"gradient: {what}", measured=distance, tolerance=GRADIENT_TOLERANCE, note=note)


def _two_ranks(batch: TrainBatch, policy: Policy, config: Config) -> Tensor:
    """The gradient that two processes with half of the rollouts each agree on."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(batch, Path(folder) / "batch.pt")
        spawn(_rank, args=(folder, policy.path, config), nprocs=2)
        return torch.load(Path(folder) / "gradient.pt")


def _rank(rank: int, folder: str, model_path: str, config: Config) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.set_num_threads(1)
    batch: TrainBatch = torch.load(Path(folder) / "batch.pt", weights_only=False)
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    gradients = _Gradients(load_policy(model_path), objective, config.rollout.temperature)
    gradient = gradients.of(batch.select_rollouts(own_rollouts(batch.num_rollouts, rank=rank, world_size=2)))
    sum_over_ranks([gradient])
    if rank == 0:
        torch.save(gradient, Path(folder) / "gradient.pt")
    dist.destroy_process_group()

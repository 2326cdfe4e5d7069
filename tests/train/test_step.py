from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
import torch
from tiny_models import some_sequences, tiny_policy
from torch import Tensor

from ansatz.errors import AlignmentError, NonFiniteError
from ansatz.models.load import Policy
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.train.batch import TrainBatch, build_batch
from ansatz.train.logps import logps_of
from ansatz.train.optim import MasterAdamW
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.train.step import UpdateReport, UpdateSettings, train_step
from tools.families import VOCAB_SIZE

CPU = torch.device("cpu")


def rows_of(rewards: Sequence[float], *, seed: int = 0) -> list[TrainSample]:
    """Two groups of rollouts of 2 to 16 response tokens."""
    lengths = torch.randint(2, 17, (len(rewards),), generator=torch.Generator().manual_seed(seed)).tolist()
    responses = some_sequences(*lengths, seed=seed)
    prompts = some_sequences(5, 9, seed=seed + 1)
    half = (len(rewards) + 1) // 2
    return [
        TrainSample(
            prompt_ids=prompts[index // half],
            token_ids=response,
            behavior_logps=[-1.0] * len(response),
            group=index // half,
            reward=reward,
            components=(reward, float(index % 3 == 0)),
        )
        for index, (response, reward) in enumerate(zip(responses, rewards, strict=True))
    ]


class World:
    """A tiny policy, its optimizer and an objective."""

    def __init__(self, preset: str = "grpo", *, dtype: torch.dtype = torch.float32) -> None:
        self.policy: Policy = tiny_policy()
        self.optimizer = MasterAdamW(self.policy.model, dtype=dtype, betas=(0.9, 0.99), weight_decay=0.01)
        self.objective: Objective = build_objective({"preset": preset}, max_response_tokens=16)
        self.gradient: dict[str, Tensor] = {}

    def batch(self, rows: Sequence[TrainSample], *, old: bool = False, temperature: float = 1.0) -> TrainBatch:
        packed = pack_rollouts(rows, device=CPU)
        own_T = logps_of(self.policy, packed, tokens_per_microbatch=30, temperature=temperature)
        packed = dataclasses.replace(packed, behavior_logp_T=own_T)
        extra = {"baseline_N": torch.zeros(len(rows)), "value_T": torch.zeros_like(own_T)}
        return build_batch(packed, self.objective, old_logp_T=own_T if old else None, **extra)

    def step(self, batch: TrainBatch, *, tokens_per_microbatch: int = 10**6, **changes: float) -> UpdateReport:
        step = self.optimizer.step

        def recorded(**how: float) -> float:
            self.gradient = {n: m.grad.clone() for n, m in self.optimizer.masters.items() if m.grad is not None}
            return step(**how)

        self.optimizer.step = recorded  # type: ignore[method-assign]
        number = int(changes.pop("step", 1))
        settings = UpdateSettings(
            **{"lr": 1e-3, "max_grad_norm": 1.0, **changes}, tokens_per_microbatch=tokens_per_microbatch
        )
        try:
            return train_step(self.policy, self.optimizer, batch, self.objective, settings, step=number)
        finally:
            self.optimizer.step = step  # type: ignore[method-assign]

    def everything(self) -> dict[str, Tensor]:
        model = {f"model/{name}": value for name, value in self.policy.model.named_parameters()}
        return {
            name: value.detach().clone()
            for name, value in (self.optimizer.weights() | self.optimizer.state() | model).items()
        }

    def has_gradients(self) -> bool:
        parameters = [*self.optimizer.masters.values(), *self.policy.model.parameters()]
        return any(parameter.grad is not None for parameter in parameters)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def assert_same_gradient(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    largest = max(float(value.abs().max()) for value in other.values())
    assert largest > 0
    assert one.keys() == other.keys()
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 2e-5 * largest


REWARDS = (1.0, 0.0, 0.2, 0.0, 1.0, 1.0, 0.5, 0.0)


@pytest.mark.parametrize(
    "preset",
    ["reinforce", "remax", "ppo", "grpo", "grpo_process", "dr_grpo", "dapo", "gspo", "gmpo", "luspo", "kl_cov"],
)
def test_the_size_of_slices_changes_neither_loss_nor_gradient_of_the_model(preset: str) -> None:
    rewards = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    whole, sliced = World(preset), World(preset)
    report = whole.step(whole.batch(rows_of(rewards)))
    other = sliced.step(sliced.batch(rows_of(rewards)), tokens_per_microbatch=40)
    assert other.metrics["train/loss"] == pytest.approx(report.metrics["train/loss"], abs=1e-5)
    assert other.metrics == pytest.approx(report.metrics, rel=1e-3, abs=1e-5)
    assert_same_gradient(sliced.gradient, whole.gradient)


def test_the_order_of_rollouts_changes_no_gradient() -> None:
    one, other = World(), World()
    one.step(one.batch(rows_of(REWARDS)), tokens_per_microbatch=40)
    other.step(other.batch(rows_of(REWARDS)[::-1]), tokens_per_microbatch=70)
    assert_same_gradient(other.gradient, one.gradient)


def backward_passes(world: World, rewards: Sequence[float], *, steps: int = 2) -> tuple[int, dict[str, float]]:
    """Make steps of the world's objective: how many microbatches had a backward pass, and the last step's metrics."""
    gradients, passes, report = world.optimizer.gradients, 0, None

    def counted(loss: Tensor) -> list[Tensor | None]:
        nonlocal passes
        passes += 1
        return gradients(loss)

    world.optimizer.gradients = counted  # type: ignore[method-assign]
    for number in range(1, steps + 1):
        report = world.step(world.batch(rows_of(rewards, seed=number)), step=number)
    assert report is not None
    return passes, report.metrics


@pytest.mark.parametrize(
    "rewards", [(1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)]
)
def test_groups_with_equal_rewards_have_no_backward_pass_and_that_changes_no_bit(rewards, monkeypatch) -> None:
    left_out, all_made = World(), World()
    left_out.step(left_out.batch(rows_of(REWARDS)))  # afterwards AdamW has moments, which move the weights by itself
    all_made.step(all_made.batch(rows_of(REWARDS)))
    passes, metrics = backward_passes(left_out, rewards)
    monkeypatch.setattr("ansatz.train.step._gradients", lambda optimizer, loss, *args, **how: optimizer.gradients(loss))
    every_pass, same_metrics = backward_passes(all_made, rewards)
    assert metrics == same_metrics
    assert same(left_out.everything(), all_made.everything())
    each = left_out.policy.parallel_microbatches  # microbatches of the groups that learn, and of the others
    learning = len(set(rewards[:4])) > 1
    assert (passes, every_pass) == ((2 * each, 4 * each) if learning else (2, 2 * each))


def test_a_group_with_equal_rewards_has_a_backward_pass_if_the_loss_has_other_terms() -> None:
    world = World()
    world.objective = dataclasses.replace(world.objective, entropy_coef=0.01)
    passes, _ = backward_passes(world, (1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    assert passes == 4 * world.policy.parallel_microbatches


def test_old_log_probs_left_out_are_the_policys_own() -> None:
    left_out, given = World("dapo"), World("dapo")
    report, other = left_out.step(left_out.batch(rows_of(REWARDS))), given.step(given.batch(rows_of(REWARDS), old=True))
    assert other.metrics["train/loss"] == pytest.approx(report.metrics["train/loss"], abs=1e-6)
    assert_same_gradient(left_out.gradient, given.gradient)
    assert report.metrics["train/ratio_mean"] == pytest.approx(1.0, abs=1e-6)


def test_the_update_raises_what_was_rewarded_and_lowers_what_was_not() -> None:
    world = World("reinforce")
    rows = rows_of((1.0, -1.0, 1.0, -1.0))
    packed = pack_rollouts(rows, device=CPU)
    before_T = logps_of(world.policy, packed, tokens_per_microbatch=100)
    for step in range(1, 5):
        world.step(world.batch(rows), step=step)
    gain_T = logps_of(world.policy, packed, tokens_per_microbatch=100) - before_T
    gain_N = torch.zeros(4).index_add(0, packed.segment_T, gain_T)
    assert ((gain_N > 0) == (packed.reward_N > 0)).all()


def test_the_gradient_is_that_of_the_plain_weighted_log_likelihood() -> None:
    """Dr. GRPO's first update by hand: -sum_n A_n sum_t log p(t) / (N 16), by transformers' own forward pass."""
    world, plain = World("dr_grpo"), tiny_policy()
    rows = rows_of(REWARDS)
    world.step(world.batch(rows, temperature=0.8), temperature=0.8, tokens_per_microbatch=50)
    loss = torch.zeros(())
    for row in rows:
        others = torch.tensor([other.reward for other in rows if other.group == row.group])
        advantage = row.reward - others.mean()
        tokens = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        logp_TV = (plain.model(tokens).logits[0, len(row.prompt_ids) - 1 : -1] / 0.8).log_softmax(-1)
        logp_M = logp_TV.gather(1, torch.tensor(row.token_ids)[:, None])
        loss = loss - advantage / (len(rows) * 16) * logp_M.sum()
    loss.backward()
    gradient = {name: parameter.grad for name, parameter in plain.model.named_parameters()}
    largest = max(float(value.abs().max()) for value in gradient.values())
    for name, value in world.gradient.items():
        assert float((value - gradient[name]).abs().max()) < 1e-4 * largest


def test_a_report_counts_tokens_entropy_and_alignment_as_defined() -> None:
    world = World()
    batch = world.batch(rows_of(REWARDS))
    shift_T = torch.where(torch.arange(len(batch.mask_T)) % 2 == 0, 0.02, -0.03) * batch.mask_T
    packed = dataclasses.replace(batch.packed, behavior_logp_T=batch.behavior_logp_T + shift_T)
    with torch.no_grad():
        rows = [*zip(*(packed.segment_T.tolist(), packed.sampled_mask_T.tolist()), strict=True)]
        entropy = 0.0
        for segment in range(packed.num_rollouts):
            logits = world.policy.model(packed.token_T[packed.segment_T == segment][None]).logits[0]
            log_p = logits.double().log_softmax(-1)
            prompt_length = sum(1 for n, chosen in rows if n == segment and not chosen)
            entropy += float(-(log_p.exp() * log_p).sum(-1)[prompt_length - 1 : -1].sum())
    report = world.step(dataclasses.replace(batch, packed=packed), lr=0.5e-3, tokens_per_microbatch=60)
    tokens = sum(len(row.token_ids) for row in rows_of(REWARDS))
    assert report.measurements["train/entropy"].weight == tokens
    assert report.num_tokens == tokens + sum(len(row.prompt_ids) for row in rows_of(REWARDS))
    assert report.metrics["train/entropy"] == pytest.approx(entropy / tokens, rel=1e-5)
    gaps = shift_T.abs()[batch.mask_T]
    assert report.metrics["align/mean_exp_gap"] == pytest.approx(float(gaps.exp().mean()), rel=1e-5)
    assert report.metrics["align/max_gap"] == pytest.approx(0.03, abs=1e-5)
    assert report.metrics["train/lr"] == 0.5e-3
    assert not report.stopped


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens_per_microbatch", [30, 10**6])
def test_a_loss_that_is_not_finite_stops_before_anything_changes(
    tokens_per_microbatch: int, dtype: torch.dtype
) -> None:
    """The shortest rollout's reward is nan; slices before its own have left gradients by then."""
    world = World("reinforce", dtype=dtype)
    world.step(world.batch(rows_of(REWARDS)))
    before = world.everything()
    rows = rows_of(REWARDS)
    shortest = min(range(len(rows)), key=lambda n: len(rows[n].prompt_ids) + len(rows[n].token_ids))
    rows[shortest] = dataclasses.replace(rows[shortest], reward=math.nan)
    with pytest.raises(NonFiniteError, match=r"^step 7: the loss is nan; .* the weights are unchanged"):
        world.step(world.batch(rows), tokens_per_microbatch=tokens_per_microbatch, step=7)
    assert same(world.everything(), before)
    assert not world.has_gradients()


def test_a_gradient_that_is_not_finite_stops_before_anything_changes() -> None:
    world = World()
    before = world.everything()
    world.policy.head.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteError, match="step 3: the gradient norm is"):
        world.step(world.batch(rows_of(REWARDS)), step=3)
    assert same(world.everything(), before)
    assert not world.has_gradients()


@pytest.mark.parametrize("gap", [0.06, math.nan])
def test_a_sampler_that_disagrees_is_refused_before_anything_changes(gap: float) -> None:
    world = World()
    before = world.everything()
    batch = world.batch(rows_of(REWARDS))
    packed = dataclasses.replace(batch.packed, behavior_logp_T=batch.behavior_logp_T - gap * batch.mask_T)
    off = dataclasses.replace(batch, packed=packed)
    shown = "nan" if math.isnan(gap) else "1.0618"
    with pytest.raises(AlignmentError, match=f"step 1: .* is {shown}, but train.max_logprob_gap = 1.05"):
        world.step(off, max_logprob_gap=1.05, tokens_per_microbatch=40)
    assert same(world.everything(), before)
    assert not world.has_gradients()
    if not math.isnan(gap):
        assert world.step(off, max_logprob_gap=1.07).metrics["align/mean_exp_gap"] == pytest.approx(
            math.exp(gap), rel=1e-4
        )


def test_a_minibatch_that_has_moved_too_far_is_dropped_and_changes_nothing() -> None:
    world = World()
    world.objective = dataclasses.replace(world.objective, max_ratio=1.5)
    batch = world.batch(rows_of(REWARDS), old=True)
    before = world.everything()
    far = dataclasses.replace(batch, old_logp_T=batch.old_logp_T - batch.mask_T.float())
    report = world.step(far)
    assert report.stopped
    assert report.metrics["train/ratio_mean"] == pytest.approx(math.e, rel=1e-4)
    assert same(world.everything(), before)
    assert not world.has_gradients()
    assert not world.step(batch).stopped
    assert not same(world.everything(), before)


def test_log_probs_of_a_layout_do_not_depend_on_slices_and_leave_no_gradient() -> None:
    world = World()
    packed = pack_rollouts(rows_of(REWARDS), device=CPU)
    whole_T = logps_of(world.policy, packed, tokens_per_microbatch=10**6)
    for tokens_per_microbatch in (1, 33):
        torch.testing.assert_close(logps_of(world.policy, packed, tokens_per_microbatch=tokens_per_microbatch), whole_T)
    assert not whole_T.requires_grad
    assert not whole_T[~packed.sampled_mask_T].any()
    assert (whole_T[packed.sampled_mask_T] < 0).all()
    assert float(whole_T[packed.sampled_mask_T].mean()) < -math.log(VOCAB_SIZE)

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from ansatz.errors import CheckpointError, NonFiniteError
from ansatz.train.optim import MasterAdamW, Schedule

BETAS = (0.9, 0.99)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def wrapped(of: nn.Module, dtype: torch.dtype = torch.float32, weight_decay: float = 0.1) -> MasterAdamW:
    return MasterAdamW(of, dtype=dtype, betas=BETAS, weight_decay=weight_decay)


def set_gradients(of: nn.Module, seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in of.parameters():
        parameter.grad = (torch.randn(parameter.shape, generator=generator) * scale).to(parameter.dtype)


def accumulate(optimizer: MasterAdamW) -> None:
    """As of a slice whose gradients `set_gradients` has set."""
    gradients = [parameter.grad for parameter in optimizer.model_params.values()]
    for parameter in optimizer.model_params.values():
        parameter.grad = None
    optimizer.accumulate(gradients)


def norm_of(of: nn.Module) -> float:
    return torch.cat([parameter.grad.flatten().float() for parameter in of.parameters()]).norm().item()


def everything(optimizer: MasterAdamW) -> dict[str, Tensor]:
    weights = {f"weight/{name}": value for name, value in optimizer.weights().items()}
    published = {f"model/{name}": value for name, value in optimizer.model_params.items()}
    return {name: value.detach().clone() for name, value in (weights | published | optimizer.state()).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("fused", [True, False])
def test_in_float32_it_is_torchs_adamw_on_the_model_itself(fused: bool) -> None:
    mine, theirs = model(), model()
    optimizer = wrapped(mine)
    plain = torch.optim.AdamW(theirs.parameters(), lr=0.0, betas=BETAS, weight_decay=0.1, fused=fused)
    for step in range(1, 8):
        for module in (mine, theirs):
            set_gradients(module, seed=step)
        lr = 1e-2 * Schedule(lr=1e-2, warmup_steps=3).multiplier(step)
        plain.param_groups[0]["lr"] = lr
        plain.step()
        accumulate(optimizer)
        optimizer.step(lr=lr, max_grad_norm=0)
    for parameter, expected in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(parameter, expected) if fused else torch.allclose(parameter, expected, rtol=1e-5, atol=1e-7)
    assert all(parameter.grad is None for parameter in mine.parameters())


def test_bfloat16_masters_keep_small_updates_that_bfloat16_alone_would_lose() -> None:
    """A constant gradient moves Adam by lr a step: 1 - 60 x 1e-4 = 0.994, each step far below bfloat16's 0.004."""
    module = nn.Linear(4, 1, bias=False)
    nn.init.ones_(module.weight)
    plain = copy.deepcopy(module).bfloat16()
    alone = torch.optim.AdamW(plain.parameters(), lr=1e-4, betas=BETAS, weight_decay=0.0)
    optimizer = wrapped(module, torch.bfloat16, weight_decay=0.0)
    for _ in range(60):
        for each in (module, plain):
            each.weight.grad = torch.ones_like(each.weight)
        accumulate(optimizer)
        optimizer.step(lr=1e-4, max_grad_norm=0)
        alone.step()
    assert optimizer.weights()["weight"].flatten().tolist() == pytest.approx([0.994] * 4, abs=1e-5)
    assert module.weight.dtype == torch.bfloat16
    assert torch.equal(module.weight, optimizer.weights()["weight"].bfloat16())
    assert torch.equal(plain.weight, torch.ones_like(plain.weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_slices_add_up_in_float32(dtype: torch.dtype) -> None:
    """1 + 300 x 2^-9 exactly; a bfloat16 sum would stay at 1."""
    module = nn.Linear(2, 1, bias=False)
    optimizer = wrapped(module, dtype)
    for value in (1.0, *[2.0**-9] * 300):
        gradient = torch.full_like(module.weight, value)
        module.weight.grad = gradient if module.weight.grad is None else module.weight.grad + gradient
        accumulate(optimizer)
    assert optimizer.step(lr=0.1, max_grad_norm=0) == pytest.approx((1 + 300 / 512) * 2**0.5, rel=1e-6)


def test_parameters_are_cast_and_buffers_are_not() -> None:
    module = model()
    before = {name: value.detach().clone() for name, value in module.state_dict().items()}
    optimizer = wrapped(module, torch.bfloat16)
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}
    assert {name: value.dtype for name, value in module.named_buffers()} == {
        "1.running_mean": torch.float32,
        "1.running_var": torch.float32,
        "1.num_batches_tracked": torch.int64,
    }
    assert all(torch.equal(value, before[name]) for name, value in optimizer.weights().items())


@pytest.mark.parametrize("max_grad_norm", [0.5, 100.0, 0.0])
def test_a_gradient_is_clipped_to_the_norm_and_only_if_it_is_over(max_grad_norm: float) -> None:
    """Adam's first moments after one step are (1 - beta) times the gradient that it was given."""
    module = model()
    optimizer = wrapped(module)
    set_gradients(module, seed=1)
    gradients = {name: p.grad.clone() for name, p in module.named_parameters()}
    norm = norm_of(module)
    assert 1 < norm < 100
    assert optimizer.step(lr=1e-3, max_grad_norm=max_grad_norm) == pytest.approx(norm, rel=1e-6)
    factor = 0.5 / norm if max_grad_norm == 0.5 else 1.0
    for name, gradient in gradients.items():
        torch.testing.assert_close(optimizer.state()[f"exp_avg/{name}"], 0.1 * factor * gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_gradient_that_is_not_finite_is_refused_and_changes_nothing(value: float, dtype: torch.dtype) -> None:
    module, untouched = model(), model()
    optimizer, other = wrapped(module, dtype), wrapped(untouched, dtype)
    for one, own in ((module, optimizer), (untouched, other)):
        set_gradients(one, seed=1)
        accumulate(own)
        own.step(lr=1e-2, max_grad_norm=1.0)
    before = everything(optimizer)
    set_gradients(module, seed=2)
    module[2].weight.grad[0, 0] = value
    accumulate(optimizer)
    with pytest.raises(NonFiniteError, match=r"the gradient norm is (nan|inf)"):
        optimizer.step(lr=1e-2, max_grad_norm=1.0)
    assert same(everything(optimizer), before)
    for one, own in ((module, optimizer), (untouched, other)):  # and nothing of it lingers
        set_gradients(one, seed=3)
        accumulate(own)
        own.step(lr=1e-2, max_grad_norm=1.0)
    assert same(everything(optimizer), everything(other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_loaded_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    first, second = model(), model()
    optimizer = wrapped(first, dtype)
    other = wrapped(second, dtype)
    for one, own, steps in ((first, optimizer, 3), (second, other, 1)):
        for step in range(steps):
            set_gradients(one, seed=step + 10 * steps)
            accumulate(own)
            own.step(lr=1e-2, max_grad_norm=1.0)
    saved = {name: value.clone() for name, value in optimizer.state().items()}
    other.load({name: value.clone() for name, value in optimizer.weights().items()}, saved)
    for one, own in ((first, optimizer), (second, other)):
        set_gradients(one, seed=99)
        accumulate(own)
        own.step(lr=1e-2, max_grad_norm=1.0)
    assert same(everything(optimizer), everything(other))
    assert all(torch.equal(value, saved[name]) for name, value in saved.items())


def test_loading_a_start_forgets_the_moments_of_before() -> None:
    module = model()
    optimizer = wrapped(module)
    weights = {name: value.clone() for name, value in optimizer.weights().items()}
    set_gradients(module, seed=1)
    optimizer.step(lr=1e-2, max_grad_norm=0)
    optimizer.load(weights, {})
    assert optimizer.state() == {}
    assert all(torch.equal(value, weights[name]) for name, value in optimizer.weights().items())


@pytest.mark.parametrize(
    "change",
    [
        lambda weights, state: weights.pop("0.weight"),
        lambda weights, state: weights.update({"2.bias": torch.zeros(1)}),  # would be broadcast
        lambda weights, state: state.update({"exp_avg/9.weight": torch.zeros(1)}),
    ],
    ids=["a weight missing", "a weight of another shape", "moments of another model"],
)
def test_weights_of_another_model_are_refused_and_change_nothing(change) -> None:
    module = model()
    optimizer = wrapped(module)
    set_gradients(module, seed=1)
    optimizer.step(lr=1e-2, max_grad_norm=0)
    before = everything(optimizer)
    weights = {name: torch.zeros_like(value) for name, value in optimizer.weights().items()}
    state = dict(optimizer.state())
    change(weights, state)
    with pytest.raises(CheckpointError, match="another model"):
        optimizer.load(weights, state)
    assert same(everything(optimizer), before)


def test_warmup_rises_in_equal_parts_and_then_stays() -> None:
    assert [Schedule(lr=1.0, warmup_steps=3).multiplier(step) for step in range(1, 7)] == [
        0.25,
        0.5,
        0.75,
        1.0,
        1.0,
        1.0,
    ]
    assert [Schedule(lr=1.0).multiplier(step) for step in (1, 2)] == [1.0, 1.0]


def test_decay_falls_in_equal_parts_over_the_last_steps() -> None:
    schedule = Schedule(lr=1.0, warmup_steps=1, decay_steps=3, total_steps=8)
    assert [schedule.multiplier(step) for step in range(1, 10)] == [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]


def test_the_learning_rate_falls_as_half_a_cosine_to_the_floor():
    schedule = Schedule(lr=1.0, warmup_steps=0, decay_steps=3, total_steps=6, shape="cosine", floor=0.2)
    # 3/4, 1/2 and 1/4 of the fall are left: (1 - cos(pi x)) / 2 = 0.853553, 0.5, 0.146447; then 0.2 + 0.8 x.
    rates = [schedule.multiplier(step) for step in range(1, 7)]
    assert rates == pytest.approx([1, 1, 1, 0.882843, 0.6, 0.317157], abs=1e-6)
    assert Schedule(lr=1.0, decay_steps=3, total_steps=6, floor=0.2).multiplier(6) == pytest.approx(0.4)

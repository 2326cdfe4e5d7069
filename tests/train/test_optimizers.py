from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.train.fsdp import NOT_SHARDED, check_sharded_optimizer
from ansatz.train.optim import MasterAdamW
from ansatz.train.optimizers import OPTIMIZERS, bind_optimizer

DTYPES = [torch.float32, torch.bfloat16]


def model() -> nn.Sequential:
    """One weight of 8192 values, which 8 bits hold, and three small ones."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 3))


def made(name: str, of: nn.Module, dtype: torch.dtype = torch.float32, **settings: Any) -> MasterAdamW:
    return bind_optimizer({"name": name, **settings})(of, dtype)


def steps(optimizer: MasterAdamW, *seeds: int, slices: int = 2) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(slices):
            parameters = optimizer.model_params.values()
            optimizer.accumulate([torch.randn(p.shape, generator=generator).to(p.dtype) for p in parameters])
        optimizer.step(lr=1e-2, max_grad_norm=5.0)


def everything(optimizer: MasterAdamW) -> dict[str, Tensor]:
    weights = {f"weight/{name}": value for name, value in optimizer.weights().items()}
    published = {f"model/{name}": value for name, value in optimizer.model_params.items()}
    return {name: value.detach().clone() for name, value in (weights | published | optimizer.state()).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def state_bytes(optimizer: MasterAdamW, name: str) -> int:
    """Of one parameter's moments and scales, without its step count."""
    return sum(v.nbytes for k, v in optimizer.state().items() if k.endswith(f"/{name}") and not k.startswith("step/"))


OTHERS = [("adamw", "adamw_8bit"), ("adamw_8bit", "adamw"), ("adamw_offload", "adamw_8bit"), ("adamw", "adamw_offload")]


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_a_run_whose_optimizer_is_changed_goes_on_with_its_moments(before: str, after: str) -> None:
    pytest.importorskip("bitsandbytes")
    old, new, kept = made(before, model()), made(after, model()), made(before, model())
    steps(old, 1, 2, 3)
    for optimizer in (new, kept):
        optimizer.load(old.weights(), old.state())
        steps(optimizer, 4)
    for name, weight in new.weights().items():
        moved = weight - old.weights()[name]
        expected = kept.weights()[name] - old.weights()[name]
        relative = float((moved - expected).norm() / expected.norm())
        assert relative < 0.1, name  # 8 bits keep about two digits; without moments it is near 1
    assert new.state().keys() == made_state(after).keys()


def made_state(name: str) -> dict[str, Tensor]:
    optimizer = made(name, model())
    steps(optimizer, 1)
    return optimizer.state()


@pytest.mark.parametrize("dtype", DTYPES)
def test_offloaded_steps_are_those_of_adamw_bit_for_bit(dtype: torch.dtype) -> None:
    here, there = (
        made("adamw", model(), dtype, weight_decay=0.1),
        made("adamw_offload", model(), dtype, weight_decay=0.1),
    )
    for seed in (1, 2, 3):
        steps(here, seed)
        steps(there, seed)
        assert same(everything(there), everything(here))


@pytest.mark.parametrize("dtype", DTYPES)
def test_offloaded_masters_are_apart_from_the_model_even_in_float32(dtype: torch.dtype) -> None:
    optimizer = made("adamw_offload", model(), dtype)
    for name, parameter in optimizer.model_params.items():
        assert optimizer.masters[name].data_ptr() != parameter.data_ptr()
        assert (optimizer.masters[name].dtype, parameter.dtype) == (torch.float32, dtype)


def test_moments_in_8_bits_take_a_quarter_and_small_ones_stay_whole() -> None:
    whole, small = made("adamw", model()), made("adamw_8bit", model())
    steps(whole, 1)
    steps(small, 1)
    values = 64 * 128
    assert state_bytes(whole, "0.weight") == 8 * values
    assert state_bytes(small, "0.weight") == 2 * values + 2 * 4 * values // 256  # a float32 scale a block of 256
    assert state_bytes(small, "1.weight") == state_bytes(whole, "1.weight") == 8 * 3 * 128
    assert all(master.dtype == torch.float32 for master in small.masters.values())


def test_the_first_step_in_8_bits_is_adamws_and_later_ones_stay_near() -> None:
    exact, quantised = made("adamw", model(), weight_decay=0.1), made("adamw_8bit", model(), weight_decay=0.1)
    start = exact.weights()["0.weight"].clone()
    steps(exact, 1)
    steps(quantised, 1)
    for name, value in exact.weights().items():
        assert torch.allclose(quantised.weights()[name], value, rtol=0, atol=1e-6), name
    steps(exact, *range(2, 20))
    steps(quantised, *range(2, 20))
    moved, apart = (
        exact.weights()["0.weight"] - other.weights()["0.weight"] for other in (made("adamw", model()), quantised)
    )
    assert torch.equal(moved, exact.weights()["0.weight"] - start)
    assert 0 < apart.norm() < 0.05 * moved.norm()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["adamw", "adamw_8bit", "adamw_offload"])
def test_a_loaded_optimizer_goes_on_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    optimizer, other = made(name, model(), dtype), made(name, model(), dtype)
    steps(optimizer, 1, 2)
    weights, state = (
        {key: value.clone() for key, value in part().items()} for part in (optimizer.weights, optimizer.state)
    )
    steps(optimizer, 3)
    steps(other, 7)
    other.load(weights, state)
    assert same({**weights, **state}, {**other.weights(), **other.state()})
    steps(other, 3)
    assert same(everything(other), everything(optimizer))


def test_frozen_parameters_are_cast_and_have_no_master_sum_or_moment() -> None:
    module = model()
    module[0].requires_grad_(False)
    before = copy.deepcopy(module[0])
    optimizer = made("adamw", module, torch.bfloat16)
    assert set(optimizer.masters) == {"1.weight", "1.bias"}
    steps(optimizer, 1)
    assert {name.partition("/")[2] for name in optimizer.state()} == {"1.weight", "1.bias"}
    assert torch.equal(module[0].weight, before.weight.bfloat16())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "adam"}, "train.optimizer 'adam' is unknown. Did you mean 'adamw'?"),
        ({"name": "adamw", "wieght_decay": 1}, "'adamw' has no setting 'wieght_decay'. Did you mean 'weight_decay'?"),
        ({"betas": [0.9, 1.0]}, r"'adamw': betas = \[0.9, 1.0\]: input should be less than 1."),
        ({"weight_decay": -0.1}, "weight_decay = -0.1: input should be greater than or equal to 0."),
    ],
)
def test_a_wrong_optimizer_is_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind_optimizer(settings)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS.names() if name != "adamw"])
def test_trainer_ranks_refuse_other_optimizers_and_say_why(name: str) -> None:
    check_sharded_optimizer({"name": "adamw", "weight_decay": 0.1})
    with pytest.raises(ConfigError) as error:
        check_sharded_optimizer({"name": name})
    assert f"train.optimizer.name = {name}: trainer ranks support only adamw" in str(error.value)
    assert NOT_SHARDED[name] in str(error.value)


def test_shares_of_a_weight_with_moments_in_8_bits_are_not_updated_like_the_whole() -> None:
    """The reason why ranks cannot use 8 bits: blocks of 256 values begin anew in each share."""
    apart = {}
    for name in ("adamw", "adamw_8bit"):
        whole, half = nn.Linear(100, 100, bias=False), nn.Linear(100, 50, bias=False)
        half.weight.data = whole.weight.data[50:].clone()
        optimizers = made(name, whole), made(name, half)
        for seed in range(5):
            gradient = torch.randn(100, 100, generator=torch.Generator().manual_seed(seed))
            for optimizer, share in zip(optimizers, (gradient, gradient[50:]), strict=True):
                optimizer.accumulate([share])
                optimizer.step(lr=1e-2, max_grad_norm=0)
        apart[name] = float((whole.weight.data[50:] - half.weight.data).abs().max())
    assert apart["adamw"] < 1e-6 < 1e-4 < apart["adamw_8bit"]


def test_without_bitsandbytes_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtraError, match=r"-m pip install .*bitsandbytes"):
        bind_optimizer({"name": "adamw_8bit"})
    assert bind_optimizer({"name": "adamw_offload"})(model(), torch.float32)

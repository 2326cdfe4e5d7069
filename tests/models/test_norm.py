from __future__ import annotations

import copy

import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from ansatz.models import layer_operations


def gradients(module: torch.nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x = x.clone().requires_grad_()
    y = module(x)
    (y * torch.linspace(-1, 2, y.numel()).view(y.shape)).sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad, next(module.parameters()).grad


def test_values_and_gradients_equal_those_of_transformers_norm():
    original = LlamaRMSNorm(6, eps=1e-6)
    original.weight.data = torch.linspace(0.5, 1.5, 6)
    replaced = copy.deepcopy(original)
    layer_operations.install(replaced)
    assert layer_operations.is_installed(replaced)
    x = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0))
    for got, expected in zip(gradients(replaced, x), gradients(original, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_a_norm_that_adds_one_to_its_weight_is_not_replaced():
    original = GemmaRMSNorm(6)
    original.weight.data = torch.linspace(0.5, 1.5, 6)
    forward = original.forward
    layer_operations.install(original)
    assert not layer_operations.is_installed(original)
    assert original.forward == forward


def test_a_copy_of_a_model_uses_its_own_weights():
    replaced = LlamaRMSNorm(4)
    layer_operations.install(replaced)
    other = copy.deepcopy(replaced)
    other.weight.data = torch.full((4,), 3.0)
    x = torch.ones(1, 4)
    torch.testing.assert_close(other(x), 3.0 * replaced(x))

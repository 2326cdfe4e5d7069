"""Chooses the forward pass that decodes a model: each faster one is tried on a few tokens before it is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ansatz.models import layer_operations
from ansatz.models.load import Policy
from ansatz.rollout.native import cpu_kernels
from ansatz.rollout.native.cache import PrefillCache, RowPlaces, SlotCache
from ansatz.rollout.native.equal_rows import equal_rows, packs
from ansatz.rollout.native.forward import DecodeStep, FastDecodeStep, ReferenceDecodeStep
from ansatz.rollout.native.fused import CompiledDecodeStep, FusedDecodeStep
from ansatz.rollout.sampling import kernels_on

_NORMS = ("input_layernorm", "post_attention_layernorm")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def choose_decode_step(policy: Policy) -> DecodeStep:
    """Choose the fast path if this model gives the same bits with it, otherwise the reference path.

    If there are kernels for it, the fused step replaces the fast path. It may differ from that path by rounding.
    """
    reference = ReferenceDecodeStep(policy)
    if not _has_llama_layout(policy.model.base_model):
        return reference
    fast = FastDecodeStep(policy)
    if not _probe(policy, fast).equal(_probe(policy, reference)):
        return reference
    if (fused := _choose_fused(policy)) is not None:
        with _first_layers(policy.model.base_model), equal_rows(policy):
            expected, found = _probe(policy, fast), _probe(policy, fused)
        if _differ_by_rounding(found, expected):
            return fused
    return fast


@contextmanager
def _first_layers(base: Any) -> Iterator[None]:
    """Leave the model its first two layers, within the block.

    Through all of them, the rounding of bfloat16 grows to several percent.
    """
    layers = base.layers
    base.layers = layers[:2]
    try:
        yield
    finally:
        base.layers = layers


def _differ_by_rounding(found: Tensor, expected: Tensor) -> bool:
    """Tell whether ||found - expected|| / ||expected|| is small enough to be rounding."""
    tolerance = 1e-4 if expected.dtype == torch.float32 else 0.02
    return bool((found.float() - expected.float()).norm() <= tolerance * expected.float().norm())


def _choose_fused(policy: Policy) -> DecodeStep | None:
    """Return the step with the kernels of the device; None if they cannot run, or if a layer has a sliding window."""
    if policy.window is not None:
        return None
    if policy.device.type == "cpu":
        can_run = packs(policy) or (cpu_kernels.library() and cpu_kernels.find_products(policy.dtype))
        return CompiledDecodeStep(policy) if can_run and _are_alike(policy) else None
    if torch.version.cuda is None or kernels_on(policy.device) is None:
        return None
    return FusedDecodeStep(policy, importlib.import_module("ansatz.rollout.native.kernels"))


def _are_alike(policy: Policy) -> bool:
    """Tell whether all layers share their shapes, and all parameters are contiguous and of the policy's type."""
    base = policy.model.base_model
    shapes = [[(name, each.shape) for name, each in layer.named_parameters()] for layer in base.layers]
    is_plain = all(each.dtype == policy.dtype and each.is_contiguous() for each in base.parameters())
    return is_plain and all(shape == shapes[0] for shape in shapes)


def _has_llama_layout(base: Any) -> bool:
    """Tell whether a model consists of Llama's modules, all plain. `_probe` checks how it combines them."""
    parts = (getattr(base, name, None) for name in ("embed_tokens", "layers", "norm", "rotary_emb"))
    if any(part is None for part in parts) or not layer_operations.is_installed(base.norm):
        return False
    return all(_has_plain_modules(layer) for layer in base.layers)


def _has_plain_modules(layer: Any) -> bool:
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    linears = [getattr(attention, name, None) for name in _ATTENTION] + [getattr(mlp, name, None) for name in _MLP]
    norms = [getattr(layer, name, None) for name in _NORMS]
    norms += [getattr(attention, name) for name in ("q_norm", "k_norm") if hasattr(attention, name)]
    return (
        all(type(linear) is nn.Linear for linear in linears)
        and all(layer_operations.is_installed(module) for module in norms)
        and all(hasattr(attention, name) for name in ("head_dim", "scaling"))
    )


@torch.inference_mode()
def _probe(policy: Policy, step: DecodeStep) -> Tensor:
    """Compute the last hidden states of the third and fourth token of two rows, decoded by this step."""
    device = policy.device
    token_B = torch.arange(2, device=device)
    prefill, cache = PrefillCache(), SlotCache(2)
    first_two_BL = torch.arange(2, device=device).expand(2, 2)  # tokens, and their positions
    policy.hidden(first_two_BL, first_two_BL, cache=prefill, use_cache=True)
    cache.resize(4)
    cache.write_prefill(token_B, token_B, prefill)
    hidden_states = list[Tensor]()
    for position in (2, 3):
        position_B = torch.full_like(token_B, position)
        cache.begin_step(position_B, torch.full_like(token_B, -1), token_B, position_bound=4)
        cache.rows = RowPlaces(position_B, torch.full_like(token_B, -1), torch.zeros_like(token_B))
        mask_L = torch.zeros(4, device=device).masked_fill(torch.arange(4, device=device) > position, -torch.inf)
        hidden_states.append(step(token_B, position_B, cache, mask_L.expand(2, 1, 1, 4)))
    return torch.cat(hidden_states)

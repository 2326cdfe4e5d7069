"""Weights that the hub stores in 4 or 8 bits: converted when they are loaded, to the values of their format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import tiny_folder
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from ansatz.errors import ModelError
from ansatz.models.load import load_policy
from ansatz.models.save import save_model, stored_dtype
from tools.family_runs import LOGP_TOLERANCE, logp_gap

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]  # OCP Microscaling Formats, table 5; the fourth bit is the sign
EXPERTS = ("gate_up_proj", "down_proj")


def store(folder: Path, tensors: Mapping[str, Tensor], **quantization: Any) -> Path:
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
    return folder


def mxfp4_folder(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """A gpt-oss folder with random codes and exponents, and its experts' weights by the definition, in float64.

    A block of 32 values along the input axis has one exponent. A byte holds two values, the first in its low half. The
    model's own tensors have inputs before outputs.
    """
    tiny_folder(folder, "GptOssConfig", hidden_size=64, intermediate_size=32, num_local_experts=4)
    tensors = {name: value.bfloat16() for name, value in load_file(folder / "model.safetensors").items()}
    generator = torch.Generator().manual_seed(0)
    expected: dict[str, Tensor] = {}
    for name in [name for name in tensors if name.endswith(EXPERTS)]:
        experts, inputs, outputs = tensors.pop(name).shape
        code = torch.randint(0, 16, (experts, outputs, inputs // 32, 32), generator=generator)
        exponent = torch.randint(120, 127, (experts, outputs, inputs // 32), generator=generator)
        value = torch.tensor([*E2M1, *(-each for each in E2M1)], dtype=torch.float64)[code]
        value *= 2.0 ** (exponent[..., None].double() - 127)
        expected[name] = value.flatten(2).transpose(1, 2)
        tensors[f"{name}_blocks"] = (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8)
        tensors[f"{name}_scales"] = exponent.to(torch.uint8)
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    return store(folder, tensors, quant_method="mxfp4", modules_to_not_convert=kept), expected


def test_mxfp4_experts_have_the_values_of_the_definition_and_of_transformers(tmp_path: Path) -> None:
    folder, expected = mxfp4_folder(tmp_path)
    stored = load_file(folder / "model.safetensors")
    parameters = dict(load_policy(folder).model.named_parameters())
    assert len(expected) == 4
    for name, value in expected.items():
        assert parameters[name].dtype == torch.float32
        assert torch.equal(parameters[name].double(), value)
        converted = convert_moe_packed_tensors(stored[f"{name}_blocks"], stored[f"{name}_scales"], dtype=torch.float32)
        assert torch.equal(parameters[name], converted)


def test_the_log_probs_of_mxfp4_weights_are_those_of_transformers(tmp_path: Path) -> None:
    folder, _ = mxfp4_folder(tmp_path)
    assert logp_gap(folder) < LOGP_TOLERANCE


def test_transformers_is_asked_to_convert_also_where_it_has_kernels_for_4_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = mxfp4_folder(tmp_path)
    honest, asked = transformers.AutoModelForCausalLM.from_pretrained, list[Any]()

    def recorded(*given: Any, **settings: Any) -> Any:
        asked.append(settings.get("quantization_config"))
        return honest(*given, **settings)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", recorded)
    load_policy(folder)
    load_policy(tiny_folder(tmp_path / "plain"))
    assert [getattr(settings, "dequantize", None) for settings in asked] == [True, None]


def test_a_checkpoint_of_converted_weights_is_an_ordinary_folder(tmp_path: Path) -> None:
    folder, expected = mxfp4_folder(tmp_path / "hub")
    assert stored_dtype(folder) == torch.bfloat16
    policy = load_policy(folder)
    state = {name: value.detach() for name, value in policy.model.named_parameters()}
    save_model(policy, tmp_path / "saved", state=state, dtype=torch.bfloat16)
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert all(torch.equal(saved[name].double(), value) for name, value in expected.items())
    assert logp_gap(tmp_path / "saved") < LOGP_TOLERANCE


def test_experts_without_their_scales_are_refused(tmp_path: Path) -> None:
    folder, _ = mxfp4_folder(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.layers.1.mlp.experts.down_proj_scales")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"^model.path = ") as caught:
        load_policy(folder)
    assert "\n" not in str(caught.value)


def test_fp8_weights_have_the_values_of_their_blocks(tmp_path: Path) -> None:
    """Blocks of 16 x 16 values share a float32, by which the stored values of 8 bits are multiplied."""
    tiny_folder(tmp_path, "Qwen3Config")
    tensors = load_file(tmp_path / "model.safetensors")
    expected: dict[str, Tensor] = {}
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        value = tensors[name]
        rows, columns = (-(-size // 16) for size in value.shape)
        scale = 0.01 * (1 + torch.arange(rows * columns).view(rows, columns).float())
        spread = scale.repeat_interleave(16, 0).repeat_interleave(16, 1)[: value.shape[0], : value.shape[1]]
        tensors[name] = (value / spread).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
        expected[name] = tensors[name].double() * spread.double()
    store(tmp_path, tensors, quant_method="fp8", weight_block_size=[16, 16], activation_scheme="dynamic")
    policy = load_policy(tmp_path)
    parameters = dict(policy.model.named_parameters())
    assert len(expected) == 14
    for name, value in expected.items():
        torch.testing.assert_close(parameters[name].double(), value, rtol=1e-6, atol=0)
    state = {name: value.detach() for name, value in parameters.items()}
    save_model(policy, tmp_path / "saved", state=state, dtype=torch.float32)
    assert "quantization_config" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    assert logp_gap(tmp_path / "saved") < LOGP_TOLERANCE

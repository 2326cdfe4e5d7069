"""Runs with `model.quantize: nf4`: trained, resumed with the same bits, exported, explained, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from tiny_models import some_sequences, tiny_folder
from toy_runs import toy_config
from transformers import AutoModelForCausalLM

from ansatz.cli.export import export
from ansatz.config.load import load_run
from ansatz.config.schema import Config
from ansatz.errors import ConfigError, ModelError
from ansatz.loop.pipeline import check_recipe
from ansatz.models.four_bit import float_weights
from ansatz.models.known_models import model_shape
from ansatz.models.load import load_policy
from ansatz.models.memory import Workload, memory_parts
from ansatz.models.plan import parse_hardware, workload_of
from ansatz.models.process_memory import memory_table, process_plans
from ansatz.objectives.build import build_objective
from tools.family_runs import LOGP_TOLERANCE, recipe, reload_gap, train

ADAPTED = {"lora": {"rank": 4}, "quantize": "nf4"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, int, bool]:
    """(start, checkpoint of step 3, steps with a gradient, whether a resumed run ended with the same bits)."""
    folder = tmp_path_factory.mktemp("four_bit")
    start = tiny_folder(folder / "model", "Qwen3Config")
    return start, *train(folder, start, model=ADAPTED, algorithm={"preset": "grpo", "kl_coef": 0.1})


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor(some_sequences(20))).logits


def test_adapters_on_a_base_of_4_bits_train_and_a_resumed_run_ends_with_the_same_bits(
    trained: tuple[Path, Path, int, bool],
) -> None:
    _, _, steps, same_bits = trained
    assert steps == 3
    assert same_bits


def test_a_checkpoint_holds_the_adapters_and_the_merged_model_in_ordinary_weights(
    trained: tuple[Path, Path, int, bool],
) -> None:
    start, checkpoint, *_ = trained
    stored = load_file(checkpoint / "model.safetensors")
    assert {name: value.shape for name, value in stored.items()} == {
        name: value.shape for name, value in load_file(start / "model.safetensors").items()
    }
    assert all(value.dtype == torch.float32 for value in stored.values())
    assert {path.name for path in (checkpoint / "training").iterdir()} == {"optimizer.safetensors", "state.json"}
    assert reload_gap(checkpoint) < LOGP_TOLERANCE

    base = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    for name, value in float_weights(load_policy(start, four_bits=True).model):
        base.get_parameter(name).data.copy_(value)
    merged = logits(AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32))
    assert not torch.allclose(logits(base), merged, atol=0.1)
    adapted = PeftModel.from_pretrained(base, str(checkpoint / "adapter"))
    torch.testing.assert_close(logits(adapted), merged, rtol=1e-3, atol=1e-3)


def test_the_final_model_is_exported_with_merged_weights(trained: tuple[Path, Path, int, bool], tmp_path: Path) -> None:
    run = trained[1].parents[2]
    export(run, tmp_path / "out")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    torch.testing.assert_close(
        logits(exported), logits(AutoModelForCausalLM.from_pretrained(trained[1], dtype=torch.float32))
    )
    assert load_run(run).model.quantize == "nf4"


def test_a_second_run_on_a_base_of_4_bits_would_lose_what_the_first_learned_and_is_refused(
    trained: tuple[Path, Path, int, bool], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"rounding them again would undo what the adapters learned"):
        load_policy(trained[1], four_bits=True)


def refused(folder: Path, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        check_recipe(toy_config(folder, {"model": ADAPTED, **changes}))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_recipes_that_a_base_of_4_bits_cannot_run_are_refused(tmp_path: Path) -> None:
    assert "with 2 training stages (sft, rl)" in refused(tmp_path)
    one_stage = {"data": {"sft": None}}
    rounds = {"rejection": {"rounds": 2}, "train": {"steps": 0}}
    assert "with 2 training stages (rejection_1, rejection_2)" in refused(tmp_path, **one_stage, **rounds)
    assert "only the native engine" in refused(tmp_path, **one_stage, rollout={"engine": {"name": "vllm"}})
    assert "cannot be trained" in refused(tmp_path, **one_stage, model={"quantize": "nf4"})
    check_recipe(toy_config(tmp_path, {"model": ADAPTED, **one_stage}))


def workload(config: Config, *, hardware: str | None = None) -> Workload:
    memory = None if hardware is None else parse_hardware(hardware)
    objective = build_objective({"preset": "grpo", "kl_coef": 0.1}, max_response_tokens=8)
    return workload_of(config, objective, hardware=memory)


def test_explain_counts_the_bytes_that_the_model_has(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path, "Qwen3Config", hidden_size=64, intermediate_size=128)
    work = workload(recipe(tmp_path, folder, model=ADAPTED))
    sizes = {part.name: part.bytes for part in memory_parts(work) if part.phase == "always"}
    policy = load_policy(folder, four_bits=True)
    stored = [module.stored for module in policy.model.modules() if hasattr(module, "stored")]
    tensors: list[torch.Tensor] = []
    for each in stored:
        state = each.state
        tensors += [each.packed, state.absmax, state.offset, state.code, state.state2.absmax, state.state2.code]
    once = {tensor.data_ptr(): tensor.nbytes for tensor in tensors}
    assert sizes["weights of 4 bits"] == sum(once.values())
    others = sum(parameter.numel() for parameter in policy.model.parameters())
    assert sizes["other weights and adapters"] == 4 * (others + work.adapters)
    assert "reference model" not in sizes


def test_explain_shows_what_4_bits_save(tmp_path: Path) -> None:
    qlora = toy_config(tmp_path, {"model": {**ADAPTED, "path": "Qwen/Qwen2.5-32B", "dtype": "auto"}})
    plain = toy_config(tmp_path, {"model": {"lora": {"rank": 4}, "path": "Qwen/Qwen2.5-32B", "dtype": "auto"}})
    always = {
        name: sum(part.bytes for part in memory_parts(workload(config, hardware="80GiB")) if part.phase == "always")
        for name, config in (("qlora", qlora), ("plain", plain))
    }
    shape = model_shape("Qwen/Qwen2.5-32B")
    linears = shape.num_layers * sum(inputs * outputs for inputs, outputs in shape.linears.values())
    saved = (always["plain"] - always["qlora"]) / linears
    assert saved == pytest.approx(2 - 0.5 - 1 / 64 - 4 / (64 * 256), rel=1e-4)
    hardware = parse_hardware("80GiB")
    table = memory_table(process_plans(qlora, workload(qlora, hardware="80GiB"), hardware), hardware=hardware)
    assert "computed in bfloat16 on weights of 4 bits" in table
    assert "weights of 4 bits" in table

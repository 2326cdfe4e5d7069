"""The memory of trainer ranks and workers: by hand, and compared with the tensors of a sharded model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tiny_models import tiny_policy
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule

from ansatz.models.known_models import KNOWN_MODELS, _from_config
from ansatz.models.memory import Workload, memory_parts
from ansatz.models.sharded_memory import rank_parts, total_of, with_fitting_rollouts, worker_parts
from ansatz.train.fsdp import ShardedPlacement

SHAPE = KNOWN_MODELS["Qwen/Qwen2.5-7B"]
LAYER, EMBEDDINGS = 233_057_792, 2 * 152_064 * 3584 + 3584  # of 28 layers; input and output, and the last norm
WORK = Workload(
    shape=SHAPE,
    dtype_bytes=2,
    max_prompt_tokens=1024,
    max_response_tokens=27648,
    rollouts=64,
    prefilled=8,
    microbatch_tokens=28672,
    targets=27648,
    checkpointing=True,
    on_gpu=True,
)


def sizes(work: Workload, ranks: int) -> dict[str, int]:
    return {part.name: part.bytes for part in rank_parts(work, ranks)}


def test_a_rank_of_a_7b_model_by_hand():
    parameters = 28 * LAYER + EMBEDDINGS
    assert parameters == SHAPE.num_parameters == 7_615_616_512
    of_rank = sizes(WORK, 32)
    assert of_rank["float32 weights"] == 4 * parameters // 32
    assert of_rank["Adam moments"] == 8 * parameters // 32
    assert of_rank["gradient sums"] == 4 * parameters // 32
    assert of_rank["gathered layers"] == 2 * 2 * LAYER
    assert of_rank["gathered embeddings"] == 2 * EMBEDDINGS
    assert of_rank["gradients before they are summed"] == (2 + 4) * EMBEDDINGS
    # What autograd saves of a microbatch does not depend on the number of ranks.
    assert of_rank["microbatch activations"] == sizes(WORK, 1)["microbatch activations"]


def test_a_reference_and_a_critic_are_sharded_too():
    of_rank = sizes(dataclasses.replace(WORK, reference=True, critic=SHAPE), 4)
    assert of_rank["reference model"] == 2 * SHAPE.num_parameters // 4
    assert of_rank["critic's weights and moments"] == 12 * (SHAPE.num_parameters + 3585) / 4
    lora = sizes(dataclasses.replace(WORK, trained=1_000_000, reference=True), 4)
    assert lora["float32 weights"] == SHAPE.num_parameters + 1_000_000  # frozen weights are float32 as well
    assert lora["Adam moments"] == 2_000_000
    assert lora["whole base"] == 4 * SHAPE.num_parameters
    assert "reference model" not in lora


def test_a_worker_has_a_whole_model_and_as_many_rollouts_as_fit():
    weights = 2 * SHAPE.num_parameters
    assert next(part.bytes for part in worker_parts(WORK) if part.name == "weights") == weights
    assert total_of(worker_parts(WORK, devices=4)) == pytest.approx(total_of(worker_parts(WORK)) / 4, abs=10)
    assert total_of(worker_parts(WORK)) < total_of(memory_parts(WORK))
    usable = 70 * 2**30
    fewer = with_fitting_rollouts(WORK, devices=1, usable=usable)
    assert (WORK.rollouts, fewer.rollouts) == (64, 32)
    assert total_of(worker_parts(fewer)) <= usable < total_of(worker_parts(WORK))
    assert with_fitting_rollouts(WORK, devices=2, usable=usable).rollouts == 64


@pytest.fixture
def one_rank(tmp_path: Path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield ShardedPlacement(init_device_mesh("cpu", (1,)))
    dist.destroy_process_group()


def test_weights_and_gathered_embeddings_equal_the_tensors_of_a_sharded_model(one_rank: ShardedPlacement):
    policy = tiny_policy("qwen2, biases, untied", dtype=torch.bfloat16)
    shape = _from_config(policy.model.config.to_dict(), "tiny")
    work = dataclasses.replace(WORK, shape=shape)
    placed = one_rank.policy(policy, torch.bfloat16)
    held = [value.to_local() for value in placed.model.parameters()]  # pyright: ignore[reportAttributeAccessIssue]
    assert sum(value.nbytes for value in held) == sizes(work, 1)["float32 weights"]
    groups = [module for module in placed.sharded.modules() if isinstance(module, FSDPModule)]  # pyright: ignore
    assert len(groups) == 1 + shape.num_layers
    in_layers = {id(value) for module in groups[1:] for value in module.parameters()}  # pyright: ignore
    root = [value for value in placed.model.parameters() if id(value) not in in_layers]
    assert sum(2 * value.numel() for value in root) == sizes(work, 1)["gathered embeddings"]

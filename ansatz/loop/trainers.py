"""Trainers of a run, in this process or as ranks in workers of a cluster, and policies that trained weights fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ansatz.cluster.base import Cluster, Needs, Role
from ansatz.config.schema import ClusterSection, Config, ScheduleSection, TrainSection
from ansatz.errors import ConfigError
from ansatz.models.layers import configure_layers
from ansatz.models.load import Policy, cast, compute_dtype, find_device, load_policy, load_tokenizer
from ansatz.models.lora import bind_adapters
from ansatz.models.reward_model import classifier_of, load_reward_model
from ansatz.models.save import export_dtype
from ansatz.models.threads import set_threads
from ansatz.objectives.objective import Objective
from ansatz.train.checkpoint import DIGESTS_FILE, verify_digests
from ansatz.train.distributed import DistributedTrainer, scratch_folder
from ansatz.train.fsdp import check_sharded_optimizer
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.placement import ONE_PROCESS, Placement, use_exact_weights
from ansatz.train.rank_group import RankGroup, RankLimits
from ansatz.train.rank_host import RankHost

AnyTrainer = TypeVar("AnyTrainer", covariant=True)
HOST = "ansatz.loop.trainers:build_rank"
"""The function that builds what a rank hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """What a trainer is built from. It can be pickled.

    config: the recipe. path: the model that training starts from. objective_of: the objective of a recipe, a function
    of a module. section: learning rate, schedule and number of steps. updates: how a step is cut into updates.
    temperature: the one that rollouts are sampled at.
    """

    config: Config
    path: str
    objective_of: Callable[[Config], Objective]
    section: ScheduleSection
    updates: TrainSection
    temperature: float = 1.0

    def build(self, placement: Placement = ONE_PROCESS) -> LocalTrainer:
        """The trainer, or one rank of it."""
        model, policy = self.config.model, load_base(self.config, self.path)
        use_exact_weights(policy, Path(self.path))
        dtype = compute_dtype(model.dtype, policy.device)
        if (add_adapters := bind_adapters(model.lora, seed=self.config.seed)) is not None:
            policy = add_adapters(policy)
        configure_layers(policy, checkpointing=model.checkpointing, compiled=model.compile)
        objective, section = self.objective_of(self.config), self.section
        trainer = LocalTrainer(
            policy,
            objective,
            settings=self.updates,
            dtype=dtype,
            lr=section.lr,
            schedule=Schedule(
                warmup_steps=section.warmup_steps, decay_steps=section.decay_steps, total_steps=section.steps
            ),
            temperature=self.temperature,
            export_dtype=export_dtype(self.config.save.dtype, self.path),
            placement=placement,
        )
        if self.updates.critic.path is not None and objective.needs_values:
            critic = _load_critic(self.updates.critic.path)
            configure_layers(critic, checkpointing=model.checkpointing, compiled=model.compile)
            trainer.start_critic_from(critic)
        return trainer


def check_trainers(config: Config) -> None:
    """ConfigError for what trainer ranks cannot do, in any stage."""
    if not config.cluster.trainers:
        return
    check_sharded_optimizer(config.train.optimizer)
    if config.model.quantize is not None:
        raise ConfigError(
            f"cluster.trainers = {config.cluster.trainers} with model.quantize = {config.model.quantize}: weights of 4 "
            "bits cannot be sharded over ranks. Leave one of the two out."
        )


def explain_trainers(section: ClusterSection) -> list[str]:
    """Return what the trainer ranks do, in a sentence; nothing without any."""
    if not section.trainers:
        return []
    copy = "" if section.workers else " The run's own process samples, with a copy of the model."
    return [
        f"{section.trainers} ranks with {section.trainer_threads} threads each train together, with the weights "
        "sharded over them. Their number changes the result only by rounding. If one is lost, all are started again "
        f"from the last checkpoint.{copy}"
    ]


class Spec(Protocol[AnyTrainer]):
    """What a trainer is built from, in this process or in each rank. It can be pickled. path: where training starts."""

    @property
    def config(self) -> Config: ...

    @property
    def path(self) -> str: ...

    def build(self, placement: Placement = ONE_PROCESS) -> AnyTrainer:
        """The trainer, or one rank of it."""
        ...


def on_ranks(spec: Spec[Any], cluster: Cluster, folder: Path) -> DistributedTrainer:
    """The trainer on the ranks that `cluster.trainers` asks for. folder: that of the stage."""
    section = spec.config.cluster
    role = Role(
        name="trainer",
        target=HOST,
        settings={"spec": spec, "scratch": str(scratch_folder(folder).absolute()), "folder": os.getcwd()},
        needs=rank_needs(section),
        together=True,
    )
    limits = RankLimits(start=section.start, call=section.update, patience=section.patience)
    min_size = section.min_trainers or section.trainers
    group = RankGroup(cluster, role, size=section.trainers, min_size=min_size, limits=limits)
    return DistributedTrainer(group, tokenizer=load_tokenizer(Path(spec.path)), stage_folder=folder)


def rank_needs(section: ClusterSection) -> Needs:
    return Needs(threads=section.trainer_threads, gpus=section.trainer_gpus)


def build_rank(spec: Spec[Any], *, scratch: str, folder: str) -> RankHost:
    """What a rank hosts; called in its process. folder: that of the driver, from which paths of the recipe start."""
    os.chdir(folder)
    set_threads(spec.config.cluster.trainer_threads)
    section = spec.config.cluster
    return RankHost(build=spec.build, scratch=Path(scratch), timeout_s=section.update, shard_size=section.shard_size)


def copy_of_trained(config: Config, path: str, *, device: str | None = None) -> Policy:
    """A policy built like that of a trainer, which the trained weights of any of its versions fit.

    device: None is a GPU if there is one. Elsewhere, too, the policy has the type that the model computes in there.
    """
    policy = load_base(config, path, device=device)
    if (add_adapters := bind_adapters(config.model.lora, seed=config.seed)) is not None:
        policy = add_adapters(policy)
    cast(policy, compute_dtype(config.model.dtype, find_device(None)))
    return policy


def load_base(config: Config, path: str, *, device: str | None = None) -> Policy:
    """The model that the recipe trains, with weights of 4 bits if `model.quantize` says so."""
    return load(path, four_bits=config.model.quantize is not None, device=device)


def _load_critic(path: str) -> Policy:
    """The model that a critic starts from: a policy or a reward model."""
    check_digests(path)
    classifier = classifier_of(path)
    if classifier is None:
        return load_policy(path)
    reads, extra_layers = classifier
    return load_reward_model(path, reads=reads, extra_layers=extra_layers)


def check_digests(path: str) -> None:
    """Verify the digests of a checkpoint. Another model has none."""
    if (Path(path) / DIGESTS_FILE).is_file():
        verify_digests(Path(path))


def load(path: str, *, four_bits: bool = False, device: str | None = None) -> Policy:
    """The model of a folder; of a checkpoint, after its digests have been verified."""
    check_digests(path)
    return load_policy(path, device=device, four_bits=four_bits)

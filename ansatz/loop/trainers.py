"""The specification of a run's trainers, and policies that trained weights fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.config.schema import ModelSection, ScheduleSection, TrainSection
from ansatz.model_config import read_config
from ansatz.models.layers import configure_layers
from ansatz.models.load import Policy, cast, check_folder, compute_dtype, find_device, load_policy
from ansatz.models.lora import FOLDER, bind_adapters
from ansatz.models.save import export_dtype
from ansatz.objectives.objective import Objective
from ansatz.registry import load_attribute
from ansatz.train.checkpoint import DIGESTS_FILE, verify_digests
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.placement import ONE_PROCESS, Placement, use_exact_weights
from ansatz.trust import TrustedText

REWARD_MODEL_LOADER = TrustedText("ansatz.reward_models.model:load_for_critic")
"""Loads a reward model for a critic. It is imported when a recipe names such a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """Everything that builds a trainer. It can be pickled.

    path: the model that training starts from. base: see `load_start`. model: how it is loaded. seed: of adapters.
    objective: builds it, a partial of a function of a module. schedule: learning rate, warm-up and number of steps.
    updates: the division of a step into updates. temperature: of the rollouts. save_dtype: `save.dtype`.
    """

    path: str
    base: str
    model: ModelSection
    seed: int
    objective: Callable[[], Objective]
    schedule: ScheduleSection
    updates: TrainSection
    temperature: float
    save_dtype: str

    def build(self, placement: Placement = ONE_PROCESS) -> LocalTrainer:
        """Build the trainer, or one rank of it."""
        model, policy = self.model, load_start(self.model, self.path, base=self.base, seed=self.seed)
        dtype = compute_dtype(model.dtype, policy.device)
        configure_layers(policy, checkpointing=model.checkpointing, compiled=model.compile)
        objective = self.objective()
        trainer = self.make(
            policy,
            objective,
            settings=self.updates,
            dtype=dtype,
            schedule=Schedule.of(self.schedule, self.updates.decay),
            temperature=self.temperature,
            export_dtype=export_dtype(self.save_dtype, self.path),
            placement=placement,
        )
        if self.updates.critic.path is not None and objective.needs_values:
            critic = _load_critic(self.updates.critic.path)
            configure_layers(critic, checkpointing=model.checkpointing, compiled=model.compile)
            trainer.start_critic_from(critic)
        return trainer

    def make(self, policy: Policy, objective: Objective, **settings: Any) -> LocalTrainer:
        """Make the trainer, of the loaded policy. settings: as `LocalTrainer` takes them."""
        return LocalTrainer(policy, objective, **settings)


def load_start(model: ModelSection, path: str, *, base: str, seed: int, device: str | None = None) -> Policy:
    """Load the policy that a trainer starts from.

    base: the base model of the adapters in the folder of `path`, which are then continued; `path` itself if there are
    none, so that it gets new ones with `model.lora`.
    """
    continued = None if base == path else Path(path) / FOLDER
    if continued is not None:
        check_digests(path)
    policy = load_base(model, base, device=device)
    use_exact_weights(policy, Path(base))
    add_adapters = bind_adapters(model.lora, seed=seed, path=continued, base=base)
    return policy if add_adapters is None else add_adapters(policy)


def copy_of_trained(model: ModelSection, path: str, *, base: str, seed: int, device: str | None = None) -> Policy:
    """Build a policy like the policy of a trainer. The trained weights of any of its versions fit.

    base: as in `load_start`. device: None is a GPU if there is one. On every device the policy has the type that the
    model computes in on this default one.
    """
    policy = load_start(model, path, base=base, seed=seed, device=device)
    cast(policy, compute_dtype(model.dtype, find_device(None)))
    return policy


def load_base(model: ModelSection, path: str, *, device: str | None = None) -> Policy:
    """Load a model as the recipe trains it, with weights of 4 bits if `model.quantize` says so."""
    return load(path, four_bits=model.quantize is not None, device=device)


def _load_critic(path: str) -> Policy:
    """Load the model that a critic starts from: a policy, or a reward model, which is a classifier."""
    check_digests(path)
    key = "train.critic.path"
    architecture = str((read_config(check_folder(path, key=key), key=key).get("architectures") or [""])[0])
    if architecture.endswith("Classification"):
        critic: Policy = load_attribute(REWARD_MODEL_LOADER, kind="loader of reward models")(path)
    else:
        critic = load_policy(path)
    use_exact_weights(critic, Path(path), partly=True)
    return critic


def check_digests(path: str) -> None:
    """Verify the digests of a checkpoint. Another model folder contains none."""
    if (Path(path) / DIGESTS_FILE).is_file():
        verify_digests(Path(path))


def load(path: str, *, four_bits: bool = False, device: str | None = None) -> Policy:
    """Load the model of a folder; of a checkpoint, after its digests have been verified."""
    check_digests(path)
    return load_policy(path, device=device, four_bits=four_bits)

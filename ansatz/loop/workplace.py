"""Where the trainers and samplers of a run work: in its own process, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from ansatz.config.schema import ClusterSection, Config
from ansatz.registry import load_attribute
from ansatz.rollout.ticket import Landed, TicketSource
from ansatz.rollout.weight_store import FileWeightStore
from ansatz.train.placement import ONE_PROCESS, Placement
from ansatz.trust import TrustedText, require

AnyTrainer = TypeVar("AnyTrainer", covariant=True)
ON_CLUSTER = "ansatz.loop.on_cluster.workplace:OnCluster"


class Spec(Protocol[AnyTrainer]):
    """Builds a trainer, in this process or in each rank. It can be pickled. path: where training starts."""

    @property
    def path(self) -> str: ...

    def build(self, placement: Placement = ONE_PROCESS) -> AnyTrainer:
        """Build the trainer, or one rank of it."""
        ...


class Workplace(Protocol):
    """The place where trainers and samplers work. The stages of a run share it.

    Example: `OwnProcess().place(spec, folder)` builds the trainer of a spec in this process.
    """

    def check(self, config: Config) -> None:
        """Raise for a recipe that cannot run here. Needs only the recipe."""
        ...

    def explain(self, config: Config) -> list[str]:
        """Describe the work that happens outside the run's own process, in sentences."""
        ...

    def check_room(self, config: Config) -> None:
        """Raise RolloutError or ConfigError if the machines cannot hold the recipe's workers and trainers."""
        ...

    def place(self, spec: Spec[AnyTrainer], folder: Path) -> AnyTrainer:
        """Return the trainer of a spec, or one with the same interface. folder: of the stage."""
        ...

    def tickets(
        self,
        config: Config,
        *,
        model: str,
        base: str,
        store: FileWeightStore,
        on_cpu: bool,
        on_landed: Callable[[Landed], None],
        on_event: Callable[[int, str], None],
    ) -> TicketSource | None:
        """Return the source that samples the tickets of a stage; None if the run's own process samples them.

        model: the model that the stage began with. base: of its adapters (`trainers.load_start`). on_cpu: whether the
        policy is trained on a CPU. on_event: is called with the step and a sentence.
        """
        ...

    def close(self) -> None:
        """Release the resources that the stages share."""
        ...


class OwnProcess:
    """The run's own process: nothing can be missing, and nothing is shared."""

    def check(self, config: Config) -> None:
        pass

    def explain(self, config: Config) -> list[str]:
        return []

    def check_room(self, config: Config) -> None:
        pass

    def place(self, spec: Spec[AnyTrainer], folder: Path) -> AnyTrainer:
        return spec.build()

    def tickets(self, config: Config, **_: object) -> None:
        return None

    def close(self) -> None:
        pass


def workplace_of(section: ClusterSection) -> Workplace:
    """Return where a recipe lets trainers and samplers work. The cluster's module is imported only if it is used."""
    if section.workers or section.trainers:
        if section.address:  # its processes send objects, which run code when they are read
            require(section.address, kind="cluster.address")
        return load_attribute(TrustedText(ON_CLUSTER), kind="workplace")(section)
    return OwnProcess()

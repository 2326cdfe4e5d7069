"""A Ray cluster as the workplace of a run: workers that sample, and ranks that train together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ansatz.cluster.ray import RayCluster, check_installed
from ansatz.cluster.room import Request
from ansatz.config.schema import ClusterSection, Config
from ansatz.loop.on_cluster.rank_memory import check_rank_memory
from ansatz.loop.on_cluster.ranks import check_ranks, explain_ranks, on_ranks, rank_needs
from ansatz.loop.on_cluster.workers import explain_workers, worker_needs, worker_role
from ansatz.loop.workplace import Spec
from ansatz.rollout.pool import Pool
from ansatz.rollout.pooled_tickets import PooledTickets
from ansatz.rollout.ticket import Landed
from ansatz.rollout.weight_store import FileWeightStore
from ansatz.rollout.worker_set import Limits


class OnCluster:
    """The cluster of a recipe. The local Ray, or the connection to another one, is started when it is needed."""

    def __init__(self, section: ClusterSection) -> None:
        self._section = section
        self._cluster: RayCluster | None = None
        self._tickets: PooledTickets | None = None

    def check(self, config: Config) -> None:
        """Raise MissingExtraError if Ray is not installed, and ConfigError for a recipe that ranks cannot run."""
        check_ranks(config)
        check_installed()

    def explain(self, config: Config) -> list[str]:
        return [*explain_ranks(self._section), *explain_workers(self._section, lag=config.rollout.lag)]

    def check_room(self, config: Config) -> None:
        """Raise RolloutError, with the sum, if the workers and the ranks would not fit into the empty cluster. Raise
        ConfigError if a rank needs more memory than its GPU provides.

        A Ray of this machine is started when it is needed, and its room is checked then.
        """
        if not self._section.address:
            check_rank_memory(config, None)
            return
        with closing(RayCluster(self._section.address)) as cluster:
            cluster.check_room(self._requests(cluster))
            check_rank_memory(config, cluster)

    def place(self, spec: Spec[Any], folder: Path) -> Any:
        if not self._section.trainers:
            return spec.build()
        if self._cluster is None:
            self._cluster = RayCluster(self._section.address)
        return on_ranks(spec, self._section, self._cluster, folder, on_answer=self._note_progress)

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
    ) -> PooledTickets | None:
        section = self._section
        if not section.workers:
            return None
        ray = RayCluster(section.address)
        ray.check_room(self._requests(ray))
        pool = Pool(
            ray,
            worker_role(config, model=model, base=base, weights=store.folder),
            num_workers=section.workers,
            min_workers=max(1, section.min_workers),
            limits=Limits(probe=section.probe, lease=section.lease, start=section.start, patience=section.patience),
            exact=config.rollout.engine.get("name", "native") == "native" and on_cpu,
        )
        self._tickets = PooledTickets(pool, store, on_landed=on_landed, on_event=on_event, stall_s=section.stall)
        return self._tickets

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _note_progress(self) -> None:
        """Note that ranks have answered. A run whose ranks repeat the steps since a checkpoint has not stalled."""
        if self._tickets is not None:
            self._tickets.progress()

    def _requests(self, cluster: RayCluster) -> list[Request]:
        """Return the resources of the trainer's ranks and of the workers."""
        section = self._section
        trainers = Request(
            name="trainer ranks",
            count=section.trainers,
            each=cluster.resources(rank_needs(section)),
            minimum=section.min_trainers or None,
        )
        workers = Request(
            name="rollout workers",
            count=section.workers,
            each=cluster.resources(worker_needs(section)),
            minimum=section.min_workers or None,
        )
        return [request for request in (trainers, workers) if request.count]

"""What a worker hosts, with random delays before each group that it reports."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from ansatz.cluster.base import Emit
from ansatz.loop.on_cluster import workers
from ansatz.rollout.ticket import Ticket

LONGEST_S = 0.2


def build_host(**settings: Any) -> Any:
    host, draw = workers.build_host(**settings), random.Random()
    sample = host.sample

    def delayed(tickets: Sequence[Ticket], emit: Emit) -> int:
        def emit_later(value: Any) -> None:
            time.sleep(draw.uniform(0.0, LONGEST_S))
            emit(value)

        return sample(tickets, emit_later)

    host.sample = delayed
    return host

"""What a worker hosts, held in the middle of sampling for as long as a file exists. Each held worker leaves its pid."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansatz.cluster.base import Emit
from ansatz.loop.on_cluster import workers
from ansatz.rollout.ticket import Ticket

FOLDER = "ANSATZ_TEST_GATE"
"""Environment variable: the folder of the file `hold` and of the pids."""


def build_host(**settings: Any) -> Any:
    host, folder = workers.build_host(**settings), Path(os.environ[FOLDER])
    sample = host.sample

    def held(tickets: Sequence[Ticket], emit: Emit) -> int:
        def emit_later(value: Any) -> None:
            while (folder / "hold").exists():
                (folder / str(os.getpid())).touch()
                time.sleep(0.02)
            emit(value)

        return sample(tickets, emit_later)

    host.sample = held
    return host

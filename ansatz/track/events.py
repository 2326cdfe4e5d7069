"""TensorBoard event files, written with tensorboard's own protocol buffers and record format.

The EventFileWriter of tensorboard would import tensorflow where that is installed, and it writes from a thread. Here
every step is in the file when the call returns.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventFile:
    """One event file in `folder`. It hides what older files say about the steps from `first_step` on."""

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        # Imported here: tensorboard takes 0.3 s to import, and reading a run needs none of it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        # Generated modules: their classes are made at import, where a type checker does not see them.
        self._event: Any = event_pb2
        self._summary: Any = summary_pb2
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("events.out.tfevents.*")))
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{number}"
        self._records = RecordWriter((folder / name).open("wb"))
        self._write(self._event.Event(wall_time=time.time(), file_version="brain.Event:2"))
        if number > 0:
            start = self._event.SessionLog(status=self._event.SessionLog.START)
            self._write(self._event.Event(wall_time=time.time(), step=first_step, session_log=start))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        value_list = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        summary = self._summary.Summary(value=value_list)
        self._write(self._event.Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        self._records.close()

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()

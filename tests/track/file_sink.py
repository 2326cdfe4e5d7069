"""A tracker for tests: it appends what it is sent to the file that $SENT names, if any, and fails where $FAULT says."""

from __future__ import annotations

import json
import os
from pathlib import Path


class FileSink:
    def __init__(self, run):
        self.id = run.id or f"id-{run.folder.parent.name}"
        self.write("open", run.name, run.group, bool(run.id))

    def metrics(self, curve, step, numbers):
        if os.environ.get("FAULT") == f"{curve} {step}":
            raise RuntimeError("the tracker is down")
        self.write("metrics", curve, step, dict(numbers))

    def table(self, curve, step, columns, rows):
        self.write("table", curve, step, [dict(zip(columns, row, strict=True)) for row in rows])

    def artifact(self, path):
        self.write("artifact", path.name)

    def close(self):
        self.write("close")

    def write(self, *words):
        with Path(os.environ.get("SENT", os.devnull)).open("a", encoding="utf-8") as file:
            file.write(json.dumps([self.id, *words]) + "\n")


def open_run(run):
    return FileSink(run)

"""The stages of a run. A stage is `stages/<name>.py`, named in `config.schema.STAGES`; nothing else is to be edited.

The module defines a subclass of `stage.Stage`, and an instance of it as `STAGE`.
"""

from __future__ import annotations

import importlib

from ansatz.loop.stages.stage import Stage


def find_stage(name: str) -> Stage:
    return importlib.import_module(f"{__name__}.{name}").STAGE

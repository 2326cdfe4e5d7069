"""Other projects' settings, read as ours: `defaults_of: NAME` in a recipe takes that project's defaults.

Each module has the project's own knobs with their defaults (`DEFAULTS`) and `spec(knobs)`, which says them in the
keys of a recipe's `algorithm:` section. The certificates (`ansatz parity`) run over the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects import nemo, oat, open_instruct, openrlhf, prime, skyrl, slime, small, trl, verl
from ansatz.registry import suggest

Knobs = Mapping[str, Any]

PROJECTS: dict[str, tuple[Callable[[Knobs], dict[str, Any]], Knobs]] = {
    "trl": (trl.spec, trl.DEFAULTS),
    "verl": (verl.spec, verl.DEFAULTS),
    "openrlhf": (openrlhf.spec, openrlhf.DEFAULTS),
    "oat": (oat.spec, oat.DEFAULTS),
    "nemo-rl": (nemo.spec, nemo.DEFAULTS),
    "skyrl": (skyrl.spec, skyrl.DEFAULTS),
    "slime": (slime.spec, slime.DEFAULTS),
    "open-instruct": (open_instruct.spec, open_instruct.DEFAULTS),
    "prime-rl": (prime.spec, prime.DEFAULTS),
    "grpo-zero": (small.grpo_zero, {}),
    "nano-aha": (small.nano, {"kl_coeff": 0.001}),
    "torchtune": (small.torchtune, {"loss": "GRPOSimpleLoss", "epsilon": 0.1, "kl_coeff": 0.1}),
}
ALIASES = {
    "trl-1.16": "trl",
    "nemo": "nemo-rl",
    "open_instruct": "open-instruct",
    "prime": "prime-rl",
    "nano": "nano-aha",
}


def project_spec(name: str) -> dict[str, Any]:
    """The defaults of a project in the keys of the `algorithm:` section."""
    known = {**PROJECTS, **{alias: PROJECTS[target] for alias, target in ALIASES.items()}}
    if name not in known:
        raise ConfigError(f"algorithm.defaults_of = {name!r} is unknown.{suggest(name, known)}")
    spec, defaults = known[name]
    return spec(defaults)

"""Other projects' options, translated into ours: `defaults_of: NAME` in a recipe takes a project's defaults.

Each module lists the project's options with their defaults and their meaning here, and translates them into the keys
of a recipe's `algorithm:` section. The certificates (`ansatz parity`) use the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects import nemo, oat, open_instruct, openrlhf, prime, skyrl, slime, small, trl, verl
from ansatz.objectives.projects.options import Option, Options, merged, nested
from ansatz.registry import suggest


@dataclass(frozen=True, slots=True)
class Project:
    """spec: options -> the `algorithm:` section. options: those of the trainer; other: those of its other losses."""

    spec: Callable[[Options], dict[str, Any]]
    options: tuple[Option, ...]
    other: tuple[tuple[str, tuple[Option, ...]], ...] = ()


PROJECTS: dict[str, Project] = {
    "trl": Project(
        trl.spec,
        trl.OPTIONS,
        (("RLOOConfig", trl.RLOO_OPTIONS), ("DPOConfig", trl.DPO_OPTIONS), ("CPOConfig", trl.CPO_OPTIONS)),
    ),
    "verl": Project(verl.spec, verl.OPTIONS),
    "openrlhf": Project(openrlhf.spec, openrlhf.OPTIONS, (("DPO", openrlhf.DPO_OPTIONS),)),
    "oat": Project(oat.spec, oat.OPTIONS),
    "nemo-rl": Project(nemo.spec, nemo.OPTIONS, (("DPO", nemo.DPO_OPTIONS),)),
    "skyrl": Project(skyrl.spec, skyrl.OPTIONS),
    "slime": Project(slime.spec, slime.OPTIONS),
    "open-instruct": Project(open_instruct.spec, open_instruct.OPTIONS, (("DPO, SimPO", open_instruct.DPO_OPTIONS),)),
    "prime-rl": Project(prime.spec, prime.OPTIONS),
    "grpo-zero": Project(small.grpo_zero, small.GRPO_ZERO_OPTIONS),
    "nano-aha": Project(small.nano, small.NANO_OPTIONS),
    "torchtune": Project(small.torchtune, small.TORCHTUNE_OPTIONS),
}
ALIASES = {
    "trl-1.16": "trl",
    "nemo": "nemo-rl",
    "open_instruct": "open-instruct",
    "prime": "prime-rl",
    "nano": "nano-aha",
}


def project_spec(name: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A project's defaults, with `changes` over them, as an `algorithm:` section.

    An option in `changes` that the translation does not use is a ConfigError, never ignored.
    """
    known = {**PROJECTS, **{alias: PROJECTS[target] for alias, target in ALIASES.items()}}
    if name not in known:
        raise ConfigError(f"algorithm.defaults_of = {name!r} is unknown.{suggest(name, known)}")
    project = known[name]
    options = Options(merged(nested(project.options), changes or {}))
    spec = project.spec(options)
    options.refuse_unused(name, project.options)
    return spec

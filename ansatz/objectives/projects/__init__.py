"""Other projects' options, translated into ours: `defaults_of: NAME` in a recipe takes a project's defaults.

Each module translates the options of a project into the keys of a recipe's `algorithm:` section. `options.yaml` lists
them, with their defaults and their meaning here. The certificates (`ansatz parity`) use the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansatz.errors import ConfigError
from ansatz.objectives.projects import nemo, oat, open_instruct, openrlhf, prime, skyrl, slime, small, trl, verl
from ansatz.objectives.projects.options import Option, Options, merged, nested, read_options
from ansatz.registry import suggest


@dataclass(frozen=True, slots=True)
class Project:
    """name: of its table in options.yaml. spec: options -> the `algorithm:` section. losses: with tables of their
    own."""

    name: str
    spec: Callable[[Options], dict[str, Any]]
    losses: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[Option, ...]:
        return read_options(self.name)

    @property
    def other(self) -> tuple[tuple[str, tuple[Option, ...]], ...]:
        """Each other loss, with its options."""
        return tuple((loss, read_options(f"{self.name} {loss}")) for loss in self.losses)


_PROJECTS = (
    Project("trl", trl.spec, ("RLOOConfig", "DPOConfig", "CPOConfig")),
    Project("verl", verl.spec),
    Project("openrlhf", openrlhf.spec, ("DPO",)),
    Project("oat", oat.spec),
    Project("nemo-rl", nemo.spec, ("DPO",)),
    Project("skyrl", skyrl.spec),
    Project("slime", slime.spec),
    Project("open-instruct", open_instruct.spec, ("DPO, SimPO",)),
    Project("prime-rl", prime.spec),
    Project("grpo-zero", small.grpo_zero),
    Project("nano-aha", small.nano),
    Project("torchtune", small.torchtune),
)
PROJECTS: dict[str, Project] = {project.name: project for project in _PROJECTS}
ALIASES = {
    "trl-1.16": "trl",
    "nemo": "nemo-rl",
    "open_instruct": "open-instruct",
    "prime": "prime-rl",
    "nano": "nano-aha",
}


def project_spec(name: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a project's defaults, with `changes` over them, as an `algorithm:` section.

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

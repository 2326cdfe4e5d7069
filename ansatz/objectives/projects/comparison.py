"""How the defaults of other projects differ from an objective."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from ansatz.objectives.build import build_objective
from ansatz.objectives.components import Component
from ansatz.objectives.objective import Objective
from ansatz.objectives.projects import PROJECTS

_SILENT = (None, False, "none", 0.0)


def list_other_defaults(objective: Objective, *, max_response_tokens: int) -> list[str]:
    """Return the comparison with other projects, as lines."""
    head = "Other projects' defaults, where they differ:"
    return [head, *(f"  {name}: {text}" for name, text in comparisons(objective, max_response_tokens))]


def comparisons(objective: Objective, max_response_tokens: int) -> Iterator[tuple[str, str]]:
    """List each project, and where its defaults differ, or "the same"."""
    ours = _settings(objective)
    for name in PROJECTS:
        other = build_objective({"defaults_of": name}, max_response_tokens=max_response_tokens)
        theirs = _settings(other)
        unused = () if other.kl_coef else ("kl", "kl_in", "kl_to")
        different = [key for key in ours if ours[key] != theirs[key] and key not in unused]
        differences = [f"{key} {_difference(ours[key], theirs[key])}" for key in different]
        yield name, "; ".join(differences) or "the same"


def _settings(objective: Objective) -> dict[str, Any]:
    """Return everything that shapes the loss, field by field; settings of terms with coefficient 0 are left out."""
    out = {field.name: getattr(objective, field.name) for field in dataclasses.fields(objective)}
    del out["preset"]
    if objective.kl_coef == 0:
        out |= {"kl": None, "kl_in": None, "kl_to": None}
        if objective.entropy_coef == 0:
            out["penalty_weights"] = None
    if objective.entropy_coef == 0:
        out["entropy_tokens"] = None
    if objective.likelihood_coef == 0:
        out["likelihood_weights"] = None
    return out


def _difference(ours: Any, theirs: Any) -> str:
    """Return the settings that differ if both have the same component, else the other component with its settings."""
    if isinstance(ours, Component) and isinstance(theirs, Component) and ours.name == theirs.name:
        changed = {key: value for key, value in theirs.settings.items() if ours.settings[key] != value}
        return ", ".join(f"{key} {value}" for key, value in changed.items())
    if isinstance(theirs, Component):
        settings = ", ".join(f"{key} {value}" for key, value in theirs.settings.items() if value not in _SILENT)
        return f"{theirs.name} ({settings})" if settings else theirs.name
    if isinstance(theirs, tuple):
        return " and ".join(_difference(None, component) for component in cast(tuple[Component, ...], theirs)) or "none"
    return "none" if theirs is None else str(theirs)

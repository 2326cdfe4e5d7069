"""An objective in words: its formula, the gradient coefficient of a token, and how other projects' defaults differ.

The gradient of every method here is a sum over tokens of coefficient x grad log policy(token); methods differ in
where the tokens come from, what rewards them, and the coefficient (DeepSeekMath's unified view, arXiv:2402.03300 sec.
5.2.1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

from ansatz.objectives.build import build_objective
from ansatz.objectives.components import Component
from ansatz.objectives.objective import Objective
from ansatz.objectives.presets import PRESETS
from ansatz.objectives.projects import PROJECTS

_LIMIT = 123456  # stands for the run's max_response_tokens
_SILENT = (None, False, "none", 0.0)


def explain(objective: Objective, *, max_response_tokens: int = 1024) -> str:
    """Formula, coefficient and comparison, as lines for people."""
    lines = [objective.formula(), "", *coefficient(objective), "", "Other projects' defaults, where they differ:"]
    lines += [f"  {name}: {text}" for name, text in comparisons(objective, max_response_tokens)]
    return "\n".join(lines)


def preset_table() -> Iterator[str]:
    """The table of docs/algorithms.md: one Markdown row a preset, its components as formulas with their constants."""
    for name, row in PRESETS.items():
        objective = build_objective({"preset": name}, max_response_tokens=_LIMIT)
        advantage = objective.advantage.formula()
        if objective.whiten is not None:
            advantage += f", then whitened over {objective.whiten.name}"
        extras = [component.formula() for component in objective.correction]
        cells = [
            " ".join(f"`{alias}`" for alias in (name, *row.get("aliases", ()))),
            advantage,
            objective.ratio.formula() if "log_ratio_T" in objective.surrogate.inputs else "none",
            " ".join([objective.surrogate.formula(), *extras]),
            objective.weights.formula().replace(str(_LIMIT), "max_response_tokens"),
            row["source"],
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def coefficient(objective: Objective) -> list[str]:
    """Data source, reward and the factor of grad log policy at one response token (the ascent direction)."""
    source = "responses drawn by the policy" + (", several a prompt" if objective.needs_group else "")
    terms = [f"weight x {objective.surrogate.gradient()}"]
    terms += [f"{component.formula()}" for component in objective.correction]
    text = " ".join(terms)
    if objective.kl_coef and objective.kl_in == "loss":
        text += f" - {objective.kl_coef} x weight x {objective.kl.gradient()}"
    reward = "the recipe's rewards"
    if objective.kl_coef and objective.kl_in != "loss":
        reward += f" - {objective.kl_coef} x KL ({objective.kl_in})"
    if "step_reward_T" in objective.advantage.inputs:
        reward = "one reward a reasoning step"
    return [
        "Gradient of a token = coefficient x grad log policy(token):",
        f"  data source  {source}",
        f"  reward       {reward}",
        f"  coefficient  {text}" + (" + the entropy's own gradient" if objective.entropy_coef else ""),
    ]


def comparisons(objective: Objective, max_response_tokens: int) -> Iterator[tuple[str, str]]:
    """Each project with what its defaults do otherwise, or "the same"."""
    mine = _settings(objective)
    for name in PROJECTS:
        other = build_objective({"defaults_of": name}, max_response_tokens=max_response_tokens)
        theirs = _settings(other)
        unused = () if other.kl_coef else ("kl", "kl_in", "kl_to")
        told = [key for key in mine if mine[key] != theirs[key] and key not in unused]
        differences = [f"{key} {_difference(mine[key], theirs[key])}" for key in told]
        yield name, "; ".join(differences) or "the same"


def _settings(objective: Objective) -> dict[str, Any]:
    """What shapes the loss, field by field; the KL and the penalties' weights only where they act."""
    out = {field.name: getattr(objective, field.name) for field in dataclasses.fields(objective)}
    del out["preset"]
    if objective.kl_coef == 0:
        out |= {"kl": None, "kl_in": None, "kl_to": None}
        if objective.entropy_coef == 0:
            out["penalty_weights"] = None
    return out


def _difference(mine: Any, theirs: Any) -> str:
    """The settings that differ where the component is the same, else their whole component."""
    if isinstance(mine, Component) and isinstance(theirs, Component) and mine.name == theirs.name:
        changed = {key: value for key, value in theirs.settings.items() if mine.settings[key] != value}
        return ", ".join(f"{key} {value}" for key, value in changed.items())
    if isinstance(theirs, Component):
        given = ", ".join(f"{key} {value}" for key, value in theirs.settings.items() if value not in _SILENT)
        return f"{theirs.name} ({given})" if given else theirs.name
    if isinstance(theirs, tuple):
        return " and ".join(_difference(None, component) for component in cast(tuple[Component, ...], theirs)) or "none"
    return "none" if theirs is None else str(theirs)

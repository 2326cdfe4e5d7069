"""The presets of docs/algorithms.md: their formulas, from the table of presets and the docstrings of components.

python -m tools.preset_reference
"""

from __future__ import annotations

from ansatz.objectives.build import build_objective
from ansatz.objectives.presets import PRESETS
from tools.pages import DOCS, item, paragraph, replace_page, replace_part

PAGE = DOCS / "algorithms.md"
BEGIN = "<!-- written by python -m tools.preset_reference -->"
INTRODUCTION = """\
`algorithm: {preset: NAME}` takes a preset, from `ansatz/objectives/presets.py`.

- rho: the policy's probability of a token divided by that of the anchor. The anchor is the policy
  before the updates of the step (`dppo`: the policy that sampled the token).
- r: the reward of a rollout. A: an advantage.
- std: standard deviation; ddof 1 is that of a sample, ddof 0 that of a population.
- A ratio of "none": the surrogate does not use rho.
"""

_LIMIT = 123456  # stands for the run's max_response_tokens


def render() -> str:
    """Return the page with the current presets between its marks."""
    lines = [INTRODUCTION]
    for name, row in PRESETS.items():
        lines += [f"### {name}", "", *_entry(name, row.get("aliases", ()), row["source"]), ""]
    return replace_part(PAGE, BEGIN, "\n".join(lines))


def _entry(name: str, aliases: tuple[str, ...], source: str) -> list[str]:
    objective = build_objective({"preset": name}, max_response_tokens=_LIMIT)
    parts = {
        "Advantage": objective.advantage.formula(),
        "From": None if objective.reward_whiten is None else objective.reward_whiten.formula(),
        "Then": None if objective.whiten is None else objective.whiten.formula(),
        "Ratio": objective.ratio.formula() if "log_ratio_T" in objective.surrogate.inputs else "none",
        "Surrogate": objective.surrogate.formula(),
        "Correction": " ".join(component.formula() for component in objective.correction),
        "Weight": objective.weights.formula().replace(str(_LIMIT), "max_response_tokens"),
    }
    if objective.value is not None:
        parts["Critic"] = objective.value.formula()
    if objective.kl_to == "teacher":
        place = "in the loss" if objective.kl_in == "loss" else "subtracted from the advantage"
        parts["KL to the teacher"] = f"{objective.kl.formula()}, {place}"
        parts["Surrogate"] = parts["Surrogate"] if objective.policy_coef else "none"
        parts["Advantage"] = parts["Advantage"] if objective.policy_coef else None
    elif objective.kl_in != "loss":
        parts["KL, if kl_coef is set"] = f"{objective.kl.formula()}, subtracted from the {objective.kl_in}"
    also = f" Also called {', '.join(f'`{alias}`' for alias in aliases)}." if aliases else ""
    items = [item(f"{title}: {text}") for title, text in parts.items() if text]
    return [paragraph(f"Source: {source}.{also}"), "", *items]


if __name__ == "__main__":
    replace_page(PAGE.name, render())

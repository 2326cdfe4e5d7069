"""docs/settings_*.md and the components of docs/algorithms.md: every setting that a recipe can name, from signatures.

    python -m tools.component_reference

The types, ranges and defaults are those that the loader checks; the meanings are the docstrings of the components.
Nothing is written here twice. docs/config.md has the keys of recipes, which name these components.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansatz.config.sampling import SamplingOptions
from ansatz.data.base import find_source, source_names
from ansatz.data.curriculum import CurriculumSettings
from ansatz.environments.base import TurnSettings, environment_names, find_environment
from ansatz.loop.stages.preference import SOURCES as PAIR_SOURCES
from ansatz.models.lora import add_adapters
from ansatz.models.tiny import TinyModel
from ansatz.objectives.build import COMPONENTS
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES
from ansatz.prompts.templates import TEMPLATES
from ansatz.registry import Registry, settings_of
from ansatz.rewards.base import INJECTED, RewardRegistry
from ansatz.rollout.engines import ENGINES
from ansatz.teachers.settings import TeacherSettings
from ansatz.train.optimizers import OPTIMIZERS
from tools.pages import DOCS, heading_anchors, item, paragraph, replace_page, replace_part
from tools.setting_docs import setting_items, split_docstring

NOTE = "This page is generated from the signatures by `make docs`; do not edit it."
AS_WEIGHTS = ("penalty_weights", "likelihood_weights")
"""Keys that take the components of `weights`, which are listed once."""

ALGORITHMS = DOCS / "algorithms.md"
BEGIN = "<!-- written by python -m tools.component_reference -->"
TINY = "Sizes of the model that is built when `model.path` is null."
LORA = "Low-rank adapters (LoRA); needs the package peft."
TEACHER = "A teacher of RL; see [teachers](algorithms.md#teachers)."
CURRICULUM = "How RL chooses the next problems; see [curriculum](curriculum.md)."


def render_pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    pages = {
        "settings_data.md": _data(),
        "settings_models.md": _models(),
        "settings_preference.md": _preference(),
        "settings_rewards.md": _rewards(),
        "settings_environments.md": _environments(),
    }
    rendered = {name: "\n".join(lines).rstrip() + "\n" for name, lines in pages.items()}
    return {**rendered, ALGORITHMS.name: replace_part(ALGORITHMS, BEGIN, "\n".join(_objective()).rstrip() + "\n")}


def _head(title: str, about: str) -> list[str]:
    return [f"# {title}", "", NOTE, "", paragraph(about), ""]


def _data() -> list[str]:
    names = ", ".join(f"`{name}`" for name in (*TEMPLATES, "chat"))
    lines = _head(
        "Settings of data",
        "What [recipe keys](config.md#data) name under `data`. [Data](data.md) explains files, fields, mixtures and "
        "generators with examples.",
    )
    lines += [
        "## Templates",
        "",
        paragraph(f"`data.template` is one of {names}, or the path of a .txt file that contains {{question}}."),
        "",
        "## Sources",
        "",
        paragraph("Settings of `data.sft`, `data.train` and `data.heldout`, by `source`. Each also takes `split`."),
        "",
    ]
    for name in source_names():
        lines += _function(name, find_source(name), without=("split",))
    return [*lines, *_function("Curriculum", CurriculumSettings, CURRICULUM, level=2)]


def _models() -> list[str]:
    lines = _head(
        "Settings of models, engines and optimizers",
        "What [recipe keys](config.md) name under `model.tiny`, `model.lora`, `rollout.engine` and `train.optimizer`. "
        "[Sampling](sampling.md), [vLLM](cluster.md#vllm) and [memory](memory.md) explain them.",
    )
    lines += _function("model.tiny", TinyModel, TINY, level=2)
    lines += _function("model.lora", add_adapters, LORA, level=2)
    lines += _function("teacher", TeacherSettings, TEACHER, level=2)
    lines += _registry("rollout.engine", "Engines", ENGINES)
    return [*lines, *_registry("train.optimizer", "Optimizers", OPTIMIZERS)]


def _environments() -> list[str]:
    """Return what every environment has, then the settings of each."""
    lines = _head(
        "Settings of environments",
        "What [recipe keys](config.md#environment) name under `environment`. [Environments](environments.md) explains "
        "turns, tools and environments of your own.",
    )
    lines += ["## All environments", "", *setting_items(TurnSettings), ""]
    for name in environment_names():
        lines += _function(name, find_environment(name), without=settings_of(TurnSettings), level=2)
    return lines


def _objective() -> list[str]:
    """Return the settings of each component of the objective by kind."""
    about = "What [recipe keys](config.md#algorithm) name under `algorithm`, each with its formula, names and settings."
    lines = [paragraph(about), ""]
    for key, registry in COMPONENTS.items():
        if key in AS_WEIGHTS:
            continue
        lines += [f"### {key}", ""]
        if key == "weights":
            lines += [paragraph(f"Also for {' and '.join(f'`{name}`' for name in AS_WEIGHTS)}."), ""]
        for function, names in _by_function(registry).items():
            prose, items = _described(function, level=1)
            about = " ".join([_formula(function), *prose])
            lines += [item(f"{', '.join(f'`{name}`' for name in names)}: {about}"), *items]
        lines.append("")
    return lines


def _preference() -> list[str]:
    lines = _head(
        "Settings of preferences",
        "What [recipe keys](config.md#preference) name under `preference`. [Algorithms](algorithms.md#preferences) "
        "explains the stage.",
    )
    for name, kind in PAIR_SOURCES.items():
        lines += _function(f"preference.pairs with source: {name}", kind, level=2)
    shared = ", ".join(f"`{name}`" for name in SamplingOptions.model_fields)
    lines += [paragraph(f"With `source: policy`, the options of `rollout` can also stand here: {shared}."), ""]
    lines += _registry("preference.losses", "Losses", PREFERENCES)
    return [*lines, *_registry("preference.divergence", "Divergences", DIVERGENCES)]


def _rewards() -> list[str]:
    lines = _head(
        "Settings of rewards",
        "What [recipe keys](config.md#rewards) name under `rewards`. Every reward also takes `weight` (default `1.0`). "
        "[Rewards](rewards.md) explains each of them with examples.",
    )
    registry, explained = RewardRegistry(), heading_anchors(DOCS / "rewards.md")
    for name in registry.names():
        entry = _function(name, registry.get(name), without=INJECTED, level=2)
        lines += entry + ([f"More in [rewards](rewards.md#{name}).", ""] if name in explained else [])
    return lines


def _registry(key: str, title: str, registry: Registry[Any]) -> list[str]:
    """Return every component of a registry."""
    lines = [f"## {title}", "", paragraph(f"Settings of `{key}`, by `name`."), ""]
    for name in registry.names():
        lines += _function(name, registry.get(name))
    return lines


def _function(
    title: str, function: Callable[..., Any], about: str = "", *, without: Iterable[str] = (), level: int = 3
) -> list[str]:
    """Return a heading, what the docstring says (or `about` instead), and one item for each keyword-only parameter."""
    prose, items = _described(function, without=without)
    lines = [f"{'#' * level} {title}", ""]
    for text in [about] if about else prose:
        lines += [paragraph(text), ""]
    return [*lines, *items, *([""] if items else [])]


def _described(
    function: Callable[..., Any], *, without: Iterable[str] = (), level: int = 0
) -> tuple[list[str], list[str]]:
    """Return (paragraphs of the docstring, one item for each keyword-only parameter); level: depth of the items."""
    prose, _ = split_docstring(function.__doc__, list(settings_of(function)))
    return prose, setting_items(function, without=without, level=level)


def _formula(component: Callable[..., Any]) -> str:
    """Return the component's formula with the names of its settings, as a sentence; empty if it has none."""
    words = getattr(component, "formula", None)
    if words is None:
        return ""
    text = words.named({name: parameter.default for name, parameter in settings_of(component).items()})
    text = re.sub(r"(\w+) \{\1\}|\{(\w+)\} \2|\{(\w+)\}", lambda match: match[1] or match[2] or match[3], text)
    return f"{text}."


def _by_function(registry: Registry[Any]) -> Mapping[Any, list[str]]:
    """Return each component with its names; its own name comes first."""
    names: dict[Any, list[str]] = {}
    for name in registry.names():
        names.setdefault(registry.get(name), []).append(name)
    for function, aliases in names.items():
        aliases.sort(key=lambda name, function=function: name != function.__name__.rstrip("_"))
    return names


if __name__ == "__main__":
    for page, text in render_pages().items():
        replace_page(page, text)

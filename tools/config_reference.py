"""docs/config.md: every key of a recipe and every setting of a component, from the schema and the signatures.

    python -m tools.config_reference

The types, ranges and defaults are those that the loader checks; the meanings are the docstrings of the fields and of
the components. Nothing is written here twice.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ansatz.certify.setting_docs import describe_settings, split_docstring
from ansatz.config.reward_model import RewardModelSection
from ansatz.config.sampling import SamplingOptions
from ansatz.config.schema import Config
from ansatz.config.watchdog import RuleSettings
from ansatz.data.base import find_source, source_names
from ansatz.data.curriculum import CurriculumSettings
from ansatz.environments.base import TurnSettings, environment_names, find_environment
from ansatz.loop.stages.preference import SOURCES as PAIR_SOURCES
from ansatz.loop.stages.preference import PreferenceSettings
from ansatz.loop.stages.rejection import RejectionSettings
from ansatz.models.lora import add_adapters
from ansatz.models.tiny import build_tiny_model
from ansatz.objectives.advantages import ADVANTAGES
from ansatz.objectives.coefficients import KL_CONTROLS
from ansatz.objectives.corrections import CORRECTIONS
from ansatz.objectives.kl import KLS
from ansatz.objectives.masks import MASKS
from ansatz.objectives.preference import DIVERGENCES, PREFERENCES
from ansatz.objectives.presets import COMMON, KEYS
from ansatz.objectives.ratios import RATIOS
from ansatz.objectives.surrogates import SURROGATES
from ansatz.objectives.token_advantages import REWARD_WHITENS, WHITENS
from ansatz.objectives.value import VALUES
from ansatz.objectives.weights import WEIGHTS
from ansatz.prompts.templates import TEMPLATES
from ansatz.registry import Registry, settings_of
from ansatz.rewards.base import INJECTED, RewardRegistry
from ansatz.rollout.engines import ENGINES
from ansatz.train.optimizers import OPTIMIZERS
from tools.pages import item, paragraph, replace_page, setting_item, value_in_yaml

INTRODUCTION = """\
# Recipe keys

This page is generated from the schema by `make docs`; do not edit it.

A recipe is a YAML file. Each key below can stand in the recipe or in an overlay, or on the command
line as a dotted option: `--train.lr 3e-4`. A key that does not exist is refused, with the nearest
name. `ansatz explain RECIPE --full` prints the recipe with all its defaults filled in. The
terms are explained in the [glossary](glossary.md).

A *component* is named together with its settings: `{name: vllm, mode: server}` for an engine,
`{source: jsonl, path: my.jsonl}` for problems, `math_answer: {mode: strict}` for a reward.
`path/to/file.py:function` names a component of your own; its keyword-only parameters are its
settings.
"""

TINY = "Sizes of the model that is built when `model.path` is null."
LORA = "Low-rank adapters (LoRA); needs the package peft."
CURRICULUM = "How RL chooses the next problems; see [curriculum](curriculum.md)."

COMPONENTS: dict[str, Registry[Any]] = {
    "advantage": ADVANTAGES,
    "reward_whiten": REWARD_WHITENS,
    "whiten": WHITENS,
    "ratio": RATIOS,
    "surrogate": SURROGATES,
    "kl": KLS,
    "kl_control": KL_CONTROLS,
    "weights": WEIGHTS,
    "correction": CORRECTIONS,
    "masks": MASKS,
    "value": VALUES,
}


def render() -> str:
    """The whole page."""
    sections: dict[str, list[str]] = {
        "model": [
            *_function("model.tiny", build_tiny_model, TINY, without=("texts",)),
            *_function("model.lora", add_adapters, LORA),
        ],
        "data": [*_templates(), *_sources(), *_function("data.curriculum", CurriculumSettings, CURRICULUM)],
        "rollout": _registry("rollout.engine", "Engines", ENGINES),
        "environment": _environments(),
        "algorithm": _algorithm(),
        "rejection": _rejection(),
        "preference": _preference(),
        "reward_model": _reward_model(),
        "train": _registry("train.optimizer", "Optimizers", OPTIMIZERS),
        "rewards": _rewards(),
        "watchdog": [
            "### `watchdog.rules`",
            "",
            *_docstring(RuleSettings),
            *_fields(RuleSettings, prefix="watchdog.rules.NAME."),
            "",
        ],
    }
    lines = [INTRODUCTION, "## The run", "", *_fields(Config, prefix="", skip=_is_section), ""]
    for name, field in Config.model_fields.items():
        if not _is_section(name):
            continue
        lines += [f"## {name}", ""]
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            lines += [*_docstring(kind), *_fields(kind, prefix=f"{name}."), ""]
        elif field.description:
            lines += [paragraph(field.description), ""]
        lines += sections.get(name, [])
    return "\n".join(lines).rstrip() + "\n"


def _is_section(name: str) -> bool:
    kind = Config.model_fields[name].annotation
    named = ("algorithm", "environment", "preference", "rejection", "reward_model", "rewards")
    return (isinstance(kind, type) and issubclass(kind, BaseModel)) or name in named


def _docstring(section: type[BaseModel]) -> list[str]:
    text = section.__doc__
    return [paragraph(text), ""] if text and not text.startswith("!!!") else []


def _fields(section: type[BaseModel], *, prefix: str, skip: Callable[[str], bool] = lambda name: False) -> list[str]:
    """One item for each key of a section."""
    lines: list[str] = []
    for name, field in section.model_fields.items():
        if skip(name):
            continue
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):  # a section within a section
            lines += _fields(kind, prefix=f"{prefix}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        annotation: Any = field.annotation
        for entry in field.metadata:
            annotation = Annotated[annotation, entry]
        lines.append(
            setting_item(
                prefix + name,
                annotation=annotation,
                default=inspect.Parameter.empty if default is PydanticUndefined else default,
                meaning=field.description or "",
            )
        )
    return lines


def _function(
    title: str, function: Callable[..., Any], about: str = "", *, without: Iterable[str] = (), level: int = 3
) -> list[str]:
    """A heading, what the docstring says (or `about` instead), and one item for each keyword-only parameter."""
    prose, items = _described(function, without=without)
    lines = [f"{'#' * level} {title}", ""]
    for text in [about] if about else prose:
        lines += [paragraph(text), ""]
    return [*lines, *items, *([""] if items else [])]


def _described(
    function: Callable[..., Any], *, without: Iterable[str] = (), level: int = 0
) -> tuple[list[str], list[str]]:
    """(paragraphs of the docstring, one item for each keyword-only parameter); level: depth of the items."""
    prose, _ = split_docstring(function.__doc__, list(settings_of(function)))
    items = [
        setting_item(
            name,
            annotation=setting.annotation,
            default=setting.default,
            meaning=setting.meaning,
            level=level,
        )
        for name, setting in describe_settings(function, without=without).items()
    ]
    return prose, items


def _templates() -> list[str]:
    names = ", ".join(f"`{name}`" for name in (*TEMPLATES, "chat"))
    return [paragraph(f"`data.template` is one of {names}, or the path of a .txt file that contains {{question}}."), ""]


def _sources() -> list[str]:
    """Every source of problems."""
    lines = ["### Sources", "", paragraph("Settings of `data.sft`, `data.train` and `data.heldout`, by `source`."), ""]
    for name in source_names():
        lines += _function(name, find_source(name), without=("split",), level=4)
    return lines


def _registry(key: str, title: str, registry: Registry[Any]) -> list[str]:
    """Every component of a registry."""
    lines = [f"### {title}", "", paragraph(f"Settings of `{key}`, by `name`."), ""]
    for name in registry.names():
        lines += _function(name, registry.get(name), level=4)
    return lines


def _environments() -> list[str]:
    """What every environment has, then the settings of each."""
    prose, items = _described(TurnSettings)
    lines = [paragraph(text) for text in prose] + ["", *items, ""]
    for name in environment_names():
        lines += _function(name, find_environment(name), without=settings_of(TurnSettings))
    return lines


def _algorithm() -> list[str]:
    """The keys of the section, then the settings of each component by kind."""
    lines = [
        item(f"`algorithm.{key}`: {meaning}" + (f". Default `{value_in_yaml(COMMON[key])}`" if key in COMMON else ""))
        for key, meaning in KEYS.items()
    ]
    lines += [
        "",
        paragraph("The defaults are those before a preset is applied. [Algorithms](algorithms.md) lists the presets."),
        "",
    ]
    for key, registry in COMPONENTS.items():
        lines += [f"### algorithm.{key}", ""]
        for function, names in _by_function(registry).items():
            prose, items = _described(function, level=1)
            about = " ".join([_formula(function), *prose])
            lines += [item(f"{', '.join(f'`{name}`' for name in names)}: {about}"), *items]
        lines.append("")
    return lines


def _formula(component: Callable[..., Any]) -> str:
    """The component's formula with the names of its settings, as a sentence; empty if it has none."""
    words = getattr(component, "formula", None)
    if words is None:
        return ""
    text = words.named({name: parameter.default for name, parameter in settings_of(component).items()})
    text = re.sub(r"(\w+) \{\1\}|\{(\w+)\} \2|\{(\w+)\}", lambda match: match[1] or match[2] or match[3], text)
    return f"{text}."


def _by_function(registry: Registry[Any]) -> Mapping[Any, list[str]]:
    """Each component with its names; its own name comes first."""
    names: dict[Any, list[str]] = {}
    for name in registry.names():
        names.setdefault(registry.get(name), []).append(name)
    for function, aliases in names.items():
        aliases.sort(key=lambda name, function=function: name != function.__name__.rstrip("_"))
    return names


def _rejection() -> list[str]:
    _, items = _described(RejectionSettings)
    lines = [*items, ""]
    shared = ", ".join(f"`{name}`" for name in SamplingOptions.model_fields)
    return [*lines, paragraph(f"The options of `rollout` that say how to sample can also stand here: {shared}."), ""]


def _preference() -> list[str]:
    lines = [*_described(PreferenceSettings)[1], ""]
    for name, kind in PAIR_SOURCES.items():
        lines += _function(f"preference.pairs with source: {name}", kind)
    shared = ", ".join(f"`{name}`" for name in SamplingOptions.model_fields)
    lines += [paragraph(f"With `source: policy`, the options of `rollout` can also stand here: {shared}."), ""]
    lines += _registry("preference.losses", "Preference losses", PREFERENCES)
    return [*lines, *_registry("preference.divergence", "Divergences", DIVERGENCES)]


def _reward_model() -> list[str]:
    own = _fields(RewardModelSection, prefix="reward_model.", skip=SamplingOptions.model_fields.__contains__)
    shared = ", ".join(f"`{name}`" for name in SamplingOptions.model_fields)
    options = f"The options of `rollout` that say how to sample can also stand here: {shared}."
    return [*_docstring(RewardModelSection), *own, "", paragraph(options), ""]


def _rewards() -> list[str]:
    registry = RewardRegistry()
    lines = [
        paragraph(
            "Each entry is the name of a reward with its settings. Every reward also takes `weight` (default `1.0`): "
            "the score of a response is the weighted sum of its rewards. If a reward has the settings `correct` and "
            "`wrong`, these are its values for a correct and a wrong response. An overlay or an option adds its "
            "rewards to those of the recipe, and `rewards: {NAME: null}` removes one."
        ),
        "",
    ]
    for name in registry.names():
        lines += _function(name, registry.get(name), without=INJECTED)
    return lines


if __name__ == "__main__":
    replace_page("config.md", render())

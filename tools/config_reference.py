"""docs/config.md: what most people set in a recipe, then every key by group, from the schema.

    python -m tools.config_reference

The types, ranges and defaults are those that the loader checks; the meanings are the docstrings of the fields. Nothing
is written here twice. The settings of components have pages of their own (`component_reference`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ansatz.config.recipe import default_class, section_at
from ansatz.config.sampling import SamplingOptions
from ansatz.config.watchdog import RuleSettings
from ansatz.evaluate.selection import Selection
from ansatz.objectives.presets import COMMON, KEYS
from ansatz.rewards.base import RewardRegistry
from tools.pages import item, paragraph, replace_page, setting_item, value_in_yaml
from tools.setting_docs import setting_items

INTRODUCTION = """\
# Recipe keys

This page is generated from the schema by `make docs`; do not edit it.

A recipe is a YAML file. Every key can stand in a recipe, in an overlay, or on the command line as a
dotted option: `--train.lr 3e-4`. A key that does not exist is refused, with the nearest name.
Where a key takes a mapping with a name, the name alone will do: `--rollout.engine vllm`,
`--algorithm dr_grpo`, `--stages sft,rl`, `--data.train problems.jsonl`.
`ansatz explain RECIPE --full` prints a recipe with all its defaults. Terms are in the
[glossary](glossary.md).

## What most people set

A whole recipe. What it leaves out has its default.

```yaml
name: my_run
model: {path: Qwen/Qwen2.5-1.5B-Instruct}
data:
  train: {source: jsonl, split: train, path: my_train.jsonl}
  heldout: {source: jsonl, split: heldout, path: my_heldout.jsonl}
rewards:
  math_answer: {mode: strict}
algorithm: {preset: grpo}
rollout: {prompts_per_step: 64, samples_per_prompt: 8, max_response_tokens: 1024}
train: {steps: 200, lr: 1e-6}
evaluate: {problems: 200, every: 20}
```

These keys decide most runs:
"""

OFTEN_SET = (
    "model.path", "model.lora", "data.train", "data.heldout", "data.sft", "data.template", "rewards",
    "algorithm", "rollout.prompts_per_step", "rollout.samples_per_prompt", "rollout.max_prompt_tokens",
    "rollout.max_response_tokens", "rollout.temperature", "rollout.engine", "train.steps", "train.lr",
    "train.tokens_per_microbatch", "train.optimizer", "sft.steps", "sft.lr", "evaluate.problems", "evaluate.every",
    "save.every", "seed",
)  # fmt: skip
"""Keys that begin the page, in the order in which a recipe is written."""

RECIPE = default_class()

GROUPS: dict[str, tuple[str, ...]] = {
    "The run": (),
    "Model and problems": ("model", "data"),
    "Responses and rewards": ("rollout", "environment", "rewards"),
    "Reinforcement learning": ("algorithm", "train"),
    "Other training stages": ("sft", "rejection", "preference", "reward_model"),
    "Measuring and keeping": ("evaluate", "save", "watchdog"),
    "Many processes": ("cluster",),
}
"""The sections of a recipe, in groups."""

EXPLAINED = {
    "model": "[Models](models.md), [memory](memory.md). Settings of `tiny` and `lora`: [models](settings_models.md).",
    "data": "[Data](data.md), [curriculum](curriculum.md). Sources, templates: [their settings](settings_data.md).",
    "rollout": "[Sampling](sampling.md), [vLLM](cluster.md#vllm), [lag](cluster.md#lag-and-workers). Engines: "
    "[their settings](settings_models.md#engines).",
    "environment": "[Environments](environments.md); [their settings](settings_environments.md).",
    "rewards": "[Rewards](rewards.md); [their settings](settings_rewards.md).",
    "algorithm": "[Algorithms](algorithms.md), [presets](algorithms.md#presets), "
    "[components](algorithms.md#components).",
    "train": "Optimizers: [their settings](settings_models.md#optimizers).",
    "sft": "",
    "rejection": "[Rejection sampling](algorithms.md#rejection-sampling).",
    "preference": "[Preferences](algorithms.md#preferences). Pairs, losses: [their settings](settings_preference.md).",
    "reward_model": "[Reward models](reward_models.md).",
    "evaluate": "[Evaluation](evaluation.md).",
    "save": "[Checkpoints](memory.md#checkpoints-on-disk), [reliability](reliability.md).",
    "watchdog": "[Watchdog](watchdog.md).",
    "cluster": "[Clusters](cluster.md).",
}
"""The pages that explain a section, and those with the settings of its components."""


def render() -> str:
    """Return the whole page."""
    lines = [INTRODUCTION, *map(_often_set, OFTEN_SET), ""]
    for group, names in GROUPS.items():
        lines += [f"## {group}", ""]
        lines += [] if names else [*_fields(RECIPE, prefix="", skip=EXPLAINED.__contains__), ""]
        for name in names:
            lines += [f"### {name}", "", *_section(name)]
    return "\n".join(lines).rstrip() + "\n"


def _often_set(key: str) -> str:
    """Return one item: the key, its default and the first sentence about it."""
    *parents, name = key.split(".")
    section = section_at(parents)
    assert section is not None
    field = section.model_fields[name]
    default = field.get_default(call_default_factory=True)
    default = "required" if default is PydanticUndefined else f"`{value_in_yaml(default)}`"
    meaning = re.split(r"(?<=[.:]) (?=[A-Z{])", " ".join((field.description or "").split()))[0].rstrip(":.")
    return item(f"`{key}` ({default}): {meaning}.")


def _section(name: str) -> list[str]:
    """Return what a section is for, where it is explained, and its keys."""
    field = RECIPE.model_fields[name]
    kind = section_at([name])
    about = _docstring(kind) if kind is not None else [paragraph(field.description or ""), ""]
    lines = [*about, *([paragraph(EXPLAINED[name]), ""] if EXPLAINED[name] else [])]
    if name == "algorithm":
        lines += [*_algorithm(), ""]
    elif name == "rewards":
        lines += _rewards()
    elif kind is not None:
        shared = SamplingOptions.model_fields if name == "reward_model" else ()
        lines += _fields(kind, prefix=f"{name}.", skip=lambda key: key in shared)
        lines += setting_items(Selection, prefix="rejection.") if name == "rejection" else []
        lines += ["", _sampling_options()] if name in ("rejection", "reward_model") else [""]
    if name == "watchdog":
        lines += ["#### watchdog.rules", "", *_docstring(RuleSettings)]
        lines += [*_fields(RuleSettings, prefix="watchdog.rules.NAME."), ""]
    return lines


def _docstring(section: type[BaseModel]) -> list[str]:
    text = section.__doc__
    return [paragraph(text), ""] if text and not text.startswith("!!!") else []


def _fields(section: type[BaseModel], *, prefix: str, skip: Callable[[str], bool] = lambda name: False) -> list[str]:
    """Return one item for each key of a section."""
    lines: list[str] = []
    for name, field in section.model_fields.items():
        if skip(name):
            continue
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):  # a section within a section
            lines += _fields(kind, prefix=f"{prefix}{name}.")
            continue
        is_as_rollout = name in getattr(section, "AS_ROLLOUT", ())
        default = f"rollout.{name}" if is_as_rollout else field.get_default(call_default_factory=True)
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


def _sampling_options() -> str:
    shared = ", ".join(f"`{name}`" for name in SamplingOptions.model_fields)
    return paragraph(f"The options of `rollout` that say how to sample can also stand here: {shared}.") + "\n"


def _algorithm() -> list[str]:
    """Return the keys of the section."""
    lines = [
        item(f"`algorithm.{key}`: {meaning}" + (f". Default `{value_in_yaml(COMMON[key])}`" if key in COMMON else ""))
        for key, meaning in KEYS.items()
    ]
    return [*lines, "", "The defaults are those before a preset is applied."]


def _rewards() -> list[str]:
    names = ", ".join(f"[`{name}`](settings_rewards.md#{name})" for name in RewardRegistry().names())
    return [
        paragraph(
            "If a reward has the settings `correct` and `wrong`, these are its values for a correct and a wrong "
            "response. An overlay or an option adds its rewards to those of the recipe, and `rewards: {NAME: null}` "
            "removes one."
        ),
        "",
        paragraph(f"Rewards: {names}, or your own, `path/to/file.py:function`."),
        "",
    ]


if __name__ == "__main__":
    replace_page("config.md", render())

"""The list of stages of a recipe: the possible entries of `stages`, and the recipe that each entry runs with.

Without a list, a stage runs if its section gives it something to do, in the order of `recipe.INSTALLED`. With a list,
its entries run in their own order, and a stage can be repeated:

    stages: [sft, preference, preference]
    stages: [sft, {stage: rl, train: {steps: 30}}, {stage: rl, train: {steps: 30, lr: 1e-4}}]
    stages: [rl, {stage: rl, data: {curriculum: {sampler: one_minus_success}}}]
    stages: [sft, rl, {stage: sft, data: {sft: {source: fusion, ...}}}, {stage: rl, rewards: {format: {weight: 0.1}}}]
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansatz.config.chat import AUTO
from ansatz.config.fields import as_mapping
from ansatz.config.layers import laid_over
from ansatz.config.load import check
from ansatz.config.recipe import recipe_keys, suggest_keys
from ansatz.config.schema import FIRST_STAGES, Config
from ansatz.errors import ConfigError, UntrustedCodeError
from ansatz.registry import suggest

CHANGEABLE = ("rollout", "algorithm", "teacher", "train", "rewards", "watchdog")
CHANGEABLE_DATA = ("sft", "train", "template", "curriculum")
"""Sections, and keys of data, that an entry can change, besides the sections of stages. Model, held-out problems and
evaluation belong to the run, so that stages can be compared; evaluations keep the rewards of the run, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntry:
    """One stage of a run.

    number: counts the entries of the same stage, from 1. config: the recipe with the sections that the entry changes.
    From its second entry on, a stage gets another seed, so that a repeated stage takes its problems in another order
    and samples other responses.
    """

    name: str
    number: int
    config: Config

    @property
    def title(self) -> str:
        return self.name if self.number == 1 else f"{self.name}_{self.number}"


def stage_entries(config: Config) -> list[StageEntry]:
    """Return the stages of a recipe in the order of the run. Raise ConfigError for an entry that cannot run."""
    entries = [StageEntry(name=name, number=1, config=config) for name in FIRST_STAGES]
    names, count = config.stage_names[len(FIRST_STAGES) :], Counter[str]()
    for place, (name, entry) in enumerate(zip(names, config.stages or names, strict=True), start=1):
        changes = {} if isinstance(entry, str) else {key: value for key, value in entry.items() if key != "stage"}
        count[name] += 1
        try:
            changed, declaration = _changed(config, changes), config.declaration(name)
            if not declaration.has_work(changed):
                needs = declaration.needs or f"the section {declaration.name!r}"
                raise ConfigError(f"the stage has nothing to do. It needs {needs}; or take it out of the list.")
        except UntrustedCodeError:
            raise
        except ConfigError as error:
            raise ConfigError(f"stages, entry {place} ({name}): {error}") from error
        if count[name] > 1:
            changed = changed.model_copy(update={"seed": derived_seed(config.seed, name, count[name])})
        entries.append(StageEntry(name=name, number=count[name], config=changed))
    if config.stages is not None:
        _check_unused(config, count)
    return entries


def unread_keys(config: Config) -> list[str]:
    """Return a sentence about each key that an entry changes although its stage does not read it."""
    sentences, names = list[str](), config.stage_names[len(FIRST_STAGES) :]
    for place, (name, entry) in enumerate(zip(names, config.stages or names, strict=True), start=1):
        reads = config.declaration(name).reads
        if isinstance(entry, str) or reads is None:
            continue
        read = ("stage", name, *reads)
        known = [key for section in read for key in recipe_keys(section)]
        for section, value in entry.items():
            keys = [f"{section}.{key}" for key in as_mapping(value)] or [section]
            for key in [] if section in read else keys:
                if key not in read:
                    advice = suggest_keys(key.rpartition(".")[2], known) or " Leave it out."
                    what = f"{key} has no effect, because the stage does not read it."
                    sentences.append(f"stages, entry {place} ({name}): {what}{advice}")
    return sentences


def derived_seed(seed: int, name: str, number: int) -> int:
    """Return the seed of the entry of a stage with this number, from 2, or of a stage after a number of rollbacks."""
    digest = hashlib.blake2b(f"{seed}/{name}/{number}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "little")


def _changed(config: Config, changes: Mapping[str, Any]) -> Config:
    keys = list(as_mapping(changes.get("data")))
    changed = [key for key in changes if key != "data" or not keys] + [f"data.{key}" for key in keys]
    changeable = [each.name for each in config.declarations if each.section is not None] + [*CHANGEABLE]
    changeable += [f"data.{key}" for key in CHANGEABLE_DATA]
    for key in changed:
        if key not in changeable:
            raise ConfigError(
                f"it changes {key!r}, but an entry can change only {', '.join(changeable)}.{suggest(key, changeable)}"
            )
    entry = check(laid_over(config.model_dump(), changes), found_in=config.found_in) if changes else config
    if entry.data.template == AUTO != config.data.template:
        raise ConfigError("data.template: auto is a choice for the whole run. Name the template of the entry.")
    return entry


def _check_unused(config: Config, listed: Counter[str]) -> None:
    """Raise ConfigError for a section that is given although no entry uses it."""
    for declaration in config.declarations:
        name = declaration.name
        is_given = declaration.section is not None and declaration.optional and getattr(config, name) is not None
        if is_given and not listed[name]:
            raise ConfigError(
                f"the section {name!r} has no effect, because stages does not list {name!r}. Add it to the list, or "
                "leave the section out."
            )

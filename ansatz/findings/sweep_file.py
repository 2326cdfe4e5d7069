"""The sweep file: the claim, the arms, the blocks that they are compared on, and the rule that decides.

    claim: {text: ..., sources: [{document: S, section: 4, figures: ...}]}
    recipe: tiny_arithmetic_grpo_cpu
    common: {train.steps: 40, threads: 1}
    start: {stages: [sft]}                    # once per block, shared by all arms; or {from: RUN, step: N}
    blocks: {seeds: [0, 1, 2], vary: [seed, data.train.seed, data.heldout.seed]}
    arms: {control: {}, other: {train.lr: 1e-3}}          # or grid: {KEY: [...], KEY: [...]}
    tune: {key: train.lr, times: [0.5, 1, 2], seeds: [100, 101]}
    outcome: {name: exact_pass@k, k: 1}
    rule: {difference: [other, control], direction: greater, delta: 0.02}
    guards: {control_exact: [0.2, 0.85]}
    moved: {train/clip_frac: 0.01}            # the least that the arms of a rule must differ by
    figure: {curves: [exact_pass@1], heat: [train.lr, algorithm.kl_coef]}

Only recipe, blocks, outcome, and arms or grid are required.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from ansatz.config.fields import Count, Float, FractionBelowOne, Section
from ansatz.config.load import parse_section, parse_yaml
from ansatz.config.packaged import recipe_text
from ansatz.errors import ConfigError
from ansatz.registry import describe_missing_file
from ansatz.trust import trusted

Keys = Mapping[str, Any]
"""Recipe keys by dotted name. One that ends with + is added to the value that the block gives it."""
MOST_CELLS = 10_000
"""Each cell is a run, which is checked before the first one starts."""
Side = str | dict[str, Any]
"""One side of a difference: an arm, or values of a grid, which stand for the best arm that has them."""
Guards = dict[str, Float | tuple[Float, Float]]
"""Limits on the mean over blocks, in every arm or, for a name with control_ in front, in the control: a number is the
least, a pair is a range. Names are exact, other outcomes with their settings (exact_pass@k k=64 step=0), or metrics."""


class Source(Section):
    """Where a claim was made. figures: the numbers and the set-up that the document gives."""

    document: str
    section: str | int = ""
    figures: str = ""


class Claim(Section):
    """The tested claim, in one sentence. summary: the experiment, its result and the conclusions that it does not
    support, written afterwards. corrected: the earlier text of the page if that was wrong. Neither is registered."""

    text: str
    sources: tuple[Source, ...] = ()
    summary: str = ""
    corrected: str = ""


class Start(Section):
    """The start that the arms of a block share: the result of some stages, or step `step` of another run."""

    model_config = ConfigDict(populate_by_name=True)

    stages: tuple[str, ...] = ()
    keys: dict[str, Any] = Field(default_factory=dict[str, Any])
    run: Annotated[str | None, Field(validation_alias=AliasChoices("from", "run"))] = None
    """A run folder; {block} in it stands for the number of the block."""
    step: Count = 0

    @model_validator(mode="after")
    def has_one_form(self) -> Start:
        if bool(self.stages) == bool(self.run):
            raise ValueError("start has either stages, which are run once per block, or from: RUN with step: N")
        return self


class Blocks(Section):
    """The seeds of the blocks, and the keys that depend on them: the value in the recipe plus 1000 x the seed."""

    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    vary: tuple[str, ...] = ("seed", "data.train.seed", "data.heldout.seed")


class Tune(Section):
    """Each arm is run with the key at these multiples of its common value, on blocks of their own. The one with the
    best mean outcome on the validation problems, which are the held-out problems of those blocks, is then tested.
    key: for all arms, or for each one by its name."""

    key: str | dict[str, str] = "train.lr"
    times: tuple[Float, ...] = (0.5, 1, 2)
    seeds: tuple[Count, ...] = (100, 101)
    on: Literal["validation"] = "validation"


class Rule(Section):
    """A rule that decides about the claim. difference: outcome of the first side minus the outcome of the second, or
    the outcome of one side alone; `than` is subtracted from it. ratio_of_variances: two pairs of arms; the log of the
    variance of the first pair's difference over the variance of the second pair's difference."""

    name: str = ""
    difference: Annotated[tuple[Side, ...], Field(max_length=2)] = ()
    ratio_of_variances: tuple[tuple[str, str], tuple[str, str]] | None = None
    outcome: dict[str, Any] | None = None
    """Instead of the outcome of the file."""
    direction: Literal["greater", "less", "equal"] = "greater"
    than: Float = 0.0
    delta: Annotated[Float, Field(gt=0)] = 0.02
    """The smallest difference that matters."""
    level: FractionBelowOne = 0.95
    guards: Guards = Field(default_factory=dict[str, Any])
    """For this rule alone, in the arms that it compares; the control is the last of them."""

    @property
    def pairs(self) -> tuple[Sequence[Side], ...]:
        """The sides of the difference, or of both differences whose variances are compared."""
        return self.ratio_of_variances or (self.difference,)

    @model_validator(mode="after")
    def has_one_form(self) -> Rule:
        if bool(self.difference) == bool(self.ratio_of_variances):
            raise ValueError("a rule has either difference or ratio_of_variances")
        return self


class Figure(Section):
    """The figures of the page besides the differences. heat: two keys of the grid."""

    curves: tuple[str, ...] = ()
    """Empty: the curve of the outcome."""
    heat: tuple[str, str] | None = None


class SweepFile(Section):
    """A sweep file, read. name: the name of the file, without its suffix."""

    name: str = ""
    claim: Claim = Claim(text="")
    recipe: str
    common: dict[str, Any] = Field(default_factory=dict[str, Any])
    start: Start | None = None
    blocks: Blocks
    arms: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    grid: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict[str, tuple[Any, ...]])
    tune: Tune | None = None
    outcome: dict[str, Any]
    rule: tuple[Rule, ...] = ()
    guards: Guards = Field(default_factory=dict[str, Any])
    """For every rule, in all arms."""
    moved: dict[str, Float] = Field(default_factory=dict[str, Any])
    """The numbers that the arms manipulate, named as guards are, each with the least difference that the two arms of a
    rule must show in it."""
    figure: Figure = Figure()

    @model_validator(mode="after")
    def has_arms(self) -> SweepFile:
        if bool(self.arms) == bool(self.grid):
            raise ValueError("a sweep has either arms or a grid")
        times = len(self.tune.times) * len(self.tune.seeds) if self.tune else 0
        num_arms = len(self.arms) or math.prod(map(len, self.grid.values()))
        if (num_cells := num_arms * (times + len(self.blocks.seeds))) > MOST_CELLS:
            raise ValueError(
                f"a sweep has at most {MOST_CELLS} cells, and these are {num_cells}: {num_arms} arms, each on "
                f"{len(self.blocks.seeds)} blocks. Leave out values of the grid, or write several sweeps"
            )
        known = self.all_arms
        for side in (side for rule in self.rule for pair in rule.pairs for side in pair):
            if isinstance(side, str) and side not in known:
                raise ValueError(f"rule: {side!r} is not an arm. The arms are {', '.join(known)}")
            if isinstance(side, dict):
                self.matching(side)
        for arm in self.tune.key if self.tune and isinstance(self.tune.key, dict) else ():
            if arm not in known:
                raise ValueError(f"tune.key: {arm!r} is not an arm. The arms are {', '.join(known)}")
        for seed in self.tune.seeds if self.tune else ():
            if seed in self.blocks.seeds:
                raise ValueError(f"tune.seeds has {seed}, which is a block of the test. Give blocks of their own")
        return self

    @property
    def all_arms(self) -> dict[str, dict[str, Any]]:
        """The arms by name, in order. A grid gives one arm for each combination of its values."""
        if self.arms:
            return self.arms
        products = itertools.product(*self.grid.values())
        arms = [dict(zip(self.grid, values, strict=True)) for values in products]
        return {", ".join(f"{last_part(key)} {value}" for key, value in arm.items()): arm for arm in arms}

    def matching(self, values: Mapping[str, Any]) -> list[str]:
        """List the arms of the grid with these values. ValueError if there are none."""
        arms = self.all_arms.items()
        found = [name for name, arm in arms if all(arm.get(key) == value for key, value in values.items())]
        if not found:
            raise ValueError(f"rule: no arm has {dict(values)}; the grid is {dict(self.grid)}")
        return found

    @property
    def control(self) -> str:
        """The arm that the guards look at: the last of the first rule's difference; otherwise the first arm."""
        sides = self.rule[0].difference if self.rule else ()
        last = sides[-1] if sides else ""
        return last if isinstance(last, str) and last else next(iter(self.all_arms))

    def outcome_of(self, rule: Rule) -> dict[str, Any]:
        """Return the outcome that a rule compares."""
        return rule.outcome or self.outcome

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        """Every outcome that a row holds. The outcome of the file comes first."""
        found = [self.outcome, *(rule.outcome for rule in self.rule if rule.outcome)]
        return [each for place, each in enumerate(found) if each not in found[:place]]

    @property
    def measured(self) -> list[str]:
        """The names of all guards, as a row holds them."""
        return [*dict.fromkeys([*self.guards, *self.moved, *(name for rule in self.rule for name in rule.guards)])]

    @property
    def curves(self) -> tuple[str, ...]:
        """The curves that a row holds and a page draws."""
        of_outcome = self.outcome.get("number") or self.outcome.get("metric")
        sampled = "pass@1" if self.outcome["name"] == "sampled_pass@1" else "exact_pass@1"
        return self.figure.curves or (str(of_outcome or sampled),)

    def digests(self) -> dict[str, str]:
        """Return a digest of every part that is fixed before the first result."""
        data = self.model_dump(mode="json")
        data["claim"] = {key: data["claim"][key] for key in ("text", "sources")}
        of_rules = [rule.pop("guards") for rule in data["rule"]]
        parts = {
            "claim": ["claim"],
            "recipe": ["recipe", "common", "start"],
            "arms": ["arms", "grid", "tune"],
            "outcome": ["outcome"],
            "rule": ["rule"],
            "guards": ["guards"],
        }
        more = {
            "recipe": self.blocks.vary,
            "guards": [of_rules, data["moved"]] if self.moved or any(of_rules) else None,
        }
        return {part: digest([data[key] for key in keys], more.get(part)) for part, keys in parts.items()}


def last_part(key: str) -> str:
    """Return the last part of a dotted key."""
    return key.rpartition(".")[2]


def digest(*parts: Any) -> str:
    """Return 16 characters that depend only on the parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def label_of(outcome: Keys) -> str:
    """Return the name of an outcome with its settings, as rows and pages show it: exact_pass@k k=8."""
    return " ".join([str(outcome.get("name")), *(f"{key}={outcome[key]}" for key in outcome if key != "name")])


def read_sweep(path: Path) -> SweepFile:
    """Read a sweep file of the user, which may name code. Raise ConfigError in the words of the file."""
    if not path.is_file():
        raise ConfigError(f"the sweep file {str(path)!r} {describe_missing_file(path)}. Give a YAML file.")
    data = parse_yaml(recipe_text(path), where=str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path} contains no mapping. Give a sweep file, with recipe, blocks, arms and outcome.")
    rule: Any = data.get("rule", ())
    rules: Sequence[Any] = rule if isinstance(rule, list) else [rule] if rule else []
    sweep = parse_section(SweepFile, {**data, "rule": rules, "name": path.stem}, name="")
    given = {name: trusted(value) for name, value in sweep}
    given["rule"] = tuple(each.model_copy(update={"outcome": trusted(each.outcome)}) for each in sweep.rule)
    return sweep.model_copy(update=given)

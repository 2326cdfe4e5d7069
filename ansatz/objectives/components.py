"""A component of an objective: a pure function, its settings and its inputs.

The positional parameters of a component are its inputs (`reward_N`, `segment_T`, ...); the keyword-only ones are its
settings in a recipe. Nothing is declared twice: `Objective` passes exactly the inputs in the signature.

Axes everywhere in this package: N rollouts, T flat tokens, K reward components. Components only see tokens that the
policy sampled: everything outside the mask (prompts, tool output) is removed first. In the loss they only see those
that no mask has rejected, except for components that are marked `sees_rejected`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.registry import Registry, check_result, settings_of, suggest


class Clipped(NamedTuple):
    """The result of a component that clips: a value per token, and the tokens that it clipped.

    A token counts as clipped where the clipped branch was taken, so that its gradient through the ratio is cut. low_T:
    the ratio was below its interval; high_T: above.
    """

    value_T: Tensor
    low_T: Tensor
    high_T: Tensor


Function = Callable[..., Tensor]
ClippingFunction = Callable[..., Tensor | Clipped]
F = TypeVar("F", bound=ClippingFunction)

_TABLE: dict[str, Any] = read_yaml(Path(__file__).with_name("inputs.yaml"))
INPUTS: dict[str, str] = _TABLE["words"]  # what an error calls each input
INPUTS_OF: dict[str, list[str]] = _TABLE["of_kind"]
"""The possible inputs of a component of each kind in a training run."""


Words = Mapping[str, Mapping[Any, str] | Callable[[Any], str]]
Notes = Mapping[str, str | Mapping[Any, str]]


@dataclass(frozen=True, slots=True)
class FormulaWords:
    """A formula with names of settings in braces. Every setting that changes a number must be in its text or notes.

    words: replacements of values that read badly as they are (None, True). notes: additions to the text for the value
    of a setting; a text is added for every value except None, False, and 0 if it is the default.
    """

    text: str
    words: Words
    notes: Notes

    def written(self, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
        """Return the formula with the values of the settings."""
        values = {name: self._word(name, value) for name, value in settings.items()}
        text = self._with_notes(settings, defaults)
        while "{" in text:  # a word can name another setting
            text = text.format(**values)
        return text

    def named(self, defaults: Mapping[str, Any]) -> str:
        """Return the formula of the defaults, with the names of settings in braces where a value would be shown as
        it is."""
        text = self._with_notes(defaults, defaults)
        words = {name: word for name, value in defaults.items() if (word := self._word(name, value)) is not value}
        while any(f"{{{name}}}" in text for name in words):
            for name, word in words.items():
                text = text.replace(f"{{{name}}}", word)
        return text

    def _with_notes(self, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
        notes = (_note(note, settings[name], defaults[name]) for name, note in self.notes.items())
        return "".join([self.text, *notes])

    def _word(self, name: str, value: Any) -> Any:
        words = self.words.get(name)
        if words is None:
            return value
        return words(value) if callable(words) else words.get(value, value)


def _note(note: str | Mapping[Any, str], value: Any, default: Any) -> str:
    if isinstance(note, str):
        silent = value is None or value is False or (value == 0 and default == 0)
        return "" if silent else note
    return note.get(value, "")


def formula(
    text: str, gradient: str | Callable[..., str] = "", *, words: Words | None = None, notes: Notes | None = None
) -> Callable[[F], F]:
    """Describe a component by a formula in words, see `FormulaWords`.

    gradient: the factor of grad log policy(token) in a surrogate (in the direction of ascent) or in a KL; or a function
    of the settings.
    """

    def add(function: F) -> F:
        function.__dict__.update(formula=FormulaWords(text, words or {}, notes or {}), gradient=gradient)
        return function

    return add


def whole_minibatch(function: F) -> F:
    """Mark a component that compares tokens of the whole minibatch, so that microbatches would not add up."""
    function.__dict__["whole_minibatch"] = True
    return function


def sees_rejected(function: F) -> F:
    """Mark a component that sees every token that the policy sampled, including those that masks reject."""
    function.__dict__["sees_rejected"] = True
    return function


@dataclass(frozen=True, slots=True)
class Component:
    """A function of `kind` under its primary name, with a value for every setting."""

    kind: str
    name: str
    settings: Mapping[str, Any]
    function: ClippingFunction

    @property
    def inputs(self) -> tuple[str, ...]:
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY)

    @property
    def per_token(self) -> bool:
        """Tell whether an advantage gives the tokens of a rollout different numbers: only then it takes `segment_T`."""
        return "segment_T" in self.inputs

    @property
    def whole_minibatch(self) -> bool:
        by_setting = any(self.settings.get(name) for name in ("self_normalize", "centered"))  # they need its means
        return bool(getattr(self.function, "whole_minibatch", False)) or by_setting

    @property
    def sees_rejected(self) -> bool:
        return bool(getattr(self.function, "sees_rejected", False))

    def formula(self) -> str:
        words: FormulaWords | None = getattr(self.function, "formula", None)
        if words is not None:
            defaults = {name: parameter.default for name, parameter in settings_of(self.function).items()}
            return words.written(self.settings, defaults)
        return f"{self.name}({', '.join(f'{key} {value}' for key, value in self.settings.items())})"

    def gradient(self) -> str:
        text: str | Callable[..., str] = getattr(self.function, "gradient", "")
        if callable(text):
            text = text(**self.settings)
        return f"({text.format(**self.settings)})" if text else f"(the gradient of {self.name})"

    def __call__(self, inputs: Mapping[str, Any]) -> Tensor:
        """Apply the function to its inputs among `inputs`. Raise a ConfigError that describes a missing input."""
        return self.clipping(inputs).value_T

    def clipping(self, inputs: Mapping[str, Any]) -> Clipped:
        """Apply the function, and also return which tokens it clipped: none, unless the function returns a
        `Clipped`."""
        for key in self.inputs:
            if inputs.get(key) is None:
                raise ConfigError(f"algorithm.{self.kind} = {self.name!r} needs {INPUTS.get(key, key)} ({key}).")
        result: Any = self.function(*(inputs[key] for key in self.inputs), **self.settings)
        if isinstance(result, Clipped):
            return result
        is_tensor = isinstance(result, Tensor)
        check_result(self.function, result, is_right=lambda: is_tensor, expected="a tensor of finite numbers")
        never_T = torch.zeros_like(result, dtype=torch.bool)
        return Clipped(result, never_T, never_T)


def build_component(registry: Registry[Any], name: str, settings: Mapping[str, Any]) -> Component:
    """Return the named function with its settings checked.

    Raise ConfigError, with a suggestion, for an unknown name or setting.
    """
    function = registry.get(name)
    _check_inputs(registry.kind, name, function)
    bound = registry.bind(name, settings)
    checked: Mapping[str, Any] = bound.keywords if isinstance(bound, functools.partial) else {}
    if ":" not in name:  # the settings of a user's function are the user's
        for key, value in checked.items():
            if not SIGNED & (names := {key, f"{function.__name__}.{key}"}):
                _check_range(f"algorithm.{registry.kind} = {name!r}", key, value, names)
    known = settings_of(function)
    for key, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and key not in settings:
            raise ConfigError(f"algorithm.{registry.kind} = {name!r} needs a value for {key!r}.")
    defaults = {key: parameter.default for key, parameter in known.items()}
    return Component(registry.kind, function.__name__.rstrip("_"), {**defaults, **checked}, function)  # as in `abs_`


POSITIVE = frozenset(
    {"beta", "tau", "tau_pos", "tau_neg", "target", "horizon", "max_tokens", "divisor", "k", "exo.label_smoothing"}
)
FRACTIONS = frozenset({"gamma", "lam", "share", "label_smoothing", "mixing"})
HALVES = frozenset({"robust.label_smoothing"})
SIGNED = frozenset({"at_least", "rejection.low", "rejection.high", "simpo.alpha", "cispo.floor"})
"""Settings of components by their range. A name means the same everywhere, unless a component is named before it: the
bounds of `rejection` are logarithms. All other settings are not negative."""


def _check_range(what: str, key: str, value: Any, names: Set[str]) -> None:
    """Raise ConfigError for a number, or one of several, outside the range of the setting. names: of the setting."""
    most = 0.5 if names & HALVES else 1.0 if names & FRACTIONS else math.inf
    least = "above 0" if names & POSITIVE else "0 or more"
    upper = {0.5: " and below 0.5", 1.0: " and at most 1"}.get(most, "")
    several = isinstance(value, list | tuple)
    for number in cast("list[Any]", value) if several else [value]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if number < 0 or (number == 0 and names & POSITIVE) or number > most or number == 0.5 == most:
            raise ConfigError(f"{what}: {key} = {value!r}, expected {least}{upper}.")


def _check_inputs(kind: str, name: str, function: Callable[..., Any]) -> None:
    """Raise ConfigError for a positional parameter that is not an input of its kind: only a user's function can have
    one."""
    known = INPUTS_OF.get(kind)
    settings = settings_of(function)
    for parameter in inspect.signature(function).parameters:
        if known is not None and parameter not in known and parameter not in settings:
            raise ConfigError(
                f"algorithm.{kind} = {name!r} has the input {parameter!r}, which a function of this kind does not "
                f"get.{suggest(parameter, known)} If it is a setting, put it behind a * in the signature."
            )

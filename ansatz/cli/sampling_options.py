"""The options of the commands that sample from a model, as one group of command-line options.

    @takes_sampling(temperature=0.7)
    def eval(model: Path, *, sampling: ModelSampling, out: Path) -> None: ...

gives `eval` the options --samples-per-prompt, --temperature (default 0.7), ..., --threads. Sampling options have the
names, defaults and descriptions of `config.sampling.SamplingOptions`, which recipes use too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ansatz.cli.option_groups import Command, with_options
from ansatz.config.chat import AUTO
from ansatz.config.load import parse_section
from ansatz.config.sampling import THOUGHT_END, SamplingOptions
from ansatz.errors import ConfigError
from ansatz.files import read_yaml
from ansatz.visible import say

PANEL = "Sampling"
DTYPES = ("auto", "float32", "bfloat16")
ENGINES = ("native", "vllm")
NONE = "none"
"""The value of --environment for responses that interact with nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSampling:
    """How a command samples from a model.

    template: AUTO for the one that fits the model. environment: AUTO for the environment of the model's run, NONE for
    none. trust_code: whether the model's recipe may name code, see `config.load.load_recipe`.
    batch: problems that are sampled together. device: None for the best one. threads: 0 for one per CPU core.
    min_thinking_budget, wait: see `rollout.longer_thoughts`; 0 for thoughts of any length.
    """

    options: SamplingOptions
    template: str = AUTO
    environment: str = AUTO
    trust_code: bool | None = None
    seed: int = 0
    batch: int = 32
    device: str | None = None
    dtype: str = "auto"
    threads: int = 0
    engine: str = "native"
    min_thinking_budget: int = 0
    wait: str = "Wait"

    def __post_init__(self) -> None:
        for name, values in {"dtype": DTYPES, "engine": ENGINES}.items():
            if (value := getattr(self, name)) not in values:
                raise ConfigError(f"--{name} = {value!r}: expected {', '.join(values[:-1])} or {values[-1]}.")
        if not self.wait or THOUGHT_END in self.wait:
            raise ConfigError(f"--wait = {self.wait!r} makes no thought go on. Give a word, such as Wait.")


_OTHERS: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Help text, least and largest value of each option that is not in `SamplingOptions`."""


def takes_sampling(**defaults: Any) -> Callable[[Command], Command]:
    """Replace a command's parameter `sampling: ModelSampling` by the options of the group.

    defaults: values that replace the defaults of `SamplingOptions` and `ModelSampling`, by name.
    """

    def add(command: Command) -> Command:
        options = {name: (kind, defaults.get(name, default)) for name, (kind, default) in _group().items()}
        return with_options(command, "sampling", options, _sampling_of)

    return add


def _sampling_of(values: dict[str, Any], command_line: typer.Context) -> ModelSampling:
    several = values["samples_per_prompt"] > 1 and _is_left_out("samples_per_prompt", command_line)
    check_needed(command_line, wait=("min_thinking_budget", "thinking_budgets"))
    check_needed(command_line, closing=("thinking_budget", "thinking_budgets"))
    if values["temperature"] == 0 and values["samples_per_prompt"] > 1 and _is_left_out("temperature", command_line):
        values["temperature"] = SamplingOptions().temperature  # at 0, which is the default of `ask`, all are the same
    elif values["temperature"] == 0 and several:
        values["samples_per_prompt"] = 1
        say("--temperature 0: one response per problem is sampled, since all would be the same.")
    return model_sampling(values)


def given(command_line: typer.Context) -> list[str]:
    """Return the names of the arguments and options that the user gave."""
    return [name for name in command_line.params if not _is_left_out(name, command_line)]


def check_needed(command_line: typer.Context, **needs: Sequence[str]) -> None:
    """Raise ConfigError for an option that was given without any of those that it needs. needs: these, by its name."""
    names = given(command_line)
    for name, others in needs.items():
        if name in names and not set(others) & set(names):
            flags = [f"--{each.replace('_', '-')}" for each in (name, *others) if each in command_line.params]
            raise ConfigError(
                f"{flags[0]} has no effect without {' or '.join(flags[1:])}. Add it, or leave {flags[0]} out."
            )


def _is_left_out(name: str, command_line: typer.Context) -> bool:
    source = command_line.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT"


def model_sampling(values: Mapping[str, Any]) -> ModelSampling:
    """Return the options of the group by name, checked. Raise ConfigError in the words of the command line."""
    options = {name: value for name, value in values.items() if name in SamplingOptions.model_fields}
    others = {name: value for name, value in values.items() if name not in options}
    try:
        return ModelSampling(
            options=parse_section(SamplingOptions, {**options, "stop": options["stop"] or ()}, name=""), **others
        )
    except ConfigError as error:
        raise ConfigError(as_flags(str(error))) from error


def as_flags(message: str) -> str:
    """Return the message with sampling options as on the command line: top_p becomes --top-p."""
    names = "|".join(SamplingOptions.model_fields)
    return re.sub(rf"(?<![-\w])({names})\b(?= = |:)", lambda match: f"--{match[1].replace('_', '-')}", message)


def sampling_names() -> list[str]:
    """Return the names of the options in the group."""
    return [*SamplingOptions.model_fields, *_OTHERS]


def _group() -> dict[str, tuple[Any, Any]]:
    """Return annotation and default of each option in the group."""
    group: dict[str, tuple[Any, Any]] = {}
    for name, field in SamplingOptions.model_fields.items():
        kind, default = (list[str] | None, None) if name == "stop" else (field.annotation, field.default)
        group[name] = (Annotated[kind, typer.Option(help=field.description, rich_help_panel=PANEL)], default)
    kinds = get_type_hints(ModelSampling)
    for name, settings in _OTHERS.items():
        flags = [f"--{name.replace('_', '-')}"] if kinds[name] == bool | None else []  # without --no-...
        option = typer.Option(*flags, rich_help_panel=PANEL, **settings)
        group[name] = (Annotated[kinds[name], option], ModelSampling.__dataclass_fields__[name].default)
    return group

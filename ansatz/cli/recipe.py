"""What the verbs that take a recipe share: the file, overlays, and dotted overrides such as `--train.lr 3e-4`."""

from __future__ import annotations

from collections.abc import Sequence

from ansatz.errors import ConfigError


def parse_overrides(arguments: Sequence[str]) -> dict[str, str]:
    """["--train.lr", "3e-4", "--name=x"] -> {"train.lr": "3e-4", "name": "x"}. ConfigError for anything else."""
    overrides: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            raise ConfigError(f"{argument!r} is not understood; settings are given as --section.key value.")
        key, has_value, value = argument[2:].partition("=")
        if not has_value:
            if not rest:
                raise ConfigError(f"--{key} lacks its value; give --{key} VALUE.")
            value = rest.pop(0)
        if key in overrides:
            raise ConfigError(f"--{key} is given twice. Keep one.")
        overrides[key] = value
    return overrides

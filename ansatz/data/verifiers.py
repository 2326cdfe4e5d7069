"""The data of an environment of the package verifiers, and how such environments are loaded.

Needs the extra `verifiers`. The environment `verifiers` plays the problems.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ansatz.config.fields import Count
from ansatz.errors import ConfigError, MissingExtraError
from ansatz.registry import load_attribute
from ansatz.types import Problem


def verifiers(
    *, split: str, environment: str, arguments: dict[str, Any] | None = None, count: Count = 0
) -> Iterator[Problem]:
    """Yield the rows of the environment's data: those to evaluate on for the split heldout, otherwise those to train
    on.

    environment, arguments: see `load_environment`. count: number of rows, from the first; 0: all.
    The last message of a row's prompt is the question, and those before it are its context.

    Raise MissingExtraError without the package. Raise ConfigError for an environment that cannot be loaded or lacks
    such data.
    """
    loaded = load_environment(environment, arguments)
    rows = loaded.build_eval_dataset() if split == "heldout" else loaded.build_dataset()
    if rows is None:
        kind = "eval_dataset" if split == "heldout" else "dataset"
        raise ConfigError(f"verifiers: environment {environment!r} has no {kind}. Use another source for {split}.")
    for index, row in enumerate(rows):
        if count and index == count:
            return
        yield _problem(row, index, split=split)


def load_environment(name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Return a `verifiers.Environment`, loaded once per process.

    name: an installed environment, as `verifiers.load_environment` takes it, or `path/to/file.py:function`, a function
    that returns one. arguments: of its function. Raise MissingExtraError without the package. Raise ConfigError if it
    cannot be loaded.
    """
    return _load(name, json.dumps(dict(arguments or {}), sort_keys=True))


@functools.cache
def _load(name: str, arguments: str) -> Any:
    package, values = load_package(), json.loads(arguments)
    try:
        if ":" in name:
            loaded = load_attribute(name, kind="verifiers environment")(**values)
        else:
            loaded = package.load_environment(name, **values)
    except ConfigError:
        raise
    except Exception as error:  # code of another project can raise anything
        raise ConfigError(
            f"verifiers: environment {name!r} with arguments = {values} cannot be loaded ({type(error).__name__}: "
            f"{error}). Install it, or correct its arguments."
        ) from error
    if not isinstance(loaded, package.Environment):
        raise ConfigError(f"verifiers: {name!r} gives {loaded!r:.60}, expected a verifiers.Environment.")
    return loaded


def load_package() -> Any:
    """Return the package. Raise MissingExtraError if it is not installed, or in a version without `SingleTurnEnv`."""
    try:
        package = importlib.import_module("verifiers")
        _ = package.SingleTurnEnv
    except (ImportError, AttributeError) as error:
        raise MissingExtraError(
            f"verifiers needs the package verifiers 0.1.14 ({error}): pip install 'ansatz-rl[verifiers]'."
        ) from error
    return package


def _problem(row: Mapping[str, Any], index: int, *, split: str) -> Problem:
    turns = [_message(turn) for turn in cast("list[Any]", row["prompt"])]
    if not turns or turns[-1]["role"] != "user":
        raise ConfigError(f"verifiers: the prompt of row {index} does not end with a user's message.")
    info = row.get("info") or {}
    return Problem(
        id=f"{row.get('task') or 'row'}-{split}-{row.get('example_id', index)}",
        question=turns[-1]["content"],
        answer=str(row.get("answer") or ""),
        source="verifiers",
        split=split,
        # As text, the input of the environment survives being stored with the problem.
        meta={
            "input": json.dumps({**row, "info": info}, default=str),
            **({"earlier_turns": turns[:-1]} if len(turns) > 1 else {}),
        },
    )


def _message(turn: Any) -> dict[str, Any]:
    fields = dict(turn if isinstance(turn, Mapping) else turn.model_dump())
    content = fields.get("content")
    if not isinstance(content, str):
        raise ConfigError(f"verifiers: a prompt has the content {content!r:.60}, expected text.")
    return {"role": str(fields["role"]), "content": content}

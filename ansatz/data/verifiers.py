"""The tasks of a taskset of the package verifiers, and how tasksets are loaded.

Needs the extra `verifiers`. The environment `verifiers` plays the problems.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ansatz.config.fields import Count
from ansatz.errors import AnsatzError, ConfigError, MissingExtraError, install_command
from ansatz.registry import load_attribute
from ansatz.trust import TrustedText, require, texts_of
from ansatz.types import Problem, answers_of


def verifiers(
    *, split: str, environment: str, arguments: dict[str, Any] | None = None, skip: Count = 0, count: Count = 0
) -> Iterator[Problem]:
    """Yield the tasks of a taskset.

    environment, arguments: see `load_taskset`. skip: number of tasks to leave out, from the first. count: number of
    tasks after them; 0: all. A taskset has no splits, so give `heldout` other tasks than `train`: by `skip` and
    `count`, or by an argument of the taskset. The last message of a task's prompt is the question, and those before it
    are its context.

    Raise MissingExtraError without the package. Raise ConfigError for a taskset that cannot be loaded, or has no end.
    """
    taskset, sample = load_taskset(environment, arguments)
    if not (count or taskset.bounded):
        raise ConfigError(f"verifiers: the taskset {environment!r} has no end. Set count, the number of tasks.")
    for task in islice(taskset, skip, skip + count if count else None):
        if type(task) is not type(sample) or task.config != sample.config:
            raise ConfigError(
                f"verifiers: task {task.data.idx} of {environment!r} has another class or configuration than the "
                "first, and one environment plays all of them. Make them tasksets of their own."
            )
        yield _problem(task, split=split)


def load_taskset(name: str, arguments: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
    """Return a `verifiers.v1.Taskset` and its first task, loaded once per process.

    name: the id of an installed taskset, or `path/to/file.py:Name`, a subclass of Taskset or a function that returns a
    taskset. arguments: the fields of the taskset's configuration, or of the function. Raise MissingExtraError without
    the package. Raise ConfigError if it cannot be loaded, and UntrustedCodeError for text that may not name code: the
    package imports the code that the name and the arguments name.
    """
    for text in (name, *texts_of(arguments or {})):
        require(text, kind="verifiers environment")
    return _load(TrustedText(name), json.dumps(dict(arguments or {}), sort_keys=True))


@functools.cache
def _load(name: TrustedText, arguments: str) -> tuple[Any, Any]:
    package, values = load_package(), json.loads(arguments)
    try:
        taskset = _load_named(name, values) if ":" in name else _load_installed(name, values)
        if not isinstance(taskset, package.Taskset):
            raise ConfigError(f"verifiers: {name!r} gives {taskset!r:.60}, expected a verifiers.v1.Taskset.")
        first = next(iter(taskset), None)
    except AnsatzError:
        raise
    except Exception as error:  # code of another project can raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"verifiers: environment {name!r} with arguments = {values} cannot be loaded ({reason:.300}). Install it, "
            "or correct its arguments."
        ) from error
    if first is None:
        raise ConfigError(f"verifiers: the taskset {name!r} with arguments = {values} has no tasks.")
    return taskset, first


def _load_named(name: TrustedText, values: dict[str, Any]) -> Any:
    """Return the taskset of a class or function in a file."""
    made = load_attribute(name, kind="verifiers environment")
    if not isinstance(made, type):
        return made(**values)
    generic = importlib.import_module("verifiers.v1.utils.generic")
    package = load_package()
    kind = generic.concrete_type(made, package.TasksetConfig, origin=package.Taskset) or package.TasksetConfig
    return made(kind.model_validate(values))


def _load_installed(name: TrustedText, values: dict[str, Any]) -> Any:
    """Return an installed taskset. Raise ConfigError if its package plays it by more than its tasks."""
    loaders = importlib.import_module("verifiers.v1.utils.loaders")
    played = loaders.environment_class(name)
    harness = loaders.default_harness_id(name)
    if played is not loaders.SingleAgentEnv or harness == name:
        owner = f"class {played.__name__}" if harness != name else "harness"
        raise ConfigError(
            f"verifiers: the taskset {name!r} brings a {owner} of its own, which runs agents of that package. Ansatz "
            "plays tasks and their toolsets only: use another taskset, or write the game as a Toolset."
        )
    return loaders.load_taskset(loaders.taskset_config_type(name).model_validate({**values, "id": name}))


def load_package() -> Any:
    """Return `verifiers.v1`. Raise MissingExtraError if the package is not installed, or an older version."""
    try:
        package = importlib.import_module("verifiers.v1")
        _ = package.Taskset, package.Toolset, package.TraceTask
    except (ImportError, AttributeError) as error:
        raise MissingExtraError(
            f"verifiers needs the package verifiers 0.4 ({error}): {install_command('verifiers')}"
        ) from error
    return package


def _problem(task: Any, *, split: str) -> Problem:
    data = task.data
    given = [{"role": "user", "content": data.prompt}] if isinstance(data.prompt, str) else data.prompt or []
    turns = [_message(turn, data.idx) for turn in given]
    if not turns or turns[-1]["role"] != "user":
        raise ConfigError(f"verifiers: the prompt of task {data.idx} does not end with a user's message.")
    if data.system_prompt is not None:
        turns.insert(0, {"role": "system", "content": data.system_prompt})
    return Problem(
        id=f"{data.id or data.name or 'task'}-{split}-{data.idx}",
        question=turns[-1]["content"],
        answers=answers_of(str(getattr(data, "answer", ""))),
        source="verifiers",
        split=split,
        # As text, the data of the task survive being stored with the problem.
        meta={"task": data.model_dump_json(), **({"earlier_turns": turns[:-1]} if len(turns) > 1 else {})},
    )


def _message(turn: Any, index: int) -> dict[str, Any]:
    fields: dict[str, Any] = turn if isinstance(turn, dict) else turn.model_dump()
    content: Any = fields.get("content")
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "\n".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise ConfigError(f"verifiers: the prompt of task {index} has the content {content!r:.60}, expected text.")
    return {"role": str(fields["role"]), "content": content}

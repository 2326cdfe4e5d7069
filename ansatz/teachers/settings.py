"""The section `teacher` of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ansatz.config.schema import Config
from ansatz.errors import ConfigError
from ansatz.registry import bind
from ansatz.types import Problem

ONLY = ""
"""The name of the teacher of a recipe with a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherSettings:
    """A model whose distribution the policy learns from, on the policy's own responses.

    path: a folder or a model of the hub with the policy's tokenizer. null: the policy at the start of the stage.
    prompt: the text that the teacher reads instead of the question, in the run's template, with the fields {question},
    {solution} (the worked solution), {answer} (the gold answer), {response} (another response to the same problem that
    is correct) and {verdict} (why the response is wrong). A paragraph with a field that has no value is left out. null:
    the policy's own prompt.
    temperature: divides the teacher's logits. null: the temperature of `rollout`.
    average: with path null, after each step the teacher becomes average x teacher + (1 - average) x policy. 0: it
    stays the policy at the start.
    quantize: nf4: the teacher's linear layers have weights of 4 bits (on a GPU). null: as they are stored.
    by_source: several teachers by the source, topic or level of a problem: {SOURCE: {path: ..., prompt: ...}, ...}. The
    settings next to it hold for the other problems. null: one teacher for all.
    """

    path: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    average: float = 0.0
    quantize: Literal["nf4"] | None = None
    by_source: Mapping[str, Mapping[str, Any]] | None = None


def teachers_of(config: Config) -> dict[str, TeacherSettings]:
    """Return the teachers of a recipe by name; `ONLY` is the one of problems that no other name fits.

    Raise ConfigError for a setting that is unknown, of a wrong type or range, or without an effect.
    """
    first = _bound(config.teacher or {}, "teacher")
    named = cast("Mapping[str, Any]", first.by_source or {})
    return {ONLY: first} | {name: _bound(each, f"teacher.by_source.{name}") for name, each in named.items()}


def name_of(problem: Problem, teachers: Mapping[str, Any]) -> str:
    """Return the name of the teacher of a problem."""
    topic = problem.meta.get("topic")
    topics = topic if isinstance(topic, list | tuple) else (topic,)
    names = (problem.origin, problem.source, *cast("tuple[Any, ...]", topics), problem.level)
    return next((name for name in names if name and name in teachers), ONLY)


def key_of(name: str) -> str:
    """Return the key of a recipe that names the model of a teacher."""
    return "teacher.path" if name == ONLY else f"teacher.by_source.{name}.path"


def _bound(settings: Any, key: str) -> TeacherSettings:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{key} = {settings!r:.60}: expected settings, such as {{path: FOLDER}}.")
    teacher: TeacherSettings = bind(TeacherSettings, cast("Mapping[str, Any]", settings), what=key)()
    if key != "teacher" and teacher.by_source is not None:
        raise ConfigError(f"{key}.by_source: a teacher by source has no further ones. Leave it out.")
    if not 0 <= teacher.average < 1:
        raise ConfigError(f"{key}.average = {teacher.average:g}: expected at least 0 and less than 1, such as 0.99.")
    if teacher.temperature is not None and teacher.temperature <= 0:
        raise ConfigError(f"{key}.temperature = {teacher.temperature:g}: expected more than 0.")
    for name in ("average", "quantize"):
        value, is_given = getattr(teacher, name), getattr(teacher, name) not in (None, 0.0)
        if is_given and (teacher.path is None) != (name == "average"):
            other = "a path" if name == "average" else "no path"
            raise ConfigError(f"{key}.{name} = {value!r} has no effect on a teacher with {other}. Leave it out.")
    return teacher


FIELDS = ("question", "solution", "answer", "response", "verdict")
"""The fields of `TeacherSettings.prompt`."""

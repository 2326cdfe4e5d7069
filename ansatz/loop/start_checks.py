"""The checks of a recipe before a run starts, for `ansatz train`, `ansatz explain` and `ansatz check`.

It is one list, so that they cannot differ: the recipe, the files that it names, the machine, the template, and every
prompt and demonstration with the model's tokenizer. Nothing is written, no weights are loaded, and the cheapest checks
come first. `loop.run_folder` checks that the run's folder is free, and `loop.workplace` that a cluster has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain

from ansatz.config.schema import Config
from ansatz.config.stage_list import unread_keys
from ansatz.environments.base import bind_environment
from ansatz.errors import (
    AnsatzError,
    ConfigError,
    MissingExtraError,
    MissingFileError,
    MissingModelError,
    ModelError,
    NoSpaceError,
    NotStoredError,
    UnreachableError,
)
from ansatz.hub import model_folder, stored_only
from ansatz.loop.disk import check_run_space
from ansatz.loop.model_recipe import with_template
from ansatz.loop.run_sources import RunSources
from ansatz.loop.shown_texts import note_texts
from ansatz.loop.stages.plan import PlannedStage, find_stage, planned_stages
from ansatz.loop.stages.stage import Stage
from ansatz.models.load import text_part
from ansatz.rollout.engines import check_engine
from ansatz.train.optimizers import bind_optimizer

ELSEWHERE = (MissingFileError, MissingModelError, MissingExtraError, UnreachableError)
"""Errors about this machine, and not about a recipe that is meant for another one."""
Check = Callable[[], object]
"""Raises an AnsatzError if the recipe cannot run."""


def check_recipe(config: Config) -> None:
    """Raise for a recipe that could not run. Needs only the recipe: no data, no model, no GPU."""
    for check in recipe_checks(config):
        check()


def recipe_checks(config: Config) -> Iterable[Check]:
    """Yield the checks of every stage with the recipe, then of the entries in its list of stages that change it."""
    for declaration in config.declarations:
        if declaration.section is None or getattr(config, declaration.name) is not None:
            yield partial(find_stage(declaration, config).check, config)
    problems, *entries = planned_stages(config)
    yield from [partial(_check_entry, problems.stage, entry, config) for entry in entries if entry.config is not config]


def _check_entry(problems: Stage, entry: PlannedStage, config: Config) -> None:
    """Raise ConfigError, with the name of the entry, for what the entry changes in the recipe."""
    try:
        if (entry.config.data, entry.config.rewards) != (config.data, config.rewards):
            problems.check(entry.config)
        bind_optimizer(entry.config.train.optimizer)
        environment = bind_environment(entry.config.environment, template=entry.config.data.template)
        check_engine(entry.config.rollout, environment)
        entry.stage.check(entry.config)
    except ConfigError as error:
        raise ConfigError(f"stages, {entry.title}: {error}") from error


def check_inputs(sources: RunSources, stages: Sequence[PlannedStage] | None = None) -> None:
    """Raise if these stages read problems, models or files that are missing or wrong. None: all stages."""
    for check in input_checks(sources, stages):
        check()


def input_checks(sources: RunSources, stages: Sequence[PlannedStage] | None = None) -> Iterable[Check]:
    for entry in planned_stages(sources.config) if stages is None else stages:
        yield from entry.stage.input_checks(sources.at(entry.config))


def text_checks(sources: RunSources) -> Iterable[Check]:
    """Yield the checks of every stage with the tokenizer of the recipe's model."""
    reader = sources.reader()
    for entry in planned_stages(sources.config):
        yield partial(entry.stage.check_problems, sources.at(entry.config), reader)
    yield partial(note_texts, sources, reader)


def check_start(
    sources: RunSources, *, has_space: bool = False, may_miss: tuple[type[AnsatzError], ...] = ()
) -> tuple[list[str], list[str]]:
    """Raise an error that would stop a new run before its first step, except that its folder is in use or its cluster
    full. The recipe of the sources becomes the one that a run uses: its template is named.

    Return notes for the user: a sentence about that template, unless the recipe names it, and sentences about the
    problems and the entries of `stages`; and errors of the kinds `may_miss`, for checks that could not be made.
    has_space: the disk need not be checked.
    """
    missing, note, config = list[str](), "", sources.config
    of_machine = [] if has_space else [partial(check_run_space, config)]
    for check in chain(recipe_checks(config), input_checks(sources), of_machine):
        with _collecting(missing, may_miss):
            check()
    sources.notes += unread_keys(config)
    with _collecting(missing, may_miss):
        sources.config, note = with_template(config)
        for check in text_checks(sources):
            with _collecting(missing, may_miss):
                check()
    return [*filter(None, [note, _text_part(config)]), *sources.notes], missing


def _text_part(config: Config) -> str | None:
    """Return a sentence about a model if only its text part is trained; None for others, and without its folder."""
    if config.model.path is None or config.model.built:
        return None
    with stored_only(), suppress(ModelError, NotStoredError):
        return text_part(model_folder(config.model.path))
    return None


def explained(config: Config, *, elsewhere: bool) -> tuple[RunSources, list[str]]:
    """Make the checks of `check_start` for a recipe that is not run here. Return its sources, with the recipe that they
    will use, and sentences about checks that could not be made here: nothing is downloaded. Nothing is written either,
    so a full disk is only a note.

    elsewhere: the recipe is meant for a machine with its files, packages and servers. They may be missing here.
    """
    sources, may_miss = RunSources(config), (NotStoredError, *(ELSEWHERE if elsewhere else ()))
    with stored_only():
        _, missing = check_start(sources, has_space=True, may_miss=may_miss)
        with suppress(*may_miss), _collecting(sources.notes, (NoSpaceError,)):
            check_run_space(config)
    return sources, missing


@contextmanager
def _collecting(sentences: list[str], kinds: tuple[type[AnsatzError], ...]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        if str(error) not in sentences:
            sentences.append(str(error))

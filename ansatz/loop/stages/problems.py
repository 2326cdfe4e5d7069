"""The first stage: stores the problems of each split, so that later stages and a resumed run read the same ones.

problems/{sft,train,heldout}.jsonl    as `data.store` writes them
problems/decontamination.json         the known origin of each training file
problems/unfit.json                   the rows that data.unfit: drop left out, if there are any
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ansatz.config.chat import AUTO
from ansatz.config.schema import Config
from ansatz.config.stage_list import stage_entries
from ansatz.data.curriculum import curriculum_settings
from ansatz.data.hygiene.report import provenance
from ansatz.data.store import stored_lines, write_problems
from ansatz.errors import ConfigError
from ansatz.files import write_text
from ansatz.loop.builders import check_source, graders_of
from ansatz.loop.context import RunContext
from ansatz.loop.own_reward_model import check_own_critic, check_own_rewards
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.stage import Stage
from ansatz.prompts.templates import check_unseen, read_shots, spelled_out, template_text
from ansatz.rewards.grader import sources_of
from ansatz.track.overlap import overlap


class ProblemsStage(Stage):
    makes_policy = False

    def check(self, config: Config) -> None:
        """Check data sources, template, curriculum and rewards: that they exist and accept the recipe's settings."""
        for split in ("sft", "train", "heldout"):
            if (section := getattr(config.data, split)) is not None:
                check_source(section, key=f"data.{split}")
        for given in (config.data.template, config.evaluate.template):
            template = None if given is None else spelled_out(given)
            if template != AUTO and template is not None:
                template_text(template if isinstance(template, str) else template.user)
            if given is not None and not isinstance(given, str) and given.shots is not None:
                read_shots(given.shots, num_shots=given.num_shots)
        if config.evaluate.template == AUTO:
            raise ConfigError("evaluate.template: auto is what leaving it out means. Name a template, or leave it out.")
        if config.data.curriculum is not None:
            curriculum_settings(config.data.curriculum)
            if config.data.order == "file":
                raise ConfigError("data.order: file has no effect with data.curriculum. Leave one of them out.")
        check_own_rewards(config)
        check_own_critic(config)
        for grader in graders_of(config):
            grader.close()

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        """Check that every split can be read and stored, and that its gold answers are readable."""
        for of_entry, split in sources.every_file():
            yield partial(of_entry.source, split)
            yield partial(_check_stored, of_entry, split)
            yield partial(_check_templates, of_entry, split)
            if split == "heldout":
                yield partial(_check_shots, of_entry)
        yield partial(_check_sources_of_rewards, sources)
        for entry in stage_entries(sources.config):
            own, of_run = entry.config, sources.config
            if (own.rewards, own.data.train) != (of_run.rewards, of_run.data.train):
                yield partial(_check_sources_of_rewards, sources.at(entry.config))
                yield sources.at(entry.config).check_rewards
        yield partial(check_best, sources)

    def run(self, context: RunContext, folder: Path) -> Path:
        trained_on = dict[str, object]()
        for sources, split in context.sources.every_file():
            write_problems(folder / f"{sources.file_of(split)}.jsonl", sources.source(split))
            if split != "heldout":
                trained_on[sources.file_of(split)] = provenance(getattr(sources.config.data, split))
        _note_overlap(context)
        context.sources.write_unfit()
        write_text(folder / "decontamination.json", json.dumps(trained_on, indent=2))
        return folder


def _note_overlap(context: RunContext) -> None:
    """Say on the console if held-out problems are trained on too."""
    found = overlap(context.config.run_dir, problems=context.config.evaluate.problems)
    if found is not None and found.seen and context.console is not None:
        context.console.note(f"data.heldout: {found.sentence()}")


def _check_templates(sources: RunSources, split: str) -> None:
    """Raise ConfigError for an unknown prompt template of a part or row."""
    for name in {problem.template for problem in sources.problems(split)} - {None}:
        template_text(str(name))


def _check_shots(sources: RunSources) -> None:
    """Raise ConfigError if a prompt of the run or of an entry shows the answer of an evaluated problem."""
    problems = sources.problems("heldout")[: sources.config.evaluate.problems]
    for entry in stage_entries(sources.config):
        check_unseen(entry.config.data.template, problems)
    check_unseen(sources.config.evaluate.template or "", problems)


def _check_sources_of_rewards(sources: RunSources) -> None:
    """Raise ConfigError if a reward is bound to a source without problems, or if problems have no reward."""
    recipe = sources.config.rewards
    bound = {name: sources_of(name, settings) for name, settings in recipe.items()}
    if all(names is None for names in bound.values()):
        return
    kinds = {problem.origins: problem.origin for split in ("train", "heldout") for problem in sources.problems(split)}
    listed = f"data.train and data.heldout have {', '.join(sorted(set(kinds.values())))}"
    for name, names in bound.items():
        if unknown := sorted(each for each in names or () if not any(each in kind for kind in kinds)):
            raise ConfigError(f"rewards.{name}.sources: no problem is from {unknown[0]!r}; {listed}.")
    for kind, origin in kinds.items():
        if not any(names is None or names & kind for names in bound.values()):
            raise ConfigError(f"no reward applies to the problems of {origin!r}. Bind one to this source.")


def check_best(sources: RunSources) -> None:
    """Raise ConfigError if save.best names a source, but the evaluated problems include none of it, or only these."""
    if isinstance(best := sources.config.save.best, bool):
        return
    problems = sources.problems("heldout")[: sources.config.evaluate.problems]
    origins = dict.fromkeys(problem.origin for problem in problems)
    if best not in origins or len(origins) < 2:
        raise ConfigError(
            f"save.best = {best!r}: expected true, false or one of several sources of data.heldout, which are "
            f"{', '.join(map(repr, origins))}."
        )


def _check_stored(sources: RunSources, split: str) -> None:
    """Raise DataError if the problems cannot be stored, for example because two share an id."""
    for _ in stored_lines(sources.unstored(split)):  # a run that was killed here has stored nothing yet
        pass

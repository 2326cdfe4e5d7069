"""The first stage: stores the problems of each split, so that later stages and a resumed run read the same ones.

problems/{sft,train,heldout}.jsonl    as `data.store` writes them
problems/decontamination.json         what is known about the origin of each training file
problems/unfit.json                   the rows that data.unfit: drop left out, if there are any
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ansatz.config.chat import AUTO
from ansatz.config.schema import Config
from ansatz.data.curriculum import curriculum_settings
from ansatz.data.hygiene.report import provenance
from ansatz.data.store import stored_lines, write_problems
from ansatz.files import write_text
from ansatz.loop.builders import check_source
from ansatz.loop.context import RunContext
from ansatz.loop.own_reward_model import check_own_critic, check_own_rewards
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.stage import Stage
from ansatz.prompts.chat import spelled_out
from ansatz.prompts.templates import template_text
from ansatz.rewards.grader import build_grader
from ansatz.rewards.learned import rewards_before
from ansatz.track.overlap import overlap


class ProblemsStage(Stage):
    makes_policy = False

    def check(self, config: Config) -> None:
        """Data sources, template, curriculum and rewards exist and have the settings that the recipe gives."""
        for split in ("sft", "train", "heldout"):
            if (section := getattr(config.data, split)) is not None:
                check_source(section, key=f"data.{split}")
        template = spelled_out(config.data.template)
        if template != AUTO:
            template_text(template if isinstance(template, str) else template.user)
        if config.data.curriculum is not None:
            curriculum_settings(config.data.curriculum)
        check_own_rewards(config)
        check_own_critic(config)
        build_grader(rewards_before(config.rewards), workers=config.grader_workers).close()

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        """Every split can be read and stored, and its gold answers are readable."""
        for split in sources.splits:
            yield partial(sources.source, split)
            yield partial(_check_stored, sources, split)

    def run(self, context: RunContext, folder: Path) -> Path:
        config = context.config
        for split in context.splits:
            write_problems(folder / f"{split}.jsonl", context.source(split))
        _note_overlap(context)
        context.write_unfit(folder)
        trained_on = {split: provenance(getattr(config.data, split)) for split in context.splits if split != "heldout"}
        write_text(folder / "decontamination.json", json.dumps(trained_on, indent=2))
        return folder


def _note_overlap(context: RunContext) -> None:
    """Say on the console if held-out problems are trained on too."""
    found = overlap(context.config.run_dir, problems=context.config.evaluate.problems)
    if found is not None and found.seen and context.console is not None:
        context.console.note(f"data.heldout: {found.sentence()}")


def _check_stored(sources: RunSources, split: str) -> None:
    """DataError if the problems cannot be stored, for example because two have the same id."""
    for _ in stored_lines(sources.unstored(split)):  # a run that was killed here has stored nothing yet
        pass

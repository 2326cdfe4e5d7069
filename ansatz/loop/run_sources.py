"""The inputs of a run: its recipe, the problems that it names and its model's reading of them.

Problems that the run cannot use stop it or are left out, as the recipe key data.unfit says. A row is unfit if a field
is missing, if a reward cannot read its gold answer, or if its prompt or demonstration is too long. All unfit rows of a
split are reported at once.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from ansatz_verify.grade import equivalent

from ansatz.config.chat import Template
from ansatz.config.schema import Config
from ansatz.config.stage_list import stage_entries
from ansatz.data.conflicts import GoldsByQuestion
from ansatz.data.generated import LazyProblems
from ansatz.data.store import read_problems, write_problems
from ansatz.data.unfit import UnfitRow, collect_lost, collect_unfit, describe_lost, short, unfit_message
from ansatz.environments.base import EnvironmentSpec, bind_environment
from ansatz.errors import ConfigError, DataError, ModelError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.loop.builders import built_tokenizer, model_builder, source_problems
from ansatz.loop.rendering import LengthChecker, PromptRenderer
from ansatz.loop.run_folder import read_done
from ansatz.loop.user_code import file_digests
from ansatz.models.reader import Reader, TextReader, reader_of
from ansatz.models.tiny import recipe_shape
from ansatz.rewards.grader import check_golds
from ansatz.types import Problem

SPLITS = ("sft", "train", "heldout")
GENERATED = 1000
"""Problems of a generator whose gold answers are checked: all are of one form, and 490,000 would take a minute."""
Check = Callable[[Sequence[Problem]], None]
"""Raises DataError or ModelError for a problem that cannot be used."""


class HasTokenizer(Protocol):
    """An object with a tokenizer, such as a reader or a trainer."""

    @property
    def tokenizer(self) -> Any: ...


class RunSources:
    """The recipe of a run and the problems of its sections of `data`, which are read once and rendered once, whichever
    stages use them. Before the run `begin`s, nothing is written.

    config: the recipe; for a stage, the recipe of its entry in the list of stages (`at`). unfit: problems that were
    left out.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.unfit = UnfitProblems(config.data.unfit)
        self.notes: list[str] = []
        """Notes for the user about the problems and their prompts, before the run starts."""
        self.shown: list[str] = []
        """A prompt and a demonstration as the policy gets them."""
        self._sections = {split: getattr(config.data, split) for split in SPLITS}
        self._sources: dict[str, Sequence[Problem]] = {}
        self._problems: dict[str, Sequence[Problem]] = {}
        self._renderers: dict[tuple[int, int, str], PromptRenderer] = {}
        self._has_begun = False

    def at(self, config: Config) -> RunSources:
        """Return these sources with the recipe of an entry of the list of stages. They share all that has been read."""
        entry = copy.copy(self)
        entry.config = config
        return entry

    def begin(self) -> None:
        """From now on, read the problems that the stage `problems` has stored, and store those that are kept."""
        self._has_begun = True
        self._problems.clear()
        if self.config.model.built:  # its tokenizer is not stored yet
            self._renderers.clear()

    @property
    def splits(self) -> tuple[str, ...]:
        """The sections of `data` that the stages of the recipe use."""
        has_sft = "sft" in self.config.stage_names and self.config.data.sft is not None
        return SPLITS if has_sft else SPLITS[1:]

    def file_of(self, split: str) -> str:
        """Return the file name of the problems of a split, without its ending. It has a digest if an entry of the
        list of stages names another section of `data` than the run."""
        section = getattr(self.config.data, split)
        digest = hashlib.sha256(json.dumps(section, sort_keys=True).encode()).hexdigest()
        return split if section == self._sections[split] else f"{split}-{digest[:8]}"

    def every_file(self) -> Iterator[tuple[RunSources, str]]:
        """Yield the sources and the split of all problems of the run, for the first entry that names them."""
        seen = set[str]()
        for sources in (self.at(entry.config) for entry in stage_entries(self.config)):
            for split in sources.splits:
                if (file := sources.file_of(split)) not in seen:
                    seen.add(file)
                    yield sources, split

    def source(self, split: str) -> Sequence[Problem]:
        """Return the problems that a section of `data` names, before the stage `problems` has stored them."""
        if (file := self.file_of(split)) not in self._sources:
            with collect_unfit() as unread, collect_lost() as lost:
                problems = source_problems(getattr(self.config.data, split), key=f"data.{split}")
            self._note_data(split, problems, lost, total=len(problems) + len(unread))
            graded = split != "sft"  # demonstrations are imitated, never graded
            more = self.config.evaluate.rewards if split == "heldout" else {}
            check = partial(self._check_golds, {**self.config.rewards, **more}) if graded else accept
            self._sources[file] = self.unfit.usable(file, problems, check, unread=unread)
        return self._sources[file]

    def _note_data(self, split: str, problems: Sequence[Problem], lost: Counter[str], *, total: int) -> None:
        """Note the fields of a section of `data` that nothing uses, not even the user's own code, and its questions
        with several gold answers."""
        if isinstance(problems, LazyProblems):
            return
        code = "\n".join(
            Path(name).read_text(encoding="utf-8", errors="replace")
            for name in (file_digests(self.config.model_dump()) if lost else ())
            if name.endswith(".py")
        )
        unused = {name: count for name, count in lost.items() if name.rpartition(" ")[2] not in code}
        golds = GoldsByQuestion(lambda left, right: equivalent(left, right).correct)
        for problem in problems:
            golds.add(problem)
        sentences = (describe_lost(unused, total=total), golds.sentence())
        self.notes += [f"data.{split}: {sentence}" for sentence in sentences if sentence]

    def problems(self, split: str) -> Sequence[Problem]:
        """Return the problems of a split that the stage `problems` has stored. Before that, those whose texts are
        checked: all that no check has left out; of a generator, the first `GENERATED`."""
        if (file := self.file_of(split)) not in self._problems:
            if self._has_begun and read_done(self._folder) is None:
                return self.unstored(split)
            stored = self._folder / f"{file}.jsonl"
            self._problems[file] = read_problems(stored) if self._has_begun else self.unstored(split)
        return self._problems[file]

    def unstored(self, split: str) -> Sequence[Problem]:
        """Return the problems of a split before a check leaves any out, from the source, whatever a run has stored."""
        problems = self.source(split)
        return problems[:GENERATED] if isinstance(problems, LazyProblems) else problems

    def drop_unfit(self, split: str, check: Check, *, first: int | None = None) -> None:
        """Apply data.unfit to the problems of a split: problems that `check` refuses are an error, or are left out.

        first: the number of problems that the run uses, from the first on; later problems cannot be an error.
        """
        problems = self.problems(split)
        if self.config.data.unfit == "error":
            self.unfit.usable(self.file_of(split), problems[:first], check)
            return
        usable = self.unfit.usable(self.file_of(split), problems, check)
        if len(usable) < len(problems):
            self.keep(split, usable)

    def keep(self, split: str, problems: Sequence[Problem]) -> None:
        """Use only these problems of a split from now on. Those of a run that has begun replace its stored ones."""
        file = self.file_of(split)
        if self._has_begun:
            write_problems(self._folder / f"{file}.jsonl", problems)
            self.write_unfit()
        self._problems[file] = problems

    def write_unfit(self) -> None:
        """Add the rows that were left out to problems/unfit.json: {split: [{place, reason, gold}, ...]}."""
        path = self._folder / "unfit.json"
        rows: dict[str, list[Any]] = (
            read_object(path, error=DataError, advice="Remove the file.") if path.is_file() else {}
        )
        for split, dropped in self.unfit.dropped.items():
            known = rows.setdefault(split, [])
            known += [row._asdict() for row in dict.fromkeys(dropped) if row._asdict() not in known]
        if rows:
            write_text(path, json.dumps(rows, indent=2))

    def check_stored(self) -> None:
        """Raise ConfigError for problems that the run does not have: an entry that names them was added later."""
        for split in self.splits:
            if not (self._folder / f"{self.file_of(split)}.jsonl").is_file():
                raise ConfigError(
                    f"stages: an entry names problems for data.{split} that this run did not store at its start. Start "
                    "a new run with --name NAME, or leave them out of the entry."
                )

    @property
    def _folder(self) -> Path:
        """The folder of the stage `problems`."""
        return self.config.run_dir / "problems"

    def reader(self) -> Reader:
        """Return the reader of texts of the recipe's model, without its weights. If the model will be built, the
        tokenizer is trained as it will be then."""
        config = self.config
        if config.model.path is not None and not config.model.built:
            return reader_of(config.model.path)
        model_builder(config)
        tokenizer = built_tokenizer(config, self.source(self.splits[0]))
        return TextReader(tokenizer=tokenizer, max_context=recipe_shape(config).max_context)

    def renderer(self, source: HasTokenizer, *, template: Template | None = None) -> PromptRenderer:
        """Return the renderer of the run. All policies of a run share one tokenizer; a teacher needs its own. template:
        instead of the recipe's, for evaluations with their own."""
        rollout, template = self.config.rollout, template or self.config.data.template
        form = (rollout.max_prompt_tokens, rollout.max_response_tokens, repr(template))
        if form not in self._renderers:
            self._renderers[form] = self.build_renderer(source, template=template)
        return self._renderers[form]

    def build_renderer(self, source: HasTokenizer, *, template: Template | None = None) -> PromptRenderer:
        """Return a new renderer. template: instead of the recipe's, for a teacher with its own."""
        rollout = self.config.rollout
        return PromptRenderer(
            source.tokenizer,
            template or self.config.data.template,
            self.environment(template=template),
            max_prompt_tokens=rollout.max_prompt_tokens,
            max_response_tokens=rollout.max_response_tokens,
        )

    def environment(self, *, template: Template | None = None) -> EnvironmentSpec | None:
        """Return the environment of the recipe; None without one. template: of the prompts, if not the recipe's."""
        return bind_environment(self.config.environment, template=template or self.config.data.template)

    def lengths(self, reader: Reader, *, template: Template | None = None) -> LengthChecker:
        return LengthChecker(self.renderer(reader, template=template), max_context=reader.max_context)

    def check_rewards(self) -> None:
        """Raise DataError if the rewards of an entry of the list of stages cannot read the gold answers."""
        self._check_golds(self.config.rewards, self.source("train"))

    def _check_golds(self, rewards: Mapping[str, Mapping[str, Any]], problems: Sequence[Problem]) -> None:
        check_golds(rewards, problems[:GENERATED] if isinstance(problems, LazyProblems) else problems)


class UnfitProblems:
    """Applies data.unfit, and remembers the rows that were left out of each split."""

    def __init__(self, policy: Literal["error", "drop"]) -> None:
        self._policy = policy
        self.dropped: dict[str, list[UnfitRow]] = {}

    def usable(
        self, split: str, problems: Sequence[Problem], check: Check, *, unread: Sequence[UnfitRow] = ()
    ) -> Sequence[Problem]:
        """Return the problems that `check` accepts. split: a section of `data`, or another key that names rows.
        unread: rows of the split that did not even become problems.

        Raise DataError, with all unfit rows, if data.unfit is "error" and there is one, or if no problem is left.
        """
        unfit, kept = [*unread], problems
        if _refusal(check, problems) is not None:
            refusals = [(problem, _refusal(check, [problem])) for problem in problems]
            kept = [problem for problem, refusal in refusals if refusal is None]
            unfit += [_unfit_row(problem, refusal) for problem, refusal in refusals if refusal is not None]
        if unfit and (self._policy == "error" or not kept):
            what = split if "." in split else f"data.{split}"
            message = unfit_message(unfit, total=len(problems) + len(unread), what=what)
            if len({problem.origin for problem in problems}) > 1:
                message += (
                    " If each source has rewards of its own, bind them to it, as in rewards: {code_tests: {sources: "
                    "[code_tasks]}}."
                )
            raise DataError(message)
        if unfit:
            self.dropped[split] = [*self.dropped.get(split, ()), *unfit]
        return kept


def _refusal(check: Check, problems: Sequence[Problem]) -> str | None:
    """Return why the check refuses the problems; None if it accepts them."""
    try:
        check(problems)
    except (DataError, ModelError) as error:
        return str(error)
    return None


def _unfit_row(problem: Problem, refusal: str) -> UnfitRow:
    line = f" (line {problem.meta['line']})" if "line" in problem.meta else ""
    return UnfitRow(f"problem {problem.id!r}{line}", refusal, short(problem.answer))


def accept(problems: Sequence[Problem]) -> None:
    """Accept problems that are not graded, before the model's tokenizer is known."""

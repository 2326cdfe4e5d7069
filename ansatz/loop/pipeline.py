"""The pipeline of a recipe: problems, model, sft, rejection, rl. Each stage has a folder whose output feeds the next.

    runs/NAME/config.yaml  summary.json  report.html
    runs/NAME/problems/    {sft,train,heldout}.jsonl
    runs/NAME/model/  sft/  rl/     see `track.tracker` and `train.checkpoint`
    runs/NAME/rejection_1/ ...      one a round, see `loop.rejection`

A finished stage leaves done.json; a resumed pipeline skips what is done and goes on from the last whole checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ansatz.config.schema import Config, SftSection, TrainSection
from ansatz.data.curriculum import CurriculumSettings, curriculum_settings
from ansatz.data.hygiene.report import provenance
from ansatz.data.store import read_problems, write_problems
from ansatz.errors import ConfigError
from ansatz.evaluate.evaluate import Evaluator
from ansatz.loop.builders import model_builder, source_problems, tokenizer_texts
from ansatz.loop.lengths import LengthChecker
from ansatz.loop.rejection import (
    RejectionSettings,
    rejection_options,
    rejection_settings,
    round_name,
    round_sampling,
    sample_and_select,
    selected,
    selection_metrics,
)
from ansatz.loop.rl import train_rl
from ansatz.loop.run_folder import claim, seconds_before
from ansatz.loop.sft import SFT_OBJECTIVE, train_sft
from ansatz.loop.state import (
    Clock,
    TrainingStage,
    open_stage,
    read_done,
    write_atomically,
    write_config,
    write_done,
)
from ansatz.models.layers import configure_layers
from ansatz.models.load import Policy, cast, check_folder, compute_dtype, load_policy
from ansatz.models.lora import bind_adapters
from ansatz.models.threads import set_threads
from ansatz.objectives.build import build_objective
from ansatz.objectives.checks import check_recipe
from ansatz.objectives.objective import Objective
from ansatz.prompts.render import render
from ansatz.prompts.templates import CHAT, template_text
from ansatz.rewards.base import Grader
from ansatz.rewards.grader import build_grader, check_golds
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.engines import check_engine, engine_of
from ansatz.track.base import ConsoleSink
from ansatz.track.jsonl import read_jsonl
from ansatz.track.report import write_report
from ansatz.track.tracker import Tracker
from ansatz.train.optim import Schedule
from ansatz.train.optimizers import bind_optimizer
from ansatz.train.trainer import Trainer
from ansatz.types import Problem, Prompt


def run_pipeline(
    config: Config, *, resume: bool = False, fresh: bool = False, console: ConsoleSink | None = None
) -> Path:
    """Runs what is still to do of the recipe and returns the run folder.

    resume: go on in an existing folder. fresh: delete an existing folder first. Raises ConfigError when there is a
    folder and neither was asked for; every check of the recipe, its data and its model comes before any training.
    """
    pipeline = Pipeline(config, console, resume=resume)
    claim(config.run_dir, resume=resume, fresh=fresh)
    return pipeline.run()


class Pipeline:
    """One run of a recipe: its components are built, and so checked, before anything is written."""

    def __init__(self, config: Config, console: ConsoleSink | None, *, resume: bool) -> None:
        set_threads(config.threads)
        self.config, self.console, self.run_dir = config, console, config.run_dir
        self.objective: Objective = build_objective(
            config.algorithm, max_response_tokens=config.rollout.max_response_tokens
        )
        check_recipe(self.objective, samples_per_prompt=config.rollout.samples_per_prompt)
        check_engine(config.rollout)
        if config.model.path is not None and not config.model.built:
            check_folder(config.model.path)
        self.build_model = model_builder(config)
        self.add_adapters = bind_adapters(config.model.lora, seed=config.seed)
        bind_optimizer(config.train.optimizer)
        if config.data.template != CHAT:
            template_text(config.data.template)
        has_problems = resume and read_done(self.run_dir / "problems") is not None
        self.sources = {} if has_problems else self._sources()
        self.curriculum = self._checked_curriculum()
        self.rejection = self._checked_rejection()
        self.grader: Grader = build_grader(config.rewards, workers=config.grader_workers)

    def run(self) -> Path:
        write_config(self.config, self.run_dir)
        with self.grader:
            self._stage("problems", self._problems)
            made = self._stage("model", self._model)
            model = loaded = made if self.config.model.built else str(self.config.model.path)
            if "sft" in self.config.stages:
                model = self._stage("sft", lambda folder: self._sft(folder, loaded))
            if self.rejection is not None:
                model = self._rejection(self.rejection, model)
            if "rl" in self.config.stages:
                start = model
                model = self._stage("rl", lambda folder: self._rl(folder, start))
        write_atomically(self.run_dir / "summary.json", json.dumps(self._summary(model), indent=2))
        write_report(self.run_dir)
        return self.run_dir

    def _stage(self, name: str, work: Callable[[Path], Path]) -> str:
        """Runs a stage unless it is done; returns the path of its output, which stands in its folder."""
        folder = self.run_dir / name
        done = read_done(folder)
        if done is None:
            clock, before = Clock(), seconds_before(folder)
            write_config(self.config, folder)
            done = {"output": str(work(folder).relative_to(folder))}
            write_done(folder, **done, seconds=before + clock.lap())
        return str(folder / done["output"])

    def _sources(self) -> dict[str, Sequence[Problem]]:
        """The problems of each split that a stage uses."""
        data, stages = self.config.data, self.config.stages
        sections = {"sft": data.sft if "sft" in stages else None, "train": data.train, "heldout": data.heldout}
        return {
            split: source_problems(section, key=f"data.{split}")
            for split, section in sections.items()
            if section is not None
        }

    def _checked_curriculum(self) -> CurriculumSettings | None:
        if (recipe := self.config.data.curriculum) is None:
            return None
        settings, prompts = curriculum_settings(recipe), self.config.rollout.prompts_per_step
        if "train" in self.sources and len(self.sources["train"]) < prompts:
            raise ConfigError(
                f"data.train has {len(self.sources['train'])} problems and rollout.prompts_per_step is {prompts}: with "
                "data.curriculum a step takes no problem twice. Lower the latter, or give more problems."
            )
        return settings

    def _checked_rejection(self) -> RejectionSettings | None:
        if self.config.rejection is None:
            return None
        settings = rejection_settings(self.config.rejection)
        rejection_options(self.config)
        settings.teaching(self.config)
        if settings.teacher is not None:
            check_folder(settings.teacher)
            if settings.template not in (None, CHAT):
                template_text(settings.template)
        return settings

    def _problems(self, folder: Path) -> Path:
        for split, problems in self.sources.items():
            if split != "sft":  # demonstrations are learned from, not graded
                check_golds(self.config.rewards, problems)
            write_problems(folder / f"{split}.jsonl", problems)
        sections = {"sft": self.config.data.sft, "train": self.config.data.train}
        trained_on = {split: provenance(sections[split] or {}) for split in self.sources if split in sections}
        write_atomically(folder / "decontamination.json", json.dumps(trained_on, indent=2))
        return folder

    def _model(self, folder: Path) -> Path:
        built = self.config.model.built
        if built:
            problems = self._read("sft" if "sft" in self.config.stages else "train")
            self.build_model(folder, texts=tokenizer_texts(problems, self.config.data.template))
        policy = load_policy(folder if built else str(self.config.model.path))
        self._check_fit(policy)
        cast(policy, compute_dtype(self.config.model.dtype, policy.device))
        evaluator = self._evaluator(policy)
        if built:  # random weights never stop early: a quarter of the problems tells enough
            evaluator = dataclasses.replace(evaluator, prompts=evaluator.prompts[: -(-len(evaluator.prompts) // 4)])
        tracker = Tracker(folder, console=self.console, tensorboard=self.config.save.tensorboard, total_steps=0)
        with closing(tracker), closing(self._sampler(policy)) as sampler:
            tracker.evaluation(evaluator.run(sampler, stage=folder.name, step=0))
        return folder

    def _check_fit(self, policy: Policy) -> None:
        fit = LengthChecker(policy, self.config)
        fit.check_prompts(
            self._read("heldout")[: self.config.evaluate.problems],
            max_response_tokens=self.config.evaluate.max_response_tokens,
        )
        if "sft" in self.config.stages:
            fit.check_demonstrations(self._read("sft"))
        if "rl" in self.config.stages or self.rejection is not None:
            fit.check_prompts(self._read("train"))
        if self.rejection is not None:
            limit = rejection_options(self.config).max_response_tokens
            if self.rejection.teacher is not None:
                fit = LengthChecker(load_policy(self.rejection.teacher), self.rejection.asking(self.config))
            fit.check_prompts(self._read("train"), max_response_tokens=limit)

    def _sft(self, folder: Path, model_path: str) -> Path:
        return self._teach(folder, model_path, self.config, self._read("sft"))

    def _rejection(self, settings: RejectionSettings, model: str) -> str:
        """Round after round; gives the last round's policy."""
        start = model
        for number in range(1, settings.rounds + 1):
            work = functools.partial(
                self._round,
                number=number,
                settings=settings,
                sampled_from=settings.teacher or model,
                trained_from=start if settings.from_start else model,
            )
            model = self._stage(round_name(number), work)
        return model

    def _round(
        self, folder: Path, *, number: int, settings: RejectionSettings, sampled_from: str, trained_from: str
    ) -> Path:
        if selected(folder) is None:
            policy, fit = load_policy(sampled_from), LengthChecker(load_policy(trained_from), self.config)
            cast(policy, compute_dtype(self.config.model.dtype, policy.device))
            problems = settings.sampled(self._read("train"), number)
            with closing(self._sampler(policy)) as sampler:
                sample_and_select(
                    folder,
                    self._prompts(policy, problems, template=settings.template),
                    sampler=sampler,
                    sampling=round_sampling(self.config, number),
                    grader=self.grader,
                    settings=settings,
                    fits=fit.fits_demonstration,
                    console=self.console,
                )
        taught = selected(folder)
        assert taught is not None
        return self._teach(
            folder, trained_from, settings.teaching(self.config), taught, first=selection_metrics(folder)
        )

    def _teach(
        self,
        folder: Path,
        model_path: str,
        config: Config,
        demonstrations: Sequence[Problem],
        *,
        first: Mapping[str, float] | None = None,
    ) -> Path:
        """SFT by the config's sft section. first: metrics that are tracked before its first step."""
        once = config.train.model_copy(update={"updates_per_step": 1, "epochs_per_step": 1})
        trainer = self._learner(
            model_path,
            build_objective(SFT_OBJECTIVE),
            settings=once,
            lr=config.sft.lr,
            schedule=_schedule(config.sft),
        )
        with self._open(demonstrations, folder, trainer, steps=config.sft.steps, config=config) as stage:
            if first is not None and stage.first_step == 1:
                stage.tracker.resume(-1)  # without this, a round killed before its first checkpoint has them already
                stage.tracker.log(0, first)
            output = train_sft(stage)
            with closing(self._sampler(trainer.policy)) as sampler:
                row = self._evaluator(trainer.policy).run(sampler, stage=folder.name, step=stage.total_steps)
            stage.tracker.evaluation(row)
        return output

    def _rl(self, folder: Path, model_path: str) -> Path:
        train = self.config.train
        trainer = self._learner(
            model_path,
            self.objective,
            settings=train,
            lr=train.lr,
            schedule=_schedule(train),
            temperature=self.config.rollout.temperature,
        )
        evaluator = self._evaluator(trainer.policy)
        with (
            closing(self._sampler(trainer.policy)) as sampler,
            self._open(self._read("train"), folder, trainer, steps=train.steps, curriculum=self.curriculum) as stage,
        ):
            output = train_rl(stage, sampler=sampler, grader=self.grader, evaluator=evaluator)
            stage.tracker.evaluation(evaluator.run(sampler, stage=folder.name, step=stage.total_steps))
        return output

    def _learner(self, model_path: str, objective: Objective, **how: Any) -> Trainer:
        model, policy = self.config.model, load_policy(model_path)
        dtype = compute_dtype(model.dtype, policy.device)
        if self.add_adapters is not None:
            policy = self.add_adapters(policy)
        configure_layers(policy, checkpointing=model.checkpointing, compiled=model.compile)
        return Trainer(policy, objective, dtype=dtype, **how)

    @contextmanager
    def _open(
        self,
        problems: Sequence[Problem],
        folder: Path,
        trainer: Trainer,
        *,
        steps: int,
        curriculum: CurriculumSettings | None = None,
        config: Config | None = None,
    ) -> Iterator[TrainingStage]:
        stage = open_stage(
            config or self.config,
            folder,
            trainer=trainer,
            problems=problems,
            total_steps=steps,
            console=self.console,
            curriculum=curriculum,
        )
        with closing(stage.tracker):
            yield stage

    def _sampler(self, policy: Policy) -> Sampler:
        return engine_of(self.config.rollout.engine)(policy)

    def _evaluator(self, policy: Policy) -> Evaluator:
        config = self.config
        return Evaluator(
            prompts=self._prompts(policy, self._read("heldout")[: config.evaluate.problems]),
            grader=self.grader,
            sampling=Sampling.of(config.evaluate, seed=config.seed),
            k=config.evaluate.k,
            split="heldout",
        )

    def _prompts(self, policy: Policy, problems: Sequence[Problem], *, template: str | None = None) -> list[Prompt]:
        limit = self.config.rollout.max_prompt_tokens
        return [
            render(problem, template or self.config.data.template, policy.tokenizer, max_prompt_tokens=limit)
            for problem in problems
        ]

    def _read(self, split: str) -> Sequence[Problem]:
        return read_problems(self.run_dir / "problems" / f"{split}.jsonl")

    def _stage_names(self) -> Iterator[str]:
        """The folders of the stages, in order: one a round of rejection sampling."""
        for stage in self.config.stages:
            if stage == "rejection" and self.rejection is not None:
                yield from map(round_name, range(1, self.rejection.rounds + 1))
            else:
                yield stage

    def _summary(self, model: str) -> dict[str, Any]:
        folders = [self.run_dir / name for name in self._stage_names()]
        evaluations = [row for folder in folders for row in read_jsonl(folder / "evaluations.jsonl")]
        seconds = sum(done["seconds"] for folder in folders if (done := read_done(folder)) is not None)
        return {"seconds": round(seconds, 3), "model": model, "evaluations": evaluations}


def _schedule(section: TrainSection | SftSection) -> Schedule:
    return Schedule(warmup_steps=section.warmup_steps, decay_steps=section.decay_steps, total_steps=section.steps)

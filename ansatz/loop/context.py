"""The objects that the stages of a run share: their inputs (`loop.run_sources`), and the objects built for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ansatz.config.chat import Template
from ansatz.config.schema import REWARD_MODEL, Config, ScheduleSection, TrainSection
from ansatz.evaluate.evaluate import Evaluator
from ansatz.loop.exact_evaluation import Predicts, solution_logps
from ansatz.loop.held_run import HeldRun
from ansatz.loop.interrupts import Interrupts
from ansatz.loop.own_reward_model import list_own_rewards, rewards_before, rewards_with
from ansatz.loop.run_sources import RunSources
from ansatz.loop.trainers import TrainerSpec, copy_of_trained, load, load_base
from ansatz.loop.workplace import Workplace
from ansatz.models.load import Policy, cast, compute_dtype
from ansatz.models.lora import FOLDER
from ansatz.objectives.objective import Objective
from ansatz.rewards.base import Grader
from ansatz.rewards.grader import build_grader
from ansatz.rollout.base import Sampler, Sampling
from ansatz.rollout.engines import engine_of
from ansatz.track.base import ConsoleSink
from ansatz.train.checkpoint import is_resumable
from ansatz.train.placement import has_exact_weights
from ansatz.train.trainer import Trainer


class Output(NamedTuple):
    """The output of a finished stage. folder: its name in the run, such as "rl_2". path: of the output within it."""

    stage: str
    folder: str
    path: str


class RunContext:
    """One run of a recipe. It builds the trainers, samplers, graders and evaluators of the stages.

    sources: the inputs. outputs: of the stages that are done, in order. start_model: the model folder of the policy at
    the start of the running entry of the list of stages. bases: the base model of the adapters in a folder of the run.
    graders: for training and for evaluations. held: the run's folder, which `run_pipeline` sets when this process has
    locked it.
    """

    held: HeldRun
    watch_trainer: Callable[[Any, Path, Any], object]

    def __init__(
        self,
        sources: RunSources,
        workplace: Workplace,
        graders: tuple[Grader, Grader],
        *,
        console: ConsoleSink | None,
        interrupts: Interrupts,
    ) -> None:
        sources.begin()
        self.sources, self.workplace, self.console, self.interrupts = sources, workplace, console, interrupts
        self.grader, self.evaluation_grader = graders
        self.outputs: list[Output] = []
        self.start_model = str(sources.config.model.path)
        self._models = [self.start_model]
        self.bases: dict[str, str] = {}
        self._run_seed = sources.config.seed

    @contextmanager
    def at(self, config: Config) -> Iterator[RunContext]:
        """Yield this run for an entry of the list of stages, with the grader of its rewards. config: the recipe with
        the changes of the entry."""
        entry = copy.copy(self)  # outputs, models and bases stay the same objects, which all entries add to
        entry.sources, entry.start_model = self.sources.at(config), self.model
        if config.rewards == self.config.rewards:
            yield entry
            return
        with build_grader(rewards_before(config.rewards), workers=config.grader_workers) as entry.grader:
            yield entry

    @property
    def config(self) -> Config:
        return self.sources.config

    @property
    def model(self) -> str:
        """The newest model folder of the policy."""
        return self._models[-1]

    def add_output(self, output: Output, *, policy: str | None) -> None:
        """Record the output of a stage. policy: the model folder that later stages start from, if it makes one."""
        self.outputs.append(output)
        if policy is None:
            return
        base = self.base_of(self.start_model)
        if self.config.model.lora is not None and (Path(policy) / FOLDER).is_dir() and policy != base:
            self.bases[policy] = base
        self._models.append(policy)

    def outputs_of(self, stage: str) -> list[Output]:
        """Return the outputs of a stage, in order: one for each of its folders that are done."""
        return [output for output in self.outputs if output.stage == stage]

    def base_of(self, path: str) -> str:
        """Return the base model of the adapters in a folder of this run; any other path itself."""
        return self.bases.get(path, path)

    def policy(self, path: str) -> Policy:
        """Load a model in the recipe's compute type, to sample from. A model that a stage names, such as a teacher,
        never gets weights of 4 bits."""
        if path in self.bases and self.config.model.quantize is not None:
            return self.copy_of_trained(path)  # its merged weights would be rounded to other numbers of 4 bits
        is_another = path in self.config.models_of_stages.values() and path != self.config.model.path
        policy = load(path) if is_another else load_base(self.config.model, path)
        cast(policy, compute_dtype(self.config.model.dtype, policy.device))
        return policy

    def copy_of_trained(self, path: str) -> Policy:
        """Build a policy like the policy of `trainer(path)`. The trained weights of any of its versions fit."""
        return copy_of_trained(self.config.model, path, base=self.base_of(path), seed=self.config.seed)

    def sampler(self, policy: Policy, *, template: Template | None = None) -> Sampler:
        """Build the sampler of a policy. template: of the prompts, for a teacher with its own."""
        return engine_of(self.config.rollout.engine, self.sources.environment(template=template))(policy)

    @contextmanager
    def rl_grader(self) -> Iterator[Grader]:
        """Yield the grader for RL: the grader of the entry, or one with the newest reward model of the run."""
        if not list_own_rewards(self.config.rewards):
            yield self.grader
            return
        rewards = rewards_with(self.config.rewards, self.outputs_of(REWARD_MODEL)[-1].path)
        with build_grader(rewards, workers=self.config.grader_workers) as grader:
            yield grader

    def evaluator(self, source: Predicts, *, num_problems: int | None = None) -> Evaluator:
        """Build the held-out evaluation of the recipe. source: a policy or a trainer, for its tokenizer and log-probs.
        num_problems: fewer of its problems, from the first."""
        evaluate = self.config.evaluate
        renderer = self.sources.renderer(source, template=evaluate.template)
        problems = self.sources.problems("heldout")[: evaluate.problems][:num_problems]
        return Evaluator(
            prompts=renderer.prompts(problems),
            grader=self.evaluation_grader,
            sampling=Sampling.of(evaluate, seed=self._run_seed),  # the same in every stage, so that they compare
            k=evaluate.k,
            split="heldout",
            best_by=best_by if isinstance(best_by := self.config.save.best, str) else "",
            keeps_responses=self.config.save.samples,
            solution_logps=partial(solution_logps, source, problems, renderer, self.config),
            progress=str if self.console is None else self.console.progress,
        )

    def trainer(
        self,
        folder: Path,
        *,
        path: str,
        objective: Callable[[], Objective],
        schedule: ScheduleSection,
        updates: TrainSection,
        temperature: float = 1.0,
        kind: Callable[..., TrainerSpec] = TrainerSpec,
    ) -> Trainer[Any]:
        """Return a trainer of the policy at `path`. folder: of the stage. kind: makes its specification. For the other
        arguments see `TrainerSpec`."""
        if self.console is not None and not is_resumable(Path(path)):
            self.console.note(
                f"{path} holds only its weights (save.optimizer): training starts from model.safetensors"
                f"{' and the float32 weights' if has_exact_weights(Path(path)) else ''}, with a new optimizer state."
            )
        spec = kind(
            path=path,
            base=self.base_of(path),
            model=self.config.model,
            seed=self.config.seed,
            objective=objective,
            schedule=schedule,
            updates=updates,
            temperature=temperature,
            save_dtype=self.config.save.dtype,
        )
        return self.workplace.place(spec, folder)

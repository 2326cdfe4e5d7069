"""A stage of one's own, as in docs/how-to/add_a_stage.md: clone the best of several responses to each problem.

stages: [sft, examples/best_response.py:BestResponse]
best_response: {steps: 20, samples_per_prompt: 8}

best_response/best.jsonl    problems with their best response; otherwise as sft/
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ansatz.config.fields import LearningRate, Positive, Section
from ansatz.config.schema import Config
from ansatz.config.stage import StageDeclaration
from ansatz.config.stages.core import SftSection
from ansatz.data.store import read_problems, write_problems
from ansatz.errors import DataError
from ansatz.loop.context import RunContext
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.sft import explain_fine_tuning, fine_tune
from ansatz.loop.stages.stage import Stage
from ansatz.models.reader import Reader
from ansatz.rollout.base import Sampling
from ansatz.rollout.groups import GroupSampler
from ansatz.types import Problem


class BestResponseSection(Section):
    """Clone the response with the highest reward to each problem."""

    steps: Positive = 100
    """Number of optimizer steps."""
    problems: Positive = 256
    """Problems of data.train that are sampled, from the first on."""
    samples_per_prompt: Positive = 8
    """Responses to each of them."""
    batch_size: Positive = 32
    """Responses in one step."""
    lr: LearningRate = 1e-4
    """Learning rate."""

    def fine_tuning(self) -> SftSection:
        return SftSection(steps=self.steps, batch_size=self.batch_size, lr=self.lr)


class BestResponse(Stage):
    declaration = StageDeclaration(
        name="best_response",
        section=BestResponseSection,
        caps={"steps": 3, "problems": 8, "samples_per_prompt": 4, "batch_size": 8},
        own_model={"lr": 1e-5},
        metrics=Path(__file__).with_suffix(".metrics.yaml"),
    )

    def explain(self, config: Config) -> str:
        section = config.section(BestResponseSection)
        responses = f"the best of {section.samples_per_prompt} to each of {section.problems} problems of data.train"
        return explain_fine_tuning(config.with_section(section.fine_tuning()), responses)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        sources.drop_unfit("train", sources.lengths(reader).check_prompts)

    def run(self, context: RunContext, folder: Path) -> Path:
        section, best = context.config.section(BestResponseSection), folder / "best.jsonl"
        if not best.is_file():  # a run that was killed while it trained does not sample again
            write_problems(best, sample_best(context, section))
        problems = read_problems(best)
        rewards = [problem.meta["reward"] for problem in problems]
        return fine_tune(
            context,
            folder,
            config=context.config.with_section(section.fine_tuning()),
            model_path=context.start_model,
            problems=problems,
            first_metrics={"best_response/reward": sum(rewards) / len(rewards)},
        )


def sample_best(context: RunContext, section: BestResponseSection) -> list[Problem]:
    """Return the problems with the best response of the policy as solution, of those that fit the limits."""
    policy, options = context.policy(context.start_model), context.config.rollout
    prompts = context.sources.renderer(policy).prompts(context.sources.problems("train")[: section.problems])
    options = options.model_copy(update={"samples_per_prompt": section.samples_per_prompt})
    sampling = Sampling.of(options, seed=context.config.seed, step=-1)  # noise that no step of RL uses
    with closing(context.sampler(policy)) as sampler:
        groups = GroupSampler(sampler, context.grader.score).run(prompts, sampling).groups
    fits, best = context.sources.lengths(policy).fits_demonstration, list[Problem]()
    for group in groups:
        for scored in sorted(group.graded, key=lambda scored: -scored.score.value):
            problem = group.prompt.problem.answered(scored.rollout.text)
            if fits(problem):
                best.append(replace(problem, meta={**problem.meta, "reward": scored.score.value}))
                break
    if not best:
        raise DataError("best_response: no response fits the limits of rollout. Start from a better policy.")
    return best

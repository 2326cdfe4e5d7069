"""What a stage `reward_model` learns from and is tested on: it samples the policy, labels the responses, stores both.

responses/ labelled.jsonl    see `loop.labelled_responses`
steps/responses/             completions from the steps of these responses, for labels from rollouts
heldout/responses/           responses to held-out problems, for the evaluation
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ansatz.config.reward_model import RewardModelSection
from ansatz.config.schema import Config
from ansatz.errors import DataError
from ansatz.evaluate.responses import Response
from ansatz.loop.context import RunContext
from ansatz.loop.labelled_responses import (
    LabelledGroup,
    StepPrefixes,
    checked_errors,
    checked_labels,
    outcome_labels,
    read_labelled,
    write_labelled,
)
from ansatz.loop.selection import sample_responses
from ansatz.models.load import Policy
from ansatz.rollout.base import Sampler, Sampling
from ansatz.types import Problem, Prompt

SAMPLED_AT = -10_000
"""The step in the key of the noise, far from those of RL and of rejection sampling. Completions and held-out responses
use the next ones."""


def section_of(config: Config) -> RewardModelSection:
    assert config.reward_model is not None
    return config.reward_model


def labelled_groups(context: RunContext, folder: Path) -> list[LabelledGroup]:
    """Sample and label the problems of the stage, or read what an earlier call has left.

    DataError if no problem can be learned from.
    """
    groups = read_labelled(folder)
    if groups is None:
        groups = _sample_and_label(context, folder)
        if context.config.model.toy:  # random weights answer nothing correctly
            groups = [
                replace(group, labels=[[1.0] * len(group.labels[0]), *group.labels[1:]], wrong_from=None)
                for group in groups
            ]
        write_labelled(folder, groups)
    usable = groups
    if section_of(context.config).kind == "bradley_terry":
        usable = [group for group in groups if group.has_both]
    if not usable:
        raise DataError(
            f"{folder}: none of {len(groups)} problems has both correct and wrong responses, so there is no pair. Use "
            "problems of another difficulty, raise reward_model.samples_per_prompt, or set kind: correctness."
        )
    return usable


def heldout_responses(context: RunContext, folder: Path) -> tuple[list[Prompt], list[list[Response]]]:
    """[P] prompts of held-out problems, and the policy's [P][S] responses to them."""
    config, section = context.config, section_of(context.config)
    policy = context.policy(context.model)
    prompts = context.renderer(policy).prompts(context.problems("heldout")[: section.heldout_problems])
    options = section.model_copy(update={"samples_per_prompt": section.heldout_samples})
    sampling = Sampling.of(options, seed=config.seed, step=SAMPLED_AT - 2)
    with closing(context.sampler(policy)) as sampler:
        responses = _sampled(context, folder / "heldout", prompts, sampler=sampler, sampling=sampling)
    return prompts, _grouped(responses, section.heldout_samples)


def _sample_and_label(context: RunContext, folder: Path) -> list[LabelledGroup]:
    config, section = context.config, section_of(context.config)
    policy = context.policy(context.model)
    problems = context.problems("train")[: section.problems or None]
    prompts = context.renderer(policy).prompts(problems)
    sampling = Sampling.of(section, seed=config.seed, step=SAMPLED_AT)
    with closing(context.sampler(policy)) as sampler:
        responses = _sampled(context, folder, prompts, sampler=sampler, sampling=sampling)
        grouped = _grouped(responses, sampling.num_samples)
        labels = _labels(context, folder, problems, prompts, grouped, policy=policy, sampler=sampler, sampling=sampling)
        exact = section.kind == "process" and section.labels == "exact"
        return [
            LabelledGroup(
                id=prompt.problem.id,
                prompt=prompt.text,
                responses=[response.response for response in members],
                labels=of_group,
                wrong_from=checked_errors(prompt.problem, members) if exact else None,
            )
            for prompt, members, of_group in zip(prompts, grouped, labels, strict=True)
        ]


def _labels(
    context: RunContext,
    folder: Path,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    grouped: Sequence[Sequence[Response]],
    *,
    policy: Policy,
    sampler: Sampler,
    sampling: Sampling,
) -> Iterator[list[list[float]]]:
    """The labels of each problem's responses, in order."""
    section = section_of(context.config)
    if section.kind != "process":
        return map(outcome_labels, grouped)
    if section.labels == "exact":
        return map(checked_labels, problems, grouped)
    tokenizer = policy.tokenizer
    prefixes = StepPrefixes.of(prompts, grouped, lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])
    num_correct = defaultdict[str, int](int)
    if prefixes.prompts:
        longest = max(len(prompt.token_ids) for prompt in prefixes.prompts)
        completing = replace(
            sampling,
            step=SAMPLED_AT - 1,
            num_samples=section.step_rollouts,
            max_response_tokens=min(sampling.max_response_tokens, policy.max_context - longest),
        )
        for each in _sampled(context, folder / "steps", prefixes.prompts, sampler=sampler, sampling=completing):
            num_correct[each.id] += each.verdicts["reward"].correct
    fractions = {
        prompt.problem.id: num_correct[prompt.problem.id] / section.step_rollouts for prompt in prefixes.prompts
    }
    return ([prefixes.labels(each, fractions, hard=section.labels == "hard") for each in group] for group in grouped)


def _sampled(
    context: RunContext, folder: Path, prompts: Sequence[Prompt], *, sampler: Sampler, sampling: Sampling
) -> list[Response]:
    return sample_responses(
        folder,
        prompts,
        sampler=sampler,
        sampling=sampling,
        grader=context.grader,
        batch=section_of(context.config).batch,
        console=context.console,
    )


def _grouped(responses: Sequence[Response], size: int) -> list[list[Response]]:
    return [list(responses[start : start + size]) for start in range(0, len(responses), size)]

"""The data that a stage `reward_model` learns from and is tested on: sampled and labelled responses, or given rows.

responses/ labelled.jsonl    see `labelled_responses`
steps/responses/             completions from the steps of these responses, for labels from rollouts
heldout/responses/           responses to held-out problems, for the evaluation
heldout/labelled.jsonl       given rows, for the evaluation
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from ansatz.config.schema import Config
from ansatz.data.given_rows import GivenRows, bind_given
from ansatz.data.label_files import read_labelled_responses, read_labelled_steps
from ansatz.data.pair_files import read_pairs
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.responses import Response
from ansatz.loop.context import RunContext
from ansatz.loop.pair_rounds import check_lengths, usable_rows
from ansatz.loop.rendering import LengthChecker
from ansatz.loop.run_sources import Check, RunSources
from ansatz.loop.selection import sample_responses
from ansatz.models.load import Policy
from ansatz.reward_models.labelled_responses import (
    LabelledGroup,
    StepPrefixes,
    given_group,
    read_labelled,
    write_labelled,
)
from ansatz.reward_models.section import RewardModelSection
from ansatz.rewards.reasoning_steps import exact_labels, first_wrong_character, joined_steps
from ansatz.rollout.base import Sampler, Sampling
from ansatz.special_tokens import special_tokens
from ansatz.types import Problem, Prompt

SAMPLED_AT = -10_000
"""The step in the key of the noise, far from all steps of RL and of rejection sampling. Completions and held-out
responses use the next ones."""


def section_of(config: Config) -> RewardModelSection:
    return config.section(RewardModelSection)


Key = Literal["data", "heldout_data"]
"""The keys of the section that name given rows."""


def given_of(section: RewardModelSection, key: Key) -> GivenRows | None:
    """Return the given rows of the section; None without any. Raise ConfigError for wrong settings."""
    if (settings := getattr(section, key)) is None:
        return None
    given = bind_given(settings, key=f"reward_model.{key}")
    if given.min_gap and section.kind != "bradley_terry":
        raise ConfigError(
            f"reward_model.{key}.min_gap = {given.min_gap:g} has no effect with kind: {section.kind}; remove it, or "
            "set kind: bradley_terry."
        )
    return given


def read_given(sources: RunSources, key: Key, *, check: Check) -> list[Problem]:
    """Read the pairs or labelled responses of the given rows; empty without any. Raise DataError for other rows, unless
    data.unfit leaves them out."""
    section = section_of(sources.config)
    if (given := given_of(section, key)) is None:
        return []
    read = {
        "bradley_terry": read_pairs,
        "correctness": read_labelled_responses,
        "process": partial(read_labelled_steps, join=partial(joined_steps, at=section.step_end)),
    }
    return usable_rows(sources, read[section.kind], given, key=f"reward_model.{key}", check=check)


def check_given_lengths(config: Config, lengths: LengthChecker) -> Check:
    """Return the check that given rows are within the limits of the recipe and of the policy."""
    is_pairs = section_of(config).kind == "bradley_terry"
    return partial(check_lengths, lengths) if is_pairs else lengths.check_demonstrations


def labelled_groups(context: RunContext, folder: Path) -> list[LabelledGroup]:
    """Return the given rows, or sample and label problems; or read the result of an earlier call.

    Raise DataError if no problem can be learned from.
    """
    if given_of(section_of(context.config), "data") is not None:
        return _given_groups(context, folder, "data")
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


def heldout_groups(context: RunContext, folder: Path) -> list[LabelledGroup]:
    """Return the given rows for measuring the finished model; none without any."""
    if given_of(section_of(context.config), "heldout_data") is None:
        return []
    return _given_groups(context, folder / "heldout", "heldout_data")


def _given_groups(context: RunContext, folder: Path, key: Key) -> list[LabelledGroup]:
    """Return the groups of given rows: the result of an earlier call, or else the current rows."""
    if (groups := read_labelled(folder)) is not None:
        return groups
    policy, sources = context.policy(context.model), context.sources
    problems = read_given(sources, key, check=check_given_lengths(context.config, sources.lengths(policy)))
    sources.write_unfit()
    groups = [given_group(prompt) for prompt in sources.renderer(policy).prompts(problems)]
    write_labelled(folder, groups)
    return groups


def heldout_responses(context: RunContext, folder: Path) -> tuple[list[Prompt], list[list[Response]]]:
    """Return [P] prompts of held-out problems, and the policy's [P][S] responses. Without any, nothing is sampled."""
    config, section = context.config, section_of(context.config)
    if section.heldout_problems == 0:
        return [], []
    policy = context.policy(context.model)
    prompts = context.sources.renderer(policy).prompts(context.sources.problems("heldout")[: section.heldout_problems])
    options = section.model_copy(update={"samples_per_prompt": section.heldout_samples})
    sampling = Sampling.of(options, seed=config.seed, step=SAMPLED_AT - 2)
    with closing(context.sampler(policy)) as sampler:
        responses = _sampled(context, folder / "heldout", prompts, sampler=sampler, sampling=sampling)
    return prompts, _grouped(responses, section.heldout_samples)


def _sample_and_label(context: RunContext, folder: Path) -> list[LabelledGroup]:
    config, section = context.config, section_of(context.config)
    policy = context.policy(context.model)
    problems = context.sources.problems("train")[: section.problems or None]
    prompts = context.sources.renderer(policy).prompts(problems)
    sampling = Sampling.of(section, seed=config.seed, step=SAMPLED_AT)
    with closing(context.sampler(policy)) as sampler:
        responses = _sampled(context, folder, prompts, sampler=sampler, sampling=sampling)
        grouped = _grouped(responses, sampling.num_samples)
        labels = _labels(context, folder, prompts, grouped, policy=policy, sampler=sampler, sampling=sampling)
        exact = section.kind == "process" and section.labels == "exact"  # by the generator's own steps
        return [
            LabelledGroup(
                id=prompt.problem.id,
                prompt=prompt.text,
                responses=[response.response for response in members],
                labels=of_group,
                wrong_from=[first_wrong_character(prompt.problem, each.response) for each in members]
                if exact
                else None,
            )
            for prompt, members, of_group in zip(prompts, grouped, labels, strict=True)
        ]


def _labels(
    context: RunContext,
    folder: Path,
    prompts: Sequence[Prompt],
    grouped: Sequence[Sequence[Response]],
    *,
    policy: Policy,
    sampler: Sampler,
    sampling: Sampling,
) -> Iterator[list[list[float]]]:
    """Return the labels of each problem's responses, in order."""
    section = section_of(context.config)
    if section.kind != "process":
        return ([[float(each.verdicts["reward"].correct)] for each in group] for group in grouped)
    if section.labels == "exact":
        return (
            [list(map(float, exact_labels(prompt.problem, each.response))) for each in group]
            for prompt, group in zip(prompts, grouped, strict=True)
        )
    special = special_tokens(policy.tokenizer)
    prefixes = StepPrefixes.of(
        prompts,
        grouped,
        lambda text: special.encode(special.hide_response(text)),
        step_end=section.step_end,
    )
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
    batch = section_of(context.config).batch
    return sample_responses(context, folder, prompts, sampler=sampler, sampling=sampling, batch=batch)


def _grouped(responses: Sequence[Response], size: int) -> list[list[Response]]:
    return [list(responses[start : start + size]) for start in range(0, len(responses), size)]

"""`ansatz simulate RECIPE`: the time of a step on N GPUs, where time is lost, and the best split of the GPUs."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ansatz.cli.recipe import TrustCode, note
from ansatz.config import Config, load_recipe
from ansatz.errors import ConfigError
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.loop.simulate import Costs, Work

_FLOPS, _UTILISATION = 989e12, 0.4
"""Dense bf16 operations per second of an H100, and the fraction that updates and large decode batches reach."""
_BYTES, _BANDWIDTH_FRAC = 3.35e12, 0.6
"""Memory bandwidth of an H100 in bytes per second, and the fraction that decoding reaches."""
_TRANSFER = 10e9
"""Bytes per second at which weights are written and loaded."""
_HOURS_TO_DEATH = 24.0
"""Mean hours between two deaths of a worker, with --faults."""
_MAX_GPUS = 16_384
_MAX_LAG = 64
_MAX_RESPONSES = 20_000_000
"""Responses in all steps together. A million take about half a minute."""


def simulate(
    context: typer.Context,
    recipe: Annotated[
        Path, typer.Argument(help="A recipe file, the folder that holds it, a run, or an installed recipe.")
    ],
    train: Annotated[int, typer.Option(help="GPUs that train.", min=1, max=_MAX_GPUS)],
    rollout: Annotated[int, typer.Option(help="GPUs that sample.", min=1, max=_MAX_GPUS)],
    lag: Annotated[int | None, typer.Option(help="The lag; default: as in the recipe.", min=0, max=_MAX_LAG)] = None,
    faults: Annotated[bool, typer.Option(help="Workers die, each once in 24 hours on average.")] = False,
    trust_code: TrustCode = False,
    worker_gpus: Annotated[int, typer.Option(help="GPUs of one rollout worker.", min=1)] = 1,
    median_tokens: Annotated[
        int, typer.Option(help="Median length of a response; 0: a tenth of the longest.", min=0)
    ] = 0,
) -> None:
    """Simulate the RL steps of a recipe on H100 GPUs, on a virtual clock, with the schedule and the pool of real runs.

    Durations are estimates from the model's size, see docs/cluster.md; the ratios between settings mean more than the
    seconds. The number of steps is train.steps of the recipe.
    """
    config = load_recipe(recipe, overrides=context.obj, note=note, trust_code=trust_code or None)

    from ansatz.loop.simulate import best_split, simulate
    from ansatz.loop.start_checks import ELSEWHERE, recipe_checks
    from ansatz.loop.streaming import Stream, simulate_stream

    for check in recipe_checks(config):
        with suppress(*ELSEWHERE):  # the recipe is meant for another machine
            check()
    _check_size(config, lag=config.rollout.lag if lag is None else lag)
    if worker_gpus > rollout:
        raise ConfigError(
            f"--rollout {rollout} is less than the {worker_gpus} GPUs of one worker. Raise it, or lower --worker-gpus."
        )
    num_workers = rollout // worker_gpus
    work, costs = estimates(config, train=train, worker_gpus=worker_gpus, median_tokens=median_tokens)
    work = dataclasses.replace(work, steps=config.train.steps, lag=work.lag if lag is None else lag)
    outcome = simulate(work, costs, num_workers=num_workers)
    say(
        f"{train} GPUs train, {num_workers} workers x {worker_gpus} GPUs sample; lag {work.lag}, {work.steps} steps of "
        f"{work.groups} x {work.samples} responses\n"
        f"step                {outcome.mean_step_s:10.1f} s\n"
        f"trainer idle        {outcome.trainer_idle:10.1%}\n"
        f"workers idle        {outcome.worker_idle:10.1%}\n"
        f"staleness           {outcome.staleness:10.2f} steps"
    )
    stream = Stream(ahead=work.lag * work.groups, window=work.groups)
    flowing = simulate_stream(work, costs, stream, num_workers=num_workers)
    say(f"without draining    {flowing.mean_step_s:10.1f} s, if workers changed weights under running responses")
    if faults:
        faulty = simulate(work, costs, num_workers=num_workers, life_s=_HOURS_TO_DEATH * 3600)
        say(
            f"with faults         {faulty.mean_step_s:10.1f} s a step, goodput {outcome.seconds / faulty.seconds:.1%}, "
            f"{faulty.deaths} deaths, {faulty.resampled} groups sampled again"
        )
    gpus = train + rollout
    best, best_outcome = best_split(work, costs, gpus=gpus, gpus_per_worker=worker_gpus, trainer_gpus=train)
    say(f"best of 7 splits    {best:10d} GPUs train: {best_outcome.mean_step_s:.1f} s a step")


def _check_size(config: Config, *, lag: int) -> None:
    """Raise ConfigError for a recipe without RL steps, and for one whose simulation would not end."""
    if "rl" not in config.stage_names or not config.train.steps:
        raise ConfigError(
            "the recipe has no RL steps to simulate. Set train.steps to 1 or more, and list the stage rl."
        )
    if lag > _MAX_LAG:
        raise ConfigError(f"rollout.lag = {lag}: at most {_MAX_LAG} can be simulated. Give another with --lag.")
    responses = config.train.steps * config.rollout.rollouts_per_step
    if responses > _MAX_RESPONSES:
        raise ConfigError(
            f"train.steps = {config.train.steps} of {config.rollout.rollouts_per_step} responses are {responses:,} "
            f"responses, more than the {_MAX_RESPONSES:,} that can be simulated. Lower train.steps."
        )


def estimates(config: Config, *, train: int, worker_gpus: int, median_tokens: int) -> tuple[Work, Costs]:
    """Return the work of a step, and what it takes on H100 GPUs: 8 operations per parameter and token for an update
    (forward and backward pass, and the log-probs before it), 2 per parameter and sampled token, and one read of all
    weights for each decoding step of a worker."""
    from ansatz.loop.simulate import Costs, Work
    from ansatz.models.plan import recipe_shape

    shape, options = recipe_shape(config), config.rollout
    layer = sum(inputs * outputs for inputs, outputs in shape.linears.values())
    parameters = shape.num_layers * layer + (1 if shape.tied else 2) * shape.vocab_size * shape.hidden_size
    work = Work(
        groups=options.prompts_per_step,
        samples=options.samples_per_prompt,
        median_tokens=median_tokens or max(1.0, options.max_response_tokens / 10),
        max_tokens=options.max_response_tokens,
        lag=options.lag,
        publish_every=options.publish_every,
    )
    mean_tokens = min(work.max_tokens, work.median_tokens * 1.6)  # of a lognormal with sigma 0.99
    tokens = work.groups * work.samples * mean_tokens * config.train.epochs_per_step
    costs = Costs(
        update_s=8 * parameters * tokens / (train * _FLOPS * _UTILISATION),
        token_s=2 * parameters / (worker_gpus * _BYTES * _BANDWIDTH_FRAC),
        row_token_s=2 * parameters / (worker_gpus * _FLOPS * _UTILISATION),
        publish_s=2 * parameters / _TRANSFER,
        push_s=2 * parameters / _TRANSFER,
    )
    return work, costs

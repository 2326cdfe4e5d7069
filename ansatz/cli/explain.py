"""`ansatz explain RECIPE`: the resolved recipe, the arithmetic of a step, and the objective in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ansatz.config import Config, load_recipe
from ansatz.config.load import dump


def explain(
    context: typer.Context,
    recipe: Annotated[Path, typer.Argument(help="A recipe.")],
    overlay: Annotated[list[Path] | None, typer.Option(help="A YAML file laid over the recipe; repeatable.")] = None,
) -> None:
    """Print what a recipe resolves to: its config, the arithmetic of a step, and the objective as a formula."""
    from ansatz.objectives.build import build_objective
    from ansatz.objectives.explain import explain as explain_objective

    config = load_recipe(recipe, overlays=overlay or [], overrides=context.obj)
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    objective.check_group_size(config.rollout.samples_per_prompt)
    for title, text in (
        ("Recipe", dump(config).rstrip()),
        ("Arithmetic of a step", step_arithmetic(config)),
        ("Objective", explain_objective(objective, max_response_tokens=config.rollout.max_response_tokens)),
    ):
        print(f"# {title}\n{text}\n")


def step_arithmetic(config: Config) -> str:
    """Prompts x samples = rollouts, tokens at most, optimiser steps; for a step and for the whole run."""
    rollout, train = config.rollout, config.train
    responses = rollout.rollouts_per_step * rollout.max_response_tokens
    prompts = rollout.prompts_per_step * rollout.max_prompt_tokens
    lines = [
        f"{rollout.prompts_per_step} prompts x {rollout.samples_per_prompt} samples = "
        f"{rollout.rollouts_per_step} rollouts",
        f"at most {rollout.rollouts_per_step} x {rollout.max_response_tokens} = {responses:,} response tokens "
        f"and {prompts:,} prompt tokens",
        f"{train.updates_per_step} minibatches x {train.epochs_per_step} epochs = "
        f"{train.optimizer_steps_per_step} optimiser steps on them, in slices of at most "
        f"{train.tokens_per_slice:,} tokens",
        f"{train.steps} steps = {train.steps * rollout.rollouts_per_step:,} rollouts, "
        f"{train.steps * train.optimizer_steps_per_step:,} optimiser steps",
    ]
    return "\n".join(lines)

"""The process that the viewer's page `try` starts. It samples from checkpoints of a run and prints the graded
responses.

The standard input is a line of JSON, and then nothing until the viewer ends: then this process ends too, as it does
after its seconds. A response is a line of JSON among the messages that are printed on the way. Rewards and environments
of a recipe's own are not run, and nobody else is asked: rewards that would are left out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansatz.cli.ask import sample_responses
from ansatz.cli.sampling_options import ModelSampling
from ansatz.config.chat import AUTO
from ansatz.config.sampling import SamplingOptions
from ansatz.errors import AnsatzError, ConfigError
from ansatz.types import Problem, problem_from_json

VERIFIER = "math_answer"


def main() -> None:
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_viewer, daemon=True).start()
    signal.alarm(order["seconds"])
    try:
        for name, folder in order["models"].items():
            problem, asked = problem_from_json(order["problem"]), (order["beginning"], order["samples"], order["seed"])
            for row in respond(Path(folder), problem, *asked):
                print("\n" + json.dumps({"model": name, **row}), flush=True)
    except (AnsatzError, OSError) as error:
        sys.exit(f"\n{error}")


def _end_with_viewer() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


def respond(model: Path, problem: Problem, beginning: str, samples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the responses of a checkpoint, sampled and graded as in its run, with the log-prob of each token that
    follows the beginning, and its end after that. A problem that is only a question and an answer is graded by the
    verifier alone."""
    from ansatz.loop.model_recipe import choose_template, recipe_of
    from ansatz.rewards.base import rewards
    from ansatz.rewards.grader import build_grader
    from ansatz.special_tokens import special_tokens
    from ansatz.track.rollout_rows import rollout_row
    from ansatz.train.sample import StepTokens

    recipe = recipe_of(model, option="--template", trust_code=False)
    if recipe is None or ":" in str((recipe.config.environment or {}).get("name")):
        raise ConfigError(f"{model}: its recipe is missing, or has an environment of its own, whose code is not run.")
    if beginning and recipe.config.environment is not None:
        raise ConfigError("a response in an environment cannot be given a beginning. Leave it empty.")
    template = AUTO
    if getattr(recipe.config.data.template, "shots", None) is not None:  # a file, which is read of one's own run only
        template, _ = choose_template(model, has_chat_template=True, option="ansatz ask --template")
    options = {name: getattr(recipe.config.rollout, name) for name in SamplingOptions.model_fields}
    sampling = ModelSampling(
        options=SamplingOptions(**{**options, "samples_per_prompt": samples}),
        template=str(template),
        trust_code=False,
        seed=seed,
    )
    rollouts, tokenizer = sample_responses(model, problem, sampling, beginning=beginning)
    whole = [replace(each, text=beginning + each.text) for each in rollouts]
    fit = [name for name in recipe.config.rewards if not rewards.can_hang(name) and (problem.meta or name == VERIFIER)]
    find_ends = StepTokens(special_tokens(tokenizer).read).find_ends
    with build_grader({name: recipe.config.rewards[name] for name in fit} or {VERIFIER: {}}) as grader:
        for rollout, each in zip(rollouts, grader.score(whole), strict=True):
            row = rollout_row(each, group="", noise_step=0, temperature=1.0)
            tokens = {"logps": rollout.behavior_logps, "ends": find_ends(rollout)}
            yield {**row, **tokens, "truncated": rollout.truncated}

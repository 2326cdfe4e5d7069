"""`ansatz ask MODEL "QUESTION"`: what a model answers to one question."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ansatz.cli.opened_model import open_model
from ansatz.cli.responses import fitting_options
from ansatz.cli.sampling_options import ModelSampling, takes_sampling


@takes_sampling(samples_per_prompt=1)
def ask(
    model: Annotated[
        Path, typer.Argument(help="A Hugging Face model folder, such as a checkpoint, or a model of the hub.")
    ],
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    *,
    sampling: ModelSampling,
    answer: Annotated[str | None, typer.Option(help="The correct answer: each response then gets a verdict.")] = None,
) -> None:
    """Print a model's responses to one question; with --answer, also the verifier's verdict on each.

    The template is that of the model's run, the tokenizer's chat template, or boxed; --template chooses another.
    """
    from ansatz.prompts.render import render
    from ansatz.rollout.base import Sampling
    from ansatz.types import Problem

    question = os.fsencode(question).decode(errors="replace")  # UTF-8, whatever the locale and its encoding
    problem = Problem(id="asked", question=question, answer=answer or "", source="command line", split="all")
    with open_model(model, sampling) as opened:
        (problem,) = opened.with_openings([problem])
        prompt = render(problem, opened.template, opened.policy.tokenizer)
        options = fitting_options(sampling, [prompt], opened.policy, source="the question")
        rollouts = opened.sampler.generate([prompt], Sampling.of(options, seed=sampling.seed))
    correct = 0
    for rollout in rollouts:
        if len(rollouts) > 1:
            print(f"--- response {rollout.sample + 1} of {len(rollouts)}")
        print(rollout.text.strip())
        notes = [f"{rollout.num_tokens} tokens"]
        if rollout.truncated:
            notes.append("cut off at --max-response-tokens")
        if (reward := rollout.environment_reward) is not None:
            notes.append(reward.explanation or f"the environment gives {reward.value:g}")
        if answer is not None:
            verdict, is_correct = _verdict(answer, rollout.text)
            correct += is_correct
            notes.insert(0, verdict)
        print(f"[{'; '.join(notes)}]")
    if answer is not None and len(rollouts) > 1:
        print(f"{correct} of {len(rollouts)} correct")


def _verdict(answer: str, text: str) -> tuple[str, bool]:
    """In words; a correct answer outside a box or tag is correct too, and the verdict says so."""
    from ansatz.rewards.math_answer.verify import verify

    strict = verify(answer, text)
    lenient = strict if strict.correct else verify(answer, text, mode="anchored")
    found = "no answer" if lenient.extracted is None else f"the answer is {lenient.extracted!r}"
    if not lenient.correct:
        return f"wrong: {found} ({lenient.reason.value})", False
    return f"correct: {found}" + ("" if strict.correct else ", though not in the format that training asks for"), True

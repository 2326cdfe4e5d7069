"""`ansatz ask MODEL... "QUESTION"`: the answers of a model, or of several, to one question."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.opened_model import open_model
from ansatz.cli.responses import Models, fitting_options
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.types import Problem, Rollout


@takes_sampling(samples_per_prompt=1, temperature=0.0)
def ask(
    models: Models,
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    *,
    sampling: ModelSampling,
    answer: Annotated[str | None, typer.Option(help="The correct answer: each response then gets a verdict.")] = None,
) -> None:
    """Print the responses of models to one question; with --answer, also the verifier's verdict on each response.

    It is greedy unless --temperature says otherwise, or --samples-per-prompt asks for several. Each model gets the same
    noise. The template comes from the model's run. Without a run, it is the tokenizer's chat template, or else boxed;
    --template chooses another.
    """
    from ansatz.types import Problem, answers_of

    question = os.fsencode(question).decode(errors="replace")  # UTF-8, whatever the locale and its encoding
    answers = answers_of(answer or "")
    problem = Problem(id="asked", question=question, answers=answers, source="command line", split="all")
    for model in models:
        if len(models) > 1:
            say(f"=== {model}")
        _ask(model, problem, sampling, has_answer=answer is not None)


def sample_responses(
    model: Path,
    problem: Problem,
    sampling: ModelSampling,
    *,
    beginning: str = "",
    on_text: Callable[[str], object] | None = None,
) -> tuple[list[Rollout], Any]:
    """Return a model's responses to a problem, and its tokenizer. beginning: text that every response continues; it
    becomes part of the prompt. on_text: is called with the text of a growing response, by engines that can."""
    from ansatz.prompts.render import render
    from ansatz.rollout.base import Sampling
    from ansatz.special_tokens import special_tokens

    with open_model(model, sampling) as opened:
        from ansatz.rollout.native.sampler import NativeSampler  # loads torch, which a typing error need not wait for

        (problem,) = opened.with_openings([problem])
        prompt = render(problem, opened.template, opened.policy.tokenizer)
        special = special_tokens(opened.policy.tokenizer)
        begun = special.encode(special.hide_response(beginning)) if beginning else []
        prompt = replace(prompt, text=prompt.text + beginning, token_ids=(*prompt.token_ids, *begun))
        if on_text is not None and isinstance(opened.sampler, NativeSampler):
            told = [time.monotonic()]

            def tell(ids: Sequence[int]) -> None:
                if time.monotonic() - told[0] > 0.1:  # to read all tokens after each one would take their square
                    on_text(special.read(ids, opened.policy.end_ids))
                    told[0] = time.monotonic()

            opened.sampler.on_tokens = tell
        options = fitting_options(sampling, [prompt], opened.policy, source="the question")
        sampler = opened.sampler_for(sampling)
        return sampler.generate([prompt], Sampling.of(options, seed=sampling.seed)), opened.policy.tokenizer


def _ask(model: Path, problem: Problem, sampling: ModelSampling, *, has_answer: bool) -> None:
    typed = _Typed()
    alone = sampling.options.samples_per_prompt == 1
    rollouts, _ = sample_responses(model, problem, sampling, on_text=typed.show if alone else None)
    correct = 0
    for rollout in rollouts:
        if len(rollouts) > 1:
            say(f"--- response {rollout.sample + 1} of {len(rollouts)}")
        say(typed.take_rest(rollout.text.strip()))
        notes = [f"{rollout.num_tokens} tokens"]
        if rollout.truncated:
            notes.append("cut off at --max-response-tokens")
        if (reward := rollout.environment_reward) is not None:
            notes.append(reward.explanation or f"the environment gives {reward.value:g}")
        if has_answer:
            verdict, is_correct = _verdict(problem.answer, rollout.said)
            correct += is_correct
            notes.insert(0, verdict)
        say(f"[{'; '.join(notes)}]")
    if has_answer and len(rollouts) > 1:
        say(f"{correct} of {len(rollouts)} correct")


class _Typed:
    """The text of a response that has been printed while it grew."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, text: str) -> None:
        """Print the new text, except an end that may still change: half a character, or blanks."""
        text = text.strip().rstrip("\ufffd")
        if text.startswith(self._shown):
            say(text.removeprefix(self._shown), end="", flush=True)
            self._shown = text

    def take_rest(self, text: str) -> str:
        """Return the part of the whole text that is left to print: all of it, on a new line, if it does not continue
        the text shown so far."""
        return text.removeprefix(self._shown) if text.startswith(self._shown) else f"\n{text}"


def _verdict(answer: str, text: str) -> tuple[str, bool]:
    """Return the verdict in words, and whether the answer is correct. A correct answer outside a box or tag counts too,
    and the verdict says so."""
    from ansatz_verify.grade import verify

    strict = verify(answer, text)
    lenient = strict if strict.correct else verify(answer, text, mode="anchored")
    found = "no answer" if lenient.extracted is None else f"the answer is {lenient.extracted!r}"
    if not lenient.correct:
        return f"wrong: {found} ({lenient.reason.value})", False
    return f"correct: {found}" + ("" if strict.correct else ", though not in the format that training asks for"), True

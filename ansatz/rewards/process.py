"""A process reward: a model that reads prompt and response and gives each reasoning step a number.

For GRPO with process supervision (DeepSeekMath, arXiv:2402.03300, sec. 4.1.3). The stage `reward_model` with
kind: process trains such a model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Literal

from ansatz.config.fields import Positive, StepEnd
from ansatz.rewards.base import RewardResult
from ansatz.rewards.classifiers import Classifier
from ansatz.rewards.learned import checked_model, sigmoid
from ansatz.rewards.reasoning_steps import check_step_end, encode_steps, step_ends
from ansatz.special_tokens import special_tokens
from ansatz.types import Rollout

CAN_HANG = True
"""The model can be slow on the device that the recipe names."""
GIVES_STEPS = True

WHOLE: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": fmean,
    "product": math.prod,
    "last": lambda values: values[-1],
}


def process(
    rollouts: Sequence[Rollout],
    *,
    model: str | None = None,
    step_end: StepEnd | None = None,
    whole: Literal["min", "mean", "product", "last"] = "min",
    batch_size: Positive = 8,
    device: str = "cpu",
) -> list[RewardResult]:
    """The probability of each step of the response that it is right, and one number for the whole response.

    model: a token classifier of one label (a Hugging Face folder or a model of the hub), whose logit at the last token
    of a step is the log-odds of the step; null: the newest reward model of this run, from the stage reward_model.
    step_end: where a step ends: line, blank_line, sentence or {marker: TEXT}, as in the section reward_model; null: as
    the stage reward_model has trained the model, and a line for any other model.
    The model reads an environment's answer, but the answer is not a step, and a step ends before it.
    whole: how the probabilities of the steps become the value of the response; 0 for a response without a step.
    batch_size, device: of the forward passes.
    """
    folder, key = checked_model("process", model), "rewards.process.model"
    classifier = _classifier(folder, key=key, by_token=True, batch_size=batch_size, device=device)
    at: StepEnd = classifier.step_end if step_end is None else step_end
    check_step_end(at, key="rewards.process.step_end")
    hide_prompt = special_tokens(classifier.tokenizer).hide_prompt
    ends = [_find_own_step_ends(rollout, at) for rollout in rollouts]
    encoded = [
        encode_steps(classifier.tokenizer, hide_prompt(rollout.prompt), rollout.text, places)
        for rollout, places in zip(rollouts, ends, strict=True)
    ]
    rows = [index for index, places in enumerate(ends) if places]
    results = [RewardResult(value=0.0) for _ in rollouts]
    for index, logits in zip(rows, classifier.logits([encoded[row].token_ids for row in rows]), strict=True):
        values = [sigmoid(logits[place]) for place in encoded[index].at]
        results[index] = RewardResult(value=WHOLE[whole](values), steps=tuple(zip(ends[index], values, strict=True)))
    return results


def _find_own_step_ends(rollout: Rollout, at: StepEnd) -> tuple[int, ...]:
    """Return where the steps of each part of the text end that the policy wrote.

    Without the parts, a policy that adds a line end to the right line of a tool would have its own step read there.
    """
    starts = [0, *(stop for _, stop in rollout.observations)]
    stops = [*(start for start, _ in rollout.observations), len(rollout.text)]
    return tuple(
        start + end
        for start, stop in zip(starts, stops, strict=True)
        for end in step_ends(rollout.text[start:stop], at)
    )


_classifier = functools.cache(Classifier)

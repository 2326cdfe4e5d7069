"""A learned reward: a model that reads prompt and response and returns one number.

The stage `reward_model` with kind: bradley_terry or correctness trains such a model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from ansatz.config.fields import Positive
from ansatz.errors import ConfigError, ModelError
from ansatz.process import note
from ansatz.registry import load_attribute
from ansatz.rewards.base import RewardResult
from ansatz.rewards.classifiers import Classifier
from ansatz.rewards.results import as_results
from ansatz.special_tokens import special_tokens
from ansatz.types import Rollout

CAN_HANG = True
"""The model can be the user's own code."""


class OutcomeModel(Protocol):
    """The model of a learned reward. It must be callable from several threads."""

    def score(self, rollouts: Sequence[Rollout]) -> Sequence[float]:
        """Return one finite number per rollout, in order; higher is better. All rollouts have the same prompt."""
        ...


def learned(
    rollouts: Sequence[Rollout],
    *,
    model: str | None = None,
    form: Literal["text", "chat"] = "text",
    max_tokens: Positive = 4096,
    batch_size: Positive = 8,
    device: str = "cpu",
    squash: Literal["none", "sigmoid"] = "none",
) -> list[RewardResult | None]:
    """The model's score of each response, or its sigmoid.

    model: a sequence classifier of one label (a Hugging Face folder or a model of the hub), or `file.py:function` (or
    `package.module:function`): a function without arguments that returns an `OutcomeModel`. Only classifiers use form,
    max_tokens, batch_size and device. null: the newest reward model of this run, from the stage reward_model.
    form: "text" scores the prompt as the policy saw it, followed by the response; "chat" scores question and response
    in the reward model's own chat template. max_tokens: of prompt and response together; the last ones are kept.
    It gives no verdict: a learned score above 0 proves nothing. ModelError or ConfigError for a wrong model.
    """
    model = checked_model("learned", model)
    settings: dict[str, Any] = {"form": form, "max_tokens": max_tokens, "batch_size": batch_size, "device": device}
    scorer = _user_model(model) if ":" in model else _classifier(model, **settings)
    results = as_results("learned", scorer.score(rollouts), rollouts) if rollouts else []
    if squash == "sigmoid":
        return [None if result is None else RewardResult(value=sigmoid(result.value)) for result in results]
    return results


class SequenceClassifier:
    """An OutcomeModel from a Hugging Face folder: the logit of its only label, in nats."""

    def __init__(self, folder: str, *, form: str, max_tokens: int, batch_size: int, device: str) -> None:
        key = "rewards.learned.model"
        self._classifier = Classifier(folder, key=key, by_token=False, batch_size=batch_size, device=device)
        self._form, self._max_tokens, self._has_cut = form, max_tokens, False
        if form == "chat" and not self._classifier.tokenizer.chat_template:
            raise ModelError(f"{key} = {folder!r} has no chat template. Set form: text.")

    def score(self, rollouts: Sequence[Rollout]) -> list[float]:
        rows, limit = [self._encode(rollout) for rollout in rollouts], self._max_tokens
        num_cut = sum(len(row) > limit for row in rows)
        if num_cut and not self._has_cut:
            self._has_cut = True
            note(
                f"rewards.learned.max_tokens = {limit}: with the prompt, {num_cut} of {len(rows)} responses to problem "
                f"{rollouts[0].prompt.problem.id!r} have more tokens, up to {max(map(len, rows))}. Of these and all "
                f"others like them, the model reads the last {limit}. Raise max_tokens."
            )
        return self._classifier.logits([row[-limit:] for row in rows])

    def _encode(self, rollout: Rollout) -> list[int]:
        tokenizer, special = self._classifier.tokenizer, special_tokens(self._classifier.tokenizer)
        if self._form == "chat":
            problem = rollout.prompt.problem
            turns = [("user", problem.question), ("assistant", rollout.text)]
            messages = [*problem.earlier_turns, *({"role": role, "content": content} for role, content in turns)]
            text = tokenizer.apply_chat_template(list(map(special.hide_turn, messages)), tokenize=False)
            return special.encode(text)
        text = special.hide_prompt(rollout.prompt) + special.hide_response(rollout.text)
        return special.encode(text, add_special_tokens=True)


def checked_model(reward: str, model: str | None) -> str:
    """Return the model that a recipe names. Raise ConfigError if it names none: a run fills in its own reward model."""
    if model is None:
        raise ConfigError(
            f"rewards.{reward}.model is missing. Name a model, or use the reward in a recipe whose stage reward_model "
            "trains one."
        )
    return model


_classifier = functools.cache(SequenceClassifier)


@functools.cache
def _user_model(reference: str) -> OutcomeModel:
    model = load_attribute(reference, kind="reward model")()
    if not callable(getattr(model, "score", None)):
        raise ConfigError(
            f"rewards.learned.model = {reference!r} returned {model!r:.80}, which has no method score(rollouts)."
        )
    return model


def sigmoid(value: float) -> float:
    """Return 1 / (1 + exp(-value)), computed without overflow."""
    small = math.exp(-abs(value))
    return 1 / (1 + small) if value >= 0 else small / (1 + small)

"""A learned reward: a model that reads prompt and response and returns one number.

Only the loader imports torch and transformers, so a run without a learned reward does not load them here.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from ansatz.config.fields import Positive
from ansatz.errors import ConfigError, ModelError
from ansatz.hub import local_folder
from ansatz.registry import load_attribute
from ansatz.rewards.base import RewardResult
from ansatz.rewards.results import as_results
from ansatz.types import Rollout

CAN_HANG = True
"""The model can be the user's own code."""


class OutcomeModel(Protocol):
    """What a learned reward needs from a model. It must be callable from several threads."""

    def score(self, rollouts: Sequence[Rollout]) -> Sequence[float]:
        """One finite number per rollout, in order; higher is better. All rollouts have the same prompt."""
        ...


def learned(
    rollouts: Sequence[Rollout],
    *,
    model: str,
    form: Literal["text", "chat"] = "text",
    max_tokens: Positive = 4096,
    batch_size: Positive = 8,
    device: str = "cpu",
    squash: Literal["none", "sigmoid"] = "none",
) -> list[RewardResult]:
    """The model's score of each response, or its sigmoid.

    model: a sequence classifier of one label (a Hugging Face folder or a model of the hub), or `file.py:function` (or
    `package.module:function`): a function without arguments that returns an `OutcomeModel`. Only classifiers use form,
    max_tokens, batch_size and device.
    form: "text" scores the prompt as the policy saw it, followed by the response; "chat" scores question and response
    in the reward model's own chat template. max_tokens: of prompt and response together; the last ones are kept.
    It gives no verdict: a learned score above 0 proves nothing. ModelError or ConfigError for a wrong model.
    """
    scorer = _user_model(model) if ":" in model else _folder(model, form, max_tokens, batch_size, device)
    results = as_results("learned", scorer.score(rollouts), rollouts) if rollouts else []
    if squash == "sigmoid":
        return [RewardResult(value=_sigmoid(result.value)) for result in results]
    return results


class SequenceClassifier:
    """An OutcomeModel from a Hugging Face folder: the logit of its only label, in nats."""

    def __init__(self, folder: str, *, form: str, max_tokens: int, batch_size: int, device: str) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        path = local_folder(folder, key="rewards.learned.model")
        if not (path / "config.json").is_file():
            raise ModelError(f"rewards.learned.model = {folder!r} is not a model folder: config.json is missing.")
        loader: Any = AutoModelForSequenceClassification
        tokenizers: Any = AutoTokenizer
        try:
            self._model, notes = loader.from_pretrained(
                path, local_files_only=True, output_loading_info=True, trust_remote_code=False
            )
            self._tokenizer = tokenizers.from_pretrained(path, local_files_only=True, trust_remote_code=False)
            self._model.to(device).eval()
        except Exception as error:  # a wrong config or file fails anywhere in transformers, with any kind of error
            problem = " ".join(str(error).split())[:300] or type(error).__name__
            raise ModelError(f"rewards.learned.model = {folder!r} cannot be loaded on {device!r}: {problem}") from error
        if self._model.config.num_labels != 1 or notes["missing_keys"]:
            raise ModelError(
                f"rewards.learned.model = {folder!r} has {self._model.config.num_labels} labels and lacks the weights "
                f"{sorted(notes['missing_keys'])[:3]}: expected a trained sequence classifier of one label."
            )
        if form == "chat" and not self._tokenizer.chat_template:
            raise ModelError(f"rewards.learned.model = {folder!r} has no chat template. Set form: text.")
        self._form, self._max_tokens, self._torch = form, max_tokens, torch
        self._pad = self._tokenizer.pad_token_id
        self._batch_size = 1 if self._pad is None else batch_size  # rows cannot be batched without a padding token
        self._model.config.pad_token_id = self._pad  # the model uses it to find the last token of each row
        self._lock = threading.Lock()

    def score(self, rollouts: Sequence[Rollout]) -> list[float]:
        rows = [self._encode(rollout) for rollout in rollouts]
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))  # similar lengths together: little padding
        scores = [0.0] * len(rows)
        for start in range(0, len(order), self._batch_size):
            indices = order[start : start + self._batch_size]
            for index, value in zip(indices, self._forward([rows[i] for i in indices]), strict=True):
                scores[index] = value
        return scores

    def _encode(self, rollout: Rollout) -> list[int]:
        if self._form == "chat":
            problem = rollout.prompt.problem
            turns = [("user", problem.question), ("assistant", rollout.text)]
            messages = [*problem.earlier_turns, *({"role": role, "content": content} for role, content in turns)]
            text = self._tokenizer.apply_chat_template(messages, tokenize=False)
            ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = self._tokenizer(rollout.prompt.text + rollout.text)["input_ids"]
        return ids[-self._max_tokens :]

    def _forward(self, rows: Sequence[list[int]]) -> list[float]:
        longest = max(len(row) for row in rows)
        ids = [row + [self._pad] * (longest - len(row)) for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        device = self._model.device
        with self._lock, self._torch.inference_mode():
            logits = self._model(
                input_ids=self._torch.tensor(ids, device=device),
                attention_mask=self._torch.tensor(mask, device=device),
            ).logits
        return logits[:, 0].float().tolist()


@functools.cache
def _folder(folder: str, form: str, max_tokens: int, batch_size: int, device: str) -> OutcomeModel:
    return SequenceClassifier(folder, form=form, max_tokens=max_tokens, batch_size=batch_size, device=device)


@functools.cache
def _user_model(reference: str) -> OutcomeModel:
    model = load_attribute(reference, kind="reward model")()
    if not callable(getattr(model, "score", None)):
        raise ConfigError(
            f"rewards.learned.model = {reference!r} returned {model!r:.80}, which has no method score(rollouts)."
        )
    return model


def _sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), computed without overflow."""
    small = math.exp(-abs(value))
    return 1 / (1 + small) if value >= 0 else small / (1 + small)

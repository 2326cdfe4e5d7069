"""Classifiers of transformers with one label, as rewards use them: token ids in, logits out.

Only the constructor imports torch and transformers, so a run without a learned reward does not load them here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ansatz.errors import ModelError, failures_as
from ansatz.hub import local_folder
from ansatz.model_config import transformers_config
from ansatz.trial import check_trial


class Classifier:
    """A model folder for AutoModelForSequenceClassification or, with by_token, AutoModelForTokenClassification.

    key: of the recipe, for errors. Can be called from several threads. Raises ModelError for a wrong folder.
    """

    def __init__(self, folder: str, *, key: str, by_token: bool, batch_size: int, device: str) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

        path = local_folder(folder, key=key)
        if not (path / "config.json").is_file():
            raise ModelError(f"{key} = {folder!r} is not a model folder: config.json is missing.")
        loader: Any = AutoModelForTokenClassification if by_token else AutoModelForSequenceClassification
        tokenizers: Any = AutoTokenizer
        with failures_as(lambda cause: ModelError(f"{key} = {folder!r} cannot be loaded on {device!r}: {cause}")):
            self._model, notes = loader.from_pretrained(
                path,
                config=transformers_config(path),
                local_files_only=True,
                output_loading_info=True,
                trust_remote_code=False,
            )
            self.tokenizer = tokenizers.from_pretrained(path, local_files_only=True, trust_remote_code=False)
            check_trial(self.tokenizer, f"{key} = {folder!r}")
            self.tokenizer.encode("1 + 1")  # reads settings that loading does not
            self._model.to(device).eval()
        if self._model.config.num_labels != 1 or notes["missing_keys"]:
            kind = "token" if by_token else "sequence"
            raise ModelError(
                f"{key} = {folder!r} has {self._model.config.num_labels} labels and lacks the weights "
                f"{sorted(notes['missing_keys'])[:3]}: expected a trained {kind} classifier of one label."
            )
        self._torch, self._lock = torch, threading.Lock()
        self._pad = self.tokenizer.pad_token_id
        self._batch_size = 1 if self._pad is None else batch_size  # rows cannot be batched without a padding token
        self._model.config.pad_token_id = self._pad  # the model uses it to find the last token of each row

    @property
    def step_end(self) -> Any:
        """Return where the steps end that the model was trained on, as `reward_models.model` stores it."""
        return getattr(self._model.config, "step_end", None) or "line"

    def logits(self, rows: Sequence[Sequence[int]]) -> list[Any]:
        """Return the logit of each row; with by_token, the logits of its tokens, and perhaps of padding after them."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))  # similar lengths together: little padding
        results: list[Any] = [None] * len(rows)
        for start in range(0, len(order), self._batch_size):
            indices = order[start : start + self._batch_size]
            for index, value in zip(indices, self._forward([rows[i] for i in indices]), strict=True):
                results[index] = value
        return results

    def _forward(self, rows: Sequence[Sequence[int]]) -> list[Any]:
        longest = max(len(row) for row in rows)
        ids = [[*row, *[self._pad] * (longest - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        device = self._model.device
        with self._lock, self._torch.inference_mode():
            logits = self._model(
                input_ids=self._torch.tensor(ids, device=device), attention_mask=self._torch.tensor(mask, device=device)
            ).logits
        return logits[..., 0].float().tolist()

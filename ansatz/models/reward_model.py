"""Reward models: a policy's architecture with a score head, as ordinary Hugging Face classifiers.

An outcome model is a folder for AutoModelForSequenceClassification with one label: its logit at the last token is the
score of a whole response. A process model is a folder for AutoModelForTokenClassification with one label: its logit at
the last token of a reasoning step is the log-odds that the step is right.

Axes: T flat tokens, M tokens at which a score is read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn

from ansatz.errors import ModelError
from ansatz.models import attention, norm
from ansatz.models.families import max_context
from ansatz.models.load import Policy, check_folder, find_device, load_tokenizer

Reads = Literal["response", "step"]
"""What gets a score: the whole response (an outcome model), or each of its reasoning steps (a process model)."""
CLASSIFIERS: dict[Reads, Any] = {
    "response": transformers.AutoModelForSequenceClassification,
    "step": transformers.AutoModelForTokenClassification,
}
HEAD = "score"
"""The name of the head in every decoder of transformers that has these classes."""


def load_reward_model(path: str | Path, *, reads: Reads, device: str | torch.device | None = None) -> Policy:
    """Load a reward model in float32, or start one from the weights of a policy.

    From a policy's folder, the head starts at 0, so that every first score is 0 and the model is the same for each
    seed. device: None is a GPU if there is one, otherwise the CPU.
    Raises ModelError if the folder is not a model, or if transformers has no classifier of its architecture.
    """
    folder = check_folder(path)
    try:
        with _without_report():
            model, notes = CLASSIFIERS[reads].from_pretrained(
                folder,
                num_labels=1,
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # a wrong config or file fails anywhere in transformers, with any kind of error
        problem = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{str(path)!r} does not load as a reward model: {problem}") from error
    head = getattr(model, HEAD, None)
    if not isinstance(head, nn.Linear):
        raise ModelError(f"{str(path)!r}: {type(model).__name__} has no score head. Use a decoder such as Qwen3.")
    missing = sorted(notes["missing_keys"])
    if lacking := [name for name in missing if not name.startswith(f"{HEAD}.")]:
        raise ModelError(f"{str(path)!r} lacks {len(lacking)} weights, such as {lacking[0]}. Give a complete model.")
    if missing:
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
    tokenizer = load_tokenizer(folder)
    if not tokenizer.is_fast:
        raise ModelError(f"{str(path)!r} has a slow tokenizer, which does not say where tokens begin. Use a fast one.")
    model.config.pad_token_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    attention.install(model)
    norm.install(model)
    return Policy(
        model=model.to(find_device(device)).eval(),
        tokenizer=tokenizer,
        max_context=max_context(model.config),
        end_ids=(),
        path=str(folder),
    )


@contextmanager
def _without_report() -> Iterator[None]:
    """Without this, transformers warns that the new head of a policy is missing."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def scores_at(model: Policy, token_T: Tensor, position_T: Tensor, segment_T: Tensor, **packing: Any) -> Tensor:
    """The scores [M], float32, at the flat tokens `at_M`. packing: at_M and prompt_id_T, see `Policy.packed_hidden`."""
    head: nn.Linear = getattr(model.model, HEAD)
    hidden_MH = model.packed_hidden(token_T, position_T, segment_T, **packing)
    return head(hidden_MH.to(head.weight.dtype)).squeeze(-1).float()

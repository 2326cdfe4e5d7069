"""Reward models: a policy's architecture with a score head, as ordinary Hugging Face classifiers.

An outcome model is a folder for AutoModelForSequenceClassification with one label: its logit at the last token is the
score of a whole response. A process model is a folder for AutoModelForTokenClassification with one label: its logit at
the last token of a reasoning step is the log-odds that the step is right.

Axes: T flat tokens, M tokens at which a score is read.
"""

from __future__ import annotations

import copy
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
OUTPUTS = ("o_proj", "down_proj")
"""How the names of the weights begin whose products a layer's attention and MLP add to the residual stream."""


def load_reward_model(
    path: str | Path,
    *,
    reads: Reads,
    extra_layers: int = 0,
    embedding_scale: float = 1.0,
    device: str | torch.device | None = None,
) -> Policy:
    """Load a reward model in float32, or start one from the weights of a policy.

    From a policy's folder, the head starts at 0, so that every first score is 0 and the model is the same for each
    seed. extra_layers: layers that are appended to a policy (see `_with_extra_layers`). embedding_scale: what the
    embeddings of a policy are multiplied by. Both have no effect on a reward model's folder, which has them already.
    device: None is a GPU if there is one, otherwise the CPU.
    Raises ModelError if the folder is not a model, if transformers has no classifier of its architecture, or if no
    layers can be appended to it.
    """
    folder = check_folder(path)
    model, missing = _classifier(folder, reads)
    head = getattr(model, HEAD, None)
    if not isinstance(head, nn.Linear):
        raise ModelError(f"{str(path)!r}: {type(model).__name__} has no score head. Use a decoder such as Qwen3.")
    if lacking := [name for name in missing if not name.startswith(f"{HEAD}.")]:
        raise ModelError(f"{str(path)!r} lacks {len(lacking)} weights, such as {lacking[0]}. Give a complete model.")
    if missing and extra_layers:
        model = _with_extra_layers(model, extra_layers, folder=folder, reads=reads)
    if missing:
        for parameter in getattr(model, HEAD).parameters():
            nn.init.zeros_(parameter)
        model.get_input_embeddings().weight.data *= embedding_scale
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


def _classifier(folder: Path, reads: Reads, config: Any = None) -> tuple[Any, list[str]]:
    """transformers' classifier with the weights of a folder, and the names of those that the folder lacks.

    config: instead of that in the folder.
    """
    try:
        with _without_report():
            model, notes = CLASSIFIERS[reads].from_pretrained(
                folder,
                **({"num_labels": 1} if config is None else {"config": config}),
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except Exception as error:  # a wrong config or file fails anywhere in transformers, with any kind of error
        problem = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{str(folder)!r} does not load as a reward model: {problem}") from error
    return model.eval(), sorted(notes["missing_keys"])


def _with_extra_layers(model: Any, count: int, *, folder: Path, reads: Reads) -> Any:
    """The model with `count` more decoder layers, which change nothing before they are trained.

    They are copies of the last layer whose output projections are 0 (LLaMA Pro, arXiv:2401.02415, sec. 3.2). A policy
    knows what should come next only in its last layers; in further ones, a reward model can compare that with the token
    that follows. Where the architecture has attention windows and the policy does not use them, the first new layer
    sees only a token and the one before it. Without this, attention to the token before has to be learned first.
    ModelError if the new layers would change something.
    """
    config, old = copy.deepcopy(model.config), model.config.num_hidden_layers
    config.num_hidden_layers = old + count
    types = getattr(config, "layer_types", None)
    if types and set(types) == {"full_attention"} and hasattr(config, "use_sliding_window"):
        config.use_sliding_window, config.sliding_window = True, 2
        config.layer_types = [*types, "sliding_attention", *["full_attention"] * (count - 1)]
    elif types:
        config.layer_types = [*types, *types[-1:] * count]
    deeper, _ = _classifier(folder, reads, config)
    layers = deeper.base_model.layers
    for layer in layers[old:]:
        layer.load_state_dict(layers[old - 1].state_dict())
        for name, parameter in layer.named_parameters():
            if any(part.startswith(OUTPUTS) for part in name.split(".")):
                nn.init.zeros_(parameter)
    token_1T = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        before, after = (each.base_model(input_ids=token_1T).last_hidden_state for each in (model, deeper))
    if not torch.equal(before, after):
        raise ModelError(
            f"{str(folder)!r}: {type(model).__name__} cannot get extra layers, because they would change its hidden "
            "states. Set reward_model.extra_layers to 0."
        )
    return deeper


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
    return head_scores(model, model.packed_hidden(token_T, position_T, segment_T, **packing))


def head_scores(model: Policy, hidden_MH: Tensor) -> Tensor:
    """The scores [M], float32, of last hidden states."""
    head: nn.Linear = getattr(model.model, HEAD)
    return head(hidden_MH.to(head.weight.dtype)).squeeze(-1).float()

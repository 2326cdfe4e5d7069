"""Reward models: a policy's architecture with a score head, as ordinary Hugging Face classifiers.

An outcome model is a folder for AutoModelForSequenceClassification with one label: its logit at the last token is the
score of a whole response. A process model is a folder for AutoModelForTokenClassification with one label: its logit at
the last token of a reasoning step is the log-odds that the step is right.

Axes: T flat tokens, M tokens with a score, H channels of a policy's residual stream, W additional channels,
V tokens of the vocabulary.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn

from ansatz.config.fields import StepEnd
from ansatz.errors import ModelError, is_failure, one_line
from ansatz.model_config import is_wrapper, read_config, text_config
from ansatz.models import attention, layer_operations
from ansatz.models.families import max_context
from ansatz.models.load import (
    TEXT_NAMES,
    Policy,
    check_folder,
    find_device,
    load_tokenizer,
    text_part,
    without_report,
)

Reads = Literal["response", "step"]
"""The unit of a score: the whole response (an outcome model), or each of its reasoning steps (a process model)."""
CLASSIFIERS: dict[Reads, str] = {
    "response": "AutoModelForSequenceClassification",
    "step": "AutoModelForTokenClassification",
}
"""Names of transformers' classes, which are imported when a reward model is loaded: that takes a third of a second."""
EXTRA_LAYERS = "extra_layers"
"""The key of config.json that says how many of the last layers are extra ones."""
HEAD = "score"
"""The name of the head in every decoder of transformers that has these classes."""
OUTPUTS = ("o_proj", "down_proj")
"""How the names of the weights begin whose products a layer's attention and MLP add to the residual stream."""
CODE_SIZE = 0.03
"""The norm of a token's code in the new channels, in norms of its embedding: too small to change the norms of the
policy's layers by more than a thousandth."""
LARGEST_CHANGE = 0.01
"""How much the residual stream of the policy may differ in a reward model with extra layers, relative to its norm."""
NUM_TOKENS = 128
"""How many tokens the sizes of hidden states are measured on."""


def load_reward_model(
    path: str | Path,
    *,
    reads: Reads,
    extra_layers: int = 0,
    extra_width: int = 64,
    step_end: StepEnd | None = None,
    device: str | torch.device | None = None,
) -> Policy:
    """Load a reward model in float32, or start one from the weights of a policy.

    From a policy's folder, the head starts at 0, so that every first score is 0 and the model is the same for each
    seed. extra_layers, extra_width: layers and channels that a policy gets (see `_with_extra_layers`); a reward model's
    folder has them already. If there are extra layers, only they, the last norm and the head will be trained.
    step_end: where the steps end that the model will read, if not at lines; the folder's config.json will say so.
    device: None is a GPU if there is one, otherwise the CPU.
    Raise ModelError if the folder is not a model, if transformers has no classifier of its architecture, or if no
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
        model = _with_extra_layers(model, layers=extra_layers, width=extra_width, folder=folder)
    if missing:
        for parameter in getattr(model, HEAD).parameters():
            nn.init.zeros_(parameter)
    model = model.to(find_device(device))
    if extra_layers:
        _train_only_extra_layers(model, extra_layers)
        setattr(model.config, EXTRA_LAYERS, extra_layers)
    tokenizer = load_tokenizer(folder)
    if not tokenizer.is_fast:
        raise ModelError(f"{str(path)!r} has a slow tokenizer, which does not say where tokens begin. Use a fast one.")
    model.config.pad_token_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if step_end not in (None, "line") or hasattr(model.config, "step_end"):
        model.config.step_end = step_end
    attention.install(model)
    layer_operations.install(model)
    return Policy(
        model=model.eval(),
        tokenizer=tokenizer,
        max_context=max_context(model.config),
        end_ids=(),
        path=str(folder),
        text_part=text_part(folder),
        written=_written_channels(model) if extra_layers else {},
    )


def load_for_critic(path: str | Path) -> Policy:
    """Load a reward model of either kind without its score head, so that a critic can start from it. If it has extra
    layers, only they are trained further. Raise ModelError as `load_reward_model` does."""
    config = read_config(check_folder(path))
    is_process = str(config["architectures"][0]).endswith("ForTokenClassification")
    policy = load_reward_model(
        path, reads="step" if is_process else "response", extra_layers=int(config.get(EXTRA_LAYERS, 0))
    )
    delattr(policy.model, HEAD)
    return policy


def _classifier(folder: Path, reads: Reads) -> tuple[Any, list[str]]:
    """Load transformers' classifier with the weights of a folder. Return it, and the names of the weights it lacks."""
    try:
        with without_report():
            model, notes = getattr(transformers, CLASSIFIERS[reads]).from_pretrained(
                folder,
                config=text_config(folder, num_labels=1),
                key_mapping=TEXT_NAMES if is_wrapper(read_config(folder)) else None,
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except BaseException as error:  # a wrong config or file fails anywhere in transformers, with any kind of error
        if not is_failure(error):
            raise
        raise ModelError(f"{str(folder)!r} does not load as a reward model: {one_line(error)}") from error
    return model.eval(), sorted(notes["missing_keys"])


def _with_extra_layers(model: Any, *, layers: int, width: int, folder: Path) -> Any:
    """Return the model with `layers` more decoder layers and `width` more channels in its residual stream.

    The policy's computation in its own channels stays the same. The first half of the new channels holds a random
    projection of the embedding of the token. The policy's layers neither read nor change it: in its own channels they
    hide the token that they have read, because they predict the next one. The new layers read all channels and write to
    the second half of the new ones. So they can compare the token that the policy expected with the one that was
    written. They start from random weights, the same ones for every seed. If the architecture supports attention
    windows and the policy does not use them, the first new layer sees only a token and the one before it, where the
    policy expected it.

    Norms are rescaled, because they average over all channels. In the new layers they bring all kinds of channels to
    the same size. Raise ModelError if the policy would compute something else.
    """
    config, old = copy.deepcopy(model.config), model.config.hidden_size
    depth = config.num_hidden_layers
    config.hidden_size, config.num_hidden_layers = old + width, depth + layers
    config.head_dim = getattr(config, "head_dim", None) or old // config.num_attention_heads
    config.rms_norm_eps = config.rms_norm_eps * old / config.hidden_size
    types = getattr(config, "layer_types", None)
    if types and set(types) == {"full_attention"} and hasattr(config, "use_sliding_window"):
        config.use_sliding_window, config.sliding_window = True, 2
        config.layer_types = [*types, "sliding_attention", *["full_attention"] * (layers - 1)]
    elif types:
        config.layer_types = [*types, *types[-1:] * layers]
    refusal = ModelError(
        f"{str(folder)!r}: {type(model).__name__} cannot get extra layers, because they would change what the policy "
        "computes. Set reward_model.extra_layers to 0."
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            deeper = type(model)(config).eval()
        _fill(deeper, model, width=width)
        policy_TH, deeper_TH = (_seen_by_last_norm(each)[0] for each in (model, deeper))
    except (AttributeError, KeyError, IndexError, ValueError, RuntimeError) as error:
        raise refusal from error
    is_same = float((deeper_TH[:, :old] - policy_TH).norm()) < LARGEST_CHANGE * float(policy_TH.norm())
    token_TH = deeper.get_input_embeddings()(_some_tokens(config.vocab_size))
    read = slice(old, old + width // 2)
    if not is_same or not torch.equal(deeper_TH[:, read], token_TH[:, read]):
        raise refusal
    return deeper


def _fill(deeper: Any, model: Any, *, width: int) -> None:
    """Set the weights of the deeper model, see `_with_extra_layers`."""
    old, depth = model.config.hidden_size, model.config.num_hidden_layers
    written = old + width // 2  # the first channel that the new layers write to
    random = torch.Generator().manual_seed(0)
    embedding_VH = model.get_input_embeddings().weight.data
    code_VW = embedding_VH @ torch.randn(old, written - old, generator=random)
    code_VW *= CODE_SIZE * embedding_VH.norm(dim=1, keepdim=True) / code_VW.norm(dim=1, keepdim=True).clamp(min=1e-12)
    residual, normed = (float(each.square().mean(-1).sqrt().median()) for each in _seen_by_last_norm(model))
    mean_ratio = (old / (old + width)) ** 0.5
    new_norm_H = torch.full((old + width,), mean_ratio * residual)
    new_norm_H[:old] = mean_ratio * model.base_model.norm.weight.data / normed
    new_norm_H[old:written] /= float(code_VW.square().mean().sqrt())
    source = {name: parameter.data for name, parameter in model.named_parameters()}
    for name, parameter in deeper.named_parameters():
        value, layer = parameter.data, _layer_of(name)
        is_norm = "norm" in name and value.shape == (old + width,)
        if layer is not None and layer >= depth:
            if is_norm:
                value.copy_(new_norm_H)
            elif value.ndim > 1:
                value.copy_(torch.randn(value.shape, generator=random) / value.shape[-1] ** 0.5)
                if _is_output(name):
                    value[..., :written, :] = 0
                    if not value.any():
                        raise ValueError(f"{name} does not have the channels in its second to last axis")
            continue
        value.zero_()
        value[tuple(slice(size) for size in source[name].shape)] = source[name]
        if is_norm:
            value[:old] *= mean_ratio
            value[old:] = new_norm_H[old:] if layer is None else mean_ratio
    deeper.get_input_embeddings().weight.data[:, old:written] = code_VW


def _seen_by_last_norm(model: Any) -> tuple[Tensor, Tensor]:
    """Measure the residual stream [T, H] before and after the last norm, for tokens from the whole vocabulary."""
    seen = list[Tensor]()
    hook = model.base_model.norm.register_forward_hook(lambda _, inputs, output: seen.extend([inputs[0][0], output[0]]))
    try:
        with torch.no_grad():
            model.base_model(input_ids=_some_tokens(model.config.vocab_size)[None])
    finally:
        hook.remove()
    return seen[0], seen[1]


def _some_tokens(vocab_size: int) -> Tensor:
    """Return ids [T] from the whole vocabulary, for measuring hidden states."""
    return torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0))[:NUM_TOKENS]


def _layer_of(name: str) -> int | None:
    """Return the index of the decoder layer that a weight belongs to."""
    match = re.search(r"\blayers\.(\d+)\.", name)
    return int(match.group(1)) if match else None


def _is_output(name: str) -> bool:
    """Tell whether a weight's product is added to the residual stream."""
    return any(part.startswith(OUTPUTS) for part in name.split("."))


def _train_only_extra_layers(model: Any, count: int) -> None:
    """Leave only the last `count` layers, the last norm and the head to be trained."""
    first = model.config.num_hidden_layers - count
    model.get_input_embeddings().requires_grad_(False)
    for name, parameter in model.named_parameters():
        layer = _layer_of(name)
        if layer is not None and layer < first:
            parameter.requires_grad_(False)


def _written_channels(model: Any) -> dict[str, Tensor]:
    """Return the channels that extra layers may write to, as a mask for each of their weights that not all of them
    write to (`Policy.written`).

    Channels that extra layers do not write to at first are never written to, so that each layer can read the policy's
    expectation and the token in them.
    """
    masks: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and _layer_of(name) is not None and _is_output(name):
            is_written = parameter.detach() != 0
            if parameter.ndim > 1:
                is_written = is_written.any(-1, keepdim=True)
            if not is_written.all():
                masks[name] = is_written.expand_as(parameter)
    return masks


def head_scores(model: Policy, hidden_MH: Tensor) -> Tensor:
    """Compute the scores [M], float32, of last hidden states."""
    head: nn.Linear = getattr(model.model, HEAD)
    return head(hidden_MH.to(head.weight.dtype)).squeeze(-1).float()

"""Hugging Face folders in and out, and what of a model the rest of the house needs to know.

A causal LM here is a transformers model whose logits are its output embedding applied to its last hidden state (checked
at load, on real tokens) and whose layers all attend to the full past. Everything else about it is its own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from ansatz.errors import ModelError
from ansatz.models import attention

transformers.utils.logging.disable_progress_bar()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal LM with its tokenizer, ready to sample and to train."""

    model: Any
    tokenizer: Any
    max_context: int
    end_ids: tuple[int, ...]
    path: str

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def hidden(self, token_BL: Tensor, position_BL: Tensor, **kwargs: Any) -> Tensor:
        """Last hidden states [B, L, H], after the final norm: what the output embedding is applied to."""
        return self.model.base_model(input_ids=token_BL, position_ids=position_BL, **kwargs).last_hidden_state

    def packed_hidden(self, token_T: Tensor, position_T: Tensor, segment_T: Tensor) -> Tensor:
        """Last hidden states [T, H] of many sequences on one flat axis, each attending within itself alone.

        segment_T: 0..N-1, ascending; position_T: 0.. within each. Flat length and row length are filled up to round
        numbers: kernels are compiled for each new shape, which on a CPU costs more than the fill.
        """
        num_tokens = len(token_T)
        num_columns = round_up(int(position_T.max()) + 1, 16)
        num_rows = int(segment_T[-1]) + 1
        packing = attention.Packing(
            cell_T=segment_T * num_columns + position_T, num_rows=num_rows, num_columns=num_columns
        )
        fill = (0, round_up(num_tokens, 512) - num_tokens)
        no_mask = torch.zeros(1, 1, 1, 1, device=token_T.device)  # given, so that none of size T x T is made
        hidden_1TH = self.hidden(
            nn.functional.pad(token_T, fill)[None],
            nn.functional.pad(position_T, fill)[None],
            attention_mask=no_mask,
            use_cache=False,
            packing=packing,
        )
        return hidden_1TH[0, :num_tokens]

    @property
    def head(self) -> nn.Linear:
        return self.model.get_output_embeddings()


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def head_logits(hidden_CH: Tensor, weight_VH: Tensor, temperature: float = 1.0) -> Tensor:
    """Float32 logits [C, V] over temperature: the one place where sampler and trainer turn hidden states into logits."""
    logits_CV = nn.functional.linear(hidden_CH, weight_VH).float()
    return logits_CV if temperature == 1.0 else logits_CV / temperature


def compute_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the device multiplies it natively, else float32."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported()
    else:
        capabilities = torch.cpu.get_capabilities()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return torch.bfloat16 if native else torch.float32


def cast(policy: Policy, dtype: torch.dtype) -> None:
    """Parameters to dtype, in place; buffers (rotary frequencies) keep their own type, which bfloat16 would ruin."""
    for parameter in policy.model.parameters():
        parameter.data = parameter.data.to(dtype)


def load_policy(path: str | Path, *, device: str | torch.device = "cpu") -> Policy:
    """The model of a Hugging Face folder in float32, with its tokenizer.

    Raises ModelError when the folder is no model, lacks a tokenizer or an end token, or computes its logits otherwise.
    """
    folder = Path(path)
    check_folder(folder)
    device = torch.device(device)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"model.path = {str(path)!r} does not load as a causal LM: {_first_line(error)}") from error
    model = model.to(device).eval()
    attention.use(model)
    end_ids = _end_ids(model, tokenizer)
    if not end_ids:
        raise ModelError(f"model.path = {str(path)!r}: neither its tokenizer nor its generation config names an end token.")
    max_context = int(getattr(model.config, "max_position_embeddings", 0)) or 2048
    policy = Policy(model=model, tokenizer=tokenizer, max_context=max_context, end_ids=end_ids, path=str(path))
    _check_shape(policy)
    return policy


def check_folder(path: str | Path) -> None:
    """ModelError unless the folder looks like a model's: cheap, for use before any work."""
    folder = Path(path)
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is no folder"
        raise ModelError(
            f"model.path = {str(path)!r} {what}; give a Hugging Face model folder (config.json, weights, tokenizer)."
        )


def save_model(policy: Policy, folder: Path, *, state: dict[str, Tensor]) -> None:
    """An ordinary Hugging Face folder with the given (float32 master) weights."""
    policy.model.save_pretrained(folder, state_dict=state)
    policy.tokenizer.save_pretrained(folder)


def _end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    named = getattr(model.generation_config, "eos_token_id", None)
    ids = named if isinstance(named, list) else [named]
    return tuple(sorted({int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None}))


def _check_shape(policy: Policy) -> None:
    kinds = set(getattr(policy.model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ModelError(f"model.path = {policy.path!r} has layers of kind {sorted(kinds)}; only full attention is supported.")
    token_BL = torch.arange(6, device=policy.device)[None] % policy.head.weight.shape[0]
    position_BL = torch.arange(6, device=policy.device)[None]
    short_T = torch.tensor([0, 1, 2, 3, 4, 5, 0, 1], device=policy.device)  # the same six tokens, then the first two again
    with torch.no_grad():
        theirs = policy.model(input_ids=token_BL, position_ids=position_BL).logits[0].float()
        hidden_TH = policy.packed_hidden(token_BL[0, short_T], short_T, (torch.arange(8, device=policy.device) > 5).long())
        ours = head_logits(hidden_TH, policy.head.weight)
    if not torch.allclose(ours, theirs[short_T], rtol=1e-3, atol=1e-3 * float(theirs.abs().max().clamp(min=1e-6))):
        raise ModelError(
            f"model.path = {policy.path!r}: its logits are not its output embedding times its last hidden state (a bias, "
            "scaled or soft-capped logits), or it has attention of its own. Use another architecture."
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]

"""Hugging Face folders in and out, and what of a model the rest of the house needs to know.

A causal LM here is a transformers model whose logits are its output embedding applied to its last hidden state, and
whose layers all attend to the full past in the plain way, both checked at load. All else about it is its own business.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn

from ansatz.errors import ModelError
from ansatz.models import attention, norm
from ansatz.models.packing import pack, round_up
from ansatz.models.threads import parallel_microbatches

transformers.utils.logging.disable_progress_bar()

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal LM with its tokenizer, ready to sample and to train.

    base: of a model with adapters (`models.lora`), the model without them, on the same weights; else None.
    """

    model: Any
    tokenizer: Any
    max_context: int
    end_ids: tuple[int, ...]
    path: str
    base: Any = None

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def parallel_microbatches(self) -> int:
        """How many slices of a step go side by side."""
        return parallel_microbatches(
            self.num_parameters, on_cpu=self.device.type == "cpu", threads=torch.get_num_threads()
        )

    def hidden(self, token_BL: Tensor, position_BL: Tensor, **kwargs: Any) -> Tensor:
        """Last hidden states [B, L, H], after the final norm: what the output embedding is applied to."""
        return self.model.base_model(input_ids=token_BL, position_ids=position_BL, **kwargs).last_hidden_state

    def packed_hidden(
        self,
        token_T: Tensor,
        position_T: Tensor,
        segment_T: Tensor,
        *,
        prompt_id_T: Tensor | None = None,
        at_M: Tensor | None = None,
    ) -> Tensor:
        """Last hidden states of many sequences on one flat axis, each attending within itself alone: [M, H] of the
        flat tokens at_M, [T, H] without it.

        segment_T: 0..N-1, ascending; position_T: 0.. within each. prompt_id_T: the same number for all copies of one
        prefix, -1 outside; each prefix is computed once. Flat length and row length are filled up to round numbers:
        kernels are compiled for each new shape, which on a CPU costs more than the fill.
        """
        packed = pack(position_T, segment_T, prompt_id_T)
        if packed.computed_T is not None:
            token_T, position_T = token_T[packed.computed_T], position_T[packed.computed_T]
        fill = (0, round_up(len(token_T), 512) - len(token_T))
        no_mask = torch.zeros(1, 1, 1, 1, device=token_T.device)  # given, so that none of size T x T is made
        hidden_1TH = self.hidden(
            nn.functional.pad(token_T, fill)[None],
            nn.functional.pad(position_T, fill)[None],
            attention_mask=no_mask,
            use_cache=False,
            packed=packed,
        )
        where_M = packed.source_T if at_M is None else packed.source_T[at_M]
        return hidden_1TH[0].index_select(0, where_M)

    @property
    def head(self) -> nn.Linear:
        return self.model.get_output_embeddings()


def head_logits(hidden_CH: Tensor, weight_VH: Tensor, temperature: float = 1.0) -> Tensor:
    """Float32 logits [C, V] over temperature: the one way from hidden states to logits, for sampler and trainer."""
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


def load_policy(path: str | Path, *, device: str | torch.device | None = None) -> Policy:
    """The model of a Hugging Face folder in float32, with its tokenizer. device: None is a GPU where there is one, else
    the CPU.

    Raises ModelError when the folder is no model, lacks weights, a tokenizer or an end token, or when its model attends
    or computes its logits in a way of its own.
    """
    check_folder(path)
    model = load_model(path).to(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            f"model.path = {str(path)!r} has a tokenizer that does not load: {_first_line(error)}"
        ) from error
    # Lengths are checked by the rooms that know the limits; without this transformers prints a warning of its own.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    end_ids = _end_ids(model, tokenizer)
    if not end_ids:
        raise ModelError(
            f"model.path = {str(path)!r}: neither its tokenizer nor its generation config names an end token."
        )
    policy = Policy(
        model=model, tokenizer=tokenizer, max_context=_max_context(model.config), end_ids=end_ids, path=str(path)
    )
    if what := _unsupported_feature(policy):
        raise ModelError(f"model.path = {str(path)!r} has {what}, which Ansatz does not support. Use another model.")
    return policy


def load_model(path: str | Path) -> Any:
    """The bare causal LM of a folder in float32, in eval mode, attending in transformers' plainest way.

    Raises ModelError when it does not load whole; transformers itself would fill missing weights with random numbers.
    """
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(  # pyright: ignore[reportGeneralTypeIssues]
            path, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"model.path = {str(path)!r} does not load as a causal LM: {_first_line(error)}") from error
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"model.path = {str(path)!r} lacks {len(missing)} weights, such as {missing[0]}; it is no whole model."
        )
    return model.eval()


def check_folder(path: str | Path) -> None:
    """ModelError unless the folder looks like a model's with a tokenizer: cheap, for use before any work."""
    folder = Path(path)
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is no folder"
    elif not any(found for pattern in TOKENIZER_FILES for found in folder.glob(pattern)):
        what = "has no tokenizer"  # transformers would make up an empty one
    else:
        return
    raise ModelError(
        f"model.path = {str(path)!r} {what}; give a Hugging Face model folder (config.json, weights, tokenizer)."
    )


def save_model(policy: Policy, folder: Path, *, state: dict[str, Tensor]) -> None:
    """An ordinary Hugging Face folder with the given float32 weights; of a model with adapters, those of its base."""
    (policy.model if policy.base is None else policy.base).save_pretrained(folder, state_dict=state)
    policy.tokenizer.save_pretrained(folder)


def _end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    named = getattr(model.generation_config, "eos_token_id", None)
    ids = named if isinstance(named, list) else [named]
    return tuple(sorted({int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None}))


def _max_context(config: Any) -> int:
    return int(getattr(config, "max_position_embeddings", 0)) or 2048


def _unsupported_feature(policy: Policy) -> str | None:
    """What of the model sampler and update would get wrong; None when all is well, with our attention and norms in."""
    model, config = policy.model, policy.model.config
    if what := _odd_setting(config):
        return what
    if getattr(policy.head, "bias", None) is not None:
        return "a bias on its output embedding"
    six_T = torch.arange(6, device=policy.device)
    token_T = six_T % policy.head.weight.shape[0]
    with torch.no_grad():
        theirs_TV = model(input_ids=token_T[None]).logits[0].float()
    attention.use(model)
    norm.use(model)
    if config._attn_implementation != attention.NAME:
        return "attention that cannot be replaced"
    twice_T = torch.cat([six_T, six_T[:2]])  # the same six tokens, then the first two again as a second segment
    with torch.no_grad():
        hidden_TH = policy.packed_hidden(token_T[twice_T], twice_T, (torch.arange(8, device=policy.device) > 5).long())
        ours_TV = head_logits(hidden_TH, policy.head.weight)
    tolerance = 1e-3 * float(theirs_TV.abs().max().clamp(min=1e-6))
    if not torch.allclose(ours_TV, theirs_TV[twice_T], rtol=1e-3, atol=tolerance):
        return "logits that are not its output embedding times its last hidden state, or attention of its own kind"
    return None


def _odd_setting(config: Any) -> str | None:
    """Settings that a short text of a small model does not show."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        return f"layers of kind {', '.join(sorted(kinds - {'full_attention'}))}"
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "layer_types", None) is None and window < _max_context(config):
        return f"a sliding window of {window} tokens in a context of {_max_context(config)}"
    for name in ("final_logit_softcapping", "attn_logit_softcapping"):
        if getattr(config, name, None):
            return f"soft-capped logits ({name})"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if rope in ("dynamic", "longrope"):
        return f"{rope} rotary positions, which depend on the longest row of a batch"
    return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]

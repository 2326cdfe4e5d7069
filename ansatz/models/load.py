"""Loading Hugging Face folders, and the interface of a model for the rest of Ansatz.

A causal LM must be a transformers model whose logits are its output embedding applied to its last hidden state, and
whose layers attend to the full past or to a sliding window. Both are checked when the model is loaded. Nothing else is
assumed about it.

Axes: B rows, L length of a row, T flat tokens, M selected tokens, H hidden, C rows of logits, V vocabulary.
"""

from __future__ import annotations

import functools
import inspect
import logging
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from ansatz.errors import ModelError, failures_as, one_line
from ansatz.hub import model_folder
from ansatz.json_text import read_object
from ansatz.model_config import is_wrapper, read_config, text_config
from ansatz.models import attention, four_bit, layer_operations
from ansatz.models.families import DEQUANTIZED, check_family, max_context, quantization, sliding_window
from ansatz.models.packing import ROUND_FLOAT32_ON_CPU, ROUND_TOKENS, pack
from ansatz.models.threads import parallel_microbatches, tokens_of_each
from ansatz.special_tokens import end_of_turn
from ansatz.trial import check_trial
from ansatz.visible import say

transformers.utils.logging.disable_progress_bar()

_T = TypeVar("_T")

_PROBE = "It's 12 + 345 = 357.\n\ndef f(x):\treturn x*x # \u00e9 \u65e5"

ONE_AT_A_TIME = "ansatz_one_at_a_time"
"""The attribute of a model whose microbatches must not run in parallel threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal LM with its tokenizer, ready to sample and to train.

    base: the model without its adapters, on the same weights (`models.lora`); None for a model without adapters.
    sharded: the root of the model if its weights are sharded over ranks (`train.fsdp`).
    text_part: a sentence about the weights that were left out if only the text part is used; None for others.
    written: by name of a weight, a mask of its values that training may change; of all other weights, all values.
    """

    model: Any
    tokenizer: Any
    max_context: int
    end_ids: tuple[int, ...]
    path: str
    base: Any = None
    sharded: Any = None
    text_part: str | None = None
    written: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters()) + four_bit.num_four_bit(self.model)

    @property
    def parallel_microbatches(self) -> int:
        """The number of microbatches of a step that run in parallel."""
        if self.sharded is not None or getattr(self.model, ONE_AT_A_TIME, False):  # ranks gather weights in one order
            return 1
        return parallel_microbatches(
            self.num_parameters,
            dtype_bytes=self.dtype.itemsize,
            on_cpu=self.device.type == "cpu",
            threads=torch.get_num_threads(),
        )

    def microbatch_tokens(self, limit: int) -> int:
        """Return the largest number of tokens of a microbatch. Parallel microbatches of a larger model share the limit,
        so that they need no more memory than a single one."""
        return tokens_of_each(limit, self.num_parameters, self.parallel_microbatches)

    def run(self, function: Callable[[], _T]) -> _T:
        """Call function(), which reads the weights. Sharded ones are gathered for it, and for its backward pass."""
        if self.sharded is None:
            return function()
        result = self.sharded(function)
        if not torch.is_grad_enabled():  # without a backward pass, nothing else would release the root's weights
            self.sharded.reshard()
        return result

    def hidden(self, token_BL: Tensor, position_BL: Tensor, *, cache: Any = None, **kwargs: Any) -> Tensor:
        """Compute the last hidden states [B, L, H] after the final norm.

        The output embedding turns them into logits.
        """
        base = self.model.base_model
        if cache is not None:
            kwargs[_cache_argument(type(base))] = cache
        return base(input_ids=token_BL, position_ids=position_BL, **kwargs).last_hidden_state

    def packed_hidden(
        self,
        token_T: Tensor,
        position_T: Tensor,
        segment_T: Tensor,
        *,
        prompt_id_T: Tensor | None = None,
        at_M: Tensor | None = None,
    ) -> Tensor:
        """Compute the last hidden states of many sequences on one flat axis: [M, H] for the flat tokens at_M, or [T,
        H] for all.

        Each sequence attends only to itself.
        segment_T: 0..N-1, ascending. position_T: 0, 1, ... within each segment.
        prompt_id_T: the same number for all copies of one prompt, -1 elsewhere. Each prompt is computed once.
        """
        in_float32 = self.model.dtype == torch.float32 and token_T.device.type == "cpu"
        multiple = ROUND_FLOAT32_ON_CPU if in_float32 else ROUND_TOKENS
        packed = pack(position_T, segment_T, prompt_id_T, multiple=multiple)
        if packed.computed_T is not None:
            token_T, position_T = token_T[packed.computed_T], position_T[packed.computed_T]
        padding = (0, packed.num_tokens - len(token_T))
        no_mask = torch.zeros(1, 1, 1, 1, device=token_T.device)  # without this, transformers builds a T x T mask
        hidden_1TH = self.hidden(
            nn.functional.pad(token_T, padding)[None],
            nn.functional.pad(position_T, padding)[None],
            attention_mask=no_mask,
            use_cache=False,
            packed=packed,
        )
        source_M = packed.source_T if at_M is None else packed.source_T[at_M]
        return hidden_1TH[0].index_select(0, source_M)

    @property
    def head(self) -> nn.Linear:
        return self.model.get_output_embeddings()

    @property
    def softcap(self) -> float | None:
        """The soft cap of the logits, see `head_logits`."""
        return getattr(self.model.config, "final_logit_softcapping", None)

    @property
    def window(self) -> int | None:
        """The number of tokens that layers with a sliding window attend to; None if no layer has one."""
        return sliding_window(self.model.config)

    @property
    def caches_latents(self) -> bool:
        """Tell whether the cache holds the inputs of keys and values (multi-head latent attention)."""
        return bool(getattr(self.model.config, "kv_lora_rank", None))


@functools.cache
def _cache_argument(model: type) -> str:
    """Return a model's name for the keys and values of earlier tokens. The name changed in transformers 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def head_logits(hidden_CH: Tensor, weight_VH: Tensor, temperature: float = 1.0, softcap: float | None = None) -> Tensor:
    """Compute float32 logits [C, V] of the head, as `finish_logits` changes them."""
    return finish_logits(nn.functional.linear(hidden_CH, weight_VH), temperature, softcap)


def finish_logits(logits_CV: Tensor, temperature: float = 1.0, softcap: float | None = None) -> Tensor:
    """Return the head's products as float32, divided by the temperature. Sampler and trainer both use this function.

    softcap: logits z become c tanh(z / c) before that (Gemma 2, arXiv:2408.00118, sec. 2); None: they stay.
    """
    logits_CV = logits_CV.float()
    if softcap is not None:
        logits_CV = (logits_CV / softcap).tanh_() * softcap
    return logits_CV if temperature == 1.0 else logits_CV / temperature


def compute_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the type that a model computes in.

    `auto` is bfloat16 if the device multiplies it natively, otherwise float32. On Apple's MPS device it is float32,
    because bfloat16 has never been tried there.
    """
    if name != "auto":
        return torch.bfloat16 if name == "bfloat16" else torch.float32
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "mps":
        native = False
    else:
        capabilities = torch.cpu.get_capabilities()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return torch.bfloat16 if native else torch.float32


def cast(policy: Policy, dtype: torch.dtype) -> None:
    """Convert the parameters in place. Buffers keep their type: bfloat16 would ruin the rotary frequencies."""
    for parameter in policy.model.parameters():
        parameter.data = parameter.data.to(dtype)


def load_policy(name: str | Path, *, device: str | torch.device | None = None, four_bits: bool = False) -> Policy:
    """Load a Hugging Face folder, or a model of the hub (see `hub`): the model in float32, and its tokenizer.

    device: None is a GPU if there is one, otherwise the CPU. `Policy.path` is the local folder.
    four_bits: quantise the linear layers, see `models.four_bit`.
    Raise ModelError if the folder is not a model, lacks weights, a tokenizer or an end token, or if the model's
    attention or logits do not have the form that this module requires.
    """
    path, place = check_folder(name), find_device(device)
    with load_errors(path):
        model = load_model(path)
        if four_bits:
            four_bit.quantize_linears(model, head=model.get_output_embeddings(), path=str(path), device=place)
        model = model.to(place)
        tokenizer = load_tokenizer(path)
        size = model.get_input_embeddings().weight.shape[0]
        configured = getattr(model.generation_config, "eos_token_id", None)
        policy = Policy(
            model=model,
            tokenizer=tokenizer,
            max_context=max_context(model.config),
            end_ids=check_end_tokens(configured, tokenizer, size=size, path=str(path)),
            path=str(path),
            text_part=text_part(path),
        )
        check_vocabulary(tokenizer, size=policy.head.weight.shape[0], path=policy.path)
        feature = _unsupported_feature(policy)
    if feature:
        raise ModelError(f"model.path = {str(path)!r} has {feature}, which Ansatz does not support. Use another model.")
    return policy


def load_model(path: str | Path) -> Any:
    """Load the causal LM of a folder in float32 and eval mode, with transformers' eager attention.

    Of a model that also reads images, only the text part is loaded (`text_part`). Weights of 4 or 8 bits in a format of
    `DEQUANTIZED`, such as the MXFP4 of gpt-oss, are converted exactly.
    Raise ModelError if weights are missing, not finite, or of a layer that does not use them; transformers alone would
    fill missing ones with random numbers, and leave out the others. Code in the folder is never run.
    """
    stored = read_config(path)
    stored_as = quantization(stored)
    converted = {"quantization_config": DEQUANTIZED[stored_as](dequantize=True)} if stored_as in DEQUANTIZED else {}
    with load_errors(path), without_report() if is_wrapper(stored) else nullcontext():
        model, report = transformers.AutoModelForCausalLM.from_pretrained(  # pyright: ignore[reportGeneralTypeIssues]
            path,
            config=text_config(path),
            key_mapping=TEXT_NAMES if is_wrapper(stored) else None,
            dtype=torch.float32,
            attn_implementation="eager",
            local_files_only=True,
            output_loading_info=True,
            trust_remote_code=False,
            **converted,
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"model.path = {str(path)!r} lacks {len(missing)} weights, such as {missing[0]}. Give a complete model."
        )
    modules = {name for part in (model, model.base_model) for name, _ in part.named_modules()}
    if unused := sorted(filter(lambda name: _layer_of(name) in modules, report["unexpected_keys"])):
        raise ModelError(
            f"model.path = {str(path)!r}: the layers of transformers' {type(model).__name__} do not use "
            f"{len(unused)} of its weights, such as {unused[0]}. Either config.json is another model's or lacks a "
            "setting, such as one for biases, or the weights have few bits, in a form that is not read. Correct "
            "config.json, or give the model as it was before it was quantised."
        )
    for name, parameter in model.named_parameters():
        if parameter.numel() and not all(value.isfinite() for value in parameter.aminmax()):
            raise ModelError(
                f"model.path = {str(path)!r}: the weight {name} has values that are nan or infinite, so every response "
                "would be noise. Give another copy, or an earlier checkpoint."
            )
    if converted or is_wrapper(stored):
        model._weight_conversions = None  # otherwise, transformers would save the weights under their old names
    return model.eval()


def _layer_of(name: str) -> str | None:
    """Return the name of the layer that a weight belongs to; None for other weights, and for GPT-2's old constants."""
    match = None if name.endswith(".masked_bias") else re.match(r"\D*\.\d+(?=\.)", name)
    return match and match[0]


@contextmanager
def without_report() -> Iterator[None]:
    """Without this, transformers lists the weights that are new, or that are left out."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


TEXT_NAMES = {r"^(language_model\.model|model\.language_model)\.": "model.", r"^language_model\.lm_head\.": "lm_head."}
"""The two names that transformers has given to a text part's weights in a model that also reads images, and our own."""


def text_part(folder: Path) -> str | None:
    """Return a sentence about a folder if only its text part is used, with the number of weights that are left out;
    None for other folders."""
    if not is_wrapper(stored := read_config(folder)):
        return None
    names = {name for file in folder.glob("model*.safetensors") for name in _weight_names(file)}
    num_text = sum(any(re.match(pattern, name) for pattern in (*TEXT_NAMES, r"^lm_head\.")) for name in names)
    count = f"{len(names) - num_text} of {len(names)} weights, which are " if names else ""  # none in old formats
    return (
        f"The model type {stored['model_type']!r} also reads images. Only its text part is used, and checkpoints are "
        f"models of text only. Left out: {count}the weights for images."
    )


def _weight_names(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as stored:
        return list(stored.keys())


def load_tokenizer(path: str | Path) -> Any:
    """Load the tokenizer of a folder. Raise ModelError if it does not load. Code in the folder is never run."""
    with failures_as(lambda cause: ModelError(f"model.path = {str(path)!r}: the tokenizer does not load: {cause}")):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        template = Path(path) / "chat_template.json"  # models that also read images had it there, for their processors
        if not tokenizer.chat_template and template.is_file():
            advice = "Remove the file, or download the model again."
            tokenizer.chat_template = read_object(template, error=ModelError, advice=advice).get("chat_template")
        check_trial(tokenizer, f"model.path = {str(path)!r}")
        tokenizer.encode("1 + 1")  # a number that is text in tokenizer_config.json is not looked at before
        _compare_with_file(tokenizer, Path(path))
    # Callers check lengths, because they know the limits. Without this, transformers prints a warning.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer


def _compare_with_file(tokenizer: Any, folder: Path) -> None:
    """Print a note if the tokenizer splits text by other rules than the folder's tokenizer.json.

    transformers takes only the vocabulary from that file if the tokenizer's class has rules of its own, as it has for
    every model of the type qwen2.
    """
    file, named = folder / "tokenizer.json", f"model.path = {str(folder)!r}"
    if type(tokenizer) is transformers.PreTrainedTokenizerFast or not file.is_file():
        return
    stored = Tokenizer.from_file(str(file))
    check_trial(stored, named)
    stored.no_truncation()
    stored.no_padding()
    if tokenizer.encode(_PROBE, add_special_tokens=False) != stored.encode(_PROBE, add_special_tokens=False).ids:
        _say_once(
            f"{named}: transformers reads tokenizer.json as a {type(tokenizer).__name__}, which splits text by other "
            "rules than the file names, and is the one used."
        )


@functools.cache
def _say_once(sentence: str) -> None:
    say(sentence, file=sys.stderr)


def find_device(name: str | torch.device | None) -> torch.device:
    """Return the device; None: a GPU if torch has CUDA for it, otherwise the CPU. "mps" must be named.

    Raise ModelError if tensors cannot be kept on it.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, ModuleNotFoundError) as error:
        raise ModelError(
            f"device = {str(name)!r} cannot be used: {one_line(error)[:120]}. Use cpu, or cuda if there is a GPU."
        ) from error
    return device


def check_folder(name: str | Path, *, key: str = "model.path") -> Path:
    """Return the folder of a model as `hub.model_folder` finds it.

    Raise ModelError also if its family is not supported, or if it takes weights from elsewhere.
    """
    folder = model_folder(name, key=key)
    check_family(folder, key=key)
    for index in folder.glob("*.index.json"):  # written by whoever made the folder
        advice = "Remove it if the weights are in one file, or download the model again."
        files = read_object(index, error=ModelError, advice=advice).get("weight_map")
        for file in files.values() if isinstance(files, dict) else [files]:
            if not isinstance(file, str) or Path(file).name != file or file == "..":
                raise ModelError(
                    f"{index} names {file!r:.100} as weights, expected the name of a file in the same folder. {advice}"
                )
    return folder


@contextmanager
def load_errors(path: str | Path) -> Iterator[None]:
    """Turn errors of transformers about the files of a model into a ModelError."""
    named = f"model.path = {str(path)!r}"
    with failures_as(lambda cause: ModelError(f"{named} does not load as a causal LM: {cause}")):
        try:
            yield
        except pickle.UnpicklingError as error:
            raise ModelError(
                f"{named} has pickled weights that hold more than tensors, so loading them could run code. Convert "
                "them to model.safetensors."
            ) from error


def check_end_tokens(configured: Any, tokenizer: Any, *, size: int, path: str) -> tuple[int, ...]:
    """Return the tokens that end a response: from the generation config and the tokenizer, and the one that ends a turn
    in the chat template. Raise ModelError for an id without a token, and if there is no end token.

    configured: eos_token_id of the generation config. size: the number of embeddings.
    """
    ids = configured if isinstance(configured, list) else [configured]
    named = [token for token in [*ids, tokenizer.eos_token_id] if token is not None]
    for token in named:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < size:
            raise ModelError(
                f"model.path = {path!r}: eos_token_id = {token!r:.40}, expected the id of a token, from 0 to "
                f"{size - 1}. Repair generation_config.json, config.json or the tokenizer."
            )
    turn_end = end_of_turn(tokenizer)
    if turn_end is not None and turn_end < size:
        named.append(turn_end)
    if not named:
        raise ModelError(
            f"model.path = {path!r}: neither the tokenizer nor the generation config names an end token. Set "
            "eos_token in the folder's tokenizer_config.json."
        )
    return tuple(sorted(set(named)))


def check_vocabulary(tokenizer: Any, *, size: int, path: str) -> None:
    """Raise ModelError if the tokenizer has tokens that the model has no embedding for.

    Special tokens that the chat template does not write do not count: some tokenizer classes add ones that no text
    contains.
    """
    template = str(tokenizer.chat_template or "")
    unused = {
        id_ for id_, added in tokenizer.added_tokens_decoder.items() if added.special and added.content not in template
    }
    largest = max((token for token in tokenizer.get_vocab().values() if token not in unused), default=0)
    if largest >= size:
        raise ModelError(
            f"model.path = {path!r}: the tokenizer has the token id {largest}, but the model has only {size} "
            "tokens. The tokenizer belongs to another model, or the model was not resized after tokens were added: "
            "call model.resize_token_embeddings(len(tokenizer)) and save the model."
        )


def _unsupported_feature(policy: Policy) -> str | None:
    """Name a feature that sampler and update would compute wrongly, or None. Installs our attention and norms."""
    model, config = policy.model, policy.model.config
    if getattr(policy.head, "bias", None) is not None:
        return "a bias on its output embedding"
    six_T = torch.arange(6, device=policy.device)
    token_T = six_T % policy.head.weight.shape[0]
    try:
        with torch.no_grad():
            expected_TV = model(input_ids=token_T[None]).logits[0].float()
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ModelError(
            f"model.path = {policy.path!r} loads, but cannot compute a text of {len(token_T)} tokens: "
            f"{one_line(error)}. Sizes in its config.json may not fit together; download the model again."
        ) from error
    attention.install(model)
    layer_operations.install(model)
    if config._attn_implementation != attention.NAME:
        return "attention that cannot be replaced"
    twice_T = torch.cat([six_T, six_T[:2]])  # the same six tokens, then the first two again as a second segment
    with torch.no_grad():
        hidden_TH = policy.packed_hidden(token_T[twice_T], twice_T, (torch.arange(8, device=policy.device) > 5).long())
        packed_TV = head_logits(hidden_TH, policy.head.weight, softcap=policy.softcap)
    tolerance = 1e-3 * float(expected_TV.abs().max().clamp(min=1e-6))
    if not torch.allclose(packed_TV, expected_TV[twice_T], rtol=1e-3, atol=tolerance):
        return "logits that are not its output embedding times its last hidden state, or an unusual attention"
    return None

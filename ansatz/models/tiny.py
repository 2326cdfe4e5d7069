"""A new, untrained language model: a byte-level BPE tokenizer trained on given texts, and a small Qwen3 or another
known architecture at toy size.

The result is an ordinary Hugging Face folder for AutoModelForCausalLM and AutoTokenizer. The same texts, settings and
seed give the same bytes. `recipe_shape` tells the shape of a recipe's model before it is built or loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import transformers
from pydantic import Field
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ansatz.config.fields import LARGEST
from ansatz.config.schema import Config
from ansatz.config.toy import TINY
from ansatz.errors import ConfigError
from ansatz.files import storage_errors
from ansatz.models.known_models import ModelShape, model_shape

SPECIAL_TOKENS = PAD, END = "<|pad|>", "<|end|>"  # in this order they get the first ids

# Pieces of text within which tokens can grow: a word with the space before it, one digit, a LaTeX command with its
# brace, punctuation, line ends, other space. Digits are single tokens: without this, 12 and 112 would share no token.
PIECES = r" ?\p{L}+|\p{N}|\\\p{L}+\{?| ?[^\s\p{L}\p{N}\\]+|\\|[\r\n]+|\s+"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ {'system': '', 'user': 'Question: ', 'assistant': 'Answer:\n'}[message['role']] + message['content'] }}"
    "{{ '<|end|>' if message['role'] == 'assistant' else '\n' }}"
    "{% endfor %}{{ 'Answer:\n' if add_generation_prompt }}"
)


MAX_PARAMETERS = 2 * 10**9
"""8 GB of float32 weights. A larger model is not built from random weights by accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """The settings of `build_tiny_model`.

    vocab_size: the largest number of tokens, at least 258 (every byte, pad and end). Short texts give fewer.
    hidden_size, num_layers, num_heads, num_kv_heads, head_dim, intermediate_size: as in Qwen3's config.json.
    max_context: longest prompt and response together, in tokens.
    initializer_range: standard deviation of the initial weights; None: 1 / sqrt(hidden_size). seed: of these weights.
    """

    vocab_size: Annotated[int, Field(ge=258, le=1_000_000)] = 1024
    hidden_size: Annotated[int, Field(gt=0, le=65_536)] = 128
    num_layers: Annotated[int, Field(gt=0, le=1000)] = 4
    num_heads: Annotated[int, Field(gt=0, le=1024)] = 4
    num_kv_heads: Annotated[int, Field(gt=0, le=1024)] = 2
    head_dim: Annotated[int, Field(ge=2, le=1024, multiple_of=2)] = 32
    intermediate_size: Annotated[int, Field(gt=0, le=1_000_000)] = 512
    max_context: Annotated[int, Field(gt=0, le=10_000_000)] = 512
    initializer_range: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=0, lt=LARGEST)] = 0


def build_tiny_model(
    folder: str | Path, *, texts: Iterable[str] | transformers.PreTrainedTokenizerBase, **settings: Any
) -> int:
    """Create the model and its tokenizer in `folder`, and return the number of parameters.

    texts: the tokenizer learns its tokens from these. Give prompts and solutions as the policy will see them; or a
    tokenizer, which is used as it is, whatever `vocab_size` says.
    settings: those of `TinyModel`.
    Raises ConfigError for sizes that do not fit together.
    """
    sizes = asdict(TinyModel(**settings))
    initializer_range, seed = sizes.pop("initializer_range"), sizes.pop("seed")
    shape = tiny_shape(**sizes)
    return build_random_model(folder, texts=texts, shape=shape, initializer_range=initializer_range, seed=seed)


def tiny_shape(*, vocab_size: int, num_heads: int, num_kv_heads: int, head_dim: int, **others: int) -> ModelShape:
    """Return the shape of the model that `build_tiny_model` creates. others: its other sizes.

    Raise ConfigError for sizes that do not fit together.
    """
    if vocab_size < 258:
        raise ConfigError(
            f"vocab_size = {vocab_size}: 256 bytes and 2 special tokens need at least 258. Use 258 or more."
        )
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ConfigError(
            f"num_heads = {num_heads} is not a multiple of num_kv_heads = {num_kv_heads}. Change one of them."
        )
    if head_dim % 2:
        raise ConfigError(f"head_dim = {head_dim}: rotary positions turn pairs of values. Use an even number.")
    shape = ModelShape(
        architecture="qwen3",
        tied=True,
        vocab_size=vocab_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        **others,
    )
    if shape.num_parameters > MAX_PARAMETERS:
        raise ConfigError(
            f"these sizes make {shape.num_parameters:,} parameters, more than the {MAX_PARAMETERS:,} that are built "
            "with random weights. Use smaller sizes, or load a model with model.path."
        )
    return shape


def recipe_shape(config: Config) -> ModelShape:
    """Return the shape of the model that the recipe loads or builds. Raise ModelError if it is not known."""
    model, rollout = config.model, config.rollout
    if model.path is None:
        tiny = asdict(TinyModel()) | dict(model.tiny)
        return tiny_shape(**{name: tiny[name] for name in (*TINY, "max_context")})
    shape = model_shape(model.path)
    if not model.toy:
        return shape
    context = rollout.max_prompt_tokens + rollout.max_response_tokens
    return shape.at_toy_size(vocab_size=TINY["vocab_size"], max_context=context)


def build_random_model(
    folder: str | Path,
    *,
    texts: Iterable[str] | transformers.PreTrainedTokenizerBase,
    shape: ModelShape,
    initializer_range: float | None = None,
    seed: int = 0,
) -> int:
    """Build a model of any shape with random weights. Its vocab_size is the largest number of tokens. texts: for its
    tokenizer, or the tokenizer itself."""
    tokenizer = texts
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        tokenizer = train_tokenizer(tokenizer, vocab_size=shape.vocab_size, max_context=shape.max_context)
    config = transformers.AutoConfig.for_model(
        shape.architecture,
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_context,
        initializer_range=shape.hidden_size**-0.5 if initializer_range is None else initializer_range,
        tie_word_embeddings=shape.tied,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    with storage_errors(Path(folder)):
        tokenizer.save_pretrained(folder)
        model.save_pretrained(folder)
    return model.num_parameters()


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, max_context: int) -> transformers.PreTrainedTokenizerFast:
    """Train the tokenizer of a model that is built, with at most `vocab_size` tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_context,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )

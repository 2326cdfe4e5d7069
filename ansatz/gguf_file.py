"""GGUF files, the format of llama.cpp: read once and kept as an ordinary model folder in the user's cache.

The folder is ~/.cache/ansatz/gguf/NAME-DIGEST, with the first digits of the file's SHA-256, so a changed file becomes
another folder. It stores the file's values in float32. Precision that was lost when the file was made stays lost.

The file may be anybody's. Sizes and offsets are checked against the file before transformers reads it, nothing in it is
run, and its tokenizer and chat template are tried when they are loaded, just as for a folder (`trial`).
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from ansatz.errors import MissingExtraError, ModelError, install_command, is_failure
from ansatz.files import file_digest, storage_errors, sync, write_text
from ansatz.json_text import parse_json
from ansatz.links import read_bytes, read_text
from ansatz.registry import load_attribute
from ansatz.temporary import folder_of_program
from ansatz.trust import TrustedText
from ansatz.visible import say

_MOST_TOKEN_BYTES = 1024
"""A tokenizer without merges is rebuilt in a time that grows with the square of its longest token."""
_NOTE = "README.md"
_CONVERSION = 3
"""Raised with every change of what a folder contains, so that folders of before are not used again."""
_GEMMA_LAYERS = {"gemma2": 46, "gemma3_text": 62}
"""Of the sizes of 27B, whose attention is not scaled by the head size."""
_DIGITS_APART = ("codeshell", "command-r", "exaone", "minerva-7b", "refact", "smollm", "starcoder")
"""llama.cpp's names of the rule that splits text as GPT-2 does, after every digit has become a piece of its own."""
_AS_GPT_2 = ("gpt-2", "jais", "mpt", "olmo", "phi-2", "trillion")
_FAMILY_CHECK = TrustedText("ansatz.models.families:check_config")
"""Refuses families, and is imported by its name because it belongs to a higher layer."""


def folder_of_gguf(file: Path, *, key: str = "model.path") -> Path:
    """Return the model folder of a GGUF file, and print a note about its content. The folder is written unless the
    cache has it.

    Raise ModelError for a file that is damaged or that transformers cannot read, or of a family that is refused, and
    MissingExtraError without the packages that read it.
    """
    about = file.stat()
    return _folder(file.resolve(), (about.st_size, about.st_mtime_ns), key)


@functools.lru_cache
def _folder(file: Path, _version: tuple[int, int], key: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ansatz" / "gguf"
    name = re.sub(r"[^\w.-]", "_", file.stem)[:100].lstrip(".")
    final = cache / f"{name}-{file_digest(file)[:16]}-{_CONVERSION}"
    if not (final / "config.json").is_file():
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        with folder_of_program("gguf", str(cache)) as place, storage_errors(cache):
            draft = Path(place, "model")
            _convert(file, draft, named=f"{key} = {str(file)!r}")
            for written in draft.iterdir():
                sync(written)
            if not final.exists():  # otherwise, another process was faster
                draft.rename(final)
        sync(cache)
    say(read_text(final / _NOTE).strip(), f"Its folder: {final}", file=sys.stderr)
    return final


def _convert(file: Path, folder: Path, *, named: str) -> None:
    try:
        importlib.import_module("gguf")
        importlib.import_module("accelerate")
        importlib.import_module("transformers.integrations.gguf")
    except ImportError as error:
        raise MissingExtraError(
            f"{named} is a file, which is read as GGUF with packages that are missing ({error}). Install them: "
            f"{install_command('gguf')}"
        ) from error
    try:
        reader = _open(file)
        _write(file, folder, reader, named=named)
        write_text(folder / _NOTE, _note(file, folder, reader) + "\n")
    except (OSError, ModelError):
        raise
    except BaseException as error:  # a wrong value fails anywhere in transformers, with any kind of error
        if not is_failure(error):
            raise
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise ModelError(
            f"{named} cannot be read as a GGUF file: {reason}. Give another copy or another model; a Hugging Face "
            "folder of the same model works too."
        ) from error


def _open(file: Path) -> Any:
    """Return the reader of the file's fields and tensors. Raise ValueError unless it holds all that it announces."""
    size = file.stat().st_size
    if size < 24:
        raise ValueError(f"it has only {size} bytes")
    reader: Any = importlib.import_module("transformers.integrations.gguf")
    metadata, _ = reader.read_gguf_metadata(str(file), ("tokenizer.ggml.tokens",))  # never reads beyond the file
    longest = max((len(token) for token in metadata.get("tokenizer.ggml.tokens", ())), default=0)
    if longest > _MOST_TOKEN_BYTES:
        raise ValueError(f"its tokenizer has a token of {longest} characters, expected at most {_MOST_TOKEN_BYTES}")
    if (parts := metadata.get("split.count", 1)) > 1:
        raise ValueError(f"it is one of the {parts} parts of a file; join them with llama-gguf-split --merge")
    try:
        return importlib.import_module("gguf").GGUFReader(str(file))
    except ValueError as error:
        raise ValueError(f"its tensors do not fit into its {size} bytes, as in a truncated file ({error})") from error


def _check_positions(config: Any, reader: Any) -> None:
    """Raise ValueError if the file scales its positions and the config that transformers made of it does not."""
    stated = [field.contents() for name, field in reader.fields.items() if name.endswith(".rope.scaling.type")]
    tensors = [each.name for each in reader.tensors if each.name.startswith(("rope_freqs", "rope_factors"))]
    scaled = [*(f"rope.scaling.type = {kind}" for kind in stated if kind != "none"), *tensors]
    rope: Any = getattr(config, "rope_parameters", None) or {}
    kinds = {part.get("rope_type", "default") for part in (rope, *rope.values()) if isinstance(part, dict)}
    if scaled and kinds <= {"default"}:
        raise ValueError(f"it scales its positions ({scaled[0]}), which transformers does not read from such a file")


def _set_attention(config: Any, reader: Any) -> None:
    """Set what transformers does not read about attention: a sliding window, and the scale of Gemma's scores as
    llama.cpp derives it. Raise ValueError if the family's config cannot hold the window."""
    for name, field in reader.fields.items():
        window = field.contents() if name.endswith(".attention.sliding_window") else 0
        if 0 < window < config.max_position_embeddings and window != getattr(config, "sliding_window", None):
            if config.model_type != "phi3":
                raise ValueError(f"it has a sliding window of {window} tokens, which transformers does not read")
            config.sliding_window = window
    if (most_layers := _GEMMA_LAYERS.get(config.model_type)) is not None:
        per_head = config.hidden_size // config.num_attention_heads
        config.query_pre_attn_scalar = per_head if config.num_hidden_layers == most_layers else config.head_dim


def _write(file: Path, folder: Path, reader: Any, *, named: str) -> None:
    """Write config, weights and tokenizer.

    While the file is read, only a link to it lies in the folder, so nothing else next to the file counts.
    """
    transformers: Any = importlib.import_module("transformers")
    torch: Any = importlib.import_module("torch")
    folder.mkdir()
    link = folder / "model.gguf"
    link.symlink_to(file)
    source = {"gguf_file": link.name, "local_files_only": True, "trust_remote_code": False}
    config, tensors = transformers.AutoConfig.from_pretrained(folder, **source), reader.tensors
    load_attribute(_FAMILY_CHECK, kind="check of families")(config, named)
    _check_positions(config, reader)
    _set_attention(config, reader)
    layers = getattr(config, "num_hidden_layers", 0)
    stored = sum(tensor.n_elements for tensor in tensors if not tensor.name.startswith("rope_"))
    if layers > len(tensors):
        raise ValueError(f"it names {layers} layers and has only {len(tensors)} tensors")
    with torch.device("meta"):
        empty = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    if (needed := sum(weight.numel() for weight in empty.parameters())) != stored:
        raise ValueError(f"it has {stored} weights, and transformers' {type(empty).__name__} of its sizes has {needed}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **source)
    if _split_rule(reader) in _DIGITS_APART:
        rules, pieces = importlib.import_module("tokenizers.pre_tokenizers"), tokenizer.backend_tokenizer
        pieces.pre_tokenizer = rules.Sequence([rules.Digits(individual_digits=True), pieces.pre_tokenizer])
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, **source
    )
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"it lacks {len(missing)} weights, such as {missing[0]}")
    link.unlink()
    empty.config.dtype = torch.float32
    empty.generation_config = model.generation_config
    empty.save_pretrained(folder, state_dict=model.state_dict())  # the model that was read is marked as quantised
    tokenizer.save_pretrained(folder)


def _split_rule(reader: Any) -> str | None:
    """Return llama.cpp's name of the rule that splits text into the pieces in which tokens are looked for; None for a
    tokenizer without such a rule."""
    kind, rule = (reader.fields.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    return None if kind.contents() != "gpt2" else rule.contents() if rule else "default"


def _note(file: Path, folder: Path, reader: Any) -> str:
    """Describe the file's copy of the model: its weights and their precision, its tokenizer and its chat template."""
    weights, size = Counter[str](), 0
    for tensor in reader.tensors:
        weights[tensor.tensor_type.name] += tensor.n_elements
        size += tensor.n_bytes
    total = weights.total()
    types = ", ".join(f"{100 * count / total:.2g} % in {name}" for name, count in weights.most_common())
    is_rounded = set(weights) - {"F32", "F16", "BF16"}
    loss = " These are the rounded values, not those of the original model." if is_rounded else ""
    template = "a chat template" if (folder / "chat_template.jinja").is_file() else "no chat template"
    guess, splits = "", parse_json(read_bytes(folder / "tokenizer.json"))["pre_tokenizer"] or {}
    if splits.get("type") == "ByteLevel" and (rule := _split_rule(reader)) not in (None, *_AS_GPT_2):
        guess = (
            f" Text is split as GPT-2 does, because transformers does not know the file's rule {rule!r}, so some texts "
            "have other tokens than in the model's training."
        )
    return (
        f"{file.name}: {total:,} weights ({types}; {8 * size / total:.2g} bits each), kept in float32.{loss} Its "
        f"tokenizer and {template} came with it.{guess}"
    )

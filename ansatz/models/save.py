"""Writing Hugging Face folders, and the precision of the weights in them.

Training keeps float32 master weights whatever the model's own precision is. A model folder is for use by other tools,
so it has the precision of the model that training began with: a bfloat16 model of 14 GB stays one of 14 GB.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn

from ansatz.files import storage_errors, write_text
from ansatz.hub import local_folder
from ansatz.json_text import parse_json
from ansatz.links import read_bytes
from ansatz.models.load import Policy
from ansatz.types import SYSTEM_ROLES

_BY_NAME = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BY_CODE = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}  # of safetensors


def save_model(policy: Policy, folder: Path, *, state: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    """Write an ordinary Hugging Face folder with these weights (with adapters: the weights of the base) in `dtype`."""
    model = policy.model if policy.base is None else policy.base
    stored = {name: value.to("cpu", dtype) for name, value in state.items()}
    with storage_errors(folder):
        model.save_pretrained(folder, state_dict={**_untrained(model), **stored})
        policy.tokenizer.save_pretrained(folder)
    config_file = folder / "config.json"  # transformers writes the type that the model computes in, and vLLM reads it
    config = parse_json(read_bytes(config_file))
    config["dtype"] = str(dtype).removeprefix("torch.")
    write_text(config_file, json.dumps(config, indent=2, sort_keys=True) + "\n")


def _untrained(model: nn.Module) -> dict[str, Tensor]:
    """Return the stored values that are not parameters, such as the routing bias of DeepSeek-V3, in their own type."""
    stored = model.state_dict().keys()
    return {name: value.cpu() for name, value in model.named_buffers() if name in stored}


def save_chat_template(folder: Path, *, before: str, after: str) -> None:
    """Write a chat template that renders the last message between two texts.

    It gives the token ids of the rendered text, also if the tokenizer puts a first token before every text.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    begins = tokenizer.bos_token_id is not None and tokenizer.encode("1")[:1] == [tokenizer.bos_token_id]
    start, end = (json.dumps(text, ensure_ascii=False) for text in (before, after))
    template = f"{{{{ {start} }}}}{{{{ messages[-1]['content'] }}}}{{{{ {end} }}}}"
    write_text(folder / "chat_template.jinja", ("{{ bos_token }}" if begins else "") + template)


def add_to_chat_template(folder: Path, *, system: str | None, arguments: Mapping[str, Any]) -> None:
    """Give the folder's chat template a default system prompt, and default values of its arguments.

    A conversation with its own system prompt keeps it, as in training.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    start = "".join(
        f"{{%- if {name} is not defined or {name} is none %}}{{%- set {name} = {_jinja(value)} %}}{{%- endif %}}"
        for name, value in arguments.items()
    )
    if system is not None:
        roles, turn = _jinja(list(SYSTEM_ROLES)), _jinja({"role": "system", "content": system})
        start += (
            f"{{%- if not messages or messages[0]['role'] not in {roles} %}}"
            f"{{%- set messages = [{turn}] + messages | list %}}{{%- endif %}}"
        )
    start += "{{ '' }}"  # without this, a line break at the start of the template would be lost
    write_text(folder / "chat_template.jinja", start + tokenizer.get_chat_template())


def _jinja(value: Any) -> str:
    """Write a value of a recipe as a literal of Jinja."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_jinja(key)}: {_jinja(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_jinja, value)) + "]"
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def export_dtype(name: str, model: str | Path) -> torch.dtype:
    """Return the precision that `save.dtype` names.

    auto: the precision of the weights where training began, a folder or a model of the hub. Raise ModelError as
    `hub.local_folder` does.
    """
    return stored_dtype(local_folder(model)) if name == "auto" else _BY_NAME[name]


def stored_dtype(folder: Path) -> torch.dtype:
    """Return the type of most weights in a model folder.

    Without safetensors files: the type in its config, otherwise float32.

    Types that Ansatz does not write, such as types of quantised weights, do not count.
    """
    sizes = Counter[torch.dtype]()
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 the file is not a mapping
                tensor = file.get_slice(name)
                if (dtype := _BY_CODE.get(tensor.get_dtype())) is not None:
                    sizes[dtype] += torch.Size(tensor.get_shape()).numel()
    if sizes:
        return sizes.most_common(1)[0][0]
    try:
        config = parse_json(read_bytes(folder / "config.json"))
    except (OSError, ValueError):
        return torch.float32
    named = (config.get("dtype") or config.get("torch_dtype")) if isinstance(config, Mapping) else None
    return _BY_NAME.get(str(named), torch.float32)

"""Models by name: a local folder or GGUF file, or a model of the Hugging Face hub with an optional revision.

    path/to/folder
    path/to/model.gguf                     becomes a folder in the cache (`gguf_file`)
    Qwen/Qwen2.5-1.5B-Instruct             the branch main
    Qwen/Qwen2.5-1.5B-Instruct@a1b2c3      a branch, tag or commit

An existing path wins over a hub name. Downloads go to the hub's own cache (HF_HOME), and HF_HUB_OFFLINE=1 uses that
cache only.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ansatz.errors import MissingModelError, ModelError, NotStoredError
from ansatz.files import check_ordinary_files
from ansatz.links import read_text
from ansatz.registry import load_attribute
from ansatz.trust import TrustedText

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken.json")

GGUF_READER = TrustedText("ansatz.gguf_file:folder_of_gguf")
"""Makes a folder of a GGUF file. It is imported when a recipe names such a file."""
_EXPORTED = ["recipe.yaml", "prompt.txt"]  # of models that Ansatz wrote
_WEIGHTS = "*.safetensors"
_FILES = ["*.json", _WEIGHTS, "*.model", "*.tiktoken", "*.jinja", "vocab.json", "vocab.txt", "merges.txt", *_EXPORTED]
_OLD_WEIGHTS = ["pytorch_model*.bin"]
_IGNORED = ["*/*", "consolidated*", "*.py"]  # other formats of the same weights, such as onnx/, and code
_STORED_ONLY: ContextVar[bool] = ContextVar("_STORED_ONLY", default=False)
_HUB_NAME = re.compile(
    r"(?![^@]*(?:--|\.\.))([A-Za-z0-9](?:[\w.-]*\w)?/[A-Za-z0-9](?:[\w.-]{,94}\w)?(?<!\.git))(?:@([\w./-]+))?"
)
"""As the hub checks names: without this, it would raise an error of its own for a folder such as runs/a--b."""


class HubName(NamedTuple):
    """A model of the hub. revision: a branch, tag or commit; None: the branch main."""

    repository: str
    revision: str | None


def hub_name(name: str | Path) -> HubName | None:
    """Return the parts of a hub name; None for an existing path and for a name that can only be a path."""
    is_path = Path(name).exists() or str(name).endswith(".gguf")
    match = None if is_path else _HUB_NAME.fullmatch(str(name))
    return None if match is None else HubName(match[1], match[2])


@contextmanager
def stored_only() -> Iterator[None]:
    """Download nothing within the block: NotStoredError is raised instead, here and by `data.hub`."""
    token = _STORED_ONLY.set(True)
    try:
        yield
    finally:
        _STORED_ONLY.reset(token)


def downloads_allowed() -> bool:
    return not _STORED_ONLY.get()


def local_folder(name: str | Path, *, key: str = "model.path", weights: bool = True) -> Path:
    """Return the folder of a model.

    A model of the hub is downloaded unless the cache has it; files that are not needed are left out. A file is read as
    GGUF. Any other path is returned as it is, whether or not it exists.

    key: the setting whose value the name is, for messages. weights: False if only the tokenizer is needed.

    Raise ModelError if the hub has no such model or revision, does not give access to it, or cannot be reached.
    """
    parts = hub_name(name)
    if parts is None:
        if not Path(name).is_file():
            return Path(name)
        return load_attribute(GGUF_READER, kind="reader of GGUF files")(Path(name), key=key)
    with _refusals(str(name), parts, key=key), _progress_shown():
        if not weights:
            return _download(parts, [name for name in _FILES if name != _WEIGHTS])
        folder = _download(parts, _FILES)
        return folder if any(folder.glob(_WEIGHTS)) else _download(parts, _FILES + _OLD_WEIGHTS)


def model_folder(name: str | Path, *, key: str = "model.path") -> Path:
    """Return the folder of a model, which is downloaded if it is on the hub. Cheap enough to run before any work.

    Raises ModelError unless the folder has the files of a model with a tokenizer, MissingModelError if it does not
    exist.
    """
    folder = local_folder(name, key=key)
    check_ordinary_files(folder)
    if (adapter := folder / "adapter_config.json").is_file():
        _refuse_adapter(adapter, name=str(name), key=key)
    if not (folder / "config.json").is_file():
        problem = "has no config.json" if folder.is_dir() else "is not a folder"
        problem = "is not a file" if str(name).endswith(".gguf") and not folder.exists() else problem
        if file := next(iter(sorted(folder.glob("*.gguf"))), None):
            problem += f"; give its file {file.name}"
    elif not any(file for pattern in TOKENIZER_FILES for file in folder.glob(pattern)):
        problem = "has no tokenizer"  # transformers would create an empty one
    else:
        return folder
    kind = ModelError if folder.exists() else MissingModelError
    raise kind(
        f"{key} = {str(name)!r} {problem}. Give a Hugging Face model folder (config.json, weights, tokenizer), a .gguf "
        "file, or a model of the hub (OWNER/NAME or OWNER/NAME@REVISION)."
    )


def is_stored(name: str | Path) -> bool:
    """Tell whether `local_folder` needs no download: the path exists, or the model is in the hub's cache."""
    if hub_name(name) is None:
        return Path(name).exists()
    with stored_only(), suppress(NotStoredError, ModelError):
        local_folder(name)
        return True
    return False


def pinned(name: str, *, key: str = "model.path") -> str:
    """Return the hub name with the commit that its revision stands for now, such as "Qwen/Qwen2.5-1.5B@989aa79...".
    For a GGUF file, return the folder that was made of it, and for a folder the name itself. Downloads the model, and
    raises the errors of `local_folder`."""
    parts = hub_name(name)
    if parts is None:
        return str(local_folder(name, key=key)) if Path(name).is_file() else name
    return f"{parts.repository}@{local_folder(name, key=key).name}"


def _download(parts: HubName, patterns: list[str]) -> Path:
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(
            parts.repository,
            revision=parts.revision,
            allow_patterns=patterns,
            ignore_patterns=_IGNORED,
            local_files_only=not downloads_allowed(),
        )
    except errors.LocalEntryNotFoundError as error:
        if downloads_allowed():
            raise
        raise NotStoredError(f"the model {parts.repository} is not on this machine; a run downloads it.") from error
    return Path(folder)


@contextmanager
def _progress_shown() -> Iterator[None]:
    """Show the hub's progress bars, which transformers switches off together with its own bars for loading."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    disabled = are_progress_bars_disabled()
    if disabled:
        enable_progress_bars()
    try:
        yield
    finally:
        if disabled:
            disable_progress_bars()


@contextmanager
def _refusals(name: str, parts: HubName, *, key: str) -> Iterator[None]:
    """Turn the hub's errors into one sentence with advice."""
    from huggingface_hub import errors

    repository, revision = parts.repository, parts.revision or "main"
    try:
        yield
    except errors.GatedRepoError as error:
        problem = (
            f"is a gated model. Accept its conditions on https://huggingface.co/{repository}, then log in with "
            "`hf auth login` or set HF_TOKEN."
        )
        raise ModelError(f"{key} = {name!r} {problem}") from error
    except errors.RepositoryNotFoundError as error:
        problem = (
            "is neither a local folder nor a model that the hub shows to you. Check the spelling; for a private "
            "model, log in with `hf auth login` or set HF_TOKEN."
        )
        raise ModelError(f"{key} = {name!r} {problem}") from error
    except errors.RevisionNotFoundError as error:
        problem = f"names the revision {revision!r}, which {repository} does not have. Give a branch, tag or commit."
        raise ModelError(f"{key} = {name!r} {problem}") from error
    except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as error:
        at = f" --revision {revision}" if parts.revision else ""
        problem = (
            f"is neither a local folder nor complete in the hub's cache, and the hub cannot be reached "
            f"({_cause(error)}). Run `hf download {repository}{at}` where there is a network, unset HF_HUB_OFFLINE, or "
            "give a model folder."
        )
        raise ModelError(f"{key} = {name!r} {problem}") from error


def _cause(error: BaseException) -> str:
    """Return the first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200].rstrip(".")


def _refuse_adapter(file: Path, *, name: str, key: str) -> NoReturn:
    """Raise ModelError for a folder of an adapter: transformers would load its base from anywhere, and not the weights
    next to it. A base that only a file names is not loaded."""
    try:
        base: Any = json.loads(read_text(file)).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError, RecursionError):
        base = None
    further = ""
    if key == "model.path":
        given = shlex.quote(base) if isinstance(base, str) and base.isprintable() and 0 < len(base) < 100 else "BASE"
        further = (
            " To train the adapter further, name its base yourself, if you trust it: "
            f"--model.path {given} --model.lora.path {shlex.quote(name)}"
        )
    raise ModelError(
        f"{key} = {name!r} holds a peft adapter (adapter_config.json) for the base {base!r:.100}, not a model of its "
        "own. Merge the two with peft (merge_and_unload, save_pretrained, and save the tokenizer too) and give that "
        f"folder. If this folder has all weights of a model, remove adapter_config.json.{further}"
    )

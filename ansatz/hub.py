"""Models by name: a local folder, or a model of the Hugging Face hub with an optional revision.

    path/to/folder
    Qwen/Qwen2.5-1.5B-Instruct             the branch main
    Qwen/Qwen2.5-1.5B-Instruct@a1b2c3      a branch, tag or commit

An existing folder wins over a hub name. Downloads go to the hub's own cache (HF_HOME), and HF_HUB_OFFLINE=1 uses that
cache only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from ansatz.errors import MissingModelError, ModelError, NotStoredError
from ansatz.files import check_ordinary_files

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken.json")

_EXPORTED = ["recipe.yaml", "prompt.txt"]  # of models that Ansatz wrote
_WEIGHTS = "*.safetensors"
_FILES = ["*.json", _WEIGHTS, "*.model", "*.tiktoken", "*.jinja", "vocab.*", "merges.txt", *_EXPORTED]
_OLD_WEIGHTS = ["pytorch_model*.bin"]
_IGNORED = ["*/*", "consolidated*"]  # other formats of the same weights, such as original/ and onnx/
_STORED_ONLY: ContextVar[bool] = ContextVar("_STORED_ONLY", default=False)
_HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")


class HubName(NamedTuple):
    """A model of the hub. revision: a branch, tag or commit; None: the branch main."""

    repository: str
    revision: str | None


def hub_name(name: str | Path) -> HubName | None:
    """Return the parts of a hub name; None for an existing folder and for what can only be a path."""
    match = None if Path(name).exists() else _HUB_NAME.fullmatch(str(name))
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

    A model of the hub is downloaded unless the cache has it; files that are not needed are left out. A path is returned
    as it is, whether or not it exists.

    key: what the name is the value of, for messages. weights: False if only the tokenizer is needed.

    Raise ModelError if the hub has no such model or revision, does not give access to it, or cannot be reached.
    """
    parts = hub_name(name)
    if parts is None:
        return Path(name)
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
    if not (folder / "config.json").is_file():
        problem = "has no config.json" if folder.is_dir() else "is not a folder"
    elif not any(file for pattern in TOKENIZER_FILES for file in folder.glob(pattern)):
        problem = "has no tokenizer"  # transformers would create an empty one
    else:
        return folder
    kind = ModelError if folder.exists() else MissingModelError
    raise kind(
        f"{key} = {str(name)!r} {problem}. Give a Hugging Face model folder (config.json, weights, tokenizer), or a "
        "model of the hub (OWNER/NAME or OWNER/NAME@REVISION)."
    )


def is_stored(name: str | Path) -> bool:
    """Tell whether `local_folder` needs no download: a folder, or a model that the hub's cache has."""
    if hub_name(name) is None:
        return Path(name).is_dir()
    try:
        with stored_only():
            local_folder(name)
    except (NotStoredError, ModelError):
        return False
    return True


def pinned(name: str, *, key: str = "model.path") -> str:
    """Return the hub name with the commit that its revision stands for now, such as "Qwen/Qwen2.5-1.5B@989aa79...";
    the name itself if it is not one of the hub. Downloads the model, and raises what `local_folder` raises."""
    parts = hub_name(name)
    return name if parts is None else f"{parts.repository}@{local_folder(name, key=key).name}"


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
    """Show the hub's progress bars, which transformers switches off together with those of loading."""
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
    """Turn the hub's errors into one sentence that says what to do."""
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
        problem = (
            f"is neither a local folder nor complete in the hub's cache, and the hub cannot be reached "
            f"({_cause(error)}). Run `hf download {repository}` where there is a network, unset HF_HUB_OFFLINE, or "
            "give a model folder."
        )
        raise ModelError(f"{key} = {name!r} {problem}") from error


def _cause(error: BaseException) -> str:
    """Return the first cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200].rstrip(".")

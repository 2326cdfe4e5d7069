"""The user's own files that decide what a run learns: the code, presets, templates and models that its recipe names.

Their digests are part of the run's record, like the values of the recipe. Without this, if a reward was edited or a
model was trained further between a kill and the resume, other weights would result without notice. Rows of data are not
listed here, because the run stores them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import ansatz
from ansatz.config.paths import MODEL_KEYS, TEXT_ENDINGS, TEXT_KEYS
from ansatz.files import is_special
from ansatz.trust import TrustedText

_FILE = re.compile(r"(.+\.py):\w+")
_MODULE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):[^\W\d]\w*")
_OF_MODELS = (".json", ".safetensors", ".bin", ".model", ".tiktoken", ".jinja", ".txt", ".yaml")
"""Endings of the files that belong to a model folder."""
_READ_WHOLE_BYTES = 64 << 20
_NUM_BLOCKS, _BLOCK_BYTES = 64, 64 << 10
_INSTALLED = (
    Path(ansatz.__file__).resolve().parent,
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


def file_digests(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 by path of the user's files: files that the recipe names, files that these import from their
    own folder, and the files of each local model folder.

    Imports are read from the source, wherever they are in it. Installed packages are not followed. Like torch, they are
    the user's to keep at the same version.
    """
    digests = dict[str, str]()
    for key, text in sorted(set(_texts(recipe))):
        for name, path in _files_of(key, text).items():
            digests[name] = _digest(path)
    return dict(sorted(digests.items()))


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a value, at any depth, under the last key above it. The keys themselves come under no key. So
    do texts that look like the path of a model but are none: rows of data, and the name of a model on a server."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        section = cast("Mapping[str, Any]", value)
        named = {"source", "url"} & section.keys()
        for name, inner in section.items():
            yield "", name
            yield from _texts(inner, "" if named and name in MODEL_KEYS else name)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner, key)


def _files_of(key: str, text: str) -> dict[str, Path]:
    """Return the files that a text of the recipe stands for, by name; none for most texts. A name is relative if the
    text is, so that a project can be moved together with its runs."""
    if match := _FILE.fullmatch(text):
        path = Path(match[1])
        return _with_imports(path, path.parent) if _is_file(path) else {}
    if isinstance(text, TrustedText) and (match := _MODULE.fullmatch(text)):
        return _files_of_module(match[1])
    path = Path(text)
    if key in MODEL_KEYS and text and any(_is_file(path / name) for name in ("config.json", "adapter_config.json")):
        return {str(file): file for file in path.iterdir() if file.suffix in _OF_MODELS and _is_file(file)}
    return {text: path} if key in TEXT_KEYS and path.suffix in TEXT_ENDINGS and _is_file(path) else {}


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file. For a large file, which holds weights, hash its size and 64 blocks of it.

    Training changes all weights, and so every block. To read all of them would take minutes at each start, and times of
    files change when a project is copied.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _READ_WHOLE_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256(str(size).encode())
        for block in range(_NUM_BLOCKS):
            file.seek(block * (size - _BLOCK_BYTES) // (_NUM_BLOCKS - 1))
            digest.update(file.read(_BLOCK_BYTES))
        return digest.hexdigest()


def _files_of_module(name: str) -> dict[str, Path]:
    # To find a module within a package, Python imports the package.
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return {}
    if spec is None or spec.origin is None:
        return {}
    path = Path(spec.origin)
    if path.suffix != ".py" or not _is_file(path) or _is_installed(path):
        return {}
    folder = path.parents[name.count(".") + (path.name == "__init__.py")]
    return _with_imports(path, folder, shown=Path())


def _with_imports(path: Path, folder: Path, *, shown: Path | None = None) -> dict[str, Path]:
    """Return the file and every file within the folder that it imports, even indirectly. shown: the folder in names."""
    root = folder.absolute()
    known, queue = dict.fromkeys([path.absolute()]), [path.absolute()]
    while queue:
        for imported in _imports(queue.pop(), root):
            if imported not in known and not _is_installed(imported):
                known[imported] = None
                queue.append(imported)
    return {str((folder if shown is None else shown) / file.relative_to(root)): file for file in known}


def _imports(file: Path, folder: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(alias.name.split("."), folder)
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else None
            module = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _modules([*module, alias.name], folder, start=start)
        elif isinstance(node, ast.Call) and _is_import_call(node.func) and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield from _modules([part for part in name.value.split(".") if part], folder)


def _is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def _modules(names: list[str], folder: Path, *, start: Path | None = None) -> Iterator[Path]:
    """Yield the files within the folder that are read when this dotted name is imported: packages, modules, or nothing.

    start: the folder of a relative import; None: any folder above may be the one that Python looks in.
    """
    for root in (folder, *folder.parents) if start is None else (start,):
        place = root
        for name in names:
            place /= name
            for path in (place / "__init__.py", place.with_name(f"{name}.py")):
                if path.is_relative_to(folder) and _is_file(path):
                    yield path


def _is_installed(path: Path) -> bool:
    return any(path.resolve().is_relative_to(each) for each in _INSTALLED)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file() and not is_special(path)
    except (OSError, ValueError):  # a text that is too long for a name, or has a null character
        return False

"""Whether text may name code: text of the program and text that the user gave may, text that was found may not.

A recipe that the user names, and the options of a command, are `TrustedText`. A recipe that came along with a model or
a run is `FoundText`: its names stand for packaged components only. Everything that imports by name, or hands out a
secret, asks `require`, so a text that nobody has marked is refused too.

A run that was started here carries a signature of the texts of its recipe, made with a key that only this user has.
Somebody else can copy the signature, but not make one for a recipe that names other code.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from ansatz.errors import UntrustedCodeError

ValueT = TypeVar("ValueT")
OPTION = "--trust-code"
_CODE = re.compile(r"[^\s:]+:[^\W\d]\w*")
_OWN_PLACE = ("name", "out")
"""Keys of a recipe that say where the run is. They change when it is moved."""


class TrustedText(str):
    """Text of the program itself or of the user, which may name code that is imported."""

    __slots__ = ()


class FoundText(str):
    """Text of a recipe that the user has not given. file: where it was found; None: not known. code: the names of code
    in that recipe, for an error."""

    file: Path | None
    code: Sequence[str]

    def __new__(cls, text: str, file: Path | None = None, code: Sequence[str] = ()) -> FoundText:
        found = super().__new__(cls, text)
        found.file, found.code = file, code
        return found


def require(text: str, *, kind: str) -> None:
    """Raise UntrustedCodeError unless the text may name code. kind: the kind of thing that it names, such as
    "reward"."""
    if isinstance(text, TrustedText):
        return
    file = getattr(text, "file", None)
    place = f"{file}, which came along with a model or a run," if file else "text that was found, not given,"
    code = text.rpartition(":")[0] if _CODE.fullmatch(text) else ""
    first = f" Read {code} first, then allow it with {OPTION}." if code else f" Allow it with {OPTION}."
    sentence = f"{kind} {str(text)!r}: {place} names it, so nothing of it was used.{first}"
    raise UntrustedCodeError(sentence, name=text, names=getattr(text, "code", ()))


def refuse_found(text: str, *, kind: str) -> None:
    """Raise UntrustedCodeError for the text of a recipe that the user has not given; a caller's own text may be used.

    kind: the thing that it names: a server, a folder that is written, a restriction that is weakened.
    """
    if isinstance(text, FoundText):
        require(text, kind=kind)


def trusted(value: ValueT) -> ValueT:
    """Return the value with every text in it, keys included, as one that the user gave."""
    return _map_texts(value, TrustedText)


def unmarked(value: ValueT) -> ValueT:
    """Return the value with every text in it, keys included, as plain text, which YAML can write."""
    return _map_texts(value, str)


def mark_as_found(file: Path, value: ValueT) -> ValueT:
    """Return the value with every text in it, keys included, as one that was found in a file, except those that the
    user has given."""
    code = sorted({text for text in texts_of(value) if _CODE.fullmatch(text) and not isinstance(text, TrustedText)})
    return _map_texts(value, lambda text: text if isinstance(text, TrustedText) else FoundText(text, file, code))


def marking(source: Any) -> Callable[[Any], Any]:
    """Return a function that marks each text of a value like the equal text in `source`. The value was made from
    `source`."""
    marks = {text: text for text in texts_of(source) if not isinstance(text, TrustedText)}
    marks |= {text: text for text in texts_of(source) if isinstance(text, TrustedText)}
    return lambda value: _map_texts(value, lambda text: marks.get(text, text))


def texts_of(value: Any) -> Iterator[str]:
    """Yield every key and every text in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield key
            yield from texts_of(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from texts_of(inner)


def _map_texts(value: Any, mark: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mark(value)
    if isinstance(value, Mapping):
        return {
            _map_texts(key, mark): _map_texts(inner, mark) for key, inner in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [_map_texts(inner, mark) for inner in cast("list[Any]", value)]
    return tuple(_map_texts(inner, mark) for inner in cast("tuple[Any]", value)) if isinstance(value, tuple) else value


def signature(recipe: Mapping[str, Any]) -> str:
    """Return the signature of the texts of a recipe; empty if this user can keep no key.

    Numbers are not signed, so that a run can be extended, and neither is the place of the run.
    """
    return "" if (key := _key()) is None else _sign(key, recipe)


def is_signed(recipe: Mapping[str, Any], signatures: Collection[str]) -> bool:
    """Return whether one of the signatures is this user's, and of the texts of this recipe."""
    key = _key(make=False) if signatures else None
    return key is not None and any(
        hmac.compare_digest(_sign(key, recipe), each) for each in signatures if each.isascii()
    )


def _sign(key: bytes, recipe: Mapping[str, Any]) -> str:
    texts = sorted(set(texts_of({name: value for name, value in recipe.items() if name not in _OWN_PLACE})))
    return hmac.new(key, json.dumps(list(map(str, texts))).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool = True) -> bytes | None:
    """Return the user's key, and make it if it is missing. None if it cannot be read or kept."""
    with suppress(OSError, RuntimeError):  # without a home
        path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "ansatz" / "key"
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent) as draft:  # of mode 0600
                draft.write(secrets.token_hex(32).encode())
                draft.flush()
                with suppress(FileExistsError):  # of another process: the first key stays
                    os.link(draft.name, path)
        return path.read_bytes() or None
    return None

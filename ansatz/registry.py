"""Components by name. A name is registered, or it is `path/to/file.py:function` or `package.module:function`.

The keyword-only parameters of a component are its settings. `settings_of` reads them from the signature, and `bind`
checks the settings of a recipe against them, so nothing is declared twice.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import math
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ansatz.errors import AnsatzError, ConfigError, UserCodeError
from ansatz.links import read_bytes
from ansatz.process import keep_settings
from ansatz.trust import TrustedText, marking, require
from ansatz.visible import error_text

F = TypeVar("F", bound=Callable[..., Any])

LARGEST = 10**15
"""Numbers of a recipe are smaller. Larger ones are mistakes; whole ones overflow in the random generators."""
_PACKAGE = Path(__file__).parent
_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True)


OTHER_NAMES = {
    **dict.fromkeys(("prompt_key", "problem_key", "input_key", "query_key", "text_key"), "question_key"),
    **dict.fromkeys(("gold_key", "label_key", "target_key", "ground_truth_key", "reward_key"), "answer_key"),
    **dict.fromkeys(("response_key", "output_key", "completion_key"), "solution_key"),
}
"""Settings of other projects by their name there, where no spelling is near."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggest " Did you mean X?" if a known name is similar, otherwise list the known names."""
    names = sorted(known)
    if OTHER_NAMES.get(name) in names:
        return f" Did you mean {OTHER_NAMES[name]!r}?"
    similar = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {similar[0]!r}?" if similar else f" Known: {', '.join(names)}."


class Registry(Generic[F]):
    """Functions or classes of one kind, such as "surrogate", by name. A name can be registered only once.

    elsewhere: names with their `module:name`, imported when the name is used.
    """

    def __init__(self, kind: str, *, elsewhere: Mapping[str, str] | None = None) -> None:
        self.kind, self._elsewhere = kind, elsewhere or {}
        self._entries: dict[str, F] = {}

    def register(self, *names: str) -> Callable[[F], F]:
        """Register a function, as a decorator.

        Without names, the name of the function is used. Further names are aliases.
        """

        def add(function: F) -> F:
            for name in names or (function.__name__,):
                if name in self._entries:
                    raise ValueError(f"{self.kind} {name!r} is registered twice")
                self._entries[name] = function
            return function

        return add

    def names(self) -> list[str]:
        return sorted({**self._entries, **self._elsewhere})

    def get(self, name: Any) -> F:
        """Return the component with this name.

        A name with a colon is loaded from a file or a module. Raise ConfigError for an unknown name, and for a value
        that is not text.
        """
        if not isinstance(name, str):
            raise ConfigError(f"{self.kind} {name!r:.60}: expected a name. Known: {', '.join(self.names())}.")
        if name in self._entries:
            return self._entries[name]
        place = TrustedText(self._elsewhere[name]) if name in self._elsewhere else name
        if ":" in place:
            return load_attribute(place, kind=self.kind)
        raise ConfigError(f"{self.kind} {name!r} is unknown.{suggest(name, self.names())}")

    def bind(self, name: Any, settings: Mapping[str, Any]) -> F:
        """Return the component with its settings filled in; see the function `bind`."""
        return bind(self.get(name), settings, what=f"{self.kind} {name!r}")


def settings_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the keyword-only parameters in order. Annotations that are written as text are resolved."""
    if not callable(function):
        raise ConfigError(f"{function!r} is not a function. Give the name of a function.")
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # a name that only type checkers import
        signature = inspect.signature(function)
    return {p.name: p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def bind(function: F, settings: Mapping[str, Any], *, what: str) -> F:
    """Return the function with its settings filled in.

    Raise ConfigError for an unknown setting or a value of a wrong type.
    """
    known = settings_of(function)
    for key in settings:
        if key not in known:
            raise ConfigError(
                f"{what} has no setting {key!r}.{suggest(key, known) if known else ' It has no settings.'}"
            )
    values = {key: _typed(value, known[key], what) for key, value in settings.items()}
    return cast(F, functools.partial(function, **values)) if values else function


def check_required(function: Callable[..., Any], given: Collection[str], *, what: str) -> None:
    """Raise ConfigError if a setting of the function has no default and is not given."""
    for key, parameter in settings_of(function).items():
        if parameter.default is inspect.Parameter.empty and key not in given:
            raise ConfigError(f"{what} needs the setting {key!r}, which has no default. Give it too.")


def _typed(value: Any, parameter: inspect.Parameter, what: str) -> Any:
    """Return the value converted to the annotated type: 1e3 becomes an int if the annotation is int."""
    if parameter.annotation is inspect.Parameter.empty or isinstance(parameter.annotation, str):
        return value
    try:
        typed = TypeAdapter[Any](parameter.annotation, config=_ANY_TYPE).validate_python(value)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise ConfigError(f"{what}: {parameter.name} = {value!r}: {message[:1].lower()}{message[1:]}.") from error
    if (problem := number_problem(typed)) is not None:  # also of a text such as "nan", which has become a number
        raise ConfigError(f"{what}: {parameter.name} = {value!r}: {problem}.")
    return marking(value)(typed)


def number_problem(value: Any) -> str | None:
    """Return why a number of a recipe, or one in a list or a mapping, cannot be used; None if all can."""
    if isinstance(value, float) and not math.isfinite(value):
        return "it should be a finite number"
    if isinstance(value, int | float) and abs(value) >= LARGEST:
        return "it should be a number of at most 15 digits"
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, Any]", value).values()
    elif isinstance(value, list | tuple):
        inner = cast("list[Any]", value)
    return next((problem for each in inner if (problem := number_problem(each)) is not None), None)


def describe_missing_file(path: str | Path) -> str:
    """Describe a path that is not a file, in words that follow the path."""
    path = Path(path)
    if path.is_dir():
        return "is a folder, expected a file"
    if path.exists():
        return "is a pipe, a device or a socket, expected a file"
    return "is a link that leads nowhere" if path.is_symlink() else f"does not exist (current folder: {Path.cwd()})"


def read_given_text(path: Path, *, named: str) -> str:
    """Return the text of a file that the user names, without a byte order mark. Raise ConfigError for other than UTF-8.

    named: the key with the file's name, for the message.
    """
    try:
        return read_bytes(path).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise ConfigError(f"{named} is not UTF-8 text ({why}). Save it as UTF-8.") from error


def names_in_package(package: str) -> list[str]:
    """Return the modules of a package that hold a function or a class with the name of the module."""
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(module.name for module in modules if _find_namesake(package, module.name) is not None)


def find_in_package(package: str, name: str, *, kind: str) -> Any:
    """Return the function or class `name` of the module `name` of a package; of a name with a colon, the user's own.

    Raise ConfigError for an unknown name, with the nearest known one.
    """
    if ":" in name:
        return load_attribute(name, kind=kind)
    found = _find_namesake(package, name) if name.isidentifier() else None
    if found is None:
        module = f"{package}.{name}"
        lacks = f": {module} has no function or class {name!r}" if module in sys.modules else ""
        raise ConfigError(f"{kind} {name!r} is unknown{lacks}.{suggest(name, names_in_package(package))}")
    return found


def _find_namesake(package: str, name: str) -> Any:
    try:
        module = importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name == f"{package}.{name}":
            return None
        raise
    found = getattr(module, name, None)
    return found if inspect.isfunction(found) or inspect.isclass(found) else None


def load_attribute(reference: str, *, kind: str) -> Any:
    """Import `file.py:name` or `package.module:name`. Raise ConfigError if there is no such file, module or name, and
    UntrustedCodeError for text that may not name code."""
    require(reference, kind=kind)
    place, _, attribute = reference.rpartition(":")
    try:
        with keep_settings(f"{kind} {reference!r}"):
            module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise ConfigError(f"{kind} {reference!r}: {place!r} {describe_missing_file(place)}.") from error
    except Exception as error:  # code of a user can raise anything while it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{kind} {reference!r}: cannot import {place!r} ({reason}).") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{kind} {reference!r}: {place!r} has no {attribute!r}.")
    found = getattr(module, attribute)
    is_ours = place.partition(".")[0] == "ansatz"
    # Rewards are called by a grader, which says for which problem they fail.
    return found if is_ours or kind == "reward" or not inspect.isfunction(found) else _blame(found, kind, reference)


def _blame(function: Callable[..., Any], kind: str, reference: str) -> Callable[..., Any]:
    """Return the user's function, whose errors become a UserCodeError that names it, with its file and line."""
    what = f"{kind} {reference!r}"

    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        with blaming(what):
            result = function(*arguments, **settings)
        return _each(cast("Iterator[Any]", result), what) if isinstance(result, Iterator) else result

    call.user_code = what  # type: ignore[attr-defined]
    return call


def _each(items: Iterator[Any], what: str) -> Iterator[Any]:
    end = object()
    while True:
        with blaming(what):
            item = next(items, end)
        if item is end:
            return
        yield item


@contextmanager
def blaming(what: str) -> Generator[None]:
    """Turn errors of the user's code within the block into a UserCodeError. what: names the code."""
    try:
        with keep_settings(what):
            yield
    except AnsatzError:
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # of torch: of the memory, not of the code
            raise
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not Path(frame.filename).is_relative_to(_PACKAGE)]
        place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
        raise UserCodeError(f"{what} raised {type(error).__name__}: {error_text(error)}{place}. Correct it.") from error


def check_result(function: Any, value: Any, *, is_right: Callable[[], bool], expected: str) -> None:
    """Raise UserCodeError, which names the user's function, for a result that is not right. Results of functions of the
    package are not looked at."""
    while isinstance(function, functools.partial):  # with settings bound
        function = cast("functools.partial[Any]", function).func
    what = getattr(function, "user_code", None)
    if what is not None and not is_right():
        try:
            shown = " ".join(repr(value).split())
        except Exception:  # the class of a user can raise anything
            shown = ""
        raise UserCodeError(f"{what} returned the {type(value).__name__} {shown:.80}, expected {expected}. Correct it.")


def _load_file(path: Path) -> ModuleType:
    """Import the file as a module, once per process, so that two names from one file share its state."""
    name = f"ansatz_user_{path.stem}_{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # without this, the file cannot define a dataclass
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

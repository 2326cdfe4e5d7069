"""Data sources. A data source is a function `<name>` in `data/<name>.py`; it is found by its file name.

A source has the signature `<name>(*, split, ...settings) -> Iterable[Problem]` and returns the same problems in the
same order on every call. A source that can compute any problem by its index returns a Sequence, which is then never
held in memory as a whole. A name with a colon (`path/to/file.py:function`, `package.module:function`) is a user's
source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from ansatz.errors import DataError
from ansatz.registry import bind, check_required, check_result, find_in_package, names_in_package
from ansatz.types import Problem

Source = Callable[..., Iterable[Problem]]


class ComputedProblems(Sequence[Problem]):
    """A sequence of `size` problems. Each is computed when it is accessed, by `make(index)`."""

    def __init__(self, make: Callable[[int], Problem], size: int) -> None:
        self._make, self._size = make, size

    def at(self, index: int) -> Problem:
        """Return the problem with this index, which is not negative."""
        return self._make(index)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self.at(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} problems")
        return self.at(index % len(self))

    def __iter__(self) -> Iterator[Problem]:
        return map(self.at, range(len(self)))


def source_names() -> list[str]:
    """Return the sources of this package: every module that contains a function with the module's name."""
    return names_in_package("ansatz.data")


def find_source(name: str) -> Source:
    """Return the source with this name. Raise ConfigError for an unknown name, with the nearest known one."""
    return find_in_package("ansatz.data", name, kind="data source")


def bind_source(name: str, settings: Mapping[str, Any]) -> Source:
    """Return the source with its settings filled in, without reading a problem.

    Raise ConfigError for an unknown source, or an unknown or missing setting.
    """
    function, what = find_source(name), f"data source {name!r}"
    call = bind(function, settings, what=what)
    check_required(function, ("split", *settings), what=what)
    return call


def load_problems(name: str, *, split: str, settings: Mapping[str, Any] | None = None) -> Sequence[Problem]:
    """Return the problems of one source and split, as a sequence.

    Raise ConfigError for an unknown source, or an unknown or missing setting. Raise DataError if the data are wrong or
    if there is no problem.
    """
    what = f"data source {name!r}"
    call = bind_source(name, settings or {})
    result = call(split=split)
    is_iterable = isinstance(result, Iterable) and not isinstance(result, str | Mapping)
    expected = "problems (ansatz.types.Problem), as a list or by yield"
    check_result(call, result, is_right=lambda: is_iterable, expected=expected)
    problems = result if isinstance(result, Sequence) else list(result)
    if not isinstance(problems, ComputedProblems):
        odd = [each for each in problems if not isinstance(each, Problem)][:1]
        check_result(call, odd[0] if odd else None, is_right=lambda: not odd, expected=expected)
    if not problems:
        raise DataError(
            f"{what} has no problem in split {split!r}; expected at least one. Check its path, split and limit."
        )
    return problems

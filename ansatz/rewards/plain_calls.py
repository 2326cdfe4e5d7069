"""Calls between two processes that do not trust each other: only plain values cross, never behaviour.

A plain value is made of numbers, text, bytes, None, the builtin containers, and a few types of the standard library. It
is rebuilt from its content on the other side, where `==`, `-`, `in`, `len`, `sorted` and all else belong to the
builtin types. A value of another type stays where it is, and the other side gets a `Remote`: its attributes, items and
calls are asked for, but it cannot be compared, hashed or counted with. Standard library only: the sandbox loads it.
"""

# pyright: basic
# The values that cross have no type before they are looked at.
from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

_SMALL = 1 << 53
_CONTAINERS: dict[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
_PARTS: dict[str, tuple[type[Any], Callable[[Any], list[Any]]]] = {
    "bytes": (bytes, lambda value: list(value)),
    "bytearray": (bytearray, lambda value: list(value)),
    "complex": (complex, lambda value: [value.real, value.imag]),
    "range": (range, lambda value: [value.start, value.stop, value.step]),
    "Fraction": (fractions.Fraction, lambda value: [value.numerator, value.denominator]),
    "Decimal": (decimal.Decimal, lambda value: [str(value)]),
    "datetime": (datetime.datetime, lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond]),
    "date": (datetime.date, lambda value: [value.year, value.month, value.day]),
    "time": (datetime.time, lambda value: [value.hour, value.minute, value.second, value.microsecond]),
    "timedelta": (datetime.timedelta, lambda value: [value.days, value.seconds, value.microseconds]),
}
_HEXADECIMAL = re.compile(r"-?[0-9a-f]++")
_DECIMAL = re.compile(r"-?(?:[0-9]++(?:\.[0-9]*+)?+(?:E[+-][0-9]{1,6})?|Infinity|s?NaN[0-9]{0,99})")
_MOST_BITS = 1 << 16
"""Of numerator and denominator of a fraction: cancelling them takes the square of their length."""
_MOST_ALIKE = 100
"""Members of a set or keys of a dict with the same hash: adding them takes the square of their number."""
_MUTABLE = (list, dict, set, bytearray, collections.deque)
_ITEMS = (operator.getitem, operator.setitem, operator.delitem)
_OPERATIONS: dict[str, Callable[..., Any]] = {
    operation.__name__: operation for operation in (getattr, setattr, *_ITEMS, len, iter, next, str, repr, bool)
}


class Refused(BaseException):
    """No plain value can answer the question. Not an Exception: code that handles errors must not hide it."""


class Peer:
    """One side. send, receive: a message as text; receive raises EOFError when the other side has gone.

    namespace: where the other side can look up names, and where instances of `classes` (names) are rebuilt. Instances
    are sent by their attributes. open: whether the other side can use an object that it gets a reference to; otherwise
    it can only call the object.
    """

    def __init__(
        self,
        send: Callable[[str], None],
        receive: Callable[[], str],
        *,
        namespace: dict[str, Any],
        classes: tuple[str, ...] = (),
        open: bool = False,
    ) -> None:
        self._send, self._receive, self._namespace = send, receive, namespace
        self._classes, self._open = classes, open
        self._lent: list[Any] = []
        self.refused = False
        self.raised: BaseException | None = None
        """The last exception that came from the other side."""

    def ask(self, operation: str, *operands: Any) -> Any:
        """Return the other side's answer, as a plain value or a Remote. Raise its error, if that is a builtin one."""
        self._send(json.dumps({"ask": operation, **self._packed(list(operands))}))
        while "ask" in (message := self._message()):
            self._answer(message)
        if "error" in message:
            self.raised = _error(*message["error"])
            raise self.raised
        values = self._unpacked(message)
        if operation == "call" and len(values) == 3:
            self._copy_back(values[1], operands[1])
            self._copy_back(list(values[2].values()), list(operands[2].values()))
        return values[0]

    def serve(self) -> None:
        """Answer until the other side has gone."""
        while True:
            try:
                message = self._message()
            except EOFError:
                return
            self._answer(message)

    def refuse(self, why: str) -> Refused:
        self.refused = True
        return Refused(why)

    def _message(self) -> dict[str, Any]:
        text = self._receive()
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.refuse("not a message") from error
        if type(message) is not dict:
            raise self.refuse("not a message")
        return message

    def _answer(self, message: dict[str, Any]) -> None:
        try:
            operands = self._unpacked(message)
            reply = self._packed(self._done(message["ask"], operands))
        except Exception as error:
            reply = {"error": _described(error)}
        self._send(json.dumps(reply))

    def _done(self, operation: str, operands: list[Any]) -> list[Any]:
        """Return the result, and for a call whose arguments it has changed, these too."""
        if operation == "call":
            function, arguments, keywords = operands
            given = [*arguments, *keywords.values()]
            before = self._text(given)
            result = function(*arguments, **keywords)
            return [result] if self._text(given) == before else [result, arguments, keywords]
        if not self._open:
            raise TypeError(f"{operation} is not possible here")
        if operation == "names":
            return [{name: self._namespace[name] for name in operands[0] if name in self._namespace}]
        return [_OPERATIONS[operation](*operands)]

    def _text(self, arguments: list[Any]) -> str:
        if not any(isinstance(each, _MUTABLE) or type(each).__name__ in self._classes for each in arguments):
            return ""
        return json.dumps(self._packed(arguments))

    def _packed(self, values: list[Any]) -> dict[str, Any]:
        instances: list[Any] = []
        packed: dict[str, Any] = {"values": [self._pack(value, instances) for value in values]}
        described: list[Any] = []
        while len(described) < len(instances):  # an attribute can be an instance that has not been seen yet
            instance = instances[len(described)]
            attributes = [[name, self._pack(value, instances)] for name, value in _attributes(instance).items()]
            described.append([type(instance).__name__, attributes])
        return packed | {"instances": described}

    def _pack(self, value: Any, instances: list[Any]) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str or kind is float:
            return value
        if kind is Remote:
            return {"yours": object.__getattribute__(value, "_reference")}
        if isinstance(value, int):
            number = int.__index__(value)
            return number if -_SMALL < number < _SMALL else {"int": format(number, "x")}
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, list):
            return [self._pack(item, instances) for item in list.__iter__(value)]
        if isinstance(value, dict):
            return {"dict": [[self._pack(part, instances) for part in item] for item in dict.items(value)]}
        for name, container in _CONTAINERS.items():
            if isinstance(value, container):
                return {name: [self._pack(item, instances) for item in container.__iter__(value)]}
        for name, (part_type, parts) in _PARTS.items():
            if isinstance(value, part_type):
                return {name: [self._pack(part, instances) for part in parts(value)]}
        if kind.__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__len__"):
            return self._pack(value.item(), instances)
        if kind.__name__ in self._classes:
            return {"instance": _index_of(value, instances)}
        if kind in (type, type(len)) and getattr(builtins, value.__name__, None) is value:
            return {"builtin": value.__name__}
        return {"mine": _index_of(value, self._lent)}

    def _unpacked(self, message: dict[str, Any]) -> list[Any]:
        try:
            kinds: list[Any] = [self._class(name) for name, _ in message["instances"]]
            instances = [kind.__new__(kind) for kind in kinds]
            for instance, (_, attributes) in zip(instances, message["instances"], strict=True):
                for name, value in attributes:
                    _set(instance, name, self._unpack(value, instances))
            return [self._unpack(value, instances) for value in message["values"]]
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
            raise self.refuse("not a plain value") from error

    def _unpack(self, packed: Any, instances: list[Any]) -> Any:
        """Return the value that `_pack` has packed. The other side can send anything, so constructors only get the type
        that `_pack` sends: a text could be a number that takes years to compute."""
        if type(packed) is list:
            return [self._unpack(item, instances) for item in packed]
        if type(packed) is not dict:
            return packed
        ((name, content),) = packed.items()
        match name:
            case "int":
                return int(_require_form(content, _HEXADECIMAL), 16)
            case "Decimal":
                (text,) = _require_type(content, list)
                return decimal.Decimal(_require_form(text, _DECIMAL))
            case "instance":
                return instances[_require_type(content, int)]
            case "mine":
                return Remote(self, _require_type(content, int))
            case "yours":
                return self._lent[_require_type(content, int)]
            case "builtin":
                return getattr(builtins, _require_type(content, str)) if self._open else Remote(self, -1)
        parts = [self._unpack(item, instances) for item in _require_type(content, list)]
        if name == "dict":
            _refuse_alike([key for key, _ in parts])
            return dict(parts)
        if name in _CONTAINERS:
            if name.endswith("set"):
                _refuse_alike(parts)
            return _CONTAINERS[name](parts)
        kind = _PARTS[name][0]
        for part in parts:
            _require_type(part, float if kind is complex else int)
        if kind is fractions.Fraction and any(part.bit_length() > _MOST_BITS for part in parts):
            raise ValueError("a fraction with too many digits")
        return kind(parts) if kind in (bytes, bytearray) else kind(*parts)

    def _copy_back(self, after: list[Any], arguments: list[Any]) -> None:
        """Give the arguments the content that a call has left them with."""
        if type(after) is not list or len(after) != len(arguments):
            raise self.refuse("not the arguments")
        for new, old in zip(after, arguments, strict=True):
            if type(new) is not type(old):
                continue
            if isinstance(old, list | bytearray):
                old[:] = new
            elif isinstance(old, collections.deque):
                old.clear()
                old.extend(new)
            elif isinstance(old, dict | set):
                old.clear()
                old.update(new)
            elif type(old).__name__ in self._classes:
                for name, value in _attributes(new).items():
                    _set(old, name, value)

    def _class(self, name: str) -> type[Any]:
        if name not in self._classes:
            raise KeyError(name)
        return self._namespace[name]


class Remote:
    """Something of the other side. The other side answers each operation on it with a plain value or another Remote.
    Operations that could decide a comparison without one are refused."""

    def __init__(self, peer: Peer, reference: Any) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_reference", reference)

    def _ask(self, operation: str, *operands: Any) -> Any:
        return object.__getattribute__(self, "_peer").ask(operation, self, *operands)

    def _plain(self, operation: str, kind: type[Any]) -> Any:
        value = object.__getattribute__(self, "_ask")(operation)
        if type(value) is not kind:
            raise object.__getattribute__(self, "_peer").refuse(f"{operation} gave no {kind.__name__}")
        return value

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):  # among them __class__: an object cannot say that it is of a builtin type
            return object.__getattribute__(self, name)
        return object.__getattribute__(self, "_ask")("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("setattr", name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("call", list(arguments), keywords)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("setitem", key, value)

    def __delitem__(self, key: Any) -> None:
        self._ask("delitem", key)

    def __iter__(self) -> Iterator[Any]:
        items = self._ask("iter")
        while True:
            try:
                item = next(items)
            except StopIteration:
                return
            yield item

    def __next__(self) -> Any:
        return self._ask("next")

    def __len__(self) -> int:
        return self._plain("len", int)

    def __bool__(self) -> bool:
        return self._plain("bool", bool)

    def __str__(self) -> str:
        return self._plain("str", str)

    def __repr__(self) -> str:
        return self._plain("repr", str)

    def _refuse(self, *_: Any) -> Any:
        raise self._peer.refuse("a value that is not plain cannot be compared")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse  # pyright: ignore
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = __round__ = __float__ = __int__ = _refuse
    __index__ = __complex__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __floordiv__ = __rfloordiv__ = __instancecheck__ = __subclasscheck__ = _refuse


def _attributes(instance: Any) -> dict[str, Any]:
    slots = [name for kind in type(instance).__mro__ for name in getattr(kind, "__slots__", ())]
    attributes = {name: getattr(instance, name) for name in slots if hasattr(instance, name)}
    return {**attributes, **getattr(instance, "__dict__", {})}


def _require_type(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value


def _require_form(value: Any, form: re.Pattern[str]) -> str:
    if not form.fullmatch(_require_type(value, str)):
        raise ValueError("a number in another form")
    return value


def _refuse_alike(members: list[Any]) -> None:
    if len(members) > _MOST_ALIKE and max(collections.Counter(map(hash, members)).values()) > _MOST_ALIKE:
        raise ValueError("too many members with the same hash")


def _index_of(value: Any, values: list[Any]) -> int:
    for index, other in enumerate(values):
        if other is value:
            return index
    values.append(value)
    return len(values) - 1


def _set(instance: Any, name: str, value: Any) -> None:
    """Set an attribute. Without the check, it could take the place of a method of the class, which the other side
    trusts."""
    if name.startswith("__") or callable(getattr(type(instance), name, None)):
        raise ValueError(name)
    object.__setattr__(instance, name, value)


def _described(error: BaseException) -> list[str]:
    """Return the name of the nearest builtin class of an error, and its message."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    try:
        message = str(error.args[0]) if error.args else ""
    except Exception:
        message = ""
    return [names[0], message[:10_000]]


def _error(name: object, message: object) -> Exception:
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:  # UnicodeDecodeError takes more
            pass
    return RuntimeError(message)

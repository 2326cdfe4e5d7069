"""The forms of tests of programs that data sets use, and their requirements on the program.

printed   {"stdin": text, "stdout": text}; also "input" and "output", and lists of both (APPS, TACO)
call      {"fn_name": name, "inputs": [[arguments], ...], "outputs": [value, ...]} (APPS, TACO)
compare   `assert f(2) == 4`, `assert Solution().f([1]) == [2]`: one call and a literal (MBPP, LeetCode)
checked   any other code with assertions: `check(candidate)` (HumanEval), several statements, test functions, unittest

Whatever the form, the program computes values and does not compare them. A test that would leave the comparison to the
program, or that the program's process cannot answer, is refused with the reason.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from ansatz.json_text import parse_json
from ansatz.rewards.code_safety import (
    UnsafeTest,
    free_names,
    is_assertion,
    names_in,
    program_imports,
    refuse_channels,
    refuse_missing_modules,
    refuse_oracles,
    without_program_imports,
)

FIELDS = ("tests", "test_list", "test", "input_output")
"""The fields of a problem's meta that can hold its tests; the first that is there counts."""
_SETUP = ("setup", "test_setup_code", "test_imports")
_MAX_CODE = 100_000
"""Characters of code with an f-string, which Python 3.11 reads in quadratic time: 1 s for the worst of this length."""
_F_STRING = re.compile(r"\b(?:f|rf|fr)['\"]", re.IGNORECASE)
_LISTED = """def listed(value):
    if isinstance(value, (list, tuple)): return [listed(item) for item in value]
    return {key: listed(item) for key, item in value.items()} if isinstance(value, dict) else value
"""
_SYNTAX = (
    *(ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set),
    *(ast.UnaryOp, ast.USub, ast.UAdd),
)


@dataclass(frozen=True, slots=True)
class PrintedTest:
    """The program gets an input and prints."""

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class CompareTest:
    """An expression of names of the program, calls and literals, whose value is compared with the expected one.

    literal: the expected value as code. method: the same expression with `Solution().` before it, for a program that
    defines that class and not the function. json: whether tuples count as lists, as in tests that are stored as JSON.
    """

    expression: str
    expected: Any
    literal: str
    names: tuple[str, ...]
    method: str = ""
    json: bool = False

    def checked(self) -> CheckedTest:
        """Return the same for the checker, where a value of the program that is slow to compare takes only its own
        time."""
        alternative = f" if {self.names[0]!r} in globals() else {self.method}" if self.method else ""
        code = f"value, expected = ({self.expression}{alternative}), {self.literal}\n"
        code += (
            f"{_LISTED}assert expected in (listed(value), [listed(value)])" if self.json else "assert value == expected"
        )
        return CheckedTest(code, "", "", self.names, (), (), unittest=False)


@dataclass(frozen=True, slots=True)
class CheckedTest:
    """Code for the checker. prelude: the setup's imports and classes, which the program gets too. names: names that the
    code takes from the program. classes: classes of the setup; their instances are passed by their attributes. calls:
    expressions that run the functions of the code."""

    test: str
    setup: str
    prelude: str
    names: tuple[str, ...]
    classes: tuple[str, ...]
    calls: tuple[str, ...]
    unittest: bool


Test = PrintedTest | CompareTest | CheckedTest


def read_forms(meta: Mapping[str, Any], *, packages: bool) -> list[Test]:
    """Return the tests of a problem. Raise UnsafeTest if there are none or one cannot be used."""
    tests: Any = next((meta[field] for field in FIELDS if meta.get(field)), None)
    if isinstance(tests, str) and tests.lstrip()[:1] in ("{", "["):
        try:
            tests = json.loads(tests)
        except ValueError as error:
            raise UnsafeTest(f"the tests are not JSON ({error})") from error
    if isinstance(tests, str):
        tests = [tests] if meta.get("tests") is None else tests
    if isinstance(tests, Mapping):
        tests = [cast("Mapping[str, Any]", tests)]
    if not isinstance(tests, list | tuple) or not tests:
        raise UnsafeTest(f"code_tests needs meta tests = a list of tests, got {tests!r:.80}")
    setup = "\n".join(_lines(meta.get(field)) for field in _SETUP)
    found: list[Test] = []
    for test in cast("Sequence[Any]", tests):
        if isinstance(test, Mapping):
            found += _of_mapping(cast("Mapping[str, Any]", test), meta)
        elif isinstance(test, str):
            found.append(_of_code(test, setup, meta.get("entry_point"), packages=packages))
        else:
            raise UnsafeTest(f"the test {test!r:.80} is neither a mapping nor code")
    return found


def has_tests(meta: Mapping[str, Any]) -> bool:
    """Return whether a problem has tests of code. A field `test` alone can be something else."""
    return any(meta.get(field) for field in FIELDS if field != "test" or meta.get("entry_point"))


def _lines(code: Any) -> str:
    """Return code, or lines of it, as text; anything else is empty."""
    lines = cast("Sequence[Any]", code) if isinstance(code, list | tuple) else (code,)
    return "\n".join(line for line in lines if isinstance(line, str))


def _of_mapping(test: Mapping[str, Any], meta: Mapping[str, Any]) -> Iterator[Test]:
    """Yield one or several inputs with their outputs, printed or of a function."""
    given = next((test[name] for name in ("stdin", "inputs", "input") if name in test), None)
    wanted = next((test[name] for name in ("stdout", "outputs", "output") if name in test), None)
    name = test.get("fn_name") or (_function_of(test, meta) if test.get("testtype") == "functional" else None)
    if given is None or wanted is None:
        raise UnsafeTest(f'the test {test!r:.80} has no {{"stdin": text, "stdout": text}}')
    several = "inputs" in test and all(isinstance(each, list | tuple) for each in (given, wanted))
    pairs = list(zip(given, wanted, strict=False)) if several else [(given, wanted)]
    if not pairs or (several and len(given) != len(wanted)):
        raise UnsafeTest(f"the test {test!r:.80} needs as many outputs as inputs")
    for one, other in pairs:
        if name is not None:
            yield _call(str(name), one, other, test)
        elif _is_text(one) and _is_text(other):
            yield PrintedTest(_lines(one), _lines(other))
        else:
            raise UnsafeTest(
                f"the test {test!r:.80} needs texts as input and output, or fn_name = the function that gets the values"
            )


def _function_of(test: Mapping[str, Any], meta: Mapping[str, Any]) -> Any:
    """Return the name of the function that a functional test calls. LiveCodeBench has it in its metadata."""
    about: Any = meta.get("metadata")
    if isinstance(about, str):
        with suppress(ValueError):
            about = parse_json(about)
    name = cast("Mapping[str, Any]", about).get("func_name") if isinstance(about, Mapping) else None
    if not (name := meta.get("entry_point") or name):
        raise UnsafeTest(f"the functional test {test!r:.80} needs meta entry_point = the function to check")
    return name


def _is_text(value: Any) -> bool:
    """Return whether a value is text, or a list of lines."""
    lines = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
    return all(isinstance(line, str) for line in lines)


def _call(name: str, given: Any, expected: Any, test: Mapping[str, Any]) -> CompareTest:
    """Return a call of a function with arguments from JSON; text is one argument per line."""
    try:
        arguments = [json.loads(line) for line in given.splitlines()] if isinstance(given, str) else given
        expected = json.loads(expected) if isinstance(expected, str) and isinstance(given, str) else expected
    except ValueError as error:
        raise UnsafeTest(f"the test {test!r:.80} has arguments that are not JSON") from error
    *_, function = name.split(".")
    if not function.isidentifier() or not isinstance(arguments, list | tuple):
        raise UnsafeTest(
            f"the test {test!r:.80} needs fn_name = the name of a function, and inputs = lists of arguments"
        )
    call = f"{function}({', '.join(map(repr, cast('Sequence[Any]', arguments)))})"
    literal = f"__import__('json').loads({json.dumps(expected)!r})"
    return CompareTest(call, expected, literal, (function, "Solution"), f"Solution().{call}", json=True)


def _of_code(test: str, setup: str, entry: Any, *, packages: bool) -> Test:
    if len(test) + len(setup) > _MAX_CODE and _F_STRING.search(test + setup):
        raise UnsafeTest(f"the test {test!r:.80} and its setup have an f-string and more than {_MAX_CODE} characters")
    try:
        tree, before = ast.parse(test.strip()), ast.parse(setup)
        for part in (tree, before):
            compile(part, "tests", "exec", dont_inherit=True)  # finds what the grammar allows, such as a lone return
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnsafeTest(f"the test {test!r:.80} is not Python ({error})") from error
    if not any(map(is_assertion, ast.walk(tree))):
        raise UnsafeTest(f"the test {test!r:.80} asserts nothing")
    refuse_channels(tree, test)
    refuse_missing_modules([tree, before], test, packages=packages)
    program_modules = [*program_imports(tree)]
    names = free_names(tree, before) | {alias.name for node in program_modules for alias in node.names}
    refuse_oracles(tree, names, test)
    plain = not setup.strip() and not program_modules and (entry is None or names <= _entry_names(entry))
    if plain and (compared := _comparison(tree, names)) is not None:
        return compared
    calls = _calls(tree, entry, test)
    if entry is not None:
        own = _entry_names(entry)
        used = names - {"candidate"} | own
        others = sorted(used - own)
        if others:
            raise UnsafeTest(
                f"the test {test!r:.80} takes {', '.join(others)} from the program, which could answer anything: give "
                "its code in meta setup"
            )
        names = used
    code = ast.unparse(without_program_imports(tree)) if program_modules else test.strip()
    if entry is not None and "candidate" in free_names(tree, before):
        code = f"candidate = {entry}\n{code}"
    classes = tuple(node.name for node in before.body if isinstance(node, ast.ClassDef))
    shared = [node for node in before.body if isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom)]
    cases = any(
        isinstance(node, ast.ClassDef) and any("TestCase" in ast.unparse(b) for b in node.bases) for node in tree.body
    )
    prelude = ast.unparse(ast.Module(body=list(shared), type_ignores=[]))
    return CheckedTest(code, setup, prelude, tuple(sorted(names)), classes, calls, cases)


def _entry_names(entry: Any) -> set[str]:
    try:
        return names_in(ast.parse(entry, mode="eval"))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise UnsafeTest(f"meta entry_point = {entry!r:.80}: expected the function to check") from error


def _comparison(tree: ast.Module, names: frozenset[str] | set[str]) -> CompareTest | None:
    """Return `assert call == literal`, in either order, if no part of the call could compare."""
    match tree.body:
        case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
            pass
        case _:
            return None
    for literal, call in ((right, left), (left, right)):
        try:
            expected = ast.literal_eval(literal)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        plain = all(
            isinstance(node, _SYNTAX) and not (isinstance(node, ast.Attribute) and node.attr.startswith("_"))
            for node in ast.walk(call)
        )
        if isinstance(call, ast.Call) and plain and (used := names_in(call)) and used <= names:
            return CompareTest(ast.unparse(call), expected, ast.unparse(literal), tuple(sorted(used)))
    return None


def _calls(tree: ast.Module, entry: Any, test: str) -> tuple[str, ...]:
    """Return the calls that run the assertions: of `check`, or of functions whose names begin with test."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    at_top = {
        node.func.id
        for statement in tree.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    calls = list[str]()
    for function in functions:
        if function.name in at_top:
            continue
        required = len(function.args.args) - len(function.args.defaults)
        if function.name == "check" and required == 1:
            if entry is None:
                raise UnsafeTest(f"the test {test!r:.80} needs meta entry_point = the function to check")
            calls.append(f"check({entry})")
        elif function.name.startswith("test") and not required:
            calls.append(f"{function.name}()")
    outside = (statement for statement in tree.body if not isinstance(statement, ast.FunctionDef))
    runs = bool(calls) or any(is_assertion(node) for statement in outside for node in ast.walk(statement))
    called = at_top & {function.name for function in functions}
    if not runs and not called:
        raise UnsafeTest(f"the test {test!r:.80} defines functions that nothing calls")
    return tuple(calls)

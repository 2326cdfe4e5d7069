"""The names that a test takes from the program, and the tests that are refused because the program could forge them."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import symtable
import sys
from collections.abc import Iterator, Sequence
from typing import cast

_BUILTIN = frozenset(dir(builtins))
_STREAMS = {"stdout", "stdin", "redirect_stdout", "redirect_stderr", "capsys", "capfd"}
_OTHER_CHANNELS = {*_STREAMS, "monkeypatch", "patch", "mock", "inspect"}


class UnsafeTest(Exception):
    """A test that cannot be run, or could be forged. The message says why."""


def is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.startswith("assert") or node.func.attr == "raises"
    return isinstance(node, ast.Assert)


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def free_names(tree: ast.Module, before: ast.Module) -> set[str]:
    """Return the names that neither Python nor the test or its setup define, by Python's own rules of scope."""
    module = ast.Module(body=[*before.body, *tree.body], type_ignores=[])
    try:
        top = symtable.symtable(ast.unparse(module), "tests", "exec")
    except (SyntaxError, RecursionError) as error:
        raise UnsafeTest(f"the test or its setup is not Python ({error})") from error
    tables = [top]
    for table in tables:
        tables += table.get_children()
    symbols = [(table is top, symbol) for table in tables for symbol in table.get_symbols()]
    in_module = [symbol for is_top, symbol in symbols if is_top or symbol.is_global()]
    bound = {symbol.get_name() for symbol in in_module if symbol.is_assigned() or symbol.is_imported()}
    return {symbol.get_name() for symbol in in_module if symbol.is_referenced()} - bound - _BUILTIN - {"__name__"}


def program_imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """Yield the names of `from solution import f`: a module that is nowhere is the program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or not _exists(node.module or "")):
            if any(alias.name == "*" or alias.asname for alias in node.names):
                raise UnsafeTest(f"{ast.unparse(node)}: import the functions by their names")
            yield node


class _Remover(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass() if node.level or not _exists(node.module or "") else node


def without_program_imports(tree: ast.Module) -> ast.Module:
    return cast("ast.Module", _Remover().visit(tree))


def _exists(module: str) -> bool:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def refuse_missing_modules(trees: Sequence[ast.Module], test: str, *, packages: bool) -> None:
    for node in (node for tree in trees for node in ast.walk(tree)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and _exists(node.module or ""):
            modules = [node.module or ""]
        for module in (module.partition(".")[0] for module in modules):
            if module not in sys.stdlib_module_names and not (packages and _exists(module)):
                raise UnsafeTest(
                    f"the test {test!r:.80} imports {module}, which needs packages: true of the reward, and the package"
                )


def refuse_channels(tree: ast.Module, test: str) -> None:
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | names_in(tree)
    words |= {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names
    }
    words |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if found := sorted(words & _OTHER_CHANNELS):
        raise UnsafeTest(
            f"the test {test!r:.80} uses {', '.join(found)}: what a program prints, reads or looks like is not known "
            'to code. Use {"stdin": text, "stdout": text}'
        )


def refuse_oracles(tree: ast.Module, names: set[str], test: str) -> None:
    """Raise UnsafeTest for tests that would let the program itself say whether a value is right."""
    judged = _find_judged_names(tree, names)
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=condition):
                forged = any(_is_asked_about_itself(part, names, judged) for part in _conditions(condition))
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kind]):
                forged = names_in(kind) & names
            case ast.Call(func=ast.Attribute(attr="assertTrue" | "assertFalse"), args=[condition, *_]):
                forged = any(_is_asked_about_itself(part, names, judged) for part in _conditions(condition))
            case ast.Call(func=ast.Attribute(attr="assertRaises" | "raises" | "assertRaisesRegex"), args=[kind, *_]):
                forged = names_in(kind) & names
            case ast.ExceptHandler(type=ast.expr() as kind):
                forged = names_in(kind) & names
            case _:
                continue
        if forged:
            raise UnsafeTest(
                f"the test {test!r:.80} leaves the decision to something that the program defines: give its code in "
                "meta setup"
            )


def _find_judged_names(tree: ast.Module, names: set[str]) -> set[str]:
    """Return the variables that hold results of the program's functions."""
    judged = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _has_result(node.value, names, judged):
            judged |= {name for target in node.targets for name in names_in(target)}
    return judged


def _has_result(node: ast.expr, names: set[str], judged: set[str]) -> bool:
    """Tell whether a part is a value that the program has computed. An instance of its classes is an argument like any
    other: `is_balanced(Node(1))`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in judged:
            return True
        constructs = isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id[:1].isupper()
        if isinstance(part, ast.Call) and not constructs and names_in(part.func) & names:
            return True
    return False


def _conditions(node: ast.expr) -> list[ast.expr]:
    """Return the parts of a condition that are true or false by themselves, or compared with true or false."""
    match node:
        case ast.BoolOp(values=values):
            return [part for value in values for part in _conditions(value)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _conditions(operand)
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            truth = any(isinstance(side, ast.Constant) and isinstance(side.value, bool) for side in sides)
            return [part for side in sides for part in _conditions(side)] if truth else []
        case _:
            return [node]


def _is_asked_about_itself(node: ast.expr, names: set[str], judged: set[str]) -> bool:
    """Return `same(f(2), 4)`, where the program defines `same`."""
    if not isinstance(node, ast.Call) or not names_in(node.func) & names:
        return False
    return any(
        _has_result(argument, names, judged) for argument in (*node.args, *(each.value for each in node.keywords))
    )

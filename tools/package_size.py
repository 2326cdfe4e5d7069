"""Prints the size of the package next to the ceilings of a release: `python -m tools.package_size`.

`make check` prints the table, and a change that exceeds a ceiling is not refused. `make release` refuses one
(`--refuse`), so a release is the moment to remove something, or to raise a ceiling on purpose. A ceiling is the value
at the last release and 5 % of room.

Lines of code are lines without docstrings, comments and blanks. Files that are not Python (YAML, templates, scripts,
styles, C++) count with every line that is not blank; recipes do not count. The core is what a run of SFT and RL
imports, except the features, which pyproject.toml lists. What a recipe finds by name (a reward, a source of problems)
does not belong to the core, because nothing imports it.

Imports of the modules of the core are counted in sum. Their mean over modules would rise when two modules become one,
although an import is gone.
"""

import argparse
import ast
import functools
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from ansatz.config.recipe import default_class
from ansatz.config.sampling import SamplingOptions

ROOT = Path(__file__).parent.parent

CEILINGS = {
    "lines of code": 51_300,
    "lines of other files": 6_080,
    "lines of code of the core": 19_180,
    "modules": 549,
    "modules of the core": 206,
    "internal imports of the core": 933,
    "internal imports of a module, maximum": 29,
    "keys of a recipe": 101,
    "functions over 60 lines": 0,
    "functions with more than 9 parameters": 11,
}

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ansatz"]
START: list[str] = SETTINGS["core"]
"""What a run of SFT and RL begins with."""
FEATURES: dict[str, list[str]] = {name: row["modules"] for name, row in SETTINGS["features"].items()}
"""Features, each with its modules and packages, by their names within `ansatz`. They do not belong to the core."""

OTHER_FILES = {".yaml", ".html", ".js", ".css", ".cpp", ".h"}
MAX_LINES = 60
MAX_PARAMETERS = 9


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Parse every module of the package: {"ansatz.train.step": tree}."""
    paths = sorted((ROOT / "ansatz").rglob("*.py"))
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in named.items()}


@functools.cache
def imports_of(name: str) -> frozenset[str]:
    """Return the modules of the package that a module imports anywhere, also for types alone."""
    imported: set[str] = set()
    for node in ast.walk(trees()[name]):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            imported |= {path if path in trees() else node.module for path in full.values()}
    return frozenset((imported & trees().keys()) - {name})


def core() -> set[str]:
    """Return the modules that a run imports, directly or through others, without those of features."""
    reached, waiting = set[str](), [f"ansatz.{name}" for name in START]
    while waiting:
        name = waiting.pop()
        if name not in reached and feature_of(name) is None:
            reached.add(name)
            waiting += imports_of(name) if name != "ansatz" else ()  # which hands on the names of `ansatz.api`
    return reached


def feature_of(name: str) -> str | None:
    """Return the feature that a module is in; None if it is in none."""
    return next((each for each, modules in FEATURES.items() if is_within(name, modules)), None)


def is_within(name: str, modules: Iterable[str]) -> bool:
    """Tell whether a module is one of these or within one. They are named without `ansatz`."""
    return any(f"{name}.".startswith(f"ansatz.{module}.") for module in modules)


def count_lines(name: str) -> int:
    """Count the lines of a module without docstrings, comments and blanks."""
    tree = trees()[name]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = [text for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    lines = set[int]()
    path = ROOT / Path(*name.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    no_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source.read_text(encoding="utf-8")).readline):
        if token.type not in no_code:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for text in docstrings:
        lines -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def count_other_lines() -> int:
    """Count the lines of the package's other text files that are not blank, without recipes."""
    files = [file for file in (ROOT / "ansatz").rglob("*") if file.suffix in OTHER_FILES and file.is_file()]
    texts = [file.read_text(encoding="utf-8") for file in files if "recipes" not in file.relative_to(ROOT).parts]
    return sum(bool(line.strip()) for text in texts for line in text.splitlines())


def functions() -> Iterator[tuple[str, int, int]]:
    """Yield (place, lines, parameters) of every function. `self` is not counted."""
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                parameters = [argument.arg for argument in listed if argument.arg not in ("self", "cls")]
                yield f"{name}.{node.name}", (node.end_lineno or 0) - node.lineno + 1, len(parameters)


def long_functions() -> list[str]:
    """List the functions with more than MAX_LINES lines, decorators not counted."""
    return [f"{place}: {lines} lines" for place, lines, _ in functions() if lines > MAX_LINES]


def wide_functions() -> list[str]:
    """List the functions with more than MAX_PARAMETERS parameters."""
    return [f"{place}: {number} parameters" for place, _, number in functions() if number > MAX_PARAMETERS]


def count_keys(section: type[BaseModel]) -> int:
    """Count the leaf keys in a section and its subsections: how much a user has to know.

    A sampling option means the same in every section that takes it, so it counts once.
    """
    num_keys, shared = leaf_keys(section)
    return num_keys + len(shared)


def leaf_keys(section: type[BaseModel]) -> tuple[int, set[str]]:
    """Return the number of keys without sampling options, and the names of those options."""
    shared = set(SamplingOptions.model_fields) if issubclass(section, SamplingOptions) else set[str]()
    num_keys = 0
    for name, info in section.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            more, also_shared = leaf_keys(kind)
            num_keys, shared = num_keys + more, shared | also_shared
        else:
            num_keys += name not in shared
    return num_keys, shared


@functools.cache
def measured() -> dict[str, float]:
    """Measure everything that has a ceiling."""
    num_imports = {name: len(imports_of(name)) for name in trees()}
    return {
        "lines of code": sum(count_lines(name) for name in trees()),
        "lines of other files": count_other_lines(),
        "lines of code of the core": sum(count_lines(name) for name in core()),
        "modules": len(trees()),
        "modules of the core": len(core()),
        "internal imports of the core": sum(num_imports[name] for name in core()),
        "internal imports of a module, maximum": max(num_imports.values()),
        "keys of a recipe": count_keys(default_class()),
        f"functions over {MAX_LINES} lines": len(long_functions()),
        f"functions with more than {MAX_PARAMETERS} parameters": len(wide_functions()),
    }


def main() -> None:
    """Print each value next to its ceiling. With --refuse, exit with a sentence if one is exceeded."""
    parser = argparse.ArgumentParser(description="Print the size of the package next to the ceilings of a release.")
    parser.add_argument("--refuse", action="store_true", help="exit with an error if a ceiling is exceeded")
    parser.add_argument("--largest", action="store_true", help="also print the longest functions and widest modules")
    arguments = parser.parse_args()
    values = measured()
    for what, value in values.items():
        print(f"{what}: {value:,} (ceiling of a release {CEILINGS[what]:,})")
    if arguments.largest:
        print(*long_functions(), *wide_functions(), sep="\n")
        widest = sorted(trees(), key=lambda name: len(imports_of(name)), reverse=True)
        print(*[f"{name}: {len(imports_of(name))} internal imports" for name in widest[:12]], sep="\n")
    exceeded = [what for what, value in values.items() if value > CEILINGS[what]]
    if exceeded and arguments.refuse:
        sys.exit(
            f"The package is above the ceiling of a release: {', '.join(exceeded)}. Remove something first, or raise "
            "the number in tools/package_size.py and say why in the commit."
        )


if __name__ == "__main__":
    main()

"""What the package costs and what it decides on real responses, in one table.

    python packages/verify/benchmarks/acceptance.py                 the whole table
    python packages/verify/benchmarks/acceptance.py --old FOLDER    also times, against another checkout of the project
    python packages/verify/benchmarks/acceptance.py --show          also each wrong verdict, and what differs

The samples lie in ../shared/verifier, which users do not have; without it only the rows about the code are printed.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import re
import resource
import subprocess
import sys
import textwrap
import time
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ansatz_verify
from ansatz_verify import equivalent, parse, verify

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT.parent / "shared" / "verifier"
SOURCES = Path(ansatz_verify.__file__ or "").parent
NOT_STRICT = ("announced-nobox", "theoremqa-univ")
ANCHORED = (*NOT_STRICT, "rl-truncated")
GOLDS = (
    "5",
    "\\frac{3}{4}",
    "2\\sqrt{3}",
    "(-\\infty, 2) \\cup (3, \\infty)",
    "x^2 + 2x + 1",
    "\\text{Tuesday}",
    "1, 2, 3",
    "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
    "12\\text{ cm}",
    "B",
)
"""Golds whose way through the package is followed; each is answered in another spelling."""
ANSWERS = (
    "5.0",
    "0.75",
    "\\sqrt{12}",
    "x < 2 \\text{ or } x > 3",
    "(x+1)^2",
    "tuesday",
    "3, 2, 1",
    "(1, 2)",
    "120\\text{ mm}",
    "(B)",
)

Case = dict[str, Any]
Row = tuple[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--old", type=Path, help="another checkout, for times")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    rows: list[Row] = [*size(), *path_of_golds(), *start_times()]
    if SAMPLES.is_dir():
        rows += [*real(show=options.show), *pool(show=options.show), *hacks(), *hostile()]
        rows += times(options.old) if options.old else ()
    else:
        rows.append(("real responses, hacks and hostile inputs", f"skipped, because {SAMPLES} is missing."))
    for what, value in rows:
        print(f"{what:72s} {value}")
    return None


# the code


def size() -> Iterator[Row]:
    """Count lines without docstrings, comments and blanks, of modules and of tables."""
    code = sum(code_lines(path) for path in SOURCES.rglob("*.py"))
    tables = [path.read_text(encoding="utf-8").splitlines() for path in SOURCES.rglob("*.yaml")]
    words = sum(bool(line.strip()) and not line.strip().startswith("#") for lines in tables for line in lines)
    yield "code lines: modules + tables", f"{code} + {words} = {code + words}"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "C901", "--output-format", "concise"]
    found = subprocess.run([*command, str(SOURCES)], capture_output=True, text=True).stdout
    yield "functions above complexity 10", len(re.findall("C901", found))


def code_lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    texts = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    no_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in no_code:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in texts:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def path_of_golds() -> Iterator[Row]:
    """Follow ten golds: the functions that receive one or a value made from it, their files, and the `return`
    statements that these functions leave by.

    A value is made from the gold if a function that received the gold returned it, if it is a part of such a value, or
    a part of the gold's text that has more than one character. Every function and statement counts once. The cache of
    golds is emptied before each: without this, a gold that was seen before is not read at all.
    """
    pairs = list(zip(GOLDS, ANSWERS, strict=True))
    for gold, answer in pairs:
        verify(gold, f"\\boxed{{{answer}}}")  # what is loaded on first use is loaded
    left = set[tuple[Any, int]]()
    for pair in pairs:
        parse.parse_gold.cache_clear()
        left |= followed(*pair)
    stays = {code for code, _ in left}
    returns = sum(line in return_lines(code) for code, line in left)
    yield (
        "stays / files / returns taken of ten golds",
        f"{len(stays)} / {len({c.co_filename for c in stays})} / {returns}",
    )


def followed(gold: str, answer: str) -> set[tuple[Any, int]]:
    """Return (code, line by which it is left) of the functions that one gold passes through."""
    gold = "".join(list(gold))  # an object of its own
    made: dict[int, object] = {id(gold): gold}
    inside, stays = list[bool](), set[tuple[Any, int]]()
    folder = str(SOURCES)

    def comes_from(value: object, depth: int = 0) -> bool:
        if value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 2):
            return value is gold
        if id(value) in made or (isinstance(value, str) and value in gold and value != answer):
            return True
        if isinstance(value, list | tuple) and depth < 2:
            return any(comes_from(item, depth + 1) for item in value)
        return False

    def watch(frame: Any, event: str, result: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(folder) or code.co_name.startswith("<"):
            return
        if event == "call":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            received = [frame.f_locals[name] for name in names if name in frame.f_locals]
            inside.append(any(map(comes_from, received)))
            if inside[-1]:
                made.update((id(value), value) for value in received if type(value).__module__ != "builtins")
        elif event == "return" and inside and inside.pop():
            stays.add((code, frame.f_lineno))
            if result is not None and not isinstance(result, bool):
                made[id(result)] = result

    sys.setprofile(watch)
    try:
        verify(gold, f"\\boxed{{{answer}}}")
    finally:
        sys.setprofile(None)
    return stays


def return_lines(code: Any) -> set[int]:
    """Return the lines of a function that belong to a `return` statement."""
    source = textwrap.dedent(inspect.getsource(code))
    returns = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Return)]
    first = code.co_firstlineno - 1
    return {first + line for node in returns for line in range(node.lineno, (node.end_lineno or 0) + 1)}


# the time to start


def start_times() -> Iterator[Row]:
    """CPU seconds of a fresh interpreter, of the import, and of a first verdict; workers are counted."""
    nothing = min(cpu_seconds("pass") for _ in range(3))
    imported = min(cpu_seconds("import ansatz_verify") for _ in range(3)) - nothing
    yield "import ansatz_verify: CPU seconds", f"{imported:.2f}"
    for what, pair in (("for 5", ("5", "5")), ("for a pair that needs SymPy", ("\\frac{\\pi^2}{6}", _SERIES))):
        run = f"from ansatz_verify import equivalent; equivalent({pair[0]!r}, {pair[1]!r})"
        yield f"first verdict {what}: CPU seconds", f"{min(cpu_seconds(run) for _ in range(3)) - nothing:.2f}"


_SERIES = "\\sum_{k=1}^{\\infty} \\frac{1}{k^2}"


def cpu_seconds(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# the samples


def load(name: str) -> list[Case]:
    """Read a file of cases; one that is compressed needs the package zstandard."""
    path = SAMPLES / name
    if name.endswith(".zst"):
        import zstandard

        with path.open("rb") as stream:
            text = zstandard.ZstdDecompressor().stream_reader(stream).read().decode()
    else:
        text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def graded(case: Case, mode: str) -> bool:
    if case["kind"] == "answer_equivalence":
        return bool(equivalent(case["gold"], case["prediction"]))
    return bool(verify(case["gold"], case["prediction"], mode=mode))


def real(*, show: bool) -> Iterator[Row]:
    cases = [case for case in load("responses/real.jsonl") if not case.get("disputed")]
    groups: list[tuple[str, str, Callable[[str], bool]]] = [
        ("strict, all classes but two", "strict", lambda name: name not in NOT_STRICT),
        ("anchored, those two and rl-truncated", "anchored", lambda name: name in ANCHORED),
    ]
    for what, mode, belongs in groups:
        chosen = [case for case in cases if belongs(case["class"])]
        mistakes = [case for case in chosen if graded(case, mode) != case["expected"]]
        paid = sum(not case["expected"] for case in mistakes)
        right = sum(case["expected"] for case in chosen)
        counts = f"{paid} of {len(chosen) - right} / {len(mistakes) - paid} of {right}"
        yield f"real.jsonl, {what}: wrong paid / right refused", counts
        for case in mistakes if show else ():
            print(f"{mode} {case['id']} {case['class']}: {case['gold']!r} {case['prediction'][-90:]!r}")


_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{|<answer>")


def simple_answer(response: str) -> str | None:
    """Return the last box or tag after the thought, with the neighbours that only commas and the like separate."""
    text = response[response.rfind("</think>") + len("</think>") :] if "</think>" in response else response
    if "<think>" in text:
        return None
    marks: list[tuple[int, int, str]] = []
    for match in _MARK.finditer(text):
        end = text.find("</answer>", match.end()) if match[0] == "<answer>" else closing(text, match.end())
        if marks and match.start() < marks[-1][1]:
            continue  # a box within the mark before it
        if match[0] == "<answer>" and end < 0:
            end = len(text)
        content = text[match.end() : end] if end >= 0 else ""
        after = end + len("</answer>" if match[0] == "<answer>" else "}") if end >= 0 else len(text)
        marks.append((match.start(), after, content))
    if not marks:
        return None
    contents, start = [marks[-1][2]], marks[-1][0]
    for mark in reversed(marks[:-1]):
        if not re.fullmatch(r"(?:[\s,;$]|\band\b|\bor\b|\\[,;!\]\[()])*", text[mark[1] : start]):
            break
        contents.insert(0, mark[2])
        start = mark[0]
    different = list(dict.fromkeys(content.strip() for content in contents))
    return ", ".join(different)


def closing(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"\\[\\{}]|[{}]").finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    return -1


def pool(*, show: bool) -> Iterator[Row]:
    """Compare strict mode with the simple rule: the last mark after the thought, then `equivalent`."""
    cases = load("responses/pool.jsonl.zst")
    differ: list[tuple[bool, Case, str]] = []
    marked = 0
    for case in cases:
        answer = simple_answer(case["prediction"])
        marked += answer is not None
        simple = bool(answer and equivalent(case["gold"], answer))
        verdict = verify(case["gold"], case["prediction"])
        if simple != bool(verdict):
            differ.append((bool(verdict), case, str(answer)))
    yield f"pool: verdicts that differ from the simple rule, of {len(cases)} ({marked} with a mark)", len(differ)
    for paid, case, answer in differ if show else ():
        print(f"pool {'paid' if paid else 'refused'} {case['id']}: {case['gold']!r} {answer!r}")
        print(f"     ...{case['prediction'][-200:]!r}")


def hacks() -> Iterator[Row]:
    cases = load("hacks.jsonl")
    paid = [case["id"] for case in cases if not case["expected"] and graded(case, "strict")]
    yield f"hacks paid, of {sum(not case['expected'] for case in cases)}", f"{len(paid)} {' '.join(paid)}"


def hostile() -> Iterator[Row]:
    """Count the inputs that end within a second, in three modes, without a raise and with the right verdict."""
    cases = load("adversarial.jsonl")
    verify("x", "\\boxed{\\sum_{k=1}^{n} k}")  # the worker runs
    time.sleep(3)
    clean = 0
    for case in cases:
        good = True
        for mode in ("strict", "anchored", "last_number"):
            begin = time.perf_counter()
            try:
                verdict = bool(verify(case["gold"], case["prediction"], mode=mode))
            except Exception:
                good = False
                continue
            good &= time.perf_counter() - begin < 1 and (case["expected"] is None or verdict == case["expected"])
        clean += good
    yield "hostile inputs, 3 modes", f"{clean} of {len(cases)}"


# times


def serve() -> None:
    """Grade one case per line of the input and write the seconds."""
    for line in sys.stdin:
        gold, response = json.loads(line)
        begin = time.perf_counter()
        verify(gold, response)
        print(time.perf_counter() - begin, flush=True)


def times(old: Path) -> Iterator[Row]:
    """Grade the boxed responses of the sample in turns by both checkouts."""
    cases = [case for case in load("responses/real.jsonl") if case["kind"] == "full_response"]
    servers = [server(root) for root in (old, ROOT)]
    seconds: list[list[float]] = [[], []]
    for turn in range(6):
        for case in cases:
            for which in (0, 1) if turn % 2 else (1, 0):
                process = servers[which]
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps([case["gold"], case["prediction"]]) + "\n")
                process.stdin.flush()
                taken = float(process.stdout.readline())
                if turn:
                    seconds[which].append(taken)
    for process in servers:
        process.terminate()
    before, now = map(sorted, seconds)
    for share in (0.5, 0.99):
        place = int(len(now) * share)
        yield (
            f"p{100 * share:.0f} of real responses, old and new in ms, ratio",
            f"{1e3 * before[place]:.3f} {1e3 * now[place]:.3f} {now[place] / before[place]:.2f}",
        )


def server(root: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(root), str(root / "packages" / "verify")])
    command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


if __name__ == "__main__":
    main()

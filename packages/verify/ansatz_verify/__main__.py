"""The command line: `ansatz-verify GOLD ANSWER`, `ansatz-verify score FILE...` and `ansatz-verify check FUNCTION`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from ansatz_verify import __version__

_MODES = ("strict", "anchored", "last_number")
_READS = "strict reads a box or tag, anchored also announcements, last_number also the last number"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return 0 if the answer is right, if lines could be graded, or if nothing was found; 1 if not."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = _COMMANDS.get(given[0] if given else "")
    parser = argparse.ArgumentParser(prog=f"ansatz-verify {given[0]}" if command else "ansatz-verify")
    try:
        return command(parser, given[1:]) if command else _answer(parser, given)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _answer(parser: argparse.ArgumentParser, given: list[str]) -> int:
    from ansatz_verify.grade import equivalent, verify

    parser.description = "Say whether an answer equals the gold answer. Other commands: score FILE..., check FUNCTION."
    parser.add_argument("gold", metavar="GOLD")
    parser.add_argument("answer", metavar="ANSWER", help="an answer; with --mode a response that states it")
    parser.add_argument("--mode", choices=_MODES, help=_READS)
    parser.add_argument("--version", action="version", version=__version__)
    texts = [f" {text}" if text[:1] == "-" != text[1:2] and text != "-h" else text for text in given]
    chosen = parser.parse_args(texts)  # with a space in front, -x is an answer and no option
    verdict = (
        verify(chosen.gold, chosen.answer, mode=chosen.mode) if chosen.mode else equivalent(chosen.gold, chosen.answer)
    )
    read = f" read={verdict.extracted!r}" if chosen.mode else ""
    print(f"{'right' if verdict else 'wrong'} reason={verdict.reason} stage={verdict.stage}{read}")
    return 0 if verdict else 1


def _score(parser: argparse.ArgumentParser, given: list[str]) -> int:
    from ansatz_verify.score import Lines

    parser.description = "Grade responses: rows with verdicts go to standard output, and counts to standard error."
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file of JSON lines; - is standard input")
    parser.add_argument("--gold-key", metavar="FIELD", help="the field of the gold answer; recognised by default")
    parser.add_argument("--response-key", metavar="FIELD", action="append", default=[], help="the same of the response")
    parser.add_argument("--mode", choices=_MODES, default="strict", help=_READS)
    parser.add_argument("--out", type=Path, metavar="FILE", help="a file for the rows")
    chosen = parser.parse_args(given)
    out_path: Path | None = chosen.out
    read_paths = [name for name in chosen.files if name != "-"]
    if out_path and out_path.exists() and any(os.path.samefile(name, out_path) for name in read_paths):
        raise ValueError(f"--out {out_path} is a file that is read; name another one.")
    lines = Lines(gold_key=chosen.gold_key, response_keys=chosen.response_key, mode=chosen.mode)
    with ExitStack() as stack:
        read = {
            name: sys.stdin.buffer if name == "-" else stack.enter_context(open(name, "rb")) for name in chosen.files
        }
        out = stack.enter_context(_replacing(out_path)) if out_path else sys.stdout
        for name, file in read.items():
            for row in lines.graded("standard input" if name == "-" else name, file):
                print(json.dumps(row), file=out)
    print(*lines.summary(), sep="\n", file=sys.stderr)
    return 0 if lines.counts else 1


@contextmanager
def _replacing(path: Path) -> Generator[TextIO, None, None]:
    """Open a draft, in a folder next to the file, that replaces it when the block ends without an error. A device is
    written at once."""
    if path.exists() and not path.is_file():
        with path.open("w") as file:
            yield file
        return
    place = path.resolve()  # a link stays a link
    try:
        folder = TemporaryDirectory(prefix=".draft-", dir=place.parent)
    except OSError as error:
        error.filename = str(path)  # the user has not given the draft
        raise
    with folder as name:
        draft = Path(name) / place.name
        with draft.open("w") as file:
            yield file
        if place.exists():
            shutil.copymode(place, draft)
        draft.replace(place)


def _check(parser: argparse.ArgumentParser, given: list[str]) -> int:
    from ansatz_verify.check import check_function, load_function, report

    parser.description = "Examine any reward function: what it pays and refuses wrongly, and how it behaves."
    parser.add_argument("function", metavar="FUNCTION", help="MODULE:FUNCTION or FILE.py:FUNCTION")
    named = parser.parse_args(given).function
    findings = check_function(*load_function(named))
    print(*report(named.rpartition(":")[2], findings), sep="\n")
    return 0 if findings.is_clean() else 1


_COMMANDS = {"score": _score, "check": _check}

if __name__ == "__main__":
    sys.exit(main())

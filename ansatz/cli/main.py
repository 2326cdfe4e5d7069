"""The command `ansatz`.

Errors for users are one sentence on stderr, with exit code 2, or 75 if the same command may succeed later.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ansatz import __version__, process
from ansatz.cli.verbs import Verbs
from ansatz.errors import AnsatzError, ConfigError, UntrustedCodeError, is_failure
from ansatz.files import OF_SPACE, not_written, remedy
from ansatz.trust import OPTION
from ansatz.visible import say

process.configure_process()
_LONG_WORD = re.compile(r"(\S{100})\S{200,}(\S{20})")
_LONG_SENTENCE = re.compile(r"(.{1500})\s.{400,}\s(.{400})", re.DOTALL)
_STORAGE_ERRORS = (*OF_SPACE, errno.EROFS, errno.EIO)


def build_app() -> typer.Typer:
    short_too = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        name="ansatz", cls=Verbs, no_args_is_help=True, pretty_exceptions_enable=False, context_settings=short_too
    )
    app.callback()(_options)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        say(f"ansatz {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Train language models to reason about mathematics: guess, verify, reinforce."""


def main() -> None:
    process.prepare_standard_streams()
    if not hasattr(signal, "SIGHUP"):  # on Windows, which also has no locks and no sandbox of this kind
        _say("Ansatz runs on Linux and macOS. On Windows, install it in WSL (wsl --install) and start it there.")
        sys.exit(2)
    try:
        with process.ended_by_signals():
            _check_current_folder()
            build_app()(prog_name="ansatz")
    except AnsatzError as error:
        _say(f"{error}{_advice(error)}")
        sys.exit(error.exit_code)
    except OSError as error:
        _say(_describe(error))
        sys.exit(2)
    except BaseException as error:
        if isinstance(error, Exception) or not is_failure(error):
            raise
        _say(
            f"a library failed, probably the tokenizer: {error}. Its tokenizer.json cannot take some of the texts. "
            "Use another model, or other texts."
        )
        sys.exit(2)
    finally:
        for sentence in process.take_notes():
            _say(sentence)


def _advice(error: BaseException | None) -> str:
    """Return sentences with the other names of code in a refused recipe and the command that allows them; empty for
    other errors."""
    while error is not None and not isinstance(error, UntrustedCodeError):
        error = error.__cause__
    if error is None:
        return ""
    others = [name for name in error.names if name != error.name]
    also = f" It also names {', '.join(others)}." if others else ""
    return f"{also} The command is then: {shlex.join(['ansatz', *sys.argv[1:], OPTION])}"


def _check_current_folder() -> None:
    """Raise ConfigError if it has been deleted: the mathematics library of torch would end the process."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise ConfigError("the current folder has been deleted. Change to another one and start again.") from error


def _say(sentence: str) -> None:
    sentence = _LONG_WORD.sub(r"\1...\2", sentence)  # without this, a value of thousands of characters would hide it
    sentence = _LONG_SENTENCE.sub(r"\1 ... \2", sentence)  # and so would the names of a file's 100,000 fields
    with suppress(OSError):  # of a standard error that is full or closed: the exit code still tells
        say(f"ansatz: {sentence}", file=sys.stderr, flush=True)


def _describe(error: OSError) -> str:
    """Return the sentence about a file operation that failed where no code has anything better to say."""
    place = error.filename2 or error.filename
    if place is None and error.errno in (*_STORAGE_ERRORS, errno.EPIPE, errno.EBADF):
        return f"the output could not be written ({error.strerror}). Send it to another place."
    if error.errno in _STORAGE_ERRORS:
        return f"{not_written(Path(place or '.'), error)} {remedy(error)}, and run the command again."
    what = f"{place} cannot be used: " if place is not None else ""
    if error.errno == errno.ELOOP:
        return f"{what}{error.strerror}. {remedy(error)}."
    return f"{what}{error.strerror or error}. Check that it exists, its kind and permissions, and the free disk space."


if __name__ == "__main__":  # python -m ansatz.cli.main; without this, it would do nothing, with code 0
    main()

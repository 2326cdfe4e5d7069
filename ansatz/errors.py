"""The error tree. Every error that a user can cause is an AnsatzError. The command line prints it and exits with
its exit_code, which is 2 unless the class says otherwise.

AnsatzError
|-- ConfigError        a recipe, overlay or override is wrong; nothing has started
|   |-- NoSpaceError       the disk has less free space than a run surely needs
|   |-- UntrustedCodeError a recipe that came along with a model or a run names code, which the user has not allowed
|   `-- UnreachableError   a server that the recipe names does not answer
|-- DataError          a problem file or row is wrong (names file and line)
|   `-- MissingFileError   a problem file does not exist
|-- ModelError         a folder is not a model, a prompt exceeds the context, or a tokenizer lacks a token or template
|   `-- MissingModelError  a model folder does not exist
|-- CheckpointError    a checkpoint is missing, damaged, or from another run
|-- StorageError       a file of a run cannot be written, because the disk is full or fails
|-- AlignmentError     sampler and trainer disagree about log-probs
|-- RolloutError       the sampling engine does not start, dies repeatedly, or is not the one that was requested
|   `-- ClusterLost      Ray has ended under a run; a resumed run starts it again (code 75)
|-- TrainerError       the ranks of a trainer do not start, die repeatedly, or disagree
|-- RewardError        a reward raised, did not return in time, or returned something other than one number per rollout
|   `-- RewardUnavailable  a judge or other service of a reward does not answer; a resumed run may succeed (code 75)
|-- UserCodeError      a function of the user's, which is not a reward, raised or returned something unexpected
|-- NonFiniteError     a loss or gradient is nan or inf; raised before the optimizer step
|-- RunStopped         the watchdog has ended a run, which is saved; the command exits with 3
|-- MissingExtraError  an optional package is missing; the message names the extra to install
`-- NotStoredError     within `hub.stored_only`: a model or data set of the hub would have to be downloaded

RunInterrupted is not an error: a signal has ended a run, which is saved. The exit code is 75.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

PUBLISHED = False
"""Whether `pip install ansatz-rl` finds a release. Until it does, pages, advice and model cards name commands that work
without it."""


def install_command(*extras: str) -> str:
    """Return the command that installs the packages of some extras into the environment of this process.

    Before there is a release, it names their packages: they can be installed into any copy of Ansatz.
    """
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    names = ",".join(extras)
    if PUBLISHED:
        return f"{pip} 'ansatz-rl[{names}]'"
    try:
        known = importlib.metadata.requires("ansatz-rl") or []
    except importlib.metadata.PackageNotFoundError:  # a clone on the path, which nobody has installed
        clone = Path(__file__).parents[1]
        return f"{pip} {shlex.quote(str(clone / 'packages' / 'verify'))} {shlex.quote(f'{clone}[{names}]')}"
    found = [re.match(r"""([^;]*[^; ]) *; extra == ['"](.*)['"]$""", each) for each in known]
    return " ".join([pip, *sorted({shlex.quote(row[1]) for row in found if row and row[2] in extras})])


class AnsatzError(Exception):
    """Base of all errors that users see. The message states the problem, the expectation and the remedy.

    exit_code: of a command that ends with this error.
    """

    exit_code = 2


class ConfigError(AnsatzError):
    pass


class NoSpaceError(ConfigError):
    pass


class UntrustedCodeError(ConfigError):
    """name: the name that was refused. names: everything in the same recipe that may name code."""

    def __init__(self, message: str, *, name: str = "", names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.name, self.names = name, names


class UnreachableError(ConfigError):
    pass


class DataError(AnsatzError):
    pass


class MissingFileError(DataError):
    pass


class ModelError(AnsatzError):
    pass


class MissingModelError(ModelError):
    pass


class CheckpointError(AnsatzError):
    pass


class StorageError(AnsatzError):
    pass


class AlignmentError(AnsatzError):
    pass


class RolloutError(AnsatzError):
    pass


class ClusterLost(RolloutError):
    exit_code = os.EX_TEMPFAIL


class TrainerError(AnsatzError):
    pass


class RewardError(AnsatzError):
    pass


class RewardUnavailable(RewardError):
    exit_code = os.EX_TEMPFAIL


class UserCodeError(AnsatzError):
    pass


class NonFiniteError(AnsatzError):
    pass


class RunStopped(AnsatzError):
    exit_code = 3


class MissingExtraError(AnsatzError):
    pass


class NotStoredError(AnsatzError):
    pass


class RunInterrupted(BaseException):
    """A signal has ended a run. The message says which step was saved. No `except Exception` stops it on its way
    out."""


def is_failure(error: BaseException) -> bool:
    """Tell whether an error is a failure, and not the end of the process. Panics of libraries in Rust, such as those
    that read tokenizers and weights, are no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def one_line(error: BaseException) -> str:
    """Return the beginning of an error's text in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def failures_as(describe: Callable[[str], AnsatzError]) -> Generator[None, None, None]:
    """Turn failures of a library within the block into describe(the text in one line). A wrong file of a model fails
    anywhere in transformers, with any kind of error."""
    try:
        yield
    except AnsatzError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise describe(one_line(error)) from error

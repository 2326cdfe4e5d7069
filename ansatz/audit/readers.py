"""Reads the files that other projects write while they train, as step bundles. No torch.

    a folder with bundle.json                a step bundle of any project
    completions_00012.parquet                TRL 1.16, log_completions=True (needs the extra `data`)
    12.jsonl with input, output and score    verl 0.9.1, trainer.rollout_data_dir
    train_data_step12.jsonl                  NeMo-RL (main of November 2026), which logs every step

A folder of such files is all of them. OpenRLHF sends its samples to trackers only, and prime-rl stores its rollouts in
a binary format of its own code: for these, write a bundle (`audit.bundle`). A file can be somebody else's: its size is
limited, and nothing that it names is imported.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ansatz.audit.bundle import TEXT, Array, Bundle, read_bundle, read_file
from ansatz.errors import DataError, install_command
from ansatz.json_text import parse_json
from ansatz.links import list_folder

MAX_LOG, MAX_FILES = 1 << 30, 10_000
Row = Mapping[str, Any]
_Contents = tuple[list[dict[str, Any]], dict[str, Array], list[str]]
"""The texts of the rollouts, the arrays, and the names of the rewards."""


def read_any(path: Path) -> list[Bundle]:
    """Read a bundle, a log file, or a folder of either. Raise DataError, in one sentence, for anything else."""
    if not path.exists():
        raise DataError(f"{path} does not exist. Give a step bundle, a log of a run, or a folder with these.")
    if (path / TEXT).is_file():
        return [read_bundle(path)]
    if path.is_dir():
        inner = [each for each in list_folder(path) if (each / TEXT).is_file() or each.suffix in (".jsonl", ".parquet")]
        if len(inner) > MAX_FILES:
            raise DataError(f"{path} has {len(inner)} files, expected at most {MAX_FILES}. Give a folder with fewer.")
        if not inner:
            raise DataError(f"{path} has no step bundle, and no .jsonl or .parquet file of a run.")
        return [bundle for each in inner for bundle in read_any(each)]
    if path.suffix not in (".jsonl", ".parquet"):
        raise DataError(f"{path} is neither a step bundle nor a .jsonl or .parquet file of a run.")
    data = read_file(path, MAX_LOG, "a log of a run")
    rows = read_parquet(data, path) if path.suffix == ".parquet" else read_lines(data, path)
    step = int(digits[-1]) if (digits := re.findall(r"\d{1,9}", path.stem)) else 0
    return [bundle_of_rows(rows, step, str(path))]


def read_lines(data: bytes, path: Path | str = "the log") -> list[Row]:
    """Read JSON lines. Every line must be an object."""
    rows = list[Row]()
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not JSON ({error}).") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}: line {number} is {type(row).__name__}, expected an object.")
        rows.append(row)
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def read_parquet(data: bytes, path: Path) -> list[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path} needs pyarrow: {install_command('data')}.") from error
    try:
        rows = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as parquet ({' '.join(str(error).split())[:200]}).") from error
    if not rows:
        raise DataError(f"{path} has no rows.")
    return rows


def _trl(rows: Sequence[Row]) -> _Contents:
    """The columns after the completion are the rewards by name, then columns of the user's, then the advantage."""
    names = [name for name in rows[0] if name not in ("step", "prompt", "completion", "advantage")]
    columns = [name for name in names if all(isinstance(row.get(name), int | float | None) for row in rows)]
    arrays = {"component_NK": np.array([[_number(row.get(name)) for name in columns] for row in rows])}
    arrays["advantage_N"] = np.array([_number(row["advantage"]) for row in rows])
    texts = [{"prompt": _text(row["prompt"]), "response": _text(row["completion"])} for row in rows]
    return texts, arrays, columns


def _verl(rows: Sequence[Row]) -> _Contents:
    texts = [
        {
            "prompt": _text(row["input"]),
            "response": _text(row["output"]),
            "answer": row.get("gts"),  # as it is: an answer, a list of accepted answers, or tests of a program
            "data_source": _text(row.get("data_source")),
        }
        for row in rows
    ]
    return texts, {"reward_N": np.array([_number(row["score"]) for row in rows])}, ["score"]


def _nemo(rows: Sequence[Row]) -> _Contents:
    """Rows are padded to the longest; log-probs of prompts are 0 in both columns."""
    first = [{key: _only(value) for key, value in row.items()} for row in rows]
    texts = [{"prompt": _head(row.get("content")), "response": _text(row.get("content"))} for row in first]
    arrays = {"reward_N": np.array([_number(row["rewards"]) for row in first])}
    size_N = [int(size) if 0 < (size := _number(row["input_lengths"])) < 1e9 else 0 for row in first]
    sides = {"behavior_logp_T": "generation_logprobs", "old_logp_T": "prev_logprobs"}
    columns = {name: [_cut(row.get(key), size) for row, size in zip(first, size_N, strict=True)] for name, key in
               sides.items()}  # fmt: skip
    if all(column is not None for values in columns.values() for column in values):
        first_N = [_first_true(np.asarray(column) != 0) for column in columns["behavior_logp_T"]]
        arrays |= {name: np.concatenate([np.asarray(column) for column in values]) for name, values in columns.items()}
        arrays |= {"segment_T": np.repeat(np.arange(len(rows)), size_N), "prompt_length_N": np.array(first_N)}
        arrays["sampled_mask_T"] = arrays["behavior_logp_T"] != 0
    return texts, arrays, ["rewards"]


_READERS: dict[str, tuple[str, set[str], Callable[[Sequence[Row]], _Contents]]] = {
    "trl": ("1.16", {"prompt", "completion", "advantage"}, _trl),
    "verl": ("0.9.1", {"input", "output", "score"}, _verl),
    "nemo-rl": ("2026-11", {"content", "rewards", "input_lengths"}, _nemo),
}
"""Of each project its version, the fields of its rows, and what reads them."""


def bundle_of_rows(rows: Sequence[Row], step: int, path: str) -> Bundle:
    """Return the rows of a log as a bundle. Rollouts with the same prompt are a group, which is all that these logs say
    about groups. Raise DataError for rows that no project is known to write."""
    project = next((name for name, (_, fields, _) in _READERS.items() if fields <= set(rows[0])), None)
    if project is None:
        raise DataError(
            f"{path} has the fields {', '.join(sorted(map(str, rows[0])))[:200]}, which no project is known to write. "
            "Expected a log of TRL, verl or NeMo-RL; see docs/audit.md for what each of them writes."
        )
    version, _, read = _READERS[project]
    texts, arrays, rewards = read(rows)
    numbers = dict[str, int]()
    arrays["group_N"] = np.array([numbers.setdefault(str(text["prompt"]), len(numbers)) for text in texts])
    about: dict[str, Any] = {"project": project, "version": version, "step": step, "path": path}
    return Bundle(**about, arrays=arrays, rollouts=texts, notes={"rewards": rewards})


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _text(value: Any) -> str:
    """Return the text of a string, of a message, or of a list of either: the last message."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _text(value.get("content", ""))
    if isinstance(value, list) and value:
        return _text(value[-1])
    return "" if value is None else str(value)


def _head(value: Any) -> str:
    return _text(value[0]) if isinstance(value, list) and value else _text(value)


def _only(value: Any) -> Any:
    """NeMo-RL writes lists of one entry for each row."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _cut(value: Any, size: int) -> Array | None:
    """Return the first numbers of a row of log-probs; None if it is not one."""
    row = value[:size] if isinstance(value, list) and len(value) >= size > 0 else ()
    return np.array(row, float) if row and all(isinstance(each, int | float) for each in row) else None


def _first_true(mark: Array) -> int:
    return int(mark.argmax()) if mark.any() else len(mark)

"""Every response that a folder stores as one flat row, whichever format and whichever command wrote it.

Rows come from the samples and evaluations of a run's stages (`track.rollout_rows`), and from folders of responses
(`evaluate.responses`), also those within stages. A file of samples comes with a file of its groups, so that prompts
are not repeated; evaluations find theirs in problems/.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from ansatz.errors import DataError
from ansatz.files import read_yaml
from ansatz.links import hold, list_folder, list_folders
from ansatz.track.filters import (
    Kind,
    Query,
    compile_predicate,
    find_percentile,
    get_value,
    resolve_percentiles,
    sort_rows,
)
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.notes import LABEL
from ansatz.track.step_files import EVALUATIONS, SAMPLES, groups_path, step_files
from ansatz.types import joined_golds, without_spans

_ROWS: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_suffix(".yaml"))
FIELDS: Mapping[str, tuple[Kind, str]] = {name: (row["kind"], row["meaning"]) for name, row in _ROWS.items()}
"""Kind and meaning of each field of a row; `parts` holds the unweighted rewards by name."""

KINDS: Mapping[str, Kind] = {name: kind for name, (kind, _) in FIELDS.items()}
CUT_OFF = ("length", "abort")
TRAIN = "train"
_STORE = "rollouts.jsonl"
ASKED = ("question", "answer", "level", "subject")
"""The fields that a row takes from its group."""


class RolloutFile(NamedTuple):
    """A file with the responses of one step. split: `train` for samples."""

    stage: str
    step: int
    split: str
    path: Path

    @property
    def is_store(self) -> bool:
        return self.path.name == _STORE


def find_rollout_files(folder: Path) -> list[RolloutFile]:
    """Return the files with responses of a run or of a folder of responses, by stage and step. Raise DataError if there
    are none."""
    hold(folder)
    files = [RolloutFile("", 0, folder.resolve().name, folder / _STORE)] if (folder / _STORE).is_file() else []
    for stage in list_folders(folder):
        files += [RolloutFile(stage.name, file.step, TRAIN, file.path) for file in step_files(stage, SAMPLES)]
        files += [RolloutFile(stage.name, each.step, each.kind, each.path) for each in step_files(stage, EVALUATIONS)]
        stores = sorted(path for path in stage.rglob(_STORE) if path.is_file())
        files += [RolloutFile(stage.name, 0, path.parent.name, path) for path in stores]
    if not files:
        raise DataError(
            f"{folder} stores no responses: it has neither STAGE/samples nor STAGE/evaluations nor {_STORE}. Give a "
            "run whose recipe has save.samples, or a folder of `ansatz eval` or `ansatz sample`."
        )
    return files


def read_questions(folder: Path) -> dict[str, Row]:
    """Return {question, answer, level, subject} of the problems of a run by id, where the run has stored them."""
    out: dict[str, Row] = {}
    for path in list_folder(folder / "problems", "*.jsonl"):
        out |= {row["id"]: _problem(row) for row in read_jsonl(path) if isinstance(row.get("id"), str)}
    return out


def _problem(row: Mapping[str, Any]) -> Row:
    meta = row.get("meta") if isinstance(row.get("meta"), dict) else {}
    asked = {name: str(row.get(name) or "") for name in ("question", "answer", "level")}
    if isinstance(golds := row.get("answer"), list):
        asked["answer"] = joined_golds(map(str, golds))
    return {**asked, "subject": str(row.get("subject") or (meta or {}).get("subject") or "")}


def read_groups(file: RolloutFile, problems: Mapping[str, Row]) -> dict[int, Row]:
    """Return the fields that the rows of a file do not repeat, by the number of the group: problem, question, answer,
    level, subject, and in training the prompt. problems: the problems of the run, by id."""
    path = groups_path(file.path)
    if file.split == TRAIN and path.is_file():
        return {row["group"]: row for row in read_jsonl(path) if isinstance(row.get("group"), int)}
    groups: dict[int, Row] = {}
    for row in (convert_row(each, file) for each in _number_groups(read_jsonl(file.path))):
        known = row.pop("asked", None) or problems.get(row["problem"], {})
        groups.setdefault(row["group"], {"group": row["group"], "problem": row["problem"], **known})
    return groups


def read_rollouts(file: RolloutFile, problems: Mapping[str, Row]) -> list[Row]:
    """Return the rows of a file. problems: the run's, by id. Raise DataError for a row that nothing writes."""
    groups = read_groups(file, problems)
    rows = [convert_row(row, file) for row in _number_groups(read_jsonl(file.path))]
    members: defaultdict[tuple[int, bool], list[Row]] = defaultdict(list)
    for row in rows:
        row.pop("asked", None)
        row |= {name: groups.get(row["group"], {}).get(name, "") for name in ASKED}
        members[row["group"], row["greedy"]].append(row)
    for group in members.values():
        rewards = [row["reward"] for row in group]
        shared = {"group.size": len(group), "group.mean": fmean(rewards), "group.std": pstdev(rewards)}
        shared["group.correct"] = sum(row["correct"] for row in group)
        for row in group:
            row |= shared
    return rows


def _number_groups(rows: Sequence[Row]) -> Iterator[Row]:
    """Add `group` to the rows of a store: a new one begins where the problem changes or a sample repeats."""
    group, problem, seen = -1, None, set[int]()
    for row in rows:
        if "verdicts" not in row or "id" not in row or not isinstance(row.get("sample"), int):
            yield row  # the last two are of no store, which `convert_row` says
            continue
        if row["id"] != problem or row["sample"] in seen:
            group, problem, seen = group + 1, row["id"], set()
        seen.add(row["sample"])
        yield {**row, "group": group}


def convert_row(row: Row, file: RolloutFile) -> Row:
    """Return a stored row with the fields of FIELDS that it knows by itself, and `asked`, its problem, if it has one.

    Raise DataError for a row that nothing writes.
    """
    try:
        flat = _from_store(row) if file.is_store else _from_slim(row)
        greedy = bool(flat.get("greedy"))
        out = {name: flat.get(name) for name in FIELDS if "." not in name}
        split = "" if file.split == TRAIN else file.split
        place = "/".join(str(each) for each in (file.stage, file.step, split) if each != "")
        out |= {
            "id": flat.get("id") or f"{place}/{flat['group']}/{flat['sample']}",
            "stage": file.stage,
            "step": file.step,
            "split": file.split,
            "greedy": greedy,
            "truncated": flat["finish"] in CUT_OFF,
            "used": bool(flat.get("used", True)) and file.split == TRAIN,
            "has_tokens": flat.get("tokens_at") is not None,
            "reward": float(flat["reward"] or 0),
            "correct": bool(flat["correct"]),
            LABEL: "",
            "parts": {str(name): value for name, value in (flat.get("parts") or {}).items()},
            "tokens_at": flat.get("tokens_at"),
            "observations": flat.get("observations") or [],
            "steps": flat.get("steps") or [],
            "text": str(flat["text"]),
            "asked": flat.get("asked"),
        }
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise DataError(f"{file.path}: a row that nothing writes ({type(error).__name__}: {error}).") from error
    return out


def _from_slim(row: Row) -> Row:
    """Read a row of `track.rollout_rows`; of an evaluation, the group is a part of the id."""
    if "group" in row:
        return row
    match = re.search(r"/(\d+)/[^/]+$", row["id"])
    return {**row, "group": int(match[1]) if match else 0, "greedy": row.get("temperature") == 0}


def _from_store(row: Row) -> Row:
    """Read a row of `evaluate.responses`. The strictest verdict counts."""
    verdict = next(iter(row["verdicts"].values()))
    return {
        **{name: row.get(name) for name in ("group", "sample", "tokens", "finish")},
        **{name: verdict.get(name) for name in ("correct", "reason", "extracted")},
        "problem": row["id"],
        "id": None,
        "asked": _problem(row),
        "reward": float(verdict["correct"]),
        "parts": {name: float(each["correct"]) for name, each in row["verdicts"].items()},
        "text": row["response"],
    }


def cut_observations(row: Mapping[str, Any]) -> str:
    """Return the part of a response that the verifier gets: without the answers of tools in it."""
    return without_spans(row["text"], row["observations"])


def read_all(folder: Path) -> list[Row]:
    """Return the rows of a run or a folder of responses, by stage and step."""
    problems = read_questions(folder)
    return [row for file in find_rollout_files(folder) for row in read_rollouts(file, problems)]


def select_rows(
    rows: Sequence[Row], query: Query, *, grade: Callable[[Mapping[str, Any], str], bool] | None = None
) -> list[Row]:
    """Return the rows that a query selects, in its order. Percentiles are taken over all rows. grade: see
    `filters.compile_predicate`."""
    tree = resolve_percentiles(
        query.tree, lambda wanted: find_percentile((get_value(row, wanted.field) for row in rows), wanted.percent)
    )
    keeps = compile_predicate(tree, grade=grade)
    return sort_rows(filter(keeps, rows), query.sort)

"""The report beside a file that a verb of `ansatz data` wrote: what was done, and every row that went.

It is one JSON object: the settings, the counts, `sha256` of the file that it is about, `before`: the same of every verb
that the rows went through earlier, oldest first; and last `dropped_rows`, one a line, so that all else can be read
without them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ansatz.data.files import replacing

Json = dict[str, Any]
_ROWS = '  "dropped_rows": ['


def report_path(out: Path) -> Path:
    """OUT.report.json, OUT without its last ending."""
    return out.with_suffix(".report.json")


def write_report(out: Path, head: Mapping[str, Any], dropped: Iterable[str] = ()) -> None:
    """Writes the report of `out`. head: all of it but the rows. dropped: a JSON text for each row that went."""
    opened = json.dumps(head, ensure_ascii=True, indent=2).removesuffix("\n}")
    with replacing(report_path(out)) as file:
        file.write(f"{opened},\n{_ROWS}")
        for place, row in enumerate(dropped):
            file.write(("," if place else "") + f"\n    {row.strip()}")
        file.write("\n  ]\n}\n")


def read_head(report: Path) -> Json | None:
    """The report without its rows; None where there is no such file, or it is no JSON."""
    try:
        with report.open(encoding="utf-8") as file:
            lines: list[str] = []
            for line in file:
                if line.startswith(_ROWS):
                    return cast("Json", json.loads("".join(lines).rstrip().removesuffix(",") + "}"))
                lines.append(line)
        return cast("Json", json.loads("".join(lines)))
    except (OSError, ValueError):
        pass
    return None


def history(file: Path) -> list[Json]:
    """What was done to the file's rows by the verbs of `ansatz data`, oldest first: the heads of their reports.

    None where no report lies beside the file, or the file was changed after its report was written.
    """
    head = read_head(report_path(file))
    if not isinstance(head, dict) or head.get("sha256") != digest(file):
        return []
    before = cast("list[Json]", head.pop("before", []))
    return [*before, head]


def decontaminations(file: Path) -> list[Json]:
    """Of the file's history what test sets it was held against: each {against, ngram, min_frac, rows, dropped}."""
    kept = ("against", "ngram", "min_frac", "rows", "dropped")
    return [{key: head.get(key) for key in kept} for head in history(file) if head.get("verb") == "decontaminate"]


def provenance(section: Mapping[str, Any]) -> list[Json]:
    """For every problem file that a `data` entry names, those of its parts included: {path, decontaminated}."""
    return [{"path": path, "decontaminated": decontaminations(Path(path))} for path in paths_in(section)]


def paths_in(section: Mapping[str, Any]) -> list[str]:
    """Every `path` in a `data` entry, in order: its own, those of a mixture's parts, that of a fusion's source."""
    path = section.get("path")
    inner = [part for part in (section.get("of"), *(section.get("parts") or ())) if isinstance(part, Mapping)]
    return [str(path)] * (path is not None) + [found for part in inner for found in paths_in(part)]


def digest(file: Path) -> str:
    """SHA-256 of the file's bytes; empty where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return ""

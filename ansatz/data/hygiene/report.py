"""The report next to a file that an `ansatz data` verb wrote: the work done, and every dropped row.

The report is one JSON object with the settings, the counts, the `sha256` of the written file, and `before`: the same
for every verb that the rows went through earlier, oldest first. `dropped_rows` comes last with one row per line, so
that everything else can be read without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from glob import glob, has_magic
from pathlib import Path
from typing import Any, cast

from ansatz.data.files import replacing
from ansatz.files import file_digest
from ansatz.json_text import parse_json

Json = dict[str, Any]
_ROWS = '  "dropped_rows": ['


def report_path(out: Path) -> Path:
    """Return OUT.report.json, where OUT is the path without its last extension."""
    return out.with_suffix(".report.json")


def write_data_report(out: Path, head: Mapping[str, Any], dropped: Iterable[str] = ()) -> None:
    """Write the report of `out`. head: everything except the rows. dropped: the JSON text of each dropped row."""
    head_text = json.dumps(head, ensure_ascii=True, indent=2).removesuffix("\n}")
    with replacing(report_path(out)) as file:
        file.write(f"{head_text},\n{_ROWS}")
        for index, row in enumerate(dropped):
            file.write(("," if index else "") + f"\n    {row.strip()}")
        file.write("\n  ]\n}\n")


def read_head(report: Path) -> Json | None:
    """Return the report without its rows; None if there is no such file or it is not valid JSON."""
    try:
        with report.open(encoding="utf-8") as file:
            lines: list[str] = []
            for line in file:
                if line.startswith(_ROWS):
                    return _object("".join(lines).rstrip().removesuffix(",") + "}")
                lines.append(line)
        return _object("".join(lines))
    except (OSError, ValueError):
        return None


def _object(text: str) -> Json:
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return cast("Json", value)


def history(file: Path) -> list[Json]:
    """Return the heads of the reports of all `ansatz data` verbs that the file's rows went through, oldest first.

    Empty if the file has no report, or if the file was changed after its report was written.
    """
    head = read_head(report_path(file)) if file.name else None  # "." and "/" have no name and are no files
    if not isinstance(head, dict) or head.get("sha256") != digest(file):
        return []
    before = cast("list[Json]", head.pop("before", []))
    return [*before, head]


def decontaminations(file: Path) -> list[Json]:
    """Return the decontamination steps in the file's history, each {against, rule, ngram, min_frac, rows, dropped}.

    Reports of older versions name no rule.
    """
    keys = ("against", "rule", "ngram", "min_frac", "rows", "dropped")
    return [
        {key: head[key] for key in keys if key in head} for head in history(file) if head.get("verb") == "decontaminate"
    ]


def provenance(section: Mapping[str, Any]) -> list[Json]:
    """Return {path, decontaminated} for every problem file that a `data` entry or one of its parts names."""
    return [{"path": path, "decontaminated": decontaminations(Path(path))} for path in paths_in(section)]


def paths_in(section: Mapping[str, Any]) -> list[str]:
    """Return every file that a `data` entry names, in order: of the entry, of a mixture's parts, of a fusion's
    source."""
    path = section.get("path") or []
    paths = [path] if isinstance(path, str) else cast("list[str]", path)
    inner = [part for part in (section.get("of"), *(section.get("parts") or ())) if isinstance(part, Mapping)]
    files = [file for name in paths for file in (sorted(glob(name)) if has_magic(name) else [name])]
    return files + [inner_path for part in inner for inner_path in paths_in(part)]


def digest(file: Path) -> str:
    """Return SHA-256 of the file's bytes; empty if it cannot be read."""
    try:
        return file_digest(file)
    except OSError:
        return ""

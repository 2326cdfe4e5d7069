from __future__ import annotations

import json
from pathlib import Path

from ansatz.data.hygiene.report import (
    decontaminations,
    digest,
    history,
    paths_in,
    provenance,
    read_head,
    report_path,
    write_data_report,
)

HEAD = {"verb": "decontaminate", "against": ["t.jsonl"], "ngram": 10, "min_frac": 0.0, "rows": 5, "dropped": 2}


def written(folder: Path, name: str = "kept", **more: object) -> Path:
    file = folder / f"{name}.jsonl"
    file.write_text("{}\n")
    write_data_report(file, {**HEAD, "sha256": digest(file), **more}, ['{"line": 1}\n', '{"line": 4}\n'])
    return file


def test_a_report_is_json_with_its_rows_last_and_its_head_is_read_without_them(tmp_path: Path) -> None:
    report = report_path(written(tmp_path, note='"dropped_rows": ['))
    whole = json.loads(report.read_text())
    assert whole.pop("dropped_rows") == [{"line": 1}, {"line": 4}]
    assert read_head(report) == whole
    report.write_text(report.read_text().replace('{"line": 4}', "no json"))
    assert read_head(report) == whole


def test_a_report_without_rows_is_json_too(tmp_path: Path) -> None:
    write_data_report(tmp_path / "a.jsonl", HEAD)
    assert json.loads((tmp_path / "a.report.json").read_text()) == {**HEAD, "dropped_rows": []}
    (tmp_path / "other.report.json").write_text(json.dumps(HEAD))
    assert read_head(tmp_path / "other.report.json") == HEAD
    (tmp_path / "other.report.json").write_text("[1")
    assert read_head(tmp_path / "other.report.json") is None
    assert read_head(tmp_path / "none.report.json") is None


def test_a_history_goes_from_the_oldest_verb_to_the_last(tmp_path: Path) -> None:
    first = written(tmp_path)
    second = written(tmp_path, "second", verb="dedup", before=history(first))
    assert [head["verb"] for head in history(second)] == ["decontaminate", "dedup"]
    assert decontaminations(second) == [{key: value for key, value in HEAD.items() if key != "verb"}]


def test_a_file_that_was_changed_after_its_report_has_no_history(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert len(history(file)) == 1
    file.write_text("{}\n{}\n")
    assert history(file) == decontaminations(file) == []
    assert history(tmp_path / "none.jsonl") == []


def test_the_files_of_a_data_entry_are_found_in_mixtures_and_fusions_too(tmp_path: Path) -> None:
    parts = [{"source": "jsonl", "path": "b"}, {"source": "fusion", "of": {"source": "jsonl", "path": "c"}}]
    assert paths_in({"source": "mixture", "parts": [*parts, {"source": "arithmetic"}]}) == ["b", "c"]
    assert paths_in({"source": "arithmetic"}) == []
    clean = str(written(tmp_path))
    files = provenance({"source": "mixture", "parts": [{"path": clean}, {"path": "none.jsonl"}]})
    assert [file["path"] for file in files] == [clean, "none.jsonl"]
    assert [file["decontaminated"] for file in files] == [decontaminations(Path(clean)), []]
    assert files[0]["decontaminated"][0]["dropped"] == 2

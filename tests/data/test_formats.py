from __future__ import annotations

import csv as standard_csv
import json as standard_json
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.base import load_problems, source_names
from ansatz.data.formats import open_rows
from ansatz.errors import ConfigError, DataError, MissingExtraError

ROWS = [
    {"question": "1+1?", "answer": "1+1=2\n#### 2", "topic": "sums"},
    {"question": 'Say "a,\nb".', "answer": "#### 1,000", "topic": "π"},
]


def write_jsonl(folder: Path) -> dict[str, Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(standard_json.dumps(row) + "\n" for row in ROWS))
    return {"path": str(path)}


def write_json(folder: Path) -> dict[str, Any]:
    path = folder / "rows.json"
    path.write_text(standard_json.dumps(ROWS))
    return {"path": str(path)}


def write_csv(folder: Path, delimiter: str = ",") -> dict[str, Any]:
    path = folder / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = standard_csv.DictWriter(file, ROWS[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
    return {"path": str(path)}


def write_parquet(folder: Path) -> dict[str, Any]:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist(ROWS), folder / "rows.parquet")
    return {"path": str(folder / "rows.parquet")}


def write_hub(folder: Path) -> dict[str, Any]:
    datasets = pytest.importorskip("datasets", reason="the extra datasets is not installed")
    whole = datasets.DatasetDict({"main": datasets.Dataset.from_list(ROWS)})
    whole.save_to_disk(str(folder / "saved"))
    return {"dataset": str(folder / "saved"), "hub_split": "main"}


WRITERS = {
    "jsonl": write_jsonl,
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
    "hub": write_hub,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_problems(tmp_path: Path, name: str) -> None:
    settings = WRITERS[name](tmp_path)
    problems = load_problems(name, split="train", settings=settings)
    assert [(p.question, p.answer, p.solution, p.meta["topic"]) for p in problems] == [
        ("1+1?", "2", "1+1=2\n#### 2", "sums"),
        ('Say "a,\nb".', "1000", "#### 1,000", "π"),
    ]
    assert {p.split for p in problems} == {"train"}
    assert len(load_problems(name, split="train", settings={**settings, "limit": 1})) == 1


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_takes_the_settings_of_jsonl_and_names_a_missing_field(tmp_path: Path, name: str) -> None:
    settings = WRITERS[name](tmp_path)
    keys = {"question_key": "topic", "answer_key": "question", "answer_from": "field", "id_key": "topic"}
    problems = load_problems(name, split="train", settings={**settings, **keys})
    assert [(p.id, p.question, p.answer) for p in problems] == [
        ("sums", "sums", "1+1?"),
        ("π", "π", 'Say "a,\nb".'),
    ]
    with pytest.raises(DataError, match=r"(line|row) \d: the row has no field 'level'.*Set level_key"):
        load_problems(name, split="train", settings={**settings, "level_key": "level"})
    with pytest.raises(ConfigError, match="limit = 0"):
        load_problems(name, split="train", settings={**settings, "limit": 0})


def test_all_of_them_are_sources() -> None:
    assert set(WRITERS) <= set(source_names())
    assert not {"rows", "record_formats", "files", "formats", "extract"} & set(source_names())


def load(name: str, **settings: Any) -> Any:
    return load_problems(name, split="train", settings=settings)


def test_a_json_file_can_wrap_its_list_and_must_have_exactly_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(standard_json.dumps({"version": 1, "data": ROWS}))
    assert len(load("json", path=str(path))) == 2
    for content, message in [
        ('{"a": [], "b": []}', "expected a list of rows, or an object with one list"),
        ("[1", "not valid JSON"),
        ('[{"question": "?", "answer": "1"}, 5]', "row 2: got 5, expected a JSON object"),
    ]:
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            load("json", path=str(path))


def test_csv_errors_name_the_line_on_which_a_row_starts(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('question,answer\n"a\nb",1\nc\n')
    with pytest.raises(DataError, match=r"line 4: the row has 1 fields, but the header names 2 \(question, answer\)"):
        load("csv", path=str(path))
    path.write_text('question,answer\n"a,1\n')
    with pytest.raises(DataError, match="line 2: not valid CSV"):
        load("csv", path=str(path))
    path.write_bytes(b"question,answer\n\xff,1\n")
    with pytest.raises(DataError, match="line 2: not valid UTF-8"):
        load("csv", path=str(path))
    with pytest.raises(ConfigError, match="delimiter = ''"):
        load("csv", path=str(path), delimiter="")


def test_other_delimiters(tmp_path: Path) -> None:
    assert len(load("csv", delimiter="\t", **write_csv(tmp_path, "\t"))) == 2


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    path = Path(write_parquet(tmp_path)["path"])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"rows.parquet cannot be read as Parquet"):
        load("parquet", path=str(path))


def test_parquet_values_without_a_json_type_become_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import datetime

    from pyarrow.parquet import write_table

    row = {"question": "?", "answer": "1", "day": datetime.date(2020, 1, 2), "raw": b"ab", "nums": [1, 2]}
    write_table(pyarrow.Table.from_pylist([row]), tmp_path / "rows.parquet")
    (problem,) = load("parquet", path=str(tmp_path / "rows.parquet"))
    assert problem.meta == {"day": "2020-01-02", "raw": "ab", "nums": [1, 2], "line": 1}


def test_a_missing_split_of_a_saved_data_set_is_named(tmp_path: Path) -> None:
    settings = write_hub(tmp_path)
    with pytest.raises(DataError, match=r"has no split 'other'; its splits are 'main'\. Set hub_split"):
        load("hub", **{**settings, "hub_split": "other"})
    with pytest.raises(DataError, match=r"data set '.*nowhere'.*Check dataset"):
        load("hub", dataset=str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("name", "package"), [("parquet", "pyarrow"), ("hub", "datasets")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    (tmp_path / "rows.parquet").touch()
    monkeypatch.setitem(__import__("sys").modules, package, None)
    settings = {"path": str(tmp_path / "rows.parquet")} if name == "parquet" else {"dataset": "some/name"}
    with pytest.raises(MissingExtraError, match=rf"-m pip install .*{package}"):
        load(name, **settings)


def test_the_format_is_selected_by_the_extension(tmp_path: Path) -> None:
    for name in ("jsonl", "json", "csv", "parquet"):
        path = WRITERS[name](tmp_path)["path"]
        assert [row.values["topic"] for row in open_rows(path)] == ["sums", "π"]
    (tmp_path / "rows.txt").touch()
    with pytest.raises(DataError, match=r"has the extension '.txt', expected one of .jsonl"):
        open_rows(tmp_path / "rows.txt")

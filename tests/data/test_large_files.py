"""Small files that become large when they are read: each is refused in a sentence, before it fills the memory."""

import gzip
import re
import tracemalloc

import pytest

from ansatz.data import files
from ansatz.data.formats import open_rows
from ansatz.errors import DataError


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(files, "MAX_WHOLE_BYTES", 4 << 20)
    monkeypatch.setattr(files, "_ALWAYS_ALLOWED_BYTES", 2 << 20)


def compressed(path, part: bytes, count: int):
    """A file with `count` times the part, compressed as the end of its name says."""
    if path.suffix == ".gz":
        with gzip.open(path, "wb") as file:
            for _ in range(count):
                file.write(part)
    else:
        zstandard = pytest.importorskip("zstandard")
        with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
            for _ in range(count):
                writer.write(part)
    return path


def message(path) -> str:
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            for _ in open_rows(path):
                pass
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    return str(caught.value)


@pytest.mark.parametrize("end", ["gz", "zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_line_without_end_is_refused(tmp_path, kind, end):
    path = compressed(tmp_path / f"rows.{kind}.{end}", b"x" * (1 << 20), 50)
    assert "line 1: longer than 1 MiB" in message(path)


@pytest.mark.parametrize("end", ["gz", "zst"])
def test_rows_that_expand_beyond_reason_are_refused(tmp_path, monkeypatch, end):
    monkeypatch.setattr(files, "_ALWAYS_ALLOWED_BYTES", 1 << 20)
    row = b'{"question": "1 + 1?", "answer": "2"}\n' * 1000
    assert "expand to more than 100 times as many" in message(compressed(tmp_path / f"rows.jsonl.{end}", row, 50))


@pytest.mark.parametrize("end", ["gz", "zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv"])
@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"   \n"])
@pytest.mark.parametrize("has_row", [False, True])
def test_many_empty_lines_are_refused_after_a_few_of_them(tmp_path, monkeypatch, kind, end, line, has_row):
    """Of 300 MB that unpack from 0.3 MB, only the first lines are read."""
    monkeypatch.setattr(files, "MAX_EMPTY_LINES", 1000)
    row = {"jsonl": b'{"question": "1 + 1?"}\n', "csv": b"question,answer\n", "tsv": b"question\tanswer\n"}[kind]
    path = compressed(tmp_path / f"rows.{kind}.{end}", row * has_row + line * 900, 500)
    said = message(path)
    is_row = has_row and kind != "jsonl" and line.strip(b"\r\n")  # blanks are a row of one field
    expected = (
        "line 2: the row has 1 fields" if is_row else r"has 1,\d{3} empty lines up to line 1,\d{3}, and hardly any"
    )
    assert re.search(expected, said)


def test_empty_lines_between_rows_are_no_harm(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_EMPTY_LINES", 10)
    path = tmp_path / "rows.jsonl"
    path.write_text(('{"question": "1 + 1?"}\n' + 9 * "\n") * 100)
    assert sum(1 for _ in open_rows(path)) == 100


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows_is_refused(tmp_path, kind, content):
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(content)
    assert str(path) in message(path)


def test_a_json_file_that_expands_beyond_reason_is_refused(tmp_path):
    path = compressed(tmp_path / "rows.json.gz", b" " * (1 << 20), 50)
    assert "expand to more than 100 times as many" in message(path)


def test_a_json_file_that_is_too_large_to_be_read_at_once_is_refused(tmp_path):
    path = tmp_path / "rows.json"
    path.write_bytes(b" " * (5 << 20))
    assert "Convert it to JSON lines" in message(path)


def test_a_parquet_file_that_expands_beyond_reason_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"question": ["1 + 1?" + "x" * 100_000] * 100, "answer": ["2"] * 100})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    assert "expand to more than 100 times as many" in message(path)


@pytest.mark.parametrize("as_dictionary", [True, False])
def test_a_text_that_a_parquet_file_holds_once_for_many_rows_is_refused(tmp_path, as_dictionary):
    """Its footer says how much the file holds, not how much the rows do."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, pyarrow.int32()), ["1 + 1?" + "x" * 50_000])
    table = pyarrow.table({"question": texts, "answer": ["2"] * 2000})
    parquet.write_table(table, path, store_schema=as_dictionary)
    with parquet.ParquetFile(path) as file:
        assert file.metadata.row_group(0).total_byte_size < 2 << 20
    assert "expand to more than 100 times as many" in message(path)


@pytest.mark.parametrize(
    "content", [b"\x1f\x8b rubbish", b"not compressed", b"\x1f\x8b\x08\x00" + b"\0" * 6 + b"\xff" * 50]
)
def test_a_file_with_a_wrong_header_is_refused(tmp_path, content):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(content)
    assert "cannot be decompressed" in message(path)

import json

import pytest

from ansatz.errors import DataError
from ansatz.json_text import MAX_DEPTH, parse_json, read_object


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        b"\xff\xfe",
        "[" * 100_000,
        "[" * 950 + "]" * 950,
        '{"a":' * 101 + "1" + "}" * 101,
        "1" * 5000,
        "1" * 400,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_cannot_be_used_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_everything_else_is_as_json_reads_it():
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    for text in (
        "7",
        "null",
        '{"a": [1, 2.5, "x", NaN, Infinity]}',
        deepest,
        '"\\ud800"',
        "1" * 300,
        "[" * 3 + "]" * 3,
    ):
        assert repr(parse_json(text)) == repr(json.loads(text))
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", ["[NaN]", "[-Infinity]", '["\\ud800"]'])
def test_files_of_our_own_have_neither_nan_nor_half_characters(text):
    parse_json(text)
    with pytest.raises(ValueError, match=r"."):
        parse_json(text, own=True)
    assert parse_json('["\\ud83d\\ude00"]', own=True) == ["\U0001f600"]


@pytest.mark.parametrize("content", [None, b"[1]", b"{", b"\xff"])
def test_a_file_that_is_not_an_object_is_named_with_the_advice(tmp_path, content):
    path = tmp_path / "state.json"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=r"state.json (cannot be read|holds) .* Restore it\.$"):
        read_object(path, error=DataError, advice="Restore it.")

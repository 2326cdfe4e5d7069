from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansatz.data.base import load_problems
from ansatz.data.cursor import ProblemStream
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem


def rows_file(folder: Path, name: str, *kinds: tuple[str, str, int]) -> dict[str, Any]:
    """A part over a file of (topic, level, how many rows)."""
    path = folder / f"{name}.jsonl"
    rows = [{"topic": t, "level": level} for t, level, count in kinds for _ in range(count)]
    lines = [json.dumps({"question": f"{name} {i}?", "answer": str(i), **row}) for i, row in enumerate(rows)]
    path.write_text("\n".join(lines))
    return {"source": "jsonl", "path": str(path)}


def mixed(parts: Sequence[dict[str, Any]], **settings: Any) -> Sequence[Problem]:
    return load_problems("mixture", split="train", settings={"parts": parts, **settings})


def sources_of(problems: Sequence[Problem]) -> Counter[str]:
    return Counter(row.source.rpartition("/")[2] for row in problems)


def test_parts_have_their_shares_in_the_whole_and_in_every_prefix(tmp_path: Path) -> None:
    a, b = rows_file(tmp_path, "a", ("", "", 90)), rows_file(tmp_path, "b", ("", "", 100))
    problems = mixed([{**a, "weight": 1}, {**b, "weight": 3}], count=100)
    assert sources_of(problems) == {"a": 25, "b": 75}
    assert len({row.id for row in problems}) == 100
    for length in range(1, 100):
        assert abs(sources_of(problems[:length])["a"] - length / 4) <= 1


def test_without_a_count_there_are_as_many_as_the_shares_allow(tmp_path: Path) -> None:
    parts = [rows_file(tmp_path, "a", ("", "", 10)), {**rows_file(tmp_path, "b", ("", "", 100)), "weight": 2}]
    assert sources_of(mixed(parts)) == {"a": 10, "b": 21}  # of 31 rows a's share is 10.33
    assert sources_of(mixed(parts, repeat=2)) == {"a": 20, "b": 41}


def test_topics_and_levels_have_their_shares_in_each_part(tmp_path: Path) -> None:
    kinds = [("algebra", "1", 30), ("algebra", "2", 30), ("geometry", "1", 30), ("geometry", "2", 30), ("sets", "1", 9)]
    parts = [rows_file(tmp_path, name, *kinds) for name in "ab"]
    problems = mixed(parts, topics={"algebra": 2, "geometry": 1}, levels={1: 1, 2: 3}, count=48)
    counts = Counter((row.source[-1], row.meta["topic"], row.level) for row in problems)
    for part in "ab":
        assert [counts[part, "algebra", "1"], counts[part, "algebra", "2"]] == [4, 12]
        assert [counts[part, "geometry", "1"], counts[part, "geometry", "2"]] == [2, 6]
    assert sum(counts.values()) == 48


def test_the_topic_can_be_in_another_field(tmp_path: Path) -> None:
    part = rows_file(tmp_path, "a", ("algebra", "1", 4), ("sets", "2", 4))
    assert {row.level for row in mixed([{**part, "level_key": "level"}], topics={"sets": 1})} == {"2"}
    with pytest.raises(DataError, match=r"part 0, topic 'sets' has 0 of 1\. .* set topic_key"):
        mixed([part], topics={"sets": 1}, topic_key="subject")


def test_an_impossible_count_is_refused_with_the_possible_one(tmp_path: Path) -> None:
    parts = [rows_file(tmp_path, "a", ("", "1", 10)), rows_file(tmp_path, "b", ("", "1", 100))]
    with pytest.raises(
        DataError, match=r"count = 60: part 0 has 10 of 30\. Set count = 20 or less, or raise repeat = 1"
    ):
        mixed(parts, count=60)
    assert len(mixed(parts, count=20, seed=5)) == 20
    with pytest.raises(
        DataError, match=r"part 0, level '9' has 0 of 1; part 1, level '9' has 0 of 1\. Remove the weights"
    ):
        mixed(parts, levels={"1": 1, "9": 1})


def test_a_repeated_problem_has_its_own_id(tmp_path: Path) -> None:
    problems = mixed([rows_file(tmp_path, "a", ("", "", 3))], count=7, repeat=3)
    assert Counter(row.question for row in problems) == {"a 0?": 3, "a 1?": 2, "a 2?": 2}
    assert len({row.id for row in problems}) == 7
    assert sum(row.id.endswith("#3") for row in problems) == 1


def test_rows_are_taken_over_the_whole_length_and_depend_on_the_seed(tmp_path: Path) -> None:
    part = rows_file(tmp_path, "a", ("", "", 100))
    places = [int(row.answer) for row in mixed([part], count=10)]
    assert places == sorted(set(places))
    assert [place // 10 for place in places] == list(range(10))
    assert places == [int(row.answer) for row in mixed([part], count=10)]
    assert any(places != [int(row.answer) for row in mixed([part], count=10, seed=seed)] for seed in (1, 2, 3))


def test_a_generator_of_a_billion_problems_is_mixed_without_making_them(tmp_path: Path) -> None:
    generator = {"source": "countdown", "count": 10**9, "max_level": 2}
    problems = mixed([generator, {"source": "arithmetic", "split": "heldout"}], count=1000)
    assert Counter((row.source, row.split) for row in problems[:10]) == {
        ("countdown", "train"): 5,
        ("arithmetic", "heldout"): 5,
    }


def test_a_mixture_in_a_mixture_has_its_own_shares(tmp_path: Path) -> None:
    inner = {"source": "mixture", "parts": [rows_file(tmp_path, "a", ("x", "1", 9), ("y", "1", 9))], "topics": {"x": 1}}
    problems = mixed([inner, rows_file(tmp_path, "b", ("z", "1", 9))], count=8)
    assert Counter(row.meta["topic"] for row in problems) == {"x": 4, "z": 4}


def test_a_stream_over_a_mixture_resumes(tmp_path: Path) -> None:
    parts = [rows_file(tmp_path, "a", ("", "", 7)), rows_file(tmp_path, "b", ("", "", 9))]
    through = ProblemStream(mixed(parts), seed=3)
    through.take(10)
    again = ProblemStream(mixed(parts), seed=3)
    again.restore(through.state())
    assert again.take(9) == through.take(9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": []}, "no part weights"),
        ({"parts": [{"weight": 1}]}, r"part 0 has source = None, expected the name of a data source"),
        ({"parts": [{"source": "arithmetic", "weight": 0}]}, "the weight of part 0 is 0"),
        ({"parts": [{"source": "arithmetic"}], "count": 0}, "count = 0, expected 1 or more"),
        ({"parts": [{"source": "arithmetic"}], "repeat": 0}, "repeat = 0, expected 1 or more"),
        ({"parts": [{"source": "arithmetics"}]}, "Did you mean 'arithmetic'"),
        ({"parts": [{"source": "arithmetic", "path": "x"}]}, "no setting 'path'"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_problems("mixture", split="train", settings=settings)


def test_whole_parts_come_in_turns_and_a_name_is_the_origin_of_their_problems(tmp_path: Path) -> None:
    a, b = rows_file(tmp_path, "a", ("", "", 1)), rows_file(tmp_path, "b", ("", "", 3))
    problems = mixed([{**a, "name": "easy"}, b], whole=True)
    assert [row.origin.rpartition("/")[2] for row in problems] == ["easy", "b", "b", "b"]
    assert [row.question for row in problems] == ["a 0?", "b 0?", "b 1?", "b 2?"]
    assert problems[0].source.endswith("/a")  # what a reward of one source looks for
    for settings in ({"count": 2}, {"repeat": 2}):
        with pytest.raises(ConfigError, match="whole takes every problem once, so count, repeat and weights"):
            mixed([a, b], whole=True, **settings)
    with pytest.raises(ConfigError, match="part 1 has name = 3, expected a text"):
        mixed([a, {**b, "name": 3}])


def test_a_part_has_a_prompt_template_of_its_own(tmp_path: Path) -> None:
    a, b = rows_file(tmp_path, "a", ("", "", 1)), rows_file(tmp_path, "b", ("", "", 1))
    first, second = mixed([a, {**b, "template": "program"}], whole=True)
    assert (first.template, second.template) == (None, "program")

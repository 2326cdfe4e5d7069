"""The two back ends of filters select the same rows: SQL in the index, and the Python predicate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

duckdb = pytest.importorskip("duckdb", reason="a package of the viewer is not installed")

from ansatz.track.filters import (  # noqa: E402
    All,
    Compare,
    Contains,
    Either,
    FieldPlus,
    Flag,
    Matches,
    Not,
    Other,
    Percentile,
    Query,
    Tree,
    Within,
    compile_predicate,
    find_percentile,
    map_leaves,
)
from ansatz.track.notes import resolve_labels  # noqa: E402
from ansatz.track.rollout_table import KINDS, select_rows  # noqa: E402
from ansatz.ui.index import RolloutIndex  # noqa: E402

NUMBERS = st.sampled_from([-2.5, -1.0, 0.0, 0.5, 1.0, 3.0])
TEXTS = st.sampled_from(["", "a", "12", "a'b\"c", "%_\\", "\u2028é", "x" * 50, "or 1=1; --"])
WORDS = st.sampled_from(["hack", "odd", "a-b", "X_1"])
FIELDS: dict[str, list[str]] = {"number": [], "text": [], "flag": [], "word": []}
for _name, _kind in KINDS.items():
    FIELDS[_kind] += [_name] if _name != "id" else []
PARTS = ["parts.a", "parts.it's"]
numeric = st.sampled_from([*FIELDS["number"], *PARTS])

comparisons = st.builds(
    Compare,
    numeric,
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    NUMBERS
    | st.builds(FieldPlus, numeric, NUMBERS)
    | st.builds(Percentile, numeric, st.sampled_from([0.0, 5.0, 50.0])),
    st.booleans(),
)
tests = st.one_of(
    st.just(All(())),
    comparisons,
    st.builds(Compare, st.sampled_from(FIELDS["text"]), st.sampled_from(["=", "!="]), TEXTS),
    st.builds(Within, st.sampled_from(FIELDS["text"]), st.lists(TEXTS, max_size=3).map(tuple)),
    st.builds(Within, numeric, st.lists(NUMBERS, max_size=3).map(tuple)),
    st.builds(Flag, st.sampled_from(FIELDS["flag"])),
    st.builds(Contains, TEXTS),
    st.builds(Compare, st.just("label"), st.sampled_from(["=", "!="]), WORDS),
    st.builds(Within, st.just("label"), st.lists(WORDS, max_size=3).map(tuple)),
    st.builds(Other, st.sampled_from(["strict", "last_number"])),
    st.builds(Matches, st.sampled_from(FIELDS["text"]), st.sampled_from(["^a", "b.c$", "[0-9]+", ""])),
)


def combine(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    several = st.lists(children, max_size=3).map(tuple)
    return st.one_of(st.builds(All, several), st.builds(Either, several), st.builds(Not, children))


trees = st.recursive(tests, combine, max_leaves=6)
rows = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.none() | NUMBERS for name in FIELDS["number"]},
            **{name: st.none() | TEXTS for name in FIELDS["text"] if name != "text"},
            **{name: st.none() | st.booleans() for name in FIELDS["flag"]},
            "text": TEXTS,
            "parts": st.dictionaries(st.sampled_from(["a", "it's"]), NUMBERS, max_size=2),
        }
    ),
    max_size=6,
)


def grade(row: Mapping[str, Any], mode: str) -> bool:
    return (len(row["text"]) + len(mode)) % 2 == 0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> RolloutIndex:
    return RolloutIndex(Path("nowhere"), folder=tmp_path_factory.mktemp("index"))


@settings(max_examples=150, deadline=None)
@given(trees, rows, st.dictionaries(st.sampled_from("0123456"), st.lists(WORDS, min_size=1, max_size=3)))
def test_sql_and_the_predicate_select_the_same_rows(
    index: RolloutIndex, tree: Tree, rows: list[dict[str, Any]], labels: dict[str, list[str]]
):
    more = {"file": "", "written": 0.0, "tokens_at": None, "observations": [], "steps": []}
    table = [{**row, **more, "id": str(number)} for number, row in enumerate(rows)]
    index._db.execute("delete from rollouts")
    index.insert_rows(index._db, table)

    def grade(row: Mapping[str, Any], mode: str) -> bool:
        return (int(row["id"]) + len(mode)) % 2 == 0

    def filter_of(row: Mapping[str, Any]) -> Tree:
        """The filter of one row, in which each test of its labels is replaced by what it comes to."""

        def decide(test: Tree) -> Tree:
            if getattr(test, "field", "") != "label":
                return test
            words = labels.get(row["id"], [])
            return All(()) if any(compile_predicate(test)({"label": word}) for word in words) else Either(())

        return map_leaves(tree, decide)

    resolved = resolve_labels(tree, labels)
    bound = index.resolve(resolved, grade)
    found = sorted(row["id"] for row in index.select(Query(bound), limit=100))
    assert index.count(bound) == index.summarise(bound, facets=("level",), numbers=("reward",)).total == len(found)
    assert found == sorted(row["id"] for row in select_rows(table, Query(resolved), grade=grade))
    if "Percentile(" not in repr(tree):
        assert found == [row["id"] for row in table if compile_predicate(filter_of(row), grade=grade)(row)]


def test_modes_of_the_verifier_that_disagree_are_found(index: RolloutIndex):
    """Neither "all modes say correct" nor "all say wrong" passes this filter."""
    more = {"file": "", "written": 0.0, "tokens_at": None, "observations": [], "steps": [], "parts": {}, "text": ""}
    index._db.execute("delete from rollouts")
    index.insert_rows(index._db, [{**dict.fromkeys(KINDS), **more, "id": name} for name in "abcd"])
    tree = All((Other("last_number"), Not(Other("strict"))))
    resolved = index.resolve(tree, lambda row, mode: row["id"] in {"last_number": "abc", "strict": "bd"}[mode])
    assert sorted(row["id"] for row in index.select(Query(resolved), limit=9)) == ["a", "c"]


def test_percentiles_of_both_back_ends_are_equal(index: RolloutIndex):
    values = [3.0, None, 1.0, 2.5, 10.0]
    more = {"file": "", "written": 0.0, "tokens_at": None, "observations": [], "steps": [], "parts": {}, "text": ""}
    index._db.execute("delete from rollouts")
    rows = [{**dict.fromkeys(KINDS), **more, "tokens": value} for value in values]
    index.insert_rows(index._db, rows)
    for percent in (0.0, 5.0, 33.0, 50.0, 100.0):
        tree = Compare("tokens", "<", Percentile("tokens", percent))
        (resolved,) = [index.resolve(tree, lambda row, mode: False)]
        assert isinstance(resolved, Compare)
        assert resolved.value == pytest.approx(find_percentile(values, percent))


def test_the_index_reads_no_other_file(index: RolloutIndex, tmp_path: Path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.PermissionException):
        index._db.execute(f"select * from read_csv('{tmp_path}/secret.csv')")
    with pytest.raises(duckdb.Error):
        index._db.execute("set enable_external_access = true")

"""Filters and counts as SQL: the second back end of `track.filters`, which a property test holds equal to the first.

Only SQL that is made here runs, with bound values; names of columns come from the closed list of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansatz.track import filters

MAX_VALUES = 15
"""Values of a facet that are counted, the most frequent ones. A page shows 12; of three more, two can be empty, and one
tells that there are others."""
Sql = tuple[str, list[Any]]
"""A condition or an expression, and the values of its question marks."""


def compile_sql(tree: filters.Tree) -> Sql:
    """Return a condition and the values of its question marks. Percentiles and `other` are resolved before."""
    match tree:
        case filters.All(items):
            return _join([compile_sql(item) for item in items], " and ", "true")
        case filters.Either(items):
            return _join([compile_sql(item) for item in items], " or ", "false")
        case filters.Not(item):
            condition, values = compile_sql(item)
            return f"(not {condition})", values
        case filters.Flag(field):
            return f"coalesce({quote(field)}, false)", []
        case filters.Contains(text):
            return "contains(text, ?)", [text]
        case filters.Matches(field, pattern):
            return f"coalesce(regexp_matches({quote(field)}, ?), false)", [pattern]
        case filters.Within(field, members):
            column, bound = column_of(field)
            chosen = f"coalesce({column} in (select unnest(?)), false)"  # a join, so that many members cost little
            return (chosen, [*bound, list(members)]) if members else ("false", [])
        case filters.Compare(field, sign, value, absolute):
            column, values = column_of(field)
            left = f"abs({column})" if absolute else column
            if isinstance(value, filters.FieldPlus):
                other, more = column_of(value.field)
                return f"coalesce({left} {sign} {other} + ?, false)", [*values, *more, value.plus]
            return f"coalesce({left} {sign} ?, false)", [*values, value]
        case _:
            raise TypeError(f"{tree} is resolved before it becomes SQL")


def column_of(field: str) -> Sql:
    """Return the expression of a field and the values of its question marks."""
    if field.startswith(filters.PARTS):
        return "element_at(parts, ?)[1]", [field[len(filters.PARTS) :]]
    return quote(field), []


def quote(field: str) -> str:
    """Return the name of a column, quoted. The field is one of the closed list."""
    assert '"' not in field, field
    return f'"{field}"'


def order_by(sort: Sequence[str]) -> Sql:
    """Return the terms of ORDER BY: the given fields, then the newest files first."""
    keys: list[str] = []
    values: list[Any] = []
    for name in sort:
        column, bound = column_of(name.lstrip("-"))
        keys.append(f"{column} {'desc' if name.startswith('-') else 'asc'} nulls last")
        values += bound
    return ", ".join([*keys, "written desc", "stage", "step", "split", '"group"', "greedy", "sample"]), values


def _join(parts: Sequence[Sql], word: str, empty: str) -> Sql:
    if not parts:
        return empty, []
    return f"({word.join(condition for condition, _ in parts)})", [value for _, values in parts for value in values]


def count_sql(condition: str, facets: Sequence[str], numbers: Sequence[str], bins: int) -> str:
    """Return a statement with rows (name, value, low, high, count): the range of each number, the counts of its parts
    and of the values of each facet, and under the name '' of all.

    A filter is applied once, and the rows that it selects are held in memory. All rows are counted where they are.
    """
    columns = ", ".join(map(quote, [*facets, *numbers])) or "1"
    ends = ", ".join(f'min({quote(name)}) as "low {name}", max({quote(name)}) as "high {name}"' for name in numbers)
    places = ", ".join(f"{_place_of(name, bins)} as {quote(name)}" for name in numbers)
    parts = ["select '' as name, null as value, null as low, null as high, count(*) as number from hits"]
    parts += [_count_values(facets, "hits", MAX_VALUES)] if facets else []
    parts += [_count_values(numbers, f"(select {places} from hits, ends)", bins + 2)] if numbers else []
    parts += [f'select {name!r}, null, "low {name}", "high {name}", null from ends' for name in numbers]
    return (
        f"with hits as {'not ' if condition == 'true' else ''}materialized (select {columns} from rollouts where "
        f"{condition}), ends as materialized (select {ends or 1} from hits) {' union all '.join(parts)}"
    )


def _count_values(names: Sequence[str], source: str, at_most: int) -> str:
    """Return the part of a statement that counts the most frequent values of each column by itself."""
    columns = ", ".join(map(quote, names))
    others = [2 ** len(names) - 1 - 2**place for place in reversed(range(len(names)))]
    cases = " ".join(f"when {bits} then {name!r}" for bits, name in zip(others, names, strict=True))
    return (
        f"select case grouping({columns}) {cases} end as name, "
        f"coalesce({', '.join(f'cast({quote(name)} as VARCHAR)' for name in names)}, null) as value, null, null, "
        f"count(*) as number from {source} group by grouping sets ({', '.join(f'({quote(name)})' for name in names)}) "
        f"qualify row_number() over (partition by name order by number desc, value) <= {at_most}"
    )


def _place_of(name: str, bins: int) -> str:
    """Return the SQL for the index of the part that a number lies in, when its range is cut into equal parts."""
    width = f'case when "high {name}" > "low {name}" then ("high {name}" - "low {name}") / {bins} else 1 end'
    return f'cast(floor(({quote(name)} - "low {name}") / {width}) as INTEGER)'

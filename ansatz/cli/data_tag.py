"""`ansatz data tag`: add topics to the rows of a file, by rules or by a user's classifier."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.option_groups import RowFields, takes_fields
from ansatz.cli.outputs import check_outputs
from ansatz.cli.rows import Files, Out, history_of, named, rows_of, with_progress
from ansatz.errors import ConfigError
from ansatz.trust import TrustedText
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.data.rows import Row


@takes_fields()
def tag(
    files: Files,
    out: Out,
    classifier: Annotated[
        str | None,
        typer.Option(
            help="Your own classifier as file.py:function, a function (problem) -> topic or list of topics. "
            "Default: the rules of the package, for English and LaTeX."
        ),
    ] = None,
    field: Annotated[str, typer.Option(help="Field for the topic; FIELDs (topics) gets the list of all.")] = "topic",
    *,
    fields: RowFields,
) -> None:
    """Write each row with its topic, and with the list of all that apply. A mixture can give shares to topics."""
    from ansatz.data.files import replacing
    from ansatz.data.hygiene.report import digest, report_path, write_data_report
    from ansatz.data.hygiene.row_filter import json_line
    from ansatz.data.hygiene.topics import classifier_of

    check_outputs([out], inputs=files, reports=True)
    if not field:
        raise ConfigError("--field is empty, expected the name of the field for the topic, such as topic.")
    classify = classifier_of(classifier and TrustedText(classifier))
    counts: Counter[str] = Counter()
    with replacing(out) as file:
        for row, problem in with_progress(rows_of(files, fields), "tag"):
            topics = classify(problem)
            counts[topics[0]] += 1
            file.write(json_line({**_without(row, field), field: topics[0], f"{field}s": topics}))
    about: dict[str, Any] = {"verb": "tag", "file": named(files), "classifier": classifier or "rules", "field": field}
    about |= {"before": history_of(files), "rows": counts.total(), "topics": dict(counts.most_common())}
    write_data_report(out, {**about, "sha256": digest(out)})
    say(f"{counts.total()} rows: " + ", ".join(f"{topic} {count}" for topic, count in counts.most_common()))
    say(f"rows with {field} and {field}s: {out}; report: {report_path(out)}")


def _without(row: Row, field: str) -> dict[str, Any]:
    """Return the row's values. Raise ConfigError if it already has one of the fields, which would be lost."""
    for name in (field, f"{field}s"):
        if name in row.values:
            raise ConfigError(f"{row.place} already has a field {name!r}. Choose another name with --field.")
    return row.values

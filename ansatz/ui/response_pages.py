"""The pages of the viewer that show responses: their list, a group, one response, and the problems behind them."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from ansatz.errors import DataError
from ansatz.track.filters import All, Compare, FilterError, Flag, Not, Query, Tree, check_sort, parse_filter
from ansatz.track.notes import VERDICTS, notes_path, read_notes, resolve_labels
from ansatz.track.rollout_table import FIELDS, KINDS, TRAIN, read_questions
from ansatz.track.step_files import EVALUATIONS
from ansatz.track.stored_evaluations import compare_ends, stored_evaluations
from ansatz.track.word_diff import word_diff
from ansatz.types import gold_value
from ansatz.ui.open_run import NotFound, OpenRun, Page
from ansatz.ui.response import COLOURS, GRADERS, WORDS, explain_verdict, grade_row, read_strip
from ansatz.visible import write_csv

if TYPE_CHECKING:
    from ansatz.ui.index import RolloutIndex

PAGE_ROWS = 100
MAX_EXPORTED = 200_000
"""Responses that a page exports at most, because they are held in memory."""
FACETS = ("reason", "finish", "level", "subject", "split", "used", "grader_stage")
MAX_OF_GROUP, MAX_OF_PROBLEM = 512, 2000
"""Responses of a group that its page shows, the first, and to a problem, the newest."""
HISTOGRAMS = ("reward", "advantage", "tokens", "mean_logp", "mean_entropy", "mismatch_max", "repetition", "step")
SAVED = tuple(WORDS["saved"].items())
"""Filters that the page of responses offers, by name."""


def list_rollouts(at: OpenRun, query: Mapping[str, str]) -> Page:
    index = at.index
    text, page = query.get("q", ""), max(1, read_number(query.get("page", "")) or 1)
    context = {**at.context("rollouts"), "waiting": index.waiting, "saved": SAVED, "error": ""}
    context |= {"q": text, "sort": query.get("sort", "")}
    notes = read_notes(at.path)
    labels = notes.labels
    try:
        wanted = _read_query(index, query, labels)
    except FilterError as error:
        wanted, context["error"] = Query(Compare("step", "<", -1)), str(error)
    tree = index.resolve(wanted.tree, grade_row)
    found = index.summarise(tree, facets=FACETS, numbers=HISTOGRAMS)
    rows = index.select(wanted._replace(tree=tree), limit=PAGE_ROWS, offset=PAGE_ROWS * (page - 1))
    facets = [(field, _facet(values, text, field)) for field, values in found.facets.items()]
    return "rollouts.html", {
        **context,
        "rows": rows,
        "total": found.total,
        "all": index.count(),
        "facets": [(field, values) for field, values in facets if len(values) > 1],
        "histograms": [
            (field, draw_bins(parts), parts[0][0], parts[-1][1])
            for field, parts in found.bins.items()
            if sum(count > 0 for *_, count in parts) > 1
        ],
        "page": page,
        "pages": max(1, -(-found.total // PAGE_ROWS)),
        "link": lambda **changed: "?" + urlencode({"q": text, "sort": query.get("sort", ""), **changed}),
        "notices": [*index.notices, *notes.notices],
        "labels": labels,
        "named": Counter(word for words in labels.values() for word in words).most_common(),
        "fields": FIELDS,
    }


def export_rollouts(at: OpenRun, kind: str, query: Mapping[str, str]) -> Response:
    index, labels = at.index, read_notes(at.path).labels
    if index.waiting:
        raise at.still_reading(index.waiting)
    wanted = _read_query(index, query, labels)
    tree = index.resolve(wanted.tree, grade_row)
    if (total := index.count(tree)) > MAX_EXPORTED:
        raise DataError(
            f"{total} responses are more than the {MAX_EXPORTED} that a page exports. Narrow the filter, or use "
            f"`ansatz rollouts --{kind}`."
        )
    rows = index.select(wanted._replace(tree=tree), limit=MAX_EXPORTED)
    for row in rows:
        row["label"] = " ".join(labels.get(row["id"], ()))
    if kind == "jsonl":
        lines = ({**row, "answer": gold_value(row["answer"] or "")} for row in rows)
        text, media = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "application/x-ndjson"
    elif kind == "csv":
        out = io.StringIO()
        write_csv(out, list(FIELDS), rows)
        text, media = out.getvalue(), "text/csv"
    else:
        raise NotFound(f"responses are exported as csv or jsonl, not as {kind!r}.")
    disposition = f'attachment; filename="rollouts.{kind}"'
    body = text.encode(errors="replace")
    return Response(body, media_type=media, headers={"Content-Disposition": disposition})


def show_group(at: OpenRun, place: str, query: Mapping[str, str]) -> Page:
    members, total, waiting = at.select(_sampled_tree(place), limit=MAX_OF_GROUP, what=f"group {place!r}")
    order = query.get("order", "")
    if order in ("reward", "tokens"):
        members.sort(key=lambda row: -row[order])
    asked = at.find_question(members[0])
    number = members[0]["group"]
    base = place.rpartition("/")[0]
    after = f"{base}/{number + 1}"
    same = at.index.find_ids(Compare("problem", "=", members[0]["problem"]))
    others = dict.fromkeys(each.rpartition("/")[0] for each in same)
    return "group.html", {
        **at.context("rollouts"),
        "place": place,
        "members": members,
        "total": total,
        "labels": read_notes(at.path).labels,
        "asked": asked,
        "before": f"{base}/{number - 1}" if number else "",
        "after": after if at.index.count(_sampled_tree(after)) else "",
        "waiting": waiting,
        "others": [other for other in others if other != place],
        "order": order,
        "written": query.get("text") == "written",
    }


def show_rollout(at: OpenRun, place: str, query: Mapping[str, str]) -> Page:
    row = at.find_row(place)
    ids = at.index.find_ids(_group_tree(group_place(row)))
    here = ids.index(row["id"]) if row["id"] in ids else 0
    asked, notes = at.find_question(row), read_notes(at.path)
    first = read_number(query.get("w", "")) or 0
    strip, notice = None, ""
    try:
        strip = read_strip(row, at.path, query.get("color", ""), first=first)
    except DataError as error:
        notice = str(error)
    return "rollout.html", {
        **at.context("rollouts"),
        "row": row,
        "asked": asked,
        "notes": notes.by_rollout.get(row["id"], []),
        "note_notices": notes.notices,
        "named": dict.fromkeys([*VERDICTS, *(word for words in notes.labels.values() for word in words)]),
        "notes_path": notes_path(at.path, in_run=at.library.notes_in_run),
        "group": group_place(row),
        "left": ids[here - 1] if here else "",
        "right": ids[here + 1] if here + 1 < len(ids) else "",
        "verdicts": explain_verdict(row),
        "pieces": _mark_answer(row),
        "written": query.get("text") == "written",
        "rewarded": _split_steps(row),
        "colours": COLOURS,
        "strip": strip,
        "notice": notice,
    }


def list_problems(at: OpenRun, query: Mapping[str, str]) -> Page:
    changes = compare_ends(stored_evaluations(at.read()))
    return "problems.html", {**at.context("problems"), "changes": changes, "asked": read_questions(at.path)}


def show_problem(at: OpenRun, place: str, query: Mapping[str, str]) -> Page:
    tree, what = Compare("problem", "=", place), f"responses to the problem {place!r}"
    rows, total, waiting = at.select(tree, limit=MAX_OF_PROBLEM, what=what, whole="file")
    stages = at.summary.run.stages if at.summary.run else ()
    order = {stage.name: number for number, stage in enumerate(stages)}
    rows.sort(key=lambda row: (order.get(row["stage"], -1), row["step"]))
    times: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        times.setdefault((row["stage"], row["step"], row["split"]), []).append(row)
    moments = [key for key, each in times.items() if f"/{EVALUATIONS}/" in each[0]["file"]]
    first, last = (_moment(query.get(key, ""), moments, at_end) for key, at_end in (("a", False), ("b", True)))
    pairs = _pair(times[first], times[last]) if first and last and first != last else []
    wanted = query.get("sample", "")
    flipped = [pair for pair in pairs if pair[0]["correct"] != pair[1]["correct"]]
    chosen = next((pair for pair in pairs if _sample(pair[0]) == wanted), (flipped or pairs or [None])[0])
    diff = word_diff(chosen[0]["text"], chosen[1]["text"]) if chosen else None
    names = [_sample(before) for before, _ in pairs]
    return "problem.html", {
        **at.context("problems"),
        "problem": place,
        "shown": len(rows),
        "total": total,
        "waiting": waiting,
        "asked": at.find_question(rows[0]),
        "times": times,
        "moments": moments,
        "first": first,
        "last": last,
        "pairs": pairs,
        "chosen": chosen,
        "diff": diff,
        "names": names,
        "sample": _sample,
        "tally": lambda rows: Counter(row["extracted"] for row in rows).most_common(),
        "group_place": group_place,
    }


RESPONSE_PAGES: Mapping[str, Callable[..., Page | Response]] = {
    "/run/{run}/rollouts": list_rollouts,
    "/run/{run}/rollouts.{kind}": export_rollouts,
    "/run/{run}/group/{place:path}": show_group,
    "/run/{run}/rollout/{place:path}": show_rollout,
    "/run/{run}/problem/{place:path}": show_problem,
    "/run/{run}/problems": list_problems,
}
"""The functions that make these pages, by address. at: the run. query: the parameters of the address."""


def _read_query(index: RolloutIndex, query: Mapping[str, str], labels: Mapping[str, Sequence[str]]) -> Query:
    parts = None if index.waiting else index.find_parts
    wanted = parse_filter(query.get("q", ""), KINDS, graders=tuple(GRADERS), parts=parts)
    wanted = wanted._replace(tree=resolve_labels(wanted.tree, labels))
    sort = [name for name in query.get("sort", "").split(",") if name]
    return wanted._replace(sort=check_sort(sort, KINDS, parts=parts)) if sort else wanted


def group_place(row: Mapping[str, Any]) -> str:
    return row["id"].rpartition("/")[0]


def _group_tree(place: str) -> Tree:
    """Return the filter of a group, such as rl/12/7 or rl/50/heldout/7; 0/NAME/7 in a folder of `ansatz eval`."""
    parts = place.split("/")
    parts = ["", *parts] if parts[0].isdecimal() else parts  # the responses of such a folder have no stage
    stage, step, *split, number = (*parts, "", "", "")[: max(3, len(parts))]
    at, index = read_number(step), read_number(number)
    if at is None or index is None or len(split) > 1:
        raise NotFound(f"{place!r} is not the place of a group, such as rl/12/7 or rl/50/heldout/7.")
    named = Compare("split", "=", split[0] if split else TRAIN)
    return All((Compare("stage", "=", stage), Compare("step", "=", at), named, Compare("group", "=", index)))


def _sampled_tree(place: str) -> Tree:
    """Return the filter of a group without its greedy response."""
    return All((_group_tree(place), Not(Flag("greedy"))))


def read_number(text: str) -> int | None:
    """Read a number of an address, of at most nine digits; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _sample(row: Mapping[str, Any]) -> str:
    return row["id"].rpartition("/")[2]


def _pair(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    later = {_sample(row): row for row in after}
    return [(row, later[_sample(row)]) for row in before if _sample(row) in later]


def _moment(text: str, moments: list[tuple[str, int, str]], at_end: bool) -> tuple[str, int, str] | None:
    named = {f"{stage}-{step}": (stage, step, split) for stage, step, split in moments}
    return named.get(text) or (moments[-1 if at_end else 0] if moments else None)


def _mark_answer(row: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the response in pieces, with the last occurrence of the extracted answer marked."""
    text, answer = row["text"], row["extracted"]
    before, marked, after = text.rpartition(answer) if answer else (text, "", "")
    return [(before, False), (marked, True), (after, False)] if marked else [(text, False)]


def _split_steps(row: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """Return the reasoning steps of a response with their rewards, if it has some. The text after the last step gets
    None."""
    starts = [0, *(int(end) for end, _ in row["steps"])]
    pieces = [(row["text"][start:end], value) for start, (end, value) in zip(starts, row["steps"], strict=False)]
    rest = row["text"][starts[-1] :]
    return [*pieces, *([(rest, None)] if pieces and rest.strip() else [])]


def _narrow(text: str, field: str, value: Any) -> str:
    """Return the filter, narrowed to one value of a field."""
    if isinstance(value, bool):
        test = field if value else f"not {field}"
    else:
        test = f"{field} = {json.dumps(str(value), ensure_ascii=False) if KINDS[field] == 'text' else f'{value:g}'}"
    sorts, rest = re.findall(r"(?<!\S)sort:\S+", text), re.sub(r"(?<!\S)sort:\S+", "", text).strip()
    return " ".join([f"({rest}) and {test}" if rest else test, *sorts])


def _facet(values: list[tuple[Any, int]], text: str, field: str) -> list[tuple[str, int, float, str]]:
    most = max((count for _, count in values), default=1)
    known = [(value, count) for value, count in values if value not in (None, "")]
    return [(str(value), count, 100 * count / most, _narrow(text, field, value)) for value, count in known]


def draw_bins(bins: list[tuple[float, float, int]]) -> Markup:
    """Return a histogram without axes, one bar for each part of the range."""
    most = max((count for *_, count in bins), default=0) or 1
    bars = [
        f'<rect x="{10 * k}" y="{60 - 60 * count / most:.1f}" width="9" height="{60 * count / most:.1f}">'
        f"<title>{low:.4g} to {high:.4g}: {count}</title></rect>"
        for k, (low, high, count) in enumerate(bins)
    ]
    frame = f'class="bins" viewBox="0 0 {10 * len(bins)} 60" preserveAspectRatio="none" role="img"'
    return Markup(f'<svg {frame} aria-label="histogram">{"".join(bars)}</svg>')

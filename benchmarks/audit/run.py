"""Which of the planted bugs does the audit name, and does it accuse runs without one? Against the real TRL.

    .venv-trl/bin/python benchmarks/audit/run.py --out docs/audit.json [--only NAME,...]

Each bug and each clean run is a short run of GRPOTrainer on a CPU (`trl_runs.py`), whose last step is recorded and then
audited. A bug is named if its claim is contradicted and the cause has the words of `planted.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from bundle_plants import BUNDLE_PLANTS
from planted import BUGS, BUNDLE, CLEAN, LATER_BUGS, LATER_CLEAN, Bug
from transformers import logging
from trl_plants import PLANTS
from trl_runs import SMOLLM2, record

from ansatz.audit.bundle import Bundle, read_bundle
from ansatz.audit.claims import audit

BEGIN, END = "<!-- written by benchmarks/audit/run.py -->", "<!-- end -->"


def bundle_of(bug: Any, folder: Path) -> Bundle:
    plant = PLANTS.get(bug.name) if getattr(bug, "where", "") == "trl" else None
    bundle = read_bundle(record(bug.options, bug.run, folder / bug.name, plant))
    return BUNDLE_PLANTS[bug.name](bundle) if getattr(bug, "where", "") == BUNDLE else bundle


def judge(case: Any, folder: Path) -> dict[str, Any]:
    """Run one case. named: the promised claim is contradicted for the right reason. accused: contradicted claims."""
    start = time.perf_counter()
    claims = audit(bundle_of(case, folder))
    lines = {claim.name: claim.line for claim in claims if claim.status == "contradicts"}
    row: dict[str, Any] = {"name": case.name, "contradicts": lines, "seconds": round(time.perf_counter() - start, 1)}
    row["claims"] = {claim.name: claim.status for claim in claims}
    if isinstance(case, Bug):
        row |= {"what": case.what, "where": case.where, "source": case.source, "claim": case.claim}
        row["found"] = case.claim in lines
        told = {claim.name: claim.line for claim in claims if claim.name == "sampler gap"} | lines
        row["named"] = bool(re.search(case.words, told.get(case.claim, "")))  # a gap of dtype alone is no contradiction
    return row


def judged(case: Any, folder: Path) -> dict[str, Any]:
    """Run one case; one that fails is not named, and counts as an accusation of a clean run."""
    try:
        return judge(case, folder)
    except Exception as error:  # of TRL or of the audit: the table says which case it was
        traceback.print_exc()
        about = {name: getattr(case, name, "") for name in ("name", "what", "where", "source", "claim")}
        return {**about, "named": False, "contradicts": {"failed": f"{type(error).__name__}: {error}"}}


def counts(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return a sentence for each of the two lists."""
    sentences = list[str]()
    for start, bugs, clean in (("With the rules' own list", "bugs", "clean"), ("Later", "later bugs", "later clean")):
        named, accused = sum(row["named"] for row in rows[bugs]), sum(bool(row["contradicts"]) for row in rows[clean])
        says = (
            f"{named} of {len(rows[bugs])} planted bugs are named, and {accused} of {len(rows[clean])} clean runs are"
        )
        sentences.append(f"{start}: {says} accused.")
    return sentences


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return the results as a table in Markdown."""
    head = "\n".join(counts(rows)) + "\n\n"
    lines = ["| bug | planted in | fixed or reported in | claim | named |", "|---|---|---|---|---|"]
    for row in rows["bugs"] + rows["later bugs"]:
        project, _, kind_number = row.get("source", "").removeprefix("https://github.com/").partition("/")
        thread = f"{kind_number.partition('/')[0]}#{row['source'].rpartition('/')[2]}" if project else ""
        named_by = "yes" if row["named"] else "no"
        lines.append(f"| {row['name']} | {row['where']} | {thread} | {row['claim']} | {named_by} |")
    return head + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="A page whose table is between the marks BEGIN and END.")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    only = asked.only.split(",") if asked.only else []
    groups = {"bugs": BUGS, "clean": CLEAN, "later bugs": LATER_BUGS, "later clean": LATER_CLEAN}
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in groups}
    with tempfile.TemporaryDirectory() as folder:
        for kind, cases in groups.items():
            for case in cases:
                if (only and case.name not in only) or (case.run.get("model") == "smollm2" and not SMOLLM2.is_dir()):
                    continue
                row = judged(case, Path(folder) / kind)
                rows[kind].append(row)
                word = ("named" if row["named"] else "NOT named") if isinstance(case, Bug) else "clean"
                print(f"## {case.name}: {word}; {' | '.join(row['contradicts'].values()) or 'nothing'}", flush=True)
    parts = [f'"{kind}": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]" for kind, cases in rows.items()]
    asked.out.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    if asked.page is not None:
        before, _, rest = asked.page.read_text(encoding="utf-8").partition(BEGIN)
        asked.page.write_text(f"{before}{BEGIN}\n{table(rows)}{END}{rest.partition(END)[2]}", encoding="utf-8")
    numbers = {kind: len(cases) for kind, cases in rows.items()}
    numbers["named"] = sum(row["named"] for row in rows["bugs"] + rows["later bugs"])
    numbers["accused"] = sum(bool(row["contradicts"]) for row in rows["clean"] + rows["later clean"])
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()

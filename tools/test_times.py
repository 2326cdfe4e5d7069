"""CPU seconds of the tests by file, recorded in tests/seconds.json: a folder that becomes expensive is seen at once.

python -m tools.test_times record|compare REPORT

REPORT is what pytest writes with --junitxml; tests/conftest.py adds the processor time of each test to it. `compare`
compares shares of the whole, and says which folder's share has grown by half; nothing fails, because a new folder of
tests is not a mistake. Shares do not depend much on the machine, nor on its load, which would change shares of wall
time: tests that wait take longer next to other processes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

RECORD = Path(__file__).parents[1] / "tests" / "seconds.json"
GROWTH, LEAST_SHARE, SKIPPED = 1.5, 0.03, 0.02
"""A folder may have GROWTH times its share. Those below LEAST_SHARE are not looked at, because chance moves them. A
file that takes at most SKIPPED of its recorded seconds is one whose tests are skipped on this machine."""


def seconds_by_file(report: Path) -> dict[str, float]:
    """Return the CPU seconds of each file of tests in a report, the slowest first."""
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        end = next((index for index, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
        name = "/".join(parts[: end + 1]) + ".py"
        cpu = case.find("properties/property[@name='cpu_seconds']")
        seconds[name] = seconds.get(name, 0.0) + float(cpu.get("value", 0.0) if cpu is not None else 0.0)
    return {name: round(seconds[name], 1) for name in sorted(seconds, key=lambda name: -seconds[name])}


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return each folder's share of all seconds. Files that lie in tests itself are a folder of their own."""
    folders: dict[str, float] = {}
    for name, value in seconds.items():
        folder = "/".join(name.split("/")[:2]) if name.count("/") > 1 else "tests"
        folders[folder] = folders.get(folder, 0.0) + value
    return {folder: value / sum(folders.values()) for folder, value in folders.items()}


def find_growth(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Return a sentence for each folder whose share has grown too much. before, now: seconds by file. A file that takes
    next to no time now, as its tests are skipped without a browser, does not count, or all other shares would grow."""
    old = shares({name: seconds for name, seconds in before.items() if now.get(name, 0.0) > SKIPPED * seconds})
    return [
        f"{folder} takes {share:.1%} of the CPU time of all tests, {old.get(folder, 0.0):.1%} were recorded. Make its "
        "slowest tests faster or mark them slow, or record the new seconds: python -m tools.test_times record REPORT"
        for folder, share in shares(now).items()
        if share >= LEAST_SHARE and share > GROWTH * old.get(folder, 0.0)
    ]


def main(verb: str, report: str) -> None:
    found = seconds_by_file(Path(report))
    if verb == "record":
        RECORD.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
        return
    for sentence in find_growth(json.loads(RECORD.read_text(encoding="utf-8")), found):
        print(sentence)


if __name__ == "__main__":
    main(*sys.argv[1:])

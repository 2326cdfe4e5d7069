"""The cases of a certificate file, run and compared, by project and family."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from ansatz.certify.parity.cases import Case, error
from ansatz.certify.parity.families import find
from ansatz.errors import ConfigError, DataError
from ansatz.files import check_not_special, read_yaml
from ansatz.json_text import parse_json

GOLDEN = Path(__file__).parent / "golden.json.gz"
"""The cases that are installed with Ansatz; docs/parity.md says where their numbers come from."""

TOLERANCE = 1e-9
ADVANTAGE_TOLERANCE = 1e-8  # peers that add 1e-8 to a mean's denominator, which we do not
NOT_COMPARED = ("metrics", "normalized_rewards")
WHERE_MADE = ("returns", "scaled_advantages", "importance_sampling_ratio", "rollout_is_weights")
"""Intermediate results, compared where our run has them (returns: only with a critic)."""

LEFT_OUT: dict[str, str] = read_yaml(Path(__file__).with_name("left_out.yaml"))
"""Families that are not reproduced, each with the reason; docs/parity.md has the same list."""


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """worst: the largest error over cases and outputs, relative to the scale of the output; where: that output."""

    project: str
    family: str
    cases: int
    agreeing: int
    worst: float
    where: str

    @property
    def left_out(self) -> str | None:
        return LEFT_OUT.get(self.family)

    @property
    def agrees(self) -> bool:
        return self.agreeing == self.cases and self.left_out is None


def certify(path: Path) -> list[FamilyResult]:
    """Certify every family of the file, in its order. Raise DataError if the file is not a certificate file."""
    families: dict[str, list[Case]] = {}
    for case in read_cases(path):
        families.setdefault(case.family, []).append(case)
    return [_family(name, cases) for name, cases in families.items()]


def render(results: list[FamilyResult]) -> Iterator[str]:
    """Return the report, line by line; the last line says how many families agree."""
    project = ""
    for result in sorted(results, key=lambda family: family.project):
        if result.project != project:
            project = result.project
            families = [family for family in results if family.project == project]
            yield f"{project}: {sum(family.agrees for family in families)} of {len(families)} families agree"
        if result.left_out is not None:
            yield f"  {result.family:44} {result.cases:2} cases  left out: {result.left_out}"
            continue
        state = "ok" if result.agrees else f"DIFFERS in {result.where}"
        yield f"  {result.family:44} {result.agreeing:2} of {result.cases:2} agree  worst {result.worst:.1e}  {state}"
    yield f"{sum(result.agrees for result in results)} of {len(results)} families agree"


def read_cases(path: Path) -> Iterator[Case]:
    """Return the cases of a certificate file, plain or compressed (.gz). Raise DataError if it is not one."""
    try:
        check_not_special(path)
        content = path.read_bytes()
        data: Any = parse_json(gzip.decompress(content) if path.suffix == ".gz" else content)
        if not isinstance(data, list):
            raise ValueError(f"got a {type(data).__name__}")
        for entry in cast(list[dict[str, Any]], data):
            case = Case.from_json(entry)
            if not all(isinstance(entry[key], str) for key in ("id", "family", "peer")):
                raise ValueError("id, family and peer are texts")
            yield case
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataError(f"{path}: expected a JSON list of parity cases ({problem!r}).") from problem


def _family(name: str, cases: list[Case]) -> FamilyResult:
    project = cases[0].project
    run = find(name)
    if name in LEFT_OUT or run is None:
        return FamilyResult(project, name, len(cases), 0, math.inf, "" if name in LEFT_OUT else "nothing: no run")
    agreeing, worst, where = 0, 0.0, ""
    for case in cases:
        try:
            gap, output, fits = _compare(case, run(case))
            if unused := case.options.unused(case.defaults):
                gap, output, fits = math.inf, f"options that were not used ({', '.join(unused)})", False
        except (ConfigError, KeyError, ValueError) as problem:  # refused or unknown options
            gap, output, fits = math.inf, f"options ({problem})", False
        except (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError) as problem:
            gap, output, fits = math.inf, f"values ({problem!r:.100})", False  # options or arrays of a wrong kind
        agreeing += fits
        if gap >= worst:
            worst, where = gap, f"{output} of {case.id}"
    return FamilyResult(project, name, len(cases), agreeing, worst, where)


def _compare(case: Case, ours: dict[str, Any]) -> tuple[float, str, bool]:
    """Return the worst error, the output it is in, and whether every output is within its tolerance."""
    mask = case.array("mask").bool() if "mask" in case.inputs else None
    worst, where, fits = 0.0, "", True
    for name, expected in case.outputs.items():
        if name in NOT_COMPARED or (name in WHERE_MADE and name not in ours):
            continue
        per_rollout = name == "advantages" and torch.as_tensor(expected).dim() == 1 and "advantage_N" in ours
        got = ours["advantage_N"] if per_rollout else ours.get(name)
        gap = error(got, expected, None if name.startswith("grad") else mask)
        fits = fits and gap <= (ADVANTAGE_TOLERANCE if "advantages" in name or name == "returns" else TOLERANCE)
        if gap >= worst:
            worst, where = gap, name
    return worst, where, fits

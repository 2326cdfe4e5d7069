"""Rollouts as flat rows, one JSON object per line, as the steps of RL and the evaluations of a run store them.

    {"id": "rl/50/heldout/7/3", "problem": "arithmetic-7", "sample": 3, "seed": 0, "noise_step": 0, "temperature": 1.0,
     "reward": 1.0, "parts": {"accuracy": 1.0}, "correct": true, "reason": "equal", "extracted": "12",
     "grader_stage": "number", "tokens": 31, "finish": "stop", "version_min": 50, "version_max": 50,
     "mean_logp": -0.0713, "repetition": 0.0, "text": "..."}

id: stage/step/split/place of the problem/sample; the last part is `greedy` for the response at temperature 0. The noise
of a response depends only on (seed, noise_step, problem, sample), so equal ones in two evaluations have the same noise.
Times are left out: equal evaluations give equal files.

The row of the response at temperature 0 of a problem with a worked solution also has

    "solution_logps": {"0.7": -0.0412, "1": -0.287}

the log-prob of that whole solution at each temperature, in nats. `findings.outcomes` reads them.

A rollout of training has the id stage/step/group/sample. Instead of the noise of an evaluation it has `group`,
`used`, and `tokens_at`, its range in the file of tokens or null. If the update has used it, it also has `advantage`,
`mismatch_mean`, `mismatch_max`, `mean_entropy` and `clip_share` (`train.step`). Its prompt is in the row of its
group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import pstdev
from typing import Annotated

from pydantic import Strict, StrictBool, StrictFloat, StrictInt, StrictStr

from ansatz.errors import DataError
from ansatz.ngrams import repeated_frac
from ansatz.track.checked_rows import check_row, rows_with
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.rollouts import without_folders
from ansatz.track.token_file import TokenFacts
from ansatz.types import Finish, Group, Reason, ScoredRollout, Verdict

GREEDY, SOLUTION_LOGPS = "greedy", "solution_logps"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response, as a row stores it. tokens: its length. greedy: whether it was sampled at temperature 0."""

    problem: str
    sample: int
    seed: int
    noise_step: int
    greedy: bool
    verdict: Verdict
    tokens: int
    finish: Finish
    text: str

    @property
    def noise(self) -> tuple[int, int, str, int]:
        """Return the key of the response: two responses with the same key were sampled with the same noise."""
        return (self.seed, self.noise_step, self.problem, self.sample)


def rollout_row(
    scored: ScoredRollout,
    *,
    group: str,
    noise_step: int,
    temperature: float,
    solution_logps: Mapping[float, float] | None = None,
) -> Row:
    """Return the row of a rollout. group: the id of its group, such as rl/50/heldout/7. solution_logps: the exact part
    of an evaluation, by temperature."""
    sample = scored.rollout.sample if temperature else GREEDY
    exact = {f"{each:g}": round_number(logp) for each, logp in (solution_logps or {}).items()}
    row = _row(scored, f"{group}/{sample}", {"noise_step": noise_step, "temperature": temperature})
    return {**row, SOLUTION_LOGPS: exact} if exact else row


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group of a step of training, as it is stored. seen: the numbers of each member in the update, such as its
    advantage; empty where it has used none. tokens: of each member; empty if they are not stored."""

    group: Group
    seen: Sequence[Mapping[str, float]] = ()
    tokens: Sequence[TokenFacts] = ()

    def rows(self, place: str, number: int, *, tokens_from: int = 0) -> list[Row]:
        """Return the rows of the members. place: stage/step. number: of the group in the step. tokens_from: how many
        tokens of other groups come before the group in the file of tokens."""
        out: list[Row] = []
        ends = list(accumulate((len(each.ids) for each in self.tokens), initial=tokens_from))
        for index, member in enumerate(self.group.members):
            seen = self.seen[index] if self.seen else {}
            learned = {
                "group": number,
                "used": bool(seen),
                **{name: round_number(value) for name, value in seen.items()},
                "tokens_at": ends[index : index + 2] if self.tokens else None,
            }
            row = _row(member, f"{place}/{number}/{member.rollout.sample}", learned)
            if member.rollout.observations:
                row["observations"] = [list(span) for span in member.rollout.observations]
            if member.score.steps:
                row["steps"] = [[end, round_number(reward)] for end, reward in member.score.steps]
            out.append(row)
        return out

    def row(self, number: int) -> Row:
        """Return the row of the group itself, with the facts that its members share."""
        prompt, rewards = self.group.prompt, self.group.rewards
        return {
            "group": number,
            "problem": prompt.problem.id,
            "level": prompt.problem.level,
            "subject": str(prompt.problem.meta.get("subject", "")),
            "question": prompt.problem.dialogue,
            "answer": prompt.problem.answer,
            "prompt": prompt.text,
            "mean": round_number(math.fsum(rewards) / len(rewards)),
            "std": round_number(pstdev(rewards)),
            "used": any(self.seen),
        }


def _row(scored: ScoredRollout, name: str, more: Row) -> Row:
    rollout, score = scored.rollout, scored.score
    sampled = [logp for logp, kept in zip(rollout.behavior_logps, rollout.token_mask, strict=True) if kept]
    return {
        "id": name,
        "problem": rollout.prompt.problem.id,
        "sample": rollout.sample,
        "seed": rollout.seed,
        **more,
        "reward": round_number(score.value),
        "parts": {shown: round_number(score.parts[name]) for name, shown in without_folders(score.parts).items()},
        "correct": score.verdict.correct,
        "reason": score.verdict.reason.value,
        "extracted": score.verdict.extracted,
        "grader_stage": score.verdict.stage,
        "tokens": rollout.num_tokens,
        "finish": rollout.finish.value,
        "version_min": rollout.version_min,
        "version_max": rollout.version_max,
        "mean_logp": round_number(math.fsum(sampled) / len(sampled)) if sampled else None,
        "repetition": round_number(repeated_frac(rollout.token_ids)),
        "text": rollout.text,
    }


def round_number(value: float | None) -> float | None:
    """Round to six significant digits; None for None, nan and infinities, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def read_responses(path: Path) -> list[StoredResponse]:
    """Return the responses of a file. Raise DataError for a row that no run writes."""
    return [_response(row, f"{path}, line {number}") for number, row in enumerate(read_jsonl(path), start=1)]


_RESPONSE_ROW = rows_with(
    **dict.fromkeys(("problem", "reason", "finish", "text"), (StrictStr, ...)),
    **dict.fromkeys(("sample", "seed", "noise_step", "tokens"), (StrictInt, ...)),
    temperature=(StrictFloat, ...),
    correct=(StrictBool, ...),
    extracted=(Annotated[str | None, Strict()], ...),
)


def _response(row: Row, place: str) -> StoredResponse:
    check_row(_RESPONSE_ROW, row, place)
    try:
        stage = str(row.get("grader_stage") or "")
        verdict = Verdict(correct=row["correct"], reason=Reason(row["reason"]), extracted=row["extracted"], stage=stage)
        finish = Finish(row["finish"])
    except ValueError as error:
        raise DataError(f"{place}: {error}, which no run writes. Restore the file, or remove it.") from error
    return StoredResponse(
        problem=row["problem"],
        sample=row["sample"],
        seed=row["seed"],
        noise_step=row["noise_step"],
        greedy=row["temperature"] == 0,
        verdict=verdict,
        tokens=row["tokens"],
        finish=finish,
        text=row["text"],
    )

"""The numbers of an evaluation. They depend only on its graded responses: no sampling, no files, no clock.

Axes: P problems, S samples of a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import exp
from statistics import fmean
from typing import Any, get_args

from ansatz_verify.parse import parse_gold
from ansatz_verify.values import Text

from ansatz.evaluate.estimators import accuracy_interval, maj_at_k, pass_at_1, pass_at_k, split_by
from ansatz.evaluate.responses import MODES, Response
from ansatz.evaluate.reward_measures import best_of_n, weighted_vote
from ansatz.rewards.format import Shape, well_formed
from ansatz.types import Finish, Reason, golds_of

Answers = Sequence[Sequence[Response]]  # [P][S]
SHAPES: tuple[Shape, ...] = get_args(Shape)
Shaped = tuple[bool, ...]  # whether a response has each of SHAPES, in their order
Problems = Sequence[tuple[Sequence[Response], Sequence[Shaped]]]  # [P]
CONSENSUS = 64
"""Number of votes in cons@64, DeepSeek-R1's name for maj@64 (arXiv:2501.12948)."""


def suite_scores(responses_PS: Answers, *, opening: str = "") -> dict[str, Any]:
    """Return all numbers, over all problems and, under by_level and by_subject, for each level and subject.

    Keys: num_problems, samples_per_prompt, mean_length (tokens), truncated_frac, finishes (fraction of responses by how
    they ended), format_frac (fraction that is well formed, by shape; see `rewards.format`), and for each mode of the
    verdicts (MODES, or "reward") pass@1 with its 95 % interval [low, high] (`accuracy_interval`), pass@k and maj@k
    for k = 1, 2, 4, ... and S, with scores of a reward model also best@k and weighted@k (`reward_measures`), cons@64
    with its interval (None with fewer than 64 samples), and verdicts (fraction of responses by reason). Over all
    problems also the numbers of gold answers that the verifier cannot read as mathematics: golds_as_text (words, which
    are compared as text) and golds_unreadable (no response is correct); absent if other rewards graded.
    opening: the end of every prompt, such as <think>, if it belongs to the form of a response.
    Raise ValueError for no problems, or problems with unequal S.
    """
    shaped_PSF = [[_shapes(opening + response.response) for response in samples] for samples in responses_PS]
    problems = list(zip(responses_PS, shaped_PSF, strict=True))
    return {
        **_numbers(problems),
        **_golds(responses_PS),
        "by_level": _parts(problems, lambda response: response.level),
        "by_subject": _parts(problems, lambda response: response.subject),
    }


def modes_of(responses_PS: Answers) -> list[str]:
    """Return the modes of the verdicts, in their order."""
    return list(responses_PS[0][0].verdicts)


def scored_modes(scores: Mapping[str, Any]) -> list[str]:
    """Return the modes that the scores of an evaluation have, in their order."""
    return [name for name, numbers in scores.items() if isinstance(numbers, dict) and "pass@1" in numbers]


def _golds(responses_PS: Answers) -> dict[str, int]:
    if not set(modes_of(responses_PS)) & set(MODES):
        return {}
    golds = [parse_gold(golds_of(samples[0].answer)[0]).value for samples in responses_PS]
    return {
        "golds_as_text": sum(isinstance(gold, Text) for gold in golds),
        "golds_unreadable": sum(gold is None for gold in golds),
    }


def _shapes(text: str) -> Shaped:
    return tuple(well_formed(text, shape=shape) for shape in SHAPES)


def powers(count: int) -> list[int]:
    """Return 1, 2, 4, ... up to count, and count itself."""
    return sorted({2**i for i in range(count.bit_length())} | {count})


def _parts(problems: Problems, label: Callable[[Response], str]) -> dict[str, Any]:
    return {name: _numbers(part) for name, part in split_by(problems, lambda problem: label(problem[0][0])).items()}


def _numbers(problems: Problems) -> dict[str, Any]:
    if not problems:
        raise ValueError("an evaluation of 0 problems has no numbers; expected at least 1")
    responses_PS = [samples for samples, _ in problems]
    flat = [response for samples in responses_PS for response in samples]
    finishes = Counter(response.finish for response in flat)
    shaped = [shapes for _, shaped_S in problems for shapes in shaped_S]
    return {
        "num_problems": len(responses_PS),
        "samples_per_prompt": len(responses_PS[0]),
        "mean_length": fmean(response.tokens for response in flat),
        "truncated_frac": fmean(response.truncated for response in flat),
        "finishes": {finish.value: finishes[finish] / len(flat) for finish in Finish if finishes[finish]},
        "format_frac": {shape: fmean(shapes[index] for shapes in shaped) for index, shape in enumerate(SHAPES)},
        **{mode: _mode_numbers(responses_PS, mode) for mode in modes_of(responses_PS)},
    }


def _mode_numbers(responses_PS: Answers, mode: str) -> dict[str, Any]:
    correct_PS = [[response.verdicts[mode].correct for response in samples] for samples in responses_PS]
    votes_PS = [[response.vote(mode) for response in samples] for samples in responses_PS]
    mean_P = pass_at_1(correct_PS)
    reasons = Counter(response.verdicts[mode].reason for samples in responses_PS for response in samples)
    ks = powers(len(correct_PS[0]))

    def votes_at(k: int) -> list[float]:
        return [maj_at_k(votes, correct, k=k) for votes, correct in zip(votes_PS, correct_PS, strict=True)]

    return {
        "pass@1": float(mean_P.mean()),
        "pass@1_interval": list(accuracy_interval(mean_P, num_samples=len(correct_PS[0]))),
        "pass@k": {str(k): float(pass_at_k(correct_PS, k=k).mean()) for k in ks},
        "maj@k": {str(k): fmean(votes_at(k)) for k in ks},
        **_chosen(responses_PS, votes_PS, correct_PS, ks),
        **_consensus(votes_at(CONSENSUS) if CONSENSUS in ks else None),
        "verdicts": {reason.value: reasons[reason] / reasons.total() for reason in Reason if reasons[reason]},
    }


def _chosen(
    responses_PS: Answers, votes_PS: list[list[str | None]], correct_PS: list[list[bool]], ks: list[int]
) -> dict[str, Any]:
    """Return the numbers of choosing by a reward model's scores; none if a response has no score."""
    scores_PS = [[each.score for each in samples if each.score is not None] for samples in responses_PS]
    if [len(scores) for scores in scores_PS] != [len(samples) for samples in responses_PS]:
        return {}
    weights_PS = [[exp(score - max(scores)) for score in scores] for scores in scores_PS]
    best = {str(k): fmean(best_of_n(*row, n=k) for row in zip(scores_PS, correct_PS, strict=True)) for k in ks}
    rows = list(zip(votes_PS, correct_PS, weights_PS, strict=True))
    return {"best@k": best, "weighted@k": {str(k): fmean(weighted_vote(*row, n=k) for row in rows) for k in ks}}


def _consensus(consensus_P: Sequence[float] | None) -> dict[str, Any]:
    if consensus_P is None:
        return {f"cons@{CONSENSUS}": None, f"cons@{CONSENSUS}_interval": None}
    interval = list(accuracy_interval(consensus_P, num_samples=1))
    return {f"cons@{CONSENSUS}": fmean(consensus_P), f"cons@{CONSENSUS}_interval": interval}

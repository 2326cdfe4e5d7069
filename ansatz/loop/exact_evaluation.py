"""The exact part of an evaluation: how likely the policy is to write the worked solution of each held-out problem.

A plain word problem has exactly one chain of right steps. The probability of that text, and so the pass@k of right
reasoning for any k, needs one forward pass and no sampling. For other problems it is a lower bound of pass@k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ansatz.config.schema import Config
from ansatz.errors import DataError, ModelError
from ansatz.evaluate.evaluate import SolutionLogps
from ansatz.loop.rendering import PromptRenderer
from ansatz.models.load import Policy
from ansatz.train.logps import response_logps
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from ansatz.train.trainer import Trainer
from ansatz.types import Problem

TEMPERATURES = (0.7, 1.0)
"""Temperatures for measuring worked solutions, besides the temperature of the evaluation."""

Predicts = Policy | Trainer
"""Objects with a tokenizer that compute log-probs."""


def solution_logps(
    source: Predicts, problems: Sequence[Problem], renderer: PromptRenderer, config: Config
) -> SolutionLogps:
    """Compute the log-prob of each problem's worked solution, if there is one, under the current weights of `source`.

    Without gradient and without noise, so training is not changed by a bit. A solution that is too long to be a
    response of the evaluation is left out. Empty with an environment: the policy does not choose the environment's part
    of a response.
    """
    longest = 0 if config.environment else config.evaluate.max_response_tokens
    solved = list(_solutions(problems, renderer, longest))
    if not solved:
        return {}
    samples = [sample for _, sample in solved]
    temperatures = sorted({*TEMPERATURES, config.evaluate.temperature})
    if isinstance(source, Policy):
        limit = config.train.tokens_per_microbatch
        packed = pack_rollouts(samples, device=source.device)
        logps = response_logps(source, packed, temperatures=temperatures, tokens_per_microbatch=limit)
    else:
        logps = source.response_logps(samples, temperatures)
    pairs = zip(solved, logps, strict=True)
    return {problem.id: dict(zip(temperatures, each, strict=True)) for (problem, _), each in pairs}


def _solutions(
    problems: Sequence[Problem], renderer: PromptRenderer, longest: int
) -> Iterator[tuple[Problem, TrainSample]]:
    """Yield the problems whose solution is at most `longest` tokens long, each with the solution as a response."""
    for problem in problems if longest else ():
        if problem.solution is None:
            continue
        try:
            demonstration = renderer.demonstration(problem)
        except (DataError, ModelError):
            continue
        if len(demonstration.response_ids) <= longest:
            yield problem, TrainSample.from_demonstration(demonstration, group=0)

"""How a finished reward model of a run is evaluated: on responses to held-out problems, and on planted slips."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ansatz.evaluate.responses import Response
from ansatz.evaluate.reward_models import (
    ScoredProblem,
    calibration_error,
    first_error_f1,
    pair_accuracy,
    pair_predictions,
    selection_curves,
)
from ansatz.loop.labelled_responses import LabelledGroup, samples_of
from ansatz.rewards.learned import sigmoid
from ansatz.rewards.reasoning_steps import exact_labels, first_error, step_ends
from ansatz.train.reward_trainer import RewardTrainer
from ansatz.train.sample import TrainSample
from ansatz.types import Problem, Prompt

NOTHING_TO_READ = -30.0
"""The score of a response without a step: less likely to be correct than any that a model has read."""


def score_texts(
    trainer: RewardTrainer, prompts: Sequence[str], texts: Sequence[Sequence[str]]
) -> list[list[list[float]]]:
    """[P][S][steps]: the scores of the responses to each prompt; one per response unless the model reads steps."""
    by_step = trainer.kind == "process"
    samples, place = list[TrainSample](), list[tuple[int, int]]()
    for index, (prompt, responses) in enumerate(zip(prompts, texts, strict=True)):
        for number, text in enumerate(responses):
            labels = [0.0] * (len(step_ends(text)) if by_step else 1)
            group = LabelledGroup(id="", prompt=prompt, responses=[text], labels=[labels])
            for sample in samples_of(group, trainer.model.tokenizer, number=index, by_step=by_step):
                samples.append(sample)
                place.append((index, number))
    scores: list[list[list[float]]] = [[[] for _ in responses] for responses in texts]
    for (index, number), values in zip(place, trainer.score_samples(samples), strict=True):
        scores[index][number] = values
    return scores


def evaluate_reward_model(
    trainer: RewardTrainer, prompts: Sequence[Prompt], responses: Sequence[Sequence[Response]]
) -> dict[str, float]:
    """The reward_model/ metrics of held-out responses. [P] prompts and [P][S] responses."""
    texts = [[response.response for response in members] for members in responses]
    scores = score_texts(trainer, [prompt.text for prompt in prompts], texts)
    problems = [
        ScoredProblem(
            votes=tuple(response.vote("reward") for response in members),
            correct=tuple(response.verdicts["reward"].correct for response in members),
            scores=tuple(min(values, default=NOTHING_TO_READ) for values in of_problem),
        )
        for members, of_problem in zip(responses, scores, strict=True)
    ]
    if trainer.kind == "bradley_terry":
        predictions = pair_predictions(problems)
        weights = [[math.exp(score - max(each.scores)) for score in each.scores] for each in problems]
    else:
        weights = [[sigmoid(score) for score in each.scores] for each in problems]
        flat = [weight for row in weights for weight in row]
        predictions = flat, [correct for each in problems for correct in each.correct]
    numbers = selection_curves(problems, weights=weights)
    if (accuracy := pair_accuracy(problems)) is not None:
        numbers["pair_accuracy"] = accuracy
    if predictions[0]:
        numbers["calibration_error"] = calibration_error(*predictions)
    return {f"reward_model/{name}": value for name, value in numbers.items()}


def evaluate_on_slips(trainer: RewardTrainer, prompts: Sequence[Prompt]) -> dict[str, float]:
    """reward_model/first_error_f1 on the worked solutions of problems with planted slips."""
    solutions = [_solution(prompt.problem) for prompt in prompts]
    scores = score_texts(trainer, [prompt.text for prompt in prompts], [[solution] for solution in solutions])
    predicted = [first_error([score > 0 for score in values]) for [values] in scores]
    true = [
        first_error(exact_labels(prompt.problem, solution)) for prompt, solution in zip(prompts, solutions, strict=True)
    ]
    return {"reward_model/first_error_f1": first_error_f1(predicted, true)}


def _solution(problem: Problem) -> str:
    assert problem.solution is not None, "reward_model.slips was checked before the run"
    return problem.solution

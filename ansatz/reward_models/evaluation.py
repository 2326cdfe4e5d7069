"""Evaluates a finished reward model of a run: on responses to held-out problems, on given rows, and on slips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ansatz.config.fields import StepEnd
from ansatz.evaluate.responses import Response
from ansatz.evaluate.reward_measures import (
    ScoredProblem,
    calibration_error,
    first_error_f1,
    pair_accuracy,
    pair_predictions,
    selection_curves,
)
from ansatz.reward_models.labelled_responses import LabelledGroup, samples_of
from ansatz.reward_models.trainer import Kind
from ansatz.rewards.learned import sigmoid
from ansatz.rewards.reasoning_steps import exact_labels, first_error, step_ends
from ansatz.train.sample import TrainSample
from ansatz.types import Prompt

NOTHING_TO_READ = -30.0
"""The score of a response without a step: less likely to be correct than any response that a model has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A reward model that scores texts. score_samples: its trainer's method. step_end: None unless it reads steps."""

    score_samples: Callable[[Sequence[TrainSample]], list[list[float]]]
    tokenizer: Any
    kind: Kind
    step_end: StepEnd | None

    def score_texts(self, prompts: Sequence[str], texts: Sequence[Sequence[str]]) -> list[list[list[float]]]:
        """Score the responses to each prompt: [P][S][steps], or one score per response unless the model reads steps."""
        samples, place = list[TrainSample](), list[tuple[int, int]]()
        for index, (prompt, responses) in enumerate(zip(prompts, texts, strict=True)):
            for number, text in enumerate(responses):
                labels = [0.0] * (1 if self.step_end is None else len(step_ends(text, self.step_end)))
                group = LabelledGroup(id="", prompt=prompt, responses=[text], labels=[labels])
                for sample in samples_of(group, self.tokenizer, number=index, step_end=self.step_end):
                    samples.append(sample)
                    place.append((index, number))
        scores: list[list[list[float]]] = [[[] for _ in responses] for responses in texts]
        for (index, number), values in zip(place, self.score_samples(samples), strict=True):
            scores[index][number] = values
        return scores


def evaluate_reward_model(
    scorer: Scorer, prompts: Sequence[Prompt], responses: Sequence[Sequence[Response]]
) -> dict[str, float]:
    """Compute the reward_model/ metrics of held-out responses. [P] prompts and [P][S] responses."""
    texts = [[response.response for response in members] for members in responses]
    scores = scorer.score_texts([prompt.text for prompt in prompts], texts)
    problems = [
        ScoredProblem(
            votes=tuple(response.vote("reward") for response in members),
            correct=tuple(response.verdicts["reward"].correct for response in members),
            scores=tuple(min(values, default=NOTHING_TO_READ) for values in of_problem),
        )
        for members, of_problem in zip(responses, scores, strict=True)
    ]
    if scorer.kind == "bradley_terry":
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


def evaluate_on_given(scorer: Scorer, groups: Sequence[LabelledGroup]) -> dict[str, float]:
    """Compute the reward_model/heldout_ metrics of pairs, or of responses or steps with labels."""
    scores = scorer.score_texts([group.prompt for group in groups], [group.responses for group in groups])
    if scorer.kind == "bradley_terry":  # the first response of each pair is the chosen one
        right = [chosen > rejected for [[chosen], [rejected]] in scores]
        return {"reward_model/heldout_accuracy": fmean(right)}
    said = [[score > 0 for score in values] for [values] in scores]
    true = [[label > 0.5 for label in group.labels[0]] for group in groups]
    pairs = [pair for rows in zip(said, true, strict=True) for pair in zip(*rows, strict=True)]
    numbers = {"reward_model/heldout_accuracy": fmean(each == label for each, label in pairs)}
    predicted, errors = [first_error(row) for row in said], [first_error(labels) for labels in true]
    if scorer.step_end is not None and len({error is None for error in errors}) == 2:
        numbers["reward_model/heldout_first_error_f1"] = first_error_f1(predicted, errors)
    return numbers


def evaluate_on_slips(scorer: Scorer, prompts: Sequence[Prompt]) -> dict[str, float]:
    """Compute reward_model/first_error_f1 on the worked solutions of problems with planted slips."""
    solutions = [prompt.problem.solution or "" for prompt in prompts]  # slips without one are refused
    scores = scorer.score_texts([prompt.text for prompt in prompts], [[solution] for solution in solutions])
    predicted = [first_error([score > 0 for score in values]) for [values] in scores]
    true = [
        first_error(exact_labels(prompt.problem, solution)) for prompt, solution in zip(prompts, solutions, strict=True)
    ]
    return {"reward_model/first_error_f1": first_error_f1(predicted, true)}

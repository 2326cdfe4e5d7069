"""The data of a reward model: responses with a label for each, or for each of their reasoning steps.

labelled.jsonl    one line per problem: its prompt, its responses, and their labels
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ansatz.config.fields import StepEnd
from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.label_files import LABELS
from ansatz.data.pairs import REJECTED, rejected_of
from ansatz.evaluate.responses import Response
from ansatz.files import write_text
from ansatz.rewards.reasoning_steps import EncodedSteps, encode_steps, step_ends
from ansatz.track.jsonl import read_jsonl
from ansatz.train.sample import TrainSample
from ansatz.types import Prompt

FILE = "labelled.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledGroup:
    """The responses to one problem. labels: for each response, one number in 0..1, or one for each reasoning step.

    wrong_from: for each response, its first wrong character, None if it is right; None: not known.
    """

    id: str
    prompt: str
    responses: Sequence[str]
    labels: Sequence[Sequence[float]]
    wrong_from: Sequence[int | None] | None = None

    @property
    def has_both(self) -> bool:
        """True if labels differ, so that a pair can be made."""
        return len({tuple(each) for each in self.labels}) > 1


def given_group(prompt: Prompt) -> LabelledGroup:
    """Return the group of a given pair, whose chosen response alone is right, or of a response with given labels."""
    problem = prompt.problem
    responses, labels = [problem.solution or ""], [problem.meta.get(LABELS, [1.0])]
    if REJECTED in problem.meta:
        responses, labels = [*responses, rejected_of(problem).solution or ""], [*labels, [0.0]]
    return LabelledGroup(id=problem.id, prompt=prompt.text, responses=responses, labels=labels)


@dataclass(frozen=True, slots=True)
class StepPrefixes:
    """The distinct beginnings of responses that are completed by sampling (Math-Shepherd, arXiv:2312.08935, sec.
    3.3): a response up to the end of each step except the last. The last step's label is the response's verdict."""

    prompts: Sequence[Prompt]
    id_of: Mapping[tuple[str, str], str]
    step_end: StepEnd

    @staticmethod
    def of(
        prompts: Sequence[Prompt],
        responses: Sequence[Sequence[Response]],
        encode: Callable[[str], Sequence[int]],
        *,
        step_end: StepEnd = "line",
    ) -> StepPrefixes:
        """Collect the prefixes of all responses. encode: tokens of a text without special tokens."""
        extended, id_of = list[Prompt](), dict[tuple[str, str], str]()
        for prompt, members in zip(prompts, responses, strict=True):
            for response in members:
                for end in step_ends(response.response, step_end)[:-1]:
                    prefix, problem = response.response[:end], prompt.problem
                    if (problem.id, prefix) in id_of:
                        continue
                    name = f"{problem.id}>{len(extended)}"
                    id_of[problem.id, prefix] = name
                    extended.append(_extended(prompt, name, prefix, encode(prefix)))
        return StepPrefixes(extended, id_of, step_end)

    def labels(self, response: Response, correct_frac: Mapping[str, float], *, hard: bool) -> list[float]:
        """Return the labels of a response's steps. correct_frac: by the id of a prefix, the fraction of correct
        completions."""
        ends = step_ends(response.response, self.step_end)
        fractions = [correct_frac[self.id_of[response.id, response.response[:end]]] for end in ends[:-1]]
        if ends:
            fractions.append(float(response.verdicts["reward"].correct))
        return [float(frac > 0) for frac in fractions] if hard else fractions


def _extended(prompt: Prompt, name: str, prefix: str, prefix_ids: Sequence[int]) -> Prompt:
    problem = replace(prompt.problem, id=name)
    return Prompt(problem=problem, text=prompt.text + prefix, token_ids=(*prompt.token_ids, *prefix_ids))


def write_labelled(folder: Path, groups: Sequence[LabelledGroup]) -> None:
    lines = [json.dumps(asdict(group), ensure_ascii=False) + "\n" for group in groups]
    write_text(folder / FILE, "".join(lines))


def read_labelled(folder: Path) -> list[LabelledGroup] | None:
    """Read the groups that `write_labelled` wrote; None before that."""
    path = folder / FILE
    return [LabelledGroup(**row) for row in read_jsonl(path)] if path.is_file() else None


def with_replay(
    groups: Sequence[LabelledGroup], earlier: Sequence[LabelledGroup], *, frac: float, key: Sequence[object]
) -> list[LabelledGroup]:
    """Return the groups, and earlier ones that make up the fraction `frac` of the whole if there are enough (iterative
    GRPO, arXiv:2402.03300, alg. 1). The key determines the choice."""
    count = min(round(len(groups) * frac / (1 - frac)), len(earlier))
    drawn = KeyedRandom(*key).shuffled(range(len(earlier)))[:count]
    return [*groups, *(earlier[index] for index in sorted(drawn))]


def samples_of(
    group: LabelledGroup, tokenizer: Any, *, number: int, step_end: StepEnd | None, every_token: bool = False
) -> list[TrainSample]:
    """Return the group's responses for a `RewardTrainer`. number: of the group within the batch. step_end: where the
    labelled steps end; None: whole responses are labelled. A response without a step is left out, because a model would
    read nothing.

    every_token: each token of a step, or of the response, gets its label (arXiv:2110.14168, sec. 4.2), and not only the
    last one, where a model is read. If the first error is known, a token is right before it and wrong from there to
    the end of the step. Later tokens get no label (as in arXiv:2305.20050, sec. 2.6).
    """
    samples = list[TrainSample]()
    errors = group.wrong_from or [None] * len(group.responses)
    for response, labels, wrong_from in zip(group.responses, group.labels, errors, strict=True):
        encoded = encode_steps(tokenizer, group.prompt, response, step_ends(response, step_end or "line"))
        if not encoded.at:
            continue
        at = (len(encoded.token_ids) - 1,) if step_end is None else encoded.at
        steps = list(zip(at, labels, strict=True))
        if every_token and group.wrong_from is not None:
            steps = _up_to_error(encoded, wrong_from)
        elif every_token:
            steps = _on_every_token(steps, start=encoded.num_prompt)
        token_ids = encoded.token_ids[encoded.num_prompt :]
        samples.append(
            TrainSample(
                prompt_ids=encoded.token_ids[: encoded.num_prompt],
                token_ids=token_ids,
                behavior_logps=[0.0] * len(token_ids),
                group=number,
                reward=labels[-1],
                steps=[(index - encoded.num_prompt, label) for index, label in steps],
            )
        )
    return samples


def _on_every_token(steps: Sequence[tuple[int, float]], *, start: int) -> list[tuple[int, float]]:
    """Put the label of each step on all of its tokens. Its last token is given, and it starts after the step before it,
    the first one at `start`."""
    starts = [start, *(end + 1 for end, _ in steps[:-1])]
    return [
        (index, label) for first, (end, label) in zip(starts, steps, strict=True) for index in range(first, end + 1)
    ]


def _up_to_error(encoded: EncodedSteps, wrong_from: int | None) -> list[tuple[int, float]]:
    """Return label 1 for each token before the first wrong character, and 0 from there to the end of its step."""
    if wrong_from is None:
        return [(index, 1.0) for index in range(encoded.num_prompt, encoded.at[-1] + 1)]
    wrong = encoded.tokens_of([wrong_from])[0]
    end = next(index for index in encoded.at if index >= wrong)
    return [(index, float(index < wrong)) for index in range(encoded.num_prompt, end + 1)]

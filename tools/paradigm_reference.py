"""The gradients of docs/algorithms.md: methods as data, rewards and gradient coefficients, computed from the code.

python -m tools.paradigm_reference
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ansatz.data.hygiene.select import Candidate, select_responses
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.objectives.preference import PREFERENCES
from ansatz.objectives.preference_objective import LIKELIHOOD, build_preference_objective
from ansatz.objectives.presets import PRESETS
from ansatz.train.batch import build_batch
from ansatz.train.packed import PackedRollouts, pack_rollouts
from ansatz.train.sample import TrainSample
from tools.pages import DOCS, replace_page, replace_part

PAGE = DOCS / "algorithms.md"
BEGIN = "<!-- written by python -m tools.paradigm_reference -->"
INTRODUCTION = """\
The gradient of every method is a sum over response tokens of coefficient x grad log policy(token)
(DeepSeekMath, arXiv:2402.03300 sec. 5.2.1). Methods differ in where the responses come from, in
what rewards them, and in the coefficient. The coefficients below are those that autograd finds in
the loss of each method, times the number of tokens or pairs that the loss averages over.

### Responses with rewards

Four responses of four tokens to one prompt, the first of them correct. It has the reward 1, the
others 0. The policy is the one that sampled them (rho = 1), and there is no KL. A method that reads
more gets it: a critic that expects 0.25 everywhere; a greedy response, which is wrong; entropies,
the highest of them at the first token; and two reasoning steps of two tokens, both right in the
correct response, only the first in one of the wrong ones. `pass_at_k` has k = 2. Two numbers are
the coefficients of the first and of the last token, and a semicolon separates wrong responses with
different coefficients.

| method | responses | reward | correct | wrong |
|---|---|---|---|---|
"""
PAIRS = """
### Pairs

A chosen and a rejected response of four tokens with log policy -4 each: where the policy is the
reference, and where the chosen response is 2 nats above it and the rejected one 2 nats below it.
Each loss has its default settings. Losses without a reference compare the responses with each
other. `kto` calls the two responses desirable and undesirable; its estimate of the KL is 0 here.
The pairs come from a file, or from the policy at the start of the stage; then a pair is a correct
and a wrong response.

| method | responses | reward | chosen | rejected | chosen, margin 4 | rejected, margin 4 |
|---|---|---|---|---|---|---|
"""
REWARD_N = (1.0, 0.0, 0.0, 0.0)
TOKENS = 4
RIGHT_STEPS = ((1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0))
EXPECTED_REWARD = 0.25
ENTROPY = (2.0, 1.0, 1.0, 1.0)
"""Nats of each token, for methods that leave out tokens of low entropy."""
SETTINGS = {"pass_at_k": {"advantage": {"k": 2}}}
"""A preset's settings that do not suit a group of four."""

Coefficients = Sequence[Sequence[float]]
"""One list for each response, one number for each of its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A row: where the responses come from, what rewards them, and the coefficients of each response."""

    name: str
    responses: str
    reward: str
    coefficients: Coefficients


def render() -> str:
    """Return the page with the current gradients between its marks."""
    part = INTRODUCTION + "".join(map(_rewarded_row, _rewarded())) + PAIRS + "".join(map(_pair_row, _pairs()))
    return replace_part(PAGE, BEGIN, part)


def _rewarded() -> Iterator[Method]:
    yield Method(
        name="SFT (`sft`)", responses="demonstrations", reward="none", coefficients=_fine_tuning(range(len(REWARD_N)))
    )
    taught = _taught()
    for name, source in (("RFT, expert iteration", "the policy, each round"), ("distillation", "a teacher, once")):
        yield Method(
            name=f"{name} (`rejection`)", responses=source, reward="verdict", coefficients=_fine_tuning(taught)
        )
    for name in PRESETS:
        objective = build_objective({"preset": name, "kl_coef": 0.0, "weights": "token_mean", **SETTINGS.get(name, {})})
        yield Method(
            name=f"`{name}`",
            responses="groups, each step" if objective.needs_group else "the policy, each step",
            reward=_reward(objective),
            coefficients=_coefficients(objective, _responses(objective)),
        )


def _pairs() -> Iterator[tuple[Method, Method]]:
    """Each preference loss where the policy is the reference, and at a margin of 4 nats."""
    losses = sorted({PREFERENCES.get(name).__name__ for name in PREFERENCES.names()} - {LIKELIHOOD})
    for name in losses:
        objective = build_preference_objective({name: {}})
        near, far = (
            Method(
                name=f"`{name}`",
                responses="labelled responses" if objective.unpaired else "pairs",
                reward="a label"
                if objective.unpaired
                else "which is better" + ", no reference" * (not objective.needs_ref),
                coefficients=_pair(name, gain),
            )
            for gain in (0.0, 2.0)
        )
        yield near, far


def _rewarded_row(method: Method) -> str:
    correct, *wrong = map(_cell, method.coefficients)
    cells = [method.name, method.responses, method.reward, correct, "; ".join(dict.fromkeys(wrong))]
    return f"| {' | '.join(cells)} |\n"


def _pair_row(methods: tuple[Method, Method]) -> str:
    near, far = methods
    cells = [near.name, near.responses, near.reward, *map(_cell, (*near.coefficients, *far.coefficients))]
    return f"| {' | '.join(cells)} |\n"


def _cell(coefficients: Sequence[float]) -> str:
    """The coefficient of the tokens, or those of the first and of the last one."""
    numbers = [f"{value:.3f}".replace("-0.000", "0.000") for value in (coefficients[0], coefficients[-1])]
    return ", ".join(dict.fromkeys(numbers))


def _reward(objective: Objective) -> str:
    """What the advantage is computed from, besides the verdicts of the responses."""
    more = {
        "value_T": "verdict, critic",
        "baseline_N": "verdict, greedy response",
        "component_NK": "verdicts, one by one",
        "step_reward_T": "one per step",
    }
    if objective.kl_to == "teacher":
        return "none: log-probs of a teacher"
    return next((text for name, text in more.items() if name in objective.advantage.inputs), "verdict")


def _taught() -> list[int]:
    """The responses that rejection sampling teaches."""
    candidates = [
        Candidate(problem_id="1", sample=index, text=str(index), tokens=TOKENS, correct=reward > 0, finished=True)
        for index, reward in enumerate(REWARD_N)
    ]
    return [each.sample for each in select_responses(candidates, per_prompt=TOKENS, pick="random", seed=0).kept]


def _fine_tuning(taught: Iterable[int]) -> Coefficients:
    """Of the objective of fine-tuning, in which every taught response has the advantage 1; 0 for the others."""
    objective = build_objective({"preset": "reinforce", "weights": "token_mean"})
    indices = list(taught)
    found = _coefficients(objective, [_sample(index, reward=1.0) for index in indices])
    return [found[indices.index(index)] if index in indices else [0.0] for index in range(len(REWARD_N))]


def _responses(objective: Objective) -> list[TrainSample]:
    by_step = "step_reward_T" in objective.advantage.inputs
    return [
        _sample(index, reward=reward, steps=RIGHT_STEPS[index] if by_step else ())
        for index, reward in enumerate(REWARD_N)
    ]


def _sample(index: int, *, reward: float, steps: Sequence[float] = ()) -> TrainSample:
    """A response of its own token, so that it is found again in the batch."""
    return TrainSample(
        prompt_ids=[1],
        token_ids=[2 + index] * TOKENS,
        behavior_logps=[-1.0] * TOKENS,
        group=0,
        reward=reward,
        components=(reward,),
        steps=[(1 + 2 * number, step) for number, step in enumerate(steps)],
    )


def _coefficients(objective: Objective, samples: Sequence[TrainSample]) -> Coefficients:
    packed = pack_rollouts(samples, device=torch.device("cpu"))
    logp_T = -1.0 * packed.sampled_mask_T
    extra: dict[str, Any] = {"old_logp_T": logp_T}
    if objective.value is not None:
        extra["value_T"] = torch.full_like(logp_T, EXPECTED_REWARD)
    if "baseline_N" in objective.advantage.inputs:
        extra["baseline_N"] = torch.zeros(len(samples))
    batch = build_batch(packed, objective, **extra)
    policy_logp_T = logp_T.clone().requires_grad_()
    entropy_T = torch.zeros_like(logp_T).masked_scatter(packed.sampled_mask_T, torch.tensor(ENTROPY * len(samples)))
    loss = objective.loss(batch.for_loss(policy_logp_T), policy_logp_T, entropy_T=entropy_T).loss
    return _by_response(loss, policy_logp_T, packed, samples, scale=float(packed.sampled_mask_T.sum()))


def _pair(name: str, gain: float) -> Coefficients:
    """Of the chosen and of the rejected response; gain: of the chosen one in nats, which the rejected one has lost."""
    objective = build_preference_objective({name: {}})
    samples = [_sample(side, reward=1.0 - side) for side in (0, 1)]
    mismatched = list[TrainSample]()
    if objective.unpaired:
        samples = [replace(each, group=side, reward=1.0 - 2 * side) for side, each in enumerate(samples)]
        mismatched = [replace(_sample(2 + side, reward=0.0), group=side) for side in (0, 1)]
    packed = pack_rollouts([*samples, *mismatched], device=torch.device("cpu"))
    sign_T = (packed.token_T == 2).float() - (packed.token_T == 3).float()
    gain_T = sign_T * gain / TOKENS * packed.sampled_mask_T
    logp_T = -1.0 * packed.sampled_mask_T + (0.0 if objective.needs_ref else gain_T)
    policy_logp_T = logp_T.requires_grad_()
    ref_logp_T = (-1.0 * packed.sampled_mask_T - gain_T) if objective.needs_ref else None
    batch = build_batch(packed, objective, ref_logp_T=ref_logp_T)
    loss = objective.loss(batch.for_loss(policy_logp_T), policy_logp_T).loss
    return _by_response(loss, policy_logp_T, packed, samples, scale=2.0 if mismatched else 1.0)


def _by_response(
    loss: Tensor, policy_logp_T: Tensor, packed: PackedRollouts, samples: Sequence[TrainSample], *, scale: float
) -> Coefficients:
    (gradient_T,) = torch.autograd.grad(loss, policy_logp_T)
    return [(-scale * gradient_T[packed.token_T == sample.token_ids[0]]).tolist() for sample in samples]


if __name__ == "__main__":
    replace_page(PAGE.name, render())

"""docs/paradigm.md: every method as a data source, a reward and a gradient coefficient, computed from the code.

python -m tools.paradigm_reference
"""

from __future__ import annotations

import torch

from ansatz.errors import ConfigError
from ansatz.objectives.build import build_objective
from ansatz.objectives.components import INPUTS
from ansatz.objectives.policy_loss import policy_loss
from ansatz.objectives.preference import PREFERENCES
from ansatz.objectives.preference_objective import LIKELIHOOD, build_preference_objective
from ansatz.objectives.presets import PRESETS
from ansatz.train.batch import build_batch
from ansatz.train.packed import pack_rollouts
from ansatz.train.sample import TrainSample
from tools.pages import replace_page

INTRODUCTION = """\
# One paradigm

This page is generated from the objectives by `make docs`; do not edit it.

The gradient of every method is a sum over response tokens of coefficient x grad log policy(token)
(DeepSeekMath, arXiv:2402.03300 sec. 5.2.1). Methods differ in where the responses come from, in
what rewards them, and in the coefficient. The numbers below are the coefficients that autograd
finds in the loss of each method, times the number of tokens or pairs that the loss averages over.

| method | responses | reward | coefficient |
|---|---|---|---|
| SFT (`sft`) | demonstrations | none | 1 |
| RFT, expert iteration (`rejection`) | the policy, each round | rule: correct or not | 1 or 0 |
| distillation (`rejection`) | a teacher | rule: correct or not | 1 or 0 |
| `preference` | pairs of a file or of the policy | which is better | see below |
| `rl` | the policy, each step | the recipe's rewards | see below |

## Presets of RL

The coefficient of a token of a correct and of a wrong response, in a group of four responses of
equal length with the rewards 1, 0, 0, 0, on policy (rho = 1) and without a KL.

| preset | correct | wrong |
|---|---|---|
"""
_MORE = ("value_T", "baseline_N", "component_NK", "step_reward_T", "entropy_T")
"""Inputs besides the rewards of rollouts, with which a preset has no single coefficient."""
PAIRS = """
## Preference losses

The coefficient of a token of the chosen and of the rejected response, for a pair of responses of
four tokens with log policy -4 each: where the policy is the reference, and where the chosen
response is 2 nats above and the rejected one 2 nats below it. Each loss has its default settings.
Losses without a reference compare the responses with each other.

| loss | chosen | rejected | chosen, margin 4 | rejected, margin 4 |
|---|---|---|---|---|
"""


def render() -> str:
    """The page as Markdown."""
    presets = "".join(_row(name, _preset(name)) for name in PRESETS)
    losses = sorted({PREFERENCES.get(name).__name__ for name in PREFERENCES.names()} - {LIKELIHOOD})
    return (
        INTRODUCTION + presets + PAIRS + "".join(_row(name, [*_pair(name, 0.0), *_pair(name, 2.0)]) for name in losses)
    )


def _row(name: str, cells: list[float | str]) -> str:
    return f"| `{name}` | {' | '.join(cell if isinstance(cell, str) else _number(cell) for cell in cells)} |\n"


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-0.000", "0.000")


def _preset(name: str) -> list[float | str]:
    """Coefficients of a correct and of a wrong response; otherwise what they depend on besides rewards."""
    logp = torch.full((4, 5), -1.0, dtype=torch.float64, requires_grad=True)
    groups, mask = torch.zeros(4, dtype=torch.long), torch.ones(4, 5)
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    spec = {"preset": name, "kl_coef": 0.0, "weights": "token_mean"}
    try:
        loss = policy_loss(logp, logp.detach(), rewards, groups=groups, mask=mask, algorithm=spec).loss
    except ConfigError:  # the preset needs more than rewards
        objective = build_objective(spec)
        inputs = [name for each in (objective.advantage, *objective.correction) for name in each.inputs]
        return ["depends on", ", ".join(INPUTS[name] for name in inputs if name in _MORE)]
    (gradient,) = torch.autograd.grad(loss, logp)
    return [float(-gradient[row, 0] * mask.sum()) for row in (0, 1)]


def _pair(name: str, gain: float) -> list[float | str]:
    """Coefficients of the chosen and of the rejected response; gain: of the chosen one, the rejected has lost it."""
    objective = build_preference_objective({name: {}})
    samples = [
        TrainSample(prompt_ids=[1], token_ids=[2 + side] * 4, behavior_logps=[0.0] * 4, group=0, reward=1.0 - side)
        for side in (0, 1)
    ]
    packed = pack_rollouts(samples, device=torch.device("cpu"))
    sign_T = torch.where(packed.token_T == 2, 1.0, -1.0)
    policy_logp_T = (torch.full_like(sign_T, -1.0) * packed.mask_T).requires_grad_()
    ref_logp_T = (-1.0 - sign_T * gain / 4) * packed.mask_T
    batch = build_batch(packed, objective, ref_logp_T=ref_logp_T if objective.needs_ref else None)
    if not objective.needs_ref:
        policy_logp_T = ((-1.0 + sign_T * gain / 4) * packed.mask_T).detach().requires_grad_()
    loss = objective.loss(batch.for_loss(policy_logp_T), policy_logp_T).loss
    (gradient_T,) = torch.autograd.grad(loss, policy_logp_T)
    return [float(-gradient_T[packed.token_T == token][0]) for token in (2, 3)]


if __name__ == "__main__":
    replace_page("paradigm.md", render())

"""Preference losses: pure functions of the log-probs of chosen and rejected responses; the caller averages over pairs.

Axes: P pairs. `chosen_gain_P`, `rejected_gain_P`: log(policy / reference) of the response, summed over its tokens.
`*_score_P`: an f-divergence's transform of the gain (`DIVERGENCES`); the gain itself for the reverse KL. `*_logp_P`:
log policy, summed; `*_length_P`: response tokens. beta is the strength of the divergence. Every loss returns `loss_P`.

Losses on differences of scores, and on scores per token, follow any f-divergence. AOT, APO-zero, KTO and the first
term of APO-down are defined on log-ratios, so they take gains and ignore the divergence.

A loss with the input `desirable_P` learns from P labelled responses: `labelled_gain_P`, and `mismatched_gain_P` of a
response to another prompt.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ansatz.objectives.components import Function, formula, whole_minibatch
from ansatz.registry import Registry

PREFERENCES: Registry[Function] = Registry("preference")
DIVERGENCES: Registry[Function] = Registry("divergence")

_SMOOTHED = {"label_smoothing": ", labels flipped with probability {label_smoothing}"}


@DIVERGENCES.register("reverse_kl")
@formula("gain")
def reverse_kl(gain_P: Tensor) -> Tensor:
    """f(u) = u log u, the divergence of DPO: the score is the log-ratio."""
    return gain_P


@DIVERGENCES.register("forward_kl")
@formula("-exp(-gain)")
def forward_kl(gain_P: Tensor) -> Tensor:
    """f'(u) = -1 / u, up to a constant (f-DPO, arXiv:2309.16240)."""
    return -(-gain_P).exp()


@DIVERGENCES.register("js")
@formula("log sigmoid(gain)")
def js(gain_P: Tensor) -> Tensor:
    """f'(u) = log(u / (1 + u)), up to a constant: the Jensen-Shannon divergence."""
    return F.logsigmoid(gain_P)


@DIVERGENCES.register("alpha")
@formula("exp(({alpha} - 1) gain) / ({alpha} - 1)")
def alpha_divergence(gain_P: Tensor, *, alpha: float = 0.5) -> Tensor:
    """f'(u) = u^(alpha - 1) / (alpha - 1), up to a constant; alpha 0 is the forward KL, alpha 1 the reverse KL.

    The limit alpha -> 1 is taken of score differences, because the diverging constant cancels in them.
    """
    if abs(alpha - 1) < 1e-6:
        return gain_P
    return ((alpha - 1) * gain_P).exp() / (alpha - 1)


@PREFERENCES.register("dpo", "sigmoid")
@formula("-log sigmoid({beta} (score_chosen - score_rejected))", notes=_SMOOTHED)
def dpo(chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1, label_smoothing: float = 0.0) -> Tensor:
    """DPO (arXiv:2305.18290 eq. 7); with label_smoothing conservative DPO (ericmitchell.ai/cdpo.pdf)."""
    return _smoothed(beta * (chosen_score_P - rejected_score_P), label_smoothing)


@PREFERENCES.register("dpo_norm", "sigmoid_norm")
@formula("-log sigmoid({beta} (score_chosen / tokens - score_rejected / tokens))", notes=_SMOOTHED)
def dpo_norm(
    chosen_score_P: Tensor,
    rejected_score_P: Tensor,
    chosen_length_P: Tensor,
    rejected_length_P: Tensor,
    *,
    beta: float = 2.0,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Length-normalised DPO (Tulu 3, arXiv:2411.15124 sec. 5.1)."""
    gap_P = chosen_score_P / chosen_length_P.clamp(min=1) - rejected_score_P / rejected_length_P.clamp(min=1)
    return _smoothed(beta * gap_P, label_smoothing)


@PREFERENCES.register("robust")
@formula(
    "-log sigmoid({beta} (score_chosen - score_rejected)), made unbiased for labels flipped with probability "
    "{label_smoothing}"
)
def robust(
    chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1, label_smoothing: float = 0.1
) -> Tensor:
    """rDPO (arXiv:2403.00409): (-(1 - e) log s(x) + e log s(-x)) / (1 - 2e)."""
    logit_P = beta * (chosen_score_P - rejected_score_P)
    kept_P = (1 - label_smoothing) * F.logsigmoid(logit_P)
    return (label_smoothing * F.logsigmoid(-logit_P) - kept_P) / (1 - 2 * label_smoothing)


@PREFERENCES.register("ipo")
@formula("(score_chosen - score_rejected - 1 / (2 {beta}))^2", notes={"per_token": ", scores divided by their tokens"})
def ipo(
    chosen_score_P: Tensor,
    rejected_score_P: Tensor,
    chosen_length_P: Tensor,
    rejected_length_P: Tensor,
    *,
    beta: float = 0.1,
    per_token: bool = False,
) -> Tensor:
    """IPO (arXiv:2310.12036 eq. 17), a bounded margin. per_token: average scores over tokens, as TRL does."""
    if per_token:
        chosen_score_P = chosen_score_P / chosen_length_P.clamp(min=1)
        rejected_score_P = rejected_score_P / rejected_length_P.clamp(min=1)
    return (chosen_score_P - rejected_score_P - 1 / (2 * beta)).square()


@PREFERENCES.register("hinge")
@formula("max(0, 1 - {beta} (score_chosen - score_rejected))")
def hinge(chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1) -> Tensor:
    """SLiC-HF's hinge (arXiv:2305.10425) on the implicit rewards (RSO, arXiv:2309.06657)."""
    return torch.relu(1 - beta * (chosen_score_P - rejected_score_P))


@PREFERENCES.register("cpo")
@formula("-log sigmoid({beta} (log policy(chosen) - log policy(rejected)))", notes=_SMOOTHED)
def cpo(chosen_logp_P: Tensor, rejected_logp_P: Tensor, *, beta: float = 0.1, label_smoothing: float = 0.0) -> Tensor:
    """DPO without a reference (CPO, arXiv:2401.08417); its likelihood term is `likelihood`."""
    return _smoothed(beta * (chosen_logp_P - rejected_logp_P), label_smoothing)


@PREFERENCES.register("simpo")
@formula(
    "-log sigmoid({beta} (mean log policy(chosen) - mean log policy(rejected)) - {margin})",
    notes={"alpha": ", each mean x as (1 - exp(-{alpha} x)) / {alpha}", **_SMOOTHED},
)
def simpo(
    chosen_logp_P: Tensor,
    rejected_logp_P: Tensor,
    chosen_length_P: Tensor,
    rejected_length_P: Tensor,
    *,
    beta: float = 2.0,
    margin: float = 1.0,
    label_smoothing: float = 0.0,
    alpha: float = 0.0,
) -> Tensor:
    """SimPO (arXiv:2405.14734 eq. 6). alpha: each mean log-prob x becomes (1 - exp(-alpha x)) / alpha (AlphaPO,
    arXiv:2501.03884)."""
    chosen_P, rejected_P = chosen_logp_P / chosen_length_P, rejected_logp_P / rejected_length_P
    if alpha != 0:
        chosen_P, rejected_P = -torch.expm1(-alpha * chosen_P) / alpha, -torch.expm1(-alpha * rejected_P) / alpha
    return _smoothed(beta * (chosen_P - rejected_P) - margin, label_smoothing)


@PREFERENCES.register("orpo")
@formula("-log sigmoid(log odds(chosen) - log odds(rejected)), odds = p / (1 - p), log p = mean log policy")
def orpo(chosen_logp_P: Tensor, rejected_logp_P: Tensor, chosen_length_P: Tensor, rejected_length_P: Tensor) -> Tensor:
    """The odds-ratio term of ORPO (arXiv:2403.07691 eq. 7), which needs no reference. ORPO adds it, times lambda, to
    the likelihood of the chosen response: {likelihood: {kind: sequence_mean}, orpo: {weight: 0.1}}."""
    chosen_P, rejected_P = chosen_logp_P / chosen_length_P, rejected_logp_P / rejected_length_P
    return -F.logsigmoid(_log_odds(chosen_P) - _log_odds(rejected_P))


@PREFERENCES.register("exo", "exo_pair")
@formula(
    "KL of (p, 1 - p), p = sigmoid({beta} (score_chosen - score_rejected)), to (1 - {label_smoothing}, "
    "{label_smoothing})"
)
def exo(
    chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1, label_smoothing: float = 1e-3
) -> Tensor:
    """EXO for pairs (arXiv:2402.00856): the reverse KL to smoothed labels. label_smoothing > 0."""
    logit_P = beta * (chosen_score_P - rejected_score_P)
    correct_P = logit_P.sigmoid() * (F.logsigmoid(logit_P) - _log(1 - label_smoothing))
    return correct_P + (-logit_P).sigmoid() * (F.logsigmoid(-logit_P) - _log(label_smoothing))


@PREFERENCES.register("nca", "nca_pair")
@formula("-log s(c) - log s(-c) / 2 - log s(-r) / 2, c and r the implicit rewards, {beta} x score")
def nca(chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1) -> Tensor:
    """NCA for pairs (arXiv:2402.05369): the absolute likelihood of the chosen response does not fall."""
    chosen_P, rejected_P = beta * chosen_score_P, beta * rejected_score_P
    return -F.logsigmoid(chosen_P) - F.logsigmoid(-chosen_P) / 2 - F.logsigmoid(-rejected_P) / 2


@PREFERENCES.register("bco", "bco_pair")
@formula(
    "-log s(c - shift) - log s(shift - r), c and r {beta} x score, shift = {centered}",
    words={"centered": {True: "their mean over the batch", False: "0"}},
)
def bco(chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1, centered: bool = True) -> Tensor:
    """BCO for pairs (arXiv:2404.04656): a binary classifier of implicit rewards, around their mean in the batch or
    around 0."""
    chosen_P, rejected_P = beta * chosen_score_P, beta * rejected_score_P
    shift = torch.cat([chosen_P, rejected_P]).mean().detach() * centered
    return -F.logsigmoid(chosen_P - shift) - F.logsigmoid(shift - rejected_P)


@PREFERENCES.register("sppo", "sppo_hard")
@formula("(score_chosen - 1 / (2 {beta}))^2 + (score_rejected + 1 / (2 {beta}))^2")
def sppo(chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1) -> Tensor:
    """SPPO with hard labels (arXiv:2405.00675)."""
    half = 1 / (2 * beta)
    return (chosen_score_P - half).square() + (rejected_score_P + half).square()


@PREFERENCES.register("apo_zero")
@formula("1 - s({beta} gain_chosen) + s({beta} gain_rejected)")
def apo_zero(chosen_gain_P: Tensor, rejected_gain_P: Tensor, *, beta: float = 0.1) -> Tensor:
    """APO-zero (arXiv:2408.06266): chosen up, rejected down; for chosen responses better than the policy's."""
    return 1 - (beta * chosen_gain_P).sigmoid() + (beta * rejected_gain_P).sigmoid()


@PREFERENCES.register("apo_down")
@formula("s({beta} gain_chosen) + 1 - s({beta} (score_chosen - score_rejected))")
def apo_down(chosen_gain_P: Tensor, chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1) -> Tensor:
    """APO-down (arXiv:2408.06266): both down, rejected more; for a policy better than the chosen responses."""
    return (beta * chosen_gain_P).sigmoid() + 1 - (beta * (chosen_score_P - rejected_score_P)).sigmoid()


@PREFERENCES.register("discopop")
@formula("logistic and exponential loss of {beta} (score_chosen - score_rejected), mixed by sigmoid(x / {tau})")
def discopop(chosen_score_P: Tensor, rejected_score_P: Tensor, *, beta: float = 0.1, tau: float = 0.05) -> Tensor:
    """DiscoPOP, a loss found by search (arXiv:2406.08414)."""
    logit_P = beta * (chosen_score_P - rejected_score_P)
    mix_P = (logit_P / tau).sigmoid()
    return -F.logsigmoid(logit_P) * (1 - mix_P) + (-logit_P).exp() * mix_P


@PREFERENCES.register("aot")
@whole_minibatch
@formula("-log sigmoid({beta} (sorted policy gaps - sorted reference gaps))", notes=_SMOOTHED)
def aot(
    chosen_logp_P: Tensor,
    rejected_logp_P: Tensor,
    chosen_gain_P: Tensor,
    rejected_gain_P: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> Tensor:
    """AOT for pairs (arXiv:2406.05882): stochastic dominance of the policy's margins over the reference's."""
    policy_P = chosen_logp_P - rejected_logp_P
    reference_P = policy_P - (chosen_gain_P - rejected_gain_P)
    return _smoothed(beta * (policy_P.sort().values - reference_P.sort().values), label_smoothing)


@PREFERENCES.register("aot_unpaired")
@whole_minibatch
@formula("-log sigmoid({beta} (sorted gain_chosen - sorted gain_rejected))", notes=_SMOOTHED)
def aot_unpaired(
    chosen_gain_P: Tensor, rejected_gain_P: Tensor, *, beta: float = 0.1, label_smoothing: float = 0.0
) -> Tensor:
    """AOT without pairs (arXiv:2406.05882)."""
    return _smoothed(beta * (chosen_gain_P.sort().values - rejected_gain_P.sort().values), label_smoothing)


@PREFERENCES.register("kto")
@whole_minibatch
@formula(
    "desirable: {desirable_weight} (1 - sigmoid({beta} (gain - kl))), undesirable: {undesirable_weight} "
    "(1 - sigmoid({beta} (kl - gain))), kl = max(0, mean gain of mismatched responses in the step)"
)
def kto(
    labelled_gain_P: Tensor,
    mismatched_gain_P: Tensor,
    desirable_P: Tensor,
    *,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO (arXiv:2402.01306 sec. 4.1): weight x (1 - v) of a labelled response, v = sigmoid(beta (gain - kl)) if it is
    desirable, sigmoid(beta (kl - gain)) if not. kl = max(0, mean mismatched gain of the step) has no gradient.

    TRL 1.16 computes the same. In the paper, prompt i of a batch gets response i + 1 of the batch, in TRL i - 1; here
    it gets the response to the next prompt of the file.
    """
    kl = mismatched_gain_P.mean().clamp(min=0).detach()
    good_P, bad_P = ((beta * sign * (kl - labelled_gain_P)).sigmoid() for sign in (1, -1))
    return torch.where(desirable_P, desirable_weight * good_P, undesirable_weight * bad_P)


@PREFERENCES.register("likelihood", "sft")
@formula("-log policy(chosen): {kind}")
def likelihood(
    chosen_likelihood_P: Tensor,
    chosen_length_P: Tensor,
    *,
    kind: Literal["token_mean", "sequence_sum", "sequence_mean"] = "token_mean",
) -> Tensor:
    """The likelihood of the chosen responses, a term next to a preference loss (RPO, arXiv:2404.19733 eq. 1).

    chosen_likelihood_P: log policy summed over all tokens of the response, each with weight 1. kind: "token_mean"
    (every chosen token of the batch counts the same), or the sum or mean of each response.
    """
    if kind == "sequence_sum":
        return -chosen_likelihood_P
    if kind == "sequence_mean":
        return -chosen_likelihood_P / chosen_length_P.clamp(min=1)
    return -chosen_likelihood_P * len(chosen_likelihood_P) / chosen_length_P.sum()


def bradley_terry(
    chosen_reward_P: Tensor, rejected_reward_P: Tensor, margin_P: Tensor | None = None, *, center: float = 0.0
) -> Tensor:
    """Compute -log sigmoid(c - r - margin) + center (c + r)^2: a reward model's loss (arXiv:2203.02155 eq. 1;
    margin, Llama 2).

    center: keeps rewards near 0, since only their differences are determined (arXiv:2312.09244).
    """
    gap_P = chosen_reward_P - rejected_reward_P
    if margin_P is not None:
        gap_P = gap_P - margin_P
    return -F.logsigmoid(gap_P) + center * (chosen_reward_P + rejected_reward_P).square()


def _log_odds(logp_P: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of log p < 0."""
    return logp_P - torch.log(-torch.expm1(logp_P))


def _smoothed(logit_P: Tensor, label_smoothing: float) -> Tensor:
    return -(1 - label_smoothing) * F.logsigmoid(logit_P) - label_smoothing * F.logsigmoid(-logit_P)


def _log(number: float) -> float:
    return torch.tensor(number, dtype=torch.float64).log().item()

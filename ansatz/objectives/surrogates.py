"""Surrogates, and the critic's losses: the loss of one response token, before weights; lower is better.

Axes: T tokens that count in the loss. `log_ratio_T` is log rho with gradient. At rho = 1 each has REINFORCE's gradient,
-A grad log policy, on the tokens of its ratio (times 2 tau for `opmd`; 0 at the tokens that `clip_cov` drops). If a
rollout shares one ratio, its loss is repeated at each of its tokens, and `sequence_mean` makes it count once.
Surrogates that clip return `Clipped`, which says which tokens. The first text of a `formula` is the loss, the second
the factor of grad log policy in the direction that lowers the loss.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Clipped, ClippingFunction, Function, formula, whole_minibatch
from ansatz.registry import Registry

SURROGATES: Registry[ClippingFunction] = Registry("surrogate")
VALUES: Registry[Function] = Registry("value")


@SURROGATES.register("plain", "importance_sampling")
@formula("-rho A", "rho A")
def plain(log_ratio_T: Tensor, advantage_T: Tensor) -> Tensor:
    """-rho A: the importance-weighted policy gradient, without a bound on the step."""
    return -log_ratio_T.exp() * advantage_T


@SURROGATES.register("log_prob", "reinforce", "gpg")
@formula("-A log policy", "A")
def log_prob(policy_logp_T: Tensor, advantage_T: Tensor) -> Tensor:
    """-A log policy: REINFORCE (Williams 1992). It ignores how far the policy has moved."""
    return -advantage_T * policy_logp_T


@SURROGATES.register("clip", "ppo", "vanilla", "regular")
@formula("-min(rho A, clip(rho, 1 - {low}, 1 + {high}) A)", "rho A, 0 where the clip holds")
def clip(log_ratio_T: Tensor, advantage_T: Tensor, *, low: float = 0.2, high: float = 0.2) -> Clipped:
    """PPO's clipped surrogate (arXiv:1707.06347 eq. 7) with the two ranges of DAPO (arXiv:2503.14476 eq. 10)."""
    return _clipped_surrogate(log_ratio_T, advantage_T, low, high)


@SURROGATES.register("dual_clip")
@formula(
    "-min(rho A, clip(rho, 1 - {low}, 1 + {high}) A), at most -{dual} A where A < 0", "rho A, 0 where a clip holds"
)
def dual_clip(
    log_ratio_T: Tensor,
    advantage_T: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: Annotated[float, Field(gt=1)] = 3.0,
) -> Clipped:
    """`clip` with a bounded loss for bad tokens that became likely (dual-clip PPO, arXiv:1912.09729)."""
    loss_T, low_T, high_T = _clipped_surrogate(log_ratio_T, advantage_T, low, high)
    bad_T, bound_T = advantage_T < 0, -dual * advantage_T
    return Clipped(
        torch.where(bad_T, torch.minimum(loss_T, bound_T), loss_T), low_T, high_T | (bad_T & (loss_T > bound_T))
    )


@SURROGATES.register("two_sided")
@formula("-min(min(rho, {delta}) A, clip(rho, 1 - {low}, 1 + {high}) A)", "rho A, 0 where a clip holds")
def two_sided(
    log_ratio_T: Tensor, advantage_T: Tensor, *, low: float = 0.2, high: float = 0.2, delta: float = 4.0
) -> Clipped:
    """`clip` with rho itself bounded above by delta > 1 + high (INTELLECT-2, arXiv:2505.07291)."""
    ratio_T = log_ratio_T.exp()
    # The larger bound holds where A < 0, because the loss is the larger of the two branches.
    bound_T = torch.full_like(ratio_T, max(delta, 1 + high)).masked_fill(advantage_T > 0, min(delta, 1 + high))
    return Clipped(
        torch.maximum(-ratio_T.clamp(max=delta) * advantage_T, -ratio_T.clamp(1 - low, 1 + high) * advantage_T),
        low_T=(ratio_T < 1 - low) & (advantage_T < 0),
        high_T=(ratio_T > bound_T) & (advantage_T != 0),
    )


@SURROGATES.register("cispo", "detached")
@formula("-constant(clip(rho, {floor}, {cap})) A log policy, {outside} outside", "clip(rho, {floor}, {cap}) A")
def cispo(
    log_ratio_T: Tensor,
    policy_logp_T: Tensor,
    advantage_T: Tensor,
    *,
    floor: float = 0.0,
    cap: float = 5.0,
    outside: Literal["bounded", "zero"] = "bounded",
) -> Clipped:
    """REINFORCE weighted by the clipped ratio without gradient: every token learns (CISPO, arXiv:2506.13585).

    outside: "bounded" clips rho; "zero" drops tokens with rho outside the open interval (floor, cap). Tokens count as
    clipped where their weight is changed, whatever the sign of A.
    """
    ratio_T = log_ratio_T.detach().exp()
    if outside == "zero":
        low_T, high_T = ratio_T <= floor, ratio_T >= cap
        weight_T = ratio_T.masked_fill(low_T | high_T, 0.0)
    else:
        low_T, high_T = ratio_T < floor, ratio_T > cap
        weight_T = ratio_T.clamp(floor, cap)
    return Clipped(-weight_T * advantage_T * policy_logp_T, low_T, high_T)


@SURROGATES.register("sapo", "soft_gate")
@formula(
    "-A (4 / tau) sigmoid(tau (rho - 1)), tau = {tau_pos} where A > 0, else {tau_neg}",
    "4 p (1 - p) rho A, p = sigmoid(tau (rho - 1))",
)
def sapo(log_ratio_T: Tensor, advantage_T: Tensor, *, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Tensor:
    """A smooth gate instead of the hard clip (SAPO, arXiv:2511.20347). Its gradient factor is 1 at rho = 1."""
    tau_T = torch.full_like(log_ratio_T, tau_neg).masked_fill(advantage_T > 0, tau_pos)
    return -advantage_T * 4 / tau_T * torch.sigmoid(tau_T * (log_ratio_T.exp() - 1))


@SURROGATES.register("vespo")
@formula(
    "-constant(w^k exp(lambda (1 - w))) A log policy, w = rho of the whole rollout x its mismatch weights, "
    "(k, lambda) = {gate_pos} where A >= 0, else {gate_neg}",
    "w^k exp(lambda (1 - w)) A",
)
def vespo(
    log_ratio_T: Tensor,
    policy_logp_T: Tensor,
    advantage_T: Tensor,
    mismatch_weight_T: Tensor,
    segment_T: Tensor,
    *,
    gate_pos: tuple[float, float] = (2.0, 3.0),
    gate_neg: tuple[float, float] = (3.0, 2.0),
) -> Tensor:
    """REINFORCE weighted by a smooth gate on the ratio of the whole rollout (VESPO, TRL loss_type vespo).

    gate_pos, gate_neg: k and lambda for A >= 0 and for A < 0. The gate is 1 at w = 1 and vanishes for large w. It takes
    the place of the correction for sampler mismatch, which enters through w. Use it with the `token` ratio. Logarithms
    are bounded by 20 and log 1e-8, as in TRL.
    """
    lowest = torch.tensor(1e-8, dtype=torch.float64).log().item()  # rounded as torch rounds, not as math.log
    log_T = log_ratio_T.detach().clamp(-20, 20) + mismatch_weight_T.detach().log().clamp(lowest, 20)
    log_w_T = segments.total(log_T, segment_T, segments.num_segments(segment_T))[segment_T].clamp(lowest, 20)
    good_T = advantage_T >= 0
    k_T, lambda_T = (
        torch.full_like(log_w_T, negative).masked_fill(good_T, positive)
        for positive, negative in zip(gate_pos, gate_neg, strict=True)
    )
    gate_T = (lambda_T + k_T * log_w_T - lambda_T * log_w_T.exp()).exp()
    return -gate_T * advantage_T * policy_logp_T


@SURROGATES.register("opmd", "squared")
@formula("(A - {tau} log rho)^2", "2 {tau} (A - {tau} log rho)")
def opmd(log_ratio_T: Tensor, advantage_T: Tensor, *, tau: float = 1.0) -> Tensor:
    """Policy mirror descent as a regression (Kimi k1.5, arXiv:2501.12599). Use it with the `product` ratio."""
    return (advantage_T - tau * log_ratio_T).square()


@SURROGATES.register("mirror_descent")
@formula("-(A log rho - {tau} / 2 (log rho)^2)", "A - {tau} log rho")
def mirror_descent(log_ratio_T: Tensor, advantage_T: Tensor, *, tau: float = 1.0) -> Tensor:
    """`opmd` / (2 tau) up to a constant: the policy gradient with a squared log-ratio pull of strength tau / 2."""
    return -(advantage_T * log_ratio_T - tau / 2 * log_ratio_T.square())


@SURROGATES.register("gmpo", "geo_mean", "geometric")
@formula(
    "-A geometric mean over the rollout of rho, each token's log rho clipped to [-{low}, {high}] on its side",
    "geometric mean of rho x A / tokens of the rollout, 0 where the clip holds",
    notes={"eps": ", {eps} added to the length of the rollout"},
)
def gmpo(
    log_ratio_T: Tensor,
    advantage_T: Tensor,
    segment_T: Tensor,
    *,
    low: float = 0.4,
    high: float = 0.4,
    eps: float = 0.0,
) -> Clipped:
    """-A exp(mean of clipped log rho): outlier tokens hardly count (GMPO, arXiv:2507.20673). For the `token` ratio.

    low and high bound log rho, not rho. It is one number per rollout, so use `sequence_mean`. eps: added to the length
    that the mean divides by.
    """
    sign_T = advantage_T.sign()
    inside_T = torch.minimum(sign_T * log_ratio_T, sign_T * log_ratio_T.clamp(-low, high)) * sign_T
    num_rollouts = segments.num_segments(segment_T)
    length_N = segments.count(segment_T, num_rollouts).to(log_ratio_T.dtype) + eps
    mean_T = (segments.total(inside_T, segment_T, num_rollouts) / length_N)[segment_T]
    return Clipped(
        -advantage_T * mean_T.exp(),
        low_T=(log_ratio_T < -low) & (advantage_T < 0),
        high_T=(log_ratio_T > high) & (advantage_T > 0),
    )


@SURROGATES.register("clip_cov")
@whole_minibatch
@formula("as clip({low}, {high}), 0 at up to a share {share} of the tokens with covariance in ({cov_low}, {cov_high})")
def clip_cov(
    log_ratio_T: Tensor,
    policy_logp_T: Tensor,
    advantage_T: Tensor,
    *,
    low: float = 0.2,
    high: float = 0.2,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
    share: float = 0.0002,
) -> Clipped:
    """`clip` without the tokens whose log-prob and advantage covary most, which destroy entropy (arXiv:2505.22617).

    Of the tokens inside the bounds that the clip leaves alone, the first max(1, share x tokens) by covariance are
    dropped; the paper picks them at random. They count as clipped on the side that their advantage pushes to.
    """
    loss_T, low_T, high_T = _clipped_surrogate(log_ratio_T, advantage_T, low, high)
    cov_T = _covariance(policy_logp_T, advantage_T)
    candidates_T = (cov_T > cov_low) & (cov_T < cov_high) & ~low_T & ~high_T
    order = cov_T.masked_fill(~candidates_T, -torch.inf).argsort(descending=True)
    dropped = order[: min(max(int(share * len(cov_T)), 1), int(candidates_T.sum()))]
    dropped_T = torch.zeros_like(low_T).index_fill(0, dropped, True)
    return Clipped(
        loss_T.masked_fill(dropped_T, 0.0),
        low_T | (dropped_T & (advantage_T < 0)),
        high_T | (dropped_T & (advantage_T > 0)),
    )


@SURROGATES.register("kl_cov")
@whole_minibatch
@formula(
    "-rho A, + {coef} |log rho| at the share {share} of tokens of highest covariance",
    "rho A, - {coef} sign(log rho) at the chosen tokens",
)
def kl_cov(
    log_ratio_T: Tensor, policy_logp_T: Tensor, advantage_T: Tensor, *, share: float = 0.002, coef: float = 1.0
) -> Tensor:
    """No clip, but a pull to the anchor on the tokens whose log-prob and advantage covary most (arXiv:2505.22617)."""
    count = max(int(share * len(log_ratio_T)), 1)
    pulled = _covariance(policy_logp_T, advantage_T).topk(min(count, len(log_ratio_T))).indices
    pull_T = torch.zeros_like(log_ratio_T).index_fill(0, pulled, coef)
    return -log_ratio_T.exp() * advantage_T + pull_T * log_ratio_T.abs()


@VALUES.register("squared_error", "clipped")
@formula(
    "{coef} x {scale} x (V - return)^2",
    notes={"clip": ", or the same with V within {clip} of its old value where that is larger"},
)
def squared_error(
    value_T: Tensor,
    old_value_T: Tensor,
    return_T: Tensor,
    *,
    coef: float = 1.0,
    scale: float = 0.5,
    clip: float | None = 0.2,
) -> Tensor:
    """coef x scale x max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) (PPO2; arXiv:2005.12729).

    clip None: no clipping. The return R carries no gradient.
    """
    error_T = (value_T - return_T).square()
    if clip is not None:
        near_T = torch.maximum(torch.minimum(value_T, old_value_T + clip), old_value_T - clip)
        error_T = torch.maximum(error_T, (near_T - return_T).square())
    return coef * scale * error_T


def _clipped_surrogate(log_ratio_T: Tensor, advantage_T: Tensor, low: float, high: float) -> Clipped:
    ratio_T = log_ratio_T.exp()
    return Clipped(
        torch.maximum(-ratio_T * advantage_T, -ratio_T.clamp(1 - low, 1 + high) * advantage_T),
        low_T=(ratio_T < 1 - low) & (advantage_T < 0),
        high_T=(ratio_T > 1 + high) & (advantage_T > 0),
    )


def _covariance(policy_logp_T: Tensor, advantage_T: Tensor) -> Tensor:
    logp_T = policy_logp_T.detach()
    return (advantage_T - advantage_T.mean()) * (logp_T - logp_T.mean())

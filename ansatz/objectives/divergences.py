"""Divergences of whole distributions: components of `algorithm.kl`, for a reference or a teacher.

Axes: T tokens, V vocabulary. p is the policy and q the reference, as log-probs [T, V] of rows that add up to 1.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, Literal

import torch
from torch import Tensor

from ansatz.objectives.components import Function, formula
from ansatz.objectives.kl import Divergence, exact_kl
from ansatz.registry import settings_of


def exact(divergence: Divergence) -> Function:
    """Turn a function of whole distributions, log-probs [T, V] of the policy and of the reference, into a component.

    The trainer computes its value (`Objective.token_divergence`); the component itself only gets the result.
    """

    @functools.wraps(divergence)
    def component(full_kl_T: Tensor, **settings: Any) -> Tensor:
        return full_kl_T

    value = inspect.Parameter("full_kl_T", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
    component.__dict__["__signature__"] = inspect.Signature([value, *settings_of(divergence).values()])
    component.__dict__["divergence"] = divergence
    return component


@formula("sum over the vocabulary of policy log(policy / reference)")
@exact
def full(policy_logp_TV: Tensor, ref_logp_TV: Tensor) -> Tensor:
    """The exact KL at each token, without sampling noise. The trainer computes it from whole distributions.

    It is taken over the whole vocabulary, also where top-k, top-p or min-p restricted the sampling. Only the reference
    and the teacher are kept as models, so `kl_to` must be one of them.
    """
    return exact_kl(policy_logp_TV, ref_logp_TV)


@formula("sum over the vocabulary of reference log(reference / policy)")
@exact
def full_reverse(policy_logp_TV: Tensor, ref_logp_TV: Tensor) -> Tensor:
    """The exact KL(reference || policy) at each token. It is large where the policy hardly ever writes what the
    reference writes, so the policy keeps all of the reference's ways. Otherwise as `full`."""
    return exact_kl(ref_logp_TV, policy_logp_TV)


@formula("{mixing} KL(reference || m) + (1 - {mixing}) KL(policy || m), m = {mixing} reference + (1 - {mixing}) policy")
@exact
def jensen_shannon(policy_logp_TV: Tensor, ref_logp_TV: Tensor, *, mixing: float = 0.5) -> Tensor:
    """The generalised Jensen-Shannon divergence of GKD (arXiv:2306.13649).

    It is bounded, symmetric at 0.5, and leans to KL(reference || policy) for a mixing near 0 and to KL(policy ||
    reference) near 1. At 0 and 1 themselves it is that KL, as in TRL and not 0 as in the formula: divided by mixing
    and by 1 - mixing, it tends to the two.
    """
    if mixing in (0, 1):
        return exact_kl(policy_logp_TV, ref_logp_TV) if mixing else exact_kl(ref_logp_TV, policy_logp_TV)
    mixed = torch.stack([ref_logp_TV + math.log(mixing), policy_logp_TV + math.log1p(-mixing)]).logsumexp(0)
    return mixing * exact_kl(ref_logp_TV, mixed) + (1 - mixing) * exact_kl(policy_logp_TV, mixed)


@formula(
    "sum of p log(p / q) over the {k} most likely tokens of each and all others as one token, p = {of}",
    notes={"of": {"policy": ", q = reference", "reference": ", q = policy"}},
)
@exact
def top_k(
    policy_logp_TV: Tensor, ref_logp_TV: Tensor, *, k: int = 100, of: Literal["policy", "reference"] = "policy"
) -> Tensor:
    """The KL over the union S of the k most likely tokens of the policy and of the reference, with a tail.

    sum over S of p log(p / q) + (1 - p(S)) log((1 - p(S)) / (1 - q(S))), with p and q swapped for `of: reference`. It
    is the KL of distributions in which all other tokens are one, so it is at least 0, at most the exact KL, and equal
    to it if S is the vocabulary. Without the last term the sum is no KL and can be negative.
    """
    likely_TV = torch.zeros_like(policy_logp_TV, dtype=torch.bool)
    for logp_TV in (policy_logp_TV.detach(), ref_logp_TV):
        likely_TV = likely_TV.scatter(-1, logp_TV.topk(min(k, logp_TV.shape[-1]), dim=-1).indices, True)
    first, second = (
        _with_tail(logp_TV, likely_TV)
        for logp_TV in ((policy_logp_TV, ref_logp_TV) if of == "policy" else (ref_logp_TV, policy_logp_TV))
    )
    return exact_kl(first, second)


def _with_tail(logp_TV: Tensor, likely_TV: Tensor) -> Tensor:
    """Return log-probs [T, V + 1] in which all unlikely tokens are one entry, the last. Theirs are those of the
    smallest number, so that they add nothing."""
    least = math.log(torch.finfo(logp_TV.dtype).tiny)  # not -inf, whose gradient would be nan
    tail_T1 = logp_TV.masked_fill(likely_TV, least).logsumexp(-1, keepdim=True)
    return torch.cat([logp_TV.masked_fill(~likely_TV, least), tail_T1], dim=-1)

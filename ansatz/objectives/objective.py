"""The objective of a run: a frozen record of pure components and coefficients.

Axes: N rollouts, T flat tokens (prompts and responses). A training step calls, in this order (losses add up):

    advantages = objective.advantages(reward_N, group_N, segment_T=..., mask_T=sampled_mask_T)  on the whole step
    mask_T = objective.loss_mask(segment_T, sampled_mask_T, truncated_N=...)                    on the whole step
    weight_T = objective.token_weights(segment_T, mask_T, num_rollouts=N)                       on a minibatch
    parts = objective.loss(batch, policy_logp_T, entropy_T)                                     on microbatches

Tokens outside `mask_T` can hold any finite values: they are removed before a component sees them. `at` and `masked`
take the tokens of a mask out of a T axis, and `scattered` puts them back. Sampler mismatch is the difference between
behavior_logp_T and old_logp_T: it would be 0 if sampler and trainer computed the same, with the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import torch
from torch import Tensor

from ansatz.objectives import diagnostics
from ansatz.objectives.advantage_rule import Advantages, at, compute_advantages, masked, scattered
from ansatz.objectives.components import Clipped, Component
from ansatz.objectives.kl import Divergence, bound_divergence


class WeightedTokens(Protocol):
    """Tokens that count in a loss, and their weights; 0 outside the mask."""

    @property
    def mask_T(self) -> Tensor: ...
    @property
    def weight_T(self) -> Tensor: ...


class TokenBatch(WeightedTokens, Protocol):
    """A microbatch of whole rollouts on one flat token axis, float32 or float64.

    segment_T: rollout of each token, 0..N-1 within the microbatch. sampled_mask_T: True where the policy sampled the
    token. mask_T: the sampled tokens that count in the loss (without masks, all of them).
    advantage_T: 0 outside the mask. weight_T: 0 outside the mask; computed on the whole minibatch. penalty_weight_T:
    weights of the KL and entropy terms, None if they are `weight_T`. likelihood_weight_T: None without a likelihood
    term. ref_logp_T: None unless `objective.needs_ref`.
    """

    @property
    def segment_T(self) -> Tensor: ...
    @property
    def sampled_mask_T(self) -> Tensor: ...
    @property
    def old_logp_T(self) -> Tensor: ...
    @property
    def behavior_logp_T(self) -> Tensor: ...
    @property
    def ref_logp_T(self) -> Tensor | None: ...
    @property
    def advantage_T(self) -> Tensor: ...
    @property
    def penalty_weight_T(self) -> Tensor | None: ...
    @property
    def likelihood_weight_T(self) -> Tensor | None: ...


class MinibatchWeights(TypedDict):
    """The weights of tokens, which depend on the rollouts that share an optimizer step.

    penalty_weight_T: of the KL and entropy terms; None if they equal the weights of the surrogate.
    likelihood_weight_T: 0 except at tokens of rollouts with reward > 0; None without a likelihood term.
    """

    weight_T: Tensor
    penalty_weight_T: Tensor | None
    likelihood_weight_T: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """loss: scalar with gradient. sums: detached scalars that add up over microbatches and ranks. maxima: as named.

    sums: tokens, surrogate (weighted: the policy term of the loss), ratio, clipped_low and clipped_high (tokens that a
    component clipped, see `components.Clipped`), approx_kl (k1 of anchor over policy), and where they exist kl,
    kl_loss, entropy, likelihood. All are counts or plain sums over the mask's tokens, except surrogate, kl_loss and
    likelihood, which are weighted. maxima: ratio, log_ratio_abs.
    mismatch_weight_T: the correction for sampler mismatch that the loss was multiplied with (1 if there is none); 0 at
    tokens that the policy did not sample. clipped_T: True where a component clipped the token.
    """

    loss: Tensor
    sums: dict[str, Tensor]
    maxima: dict[str, Tensor]
    mismatch_weight_T: Tensor
    clipped_T: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Built by `build.build_objective`. Every field is a key of a recipe's `algorithm:` section; see `presets.KEYS`."""

    preset: str
    advantage: Component
    ratio: Component
    surrogate: Component
    kl: Component
    weights: Component
    penalty_weights: Component | None = None
    correction: tuple[Component, ...] = ()
    masks: tuple[Component, ...] = ()
    reward_whiten: Component | None = None
    whiten: Component | None = None
    value: Component | None = None
    likelihood_weights: Component | None = None
    anchor: str = "old"
    advantage_clip: tuple[float, float] | None = None
    policy_coef: float = 1.0
    kl_coef: float = 0.0
    kl_control: Component | None = None
    kl_in: str = "loss"
    kl_to: str = "ref"
    entropy_coef: float = 0.0
    entropy_tokens: str = "all"
    entropy_target: float | None = None
    likelihood_coef: float = 0.0
    max_ratio: float | None = None

    @property
    def needs_ref(self) -> bool:
        """Tell whether reference log-probs are used. A coefficient of 0 needs no reference model. A teacher is a
        reference that the recipe names."""
        return self.kl_coef != 0 and self.kl_to in ("ref", "teacher")

    @property
    def needs_values(self) -> bool:
        """Tell whether a critic is needed."""
        return "value_T" in self.advantage.inputs

    @property
    def advantages_need_old_logp(self) -> bool:
        """Tell whether `advantages` needs log-probs from before the update, for a KL in rewards or advantages."""
        return self.kl_coef != 0 and self.kl_in != "loss"

    @property
    def token_divergence(self) -> Divergence | None:
        """Return the function that computes the KL (`full_kl_T`) from whole distributions, log-probs [T, V] of the
        policy and of the reference; None if it needs only the log-probs of the sampled tokens."""
        if self.kl_coef == 0 or "full_kl_T" not in self.kl.inputs:
            return None
        return bound_divergence(self.kl.function, self.kl.settings)

    @property
    def corrects_mismatch(self) -> bool:
        """Tell whether a correction weighs tokens by old / behavior, and so accounts for the policy that sampled
        them. Exactly these corrections are marked `sees_rejected`, see `_mismatch_weights`."""
        return any(component.sees_rejected for component in self.correction)

    @property
    def needs_group(self) -> bool:
        """Tell whether a rollout is compared with others of its prompt."""
        return "group_N" in self.advantage.inputs

    @property
    def needs_entropy(self) -> bool:
        selects_by_entropy = any("entropy_T" in component.inputs for component in self.correction)
        return selects_by_entropy or self.entropy_coef != 0 or self.entropy_target is not None

    @property
    def whole_minibatch(self) -> bool:
        """Tell whether a component compares tokens of the whole minibatch, which must then be one microbatch."""
        return any(component.whole_minibatch for component in (self.surrogate, *self.correction))

    @property
    def whole_groups(self) -> bool:
        """Tell whether a group of rollouts must be in one microbatch, because the loss compares them. Here it does not;
        `PreferenceObjective` overrides this."""
        return False

    def stops(self, sums: Mapping[str, Tensor | float]) -> bool:
        """Tell whether to drop a minibatch, given its sums over all microbatches, and the later updates of the step."""
        return self.max_ratio is not None and float(sums["ratio"]) > self.max_ratio * float(sums["tokens"])

    def value_loss(self, batch: WeightedTokens, value_T: Tensor, old_value_T: Tensor, return_T: Tensor) -> Tensor:
        """Compute the critic's loss on a microbatch, weighted like the policy's. Only `value_T` has gradient."""
        if self.value is None:
            raise ValueError(f"{self.preset} has no critic: set algorithm.value.")
        mask_T = batch.mask_T
        inputs = {"value_T": value_T[mask_T], "old_value_T": old_value_T[mask_T], "return_T": return_T[mask_T]}
        return (self.value(inputs) * batch.weight_T[mask_T]).sum()

    def advantages(
        self,
        reward_N: Tensor,
        group_N: Tensor,
        *,
        segment_T: Tensor,
        mask_T: Tensor,
        state_T: Tensor | None = None,
        **extra: Tensor | None,
    ) -> Advantages:
        """Compute the advantages of the whole step, in the order that `advantage_rule` describes.

        state_T: the tokens that are states for components such as GAE, which discount and bootstrap from each to the
        next. None means `mask_T`; pass all response tokens to let tool output count as time.
        extra: other inputs of components, on the N or T axis of the step: old_logp_T, ref_logp_T, value_T, baseline_N,
        component_NK, step_reward_T, step_end_T, and token_reward_T for dense rewards (instead of `reward_N` at the last
        token).
        """
        states_T = mask_T if state_T is None else state_T
        tokens = {"segment_T": segment_T, "mask_T": mask_T, "state_T": states_T}
        return compute_advantages(self, reward_N, group_N, **tokens, extra=extra)

    def loss_mask(self, segment_T: Tensor, mask_T: Tensor, **extra: Tensor | None) -> Tensor:
        """Return the tokens that count in the loss and in its denominators: `mask_T` without the tokens that `masks`
        reject.

        extra: the inputs of the masks: truncated_N (True if a rollout hit the length limit), old_logp_T,
        behavior_logp_T. Every mask sees the original tokens, so their order does not matter.
        """
        inputs = {**masked(extra, mask_T), "segment_T": segment_T[mask_T]}
        kept_T = torch.ones_like(inputs["segment_T"], dtype=torch.bool)
        for component in self.masks:
            kept_T = kept_T & component(inputs)
        return scattered(kept_T, mask_T)

    def token_weights(
        self,
        segment_T: Tensor,
        mask_T: Tensor,
        *,
        num_rollouts: int,
        group_N: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the weight of each token, 0 outside the mask.

        Call it once per minibatch, before the split into microbatches.

        group_N: the prompt of each rollout; only prompt_mean needs it.
        """
        return _weights(self.weights, segment_T, mask_T, num_rollouts, group_N).to(dtype)

    def minibatch_weights(
        self,
        segment_T: Tensor,
        mask_T: Tensor,
        reward_N: Tensor,
        *,
        group_N: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> MinibatchWeights:
        """Return all weights of a minibatch; see `token_weights`."""

        def weights(component: Component, counted_T: Tensor) -> Tensor:
            return _weights(component, segment_T, counted_T, len(reward_N), group_N).to(dtype)

        likelihood_weight_T: Tensor | None = None
        if self.likelihood_weights is not None and self.likelihood_coef != 0:
            likelihood_weight_T = weights(self.likelihood_weights, mask_T & (reward_N > 0)[segment_T])
        return {
            "weight_T": weights(self.weights, mask_T),
            "penalty_weight_T": None if self.penalty_weights is None else weights(self.penalty_weights, mask_T),
            "likelihood_weight_T": likelihood_weight_T,
        }

    def loss(
        self,
        batch: TokenBatch,
        policy_logp_T: Tensor,
        entropy_T: Tensor | None = None,
        *,
        full_kl_T: Tensor | None = None,
        entropy_coef: float | None = None,
    ) -> LossParts:
        """Compute the loss of a microbatch: policy, KL, entropy and likelihood terms, each a weighted sum over its
        tokens.

        entropy_coef: coefficient of an adaptive bonus; None: the objective's own.
        """
        entropy_coef = self.entropy_coef if entropy_coef is None else entropy_coef
        inputs = self._inputs(batch, policy_logp_T, entropy_T, full_kl_T)
        penalty_weight_T = inputs["weight_T"] if inputs["penalty_weight_T"] is None else inputs["penalty_weight_T"]

        term_T, low_T, high_T = self._policy_term(inputs)
        surrogate = (term_T * inputs["weight_T"]).sum()
        loss = self.policy_coef * surrogate
        sums = diagnostics.ratio_sums(inputs["log_ratio_T"], low_T, high_T) | {"surrogate": surrogate.detach()}
        if self.kl_coef != 0 and self.kl_in == "loss":
            kl_T = self.kl(inputs)
            kl_loss = (kl_T * penalty_weight_T).sum()
            loss = loss + self.kl_coef * kl_loss
            sums |= {"kl": kl_T.detach().sum(), "kl_loss": kl_loss.detach()}
        if inputs["entropy_T"] is not None:
            sums["entropy"] = inputs["entropy_T"].detach().sum()
            if entropy_coef != 0:
                weight_T = self._entropy_weights(inputs, penalty_weight_T)
                loss = loss - entropy_coef * (inputs["entropy_T"] * weight_T).sum()
        elif entropy_coef != 0:
            raise ValueError("algorithm.entropy_coef is not 0, but loss() was called without entropy_T.")
        if batch.likelihood_weight_T is not None:
            likelihood = -(inputs["policy_logp_T"] * batch.likelihood_weight_T[batch.mask_T]).sum()
            loss = loss + self.likelihood_coef * likelihood
            sums["likelihood"] = likelihood.detach()
        return LossParts(
            loss=loss,
            sums=sums,
            maxima=diagnostics.ratio_maxima(inputs["log_ratio_T"]),
            mismatch_weight_T=scattered(inputs["sampled_weight_T"], batch.sampled_mask_T),
            clipped_T=scattered(low_T | high_T, mask_T=batch.mask_T),
        )

    def _policy_term(self, inputs: dict[str, Any]) -> Clipped:
        """Return surrogate x corrections at each token, and the tokens that either of them clipped."""
        loss_T, low_T, high_T = self.surrogate.clipping(inputs)
        if "mismatch_weight_T" not in self.surrogate.inputs:  # the surrogate `vespo` applies it itself
            loss_T = loss_T * inputs["mismatch_weight_T"]
        for component in self.correction:
            if not component.sees_rejected:
                factor_T, below_T, above_T = component.clipping(inputs)
                loss_T, low_T, high_T = loss_T * factor_T, low_T | below_T, high_T | above_T
        return Clipped(loss_T, low_T & ~high_T, high_T)  # what is clipped both ways counts as high

    def _entropy_weights(self, inputs: dict[str, Any], weight_T: Tensor) -> Tensor:
        """Return the weights of the entropy bonus: all tokens, or only those that entropy-based corrections keep.

        "kept" keeps the weights of those tokens; "kept_mean" also rescales them to the total of all weights.
        """
        if self.entropy_tokens == "all":
            return weight_T
        kept_T = weight_T
        for component in self.correction:
            if "entropy_T" in component.inputs:
                kept_T = kept_T * component(inputs)
        if self.entropy_tokens == "kept":
            return kept_T
        return kept_T * weight_T.sum() / kept_T.sum().clamp(min=torch.finfo(kept_T.dtype).tiny)

    def _mismatch_weights(self, batch: TokenBatch) -> Tensor:
        """Return the factor that corrects for sampler mismatch, at the tokens of `batch.sampled_mask_T`.

        It is computed over all sampled tokens, before masks reject any. A correction over a rollout or over the
        minibatch therefore includes rejected tokens. 1 without such corrections.
        """
        mask_T = batch.sampled_mask_T
        names = ("old_logp_T", "behavior_logp_T", "advantage_T", "segment_T")
        inputs = {name: getattr(batch, name)[mask_T] for name in names}
        weight_T = torch.ones_like(inputs["old_logp_T"])
        for component in self.correction:
            if component.sees_rejected:  # those that weigh by old / behavior
                weight_T = weight_T * component(inputs)
        return weight_T

    def _inputs(
        self, batch: TokenBatch, policy_logp_T: Tensor, entropy_T: Tensor | None, full_kl_T: Tensor | None
    ) -> dict[str, Any]:
        """Collect everything that components can have as inputs, at the tokens that count in the loss."""
        mask_T = batch.mask_T
        policy_T = policy_logp_T[mask_T]
        anchors = {
            "old": batch.old_logp_T[mask_T],
            "behavior": batch.behavior_logp_T[mask_T],
            "policy": policy_T.detach(),
        }
        sampled_weight_T = self._mismatch_weights(batch)
        inputs: dict[str, Any] = {
            "segment_T": batch.segment_T[mask_T],
            "policy_logp_T": policy_T,
            "old_logp_T": anchors["old"],
            "anchor_logp_T": anchors[self.anchor],
            "behavior_logp_T": anchors["behavior"],
            "ref_logp_T": anchors[self.kl_to] if self.kl_to in anchors else at(batch.ref_logp_T, mask_T),
            "advantage_T": batch.advantage_T[mask_T],
            "weight_T": batch.weight_T[mask_T],
            "penalty_weight_T": at(batch.penalty_weight_T, mask_T),
            "entropy_T": at(entropy_T, mask_T),
            "full_kl_T": at(full_kl_T, mask_T),
            "sampled_weight_T": sampled_weight_T,  # at all sampled tokens: for `LossParts`, no input of a component
            "mismatch_weight_T": sampled_weight_T[mask_T[batch.sampled_mask_T]],  # mask_T lies within sampled_mask_T
        }
        return {**inputs, "log_ratio_T": self.ratio(inputs)}


def _weights(
    component: Component, segment_T: Tensor, mask_T: Tensor, num_rollouts: int, group_N: Tensor | None
) -> Tensor:
    inputs = {"segment_T": segment_T[mask_T], "num_rollouts": num_rollouts, "group_N": group_N}
    return scattered(component(inputs), mask_T)

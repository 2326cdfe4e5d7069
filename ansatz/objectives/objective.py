"""The objective of a run: a small frozen record of pure components and coefficients.

Axes: N rollouts, T flat tokens (prompts and responses). One step asks, in this order:

    advantages = objective.advantages(reward_N, group_N, segment_T=..., mask_T=...)   the whole step
    mask_T = objective.loss_mask(segment_T, mask_T, truncated_N=...)                  the whole step
    weight_T = objective.token_weights(segment_T, mask_T, num_rollouts=N)             an update's minibatch
    parts = objective.loss(slice, policy_logp_T, entropy_T)                           any slice; all adds up

Tokens outside `mask_T` may hold any finite values: they are cut away before a component sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ansatz.errors import ConfigError
from ansatz.objectives import diagnostics
from ansatz.objectives.advantage_rule import AdvantageRule, Advantages, at, chosen, scattered
from ansatz.objectives.components import Component


class TokenBatch(Protocol):
    """A slice of whole rollouts on one flat token axis, float32 or float64.

    segment_T: rollout of each token, 0..N-1 within the slice. sampled_mask_T: True where the policy sampled the token.
    mask_T: the sampled tokens that count in the loss (without masks, all of them).
    weight_T, advantage_T: 0 outside the mask; made on the whole step. penalty_weight_T: weights of the KL and entropy
    terms, None when they are `weight_T`. ref_logp_T: None unless `objective.needs_ref`.
    """

    @property
    def segment_T(self) -> Tensor: ...
    @property
    def mask_T(self) -> Tensor: ...
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
    def weight_T(self) -> Tensor: ...
    @property
    def penalty_weight_T(self) -> Tensor | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """loss: scalar with gradient. sums: detached scalars that add up over slices and ranks. maxima: take the largest.

    sums: tokens, surrogate (weighted: the policy term of the loss), ratio, clipped_low, clipped_high, approx_kl (k1 of
    anchor over policy), dropped (tokens whose correction is 0), and where they exist kl, kl_loss, entropy. All are
    counts or plain sums over response tokens, except surrogate and kl_loss, which are weighted. maxima: ratio,
    log_ratio_abs. mismatch_weight_T: see `Objective.mismatch_weights`.
    """

    loss: Tensor
    sums: dict[str, Tensor]
    maxima: dict[str, Tensor]
    mismatch_weight_T: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Built by `build.build_objective`; every field is a key of the recipe's `algorithm:` section."""

    preset: str
    advantage: Component
    ratio: Component
    surrogate: Component
    kl: Component
    weights: Component
    penalty_weights: Component | None = None
    correction: tuple[Component, ...] = ()
    masks: tuple[Component, ...] = ()
    whiten: Component | None = None
    value: Component | None = None
    anchor: str = "old"
    kl_coef: float = 0.0
    kl_in: str = "loss"
    kl_to: str = "ref"
    entropy_coef: float = 0.0
    entropy_target: float | None = None
    max_ratio: float | None = None

    @property
    def needs_ref(self) -> bool:
        """Whether reference log-probs are used at all; a coefficient of 0 needs no reference model."""
        return self.kl_coef != 0 and self.kl_to == "ref"

    @property
    def needs_values(self) -> bool:
        """Whether a critic is needed."""
        return "value_T" in self.advantage.inputs

    @property
    def advantages_need_old_logp(self) -> bool:
        """Whether `advantages` must be given log-probs from before the update: for a KL in the reward."""
        return self.kl_coef != 0 and self.kl_in != "loss"

    @property
    def needs_group(self) -> bool:
        """Whether a rollout is compared with others of its prompt."""
        return "group_N" in self.advantage.inputs

    @property
    def needs_entropy(self) -> bool:
        asked = any("entropy_T" in component.inputs for component in self.correction)
        return asked or self.entropy_coef != 0 or self.entropy_target is not None

    @property
    def whole_minibatch(self) -> bool:
        """Whether a component compares tokens of the whole minibatch, so that it must be one slice."""
        return any(component.whole_minibatch for component in (self.surrogate, *self.correction))

    def formula(self) -> str:
        """The resolved objective as one formula in words, with every constant, one component a line."""
        terms = ["weight x surrogate"]
        if self.kl_coef and self.kl_in == "loss":
            terms.append(f"+ {self.kl_coef} x weight x KL")
        if self.entropy_coef:
            terms.append(f"- {self.entropy_coef} x weight x entropy")
        lines = [
            f"{self.preset}: loss = sum over response tokens of {' '.join(terms)}",
            f"  advantage   {self.advantage.formula()}",
            f"  ratio       {self.ratio.formula()}, anchor = {self.anchor}",
            f"  surrogate   {self.surrogate.formula()}",
            f"  weight      {self.weights.formula()}",
        ]
        if self.penalty_weights is not None:
            lines.append(f"  penalties   weigh {self.penalty_weights.formula()}")
        if self.whiten is not None:
            lines.insert(2, f"              then {self.whiten.formula()}")
        lines += [f"  correction  {component.formula()}" for component in self.correction]
        lines += [f"  mask        {component.formula()}" for component in self.masks]
        if self.kl_coef:
            lines.append(f"  KL          {self.kl.formula()}, reference = {self.kl_to}, in the {self.kl_in}")
        if self.value is not None:
            lines.append(f"  critic      {self.value.formula()}")
        if self.entropy_target is not None:
            lines.append(f"  entropy     the bonus adapts to hold {self.entropy_target} nats a token")
        if self.max_ratio is not None:
            lines.append(f"  early stop  a minibatch with mean rho > {self.max_ratio} ends the step's updates, unused")
        return "\n".join(lines)

    def check_group_size(self, samples_per_prompt: int) -> None:
        """ConfigError where every advantage would be 0 whatever the rewards: tried on two prompts with unequal
        rewards."""
        if not set(self.advantage.inputs) <= {"reward_N", "group_N", "length_N"}:
            return
        span = max(samples_per_prompt - 1, 1)
        rewards = [(rank + prompt) / span % 1.5 for prompt in range(2) for rank in range(samples_per_prompt)]
        group_N = torch.arange(2).repeat_interleave(samples_per_prompt)
        tried = {"reward_N": torch.tensor(rewards), "group_N": group_N, "length_N": torch.ones_like(group_N)}
        if not self.advantage(tried).any():
            enough = max(self.advantage.settings.get("k", 1) + 1, 2)
            raise ConfigError(
                f"rollout.samples_per_prompt = {samples_per_prompt}: {self.advantage.name} gives every rollout "
                f'advantage 0. Use {enough} or more, or algorithm.advantage = "batch_zscore".'
            )

    def stops(self, sums: Mapping[str, Tensor | float]) -> bool:
        """Whether a minibatch (its sums over all slices and ranks) is to be dropped with the step's later updates."""
        return self.max_ratio is not None and float(sums["ratio"]) > self.max_ratio * float(sums["tokens"])

    def value_loss(self, batch: TokenBatch, value_T: Tensor, old_value_T: Tensor, return_T: Tensor) -> Tensor:
        """The critic's loss on a slice, weighted as the policy's; `value_T` has gradient, the others none."""
        if self.value is None:
            raise ValueError(f"{self.preset} has no critic: set algorithm.value.")
        mask_T = batch.mask_T
        given = {"value_T": value_T[mask_T], "old_value_T": old_value_T[mask_T], "return_T": return_T[mask_T]}
        return (self.value(given) * batch.weight_T[mask_T]).sum()

    def advantages(
        self,
        reward_N: Tensor,
        group_N: Tensor,
        *,
        segment_T: Tensor,
        mask_T: Tensor,
        state_T: Tensor | None = None,
        **given: Tensor | None,
    ) -> Advantages:
        """Advantages of the whole step.

        state_T: the tokens over which token-level components discount and bootstrap; None means `mask_T`. Pass all
        response tokens to let tool output count as time. given: the components' other inputs, on the N or T axis of the
        step: old_logp_T, ref_logp_T, value_T, baseline_N, component_NK, step_reward_T, step_end_T, and token_reward_T
        for dense rewards (instead of `reward_N` at the last token).
        """
        rule = AdvantageRule(
            advantage=self.advantage, whiten=self.whiten, kl=self.kl, kl_coef=self.kl_coef, kl_in=self.kl_in
        )
        states_T = mask_T if state_T is None else state_T
        return rule(reward_N, group_N, segment_T=segment_T, mask_T=mask_T, state_T=states_T, given=given)

    def loss_mask(self, segment_T: Tensor, mask_T: Tensor, **given: Tensor | None) -> Tensor:
        """The tokens that count in the loss and in its denominators: `mask_T` less what the `masks` take out.

        given: what masks ask for: truncated_N (True where a rollout hit the length limit), old_logp_T, behavior_logp_T.
        Without masks it is `mask_T`. Masks look at the original tokens each, so their order does not matter.
        """
        inputs = {**chosen(given, mask_T), "segment_T": segment_T[mask_T]}
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
        """Weight of each token, 0 outside the mask. Call once on all that one optimiser step sees, before any split.

        group_N: the prompt of each rollout, needed by prompt_mean alone.
        """
        return _weights(self.weights, segment_T, mask_T, num_rollouts, group_N).to(dtype)

    def penalty_token_weights(
        self,
        segment_T: Tensor,
        mask_T: Tensor,
        *,
        num_rollouts: int,
        group_N: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor | None:
        """Weights of the KL and entropy terms, None when they are those of the surrogate."""
        if self.penalty_weights is None:
            return None
        return _weights(self.penalty_weights, segment_T, mask_T, num_rollouts, group_N).to(dtype)

    def loss(
        self,
        batch: TokenBatch,
        policy_logp_T: Tensor,
        entropy_T: Tensor | None = None,
        *,
        full_kl_T: Tensor | None = None,
        kl_coef: float | None = None,
        entropy_coef: float | None = None,
    ) -> LossParts:
        """sum(weight x surrogate) + kl_coef sum(weight x kl) - entropy_coef sum(weight x entropy) over the slice.

        kl_coef, entropy_coef: what an adaptive schedule says in place of the objective's own.
        """
        kl_coef = self.kl_coef if kl_coef is None else kl_coef
        entropy_coef = self.entropy_coef if entropy_coef is None else entropy_coef
        given = self._chosen(batch, policy_logp_T, entropy_T, full_kl_T)
        weight_T = given["weight_T"]
        penalty_weight_T = weight_T if given["penalty_weight_T"] is None else given["penalty_weight_T"]

        given["log_ratio_T"] = self.ratio(given)
        mismatch_weight_T = self.mismatch_weights(batch)
        factor_T = mismatch_weight_T[batch.mask_T]
        for component in self.correction:
            if not component.before_rejection:
                factor_T = factor_T * component(given)
        loss = surrogate = (self.surrogate(given) * factor_T * weight_T).sum()
        sums = diagnostics.ratio_sums(given["log_ratio_T"], given["advantage_T"], factor_T, self.surrogate)
        sums["surrogate"] = surrogate.detach()

        if kl_coef != 0 and self.kl_in == "loss":
            kl_T = self.kl(given)
            kl_loss = (kl_T * penalty_weight_T).sum()
            loss = loss + kl_coef * kl_loss
            sums |= {"kl": kl_T.detach().sum(), "kl_loss": kl_loss.detach()}
        if given["entropy_T"] is not None:
            sums["entropy"] = given["entropy_T"].detach().sum()
            if entropy_coef != 0:
                loss = loss - entropy_coef * (given["entropy_T"] * penalty_weight_T).sum()
        elif entropy_coef != 0:
            raise ValueError("algorithm.entropy_coef is not 0, but the loss was given no entropy_T.")
        maxima = diagnostics.ratio_maxima(given["log_ratio_T"])
        return LossParts(loss=loss, sums=sums, maxima=maxima, mismatch_weight_T=mismatch_weight_T)

    def mismatch_weights(self, batch: TokenBatch) -> Tensor:
        """The factor that corrects for sampler mismatch, shape T, 0 at tokens that the policy did not sample.

        It is computed over all sampled tokens, before masks reject any. The weight of a whole rollout, the mean over
        the minibatch and "any token outside" therefore include rejected tokens. 1 without such corrections.
        """
        mask_T = batch.sampled_mask_T
        inputs = {name: getattr(batch, name)[mask_T] for name in ("old_logp_T", "behavior_logp_T", "segment_T")}
        weight_T = torch.ones_like(inputs["old_logp_T"])
        for component in self.correction:
            if component.before_rejection:
                weight_T = weight_T * component(inputs)
        return scattered(weight_T, mask_T)

    def _chosen(
        self, batch: TokenBatch, policy_logp_T: Tensor, entropy_T: Tensor | None, full_kl_T: Tensor | None
    ) -> dict[str, Any]:
        """What the components may ask for, at the tokens that the policy chose."""
        mask_T = batch.mask_T
        policy_T = policy_logp_T[mask_T]
        anchors = {
            "old": batch.old_logp_T[mask_T],
            "behavior": batch.behavior_logp_T[mask_T],
            "policy": policy_T.detach(),
        }
        reference_T = {**anchors, "ref": at(batch.ref_logp_T, mask_T)}[self.kl_to]
        return {
            "segment_T": batch.segment_T[mask_T],
            "policy_logp_T": policy_T,
            "old_logp_T": anchors["old"],
            "anchor_logp_T": anchors[self.anchor],
            "behavior_logp_T": anchors["behavior"],
            "ref_logp_T": reference_T,
            "advantage_T": batch.advantage_T[mask_T],
            "weight_T": batch.weight_T[mask_T],
            "penalty_weight_T": at(batch.penalty_weight_T, mask_T),
            "entropy_T": at(entropy_T, mask_T),
            "full_kl_T": at(full_kl_T, mask_T),
        }


def _weights(
    component: Component, segment_T: Tensor, mask_T: Tensor, num_rollouts: int, group_N: Tensor | None
) -> Tensor:
    given = {"segment_T": segment_T[mask_T], "num_rollouts": num_rollouts, "group_N": group_N}
    return scattered(component(given), mask_T)

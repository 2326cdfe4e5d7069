"""An objective in words: its formula, and the gradient coefficient of a token.

The gradient of every method here is a sum over tokens of coefficient x grad log policy(token). Methods differ in the
source of the tokens, their reward, and the coefficient (DeepSeekMath's unified view, arXiv:2402.03300 sec. 5.2.1).
"""

from __future__ import annotations

from ansatz.objectives.objective import Objective

_SUBTRACTED = {
    "reward": "KL of the token subtracted from its reward",
    "return": "KL from the token on subtracted from A",
    "advantage": "KL of the token subtracted from A",
}
_ANCHORS = {"old": "old", "behavior": "behavior", "policy": "constant(policy)"}


def formula(objective: Objective) -> str:
    """Write the objective as a formula in words with every constant, one component per line."""
    terms = [f"{_policy_coef(objective)}weight x surrogate"]
    if objective.kl_coef and objective.kl_in == "loss":
        terms.append(f"+ {objective.kl_coef} x {_penalty_weight(objective)} x KL")
    if objective.entropy_coef:
        terms.append(f"- {objective.entropy_coef} x {_penalty_weight(objective)} x entropy")
    if objective.likelihood_weights is not None and objective.likelihood_coef:
        terms.append(f"- {objective.likelihood_coef} x likelihood weight x log policy")
    lines = [
        f"{objective.preset}: loss = sum over response tokens of {' '.join(terms)}",
        f"  advantage   {objective.advantage.formula()}",
    ]
    if objective.advantage_clip is not None:
        what = "of rewards " if objective.advantage.per_token else ""
        lines.append(f"              {what}clipped to {list(objective.advantage_clip)}")
    if objective.reward_whiten is not None:
        lines.append(f"              from {objective.reward_whiten.formula()}")
    if objective.whiten is not None:
        lines.append(f"              then {objective.whiten.formula()}")
    lines += [
        f"  ratio       {objective.ratio.formula()}, anchor = {_ANCHORS[objective.anchor]}",
        f"  surrogate   {objective.surrogate.formula()}",
        f"  weight      {objective.weights.formula()}",
    ]
    if objective.penalty_weights is not None and "penalty weight" in lines[0]:
        lines.append(f"  penalties   penalty weight = {objective.penalty_weights.formula()}")
    lines += [f"  correction  {component.formula()}" for component in objective.correction]
    lines += [f"  mask        {component.formula()}" for component in objective.masks]
    if objective.kl_coef:
        lines.append(f"  KL          {objective.kl.formula()}, reference = {objective.kl_to}")
        if objective.kl_in != "loss":
            lines.append(f"              {objective.kl_coef} x {_SUBTRACTED[objective.kl_in]}")
    if objective.kl_control is not None:
        lines.append(f"              {objective.kl_control.formula()}")
    if objective.value is not None:
        lines.append(f"  critic      {objective.value.formula()}")
    if objective.entropy_coef and objective.entropy_tokens != "all":
        rescaled = ", whose weights are rescaled to the total of all" if objective.entropy_tokens == "kept_mean" else ""
        lines.append(f"  entropy     only of the tokens that the entropy threshold keeps{rescaled}")
    if objective.entropy_target is not None:
        lines.append(f"  entropy     the bonus adapts to keep {objective.entropy_target} nats per token")
    if objective.likelihood_weights is not None and objective.likelihood_coef:
        lines.append(f"  likelihood  of rollouts with reward > 0, weight {objective.likelihood_weights.formula()}")
    if objective.max_ratio is not None:
        lines.append(
            f"  early stop  a minibatch with mean rho > {objective.max_ratio} is dropped and ends the step's updates"
        )
    return "\n".join(lines)


def explain(objective: Objective) -> str:
    """The formula and the coefficient, as text."""
    return "\n".join([formula(objective), "", *coefficient(objective)])


def coefficient(objective: Objective) -> list[str]:
    """Describe data source, reward and the factor of grad log policy at one response token (the ascent direction)."""
    source = "responses drawn by the policy" + (", several per prompt" if objective.needs_group else "")
    text = ""
    if objective.policy_coef:
        corrections = [component.formula() for component in objective.correction]
        text = " ".join([f"{_policy_coef(objective)}weight x {objective.surrogate.gradient()}", *corrections])
    if objective.kl_coef and objective.kl_in == "loss":
        text += f" - {objective.kl_coef} x {_penalty_weight(objective)} x {objective.kl.gradient()}"
    if objective.likelihood_weights is not None and objective.likelihood_coef:
        text += f" + {objective.likelihood_coef} x likelihood weight"
    if objective.entropy_coef:
        text += " + the gradient of the entropy bonus"
    reward = "the recipe's rewards"
    if objective.kl_coef and objective.kl_in != "loss":
        reward += f" - {objective.kl_coef} x KL ({objective.kl_in})"
    if "step_reward_T" in objective.advantage.inputs:
        reward = "one reward per reasoning step"
    return [
        "Gradient of a token = coefficient x grad log policy(token):",
        f"  data source  {source}",
        f"  reward       {reward}",
        f"  coefficient  {text.removeprefix(' + ').strip() or 0}",
    ]


def _policy_coef(objective: Objective) -> str:
    return "" if objective.policy_coef == 1 else f"{objective.policy_coef} x "


def _penalty_weight(objective: Objective) -> str:
    return "weight" if objective.penalty_weights is None else "penalty weight"

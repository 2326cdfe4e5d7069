"""Checks the claims that a training run makes by its options against the numbers of a step.

Each claim gets one word (`Claim`). Torch is loaded for the loss alone.

Axes: N rollouts, T flat tokens, K rewards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ansatz.audit.bundle import Array, Bundle
from ansatz.audit.claim import Claim, certified, consistent, contradicts, unknown
from ansatz.audit.promise import Promise, lengths, promise_of
from ansatz.audit.rules import RULES, Rewards, Rule, distance, explanations
from ansatz.audit.token_claims import check_advantage_used, check_gap, check_logps, check_mask

_CORRECTNESS = re.compile(r"correct|accura|right|math|answer|verif|score", re.IGNORECASE)
_PROGRAMS = re.compile(r"code|\bapps\b|\btaco\b|mbpp|humaneval", re.IGNORECASE)  # names of data
_NO_ANSWER = re.compile(r"""\s*(\{\s*["']|\[\s*["'{\[]|(assert|def|import)\s)""")  # objects, lists and tests


def audit(bundle: Bundle, *, recompute: bool = True) -> list[Claim]:
    """Return the claims of a step. recompute: also compute the loss again, which loads torch.

    Example: `[claim.line for claim in audit(read_bundle(folder)) if claim.status == "contradicts"]`.
    """
    promise = promise_of(bundle)
    return [
        check_groups(bundle),
        check_advantage(bundle, promise),
        check_advantage_used(bundle),
        check_mask(bundle, promise),
        *(check_logps(bundle, name) for name in ("policy", "old", "ref")),
        check_gap(bundle),
        check_loss(bundle, promise) if recompute else unknown("loss", "It was not computed again."),
        check_step_gradient(bundle),
        check_rewards(bundle),
    ]


def check_groups(bundle: Bundle) -> Claim:
    """Every group has the size that the options say."""
    group_N, size = bundle.arrays.get("group_N"), bundle.options.get("num_generations")
    if group_N is None or not isinstance(size, int):
        return unknown("groups", "Groups or their size are not in the bundle.")
    odd = [f"group {group} has {count}" for group, count in sorted(Counter(group_N.tolist()).items()) if count != size]
    if odd:
        return contradicts("groups", f"Groups do not have {size} rollouts.", example=f"{odd[0]}.")
    return certified("groups", f"{len(set(group_N.tolist()))} groups of {size} rollouts.")


def rewards_of(bundle: Bundle) -> Rewards | None:
    """Collect the inputs of an advantage rule. None if the bundle lacks groups or rewards."""
    group_N, reward_N, part_NK = (bundle.get(name) for name in ("group_N", "reward_N", "component_NK"))
    if group_N is None or (reward_N is None and part_NK is None):
        return None
    if part_NK is None or not part_NK.size:
        part_NK = np.zeros((len(group_N), 0)) if reward_N is None else reward_N[:, None]
    given: Any = bundle.options.get("reward_weights")
    weight_K = np.array(
        given if isinstance(given, list) and len(given) == part_NK.shape[1] else np.ones(part_NK.shape[1])
    )
    if reward_N is None:
        reward_N = np.nansum(part_NK * weight_K, 1)
    return Rewards(reward_N, group_N, np.nan_to_num(part_NK), weight_K.astype(float), lengths(bundle))


def advantages_of(bundle: Bundle) -> Array | None:
    """Return one advantage per rollout, nan where none of its tokens counts in the loss; None if the tokens of a
    rollout differ."""
    advantage_N, advantage_T = bundle.get("advantage_N"), bundle.get("advantage_T")
    mask_T = next((bundle.arrays[name] for name in ("mask_T", "sampled_mask_T") if name in bundle), None)
    if advantage_N is not None or advantage_T is None or mask_T is None:
        return advantage_N
    at_T = mask_T != 0
    segment_T, found_N = bundle.arrays["segment_T"][at_T], np.full(bundle.num_rollouts, np.nan)
    found_N[segment_T] = advantage_T[at_T]
    return found_N if np.allclose(found_N[segment_T], advantage_T[at_T]) else None


def check_advantage(bundle: Bundle, promise: Promise | str) -> Claim:
    """Advantages follow from rewards by the promised rule."""
    given, advantage_N = rewards_of(bundle), advantages_of(bundle)
    if given is None or advantage_N is None:
        return unknown("advantage", "Rewards, groups or advantages of rollouts are not in the bundle.")
    lost_N = np.isnan(advantage_N) & ("advantage_N" not in bundle)
    odd = np.flatnonzero(~np.isfinite(np.where(lost_N, 0, advantage_N) + given.reward_N))
    if len(odd):
        says = "A reward or an advantage is not a finite number."
        return contradicts("advantage", says, example=f"rollout {odd[0]}.")
    if lost_N.any():
        says = f"{lost_N.sum()} of {len(lost_N)} rollouts have no token that counts in the loss"
        return unknown("advantage", f"{says}, so their advantages are not known.")
    found = explanations(given, advantage_N)
    names = list(dict.fromkeys(rule.text() for rule in found))
    if isinstance(promise, str):
        says = f"The rule is {names[0]}." if names else "No known rule explains the advantages."
        return unknown("advantage", f"{says} The options promise no rule: {promise}.", others=names[1:])
    rule = promised_rule(bundle, promise, given)
    if isinstance(rule, str):
        return unknown("advantage", rule)
    if distance(rule, given, advantage_N) <= 2e-5:
        if not np.abs(advantage_N).max(initial=0):
            return unknown("advantage", "All advantages are 0.")
        others = [name for name in names if _plain(name) != _plain(rule.text())]
        verdict = consistent if others else certified
        return verdict("advantage", f"The rule is {rule.text()}, as promised.", others=others)
    return _other_advantage(rule, given, advantage_N, names)


def _other_advantage(rule: Rule, given: Rewards, advantage_N: Array, names: list[str]) -> Claim:
    wanted_N = rule(given)
    off_N = np.abs(wanted_N - advantage_N)
    row = int(off_N.argmax())
    members = np.flatnonzero(given.group_N == given.group_N[row])
    rewards = ", ".join(f"{value:.6g}" for value in given.reward_N[members][:8])
    example = (
        f"rollout {row} in the group with rewards {rewards} has the advantage {advantage_N[row]:.6g}, promised "
        f"{wanted_N[row]:.6g}."
    )
    says = f"Promised: {rule.text()}."
    scale = max(float(np.abs(wanted_N).max()), 1e-9)
    if names:
        says = f"The rule is {names[0]}. {says}"
    elif float(np.abs(advantage_N).max()) > 20 * scale:
        says = (
            f"No known rule explains the advantages: a spike, as if a std that is only rounding error divided. {says}"
        )
    else:
        says = f"No known rule explains the advantages. {says}"
    return contradicts("advantage", says, example=example, others=names[1:])


def _plain(name: str) -> str:
    return re.sub(r"eps [\de.-]+", "", name)


def promised_rule(bundle: Bundle, promise: Promise, given: Rewards) -> Rule | str:
    """Return the numpy rule for a promise, or a sentence that says why it cannot be applied to this bundle."""
    name, settings = promise.component("advantage")
    whiten, how = promise.component("whiten")
    if name not in RULES:
        return f"The promised rule {name} needs more than rewards."
    kept = {key: settings[key] for key in ("ddof", "eps", "std_over") if key in settings}
    is_alone = bool((np.unique(given.group_N, return_counts=True)[1] == 1).any())
    known = {  # what `Rule` does, or what changes nothing here
        "single": ("zero",) if is_alone else ("zero", "keep"),
        "signed": (False,) if (given.reward_N < 0).any() else (False, True),
        "normalizer": ("group_zscore",),
        "component_weights": (None, bundle.options.get("reward_weights")),
    }
    other = {key: value for key, value in settings.items() if key not in kept and value not in known.get(key, ())}
    plain = {"kl_in": "loss", "advantage_clip": None}
    other |= {key: promise.spec[key] for key, value in plain.items() if promise.spec.get(key, value) != value}
    whitens = whiten not in ("none", "None")
    if whitens and not (name == "gdpo" and whiten == "rollouts" and _is_std({"eps": 1e-4, "ddof": 1, **kept}, how)):
        other["whiten"] = whiten
    obstacles = [f"{key} = {value} has no counterpart here" for key, value in other.items()]
    if (whitens or name == "batch_zscore" or kept.get("std_over") == "batch") and not promise.whole:
        obstacles.append("the bundle does not have exactly the rollouts of a whole step")
    if name == "opo" and not given.length_N.any():
        obstacles.append("the lengths of responses are not known")
    part_NK = bundle.get("component_NK")
    if name == "gdpo" and (part_NK is None or not part_NK.size or np.isnan(part_NK).any()):
        obstacles.append("some components of the rewards are not known")
    if obstacles:
        return f"The promised rule {name} cannot be computed: {'; '.join(obstacles)}."
    return Rule(name, {**kept, "whiten": whitens} if name == "gdpo" else kept)


def _is_std(kept: Mapping[str, Any], how: Mapping[str, Any]) -> bool:
    """Tell whether whitening divides by std + eps with the constants of the rule itself."""
    plain = {"center": True, "scale": True, "eps_in": "std", "mean_eps": 0.0}
    return {**plain, "ddof": 1, "eps": 1e-8, "eps_in": "var", **how} == {**plain, **kept}


def check_loss(bundle: Bundle, promise: Promise | str) -> Claim:
    """Check that the promised formula gives the value and the gradient of the loss; see `audit.loss`."""
    needed = [name for name in ("policy_logp_T", "advantage_T", "mask_T", "group_N") if name not in bundle]
    if needed:
        return unknown("loss", f"{', '.join(needed)} not in the bundle.")
    if isinstance(promise, str):
        return unknown("loss", f"The options promise no formula: {promise}.")
    from ansatz.audit.explain_loss import explain_loss

    return explain_loss(bundle, promise)


def check_step_gradient(bundle: Bundle) -> Claim:
    """Check that the gradient of the optimizer step is the sum of the gradients of its microbatches."""
    again: Any = bundle.notes.get("again") or {}
    norm, found = again.get("grad_norm"), bundle.expected.get("grad_norm")
    if norm is None or found is None or not norm:
        return unknown("step gradient", "The gradient was not computed again.")
    if not np.isfinite(found):
        return unknown("step gradient", f"Its norm is {found}, so no step was made with it.")
    if abs(found - norm) <= 0.01 * norm and again.get("cosine", 1.0) > 0.999:
        return certified("step gradient", f"It has the norm {found:.6g}, computed again {norm:.6g}.")
    last = again.get("grad_norm_of_last")
    says = f"Its norm is {found:.6g}, the sum over all microbatches has {norm:.6g}"
    if last is not None and abs(found - last) <= 0.01 * max(last, 1e-12):
        says += ": it is that of the last microbatch alone"
    return contradicts("step gradient", f"{says}.")


def check_rewards(bundle: Bundle) -> Claim:
    """Rewards for right answers agree with our verifier."""
    golds_N = [_golds(text) for text in bundle.rollouts]
    rows = [row for row, golds in enumerate(golds_N) if golds and bundle.rollouts[row].get("response") is not None]
    names: Any = bundle.notes.get("rewards") or ["reward"]
    part_NK, reward_N = bundle.get("component_NK"), bundle.get("reward_N")
    if part_NK is None:
        part_NK = np.zeros((0, 0)) if reward_N is None else reward_N[:, None]
    columns = [
        column
        for column in range(part_NK.shape[1])
        if set(np.unique(part_NK[:, column])) <= {-1.0, 0.0, 1.0}
        and _CORRECTNESS.search(str(names[column : column + 1]))
    ]
    if not rows or not columns:
        says = "No reward for right answers, with gold answers that we can grade and responses, is in the bundle."
        return unknown("rewards", says)
    right = np.array([_is_right(golds_N[row], str(bundle.rollouts[row]["response"])) for row in rows])
    off = np.flatnonzero((part_NK[rows, columns[0]] > 0) != right)
    says = f"Our verifier agrees with {len(rows) - len(off)} of {len(rows)} rewards ({names[columns[0]]})."
    if ungraded := bundle.num_rollouts - len(rows):
        says += f" {ungraded} more rollouts have no gold answer that we can grade."
    if len(off) == 0:
        return certified("rewards", says)
    row = min((rows[place] for place in off), key=lambda row: len(str(bundle.rollouts[row]["response"])))
    text = bundle.rollouts[row]
    gold, end = " or ".join(golds_N[row])[:40], str(text["response"])[-60:]
    example = f"rollout {row} with gold {gold!r} and reward {part_NK[row, columns[0]]:g} ends in {end!r}."
    return contradicts("rewards", says, example=example)


def _golds(text: Mapping[str, Any]) -> list[str]:
    """Return the accepted answers of a rollout; none if it has tests or the like, which our verifier does not grade."""
    from ansatz_verify.verdict import golds_of

    answer = text.get("answer")
    given = answer if isinstance(answer, list) else golds_of(answer) if isinstance(answer, str) else [answer]
    golds = [str(gold) for gold in given if gold or gold == 0]
    if _PROGRAMS.search(str(text.get("data_source", ""))) or any(_NO_ANSWER.match(gold) for gold in golds):
        return []
    return golds


def _is_right(golds: Sequence[str], response: str) -> bool:
    from ansatz_verify import verify

    return any(bool(verify(gold, response, mode="last_number").correct) for gold in golds)


def waste(bundle: Bundle) -> list[str]:
    """Return sentences about tokens and rollouts that teach the policy nothing. No claim is made about them."""
    lines = list[str]()
    group_N = bundle.arrays.get("group_N")
    advantage_N = advantages_of(bundle) if "segment_T" in bundle else bundle.get("advantage_N")
    if group_N is not None and advantage_N is not None:
        size_N = np.abs(np.nan_to_num(advantage_N))
        flat = [group for group in np.unique(group_N) if size_N[group_N == group].max() <= 1e-9]
        lines.append(f"{len(flat)} of {len(np.unique(group_N))} groups have no signal: all their advantages are 0.")
    if "mask_T" in bundle and "gradient_T" in bundle:
        idle_T = (bundle.arrays["mask_T"] != 0) & (bundle.arrays["gradient_T"] == 0)
        lines.append(
            f"{int(idle_T.sum())} of {int((bundle.arrays['mask_T'] != 0).sum())} tokens with loss have no gradient."
        )
    if group_N is not None and len(bundle.rollouts) == len(group_N):
        pairs = Counter(
            (int(group), str(text.get("response"))) for group, text in zip(group_N, bundle.rollouts, strict=True)
        )
        repeated = sum(count - 1 for count in pairs.values())
        lines.append(f"{repeated} of {len(group_N)} responses repeat another one of their group.")
    given = rewards_of(bundle)
    if given is not None and given.length_N.any() and np.ptp(given.reward_N) > 0:
        good_N = given.reward_N > (given.reward_N.max() + given.reward_N.min()) / 2
        means = given.length_N[good_N].mean(), given.length_N[~good_N].mean()
        lines.append(f"Responses with high rewards have {means[0]:.1f} tokens on average, the others {means[1]:.1f}.")
    return lines

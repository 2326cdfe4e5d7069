"""Claims about single tokens: which of them have loss, and whether their advantages and log-probs are right.

Axes: N rollouts, T flat tokens.
"""

from __future__ import annotations

import numpy as np

from ansatz.audit.bundle import Array, Bundle
from ansatz.audit.claim import Claim, certified, consistent, contradicts, unknown
from ansatz.audit.gap import explain_gap
from ansatz.audit.promise import Promise


def check_advantage_used(bundle: Bundle) -> Claim:
    """The loss gets the advantage that was computed for the rollout."""
    advantage_N, advantage_T = bundle.get("advantage_N"), bundle.get("advantage_T")
    if advantage_N is None or advantage_T is None:
        return unknown("advantage used", "Only one of the computed and the used advantages is in the bundle.")
    at_T = bundle.trained_T & bundle.response_T
    segment_T = bundle.arrays["segment_T"][at_T]
    used_T, wanted_T = advantage_T[at_T], advantage_N[segment_T]
    if np.allclose(used_T, wanted_T, rtol=1e-5, atol=1e-6):
        return certified("advantage used", "The loss saw the advantages as they were computed.")
    first = int(np.flatnonzero(~np.isclose(used_T, wanted_T, rtol=1e-5, atol=1e-6))[0])
    example = f"rollout {segment_T[first]} was given {used_T[first]:.6g}, computed was {wanted_T[first]:.6g}."
    if np.allclose(used_T, np.maximum(wanted_T, 0), atol=1e-6):
        says = "Negative advantages are 0 in the loss, so that only good responses are learned from."
    elif np.allclose(np.sort(np.unique(used_T)), np.sort(np.unique(wanted_T)), atol=1e-5):
        says = "Responses have the advantage of another rollout: rows and advantages are in different orders."
    else:
        says = "The loss saw other advantages than were computed."
    return contradicts("advantage used", says, example=example)


def promised_mask(bundle: Bundle, promise: Promise | str) -> tuple[Array, list[str]]:
    """Return the tokens that the options promise to train on, and the masks among them that are not computed here."""
    wanted_T = (bundle.arrays["sampled_mask_T"] != 0) & bundle.trained_T
    if isinstance(promise, str):
        return wanted_T, ["of the options"] if bundle.options else []
    masks = promise.spec.get("masks") or []
    listed = masks if isinstance(masks, list) else [masks]
    names = [mask.get("name", "") if isinstance(mask, dict) else str(mask) for mask in listed]
    truncated_N = bundle.arrays.get("truncated_N")
    computed = ["none"] if truncated_N is None else ["none", "not_truncated"]
    if "not_truncated" in names and truncated_N is not None:
        wanted_T = wanted_T & ~(truncated_N[bundle.arrays["segment_T"]] != 0)
    return wanted_T, [name for name in names if name not in computed]


def check_mask(bundle: Bundle, promise: Promise | str) -> Claim:
    """Exactly the sampled tokens count in the loss."""
    if "mask_T" not in bundle or "sampled_mask_T" not in bundle:
        return unknown("mask", "The mask of the loss or the sampled tokens are not in the bundle.")
    used_T, segment_T = bundle.arrays["mask_T"] != 0, bundle.arrays["segment_T"]
    wanted_T, others = promised_mask(bundle, promise)
    if others and not (used_T & ~wanted_T).any():
        says = f"{int((wanted_T & ~used_T).sum())} sampled tokens have no loss"
        return unknown("mask", f"{says}, but the mask {', '.join(others)}, which decides that, is not computed again.")
    wanted_T = wanted_T & used_T if others else wanted_T
    extra_T, lost_T = used_T & ~wanted_T, wanted_T & ~used_T
    if not extra_T.any() and not lost_T.any():
        return certified("mask", f"The loss has the {int(used_T.sum())} sampled tokens and no other.")
    place = int(np.flatnonzero(extra_T | lost_T)[0])
    start = int(np.searchsorted(segment_T, segment_T[place]) + bundle.arrays["prompt_length_N"][segment_T[place]])
    was_sampled = bool(bundle.arrays["sampled_mask_T"][place])
    kind = "was sampled but has no loss" if lost_T[place] else "has loss but was not sampled"
    if extra_T[place] and was_sampled:
        kind = "has loss, although its response is not to be trained on"
    token_T = bundle.arrays.get("token_T")
    which = "" if token_T is None else f" (id {token_T[place]})"
    example = f"token {place - start}{which} of rollout {segment_T[place]} {kind}."
    says = f"{int(extra_T.sum())} tokens have loss that should not, {int(lost_T.sum())} should and have none: "
    says += _mask_cause(bundle, used_T, wanted_T, extra_T, lost_T)
    return contradicts("mask", says, example=example)


def _mask_cause(bundle: Bundle, used_T: Array, wanted_T: Array, extra_T: Array, lost_T: Array) -> str:
    response_T = bundle.response_T & bundle.trained_T
    observed_T = bundle.arrays.get("observation_T", np.zeros_like(used_T)) != 0
    inner_T = wanted_T | (observed_T & bundle.trained_T)
    if not (used_T & wanted_T).any() and (used_T[inner_T] == ~wanted_T[inner_T]).all():
        return "the mask is inverted."
    for by, side in ((-1, "left"), (1, "right")):
        compared_T = response_T & np.roll(inner_T, by) & inner_T  # both places are in the response
        if observed_T.any() and lost_T.any() and (used_T == np.roll(wanted_T, by))[compared_T].all():
            return f"the mask is shifted by one place to the {side}."
    causes = list[str]()
    sampled_T = extra_T & (bundle.arrays["sampled_mask_T"] != 0) & response_T
    padding_T = extra_T & response_T & ~observed_T & ~sampled_T
    for mark_T, words in (
        (sampled_T, "tokens of truncated responses, which the options leave out"),
        (extra_T & ~bundle.response_T, "tokens of the prompt"),
        (extra_T & observed_T, "observations that an environment wrote"),
        (padding_T, "padding after the end of the response"),
    ):
        if mark_T.any():
            causes.append(f"{int(mark_T.sum())} with loss are {words}")
    if lost_T.any():
        token_T = bundle.arrays.get("token_T", np.full(len(lost_T), -1))  # without ids, no token is an end
        ends = np.isin(token_T, list(bundle.notes.get("end_ids", [])))
        what = "end-of-sequence tokens" if ends[lost_T].all() else _place(bundle, wanted_T, lost_T)
        causes.append(f"{int(lost_T.sum())} without loss are {what}")
    return f"{'; '.join(causes)}."


def _place(bundle: Bundle, wanted_T: Array, lost_T: Array) -> str:
    """Say which tokens of responses are without loss, if it is the same place in each of them."""
    at_T = np.flatnonzero(wanted_T)
    segment_T = bundle.arrays["segment_T"][at_T]
    first_T, last_T = np.zeros_like(wanted_T), np.zeros_like(wanted_T)
    first_T[at_T[np.diff(segment_T, prepend=-1) != 0]] = True
    last_T[at_T[np.diff(segment_T, append=-1) != 0]] = True
    for place_T, words in ((first_T, "the first tokens of responses"), (last_T, "the last tokens of responses")):
        if (lost_T == place_T).all():
            return words
    whole = {int(row) for row in bundle.arrays["segment_T"][lost_T]}
    kept = {int(row) for row in bundle.arrays["segment_T"][wanted_T & ~lost_T]}
    if whole & kept:
        return "other tokens of responses"
    return f"all tokens of {len(whole)} response{'s' * (len(whole) > 1)}"


def check_logps(bundle: Bundle, name: str) -> Claim:
    """Check that a second, plain forward pass with the same weights gives the log-probs that a project computed."""
    title = {"policy": "policy log-probs", "old": "old log-probs", "ref": "reference log-probs"}[name]
    found_T, again_T = bundle.get(f"{name}_logp_T"), bundle.get(f"recomputed_{name}_logp_T")
    if found_T is None or again_T is None or "mask_T" not in bundle or "sampled_mask_T" not in bundle:
        return unknown(title, "They, or a second computation of them, are not in the bundle.")
    at_T = (bundle.arrays["mask_T"] != 0) & (bundle.arrays["sampled_mask_T"] != 0)
    half = any(bundle.options.get(name) for name in ("bf16", "fp16"))
    limit = 2e-3 if bundle.notes.get("dtype", "float32") == "float32" and not half else 0.25
    off_T = np.abs(found_T - again_T) * at_T
    if not at_T.any() or float(off_T.max()) <= limit:
        says = f"A second computation gives the same within {float(off_T.max(initial=0)):.1e} nats."
        return certified(title, says)
    place = int(off_T.argmax())
    example = (
        f"token {place} (rollout {bundle.arrays['segment_T'][place]}): {found_T[place]:.4f}, computed again "
        f"{again_T[place]:.4f}."
    )
    says = (
        f"They are off by {off_T[at_T].mean():.3g} nats on average: {_logp_cause(bundle, name, found_T, at_T, limit)}"
    )
    return contradicts(title, says, example=example)


def _logp_cause(bundle: Bundle, name: str, found_T: Array, at_T: Array, limit: float) -> str:
    def same(other_T: Array | None, share: float = 0.99) -> bool:
        return other_T is not None and float((np.abs(found_T - other_T)[at_T] <= limit).mean()) >= share

    again_T = bundle.get(f"recomputed_{name}_logp_T")
    assert again_T is not None
    if same(bundle.get(f"recomputed_{'ref_raw' if name == 'ref' else 'raw'}_logp_T")):
        return "they are taken at temperature 1, not at the temperature of the samples."
    for by in (-1, 1):
        inner_T = at_T & np.roll(at_T, -by) & np.roll(at_T, by)
        if inner_T.any() and float((np.abs(found_T - np.roll(again_T, by))[inner_T] <= limit).mean()) > 0.9:
            return "each token has the log-prob of its neighbour, shifted by one place."
    for other, words in (("policy", "the current policy's"), ("old", "the policy's at the time of sampling")):
        if other != name and name != "policy" and same(bundle.get(f"recomputed_{other}_logp_T")):
            return f"they are {words}."
    prompt_N, segment_T = bundle.arrays["prompt_length_N"], bundle.arrays["segment_T"]
    padded_T = (prompt_N < prompt_N.max())[segment_T]
    wrong_T = (np.abs(found_T - again_T) > limit) & at_T
    if padded_T[at_T].any() and not (wrong_T & ~padded_T).any():
        return "only rollouts with padding on the left of their prompt are off: the padding is attended to."
    if name != "policy":
        return "they are those of other weights, stale (earlier) or never synchronised."
    return "no cause that we know explains it; dropout, or other code in the forward pass, remains."


def check_gap(bundle: Bundle) -> Claim:
    """Sampler and trainer mean the same distribution."""
    gap = explain_gap(bundle) if "segment_T" in bundle else None
    if gap is None:
        return unknown("sampler gap", "Log-probs of sampler and trainer are not both in the bundle.")
    size = f"mean |gap| {gap.mean_abs:.2g} nats, largest {gap.largest:.2g}, mean ratio {gap.mean_ratio:.3f}"
    if gap.cause.startswith("dtype"):
        return consistent("sampler gap", f"The cause of a small gap is {gap.cause} ({size}).")
    if not gap.cause:
        return certified("sampler gap", f"Sampler and trainer agree: {size}.")
    return contradicts("sampler gap", f"The cause is probably {gap.cause} ({size}).")

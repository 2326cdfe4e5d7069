"""Which formula gives the loss of a step: the promised one, or another one that differs in one thing."""

from __future__ import annotations

import numpy as np

from ansatz.audit.bundle import Array, Bundle
from ansatz.audit.claim import Claim, certified, consistent, contradicts, unknown
from ansatz.audit.loss import Formula, Loss, alternatives, compute, fits, layout_change, promised, ratio_to
from ansatz.audit.promise import Promise
from ansatz.errors import ConfigError


def explain_loss(bundle: Bundle, promise: Promise) -> Claim:
    """Compare value and gradient with the promise, and with every change of it that we know."""
    try:
        formula = promised(bundle, promise)
        loss, found_T = compute(bundle, formula), bundle.get("gradient_T")
    except ConfigError as error:
        return unknown("loss", f"The promised formula cannot be computed: {error}")
    if found_T is None:
        return _by_value(bundle, loss)
    if not np.abs(found_T).max(initial=0) and not np.abs(loss.gradient_T).max(initial=0):
        return unknown("loss", "Its gradient is 0 at every token, as promised.")
    others = [other.change for other in alternatives(bundle, formula) if fits(found_T, compute(bundle, other))]
    if fits(found_T, loss):
        wrong = _by_value(bundle, loss)
        if wrong.status == "contradicts":
            return wrong
        layout = layout_change(bundle, formula)
        says = f"The gradient at all {int((found_T != 0).sum())} tokens is the promised one. Other microbatches of the "
        says += f"same rollouts would change it by up to {layout:.2g} %."
        return (consistent if others else certified)("loss", says, others=others)
    place = int(np.abs(found_T - loss.gradient_T).argmax())
    example = (
        f"the gradient at token {place} (rollout {bundle.arrays['segment_T'][place]}) is {found_T[place]:.6g}, "
        f"promised {loss.gradient_T[place]:.6g}."
    )
    if others:
        return contradicts("loss", f"It is computed with {others[0]}.", example=example, others=others[1:])
    return contradicts("loss", _scaled(bundle, formula, loss, found_T), example=example)


def _scaled(bundle: Bundle, formula: Formula, loss: Loss, found_T: Array) -> str:
    """Say whether the loss, or one of its alternatives, is a multiple of the promised one."""
    for other in (formula, *alternatives(bundle, formula)):
        computed = loss if other is formula else compute(bundle, other)
        factor, rest = ratio_to(found_T, computed.gradient_T)
        if rest > 1e-3 or not np.isfinite(factor):
            continue
        about = f" of {other.change}" if other.change else ""
        accumulation = bundle.options.get("gradient_accumulation_steps")
        hint = ""
        if factor < 0:
            hint = ": the sign is wrong"
        elif accumulation and abs(factor * accumulation - 1) < 0.01:
            hint = f": it is divided by the {accumulation} accumulation steps once more"
        elif accumulation and abs(factor / accumulation - 1) < 0.01:
            hint = f": it is not divided by the {accumulation} accumulation steps"
        return f"It is {factor:.4g} times the promised loss{about}{hint}."
    return "No known formula that differs from the promised one in one thing gives its gradient."


def _by_value(bundle: Bundle, loss: Loss) -> Claim:
    found = bundle.expected.get("loss_of_microbatches")
    found = [bundle.expected["train/loss"]] if found is None and "train/loss" in bundle.expected else found
    if not isinstance(found, list) or not found or not all(isinstance(value, int | float) for value in found):
        return unknown("loss", "Neither its value nor its gradient is in the bundle.")
    wanted = loss.loss_M if len(found) == len(loss.loss_M) else np.array([loss.loss_M.sum()])
    if len(found) != len(wanted):
        return unknown("loss", "The bundle has another number of losses than microbatches.")
    off_M = np.abs(np.array(found) - wanted)
    scale = max(float(np.abs(wanted).max()), 1e-3)
    if float(off_M.max()) <= 1e-3 * scale:
        return consistent("loss", f"Its value is {sum(found):.6g}, as promised.")
    place = int(off_M.argmax())
    example = f"microbatch {place} has {found[place]:.6g}, promised {wanted[place]:.6g}."
    return contradicts("loss", "Its value is not the promised one.", example=example)

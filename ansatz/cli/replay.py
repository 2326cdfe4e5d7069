"""`ansatz replay BUNDLE`: compute a step again and compare it with the recorded values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.recipe import TrustCode
from ansatz.errors import ConfigError, DataError, NonFiniteError
from ansatz.trust import trusted
from ansatz.visible import say


def replay(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A step bundle, of Ansatz or of another project.")],
    tolerance: Annotated[float, typer.Option(min=0, help="Largest relative difference that counts as equal.")] = 1e-3,
    trust_code: TrustCode = False,
) -> None:
    """Compute the step of a bundle again on this machine, and compare every expected value.

    A bundle with weights, such as one from `ansatz train --bundle` or of a skipped update, is computed from the tokens
    on; any other from its log-probs. The exit code is 1 if a value differs.
    """
    from ansatz.audit.bundle import read_bundle

    bundle = read_bundle(folder)
    try:
        found = _from_weights(folder, bundle, trust_code) if (folder / "config.json").is_file() else _from_logps(bundle)
    except NonFiniteError as error:
        say(f"The update is not finite again: {error}")
        raise typer.Exit(0 if bundle.notes.get("cause") else 1) from error
    if not found:
        raise DataError(f"{folder} has no expected value that could be computed again.")
    wrong = 0
    for name, (expected, again) in found.items():
        differs = not abs(expected - again) <= tolerance * max(abs(expected), abs(again), 1e-6)  # also for nan
        wrong += differs
        say(f"{name}: expected {expected:.9g}, again {again:.9g}{', which differs' if differs else ''}")
    if wrong:
        raise typer.Exit(1)


def _from_weights(folder: Path, bundle: Any, trust_code: bool) -> dict[str, tuple[float, float]]:
    from ansatz.objectives.build import build_objective
    from ansatz.train.repeat import repeat_update

    spec = bundle.options.get("algorithm")
    if not isinstance(spec, dict):
        raise DataError(
            f"{folder} is an update of another stage than RL. Make it again in Python, with "
            "ansatz.loop.repeat.repeat_skipped_update."
        )
    metrics = repeat_update(folder, build_objective(trusted(spec) if trust_code else spec)).metrics
    expected = bundle.expected.items()
    return {name: (value, metrics[name]) for name, value in expected if isinstance(value, float) and name in metrics}


def _from_logps(bundle: Any) -> dict[str, tuple[float, float]]:
    import numpy as np

    from ansatz.audit.claims import advantages_of, promised_rule, rewards_of
    from ansatz.audit.loss import compute, promised
    from ansatz.audit.promise import Promise, promise_of
    from ansatz.audit.rules import Rule

    promise, found = promise_of(bundle), dict[str, tuple[float, float]]()
    if not isinstance(promise, Promise):
        raise DataError(f"{bundle.path}: {promise}, so nothing can be computed again.")
    given, advantage_N = rewards_of(bundle), advantages_of(bundle)
    rule = None if given is None else promised_rule(bundle, promise, given)
    if given is not None and advantage_N is not None and isinstance(rule, Rule):
        known_N = ~np.isnan(advantage_N) | ("advantage_N" in bundle)  # rollouts with tokens in the loss
        norms = (float(np.linalg.norm(advantage_N[known_N])), float(np.linalg.norm(rule(given)[known_N])))
        found["norm of the advantages"] = norms
    if all(name in bundle for name in ("policy_logp_T", "advantage_T", "mask_T", "group_N")):
        try:
            loss = compute(bundle, promised(bundle, promise))
        except ConfigError as error:
            say(f"The promised loss cannot be computed: {error}")
            return found
        expected = bundle.expected.get("loss_of_microbatches") or [bundle.expected.get("loss")]
        if len(expected) == len(loss.loss_M) and all(isinstance(value, int | float) for value in expected):
            found |= {f"loss {place}": (value, float(loss.loss_M[place])) for place, value in enumerate(expected)}
        if "gradient_T" in bundle:
            norms = (float(np.linalg.norm(bundle.get("gradient_T"))), float(np.linalg.norm(loss.gradient_T)))
            found["norm of the gradient at the tokens"] = norms
    return found

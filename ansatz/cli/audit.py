"""`ansatz audit BUNDLE_OR_LOG...`: does a run keep the promises of its options?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.errors import ConfigError
from ansatz.visible import say, visible

if TYPE_CHECKING:
    from ansatz.audit.bundle import Bundle
    from ansatz.audit.claim import Claim


def audit(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="BUNDLE_OR_LOG...",
            help="Step bundles (of `ansatz train --bundle` or of the recorder for TRL), logs of TRL, verl or NeMo-RL, "
            "or folders with these.",
        ),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Audit a small step with a mistake, without any file.")] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute/--no-recompute", help="Compute the loss again, which loads PyTorch.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the claims to, such as audit.json.")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML file to write the claims to.")] = None,
) -> None:
    """Say of each claim of a run whether its numbers certify or contradict it, or whether they cannot tell.

    Claims are about groups, advantages, masks, log-probs, the gap between sampler and trainer, the loss, the gradient
    of the step and rewards. The exit code is 1 if any claim is contradicted.
    """
    from ansatz.audit.claims import audit as claims_of
    from ansatz.audit.claims import waste
    from ansatz.audit.readers import read_any
    from ansatz.cli.outputs import check_outputs

    if not paths and not demo:
        raise ConfigError("nothing to audit. Name a step bundle or a log, or try --demo.")
    check_outputs([out, page], inputs=paths or [])
    bundles = [demo_bundle()] if demo else [bundle for path in paths or [] for bundle in read_any(path)]
    steps = [_step(bundle, claims_of(bundle, recompute=recompute and not demo), waste(bundle)) for bundle in bundles]
    for step in steps:
        say(f"{step['path']} ({step['project']} {step['version']}, step {step['step']})")
        for line in step["lines"]:
            say(f"  {visible(line)}")
        for line in step["waste"]:
            say(f"  {visible(line)}")
    counts = Counter(claim["status"] for step in steps for claim in step["claims"])
    say(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    _write(steps, out, page)
    if counts["contradicts"]:
        raise typer.Exit(1)


def _step(bundle: Bundle, claims: Sequence[Claim], waste: Sequence[str]) -> dict[str, Any]:
    rows = [
        {"name": each.name, "status": each.status, "says": each.says, "example": each.example, "others": each.others}
        for each in claims
    ]
    about = {"path": bundle.path, "project": bundle.project, "version": bundle.version, "step": bundle.step}
    return {**about, "claims": rows, "lines": [claim.line for claim in claims], "waste": list(waste)}


def _write(steps: Sequence[dict[str, Any]], out: Path | None, page: Path | None) -> None:
    from ansatz.files import write_text

    if out is not None:
        kept = [{key: value for key, value in step.items() if key != "lines"} for step in steps]
        write_text(out, json.dumps({"format": 1, "steps": kept}, indent=1, ensure_ascii=False) + "\n")
    if page is not None:
        from ansatz.track.page import fill

        write_text(page, fill("audit.html", steps=steps))


def demo_bundle() -> Bundle:
    """Return a step of two prompts whose advantages are divided by the std of the batch, not of the group."""
    import numpy as np

    from ansatz.audit.bundle import Bundle

    reward_N = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    group_N = np.arange(8) // 4
    centred_N = reward_N - np.array([0.5, 0.75])[group_N]
    rows = list(zip(group_N.tolist(), reward_N.tolist(), strict=True))
    texts = [
        {"prompt": f"{group + 2}+2=", "response": str(group + 4 - (not reward)), "answer": str(group + 4)}
        for group, reward in rows
    ]
    return Bundle(
        project="trl",
        version="1.16.0",
        step=1,
        path="demo",
        options={"scale_rewards": "group", "num_generations": 4, "loss_type": "grpo", "use_vllm": False},
        arrays={
            "component_NK": reward_N[:, None],
            "group_N": group_N,
            "advantage_N": centred_N / (reward_N.std(ddof=1) + 1e-4),
        },
        rollouts=texts,
        notes={"rewards": ["correct"]},
    )

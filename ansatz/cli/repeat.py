"""`ansatz repeat CARD`: make the steps of a run again, and say where the bits differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ansatz.cli.recipe import TrustCode
from ansatz.errors import ConfigError
from ansatz.repeat.portable import restrict_instructions
from ansatz.visible import say

_STEPS = re.compile(r"(?:(\w{1,100})/)?(\d{1,9}):(\d{1,9})?")


def repeat(
    context: typer.Context,
    card: Annotated[Path, typer.Argument(help="A card.json, or the folder of a run or a model that holds one.")],
    steps: Annotated[
        str, typer.Option(help="Compare steps A:B only, and end after B; STAGE/A:B for another stage than the last.")
    ] = "",
    until_differs: Annotated[
        bool, typer.Option("--until-differs", help="End at the first step whose tokens differ.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete a run folder of the same name first.")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Repeat a run from its card. Say how far the bits are the same, and why they differ from then on.

    Settings that change no result are allowed: --cluster.workers 3, --name NAME, --data.train.path FILE. It writes an
    ordinary run, runs/repeat_NAME. Exit code 1 if bits differ or none were compared.
    """
    from ansatz.repeat.card import CARD_FILE, config_of, read_card
    from ansatz.repeat.rerun import Comparison, Span, causes, repeat_run
    from ansatz.track.base import LOG
    from ansatz.track.console import open_console

    read = read_card(card)
    config = config_of(read, card / CARD_FILE if card.is_dir() else card, context.obj, trust_code=trust_code)
    restrict_instructions(config.model.dtype)
    span = None
    if steps:
        match = _STEPS.fullmatch(steps)
        if match is None or not 1 <= int(match[2]) <= int(match[3] or match[2]):
            raise ConfigError(f"--steps {steps!r:.40}: expected A:B, such as 1:4 or sft/1:20, with 1 <= A <= B.")
        stage = match[1] or next(reversed(read.stages), "")
        span = Span(stage=stage, first=int(match[2]), last=int(match[3]) if match[3] else None)
    say(f"{card}: the chain {read.chain}, made with Ansatz {read.ansatz}; repeated in {config.run_dir}", flush=True)
    if read.changes:
        say(read.changes, flush=True)
    comparison = Comparison(card=read, span=span, until_differs=until_differs)
    repeat_run(read, config, comparison, console=open_console(log=config.run_dir / LOG), fresh=fresh)
    if comparison.unknown:
        say(f"{comparison.unknown} steps could not be compared: the card has no digests of them.")
    if not comparison.first and not comparison.same:
        say("nothing could be compared: the card has no digests of the steps that were made")
        raise typer.Exit(1)
    if not comparison.first:
        where = f"in steps {steps}" if steps else "to the end"
        where = "in the steps that could be compared" if comparison.unknown else where
        say(f"same bits {where} ({comparison.same} steps)")
        return
    for kind, (stage, step) in comparison.first.items():
        same = f"same to step {step - 1} of {stage}, " if step > 1 else ""
        say(f"{kind}: {same}different from {f'step {step}' if step else 'the start'} of {stage} on")
    if comparison.detail:
        say(comparison.detail)
    for cause in causes(comparison, config.run_dir, config) or ["not known: inputs, versions and arithmetic are equal"]:
        say(f"cause: {cause}")
    raise typer.Exit(1)

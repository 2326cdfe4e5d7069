"""`ansatz doctor`: can this machine, or this cluster, train?"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ansatz.errors import ConfigError
from ansatz.visible import visible

_AUTO = "auto"


def doctor(
    folder: Annotated[
        Path, typer.Option(help="Where runs are to be written. With --cluster, all nodes must see it.")
    ] = Path("runs"),
    cluster: Annotated[bool, typer.Option("--cluster", help="Examine the nodes of a Ray cluster too.")] = False,
    address: Annotated[
        str, typer.Option(help="Of the Ray cluster, such as 10.0.0.1:6379; auto: the one that runs on this machine.")
    ] = _AUTO,
    nodes: Annotated[
        int | None,
        typer.Option(
            help="With --cluster: nodes that must answer, with the head; they have 2 minutes. Default: one at every "
            "address at which one has joined.",
            min=1,
        ),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Also print the command for each finding that one helps. None is run.")
    ] = False,
) -> None:
    """Print the findings about versions, devices, disk, ports and nodes, with advice where something is wrong.

    It ends with one step of training at toy size through every role. Exit code 1 if something is wrong.
    """
    from rich.console import Console
    from rich.markup import escape

    from ansatz.certify.doctor import examine_cluster, examine_machine

    if not address.strip():
        raise ConfigError("--address is empty. Give HOST:PORT of a Ray cluster, or leave it out.")
    if not cluster and (address != _AUTO or nodes is not None):
        option = f"--address {address}" if address != _AUTO else f"--nodes {nodes}"
        raise ConfigError(f"{option} has no effect without --cluster. Add --cluster, or leave it out.")
    console, wrong = Console(highlight=False, soft_wrap=True), 0
    style = {"ok": "green", "note": "yellow", "wrong": "bold red"}
    of_cluster = examine_cluster(address, folder, num_nodes=nodes) if cluster else ()
    for finding in chain(examine_machine(folder), of_cluster):
        wrong += finding.state == "wrong"
        mark = f"[{style[finding.state]}]{finding.state:5}[/]"
        console.print(f"{mark}  {escape(finding.what)}: {escape(visible(finding.found))}")
        if finding.advice:
            console.print(f"       -> {escape(visible(finding.advice))}")
        if fix and finding.fix:
            console.print(f"       $ {escape(visible(finding.fix))}")
    console.print("Nothing is wrong." if not wrong else f"{wrong} of these findings will stop a run.")
    raise typer.Exit(code=1 if wrong else 0)

"""`ansatz view [RUN_OR_FOLDER...]`: pages of runs in a browser, from this machine alone."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.visible import say


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN_OR_FOLDER...", help="Runs or their folders. Default: runs."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 7790,
    host: Annotated[str, typer.Option(help="Address to listen at, and name that the browser uses.")] = "127.0.0.1",
    open_browser: Annotated[bool, typer.Option("--open", help="Open the address in a browser.")] = False,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let everybody on this machine read the runs.")] = False,
) -> None:
    """Show what models wrote and what training did to it: serve pages of runs until Ctrl-C.

    Pages are made from the files of a run, also while it trains. Nothing is written into a run, and nothing leaves the
    machine. From another machine: ssh -L 7790:localhost:7790 HOST, then open the printed address.
    """
    folders = folders or [Path("runs")]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{str(folder)!r} is not a folder. Give a run, or a folder with runs.")
    if host not in ("127.0.0.1", "localhost", "::1") and no_token:
        raise ConfigError(f"--host {host} with --no-token would show the runs to the network. Leave out --no-token.")
    serve(folders, port=port, host=host, token="" if no_token else secrets.token_urlsafe(16), open_browser=open_browser)


def serve(folders: list[Path], *, port: int, host: str, token: str, open_browser: bool = False) -> None:
    """Serve the folders until a signal. Raise MissingExtraError without the packages of the extra `ui`, ConfigError if
    the port is taken."""
    try:
        import uvicorn

        from ansatz.ui.app import build_app
        from ansatz.ui.library import Library
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ansatz"):
            raise
        raise MissingExtraError(
            f"ansatz view needs {error.name}. Install it with: pip install 'ansatz-rl[ui]'. In a terminal, `ansatz "
            "rollouts RUN` works without it."
        ) from error
    app = build_app(Library(folders), token=token, hosts=[host])
    config = uvicorn.Config(app, host=host, port=port, log_level="error", access_log=False, server_header=False)
    try:
        socket = config.bind_socket()
    except SystemExit as error:
        raise ConfigError(f"port {port} of {host} cannot be used. Choose another one with --port, or 0.") from error
    number = socket.getsockname()[1]
    address = f"http://{'localhost' if host == '127.0.0.1' else host}:{number}/" + (f"?token={token}" if token else "")
    say(f"Open {address}", flush=True)
    say(f"From another machine: ssh -L {number}:localhost:{number} THIS_MACHINE. Ctrl-C ends the viewer.", flush=True)
    if open_browser:
        import webbrowser

        webbrowser.open(address)
    uvicorn.Server(config).run(sockets=[socket])

"""`ansatz view [RUN_OR_FOLDER...]`: pages of runs in a browser, from this machine alone."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from ansatz.errors import ConfigError
from ansatz.visible import say

if TYPE_CHECKING:
    import uvicorn

    from ansatz.ui.library import Library


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN_OR_FOLDER...", help="Runs, or folders with runs or rows of sweeps. Default: runs."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port, or the next free one; 0: any.")] = 7790,
    host: Annotated[str, typer.Option(help="Address to listen at, and name that the browser uses.")] = "127.0.0.1",
    open_browser: Annotated[bool, typer.Option("--open", help="Open the address in a browser.")] = False,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let everybody on this machine read the runs.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Show two made-up runs, for a tour without training.")] = False,
    notes_in_run: Annotated[bool, typer.Option("--notes-in-run", help="Save notes in the run, to share them.")] = False,
    asks_models: Annotated[bool, typer.Option("--try", help="Let a reader ask the runs' checkpoints.")] = False,
) -> None:
    """Show the responses of models and the effect of training on them: serve pages of runs until Ctrl-C.

    Pages are made from the files of a run, also while it trains. Nothing is written into a run, except notes with
    --notes-in-run, and nothing leaves the machine. From another machine: ssh -L 7790:localhost:7790 HOST, then open the
    printed address.
    """
    if demo and (folders or asks_models):
        left_out = folders[0] if folders else "--try, since they have no checkpoints"
        raise ConfigError(f"--demo shows made-up runs alone; leave out {left_out}.")
    folders = folders or [Path("runs")]
    for folder in folders if not demo else []:
        if not folder.is_dir():
            raise ConfigError(
                f"{str(folder)!r} is not a folder. Give a run, or a folder with runs, or --demo for a tour without one."
            )
    if host not in ("127.0.0.1", "localhost", "::1") and no_token:
        raise ConfigError(f"--host {host} with --no-token would show the runs to the network. Leave out --no-token.")
    from ansatz.ui.library import Library

    token = "" if no_token else secrets.token_urlsafe(16)
    if not demo:
        library = Library(folders, notes_in_run=notes_in_run)
        library.asks_models = asks_models
        names = list(library.find_runs())
        path = f"run/{quote(names[0])}" if len(names) == 1 else ""
        serve(library, port=port, host=host, token=token, path=path, open_browser=open_browser)
        return
    from ansatz.temporary import folder_of_program
    from ansatz.ui.demo import write_tour

    with folder_of_program("demo") as place:
        runs = write_tour(Path(place, "runs"))
        library = Library([runs], cache=Path(place, "index"), notes_in_run=True)
        serve(library, port=port, host=host, token=token, path="run/demo", open_browser=open_browser)


def serve(library: Library, *, port: int, host: str, token: str, path: str = "", open_browser: bool = False) -> None:
    """Serve runs until a signal. path: of the page to open first. Raise ConfigError if the port is taken."""
    server, bound, address = _prepare(library, port=port, host=host, token=token, path=path)
    number = bound.getsockname()[1]
    say(f"Open {address}", flush=True)
    say(f"From another machine: ssh -L {number}:localhost:{number} THIS_MACHINE. Ctrl-C ends the viewer.", flush=True)
    if open_browser:
        import webbrowser

        webbrowser.open(address)
    server.run(sockets=[bound])


def _prepare(
    library: Library, *, port: int, host: str, token: str, path: str
) -> tuple[uvicorn.Server, socket.socket, str]:
    """Return a server, its socket, and the address of the page at `path`."""
    import uvicorn

    from ansatz.ui.app import build_app

    name = "localhost" if host == "127.0.0.1" else f"[{host}]" if ":" in host else host
    app = build_app(library, token=token, hosts=[host, name])
    if port:
        port = next((each for each in range(port, min(port + 20, 65536)) if _is_free(host, each)), port)
    config = uvicorn.Config(app, host=host, port=port, log_level="error", access_log=False, server_header=False)
    try:
        bound = config.bind_socket()
    except SystemExit as error:
        raise ConfigError(f"port {port} of {host} cannot be used. Choose another one with --port, or 0.") from error
    bound.listen()  # so that a browser that comes before the server waits for it
    address = f"http://{name}:{bound.getsockname()[1]}/{path}" + (f"?token={token}" if token else "")
    return uvicorn.Server(config), bound, address


def _is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there. uvicorn itself prints an error and ends the process if not."""
    with suppress(OSError), socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as uvicorn does
        probe.bind((host, port))
        return True
    return False


@contextmanager
def viewing(run: Path) -> Iterator[str]:
    """Serve a run, which need not exist yet, from a process of its own, and give the address. The process ends with the
    block, and with this process however that ends. Raise ConfigError if it cannot be started."""
    code = "import sys; from ansatz.cli.view import serve_while_open; serve_while_open(sys.argv[1])"
    command = [sys.executable, "-P", "-c", code, str(run)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        if not address:
            raise ConfigError("the viewer could not be started. Leave out --view, and start `ansatz view` by itself.")
        yield address


def serve_while_open(run: str) -> None:
    """Print the address of a viewer of a run and its neighbours. Serve them until the standard input is closed."""
    from ansatz.ui.library import Library

    library, path = Library([Path(run).parent]), f"run/{quote(Path(run).name)}"
    library.awaited = Path(run).name
    token = secrets.token_urlsafe(16)
    server, bound, address = _prepare(library, port=0, host="127.0.0.1", token=token, path=path)

    def wait() -> None:
        sys.stdin.read()
        server.should_exit = server.force_exit = True

    threading.Thread(target=wait, daemon=True).start()
    say(address, flush=True)
    server.run(sockets=[bound])

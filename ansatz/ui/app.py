"""The server of the viewer: who may ask, which requests exist, and which sources a page may load from.

Every answer needs the token, which the printed address holds and a cookie then keeps; and the name of the host must be
one of the list. Only GET and HEAD exist, and two POST from a page of this server, as its Origin and a token prove: JSON
that saves a note, and a form that asks a checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from ansatz.errors import AnsatzError
from ansatz.json_text import parse_json
from ansatz.track.notes import add_note, check_note, notes_path
from ansatz.track.page import open_templates
from ansatz.track.theme import PAGE_SCRIPT, PAGE_STYLE
from ansatz.ui import pages
from ansatz.ui.attempts import AttemptPage
from ansatz.ui.open_run import NotYet, OpenRun

COOKIE, TOKEN_HEADER = "ansatz_view", "x-page-token"
NOTES, TRY, MAX_BYTES = "/api/notes", "/run/{name}/try", 1 << 16
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, a form would not say where it comes from
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
VIEWER_SCRIPT = (Path(__file__).parent / "static" / "viewer.js").read_text(encoding="utf-8")


def build_app(library: pages.Library, *, token: str, hosts: Sequence[str] = ()) -> Starlette:
    """Return the application. token: empty if nobody has to show one. hosts: names besides this machine's own."""
    known = {"localhost", "127.0.0.1", "[::1]", *hosts}
    page_token = secrets.token_urlsafe(16)

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = _refuse(request, known, token) or _refuse_post(request, page_token)
        if response is None:
            response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    environment = open_templates("ansatz.ui")
    environment.globals |= {"page_token": page_token, "asks_models": library.asks_models}
    attempts = AttemptPage(library)
    views = pages.routes(library)

    def answer(make: Callable[..., Any], *, as_data: bool = False) -> Callable[..., Response]:
        def show(result: Any, status: int = 200) -> Response:
            if isinstance(result, Response):
                return result
            template, context = result
            if as_data:
                return Response(json.dumps(make_plain(context)), status, media_type="application/json")
            return HTMLResponse(environment.get_template(template).render(context), status)

        def respond(request: Request, form: Mapping[str, str] | None = None) -> Response:
            try:
                named: dict[str, Any] = {**request.path_params}
                if "run" in named:
                    named["at"] = OpenRun.find(library, named.pop("run"))
                return show(make(**named, query=request.query_params if form is None else form))
            except (AnsatzError, OSError) as error:
                live = {"address": "/api/state", **library.describe_state()}
                waits = isinstance(error, NotYet)
                response = show(("error.html", {"message": str(error), "live": live, "waits": waits}), _status(error))
                response.headers.update({"Retry-After": "2"} if waits else {})
                return response

        return respond

    async def save_note(request: Request) -> Response:
        try:
            await run_in_threadpool(_add_note, library, parse_json(await request.body()))
        except (AnsatzError, ValueError) as error:
            return PlainTextResponse(f"The note is not saved: {error}", _status(error))
        return Response(status_code=201)

    async def ask(request: Request) -> Response:
        form = parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True)
        return await run_in_threadpool(answer(attempts.ask), request, dict(form))

    routes = [Route(path, answer(make), methods=["GET"]) for path, make in {**views, TRY: attempts.show}.items()]
    data = {f"/api{path}": make for path, make in views.items() if not path.startswith("/api")}
    routes += [Route(path, answer(make, as_data=True), methods=["GET"]) for path, make in data.items()]
    routes += [Route("/static/{name}", _static, methods=["GET"])]
    routes += [Route(NOTES, save_note, methods=["POST"]), Route(TRY, ask, methods=["POST"])]
    app = Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])
    app.state.library = library
    return app


def _status(error: Exception) -> int:
    return 503 if isinstance(error, NotYet) else 404 if isinstance(error, pages.NotFound) else 400


def _refuse(request: Request, hosts: set[str], token: str) -> Response | None:
    """Return the answer to a request that may not be served, or that exchanges its token for a cookie; else None."""
    host = request.headers.get("host", "")
    before, _, port = host.rpartition(":")
    name, port = (before, port) if port.isdecimal() else (host, "")
    cookie = f"{COOKIE}_{port}"  # because a browser sends the cookies of a host to all of its ports
    if name not in hosts:
        return PlainTextResponse("This name of the host is not allowed; start the viewer with --host NAME.", 421)
    if request.method not in ("GET", "HEAD") and (request.method != "POST" or not _takes(request)):
        return PlainTextResponse("The viewer shows runs and saves notes; it changes nothing else.", 405)
    if not token:
        return None
    given = request.query_params.get("token")
    if given is not None and secrets.compare_digest(given.encode(), token.encode()):
        target = request.url.remove_query_params("token")
        response = RedirectResponse(target.path + (f"?{target.query}" if target.query else ""), 303)
        response.set_cookie(cookie, token, httponly=True, samesite="strict", path="/")
        return response
    if secrets.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
        return None
    return PlainTextResponse("Open the address with its token, as `ansatz view` has printed it.", 403)


def _takes(request: Request) -> str:
    """Return a sentence about the content type that can be posted to the address; empty if nothing can be."""
    path = request.url.path
    question = "A question is sent as application/x-www-form-urlencoded"
    return "A note is sent as application/json" if path == NOTES else question if path.endswith("/try") else ""


def _refuse_post(request: Request, page_token: str) -> Response | None:
    """Return the answer to a post that is too long, of another type, or not from a page of this server; else None."""
    if request.method != "POST":
        return None
    how, length = _takes(request), request.headers.get("content-length", "")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != how.rpartition(" ")[2]:
        return PlainTextResponse(f"{how}.", 415)
    if not length.isdecimal() or int(length) > MAX_BYTES:
        return PlainTextResponse(f"{how}, in at most {MAX_BYTES} bytes. Shorten it.", 413)
    if request.headers.get("origin", "").partition("://")[2] != request.headers["host"]:
        return PlainTextResponse("It comes from a page of this viewer, and the Origin of this one is another.", 403)
    given = request.headers.get(TOKEN_HEADER) or request.query_params.get("page", "")
    if not secrets.compare_digest(given.encode(), page_token.encode()):
        return PlainTextResponse("The token of the page is missing, or of an earlier viewer. Load the page again.", 403)
    return None


def _add_note(library: pages.Library, note: Any) -> None:
    """Append a note to the file of its run. Raise NotFound unless the run has the response."""
    checked = check_note(note)
    at = OpenRun.find(library, str(note.get("run")))
    at.find_row(checked["rollout"])
    add_note(notes_path(at.path, in_run=library.notes_in_run), checked)


def make_plain(value: Any) -> Any:
    """Return the context of a page as plain JSON values, without functions. NaN and infinities become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): make_plain(each) for name, each in value.items() if not callable(each)}
    return list(map(make_plain, value)) if isinstance(value, Iterable) else str(value)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    known = {"page.css": PAGE_STYLE, "page.js": PAGE_SCRIPT, "viewer.js": VIEWER_SCRIPT}
    if name not in known:
        return PlainTextResponse("This file does not exist.", 404)
    return Response(known[name], media_type="text/css" if name.endswith(".css") else "text/javascript")

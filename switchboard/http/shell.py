"""The thin shell between Quart and the desk, and the only module of the house that knows Quart."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import msgspec
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from switchboard.errors import Invalid, NotFound, TooLarge, Unsupported
from switchboard.http.bodies import BODY_SECONDS_MAX, check_encoding, read_body
from switchboard.http.call import Arrival, Reply, Route
from switchboard.http.delivery import delivery_of
from switchboard.http.desk import Desk, Request, bug_reply, content_of, problem_reply
from switchboard.http.exchange import Application
from switchboard.http.problems import MEDIA


def quart_application(desk: Desk, routes: Sequence[Route], *, hook_body_bytes_max: int) -> Application:
    """The ASGI application of these routes."""
    app = QuartTrio("switchboard", static_folder=None)
    # The backstop on what Quart may hold of a body that no handler reads; each route's own bound is checked as it comes.
    app.config["MAX_CONTENT_LENGTH"] = max(desk.body_bytes_max, hook_body_bytes_max)
    app.config["BODY_TIMEOUT"] = BODY_SECONDS_MAX
    app.config["RESPONSE_TIMEOUT"] = None  # the front door's stream bounds every send
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    for route in routes:
        rule = re.sub(r"{(\w+)}", r"<string:\1>", route.path)
        app.add_url_rule(rule, endpoint=f"{route.method} {route.path}", view_func=_view(desk, route), methods=[route.method])
    app.register_error_handler(HTTPException, _http_problem)
    app.register_error_handler(Exception, _internal_problem)
    return app


def _view(desk: Desk, route: Route) -> Callable[..., Awaitable[Response]]:
    async def view(**path: str) -> Response:
        asked = Request(
            path=path,
            # Senders of webhooks put into their address what they like; it says nothing to us.
            query={} if route.any_bytes else {name: request.args.getlist(name) for name in request.args},
            header=request.headers.get,
            body=request.body,
            content_length=request.content_length,
            chunked="Transfer-Encoding" in request.headers,
            arrival=_arrival() if route.any_bytes else None,
        )
        reply = await desk.answer(route, asked)
        delivery = delivery_of(request.scope)
        delivery.hand_over(reply.claims)
        if request.method == "HEAD" and not isinstance(reply.content, bytes | msgspec.Struct):
            # The head of an answer without an end: nobody would ever hear that it is over.
            reply = attrs.evolve(reply, content=b"")
        delivery.over = reply.over
        return _response(reply)

    return view


def _arrival() -> Arrival:
    async def read(bytes_max: int) -> bytes:
        check_encoding(request.headers.get("Content-Encoding"))
        return await read_body(request.body, declared=request.content_length, bytes_max=bytes_max)

    client: Any = request.scope.get("client")
    peer = client[0] if client else None
    return Arrival(headers=list(request.scope["headers"]), peer=peer, content_length=request.content_length, read=read)


def _response(reply: Reply) -> Response:
    response = Response(content_of(reply), status=reply.status, content_type=reply.content_type)
    for name, value in reply.headers:
        response.headers[name] = value
    return response


async def _http_problem(error: HTTPException) -> Response:
    """Werkzeug's errors in our words: no such address, no such method, a body over the backstop."""
    status = error.code or 500
    if status == NotFound().status:
        return _response(problem_reply(NotFound(detail="There is no such address.")))
    if status == TooLarge(detail="").status:
        return _response(problem_reply(TooLarge(detail="The body is too large.")))
    if status == 405:
        response = _response(problem_reply(Unsupported(detail="This address does not take that method.", status=405)))
        response.headers.extend(error.get_headers() or [])
        response.headers["Content-Type"] = MEDIA
        return response
    return _response(problem_reply(Invalid(detail=error.name, status=status if 400 <= status < 500 else 400)))


async def _internal_problem(error: Exception) -> Response:
    """A bug."""
    return _response(bug_reply(error, method=request.method, place=str(request.url_rule)))

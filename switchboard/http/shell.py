"""The thin shell that binds handlers to Quart: the only module of the house that knows it.

For each request: who is calling, the query, the body within its bound, the handler, the reply; errors become problem+json.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import msgspec
import structlog
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from switchboard.endpoint import Endpoint
from switchboard.errors import Invalid, NotFound, QueueError, TooLarge, Unsupported
from switchboard.http import wire
from switchboard.http.access import Access, credential_of
from switchboard.http.bodies import BODY_OVERHEAD_BYTES, BODY_SECONDS_MAX, LargeBodies, check_encoding, read_body
from switchboard.http.call import Arrival, Call, Reply, Route
from switchboard.http.decoding import decode_body, decode_query
from switchboard.http.delivery import delivery_of
from switchboard.http.exchange import Application
from switchboard.http.problems import MEDIA, headers_of, reply_of
from switchboard.http.requests import NoBody

_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json")

_log = structlog.get_logger("http")


class Shell:
    """Everything that a request needs before and after its handler."""

    def __init__(
        self,
        *,
        access: Access,
        large_bodies: LargeBodies,
        payload_bytes_max: int,
        batch_body_bytes_max: int,
        hook_body_bytes_max: int,
    ) -> None:
        self._access = access
        self._payload_bytes_max = payload_bytes_max
        self._hook_body_bytes_max = hook_body_bytes_max
        self._large_bodies = large_bodies
        self._body_bytes_max = {
            "payload": payload_bytes_max + BODY_OVERHEAD_BYTES,
            "batch": max(batch_body_bytes_max, payload_bytes_max + BODY_OVERHEAD_BYTES),
        }

    def application(self, routes: Sequence[Route]) -> Application:
        """The ASGI application of these routes."""
        app = QuartTrio("switchboard", static_folder=None)
        # The backstop on what Quart may hold of a body that no handler reads; each route's own bound is checked as it comes.
        app.config["MAX_CONTENT_LENGTH"] = max(*self._body_bytes_max.values(), self._hook_body_bytes_max)
        app.config["BODY_TIMEOUT"] = BODY_SECONDS_MAX
        app.config["RESPONSE_TIMEOUT"] = None  # the front door's stream bounds every send
        app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        app.url_map.strict_slashes = False
        app.url_map.merge_slashes = False
        for route in routes:
            rule = re.sub(r"{(\w+)}", r"<string:\1>", route.path)
            app.add_url_rule(rule, endpoint=f"{route.method} {route.path}", view_func=self._view(route), methods=[route.method])
        app.register_error_handler(HTTPException, _http_problem)
        app.register_error_handler(Exception, _internal_problem)
        return app

    def _view(self, route: Route) -> Callable[..., Awaitable[Response]]:
        async def view(**path: str) -> Response:
            size, chunked = request.content_length, "Transfer-Encoding" in request.headers
            try:
                async with self._large_bodies.room(size, chunked=chunked) as leave_if_small:
                    call = await self._call(route, path, leave_if_small)
                    reply = await reply_of(route.handler, call, place=route.path)
            except QueueError as error:
                return _problem(error)
            delivery = delivery_of(request.scope)
            delivery.hand_over(reply.claims)
            if request.method == "HEAD" and not isinstance(reply.content, bytes | msgspec.Struct):
                # The head of an answer without an end: nobody would ever hear that it is over.
                reply = attrs.evolve(reply, content=b"")
            delivery.over = reply.over
            return _response(reply)

        return view

    async def _call(self, route: Route, path: dict[str, str], leave_if_small: Callable[[int], None]) -> Call[Any, Any]:
        caller = await self._caller(route)
        # Senders of webhooks put into their address what they like; it says nothing to us.
        asked = {} if route.any_bytes else {name: request.args.getlist(name) for name in request.args}
        query = decode_query(asked, route.query)
        body = NoBody() if route.body is None else await self._body(route, leave_if_small)
        authorization = request.headers.get("Authorization")
        return Call(
            path=path,
            body=body,
            query=query,
            caller=caller,
            credential_sha256=credential_of(authorization) if route.who == "agent" else b"",
            arrival=_arrival() if route.any_bytes else None,
        )

    async def _caller(self, route: Route) -> Endpoint | None:
        authorization = request.headers.get("Authorization")
        if route.who == "agent":
            return await self._access.endpoint(authorization)
        if route.who == "operator":
            self._access.operator(authorization)
        return None

    async def _body(self, route: Route, leave_if_small: Callable[[int], None]) -> Any:
        kind = route.body
        if kind is None:
            raise RuntimeError("a route without a body was asked for one")
        check_encoding(request.headers.get("Content-Encoding"))
        bytes_max = self._body_bytes_max[route.size]
        raw = await read_body(request.body, declared=request.content_length, bytes_max=bytes_max)
        leave_if_small(len(raw))
        if not raw:
            if route.body_optional:
                return kind()
            raise Invalid(detail="The body is empty; send a JSON object.", field="body", status=400)
        _check_content_type()
        return decode_body(raw, kind, payload_bytes_max=self._payload_bytes_max)


def _arrival() -> Arrival:
    async def read(bytes_max: int) -> bytes:
        check_encoding(request.headers.get("Content-Encoding"))
        return await read_body(request.body, declared=request.content_length, bytes_max=bytes_max)

    client: Any = request.scope.get("client")
    peer = client[0] if client else None
    return Arrival(headers=list(request.scope["headers"]), peer=peer, content_length=request.content_length, read=read)


def _check_content_type() -> None:
    content_type = request.headers.get("Content-Type")
    if content_type is None:
        return
    if not _JSON.fullmatch(request.mimetype.lower()):
        raise Unsupported(detail="Content-Type must be application/json.")
    charset = request.mimetype_params.get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise Unsupported(detail="The charset must be utf-8.")


def _response(reply: Reply) -> Response:
    content = wire.encode(reply.content) if isinstance(reply.content, msgspec.Struct) else reply.content
    response = Response(content, status=reply.status, content_type=reply.content_type)
    for name, value in reply.headers:
        response.headers[name] = value
    return response


def _problem(error: QueueError) -> Response:
    response = Response(wire.encode(wire.problem_out(error)), status=error.status, content_type=MEDIA)
    for name, value in headers_of(error):
        response.headers[name] = value
    return response


async def _http_problem(error: HTTPException) -> Response:
    """Werkzeug's errors in our words: no such address, no such method, a body over the backstop."""
    status = error.code or 500
    if status == NotFound().status:
        return _problem(NotFound(detail="There is no such address."))
    if status == TooLarge(detail="").status:
        return _problem(TooLarge(detail="The body is too large."))
    if status == 405:
        response = _problem(Unsupported(detail="This address does not take that method.", status=405))
        response.headers.extend(error.get_headers() or [])
        response.headers["Content-Type"] = MEDIA
        return response
    return _problem(Invalid(detail=error.name, status=status if 400 <= status < 500 else 400))


async def _internal_problem(error: Exception) -> Response:
    """A bug: told to the operator whole, to the caller not at all."""
    _log.error("request_failed", route=str(request.url_rule), method=request.method, exc_info=error)
    return _problem(QueueError(detail=""))

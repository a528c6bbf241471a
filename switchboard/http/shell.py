"""The thin shell that binds handlers to Quart: the only module of the house that knows it.

For each request: who is calling, the query, the body within its bound, the handler, the reply; errors become problem+json.
Around the application stands one more layer, which undoes the claims of a reply that never reached the socket (R15).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import msgspec
import structlog
import trio
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from switchboard.endpoint import Endpoint
from switchboard.errors import (
    BlamesOne,
    Invalid,
    NotFound,
    OutcomeUnknown,
    QueueError,
    RateLimited,
    RerunWhole,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from switchboard.http import wire
from switchboard.http.access import Access, credential_of
from switchboard.http.call import Arrival, Call, Reply, Route
from switchboard.http.decoding import decode_body, decode_query
from switchboard.http.exchange import Application
from switchboard.http.requests import NoBody
from switchboard.todo import Todo

BODY_SECONDS_MAX: Final = 30.0
BODY_OVERHEAD_BYTES: Final = 80 * 1024
"""What a body may hold beside its payload: every other field at its longest, escaped."""
LARGE_BODY_BYTES: Final = 256 * 1024
LARGE_BODIES_MAX: Final = 4
"""Requests with more than `LARGE_BODY_BYTES` that are read and answered at a time: a bound on memory, not on small work."""
LARGE_BODY_WAIT_SECONDS_MAX: Final = 10.0
_CLAIMS: Final = "switchboard.claims"
_OVER: Final = "switchboard.over"
_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json")

_log = structlog.get_logger("http")


class Shell:
    """Everything that a request needs before and after its handler."""

    def __init__(
        self,
        *,
        access: Access,
        undo: Callable[[Sequence[Todo]], None],
        payload_bytes_max: int,
        batch_body_bytes_max: int,
        hook_body_bytes_max: int,
    ) -> None:
        self._access = access
        self._undo = undo
        self._payload_bytes_max = payload_bytes_max
        self._hook_body_bytes_max = hook_body_bytes_max
        self._large_bodies = trio.CapacityLimiter(LARGE_BODIES_MAX)
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

        async def with_undo(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            finally:
                over = scope.get(_OVER)
                if over is not None:
                    over()
                claims = scope.get(_CLAIMS)
                if claims and not scope["state"]["connection"].answered:
                    self._undo(claims)

        return with_undo

    def _view(self, route: Route) -> Callable[..., Awaitable[Response]]:
        async def view(**path: str) -> Response:
            try:
                async with self._room_for_body() as leave_if_small:
                    reply = await route.handler(await self._call(route, path, leave_if_small))
            except QueueError as error:
                return _problem(error)
            except (OutcomeUnknown, RerunWhole):  # from a transaction that did not go through the ledger
                return _problem(Unavailable(detail="The database could not finish this. Try again.", outcome_unknown=True))
            except BlamesOne as blame:
                _log.warning("request_refused_by_database", route=route.path, reason=str(blame))
                return _problem(Invalid(detail="The database cannot store this."))
            if reply.claims:
                request.scope[_CLAIMS] = reply.claims  # type: ignore[typeddict-unknown-key]  # ours, beside ASGI's own
            if request.method == "HEAD" and not isinstance(reply.content, bytes | msgspec.Struct):
                # The head of an answer without an end: nobody would ever hear that it is over.
                reply = attrs.evolve(reply, content=b"")
            if reply.over is not None:
                request.scope[_OVER] = reply.over  # type: ignore[typeddict-unknown-key]  # as well
            return _response(reply)

        return view

    @asynccontextmanager
    async def _room_for_body(self) -> AsyncIterator[Callable[[int], None]]:
        """Lets only `LARGE_BODIES_MAX` requests with a large body, or one of unknown size, be in memory at a time.

        What it gives is to be told the size once the body is here: a small one takes no room any longer, however long its
        handler may wait.
        """
        size = request.content_length
        chunked = "Transfer-Encoding" in request.headers
        if not chunked and (size or 0) <= LARGE_BODY_BYTES:
            yield lambda _size: None
            return
        borrower: object | None = object()
        with trio.move_on_after(LARGE_BODY_WAIT_SECONDS_MAX) as patience:
            await self._large_bodies.acquire_on_behalf_of(borrower)
        if patience.cancelled_caught:
            raise Unavailable(detail="Too many large bodies at once. Try again.")

        def leave_if_small(size: int) -> None:
            nonlocal borrower
            if borrower is not None and size <= LARGE_BODY_BYTES:
                self._large_bodies.release_on_behalf_of(borrower)
                borrower = None

        try:
            yield leave_if_small
        finally:
            leave_if_small(0)

    async def _call(self, route: Route, path: dict[str, str], leave_if_small: Callable[[int], None]) -> Call[Any, Any]:
        caller = await self._caller(route)
        query = decode_query({name: request.args.getlist(name) for name in request.args}, route.query)
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
        _check_encoding()
        raw = await _read(self._body_bytes_max[route.size])
        leave_if_small(len(raw))
        if not raw:
            if route.body_optional:
                return kind()
            raise Invalid(detail="The body is empty; send a JSON object.", field="body", status=400)
        _check_content_type()
        return decode_body(raw, kind, payload_bytes_max=self._payload_bytes_max)


def _arrival() -> Arrival:
    async def read(bytes_max: int) -> bytes:
        _check_encoding()
        return await _read(bytes_max)

    client: Any = request.scope.get("client")
    peer = client[0] if client else None
    return Arrival(headers=list(request.scope["headers"]), peer=peer, content_length=request.content_length, read=read)


def _check_encoding() -> None:
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Unsupported(detail="Content-Encoding is not spoken here; send the body as it is.")


def _check_content_type() -> None:
    content_type = request.headers.get("Content-Type")
    if content_type is None:
        return
    if not _JSON.fullmatch(request.mimetype.lower()):
        raise Unsupported(detail="Content-Type must be application/json.")
    charset = request.mimetype_params.get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise Unsupported(detail="The charset must be utf-8.")


async def _read(bytes_max: int) -> bytes:
    """The body, no more of it than `bytes_max`, within `BODY_SECONDS_MAX`."""
    too_large = TooLarge(detail=f"The body is over {bytes_max} bytes.")
    if request.content_length is not None and request.content_length > bytes_max:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    with trio.move_on_after(BODY_SECONDS_MAX) as patience:
        async for chunk in request.body:
            size += len(chunk)
            if size > bytes_max:
                raise too_large
            chunks.append(chunk)
    if patience.cancelled_caught:
        raise Invalid(detail=f"The body did not arrive within {BODY_SECONDS_MAX:.0f} seconds.", field="body", status=400)
    return b"".join(chunks)


def _response(reply: Reply) -> Response:
    content = wire.encode(reply.content) if isinstance(reply.content, msgspec.Struct) else reply.content
    response = Response(content, status=reply.status, content_type=reply.content_type)
    for name, value in reply.headers:
        response.headers[name] = value
    return response


def _problem(error: QueueError) -> Response:
    response = Response(wire.encode(wire.problem_out(error)), status=error.status, content_type="application/problem+json")
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Unavailable | RateLimited):
        response.headers["Retry-After"] = str(error.retry_after_seconds)
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
        response.headers["Content-Type"] = "application/problem+json"
        return response
    return _problem(Invalid(detail=error.name, status=status if 400 <= status < 500 else 400))


async def _internal_problem(error: Exception) -> Response:
    """A bug: told to the operator whole, to the caller not at all."""
    _log.error("request_failed", route=str(request.url_rule), method=request.method, exc_info=error)
    return _problem(QueueError(detail=""))

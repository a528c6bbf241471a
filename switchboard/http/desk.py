"""Everything that a request needs before and after its handler, whichever server took it in (rule 8).

For each request: who is calling, the query, the body within its bound, the handler, the reply; whatever a caller may be told
becomes a reply too. The shell (`shell`) brings requests here from Quart, the express lane (`express_lane`) straight from a
socket: same handlers, same limits, same errors.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from email.message import Message
from functools import partial
from typing import Any, Final

import attrs
import msgspec
import structlog

from switchboard.endpoint import Endpoint
from switchboard.errors import Invalid, QueueError, Unsupported
from switchboard.http import wire
from switchboard.http.access import Access
from switchboard.http.bodies import BODY_OVERHEAD_BYTES, LargeBodies, check_encoding, check_size, read_body
from switchboard.http.call import Arrival, Call, Reply, Route
from switchboard.http.decoding import decode_body, decode_query
from switchboard.http.problems import MEDIA, headers_of, reply_of
from switchboard.http.requests import NoBody

_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII)

_log = structlog.get_logger("http")


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """A request as its server took it in. `header` tells one by its name in small letters.

    A body that is here whole is bytes; else it comes in pieces, and is read once the caller is known. `attended` runs a
    handler that may wait long, where the server would not notice by itself that the client goes away.
    """

    path: Mapping[str, str]
    header: Callable[[str], str | None] = attrs.field(repr=False)
    body: bytes | AsyncIterable[bytes] = attrs.field(repr=False)
    content_length: int | None
    chunked: bool = False
    query: Mapping[str, list[str]] = attrs.field(factory=dict, repr=False)
    arrival: Arrival | None = None
    attended: Callable[[Callable[[], Awaitable[Reply]]], Awaitable[Reply]] | None = None


class Desk:
    """Answers requests to the routes of the house."""

    def __init__(self, *, access: Access, large_bodies: LargeBodies, payload_bytes_max: int, batch_body_bytes_max: int) -> None:
        self._access = access
        self._large_bodies = large_bodies
        self._payload_bytes_max = payload_bytes_max
        self._body_bytes_max = {
            "payload": payload_bytes_max + BODY_OVERHEAD_BYTES,
            "batch": max(batch_body_bytes_max, payload_bytes_max + BODY_OVERHEAD_BYTES),
        }

    @property
    def body_bytes_max(self) -> int:
        """The largest body that any of its routes takes."""
        return max(self._body_bytes_max.values())

    async def answer(self, route: Route, request: Request) -> Reply:
        """The reply to a request, problems included. What it raises is a bug, for `bug_reply`."""
        try:
            if isinstance(request.body, bytes):
                return await self._answer(route, request, _small)
            async with self._large_bodies.room(request.content_length, chunked=request.chunked) as leave_if_small:
                return await self._answer(route, request, leave_if_small)
        except QueueError as error:
            return problem_reply(error)

    async def _answer(self, route: Route, request: Request, leave_if_small: Callable[[int], None]) -> Reply:
        authorization = request.header("authorization")
        caller, credential_sha256 = await self._caller(route, authorization)
        query = decode_query(request.query, route.query)
        body = NoBody() if route.body is None else await self._body(route, route.body, request, leave_if_small)
        call = Call(
            path=request.path,
            body=body,
            query=query,
            caller=caller,
            credential_sha256=credential_sha256,
            arrival=request.arrival,
        )
        if request.attended is None or not getattr(body, "wait_seconds", 0):
            return await reply_of(route.handler, call, place=route.path)
        return await request.attended(partial(_told, route, call))

    async def _caller(self, route: Route, authorization: str | None) -> tuple[Endpoint | None, bytes]:
        if route.who == "agent":
            return await self._access.endpoint(authorization)
        if route.who == "operator":
            self._access.operator(authorization)
        return None, b""

    async def _body(
        self, route: Route, kind: type[msgspec.Struct], request: Request, leave_if_small: Callable[[int], None]
    ) -> Any:
        check_encoding(request.header("content-encoding"))
        bytes_max = self._body_bytes_max[route.size]
        if isinstance(request.body, bytes):
            raw = request.body
            check_size(len(raw), bytes_max=bytes_max)
        else:
            raw = await read_body(request.body, declared=request.content_length, bytes_max=bytes_max)
            leave_if_small(len(raw))
        if not raw:
            if route.body_optional:
                return kind()
            raise Invalid(detail="The body is empty; send a JSON object.", field="body", status=400)
        _check_content_type(request.header("content-type"))
        return decode_body(raw, kind, payload_bytes_max=self._payload_bytes_max)


async def _told(route: Route, call: Call[Any, Any]) -> Reply:
    """The handler's reply, a problem among them."""
    try:
        return await reply_of(route.handler, call, place=route.path)
    except QueueError as error:
        return problem_reply(error)


def problem_reply(error: QueueError, *more: tuple[str, str]) -> Reply:
    """An error on its way out, as problem+json."""
    return Reply(
        content=wire.encode(wire.problem_out(error)),
        status=error.status,
        content_type=MEDIA,
        headers=(*headers_of(error), *more),
    )


def bug_reply(error: BaseException, *, method: str, place: str) -> Reply:
    """A bug: told to the operator whole, to the caller not at all."""
    _log.error("request_failed", route=place, method=method, exc_info=error)
    return problem_reply(QueueError(detail=""))


def content_of(reply: Reply) -> Any:
    """What the answer carries, as bytes, or piece by piece where it comes so."""
    return wire.encode(reply.content) if isinstance(reply.content, msgspec.Struct) else reply.content


def _small(_size: int) -> None:
    """A body that was here whole before its turn took no room of the large ones."""


def _check_content_type(content_type: str | None) -> None:
    if content_type is None or content_type == "application/json":
        return
    field = Message()
    field["Content-Type"] = content_type
    if not _JSON.fullmatch(field.get_content_type()):
        raise Unsupported(detail="Content-Type must be application/json.")
    if field.get_content_charset("utf-8") not in ("utf-8", "utf8", "us-ascii"):
        raise Unsupported(detail="The charset must be utf-8.")

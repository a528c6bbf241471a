"""A client for agents, on Trio and asyncio alike: claims todos, keeps their leases while the work is done, finishes them.

    async with Client("http://127.0.0.1:8080", credential) as client:
        for todo in await client.claim(queue="reviews", wait_seconds=30):
            async with client.work_on(todo) as work:
                await work.complete({"verdict": await review(todo.payload)})

Every wait is bounded. What a house refuses is raised as the error of `switchboard.errors` that it is, with `code`, `status`,
`title`, `detail` and, where the request was wrong, `field`. The credential is in no repr, no error and no log.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import httpx

from switchboard import VERSION
from switchboard.answers import NotAHouse, Todo, TodoReply, Whoami, claimed, decoded, refusal
from switchboard.errors import SwitchboardError
from switchboard.held import LET_GO_SECONDS_MAX, LeaseLost, Verb, Work, repeated
from switchboard.loopback import on_loopback
from switchboard.pauses import Pauses, Unreachable, passes

__all__ = ["Client", "LeaseLost", "NotAHouse", "Todo", "Unreachable", "Whoami", "Work"]

CONNECT_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS_MAX: Final = 30.0  # longer than the house itself waits for its database; a waiting claim adds its wait
ANSWER_BYTES_MAX: Final = 64 * 1_048_576  # a claim's payloads at their largest, and room
REPEAT_SECONDS: Final = 10.0
"""How long a call is repeated, at least, while no answer comes: a connection that a house left behind is nobody's fault."""
EARLY_SECONDS: Final = 0.5
"""A house that closes answers waiting claims at once, with nothing: what comes earlier than this is asked again."""
CONNECTIONS_MAX: Final = 100

_VISIBLE: Final = re.compile(r"[!-~]{1,512}")
_JSON: Final = {"content-type": "application/json"}


class Client:
    """A way to one house with one endpoint's credential. It is closed by leaving the `async with` block.

    Many tasks may use one client at a time. `heard` is called after each exchange: with the error where the house is away
    (no answer, or 5xx), with None where it answered.

    Raises ValueError where the address or the credential cannot be one, or the environment's proxy or certificates are no good.
    """

    def __init__(self, url: str, credential: str, *, heard: Callable[[SwitchboardError | None], None] | None = None) -> None:
        self.url = _checked(url)
        if not _VISIBLE.fullmatch(credential):
            raise ValueError("The credential must be 1 to 512 visible ASCII characters without blanks.")
        self._heard = heard or (lambda _error: None)
        headers = {
            "authorization": f"Bearer {credential}",
            "user-agent": f"switchboard/{VERSION}",
            "accept-encoding": "identity",
        }
        try:
            self._http = httpx.AsyncClient(
                headers=headers,
                limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
                # The environment's proxies and certificates are for the way out of this machine, not for loopback.
                trust_env=not on_loopback(self.url),
            )
        except (ImportError, ValueError, OSError, httpx.InvalidURL):
            # `from None`: the exception may hold a proxy's password.
            raise ValueError("The proxy or the certificates that the environment names cannot be used.") from None

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, where: TracebackType | None) -> None:
        await self._http.aclose()

    async def whoami(self) -> Whoami:
        """Whose credential this is, and the house's defaults and bounds.

        Raises Unauthorized; Unreachable or Unavailable after REPEAT_SECONDS without an answer; NotAHouse.
        """
        until = anyio.current_time() + REPEAT_SECONDS
        return decoded(await repeated(lambda: self._exchange("GET", "/v1/whoami"), until=until), Whoami)

    async def claim(
        self,
        *,
        queue: str | None = None,
        queues: Sequence[str] | None = None,
        owner: str | None = None,
        lease_seconds: int | None = None,
        max: int = 1,  # noqa: A002 - the contract's word
        wait_seconds: float = 0.0,
    ) -> list[Todo]:
        """Claims up to `max` (1 to 1,000) todos of `queue`, of any of `queues`, or, with neither, of any queue in scope.

        `lease_seconds` (1 to 86,400) is the house's default where it is not given, `owner` the endpoint's name. Where there
        is no work, it waits up to `wait_seconds` (0 to 60) for some, and returns an empty list then.

        A claim whose answer was lost is asked again, until the wait is over and REPEAT_SECONDS at least: the house takes
        back what it could not hand over. Whoever is cancelled while the answer comes in holds nothing either.

        Raises Unauthorized, Forbidden (not a queue of this endpoint), Invalid (with `field`), NotAHouse, and Unreachable or
        Unavailable where the house stays away.
        """
        asked = {"queue": queue, "queues": queues and list(queues), "owner": owner, "lease_seconds": lease_seconds, "max": max}
        return await self._claim_patiently({name: value for name, value in asked.items() if value is not None}, wait_seconds)

    @asynccontextmanager
    async def work_on(self, todo: Todo) -> AsyncIterator[Work]:
        """Keeps the lease of `todo` while the block runs: a heartbeat every third of it, by the lease that the house reports.

        How the block ends is how the todo ends, unless the block has finished it already (`Work.complete`, `fail`, `release`):

        - to its end: it is completed, without a result;
        - by an exception: it is failed, with the exception's type and message, and the exception goes on;
        - cancelled, or by KeyboardInterrupt: it is released, within LET_GO_SECONDS_MAX, and the cancellation goes on;
        - the lease is lost (409 or 404 to a heartbeat, another refusal, or no answer until it is over): the block is
          cancelled, and LeaseLost is raised. Nothing is finished: somebody else may have the todo.

        Raises what `Work.complete` raises.
        """
        if todo.lease_token is None:
            raise ValueError("This todo is not held: only a claim hands over its lease token.")
        work = Work(todo, self._sender(todo), finish_seconds_max=ANSWER_SECONDS_MAX)
        failure: Exception | KeyboardInterrupt | SystemExit | None = None
        try:
            async with anyio.create_task_group() as tasks:
                beating = anyio.CancelScope(shield=True)
                tasks.start_soon(work.keep_lease, beating, tasks.cancel_scope)
                try:
                    yield work
                except (Exception, KeyboardInterrupt, SystemExit) as exc:  # noqa: BLE001 - raised again below, out of the task group
                    failure = exc
                finally:
                    beating.cancel()
        except anyio.get_cancelled_exc_class():
            await work.let_go()
            raise
        if work.lost is not None and not work.finished:
            if failure is None or failure is work.lost:
                raise work.lost
            raise work.lost from failure
        if failure is None:
            if not work.finished:
                await work.complete()
            return
        if not work.finished:
            await (work.give_up(failure) if isinstance(failure, Exception) else work.let_go())
        raise failure

    async def _claim_patiently(self, asked: dict[str, object], wait_seconds: float) -> list[Todo]:
        ends = anyio.current_time() + wait_seconds
        repeat_until = max(ends, anyio.current_time() + REPEAT_SECONDS)
        pauses, left = Pauses(), wait_seconds
        while True:
            try:
                todos = await self._claim_once({**asked, "wait_seconds": left}, left)
            except SwitchboardError as exc:
                pause = pauses.after(exc)
                if not passes(exc) or anyio.current_time() + pause > repeat_until:
                    raise
            else:
                if todos or ends - anyio.current_time() < EARLY_SECONDS:
                    return todos
                pause = pauses.after()
            await anyio.sleep(pause)
            left = max(0.0, ends - anyio.current_time())

    async def _claim_once(self, body: dict[str, object], wait_seconds: float) -> list[Todo]:
        answer = await self._exchange("POST", "/v1/claims", json.dumps(body), wait_seconds=wait_seconds)
        todos = claimed(answer, heard_at=anyio.current_time())
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
        except anyio.get_cancelled_exc_class():
            # The caller will never see them, and the house knows them to be delivered.
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    for todo in todos:
                        work = Work(todo, self._sender(todo), finish_seconds_max=LET_GO_SECONDS_MAX)
                        tasks.start_soon(work.let_go)
            raise
        return todos

    def _sender(self, todo: Todo) -> Callable[[Verb, str, float], Awaitable[Todo]]:
        async def send(verb: Verb, fields: str, seconds_max: float) -> Todo:
            # Spliced in as text: decoding and encoding a result again would cost big integers and repeated names.
            body = f'{{"lease_token": {json.dumps(todo.lease_token)}{", " if fields != "{}" else ""}{fields[1:]}'
            path = f"/v1/todos/{todo.id}/{verb}"
            return decoded(await self._exchange("POST", path, body, seconds_max=seconds_max), TodoReply).todo

        return send

    async def _exchange(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        seconds_max: float = ANSWER_SECONDS_MAX,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """One request and its answer. Raises the error that it is where it is no success, and Unreachable where none came."""
        timeout = httpx.Timeout(seconds_max + wait_seconds, connect=CONNECT_SECONDS_MAX)
        content = None if body is None else body.encode()
        request = self._http.build_request(
            method, f"{self.url}{path}", content=content, headers=None if body is None else _JSON, timeout=timeout
        )
        try:
            with anyio.fail_after(seconds_max + wait_seconds):
                response = await self._http.send(request, stream=True)
                # An answer that has begun is read to its end: it may hold claims that nobody else knows of.
                with anyio.fail_after(ANSWER_SECONDS_MAX, shield=True):
                    answer = await _read(response)
        except (httpx.HTTPError, TimeoutError) as exc:
            away = Unreachable(_reason(exc))
            self._heard(away)
            raise away from exc
        if response.is_success:
            self._heard(None)
            return answer
        error = refusal(response.status_code, answer, response.headers.get("retry-after", ""))
        self._heard(error if response.is_server_error else None)
        raise error


async def _read(response: httpx.Response) -> bytes:
    """The body. Raises httpx's own error where it is too long, as for every other failure to read."""
    body = bytearray()
    try:
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx.DecodingError(f"over {ANSWER_BYTES_MAX} bytes")
    finally:
        await response.aclose()
    return bytes(body)


def _reason(exc: Exception) -> str:
    if isinstance(exc, httpx.ProxyError):
        return "The proxy on the way to it failed."
    if isinstance(exc, httpx.ConnectTimeout):
        return f"No connection within {CONNECT_SECONDS_MAX:g} s."
    if isinstance(exc, httpx.ConnectError):
        return "No connection."
    if isinstance(exc, httpx.TimeoutException | TimeoutError):
        return "No answer in time."
    return "The connection was lost before the whole answer had come."


def _checked(url: str) -> str:
    """`url` without a slash at its end. It is never repeated: it could hold a password."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and url.isprintable()
    except ValueError:
        good = False
    if not good or parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("The address of a house looks like http://127.0.0.1:8080.")
    return url.rstrip("/")

"""One connection to a Redis server, for Trio: the only door to redis-py and trio-asyncio.

A bare `Connection` of redis-py's asyncio client, not its pooling one: that reconnects and repeats by itself, and whoever
reads with acknowledgements must know when a connection was lost. Everything that goes wrong is one `BrokerError`, which
names the command and the key; the connection is of no use after it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import attrs
import trio
import trio_asyncio
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from switchboard.errors import BrokerError
from switchboard.masking import mask
from switchboard.pull.redis_url import RedisPlace

CONNECT_SECONDS_MAX: Final = 5.0
SOCKET_SECONDS_MAX: Final = 10.0
"""A server that is silent for this long in the middle of a command is gone. Every blocking read is far shorter."""
BLOCK_SECONDS_MAX: Final = 2.0
CLOSE_SECONDS_MAX: Final = 1.0
ERROR_CHARACTERS_MAX: Final = 200

T = TypeVar("T")
Word = bytes | str | int | float


class Refusal(BrokerError):
    """The server answered a command with an error; `word` is its first word, such as NOGROUP. The connection still stands."""

    def __init__(self, message: str, word: str) -> None:
        super().__init__(message)
        self.word = word

    @property
    def unknown_command(self) -> bool:
        """Whether the server is too old for the command."""
        return "unknown command" in str(self).lower()


@attrs.define(eq=False)
class RedisLink:
    """An open connection. Commands go one at a time; a cancelled one closes the connection."""

    _connection: Any
    identity: str = "redis acl: unknown"

    async def call(self, *words: Word, key: str = "") -> Any:
        """Sends one command and returns its reply as the server gave it: bytes, integers, None and lists of these.

        Raises Refusal where the server says no, BrokerError where it cannot be reached.
        """
        (reply,) = await self.call_many([words], key=key)
        return reply

    async def call_many(self, commands: Sequence[Sequence[Word]], *, key: str = "") -> list[Any]:
        """Sends commands in one go; returns their replies in order. All are run; the first refusal is raised after that."""
        name = _name_of(commands[0])
        replies = await self._guarded(name, key, lambda: self._exchange(commands))
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ResponseError):
                raise _refusal(_name_of(command), key, reply)
        return replies

    async def try_call(self, *words: Word, key: str = "") -> Any:
        """The same for what an ACL or an old server may refuse without harm: None then."""
        try:
            return await self.call(*words, key=key)
        except Refusal:
            return None

    async def send(self, *words: Word) -> None:
        """Sends a command whose reply comes as a push: all that a subscribed connection may do."""

        async def write() -> None:
            await self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)

        await self._guarded(_name_of(words), "", write)

    async def next_push(self, *, wait_seconds: float) -> Any:
        """What a subscribed connection hears next; None after `wait_seconds`."""

        async def read() -> Any:
            return await self._connection.read_response(disable_decoding=True, timeout=wait_seconds)

        return await self._guarded("SUBSCRIBE", "", read)

    async def _exchange(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        # redis-py would connect again here by itself, and nobody would hear that the first connection was lost.
        if not self._connection.is_connected:
            raise ConnectionError("the connection is closed")
        await self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await self._connection.read_response(disable_decoding=True))
            except ResponseError as refusal:
                replies.append(refusal)
        return replies

    async def _guarded(self, name: str, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            result: T = await trio_asyncio.aio_as_trio(work)()
        except ResponseError as exc:
            raise _refusal(name, key, exc) from exc
        except (RedisError, OSError) as exc:
            raise BrokerError(f"{_what(name, key)}: {_said(exc)}") from exc
        return result


@asynccontextmanager
async def open_link(place: RedisPlace, *, client_name: str) -> AsyncIterator[RedisLink]:
    """Connects, authenticates and asks who we are; closes the connection at the end, whatever happens.

    Raises BrokerError where there is no server, it refuses us, or it is a cluster's; inside the groups that trio-asyncio's
    loop makes of every error.
    """
    async with trio_asyncio.open_loop():
        connection = await _connect(place)
        try:
            link = RedisLink(connection)
            await _greet(link, client_name)
            yield link
        finally:
            await _hang_up(connection)


async def _hang_up(connection: Connection) -> None:
    """Closes the connection, also when nobody waits for it any more."""

    async def close() -> None:
        await connection.disconnect()  # waits: TLS takes its leave, and the loop that would close the socket is about to end
        await asyncio.sleep(0)

    with trio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
        await trio_asyncio.aio_as_trio(close)()


async def _connect(place: RedisPlace) -> Any:
    try:
        host, port = place.nodes[0] if place.service is None else await _ask_sentinels(place)
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "db": place.db,
            "username": place.username,
            "password": place.password,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": CONNECT_SECONDS_MAX,
            "socket_timeout": SOCKET_SECONDS_MAX,
            "socket_keepalive": True,
        }
        if place.tls:
            options |= {"ssl_ca_certs": place.ca_file, "ssl_certfile": place.cert_file, "ssl_keyfile": place.key_file}
            options |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
        connection: Connection = SSLConnection(**options) if place.tls else Connection(**options)
        try:
            await trio_asyncio.aio_as_trio(connection.connect)()
        except BaseException:
            await _hang_up(connection)  # refused after the socket was there, or cancelled half way
            raise
    except (RedisError, OSError, ssl.SSLError) as exc:
        raise BrokerError(f"{'AUTH' if _refuses_us(exc) else 'connect'}: {_said(exc)}") from exc
    return connection


async def _ask_sentinels(place: RedisPlace) -> tuple[str, int]:
    """The address of the master, as the first Sentinel that answers says."""
    sentinel: Any = Sentinel(
        list(place.nodes),
        sentinel_kwargs={
            "username": place.sentinel_username,
            "password": place.sentinel_password,
            "socket_timeout": CONNECT_SECONDS_MAX,
            "socket_connect_timeout": CONNECT_SECONDS_MAX,
            "retry": Retry(NoBackoff(), 0),
        },
    )

    async def ask() -> tuple[str, int]:
        try:
            found: tuple[str, int] = await sentinel.discover_master(place.service)
        except MasterNotFoundError:
            # Its own text is a dump of every client. `from None`: so is the exception.
            raise BrokerError(
                f"SENTINEL MASTER {place.service}: no Sentinel that answers knows a master of that name"
            ) from None
        finally:
            for client in sentinel.sentinels:
                await client.aclose()
            await asyncio.sleep(0)  # as in _hang_up
        return found

    address: tuple[str, int] = await trio_asyncio.aio_as_trio(ask)()
    return address


async def _greet(link: RedisLink, client_name: str) -> None:
    about = await link.try_call("HELLO")
    if isinstance(about, list) and dict(zip(about[::2], about[1::2], strict=False)).get(b"mode") == b"cluster":
        raise BrokerError("HELLO: this server is a node of a Redis Cluster, which switchboard does not read from")
    who = await link.try_call("ACL", "WHOAMI")
    # Before ACLs (Redis 5), or where WHOAMI is denied, it is known only that somebody was let in.
    link.identity = f"redis acl: {who.decode('utf-8', 'backslashreplace') if isinstance(who, bytes) else 'unknown'}"
    await link.try_call("CLIENT", "SETNAME", client_name)


def _refusal(name: str, key: str, exc: ResponseError) -> Refusal:
    said = _said(exc)
    word = str(getattr(exc, "status_code", None) or said.partition(" ")[0])
    if word in ("MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN"):
        said = "this server is a node of a Redis Cluster, which switchboard does not read from"
    elif not said.startswith(word):  # redis-py takes the word off those that it knows
        said = f"{word} {said}"
    return Refusal(f"{_what(name, key)}: {said}", word)


def _what(name: str, key: str) -> str:
    return f"{name} {key}" if key else name


def _name_of(command: Sequence[Word]) -> str:
    word = str(command[0])
    return f"{word} {command[1]!s}" if word in ("XGROUP", "XINFO", "ACL", "CLIENT") else word


def _refuses_us(exc: BaseException) -> bool:
    return isinstance(exc, AuthenticationError | AuthorizationError) or "NOAUTH" in str(exc)


def _said(exc: BaseException) -> str:
    """What went wrong in one masked line: servers repeat no credentials, and nobody relies on that."""
    text = mask(" ".join(str(exc).split())) or type(exc).__name__
    return text[:ERROR_CHARACTERS_MAX]

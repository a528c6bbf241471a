"""The front door on real sockets: what a client may do, and what it may not do to the house."""

from __future__ import annotations

import io
import resource
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest
import trio
import trio.testing
from quart import request
from quart_trio import QuartTrio

from actors import front_door as front_door_module
from switchboard.http import guarded_stream
from tests.http.door import GET, connections_served, house_log, open_door, until

WEBSOCKET = (
    b"GET / HTTP/1.1\r\nhost: house\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


@attrs.define(eq=False)
class App:
    """A bare ASGI application. It keeps each request's exchange, and what `receive` said last."""

    exchanges: list[Any] = attrs.field(factory=list)
    events: list[str] = attrs.field(factory=list)
    begun: trio.Event = attrs.field(factory=trio.Event)
    release: trio.Event = attrs.field(factory=trio.Event)
    bytes_sent: int = 0
    ended: int = 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        self.exchanges.append(scope["state"]["connection"])
        self.begun.set()
        try:
            await getattr(self, scope["path"].strip("/") or "hello", self.missing)(receive, send)
        finally:
            self.ended += 1

    async def hello(self, receive: Receive, send: Send) -> None:
        await answer(send, b"hello")

    async def missing(self, receive: Receive, send: Send) -> None:
        await answer(send, b"", status=404)

    async def echo(self, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        await answer(send, body)

    async def waits(self, receive: Receive, send: Send) -> None:
        await self.release.wait()
        await answer(send, b"released")

    async def listens(self, receive: Receive, send: Send) -> None:
        while not self.events or self.events[-1] != "http.disconnect":
            self.events.append((await receive())["type"])

    async def floods(self, receive: Receive, send: Send) -> None:
        """A body without end, to whoever reads it, or does not."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5_000):
            if self.exchanges[-1].broken:
                return
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            self.bytes_sent += 65_536

    async def refuses(self, receive: Receive, send: Send) -> None:
        """Answers without reading the body."""
        await answer(send, b"too large", status=413)

    async def two_steps(self, receive: Receive, send: Send) -> None:
        """As Quart does it: the whole body, and then an empty last message, here long after the client has hung up."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello", "more_body": True})
        await self.release.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fails(self, receive: Receive, send: Send) -> None:
        raise RecursionError("sbk_secret")

    async def fails_late(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    async def stuck(self, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()


async def answer(send: Send, body: bytes, *, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


@pytest.fixture(autouse=True)
def logged() -> Iterator[io.StringIO]:
    """What the house logs during the test."""
    with house_log() as stream:
        yield stream


def get(path: str, *, more: bytes = b"") -> bytes:
    return b"GET /" + path.encode() + b" HTTP/1.1\r\nhost: house\r\n" + more + b"\r\n"


def quart_app() -> QuartTrio:
    app = QuartTrio("front door test")

    @app.get("/")
    async def hello() -> str:
        return "hello"

    @app.post("/echo")
    async def echo() -> bytes:
        return bytes(await request.get_data(as_text=False))

    return app


# HTTP/1.1


async def test_keep_alive_serves_many_requests_on_one_connection() -> None:
    """And the answers name no product and no version."""
    async with open_door(App()) as door, door.client() as client:
        for _ in range(50):
            await client.send(GET)
            status, headers, body = await client.read()
            assert (status, body) == (200, b"hello")
            assert "server" not in headers


async def test_pipelined_requests_are_answered_in_order() -> None:
    """All of them, bodies included, without waiting for the client to read."""
    post = b"POST /echo HTTP/1.1\r\nhost: house\r\ncontent-length: 3\r\n\r\n"
    async with open_door(App()) as door, door.client() as client:
        await client.send(b"".join(GET + post + b"%03d" % number for number in range(50)))
        for number in range(50):
            assert (await client.read())[2] == b"hello"
            assert (await client.read())[2] == b"%03d" % number


async def test_expect_100_continue() -> None:
    """The client is told to go on, and then sends its body."""
    async with open_door(App()) as door, door.client() as client:
        head = b"POST /echo HTTP/1.1\r\nhost: house\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        await client.send(head)
        assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await client.send(b"hello")
        assert (await client.read())[2] == b"hello"


async def test_connection_close_and_http_1_0_close() -> None:
    """Also under Quart, which is cancelled by the end of its own answer."""
    for app in (App(), quart_app()):
        async with open_door(app) as door:
            for data in (b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"):
                async with door.client() as client:
                    await client.send(data)
                    assert (await client.read())[2] == b"hello"
                    assert await client.rest() == b""


async def test_targets_that_are_no_path_are_a_400_and_a_proxys_target_is_understood() -> None:
    """`*`, an authority, a relative path: refused before the application; http://house/ is /."""
    async with open_door(App()) as door:
        for target in (b"*", b"house:80", b"x", b"?x", b"http:", b"ftp://house/"):
            status, headers, body = await door.ask(b"GET " + target + b" HTTP/1.1\r\nhost: house\r\n\r\n")
            assert status == 400
            assert headers["content-type"] == "application/problem+json"
            assert b'"code": "invalid"' in body
        for target in (b"http://house/", b"http://house", b"HTTPS://house:8/"):
            assert (await door.ask(b"GET " + target + b" HTTP/1.1\r\nhost: house\r\n\r\n"))[2] == b"hello"


# HTTP/2


async def test_http2_with_prior_knowledge() -> None:
    """Many requests at once over one connection."""
    async with open_door(App()) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        for _ in range(20):
            peer.send_headers(peer.get_next_available_stream_id(), h2_head("/"), end_stream=True)
        answers = await h2_talk(client.stream, peer, streams=20)
        assert set(answers.values()) == {b"hello"}


async def test_h2c_upgrade() -> None:
    """The request that asked for the upgrade is answered over HTTP/2."""
    async with open_door(App()) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        settings = peer.initiate_upgrade_connection()
        assert settings is not None
        more = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: " + settings + b"\r\n"
        await client.send(get("", more=more))
        head = b""
        while b"\r\n\r\n" not in head:
            head += await client.stream.receive_some(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        assert await h2_talk(client.stream, peer, streams=1) == {1: b"hello"}


async def test_an_http2_stream_given_up_by_its_client_is_not_answered() -> None:
    """R15: the connection is well, the answer still reaches nobody. Hypercorn drops it without a word."""
    app = App()
    async with open_door(app) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        peer.send_headers(1, h2_head("/waits"), end_stream=True)
        await client.send(peer.data_to_send())
        await app.begun.wait()
        peer.reset_stream(1, error_code=h2.errors.ErrorCodes.CANCEL)
        peer.send_headers(3, h2_head("/"), end_stream=True)
        assert await h2_talk(client.stream, peer, streams=1) == {3: b"hello"}
        app.release.set()
        await until(lambda: app.ended == 2)
        given_up, other = app.exchanges
        assert (given_up.answered, given_up.broken) == (False, True)
        assert (other.answered, other.broken) == (True, False)


async def test_an_http2_client_that_opens_no_window_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is never full, so only the bound on the answer ends it; what it does not take is not gathered."""
    monkeypatch.setattr("switchboard.http.exchange.ANSWER_SECONDS_MAX", 0.3)
    app = App()
    async with open_door(app) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        peer.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        peer.send_headers(1, h2_head("/floods"), end_stream=True)
        await client.send(peer.data_to_send())
        await client.rest()
        await until(lambda: app.ended == 1 and not connections_served())
        assert app.exchanges[0].broken
        assert app.bytes_sent <= 65_536


async def test_rapid_reset_is_cut_off() -> None:
    """A client that opens and resets streams faster than applications end does not pile them up."""
    app = App()
    async with open_door(app) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        try:
            for _ in range(2_000):
                stream_id = peer.get_next_available_stream_id()
                peer.send_headers(stream_id, h2_head("/stuck"), end_stream=True)
                peer.reset_stream(stream_id)
                await client.send(peer.data_to_send())
        except trio.BrokenResourceError:
            pass
        await client.rest()
        await until(lambda: not connections_served())
        assert len(app.exchanges) <= front_door_module.REQUESTS_AT_ONCE_MAX
        assert (await door.ask())[0] == 200


# Clients that go, and whether their answers arrived


async def test_a_client_that_hangs_up_is_told_to_the_application() -> None:
    """FIN or RST, the application sees http.disconnect; the answer counts as broken."""
    for reset in (False, True):
        app = App()
        async with open_door(app) as door:
            async with door.client() as client:
                await client.send(get("listens"))
                await app.begun.wait()
                if reset:
                    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda app=app: app.ended == 1)  # type: ignore[misc]
            assert app.events == ["http.request", "http.disconnect"]
            assert app.exchanges[0].broken
            assert not app.exchanges[0].answered
            await until(lambda: not connections_served())


async def test_a_half_closed_client_counts_as_hung_up() -> None:
    """On the wire it is the same; nothing is left behind, and the client gets an orderly end."""
    app = App()
    async with open_door(app) as door, door.client() as client:
        await client.send(get("listens"))
        await app.begun.wait()
        await client.stream.send_eof()
        await client.rest()
        await until(lambda: app.ended == 1 and not connections_served())
        assert app.exchanges[0].broken


async def test_an_answer_that_arrived_counts_as_answered() -> None:
    """Under keep-alive, and with a close after it."""
    app = App()
    async with open_door(app) as door:
        await door.ask()
        await door.ask(get("", more=b"connection: close\r\n"))
        await until(lambda: app.ended == 2)
        assert [(exchange.answered, exchange.broken) for exchange in app.exchanges] == [(True, False)] * 2


async def test_a_client_that_has_its_whole_answer_and_hangs_up_was_answered() -> None:
    """R15: curl closes as soon as it has content-length bytes, before the application's empty last message."""
    app = App()
    async with open_door(app) as door:
        async with door.client() as client:
            await client.send(get("two_steps"))
            assert (await client.read())[2] == b"hello"
        await trio.sleep(0.05)
        app.release.set()
        await until(lambda: app.ended == 1)
        assert (app.exchanges[0].answered, app.exchanges[0].broken) == (True, False)


async def test_a_broken_send_is_visible() -> None:
    """The client is gone while the answer is on its way."""
    app = App()
    async with open_door(app) as door:
        async with door.client() as client:
            await client.send(get("floods"))
            await client.stream.receive_some()
        await until(lambda: app.ended == 1)
        assert (app.exchanges[0].answered, app.exchanges[0].broken) == (False, True)
        assert app.exchanges[0].stream.gone


async def test_a_pipelining_client_that_hung_up_is_not_answered() -> None:
    """Hypercorn does not read while it serves the first of two requests, so it cannot see the hang-up; we can."""
    app = App()
    async with open_door(app) as door:
        async with door.client() as client:
            await client.send(get("waits") + GET)
            await app.begun.wait()
        app.release.set()
        await until(lambda: not connections_served())
        assert not any(exchange.answered for exchange in app.exchanges)
        assert all(exchange.broken for exchange in app.exchanges)


async def test_a_refusal_reaches_a_client_that_is_still_sending() -> None:
    """C11: the answer to a large body survives the close, and the reader does not wait for ever behind it."""
    for app in (App(), quart_app()):
        async with open_door(app) as door:
            async with door.client() as client:
                size = 5_000_000
                head = b"POST /refuses HTTP/1.1\r\nhost: house\r\ncontent-length: %d\r\n\r\n" % size
                await client.send(head + b"x" * size)
                status, _, _ = await client.read()
                assert status in {404, 413}
            await until(lambda: not connections_served())


# Clients that take their time


async def test_a_client_that_never_reads_is_cut_off_and_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer stops at the kernel's buffers, and its connection after the bound."""
    monkeypatch.setattr(guarded_stream, "SEND_SECONDS_MAX", 0.5)
    app = App()
    async with open_door(app) as door, door.client() as client:
        before = resident_bytes()
        await client.send(get("floods"))
        await until(lambda: app.ended == 1)
        assert app.exchanges[0].broken
        assert app.exchanges[0].stream.broken
        assert app.bytes_sent < 16_000_000
        assert resident_bytes() - before < 16_000_000
        await until(lambda: not connections_served())
        assert (await door.ask())[0] == 200


async def test_a_client_that_only_sends_is_not_read_without_bound() -> None:
    """Pipelined requests wait in the kernel, not in our memory."""
    app = App()
    async with open_door(app, drain_seconds=0.1) as door, door.client() as client:
        with trio.move_on_after(0.3) as scope:
            while True:
                await client.send(get("waits") * 1_000)
        assert scope.cancelled_caught
        assert len(app.exchanges) == 1


async def test_a_slow_head_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slowloris: a head that comes byte by byte, on a new connection and on one in use; silence likewise."""
    monkeypatch.setattr(guarded_stream, "HEAD_SECONDS_MAX", 0.3)
    async with open_door(App()) as door:
        for first in (b"", GET):
            async with door.client() as client:
                if first:
                    await client.send(first)
                    assert (await client.read())[2] == b"hello"
                begun = trio.current_time()
                with pytest.raises(trio.BrokenResourceError):
                    while trio.current_time() < begun + 5:
                        await client.send(b"G")
                        await trio.sleep(0.02)
                assert 0.25 < trio.current_time() - begun < 1.5
        async with door.client() as client:
            assert await client.rest() == b""
        await until(lambda: not connections_served())


async def test_an_idle_connection_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that Quart has served: its cancellation would have taken Hypercorn's own clock with it."""
    monkeypatch.setattr(guarded_stream, "IDLE_SECONDS_MAX", 0.3)
    for app in (App(), quart_app()):
        async with open_door(app) as door, door.client() as client:
            await client.send(GET)
            await client.read()
            begun = trio.current_time()
            assert await client.rest() == b""
            assert 0.2 < trio.current_time() - begun < 1.5


async def test_a_request_in_flight_has_no_clock_but_the_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long poll or an event stream is neither idle nor slow."""
    monkeypatch.setattr(guarded_stream, "HEAD_SECONDS_MAX", 0.1)
    monkeypatch.setattr(guarded_stream, "IDLE_SECONDS_MAX", 0.1)
    app = App()
    async with open_door(app) as door, door.client() as client:
        await client.send(get("waits"))
        await trio.sleep(0.4)
        app.release.set()
        assert (await client.read())[2] == b"released"


async def test_a_head_is_bounded() -> None:
    """32 KiB; more is refused without being gathered."""
    async with open_door(App()) as door:
        assert (await door.ask(get("", more=b"x: " + b"y" * 30_000 + b"\r\n")))[0] == 200
        async with door.client() as client:
            await client.send(get("", more=b"x: " + b"y" * 40_000))
            assert (await client.read())[0] == 431


# Faults that must stay inside their connection


async def test_r30_a_websocket_upgrade_with_extra_bytes_ends_only_its_own_connection() -> None:
    """The trap: Hypercorn answers twice, h11 raises, and a bare server's nursery would end with it."""
    async with open_door(App()) as door, door.client() as witness:
        await witness.send(GET)
        await witness.read()
        for extra in (b"", b"extra", b"\x81\x05hello", b"\xff" * 4_096):
            async with door.client() as client:
                await client.send(WEBSOCKET + extra)
                assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
        await witness.send(GET)
        assert (await witness.read())[2] == b"hello"
        assert door.health["front_door"].restarts == 0


async def test_a_failing_application_is_a_500_and_a_line_without_words(logged: io.StringIO) -> None:
    """R28: an exception's message may quote the request, so only its kind and its place are logged."""
    async with open_door(App()) as door, door.client() as client:
        await client.send(get("fails"))
        status, headers, body = await client.read()
        assert (status, headers["content-type"]) == (500, "application/problem+json")
        assert b'"code": "internal"' in body
        await client.send(get("fails_late"))
        with pytest.raises(EOFError):
            await client.read()
        assert (await door.ask())[0] == 200
        assert door.health["front_door"].restarts == 0
    assert "RecursionError in fails" in logged.getvalue()
    assert "KeyError, ValueError" in logged.getvalue()
    assert "sbk_secret" not in logged.getvalue()


async def test_faults_are_logged_at_a_bounded_rate(logged: io.StringIO) -> None:
    """A stranger cannot fill the disk with our complaints."""
    async with open_door(App()) as door:
        for _ in range(100):
            assert (await door.ask(get("fails")))[0] == 500
    assert 10 <= logged.getvalue().count("application failed") <= 15


async def test_more_connections_than_the_cap_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those inside go on; when one leaves, the next gets in."""
    monkeypatch.setattr(front_door_module, "CONNECTIONS_MAX", 2)
    async with open_door(App()) as door, door.client() as first:
        async with door.client() as second:
            for client in (first, second):
                await client.send(GET)
                assert (await client.read())[0] == 200
            async with door.client() as third:
                assert await third.rest() == b""
        await until(lambda: connections_served() == 1)
        assert (await door.ask())[0] == 200


async def test_accept_errors_are_survived() -> None:
    """Out of files (EMFILE): the door waits, and serves again when there are some."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_door(App()) as door:
        waiting = [await trio.open_tcp_stream("127.0.0.1", door.port)]
        await until(lambda: connections_served() == 1)
        used = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        sockets = [socket.socket() for _ in range(4)]
        for sock in sockets:
            sock.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(sock.fileno() for sock in sockets) + 1, before[1]))
        try:
            fillers = fill_files()
            for sock in sockets:
                with pytest.raises(BlockingIOError):
                    sock.connect(("127.0.0.1", door.port))
            await trio.sleep(0.3)
            assert connections_served() == 1
            assert door.health["front_door"].restarts == 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for filler in fillers:
                filler.close()
        assert used > 0
        await until(lambda: connections_served() == 5)
        assert (await door.ask())[0] == 200
        for sock in sockets:
            sock.close()
        await waiting[0].aclose()


# The end


async def test_closing_finishes_what_is_in_flight_and_refuses_the_rest() -> None:
    """The request in flight is answered with connection: close; idle connections end at once; new ones are refused."""
    app = App()
    async with open_door(app) as door, door.client() as busy, door.client() as idle:
        await idle.send(GET)
        await idle.read()
        await busy.send(get("waits"))
        await until(lambda: len(app.exchanges) == 2)
        begun = trio.current_time()
        door.closing.set()
        assert await idle.rest() == b""
        assert trio.current_time() - begun < 0.4
        with pytest.raises(OSError, match="."):
            await trio.open_tcp_stream("127.0.0.1", door.port)
        assert not door.ended.is_set()
        app.release.set()
        status, headers, body = await busy.read()
        assert (status, headers["connection"], body) == (200, "close", b"released")
        assert await busy.rest() == b""
        await busy.aclose()
        with trio.fail_after(1):
            await door.ended.wait()
        assert app.exchanges[1].answered


async def test_closing_finishes_http2_requests_in_flight() -> None:
    """The answer arrives whole, what is asked afterwards on that connection is refused, then it is closed."""
    app = App()
    async with open_door(app) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        peer.send_headers(1, h2_head("/waits"), end_stream=True)
        await client.send(peer.data_to_send())
        await app.begun.wait()
        door.closing.set()
        peer.send_headers(3, h2_head("/"), end_stream=True)
        (refused,) = (await h2_talk(client.stream, peer, streams=1)).values()
        assert b'"code": "unavailable"' in refused
        app.release.set()
        assert await h2_talk(client.stream, peer, streams=1) == {1: b"released"}
        assert len(app.exchanges) == 1
        with trio.fail_after(2):
            await door.ended.wait()
        assert app.exchanges[0].answered


async def test_closing_is_bounded_whatever_a_client_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One never reads, one never ends its head, one application is stuck: over after drain_seconds, with nothing left."""
    app = App()
    async with open_door(app, drain_seconds=1.5) as door:
        async with door.client() as deaf, door.client() as slow, door.client() as stuck:
            await deaf.send(get("floods"))
            await slow.send(b"GET / HT")
            await stuck.send(get("stuck"))
            await until(lambda: len(app.exchanges) == 2)
            begun = trio.current_time()
            door.closing.set()
            await door.ended.wait()
            assert trio.current_time() - begun < 2.2
        assert connections_served() == 0
        assert app.ended == 2


async def test_a_restart_serves_on_the_same_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the actor's own code costs its connections, not the address: the supervisor runs it again."""
    faults = [ValueError("a bug of the door itself")]
    serve = front_door_module._House.serve

    async def faulty(house: Any, stream: trio.SocketStream) -> None:
        if faults:
            await stream.aclose()
            raise faults.pop()
        await serve(house, stream)

    monkeypatch.setattr(front_door_module._House, "serve", faulty)
    async with open_door(App()) as door:
        async with door.client() as client:
            assert await client.rest() == b""
        await until(lambda: door.health["front_door"].restarts == 1)
        assert (await door.ask())[0] == 200


# Help


def h2_head(path: str) -> list[tuple[str, str]]:
    return [(":method", "GET"), (":path", path), (":authority", "house"), (":scheme", "http")]


async def h2_talk(stream: trio.SocketStream, peer: h2.connection.H2Connection, *, streams: int) -> dict[int, bytes]:
    """Send what `peer` has to say and read until `streams` answers are complete: their bodies."""
    bodies: dict[int, bytes] = {}
    ended = 0
    while ended < streams:
        await stream.send_all(peer.data_to_send())
        data = await stream.receive_some()
        if not data:
            raise EOFError(bodies)
        for event in peer.receive_data(bytes(data)):
            if isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
            elif isinstance(event, h2.events.StreamEnded):
                ended += 1
    return bodies


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fill_files() -> list[socket.socket]:
    """Open sockets until the process may open no more."""
    opened = []
    try:
        while True:
            opened.append(socket.socket())
    except OSError:
        return opened

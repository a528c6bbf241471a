"""Clients that go, and whether their answers arrived (R15); clients that take their time."""

from __future__ import annotations

import resource
import socket
import struct
from pathlib import Path

import pytest
import trio

from switchboard.http import exchange, guarded_stream
from tests.http.apps import App, get, quart_app
from tests.http.door import GET, Client, connections_served, open_door, until

pytestmark = pytest.mark.usefixtures("logged")


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


async def test_a_late_refusal_does_not_wait_behind_the_body_it_refuses() -> None:
    """Hypercorn's queue for the application is full, the application will not read it, and still it ends."""
    app = App()
    async with open_door(app) as door:
        async with door.client() as client, trio.open_nursery() as nursery:
            size = 20_000_000
            await client.send(b"POST /refuses_late HTTP/1.1\r\nhost: house\r\ncontent-length: %d\r\n\r\n" % size)
            await app.begun.wait()
            nursery.start_soon(client.send, b"x" * size)
            await trio.sleep(0.2)
            begun = trio.current_time()
            app.release.set()
            assert (await client.read())[0] == 413
            await until(lambda: app.ended == 1)
            assert trio.current_time() - begun < 3
        assert app.exchanges[0].answered
        await until(lambda: not connections_served())


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


async def test_a_slow_reader_that_goes_on_reading_gets_its_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are on standing still, not on the time that a large answer takes over a thin line."""
    monkeypatch.setattr(guarded_stream, "SEND_SECONDS_MAX", 0.5)
    monkeypatch.setattr(exchange, "ANSWER_SECONDS_MAX", 0.5)
    app = App()
    async with open_door(app) as door, door.client() as client:
        await client.send(get("large"))
        read = 0
        while read < 5_000_000:
            read += len(await client.stream.receive_some(65_536))
            await trio.sleep(0.01)
        await until(lambda: app.ended == 1)
        assert app.exchanges[0].answered


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
                    await trickle(client, b"G" * 250, pause_seconds=0.02)
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


async def trickle(client: Client, data: bytes, *, pause_seconds: float) -> None:
    for byte in data:
        await client.send(bytes([byte]))
        await trio.sleep(pause_seconds)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

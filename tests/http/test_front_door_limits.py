"""The front door's capacity, its restart and its end."""

from __future__ import annotations

import resource
import socket
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.settings
import pytest
import trio

from actors import front_door as front_door_module
from tests.http.apps import App, get, h2_head, h2_talk
from tests.http.door import GET, connections_served, open_door, until

pytestmark = pytest.mark.usefixtures("logged")


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
        await until(lambda: connections_served() == 5)
        assert (await door.ask())[0] == 200
        for sock in sockets:
            sock.close()
        await waiting[0].aclose()


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
        with pytest.raises(ConnectionRefusedError), socket.socket() as late:
            await trio.to_thread.run_sync(late.connect, ("127.0.0.1", door.port))
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

    async def faulty(house: Any, client: trio.socket.SocketType) -> None:
        if faults:
            client.close()
            raise faults.pop()
        await serve(house, client)

    monkeypatch.setattr(front_door_module._House, "serve", faulty)
    async with open_door(App()) as door:
        async with door.client() as client:
            assert await client.rest() == b""
        await until(lambda: door.health["front_door"].restarts == 1)
        assert (await door.ask())[0] == 200


def fill_files() -> list[socket.socket]:
    """Open sockets until the process may open no more."""
    opened = []
    try:
        while True:
            opened.append(socket.socket())
    except OSError:
        return opened

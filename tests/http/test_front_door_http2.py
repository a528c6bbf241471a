"""HTTP/2 at the front door: prior knowledge, the upgrade, and what a client can do with many streams."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.errors
import h2.settings
import pytest
import trio

from actors import front_door as front_door_module
from switchboard.http import exchange, guarded_stream
from tests.http.apps import App, get, h2_head, h2_talk
from tests.http.door import connections_served, open_door, until

pytestmark = pytest.mark.usefixtures("logged")


async def test_http2_with_prior_knowledge() -> None:
    """Many requests at once over one connection, each known to be answered."""
    app = App()
    async with open_door(app) as door, door.client() as client:
        peer = h2.connection.H2Connection()
        peer.initiate_connection()
        for _ in range(20):
            peer.send_headers(peer.get_next_available_stream_id(), h2_head("/"), end_stream=True)
        answers = await h2_talk(client.stream, peer, streams=20)
        assert set(answers.values()) == {b"hello"}
        await until(lambda: app.ended == 20)
        assert all(exchange.answered for exchange in app.exchanges)


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


async def test_a_client_that_hangs_up_right_after_its_answer_was_answered() -> None:
    """R15: a delivered claim must not be undone because the client closed before our last step was over."""
    app = App()
    async with open_door(app) as door:
        for _ in range(50):
            async with door.client() as client:
                peer = h2.connection.H2Connection()
                peer.initiate_connection()
                peer.send_headers(1, h2_head("/"), end_stream=True)
                assert await h2_talk(client.stream, peer, streams=1) == {1: b"hello"}
            await door.ask()
        await until(lambda: app.ended == 100)
        assert all(exchange.answered and not exchange.broken for exchange in app.exchanges)


async def test_an_http2_client_that_opens_no_window_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is never full, so only the bound on the answer ends it; what it does not take is not gathered."""
    monkeypatch.setattr(exchange, "ANSWER_SECONDS_MAX", 0.3)
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


async def test_hypercorn_waiting_for_itself_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """An h2c upgrade with CONNECT: it waits for a task that it would start next. No read, no send, no clock of its own."""
    monkeypatch.setattr(guarded_stream, "HEAD_SECONDS_MAX", 0.3)
    async with open_door(App()) as door, door.client() as client:
        more = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"
        await client.send(b"CONNECT / HTTP/1.1\r\nhost: house\r\n" + more)
        await client.rest()
        await until(lambda: not connections_served())


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

"""The front door on real sockets: HTTP/1.1 as clients speak it, and the faults that stay inside a connection."""

from __future__ import annotations

import io

import pytest

from tests.http.apps import App, get, quart_app
from tests.http.door import GET, open_door

pytestmark = pytest.mark.usefixtures("logged")


WEBSOCKET = (
    b"GET / HTTP/1.1\r\nhost: house\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


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


async def test_a_host_that_is_none_is_a_400() -> None:
    """Quart would answer 500: it fails on them before it has a request."""
    async with open_door(quart_app()) as door:
        for host in (b"a..b", b"\xff\xfe", b"x" * 64, b"[", b"[::1", b"a b", b"a:b", b"a/b", b"a@b", b"%zz"):
            status, _, body = await door.ask(b"GET / HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
            assert status == 400
            assert b'"code": "invalid"' in body
        for host in (b"", b"house", b"house.", b"my_house:80", b"127.0.0.1:8080", b"[::1]:80", b"a.b.c.example", b"house:"):
            assert (await door.ask(b"GET / HTTP/1.1\r\nhost: " + host + b"\r\n\r\n"))[0] == 200


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
    assert 10 <= logged.getvalue().count("request failed") <= 15

"""The address is taken first, and every way it cannot be is one line that says what to do (C44)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import trio

from switchboard.errors import StartError
from switchboard.listeners import Listening, open_listeners


async def reach(listening: Listening) -> bytes:
    """What a client reads from a connection that we accept, greet and close."""
    async with await trio.open_tcp_stream(listening.host, listening.port) as client:
        async with await listening.listeners[0].accept() as accepted:
            await accepted.send_all(b"hello")
        return bytes(await client.receive_some())


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:{port}"),
        ("::1", "http://[::1]:{port}"),
        ("[::1]", "http://[::1]:{port}"),
    ],
)
async def test_any_port_and_its_address(host: str, url: str) -> None:
    """Port 0 is any free one, and the real one is told. IPv6 literals work with and without brackets."""
    listening = await open_listeners(host, 0)
    try:
        assert listening.port > 0
        assert listening.url == url.format(port=listening.port)
        assert await reach(listening) == b"hello"
    finally:
        listening.close()


async def test_a_wildcard_address_is_shown_as_one_that_can_be_opened() -> None:
    """Nobody can open http://0.0.0.0."""
    listening = await open_listeners("0.0.0.0", 0)  # noqa: S104 - for a moment, on a test machine
    listening.close()
    assert listening.url == f"http://127.0.0.1:{listening.port}"


async def test_every_address_of_a_name_listens_on_the_same_port() -> None:
    """localhost is often two addresses; a client may try either."""
    listening = await open_listeners("localhost", 0)
    try:
        assert {listener.socket.getsockname()[1] for listener in listening.listeners} == {listening.port}
        for listener in listening.listeners:
            async with await trio.open_tcp_stream(listener.socket.getsockname()[0], listening.port):
                await (await listener.accept()).aclose()
    finally:
        listening.close()


async def test_c44_a_taken_port_ends_the_start_with_one_line() -> None:
    """It listens at once: a second house on the port fails here, before it has done anything."""
    first = await open_listeners("127.0.0.1", 0)
    try:
        for host in ("127.0.0.1", "0.0.0.0"):  # noqa: S104 - refused, as it should be
            with pytest.raises(StartError) as caught:
                await open_listeners(host, first.port)
            assert str(caught.value) == (
                f"Cannot listen on {host}:{first.port}: the port is taken. "
                "Stop what listens there, or choose another `port` in [server]."
            )
    finally:
        first.close()


async def test_a_port_is_free_again_at_once() -> None:
    """A restart finds its own old connections on the port, and is not put off by them."""
    first = await open_listeners("127.0.0.1", 0)
    assert await reach(first) == b"hello"
    first.close()
    second = await open_listeners("127.0.0.1", first.port)
    second.close()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("no-such-host.invalid", "this machine knows no host of that name"),
        ("a..b", "this machine knows no host of that name"),
        ("x" * 300, "this machine knows no host of that name"),
        ("192.0.2.1", "no interface of this machine has that address"),
    ],
)
async def test_an_unusable_host_is_one_line(host: str, reason: str) -> None:
    """Unknown, malformed, or another machine's."""
    with pytest.raises(StartError, match=reason) as caught:
        await open_listeners(host, 8080)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="drops from root to nobody to be refused")
def test_a_low_port_without_the_right_to_it_is_one_line() -> None:
    """It says which ports need no right. In a process of its own, which gives up root first."""
    program = """
import os, socket, trio
from switchboard.errors import StartError
from switchboard.listeners import open_listeners
async def main():
    try:
        (await open_listeners("127.0.0.1", 81)).close()
        print("allowed")
    except StartError as error:
        print(error)
"x".encode("idna")  # loads what nobody may not read where Python lives in root's home
os.setgid(65534), os.setuid(65534)
trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    if "allowed" in ended.stdout:
        pytest.skip("this machine lets everybody bind low ports")
    assert ended.stdout.startswith("Cannot listen on 127.0.0.1:81: not permitted. Choose a `port` of 1024 or above")


async def test_nothing_stays_open_when_one_address_fails() -> None:
    """Half a listening house is none: what was bound before the failure is closed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError):
            await open_listeners("localhost", port)
    with socket.socket(socket.AF_INET6) as free:
        free.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        free.bind(("::1", port))

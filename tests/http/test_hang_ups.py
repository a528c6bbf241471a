"""Clients that go away while nobody reads: told once, soon, and of nobody else."""

from __future__ import annotations

import socket
import struct

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from switchboard.http.hang_ups import HangUps


@pytest.mark.parametrize("way", ["close", "reset", "half", "before", "after more bytes"])
async def test_a_hang_up_is_told_once(nursery: trio.Nursery, way: str) -> None:
    """However the client goes, also when it went before, and behind bytes that nobody has read."""
    hang_ups, gone = HangUps(), trio.Event()
    nursery.start_soon(hang_ups.run)
    ours, theirs = connected()
    with ours, theirs:
        if way == "before":
            theirs.close()
        with hang_ups.watching(ours.fileno(), gone.set):
            if way == "after more bytes":
                theirs.sendall(b"x" * 1_000)
            elif way == "reset":
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await wait_all_tasks_blocked()
            assert gone.is_set() is (way == "before")
            theirs.shutdown(socket.SHUT_WR) if way == "half" else theirs.close()
            with trio.fail_after(2):
                await gone.wait()


async def test_what_is_not_watched_any_more_is_not_told(nursery: trio.Nursery) -> None:
    """Neither after the wait, nor of a socket of ours that we closed, whose number is another's by now."""
    hang_ups = HangUps()
    nursery.start_soon(hang_ups.run)
    told: list[str] = []
    first, client = connected()
    number = first.fileno()
    with client, hang_ups.watching(number, lambda: told.append("first")):
        first.close()
        second, other = connected()
        assert number in (second.fileno(), other.fileno()), "the kernel gives the lowest number that is free"
        if other.fileno() == number:
            second, other = other, second
        with second, other:
            with hang_ups.watching(number, lambda: told.append("second")):
                client.close()
                await trio.sleep(0.05)
                assert told == []
                other.close()
                with trio.fail_after(2):
                    while not told:  # noqa: ASYNC110 - the kernel sets no trio.Event
                        await trio.sleep(0.005)
            await trio.sleep(0.05)
    assert told == ["second"]


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    return ours, theirs

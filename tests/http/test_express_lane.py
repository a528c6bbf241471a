"""The express lane on a real socket: what it serves by itself, what it hands over, and who goes away when."""

from __future__ import annotations

import io
from typing import Any

import pytest
import trio

from switchboard.http import bodies, guarded_stream
from switchboard.http.call import Call, Reply
from tests.http.door import Client, connections_served, until
from tests.http.shop import LANES, Lane, Said, claims, open_shop

pytestmark = pytest.mark.usefixtures("logged")


async def says_it_again(call: Call[Any, Any]) -> Reply:
    """Echoes."""
    await trio.lowlevel.checkpoint()
    return Reply(content=Said(said=call.body.said + call.path.get("id", "")))


async def read_said(client: Client) -> bytes:
    """The body of a good answer."""
    status, headers, body = await client.read()
    assert status == 200, body
    assert headers["content-type"] == "application/json"
    assert headers["date"].endswith(" GMT")
    return body


async def test_requests_follow_each_other_on_one_connection() -> None:
    """Keep-alive: one after the other, with and without a body, with an id in the path; the general lane hears of none."""
    async with open_shop("express") as shop, shop.door.client() as client:
        shop.handle = says_it_again
        for number in range(5):
            await client.send(shop.request(b'{"said":"%d"}' % number))
            assert await read_said(client) == b'{"said":"%d"}' % number
            await client.send(shop.request(path=b"/v1/an-id/do"))
            assert await read_said(client) == b'{"said":"an-id"}'
        assert shop.general == 0


async def test_pipelined_requests_are_answered_in_order() -> None:
    """All at once in one write, the last one in the general lane: it gets its bytes and answers after the others."""
    async with open_shop("express") as shop, shop.door.client() as client:
        shop.handle = says_it_again
        many = b"".join(shop.request(b'{"said":"%d"}' % number) for number in range(50))
        await client.send(many + b"GET /v1/do HTTP/1.1\r\nhost: house\r\n\r\n" + shop.request(b'{"said":"after"}'))
        for number in range(50):
            assert await read_said(client) == b'{"said":"%d"}' % number
        assert shop.general == 0
        assert (await client.read())[0] == 405
        assert await read_said(client) == b'{"said":"after"}'
        assert shop.general == 2


async def test_bytes_may_come_one_by_one() -> None:
    """However a request is cut, body included."""
    async with open_shop("express") as shop, shop.door.client() as client:
        shop.handle = says_it_again
        for byte in shop.request(b'{"said":"slowly"}') + shop.request(b'{"said":"again"}'):
            await client.send(bytes([byte]))
            await trio.lowlevel.checkpoint()
        assert await read_said(client) == b'{"said":"slowly"}'
        assert await read_said(client) == b'{"said":"again"}'
        assert shop.general == 0


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ((b"POST /v1/do ", b"POST /v1/do?x=1 "), 422),
        ((b"POST /v1/do ", b"POST /v1/elsewhere "), 404),
        ((b"POST /v1/do ", b"PUT /v1/do "), 405),
        ((b"Host: house\r\n", b"Host: a..b\r\n"), 400),
        ((b"Host: house\r\n", b"Host: house\r\nHost: house\r\n"), 400),
        ((b"Host: house\r\n", b"Host: house\r\nContent-Length: 3\r\n"), 400),
        ((b"Host: house\r\n", b"Host: house\r\nTransfer-Encoding: gzip\r\n"), 501),
        ((b"Host: house\r\n", b"Host: house\r\nX: \xff\r\n"), 200),
        ((b"Host: house\r\n", b"Host: house\r\nX:   spaced\t\r\n"), 200),
        ((b"HTTP/1.1", b"HTTP/1.0"), 200),
    ],
)
async def test_what_is_not_plain_is_the_general_lanes(changed: tuple[bytes, bytes], status: int) -> None:
    """Right or wrong, it is answered there as if there were no other lane; in the middle of a connection too."""
    async with open_shop("express") as shop, shop.door.client() as client:
        shop.handle = says_it_again
        await client.send(shop.request(b"{}"))
        await read_said(client)
        await client.send(shop.request(b"{}").replace(*changed))
        assert (await client.read())[0] == status


@pytest.mark.parametrize("lane", LANES)
async def test_expect_is_answered_before_the_body(lane: Lane) -> None:
    """Whoever asks first whether it may send is told so."""
    async with open_shop(lane) as shop, shop.door.client() as client:
        shop.handle = says_it_again
        whole = shop.request(b'{"said":"x"}', headers=b"Expect: 100-continue\r\n")
        head, _, body = whole.partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert (await client.stream.receive_some()).startswith(b"HTTP/1.1 100")
        await client.send(body)
        assert await read_said(client) == b'{"said":"x"}'


@pytest.mark.parametrize("lane", LANES)
async def test_nobodys_body_is_not_read(lane: Lane) -> None:
    """401 before the body is there; the connection ends after it, since the rest of it may be anything."""
    async with open_shop(lane) as shop, shop.door.client() as client:
        await client.send(shop.request(length=1_000).replace(shop.credential.encode(), b"sbk_of_nobody"))
        status, headers, _ = await client.read()
        assert (status, headers["connection"]) == (401, "close")
        assert await client.rest() == b""


async def test_a_body_over_the_bound_of_its_route_is_413(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is here: 200,000 bytes are refused in this lane, more than its share in the other one."""
    monkeypatch.setattr(bodies, "BODY_OVERHEAD_BYTES", 0)
    async with open_shop("express", payload_bytes_max=100_000) as shop:
        for length in (200_000, bodies.LARGE_BODY_BYTES + 1):
            async with shop.door.client() as client:
                await client.send(shop.request(length=length))
                status, headers, _ = await client.read()
                assert (status, headers["connection"]) == (413, "close")
        assert shop.general == 1


@pytest.mark.parametrize("lane", LANES)
async def test_a_body_that_does_not_arrive_is_400(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within its bound, and the field is named."""
    monkeypatch.setattr(bodies, "BODY_SECONDS_MAX", 0.1)
    async with open_shop(lane) as shop, shop.door.client() as client:
        await client.send(shop.request(b"{", length=1_000))
        status, headers, body = await client.read()
        assert (status, headers["connection"]) == (400, "close")
        assert b'"field":"body"' in body


async def test_a_head_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fresh connection and on one in use; nothing is left of either."""
    monkeypatch.setattr(guarded_stream, "HEAD_SECONDS_MAX", 0.2)
    async with open_shop("express") as shop:
        shop.handle = says_it_again
        async with shop.door.client() as fresh, shop.door.client() as used:
            await used.send(shop.request(b"{}"))
            await read_said(used)
            for client in (fresh, used):
                await client.send(shop.request(b"{}")[:40])
            for client in (fresh, used):
                assert await client.rest() == b""
        await until(lambda: connections_served() == 0)


async def test_an_idle_connection_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is closed in order."""
    monkeypatch.setattr(guarded_stream, "IDLE_SECONDS_MAX", 0.2)
    async with open_shop("express") as shop, shop.door.client() as client:
        shop.handle = says_it_again
        await client.send(shop.request(b"{}"))
        await read_said(client)
        assert await client.rest() == b""


async def test_connection_close_is_kept() -> None:
    """Whoever says that it is the last request gets its answer, and the end."""
    async with open_shop("express") as shop, shop.door.client() as client:
        shop.handle = says_it_again
        await client.send(shop.request(b"{}", headers=b"Connection: close\r\n") + shop.request(b"{}"))
        status, headers, _ = await client.read()
        assert (status, headers["connection"]) == (200, "close")
        assert await client.rest() == b""
        assert shop.general == 0


class Waiting:
    """A handler that waits until it may go on, and says how it ended."""

    def __init__(self, *, shielded: bool = False) -> None:
        self.begun, self.go_on = trio.Event(), trio.Event()
        self.cancelled = False
        self.claims = claims()
        self._shielded = shielded

    async def __call__(self, _call: Call[Any, Any]) -> Reply:
        self.begun.set()
        try:
            with trio.CancelScope(shield=self._shielded):
                await self.go_on.wait()
        except trio.Cancelled:
            self.cancelled = True
            raise
        return Reply(content=Said(said="yours"), claims=self.claims)


@pytest.mark.parametrize("lane", LANES)
async def test_r15_a_waiting_claim_ends_with_its_client(lane: Lane) -> None:
    """At once, by a hang-up or a reset; nothing was claimed, so nothing is undone."""
    async with open_shop(lane) as shop:
        waiting = shop.handle = Waiting()
        async with shop.door.client() as client:
            await client.send(shop.request(b'{"wait_seconds":60}'))
            await waiting.begun.wait()
        await until(lambda: waiting.cancelled, seconds=2)
        await until(lambda: connections_served() == 0)
        assert shop.undone == []


@pytest.mark.parametrize("lane", LANES)
async def test_r15_what_a_waiting_client_leaves_behind_is_undone(lane: Lane) -> None:
    """Its claim commits although it has gone: it goes back, once."""
    async with open_shop(lane) as shop:
        waiting = shop.handle = Waiting(shielded=True)
        async with shop.door.client() as client:
            await client.send(shop.request(b'{"wait_seconds":60}'))
            await waiting.begun.wait()
        await trio.sleep(0.05)  # the door notices the hang-up, of which no event tells
        waiting.go_on.set()
        await until(lambda: bool(shop.undone))
        assert shop.undone == list(waiting.claims)


async def test_a_waiting_client_may_send_its_next_requests() -> None:
    """They wait their turn, and none is lost."""
    async with open_shop("express") as shop, shop.door.client() as client:
        waiting = shop.handle = Waiting()
        await client.send(shop.request(b'{"wait_seconds":60}'))
        await waiting.begun.wait()
        followers = [shop.request(b'{"said":"%d%s"}' % (number, b"x" * 5_000)) for number in range(40)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, b"".join(followers))
            await trio.sleep(0.05)  # they wait in the socket meanwhile
            shop.handle = says_it_again
            waiting.go_on.set()
            assert await read_said(client) == b'{"said":"yours"}'
            for number in range(40):
                assert (await read_said(client)).startswith(b'{"said":"%dx' % number)
        assert shop.undone == []
        assert shop.general == 0


@pytest.mark.parametrize("lane", LANES)
async def test_a_body_that_is_cut_off_is_nobodys_request(lane: Lane) -> None:
    """The client hangs up in the middle of it: the handler never runs, nothing is logged as a fault."""
    async with open_shop(lane) as shop:
        shop.handle = Waiting()
        async with shop.door.client() as client:
            await client.send(shop.request(b'{"said":', length=1_000))
            await until(lambda: connections_served() == 1)
        await until(lambda: connections_served() == 0)
        assert not shop.handle.begun.is_set()


@pytest.mark.parametrize("body", [b"{}", b'{"wait_seconds":60}'])
async def test_closing_lets_a_request_finish_and_ends_the_idle(body: bytes) -> None:
    """The one in flight is answered, and told that it is the last; what is idle or half said ends at once."""
    async with open_shop("express") as shop:
        waiting = shop.handle = Waiting()
        async with shop.door.client() as busy, shop.door.client() as idle, shop.door.client() as half:
            await busy.send(shop.request(body))
            await half.send(shop.request(body)[:30])
            await waiting.begun.wait()
            await until(lambda: connections_served() == 3)
            shop.door.closing.set()
            assert await idle.rest() == b""
            assert await half.rest() == b""
            waiting.go_on.set()
            status, headers, _ = await busy.read()
            assert (status, headers["connection"]) == (200, "close")
            assert await busy.rest() == b""
        with trio.fail_after(2):
            await shop.door.ended.wait()
        assert shop.undone == []


@pytest.mark.parametrize("body", [b"{}", b'{"wait_seconds":60}'])
async def test_r15_closing_undoes_what_comes_too_late(body: bytes) -> None:
    """A claim that is through only when the grace is over reaches nobody, and goes back."""
    async with open_shop("express", drain_seconds=0.2) as shop:
        waiting = shop.handle = Waiting(shielded=True)
        async with shop.door.client() as busy:
            await busy.send(shop.request(body))
            await waiting.begun.wait()
            shop.door.closing.set()
            assert await busy.rest() == b""
            waiting.go_on.set()
            with trio.fail_after(2):
                await shop.door.ended.wait()
        assert shop.undone == list(waiting.claims)


async def test_r15_a_client_that_does_not_read_gets_its_claims_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each send has its bound, and what did not fit into the socket did not arrive."""
    monkeypatch.setattr(guarded_stream, "SEND_SECONDS_MAX", 0.2)
    mine = claims()

    async def large(_call: Call[Any, Any]) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(content=Said(said="x" * (32 << 20)), claims=mine)

    async with open_shop("express") as shop, shop.door.client() as deaf:
        shop.handle = large
        await deaf.send(shop.request(b"{}"))
        await until(lambda: bool(shop.undone), seconds=10)
        assert shop.undone == list(mine)


async def test_r30_a_fault_of_the_lane_ends_its_connection_alone(logged: io.StringIO) -> None:
    """A handler that fails is a 500 on a connection that goes on; a fault outside of it is one line and one closed socket."""
    async with open_shop("express") as shop, shop.door.client() as witness:

        async def fails(_call: Call[Any, Any]) -> Reply:
            await trio.lowlevel.checkpoint()
            raise RecursionError("sbk_secret")

        async def unsayable(_call: Call[Any, Any]) -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply(content=b"", headers=(("x", "\N{SNOWMAN}"),), claims=mine)

        mine = claims()
        shop.handle = fails
        for _ in range(2):
            await witness.send(shop.request(b"{}"))
            assert (await witness.read())[0] == 500
        shop.handle = unsayable
        async with shop.door.client() as other:
            await other.send(shop.request(b"{}"))
            assert await other.rest() == b""
        assert shop.undone == list(mine)
        shop.handle = says_it_again
        await witness.send(shop.request(b'{"said":"on"}'))
        assert await read_said(witness) == b'{"said":"on"}'
        assert shop.door.health["front_door"].restarts == 0
    assert "connection failed" in logged.getvalue()

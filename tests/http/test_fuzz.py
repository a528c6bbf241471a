"""R30: nothing that arrives on a socket ends the process, the actor, or anybody else's connection."""

from __future__ import annotations

import io
import random
import re
from collections import Counter
from typing import Any

import pytest
import trio

from switchboard.http import guarded_stream
from switchboard.http.call import Call, Reply
from tests.http.apps import quart_app
from tests.http.door import GET, Door, connections_served, open_door, until
from tests.http.odd_requests import odd_requests, throw
from tests.http.shop import open_shop

ROUNDS = 12
REQUESTS_PER_ROUND = 100
AT_ONCE_MAX = 25

# A line of an answer to HTTP/1.1; in HTTP/2 the status is compressed and stays unseen here.
STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d\d\d) ")


async def bare_app(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body and says hello, like a handler of the house."""
    more = True
    while more:
        event = await receive()
        more = event.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello", "more_body": False})


async def storm(door: Door, seed: int, *, good: bytes = GET, **bent: Any) -> Counter[int]:
    """ROUNDS times a hundred odd requests, and after each hundred a good one. The statuses that came back."""
    dice = random.Random(seed)
    odd = odd_requests(dice, **bent)
    statuses: Counter[int] = Counter()
    slots = trio.CapacityLimiter(AT_ONCE_MAX)

    async def one(data: bytes, own_dice: random.Random) -> None:
        async with slots:
            statuses.update(int(status) for status in STATUS_LINE.findall(await throw(door.port, data, own_dice)))

    for _ in range(ROUNDS):
        async with trio.open_nursery() as nursery:
            for _ in range(REQUESTS_PER_ROUND):
                nursery.start_soon(one, next(odd), random.Random(dice.random()))
        status, _, body = await door.ask(good)
        assert (status, body) == (200, b"hello")
    return statuses


@pytest.mark.parametrize("app", [bare_app, quart_app()], ids=["bare", "quart"])
async def test_r30_thousands_of_odd_requests_end_nothing_but_themselves(
    app: Any, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    """Not the actor, not a connection opened before them; no 5xx, no task left, no flood of log lines."""
    # Some of them leave Hypercorn waiting for itself, and only this clock ends that.
    monkeypatch.setattr(guarded_stream, "HEAD_SECONDS_MAX", 3.0)
    async with open_door(app) as door, door.client() as witness:
        await witness.send(GET)
        assert (await witness.read())[2] == b"hello"
        statuses = await storm(door, seed=20_260_101)
        await witness.send(GET)
        assert (await witness.read())[2] == b"hello"
        assert door.health["front_door"].restarts == 0
        assert door.health["front_door"].running
        await witness.aclose()
        await until(lambda: connections_served() == 0)
    print(sorted(statuses.items()))
    assert statuses[200]
    assert statuses[400]
    assert not [status for status in statuses if status >= 500 and status != 501]
    check_log(logged)


async def test_r30_thousands_of_odd_requests_through_the_express_lane(
    monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    """The same, most of them to a route of that lane, with a credential: it answers some, and hands the others over."""
    monkeypatch.setattr(guarded_stream, "HEAD_SECONDS_MAX", 3.0)
    served = 0

    async def hello(_call: Call[Any, Any]) -> Reply:
        nonlocal served
        served += 1
        await trio.lowlevel.checkpoint()
        return Reply(content=b"hello")

    async with open_shop("express") as shop, shop.door.client() as witness:
        shop.handle = hello
        await witness.send(shop.request())
        assert (await witness.read())[2] == b"hello"
        credential = b"authorization: Bearer " + shop.credential.encode() + b"\r\n"
        targets = (b"/v1/do", b"/v1/do", b"/v1/an-id/do", b"/v1/nowhere", b"/v1/do?x", b"/")
        statuses = await storm(shop.door, seed=20_261_207, good=shop.request(), targets=targets, headers=credential)
        await witness.send(shop.request())
        assert (await witness.read())[2] == b"hello"
        assert shop.door.health["front_door"].restarts == 0
        await witness.aclose()
        await until(lambda: connections_served() == 0)
    print(sorted(statuses.items()), served, shop.general)
    assert served > 2 * ROUNDS
    assert shop.general > 2 * ROUNDS
    assert {200, 400, 401, 404, 422} <= set(statuses)
    assert not [status for status in statuses if status >= 500 and status != 501]
    check_log(logged)


def check_log(logged: io.StringIO) -> None:
    """Faults of connections only, few enough, and without the requests' bytes."""
    lines = logged.getvalue().splitlines()
    print("\n".join(lines))
    assert len(lines) < 60
    assert all('"connection failed"' in line or '"request failed"' in line for line in lines)

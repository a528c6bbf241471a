"""Deliveries while the house is killed and its Postgres is away: what was answered 2xx is there, once, for each route."""

from __future__ import annotations

import random
import threading
import time
from uuid import uuid4

import attrs
import httpx
import pytest

from tests.house import facts
from tests.house.postmasters import conninfo_of, freeze, postmaster_of, thaw
from tests.houses import PLAIN, Opener, wait_until
from tests.http.pushing import event, github, hook
from tests.redis.servers import free_port

SENDERS = 8
PAUSE_SECONDS = 0.05
PATIENCE_SECONDS = 15.0


@attrs.define(eq=False)
class Senders:
    """A provider: each of its deliveries is sent again, by the same id, until somebody answers 2xx."""

    url: str
    deliveries: int
    accepted: dict[str, list[str]] = attrs.field(factory=dict)
    """Delivery id: the todos that its 2xx named."""
    statuses: set[int] = attrs.field(factory=set)
    wrong: list[str] = attrs.field(factory=list)
    _numbers: list[int] = attrs.field(factory=list)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _threads: list[threading.Thread] = attrs.field(factory=list)

    def __enter__(self) -> Senders:
        self._numbers = list(range(self.deliveries))
        self._threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        try:
            with httpx.Client(trust_env=False, verify=PLAIN, timeout=PATIENCE_SECONDS) as http:
                while (number := self._next()) is not None:
                    self._until_accepted(http, number)
        except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
            self.wrong.append(repr(error))

    def _next(self) -> int | None:
        with self._lock:
            return self._numbers.pop() if self._numbers else None

    def _until_accepted(self, http: httpx.Client, number: int) -> None:
        body, delivery = event(number), str(uuid4())
        headers = github(body, X_GitHub_Delivery=delivery) | {"Content-Type": "application/json"}
        while True:
            try:
                reply = http.post(self.url, content=body, headers=headers)
            except httpx.TransportError:
                time.sleep(PAUSE_SECONDS)  # a provider waits for longer
                continue
            self.statuses.add(reply.status_code)
            if reply.status_code == 202:
                self.accepted[delivery] = [target["todo_id"] for target in reply.json()["targets"]]
                return
            if reply.status_code != 503:
                self.wrong.append(f"{reply.status_code} {reply.text}")
                return
            time.sleep(PAUSE_SECONDS)


@pytest.mark.parametrize(("deliveries", "kills"), [(240, 2), pytest.param(5_000, 20, marks=pytest.mark.long)])
def test_house_killed_while_deliveries_come(open_house: Opener, deliveries: int, kills: int) -> None:
    """A kill -9 at any moment: in the end exactly one todo for each delivery and route, and each 2xx has its rows."""
    settings = {"server": {"port": free_port()}, "webhooks": {"rate_per_second": 100_000, "burst": 100_000}}
    house = open_house(settings=settings)
    agents = [house.vend(), house.vend()]
    webhook = hook(house, "github", *agents)
    dice = random.Random(deliveries)
    with Senders(f"{house.url}{webhook.path}", deliveries) as senders:
        for number in range(1, kills + 1):
            enough = deliveries * number // (kills + 1)
            wait_until(lambda: len(senders.accepted) >= enough or bool(senders.wrong), seconds=120, what="progress")  # noqa: B023
            time.sleep(dice.random() * 0.05)  # any moment is as good as another
            house.kill()
            house = open_house.again(house)
    assert not senders.wrong, senders.wrong[:3]
    database = str(house.database)
    found = facts.ask(database, "select idempotency_key, count(*), count(distinct endpoint_id) from todos group by 1")
    assert {key: (todos, endpoints) for key, todos, endpoints in found} == {
        f"{webhook.name}:{delivery}": (2, 2) for delivery in senders.accepted
    }
    named = {todo for todos in senders.accepted.values() for todo in todos}
    assert named == {str(id_) for (id_,) in facts.ask(database, "select id from todos")}
    assert facts.one(database, "select count(*) from todos t join events e on e.id = t.event_id") == 2 * deliveries


def test_postgres_away(open_house: Opener) -> None:
    """Nothing is answered 2xx without its row: while Postgres does not answer the sender hears 503, with Retry-After."""
    house = open_house(embedded=True, settings={"server": {"shutdown_grace_seconds": 2}})
    webhook = hook(house, "token", house.vend())
    with house.client() as http:
        assert http.post(webhook.path, content=b'"before"').status_code == 202
        frozen = freeze(postmaster_of(house))
        try:
            reply = http.post(webhook.path, content=b'"while away"')
        finally:
            thaw(frozen)
        assert reply.status_code == 503
        assert reply.headers["retry-after"].isdigit()
        wait_until(lambda: http.post(webhook.path, content=b'"after"').status_code == 202, seconds=20, what="a 202")
    payloads = [text for (text,) in facts.ask(conninfo_of(house), "select payload::text from todos order by id")]
    assert payloads[0] == '"before"'
    assert payloads[-1] == '"after"'

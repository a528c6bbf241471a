"""What a shutdown finishes, what it refuses, and what it leaves to the next house."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx

from tests.house import facts
from tests.house.endings import end, locked, refuses_connections, wait_for_session
from tests.houses import Opener, wait_until

SWEEPS = {"queue": {"reap_interval_seconds": 0.3, "retry_interval_seconds": 0.3}}


def test_graceful_shutdown_drains_cleanly(open_house: Opener) -> None:
    """SPEC-0003: a shutdown while workers hold leases. The sweeps stop, the leased todos stay leased and simply expire, the
    next house requeues them, and no todo is left in an inconsistent state. Who still holds a lease completes with it.
    """
    house = open_house(settings=SWEEPS)
    agent, database = house.vend(), str(house.database)
    pushed = [agent.push(title=str(number)) for number in range(4)]
    finishing, holding, dying, parking = agent.claim(max=4, lease_seconds=600)
    assert agent.verb("complete", finishing).status_code == 200
    assert agent.verb("fail", parking, error="later").status_code == 200
    end(house, within_seconds=3)
    assert facts.sessions(database) == 0
    states = dict(facts.ask(database, "select id::text, state from todos"))
    assert states == {
        finishing["id"]: "done",
        holding["id"]: "claimed",
        dying["id"]: "claimed",
        parking["id"]: "failed",
    }
    facts.ask(database, "update todos set lease_expires_at = now() - interval '1 second' where id = %s", dying["id"])
    facts.ask(database, "update todos set next_retry_at = now() - interval '1 second' where id = %s", parking["id"])

    house = open_house.again(house)
    again = house.client(agent.credential)

    def state_of(todo: dict[str, Any]) -> str:
        return str(again.get(f"/v1/todos/{todo['id']}").json()["todo"]["state"])

    wait_until(lambda: state_of(dying) == "pending", what="the next house's reaper")
    wait_until(lambda: state_of(parking) == "pending", what="the next house's retry scheduler")
    guard = {"lease_token": holding["lease_token"]}
    assert again.post(f"/v1/todos/{holding['id']}/complete", json=guard).status_code == 200
    taken = again.post("/v1/claims", json={"max": 10}).json()["todos"]
    assert {todo["id"] for todo in taken} == {dying["id"], parking["id"]}
    for todo in taken:
        guard = {"lease_token": todo["lease_token"]}
        assert again.post(f"/v1/todos/{todo['id']}/complete", json=guard).status_code == 200
    facts.require_done_once(database, todos=len(pushed), attempts_max=2)
    end(house, within_seconds=3)


def test_requests_in_flight_are_finished_and_new_ones_refused(open_house: Opener) -> None:
    """A shutdown in the middle of requests: each of them gets its true answer, and the word that the connection closes; a
    new connection is refused meanwhile; then the house exits with code 0, and every 2xx has its row.
    """
    house = open_house()
    agent, database = house.vend(), str(house.database)
    replies: list[httpx.Response] = []

    def create(number: int) -> None:
        with house.client(agent.credential) as http:
            replies.append(http.post("/v1/todos", json={"queue": "work", "idempotency_key": f"k{number}"}))

    asking = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    with locked(database) as holder:
        for thread in asking:
            thread.start()
        # Creates go by two lanes' workers; the first two statements hang, the others wait in the ledger behind them.
        wait_for_session(database, "wait_event_type = 'Lock'")
        house.signal()
        wait_until(lambda: refuses_connections(house.url), what="the closed door")
        assert house.process.poll() is None
        holder.rollback()
        for thread in asking:
            thread.join()
    assert house.process.wait(10) == 0
    assert [reply.status_code for reply in replies] == [201] * 6
    assert {reply.headers["Connection"] for reply in replies} == {"close"}
    created = [(f"{reply.json()['todo']['idempotency_key']}", reply.json()["todo"]["id"]) for reply in replies]
    facts.require_kept(database, created=created, completed=())


def test_waiting_claims_are_answered_at_once(open_house: Opener) -> None:
    """R30: a claim that would wait for a minute is answered, empty, when the house closes; the shutdown waits for nobody."""
    house = open_house()
    agent = house.vend()
    replies: list[tuple[float, httpx.Response]] = []

    def wait_for_work() -> None:
        with house.client(agent.credential, timeout_seconds=70) as http:
            reply = http.post("/v1/claims", json={"wait_seconds": 60})
            replies.append((time.monotonic(), reply))

    waiting = [threading.Thread(target=wait_for_work) for _ in range(8)]
    for thread in waiting:
        thread.start()
    # A claim that is not down yet when the signal comes is answered just the same, or finds the door closed.
    wait_for_session(str(house.database), "query = 'commit'")
    time.sleep(0.3)
    end(house, within_seconds=3)
    for thread in waiting:
        thread.join()
    assert len(replies) == 8
    assert [reply.json() for _, reply in replies] == [{"todos": []}] * 8

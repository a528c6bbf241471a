"""What ends the process, and how soon: a signal, within the grace, whatever Postgres does; and nothing else (R30)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.house import facts
from tests.house.agent_process import Caller
from tests.house.aliveness import require_everybody_alive
from tests.house.endings import end, locked, refuses_connections, wait_for_session
from tests.house.postmasters import children_of, conninfo_of, freeze, postmaster_of, thaw
from tests.houses import Agent, House, Opener, wait_until

GRACE_SECONDS = 2
SETTINGS: dict[str, dict[str, Any]] = {
    "server": {"shutdown_grace_seconds": GRACE_SECONDS},
    "queue": {"reap_interval_seconds": 0.3, "retry_interval_seconds": 0.3},
}

# A constraint trigger that is deferred runs inside COMMIT, where no time-out of the server reaches it.
SLOW_COMMIT = """
create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(600); return null; end $$;
create constraint trigger dawdle after insert on todos deferrable initially deferred
    for each row when (new.title = 'dawdle') execute function dawdle();
"""
SLOW_STATEMENT = """
create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(600); return new; end $$;
create trigger dawdle before insert on todos for each row when (new.title = 'dawdle') execute function dawdle();
"""


@contextmanager
def create_under_way(agent: Agent, house: House) -> Iterator[list[tuple[int, object]]]:
    """A create in a thread; the list gets its status and body, status 0 where the connection was lost."""
    answers: list[tuple[int, object]] = []
    caller = Caller(house.url, agent.credential)
    fields = {"queue": "work", "title": "dawdle", "idempotency_key": "dawdle"}
    asking = threading.Thread(target=lambda: answers.append(caller.post("/v1/todos", fields)))
    asking.start()
    try:
        yield answers
    finally:
        asking.join()
        caller.close()


def end_sessions(conninfo: str) -> None:
    """What hangs on the server's side is the server's; here it is ended by its operator."""
    facts.ask(
        conninfo,
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like 'switchboard%'",
    )
    wait_until(lambda: facts.sessions(conninfo) == 0, what="the end of its sessions")


@pytest.mark.parametrize(
    ("trigger", "stuck"),
    [(SLOW_STATEMENT, "state = 'active' and query like '%%todos%%'"), (SLOW_COMMIT, "state = 'active' and query = 'commit'")],
    ids=["statement", "commit"],
)
def test_r30_exits_within_the_grace_whatever_hangs(open_house: Opener, trigger: str, stuck: str) -> None:
    """R30: with a statement, or even a COMMIT, that hangs in Postgres the house is gone with code 0 at the end of its grace;
    the caller is never told that it worked.
    """
    house = open_house(settings=SETTINGS)
    agent, database = house.vend(), str(house.database)
    facts.ask(database, trigger)
    with create_under_way(agent, house) as answers:
        wait_for_session(database, f"wait_event = 'PgSleep' and {stuck.replace('%%', '%')}")
        end(house, within_seconds=GRACE_SECONDS)
    assert answers[0][0] in (0, 503)
    end_sessions(database)
    assert facts.one(database, "select count(*) from todos") == 0


def test_r30_exits_within_the_grace_while_a_table_is_locked(open_house: Opener) -> None:
    """R30: callers that wait behind somebody's LOCK TABLE do not keep the house: exit code 0 within the grace."""
    house = open_house(settings=SETTINGS)
    agent, database = house.vend(), str(house.database)
    with locked(database), create_under_way(agent, house) as answers:
        wait_for_session(database, "wait_event_type = 'Lock'")
        end(house, within_seconds=GRACE_SECONDS)
        wait_until(lambda: bool(answers), what="the caller's answer")
        assert answers[0][0] in (0, 503)
    wait_until(lambda: facts.sessions(database) == 0, what="the end of its sessions")
    assert facts.one(database, "select count(*) from todos") == 0


def test_r30_exits_within_the_grace_though_its_server_is_frozen(open_house: Opener) -> None:
    """R30: even the embedded server, which is stopped last, cannot keep the house: frozen whole, it costs the grace and no
    more, is gone as soon as it wakes, and the next house finds everything.
    """
    house = open_house(embedded=True, settings=SETTINGS)
    agent = house.vend()
    kept = agent.push()
    frozen = freeze(postmaster_of(house))
    try:
        with create_under_way(agent, house) as answers:
            # Whatever is not stuck yet will be: each sweep and each look at the database begins well before the end.
            end(house, within_seconds=GRACE_SECONDS + 0.5)  # half a second for the rescue that takes the server along
        assert answers[0][0] in (0, 503)
    finally:
        thaw(frozen)
    wait_until(lambda: not any(alive(pid) for pid in frozen), what="the end of the server")
    house = open_house.again(house)
    assert facts.one(conninfo_of(house), "select count(*) from todos where id = %s", kept["id"]) == 1
    end(house, within_seconds=GRACE_SECONDS)


def alive(pid: int) -> bool:
    """Whether a process is there, and not only its name on a list."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a line of the kernel's
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_idle_house_ends_at_once(open_house: Opener) -> None:
    """SIGTERM ends an idle house with code 0 long before its grace, with nothing wrong in its log, an idle keep-alive
    connection notwithstanding; its embedded server goes with it, in order.
    """
    house = open_house(embedded=True)
    agent = house.vend()
    agent.push()
    server = [postmaster_of(house), *children_of(postmaster_of(house))]
    end(house, within_seconds=3)
    assert refuses_connections(house.url)
    assert not any(alive(pid) for pid in server)
    assert not [line for line in house.log().splitlines() if '"level": "error"' in line or "Traceback" in line]
    assert not list((house.directory / "state").glob("postgres-*/data/postmaster.pid"))


def test_a_second_signal_cuts_nothing_short(open_house: Opener) -> None:
    """R30: an impatient second and third signal change nothing: the request in flight still gets its answer."""
    house = open_house()
    agent, database = house.vend(), str(house.database)
    with locked(database) as holder, create_under_way(agent, house) as answers:
        wait_for_session(database, "wait_event_type = 'Lock'")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            house.signal(number)
        wait_until(lambda: refuses_connections(house.url), what="the closed door")
        assert house.process.poll() is None
        holder.rollback()
        wait_until(lambda: bool(answers), what="the caller's answer")
    assert answers[0][0] == 201
    assert house.process.wait(10) == 0


def test_r30_no_fault_in_a_request_or_an_actor_ends_the_house(open_house: Opener) -> None:
    """R30: a fault that nobody foresaw, in every request and every sweep at once: the house stays, health is told, and when
    the fault is mended each actor works again.
    """
    house = open_house(settings=SETTINGS)
    agent, database = house.vend(), str(house.database)
    for breaking, mending in (
        ("alter table todos rename to todos_elsewhere", "alter table todos_elsewhere rename to todos"),
        ("alter table todos rename column state to elsewhere", "alter table todos rename column elsewhere to state"),
    ):
        facts.ask(database, breaking)
        statuses = [agent.http.post("/v1/todos", json={"queue": "q"}).status_code for _ in range(3)]
        statuses += [agent.http.post("/v1/claims", json={}).status_code, agent.http.get("/v1/todos").status_code]
        assert set(statuses) == {503}
        wait_until(lambda: not house.ready(), what="/readyz 503")
        assert house.client().get("/healthz").status_code == 200
        facts.ask(database, mending)
    wait_until(house.ready, what="/readyz 200")
    require_everybody_alive(house, agent, database)
    assert house.process.poll() is None

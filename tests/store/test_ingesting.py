"""Ingestion in the store: one event and one todo for each message and endpoint, whatever comes again. R3, R18, R22, R23."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from switchboard.commands import Ingest, Ingested, IngestedFor
from switchboard.database.border import Session
from switchboard.database.failures import translate
from switchboard.endpoint import digest
from switchboard.errors import BlamesOne, Conflict
from switchboard.event import EventFilter
from switchboard.ingestion import Delivery, Origin, body_key, key_prefix, native_key, payload_of, wrapper_of
from switchboard.store import adapters, endpoints, events, slots
from switchboard.store.ingesting import OTHER_BYTES, ingest


@pytest.fixture
def endpoint(session: Session) -> UUID:
    return vend(session)


def vend(session: Session) -> UUID:
    return endpoints.vend(session, f"e-{uuid4().hex[:12]}", digest(uuid4().hex), None).id


def delivery(body: bytes, *, entry: str | None = None, **fields: Any) -> Delivery:
    prefix = key_prefix("orders", None)
    return Delivery(
        origin=Origin(
            source="redis",
            family="queue",
            trust_mode="queue",
            verified=False,
            verify_detail="redis acl: default",
            queue="work",
            adapter="orders",
        ),
        external_id=body_key(prefix, body) if entry is None else native_key(prefix, entry),
        native_id=entry is not None,
        body=body,
        **fields,
    )


def command(body: bytes, *endpoint_ids: UUID, entry: str | None = None, quarantine: str | None = None) -> Ingest:
    return Ingest(
        delivery=delivery(body, entry=entry),
        payload=payload_of(body),
        endpoint_ids=endpoint_ids,
        max_attempts=5,
        quarantine=quarantine,
    )


def run(session: Session, *commands: Ingest) -> list[IngestedFor]:
    """The results of all commands, flat."""
    results: list[IngestedFor] = []
    for outcome in ingest(session, commands):
        assert isinstance(outcome, Ingested)
        results += outcome.targets
    return results


def end(session: Session, todo_id: object) -> None:
    session.execute(
        "update todos set state = 'done', completed_at = clock_timestamp() where id = %s and state = 'pending'", (todo_id,)
    )


def count(session: Session, table: str, endpoint: UUID) -> int:
    row = session.execute(f"select count(*) from {table} where endpoint_id = %s", (endpoint,)).fetchone()
    assert row is not None
    return int(row[0])


def test_one_event_and_one_todo_that_know_each_other(session: Session, endpoint: UUID) -> None:
    """A message becomes an event and a todo, tied both ways, with the trust that the adapter vouches for."""
    (made,) = run(session, command(b'{"a": 1, "a": 2}', endpoint, entry="1-0"))
    assert made.disposition == "stored"
    row = session.execute(
        "select t.payload::text, t.source, t.idempotency_key, t.event_id, t.queue from todos t where t.id = %s", (made.todo_id,)
    ).fetchone()
    assert row == ('{"a": 1, "a": 2}', "redis", "redis:orders:1-0", made.event_id, "work")
    event = events.get_event(session, str(made.event_id))
    assert (event.family, event.trust_mode, event.verified, event.verify_detail) == (
        "queue",
        "queue",
        False,
        "redis acl: default",
    )
    assert (event.todo_id, event.disposition, event.size) == (made.todo_id, "stored", 16)


def test_r3_native_id_is_remembered_for_ever(session: Session, endpoint: UUID) -> None:
    """R3: the same entry with the same bytes makes nothing, also after its todo is done; other bytes are quarantined."""
    (first,) = run(session, command(b"1", endpoint, entry="1-0"))
    end(session, first.todo_id)
    (again,) = run(session, command(b"1", endpoint, entry="1-0"))
    assert again == IngestedFor(endpoint_id=endpoint, disposition="duplicate", event_id=first.event_id, todo_id=first.todo_id)
    (other,) = run(session, command(b"2", endpoint, entry="1-0"))
    assert other.disposition == "quarantined"
    assert events.get_event(session, str(other.event_id)).error == OTHER_BYTES
    (other_again,) = run(session, command(b"2", endpoint, entry="1-0"))
    assert (other_again.disposition, other_again.event_id) == ("duplicate", other.event_id)
    assert (count(session, "todos", endpoint), count(session, "events", endpoint)) == (1, 2)


def test_r3_body_hash_collapses_on_live_rows_only(session: Session, endpoint: UUID) -> None:
    """R3, C22: an equal body while the first is live is a duplicate that names it; after the end it is new work."""
    first, twin = run(session, command(b"x", endpoint), command(b"x", endpoint))
    assert (first.disposition, twin.disposition) == ("stored", "duplicate")
    assert twin.todo_id == first.todo_id
    assert events.get_event(session, str(twin.event_id)).disposition == "duplicate"
    end(session, first.todo_id)
    (later,) = run(session, command(b"x", endpoint))
    assert later.disposition == "stored"
    assert later.todo_id != first.todo_id


def test_same_entry_twice_in_one_batch(session: Session, endpoint: UUID) -> None:
    """A batch that names an entry twice makes one todo."""
    made = run(session, command(b"1", endpoint, entry="1-0"), command(b"1", endpoint, entry="1-0"))
    assert sorted(result.disposition for result in made) == ["duplicate", "stored"]
    assert count(session, "todos", endpoint) == 1


def test_r18_each_endpoint_gets_its_own(session: Session, endpoint: UUID) -> None:
    """R18: several endpoints, an event and a todo each; a revoked one is left out, and said."""
    other, gone = vend(session), vend(session)
    session.execute("update endpoints set revoked_at = clock_timestamp() where id = %s", (gone,))
    results = run(session, command(b"1", endpoint, gone, other, entry="1-0"))
    assert [result.disposition for result in results] == ["stored", "refused", "stored"]
    assert results[0].todo_id != results[2].todo_id
    assert [count(session, table, gone) for table in ("todos", "events")] == [0, 0]


def test_native_key_held_by_a_live_todo_of_the_api(session: Session, endpoint: UUID) -> None:
    """A live todo that somebody made with the very key of an entry is its twin: one todo, and an event that points at it."""
    (first,) = run(session, command(b"1", endpoint, entry="1-0"))
    session.execute("delete from events where id = %s", (first.event_id,))
    (again,) = run(session, command(b"1", endpoint, entry="1-0"))
    assert (again.disposition, again.todo_id) == ("duplicate", first.todo_id)
    (third,) = run(session, command(b"1", endpoint, entry="1-0"))
    assert (third.disposition, third.event_id) == ("duplicate", again.event_id)


def test_r23_quarantine_release_discard(session: Session, endpoint: UUID) -> None:
    """R23: a quarantined event keeps its bytes; it is released onto its own row or discarded; its entry stays known."""
    (held, thrown) = run(
        session,
        command(b"\xff", endpoint, entry="1-0", quarantine="too strange"),
        command(b"2", endpoint, entry="2-0", quarantine="no"),
    )
    assert {held.disposition, thrown.disposition} == {"quarantined"}
    assert events.raw_body(session, str(held.event_id)) == (b"\xff", None)
    event, created = events.release(session, str(held.event_id), max_attempts=3)
    assert (event.id, event.disposition, event.todo_id, event.error) == (held.event_id, "stored", created.todo.id, None)
    assert created.todo.event_id == held.event_id
    assert events.discard(session, str(thrown.event_id)).disposition == "discarded"
    for known in (held, thrown):
        with pytest.raises(Conflict):
            events.release(session, str(known.event_id), max_attempts=3)
        with pytest.raises(Conflict):
            events.discard(session, str(known.event_id))
    again = run(session, command(b"\xff", endpoint, entry="1-0"), command(b"2", endpoint, entry="2-0"))
    assert [result.disposition for result in again] == ["duplicate", "duplicate"]
    assert count(session, "todos", endpoint) == 1


def test_r23_release_of_other_bytes(session: Session, endpoint: UUID) -> None:
    """R23: an operator may let an entry of other bytes in, as work of its own: never onto a live todo that says something
    else, where it would be lost. It stays quarantined until that one has ended.
    """
    (first,) = run(session, command(b"1", endpoint, entry="1-0"))
    (other,) = run(session, command(b"2", endpoint, entry="1-0"))
    with pytest.raises(Conflict, match=str(first.todo_id)):
        events.release(session, str(other.event_id), max_attempts=3)
    assert events.get_event(session, str(other.event_id)).disposition == "quarantined"
    end(session, first.todo_id)
    event, created = events.release(session, str(other.event_id), max_attempts=3)
    assert (event.disposition, created.created) == ("stored", True)


def test_r23_release_onto_a_live_todo_of_the_same_body(session: Session, endpoint: UUID) -> None:
    """R23: what is already waiting as a todo needs no second one."""
    (held,) = run(session, command(b"1", endpoint, quarantine="no"))
    (first,) = run(session, command(b"2", endpoint))
    session.execute(
        "update todos set idempotency_key = %s, payload = '1', payload_bytes = 1 where id = %s",
        (body_key(key_prefix("orders", None), b"1"), first.todo_id),
    )
    event, created = events.release(session, str(held.event_id), max_attempts=3)
    assert (event.disposition, created.created, event.todo_id) == ("duplicate", False, first.todo_id)


@pytest.mark.parametrize("body", [b"1", b' {"a": [1, 2], "a": "\xc3\xa4"} ', b"\xff", b'"\\u0000"', b""])
def test_r22_the_body_itself_is_the_payload(session: Session, endpoint: UUID, body: bytes) -> None:
    """R22: its own text, byte for byte, where it can be kept as that; whatever cannot stands in a wrapper beside such ones."""
    plain = command(b'"plain"', endpoint, entry="1-0")
    for number, one in enumerate((body, b'"next"')):
        ingested = attrs.evolve(command(one, endpoint, entry=f"2-{number}"), payload=wrapper_of(one))
        run(session, attrs.evolve(plain, delivery=delivery(b'"plain"', entry=f"1-{number}"), payload=None), ingested)
    rows = session.execute(
        "select payload::text, payload_bytes from todos where endpoint_id = %s order by idempotency_key", (endpoint,)
    ).fetchall()
    texts = [payload_of(one) for one in (b'"plain"', b'"plain"', body, b'"next"')]
    assert rows == [(text, len(text.encode())) for text in texts]


def test_r23_quarantined_body_hash_is_kept_once(session: Session, endpoint: UUID) -> None:
    """A body without an id that was quarantined and is delivered again before its ack is not kept twice."""
    held, again = run(session, command(b"x", endpoint, quarantine="no"), command(b"x", endpoint, quarantine="no"))
    assert [held.disposition, again.disposition] == ["quarantined", "duplicate"]


def test_event_listing_filters(session: Session, endpoint: UUID) -> None:
    """The listing filters by endpoint, source and disposition, newest first, a page at a time."""
    run(session, *[command(b"%d" % number, endpoint, entry=f"{number}-0") for number in range(5)])
    run(session, command(b"9", endpoint, entry="9-0", quarantine="no"))
    everything = events.list_events(session, EventFilter(endpoint_id=endpoint, limit=10))
    assert [event.external_id for event in everything] == [f"redis:orders:{number}-0" for number in (9, 4, 3, 2, 1, 0)]
    page = events.list_events(session, EventFilter(endpoint_id=endpoint, limit=2, before=everything[1].id))
    assert [event.id for event in page] == [event.id for event in everything[2:4]]
    (held,) = events.list_events(session, EventFilter(endpoint_id=endpoint, disposition="quarantined"))
    assert held.external_id == "redis:orders:9-0"
    stored = events.list_events(session, EventFilter(endpoint_id=endpoint, disposition="stored", source="redis"))
    assert len(stored) == 5
    assert not events.list_events(session, EventFilter(endpoint_id=endpoint, source="github"))


def test_poison_blames_itself(session: Session, endpoint: UUID) -> None:
    """What the database refuses for one message's sake is an error that blames one, so that the batch is taken apart."""
    session.execute("alter table todos add constraint no_poison check (payload::text not like '%%poison%%')")
    with pytest.raises(Exception, match="no_poison") as caught:
        ingest(session, [command(b'"poison"', endpoint, entry="1-0")])
    assert isinstance(translate(caught.value), BlamesOne)


def test_r31_slots(session: Session) -> None:
    """R31: the lowest free slot, one's own again after a restart, an expired one for whoever needs it; all are remembered."""
    session.execute("delete from slots")
    first, second, third = uuid4(), uuid4(), uuid4()
    assert [slots.beat(session, holder).mine for holder in (first, second, first)] == [1, 2, 1]
    session.execute("update slots set beat_at = beat_at - interval '11 s' where slot = 1")
    told = slots.beat(session, second)
    assert (told.live, told.gone) == (frozenset({2}), frozenset({1}))
    assert slots.beat(session, third).mine == 1
    assert slots.beat(session, first).mine == 3


def test_r3_highest_forgotten_entry(session: Session) -> None:
    """R3: a lost group starts where the pruner stopped, at 0 if it never ran."""
    assert adapters.highest_forgotten(session, "orders") == "0"
    session.execute("insert into forgotten_entries values ('orders', 18446744073709551615, 7)")
    assert adapters.highest_forgotten(session, "orders") == "18446744073709551615-7"

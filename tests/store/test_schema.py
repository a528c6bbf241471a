"""The schema refuses nonsense, and could be distributed by endpoint: rule 6 of the house."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import CheckViolation, ForeignKeyViolation, NotNullViolation, UniqueViolation

from switchboard.todo import (
    KIND_CHARS_MAX,
    LEASE_SECONDS_MAX,
    MAX_ATTEMPTS_MAX,
    NOWHERE,
    OWNER_CHARS_MAX,
    QUEUE_CHARS_MAX,
    TITLE_CHARS_MAX,
)
from tests.store.desk import Desk

AT = "2026-07-21 12:00:00+00"
LEASE = {"lease_token": uuid4(), "lease_seconds": 60, "lease_expires_at": AT}

# The smallest sound row of each status.
SOUND: dict[str, dict[str, Any]] = {
    "pending": {"state": "pending", "attempt": 0},
    "claimed": {"state": "claimed", "attempt": 1, "owner": "w", "claimed_at": AT, **LEASE},
    "retrying": {"state": "failed", "attempt": 1, "owner": "w", "claimed_at": AT, "next_retry_at": AT},
    "dead": {"state": "failed", "attempt": 5, "owner": "w", "claimed_at": AT, "completed_at": AT, "error": "x"},
    "done": {"state": "done", "attempt": 1, "owner": "w", "claimed_at": AT, "completed_at": AT, "result": "1"},
}


def _insert(desk: Desk, endpoint: UUID | None, **fields: Any) -> None:
    common = {"queue": "work", "source": "api", "max_attempts": 5, "created_at": AT, "updated_at": AT}
    _insert_into(desk, "todos", {"endpoint_id": endpoint, "id": uuid4(), **common, **fields})


def _insert_into(desk: Desk, table: str, row: dict[str, Any]) -> None:
    columns, values = ", ".join(row), ", ".join(["%s"] * len(row))
    with desk.session.transaction():
        desk.session.execute(f"insert into {table} ({columns}) values ({values})".encode(), list(row.values()))


@pytest.mark.parametrize("status", SOUND)
def test_the_sound_rows_are_taken(desk: Desk, status: str) -> None:
    """Rule 6: what the cases below spoil is itself right, so that each is refused for its one fault."""
    _insert(desk, desk.endpoint(), **SOUND[status])


NONSENSE: list[tuple[str, dict[str, Any], str]] = [
    # states
    ("pending", {"state": "lost"}, "todos_state"),
    ("pending", {"state": ""}, "todos_state"),
    # attempts, and their cap
    ("pending", {"attempt": -1}, "todos_attempt"),
    ("claimed", {"attempt": 6}, "todos_attempt"),
    ("pending", {"attempt": 5}, "todos_pending"),
    ("claimed", {"attempt": 0}, "todos_lease"),
    ("pending", {"max_attempts": 0}, "todos_max_attempts_check"),
    ("pending", {"max_attempts": MAX_ATTEMPTS_MAX + 1}, "todos_max_attempts_check"),
    # claimed has an owner and a whole lease
    *[("claimed", {column: None}, "todos_lease") for column in (*LEASE, "owner", "claimed_at")],
    ("claimed", {"lease_seconds": 0}, "todos_lease_seconds_check"),
    ("claimed", {"lease_seconds": LEASE_SECONDS_MAX + 1}, "todos_lease_seconds_check"),
    # nothing else has any part of one
    *[(status, {column: LEASE[column]}, "todos_lease") for status in SOUND if status != "claimed" for column in LEASE],
    ("pending", {"owner": "w"}, "todos_pending"),
    ("pending", {"claimed_at": AT}, "todos_pending"),
    # only failed has a window, below the cap
    *[(status, {"next_retry_at": AT}, "todos_") for status in ("pending", "claimed", "done", "dead")],
    ("retrying", {"attempt": 5}, "todos_window"),
    ("retrying", {"completed_at": AT}, "todos_completed"),
    # done and dead have an end; nothing else does
    ("done", {"completed_at": None}, "todos_completed"),
    ("dead", {"completed_at": None}, "todos_completed"),
    ("pending", {"completed_at": AT}, "todos_completed"),
    ("claimed", {"completed_at": AT}, "todos_completed"),
    # only done has a result
    *[(status, {"result": "1"}, "todos_result") for status in SOUND if status != "done"],
    # bounds of R27
    ("pending", {"queue": ""}, "todos_queue_check"),
    ("pending", {"queue": "q" * (QUEUE_CHARS_MAX + 1)}, "todos_queue_check"),
    ("pending", {"source": ""}, "todos_source_check"),
    ("pending", {"kind": ""}, "todos_kind_check"),
    ("pending", {"kind": "k" * (KIND_CHARS_MAX + 1)}, "todos_kind_check"),
    ("pending", {"title": "t" * (TITLE_CHARS_MAX + 1)}, "todos_title_check"),
    ("pending", {"assignee": ""}, "todos_assignee_check"),
    ("pending", {"assignee": "a" * (OWNER_CHARS_MAX + 1)}, "todos_assignee_check"),
    ("claimed", {"owner": ""}, "todos_owner_check"),
    ("claimed", {"owner": "o" * (OWNER_CHARS_MAX + 1)}, "todos_owner_check"),
    ("pending", {"idempotency_key": ""}, "todos_idempotency_key_check"),
    ("pending", {"idempotency_key": "é" * 257}, "todos_idempotency_key_check"),
    ("pending", {"payload_bytes": -1}, "todos_payload_bytes_check"),
    ("done", {"result_bytes": -1}, "todos_result_bytes_check"),
]


@pytest.mark.parametrize(("status", "fault", "constraint"), NONSENSE)
def test_a_nonsense_row_is_refused(desk: Desk, status: str, fault: dict[str, Any], constraint: str) -> None:
    """Rule 6, R27: no statement, ours or psql's, can store a row that no transition could have made."""
    with pytest.raises(CheckViolation) as refusal:
        _insert(desk, desk.endpoint(), **(SOUND[status] | fault))
    assert (refusal.value.diag.constraint_name or "").startswith(constraint)


@pytest.mark.parametrize("column", ["endpoint_id", "queue", "source", "max_attempts", "state", "created_at", "updated_at"])
def test_what_every_todo_has_is_never_null(desk: Desk, column: str) -> None:
    """SPEC-0003 Endpoint Ownership: a todo without an endpoint, or without any of its constant parts, is refused."""
    with pytest.raises(NotNullViolation) as refusal:
        _insert(desk, desk.endpoint(), **(SOUND["pending"] | {column: None}))
    assert refusal.value.diag.column_name == column


def test_the_longest_texts_of_the_contract_fit(desk: Desk) -> None:
    """R27, C14: what the contract allows is stored, also of the least compressible kind, keys of 512 bytes among it."""
    longest = {
        "queue": "ü" * QUEUE_CHARS_MAX,
        "assignee": "😀" * OWNER_CHARS_MAX,
        "kind": "k" * KIND_CHARS_MAX,
        "title": "t" * TITLE_CHARS_MAX,
        "idempotency_key": "".join(uuid4().hex for _ in range(16)),
    }
    _insert(desk, desk.endpoint(), **(SOUND["pending"] | longest))


@pytest.mark.parametrize("text", ["{", "{'a': 1}", "NaN", "", '{"a": 01}'])
def test_what_is_no_json_is_no_payload(desk: Desk, text: str) -> None:
    """R22: payloads are checked once, by the column's type."""
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        _insert(desk, desk.endpoint(), **(SOUND["pending"] | {"payload": text}))


def test_two_live_todos_of_one_key_are_refused(desk: Desk) -> None:
    """R2: the unique index holds for everybody, whatever way a row came."""
    endpoint = desk.endpoint()
    for status in ("done", "dead", "done", "pending"):
        _insert(desk, endpoint, **(SOUND[status] | {"idempotency_key": "k"}))
    for status in ("pending", "claimed", "retrying"):
        with pytest.raises(UniqueViolation):
            _insert(desk, endpoint, **(SOUND[status] | {"idempotency_key": "k"}))
    _insert(desk, desk.endpoint(), **(SOUND["pending"] | {"idempotency_key": "k"}))


def test_a_todo_belongs_to_an_endpoint_that_is_there(desk: Desk) -> None:
    """SPEC-0003 Endpoint Ownership: endpoint_id is a foreign key, and an endpoint with todos cannot be deleted."""
    with pytest.raises(ForeignKeyViolation):
        _insert(desk, uuid4(), **SOUND["pending"])
    endpoint = desk.endpoint()
    _insert(desk, endpoint, **SOUND["pending"])
    with pytest.raises(ForeignKeyViolation), desk.session.transaction():
        desk.session.execute("delete from endpoints where id = %s", [endpoint])


ENDPOINT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"id": NOWHERE}, "endpoints_id_check"),
    ({"name": "Upper"}, "endpoints_name_check"),
    ({"name": ""}, "endpoints_name_check"),
    ({"name": "a" * 64}, "endpoints_name_check"),
    ({"name": "two\nlines"}, "endpoints_name_check"),
    ({"credential_sha256": b"short"}, "endpoints_credential_sha256_check"),
    ({"queues": []}, "endpoints_queues_check"),
    ({"queues": ["q"] * 101}, "endpoints_queues_check"),
    ({"drained_at": AT}, "endpoints_check"),
]


@pytest.mark.parametrize(("fault", "constraint"), ENDPOINT_FAULTS)
def test_a_nonsense_endpoint_is_refused(desk: Desk, fault: dict[str, Any], constraint: str) -> None:
    """Rule 6: nothing belongs to nowhere (R16), names are one line, credentials are digests (R28)."""
    with pytest.raises(CheckViolation) as refusal:
        _insert_into(desk, "endpoints", {"id": uuid4(), "name": "fine", "credential_sha256": uuid4().bytes * 2} | fault)
    assert refusal.value.diag.constraint_name == constraint


ATTEMPT = {"attempt": 1, "owner": "w", "claimed_at": AT, "ended_at": AT, "outcome": "completed"}
ATTEMPT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"attempt": 0}, "attempts_attempt_check"),
    ({"attempt": MAX_ATTEMPTS_MAX + 1}, "attempts_attempt_check"),
    ({"outcome": "undone"}, "attempts_outcome_check"),
    ({"outcome": ""}, "attempts_outcome_check"),
]


@pytest.mark.parametrize(("fault", "constraint"), ATTEMPT_FAULTS)
def test_a_nonsense_attempt_is_refused(desk: Desk, fault: dict[str, Any], constraint: str) -> None:
    """Rule 6, R15: the history knows five ends of a claim, and none of them is "undone"."""
    place = {"endpoint_id": desk.endpoint(), "todo_id": uuid4(), "lease_token": uuid4()}
    _insert_into(desk, "attempts", place | ATTEMPT)
    with pytest.raises(UniqueViolation):
        _insert_into(desk, "attempts", place | ATTEMPT)
    with pytest.raises(CheckViolation) as refusal:
        _insert_into(desk, "attempts", place | ATTEMPT | {"lease_token": uuid4()} | fault)
    assert refusal.value.diag.constraint_name == constraint


EVENT = {
    "source": "s", "family": "queue", "trust_mode": "queue", "verified": False, "disposition": "stored", "external_id": "1-0",
    "native_id": True, "body": b"\xff\x00", "body_sha256": b"x" * 32, "received_at": AT,
}  # fmt: skip
EVENT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"family": "mail"}, "events_family_check"),
    ({"disposition": "lost"}, "events_disposition_check"),
    ({"external_id": ""}, "events_external_id_check"),
    ({"external_id": "x" * 513}, "events_external_id_check"),
    ({"body_sha256": b"short"}, "events_body_sha256_check"),
    ({"source": ""}, "events_source_check"),
    ({"trust_mode": ""}, "events_trust_mode_check"),
]


@pytest.mark.parametrize(("fault", "constraint"), EVENT_FAULTS)
def test_a_nonsense_event_is_refused(desk: Desk, fault: dict[str, Any], constraint: str) -> None:
    """Rule 6, R3: an event keeps any bytes, but what is said of them is sound; a native id is stored once."""
    endpoint = desk.endpoint()
    _insert_into(desk, "events", {"endpoint_id": endpoint, "id": uuid4()} | EVENT)
    with pytest.raises(UniqueViolation):
        _insert_into(desk, "events", {"endpoint_id": endpoint, "id": uuid4()} | EVENT)
    with pytest.raises(CheckViolation) as refusal:
        _insert_into(desk, "events", {"endpoint_id": endpoint, "id": uuid4()} | EVENT | {"external_id": "2-0"} | fault)
    assert refusal.value.diag.constraint_name == constraint


def test_a_live_name_is_held_by_one_endpoint_and_may_be_vended_again_after_a_revoke(desk: Desk) -> None:
    """R17: names are unique among live endpoints; credentials are unique for ever."""
    first = desk.rows("select name, credential_sha256 from endpoints where id = %s", desk.endpoint())[0]
    again = "insert into endpoints (id, name, credential_sha256) values (gen_random_uuid(), %s, %s)"
    with pytest.raises(UniqueViolation), desk.session.transaction():
        desk.session.execute(again.encode(), [first["name"], uuid4().bytes * 2])
    with pytest.raises(UniqueViolation), desk.session.transaction():
        desk.session.execute(again.encode(), ["another", first["credential_sha256"]])
    desk.session.execute("update endpoints set revoked_at = clock_timestamp() where name = %s", [first["name"]])
    desk.session.execute(again.encode(), [first["name"], uuid4().bytes * 2])
    with pytest.raises(UniqueViolation), desk.session.transaction():
        desk.session.execute(again.encode(), ["another", first["credential_sha256"]])


def test_every_tenant_table_could_be_distributed_by_endpoint(desk: Desk) -> None:
    """Rule 6 (Citus): each primary key, unique index and foreign key of a tenant table contains endpoint_id.

    Every table is a tenant's, by its column endpoint_id, but for the endpoints themselves, the migrations' ledger
    and what belongs to the house: its adapters and webhooks, its processes' slots, and how far it has forgotten each stream.
    """
    tables = {
        row["name"]
        for row in desk.rows(
            "select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
        )
    }
    tenants = {row["name"] for row in desk.rows(_TENANT_TABLES)}
    assert tables - tenants == {"endpoints", "schema_migrations", "adapters", "slots", "forgotten_entries", "webhooks"}
    assert tenants >= {"todos", "attempts", "events"}
    unique = desk.rows(_UNIQUE_INDEXES)
    assert {row["table"] for row in unique if row["primary"]} >= tenants
    assert [row for row in unique if row["table"] in tenants and "endpoint_id" not in row["columns"]] == []
    foreign = desk.rows(_FOREIGN_KEYS)
    assert {row["table"] for row in foreign} >= {"todos", "events"}
    assert [row for row in foreign if row["table"] in tenants and "endpoint_id" not in row["columns"]] == []
    # and it is never null there, or a row would have no place
    assert desk.rows(_NULLABLE_ENDPOINTS) == []


_TENANT_TABLES = """
select c.relname as name
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attname = 'endpoint_id' and not a.attisdropped
where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
"""
_NULLABLE_ENDPOINTS = _TENANT_TABLES + " and not a.attnotnull"
_UNIQUE_INDEXES = """
select t.relname as table, i.relname as index, x.indisprimary as primary,
    array(
        select a.attname::text from unnest(x.indkey::int2[]) as k (attnum)
        join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.attnum
    ) as columns
from pg_index x
join pg_class t on t.oid = x.indrelid
join pg_class i on i.oid = x.indexrelid
where x.indisunique and t.relnamespace = 'public'::regnamespace
"""
_FOREIGN_KEYS = """
select t.relname as table, c.conname as name,
    array(
        select a.attname::text from unnest(c.conkey) as k (attnum)
        join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum
    ) as columns
from pg_constraint c
join pg_class t on t.oid = c.conrelid
where c.contype = 'f' and t.relnamespace = 'public'::regnamespace
"""

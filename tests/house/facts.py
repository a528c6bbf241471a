"""What the database says: the facts that a house's words are held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

NAME = "test-facts"


def ask(conninfo: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Runs one statement as an onlooker; returns its rows."""
    with psycopg.connect(conninfo, autocommit=True, application_name=NAME) as connection:
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


def one(conninfo: str, statement: str, *parameters: object) -> Any:
    """The single value of a statement's single row."""
    ((value,),) = ask(conninfo, statement, *parameters)
    return value


def sessions(conninfo: str) -> int:
    """How many sessions of any switchboard are on this database."""
    return int(
        one(
            conninfo,
            "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'switchboard%'",
        )
    )


def has_tables(conninfo: str) -> bool:
    """Whether anybody has ever made anything in this database."""
    return bool(one(conninfo, "select count(*) from pg_class where relnamespace = 'public'::regnamespace"))


def require_kept(conninfo: str, *, created: Iterable[tuple[str, str]], completed: Iterable[tuple[str, str]]) -> None:
    """Each acknowledged create (key, id) has its row, and each acknowledged complete (id, lease token) is that claim's end."""
    stored = {(key, str(id_)) for key, id_ in ask(conninfo, "select idempotency_key, id from todos")}
    assert set(created) <= stored, sorted(set(created) - stored)[:5]
    ended = {
        (str(id_), str(token))
        for id_, token in ask(
            conninfo,
            "select t.id, a.lease_token from todos t join attempts a on a.endpoint_id = t.endpoint_id and a.todo_id = t.id"
            " where t.state = 'done' and a.outcome = 'completed'",
        )
    }
    assert set(completed) <= ended, sorted(set(completed) - ended)[:5]


def require_done_once(conninfo: str, *, todos: int, attempts_max: int) -> None:
    """Every todo is done, its final claim is its only completed one and its last, and none was tried above its cap."""
    total, done, over = ask(
        conninfo,
        "select count(*), count(*) filter (where state = 'done'), count(*) filter (where attempt > %s) from todos",
        attempts_max,
    )[0]
    assert (total, done, over) == (todos, todos, 0)
    wrong = ask(
        conninfo,
        "select t.id, t.attempt, array_agg(a.attempt || ' ' || a.outcome order by a.attempt)"
        " from todos t left join attempts a on a.endpoint_id = t.endpoint_id and a.todo_id = t.id"
        " group by t.endpoint_id, t.id"
        " having count(*) filter (where a.outcome = 'completed') <> 1"
        "   or max(a.attempt) <> t.attempt or max(a.attempt) filter (where a.outcome = 'completed') <> t.attempt"
        "   or max(a.ended_at) <> max(a.ended_at) filter (where a.outcome = 'completed')"
        " limit 5",
    )
    assert not wrong, wrong


@contextmanager
def bare_database(server: str) -> Iterator[str]:
    """A database in which nobody has made anything yet."""
    name = f"bare_{uuid4().hex[:12]}"
    ask(server, f"create database {name}")
    try:
        yield make_conninfo(server, dbname=name)
    finally:
        ask(server, f"drop database {name} with (force)")

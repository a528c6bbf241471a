"""From a row to a todo, and from commands to the columns that a statement unnests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from psycopg.rows import dict_row

from switchboard.database.border import Session
from switchboard.todo import Todo

Row = dict[str, Any]


def fetch(session: Session, statement: bytes, values: Mapping[str, object]) -> list[Row]:
    """Runs one statement and returns its rows by column name."""
    with session.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, values).fetchall()


def fetch_one(session: Session, statement: bytes, values: Mapping[str, object]) -> Row | None:
    """Runs one statement of which at most one row is wanted."""
    with session.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, values).fetchone()


def todo_of(row: Row) -> Todo:
    """The todo in a row that holds nothing else."""
    return Todo(**row)


def todos_by_ordinal(rows: Iterable[Row]) -> dict[int, Todo]:
    """The todos of a batch statement by the place of their command in the batch."""
    return {row.pop("ordinal"): Todo(**row) for row in rows}

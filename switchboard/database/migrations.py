"""Brings a database to the schema that this switchboard needs, one file and one transaction at a time (C60).

Safe to run by many processes at once, and safe to kill at any point: a migration and its row in the ledger stand
together or not at all. Blocks; callers give it a thread, and can abort it (see `migrate`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import psycopg

from switchboard.database import queries
from switchboard.database.conninfo import one_line
from switchboard.database.migration_files import Applied, Migration, next_migration, read_migrations
from switchboard.database.server import CONNECT_SECONDS_MAX, refuse_old_server, refuse_other_encoding
from switchboard.errors import StartError

LOCK_WAIT_SECONDS_MAX = 30.0
STATEMENT_SECONDS_MAX = 600.0  # an index on a large table takes minutes; more than ten deserves an operator's look

Connection = psycopg.Connection[Any]

_BOUND_WAITS = queries.load("migrations/bound_waits")
_WATCH_CLIENT = queries.load("migrations/watch_client")
_LOCK = queries.load("migrations/lock")
_IS_READ_ONLY = queries.load("migrations/is_read_only")
_HAS_LEDGER = queries.load("migrations/has_ledger")
_CREATE_LEDGER = queries.load("migrations/create_ledger")
_LIST_APPLIED = queries.load("migrations/list_applied")
_RECORD = queries.load("migrations/record")

_READ_ONLY = "The database takes no writes (a standby, or default_transaction_read_only is on): name the primary server."


@attrs.frozen(kw_only=True)
class _Bounds:
    lock_seconds: float
    statement_seconds: float

    def parameters(self) -> dict[str, str]:
        # 0 would mean "no bound" to the server.
        milliseconds = {"lock_ms": self.lock_seconds * 1000, "statement_ms": self.statement_seconds * 1000}
        return {name: str(max(1, round(value))) for name, value in milliseconds.items()}


@attrs.define(kw_only=True)
class _Progress:
    """What was under way, for the line that tells of a failure."""

    doing: str = "connecting"


def migrate(
    conninfo: str,
    *,
    directory: Path,
    lock_wait_seconds: float = LOCK_WAIT_SECONDS_MAX,
    statement_seconds: float = STATEMENT_SECONDS_MAX,
    on_connect: Callable[[Connection], None] | None = None,
) -> list[str]:
    """Applies what is missing of `directory` to the database, and returns the names of what was applied.

    Several processes take turns; each waits at most `lock_wait_seconds` for any one lock. `on_connect` is given the
    connection before anything is asked of it: another thread may shut its socket down, and the call ends at once.
    Raises StartError, one line without secrets; nothing is half done then.
    """
    files = read_migrations(directory)
    bounds = _Bounds(lock_seconds=lock_wait_seconds, statement_seconds=statement_seconds)
    progress = _Progress()
    applied: list[str] = []
    try:
        with _connect(conninfo) as connection:
            if on_connect is not None:
                on_connect(connection)
            progress.doing = "reading the ledger"
            refuse_old_server(connection.info.server_version)
            refuse_other_encoding(connection.info.parameter_status("server_encoding"))
            if _single(connection, _IS_READ_ONLY):
                raise StartError(_READ_ONLY)
            while (name := _apply_next(connection, files, bounds, progress)) is not None:
                applied.append(name)
    except psycopg.Error as exc:
        raise StartError(_explain(exc, conninfo, bounds, progress.doing)) from exc
    return applied


def _connect(conninfo: str) -> Connection:
    connection = psycopg.connect(
        conninfo,
        autocommit=True,  # transactions are opened where they are meant
        prepare_threshold=None,  # each statement runs once, and poolers between us and the server dislike prepared ones
        application_name="switchboard-migrate",
        client_encoding="UTF8",
        connect_timeout=CONNECT_SECONDS_MAX,
        # A server that vanished without a word is noticed after 20 s, instead of never.
        keepalives_idle=5,
        keepalives_interval=5,
        keepalives_count=3,
    )
    # Each statement must see what was committed while it waited for the lock, whatever the role's default is.
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def _apply_next(connection: Connection, files: list[Migration], bounds: _Bounds, progress: _Progress) -> str | None:
    """Applies one migration in one transaction. Returns its name, or None where nothing is left to do."""
    progress.doing = "waiting for another switchboard that migrates"
    with connection.transaction():
        connection.execute(_BOUND_WAITS, bounds.parameters())
        _watch_client(connection)
        # A lock of the transaction and not of the session: it works through a pooler, and cannot be left behind.
        connection.execute(_LOCK)
        progress.doing = "reading the ledger"
        if not _single(connection, _HAS_LEDGER):
            connection.execute(_CREATE_LEDGER)
        rows = connection.execute(_LIST_APPLIED).fetchall()
        ledger = [Applied(version=version, name=name, sha256=sha256) for version, name, sha256 in rows]
        migration = next_migration(files, ledger)
        if migration is None:
            return None
        progress.doing = f"applying {migration.name}"
        connection.execute(migration.sql)
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS:
            raise StartError(f"The migration {migration.name} ends its transaction itself: remove COMMIT or ROLLBACK.")
        connection.execute(_RECORD, {"version": migration.version, "name": migration.name, "sha256": migration.sha256})
    return migration.name


def _watch_client(connection: Connection) -> None:
    try:
        with connection.transaction():
            connection.execute(_WATCH_CLIENT)
    except psycopg.errors.InvalidParameterValue:
        # The savepoint took it back. Without it, an abandoned migration ends at its time-out.
        return


def _single(connection: Connection, query: bytes) -> object:
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _explain(exc: psycopg.Error, conninfo: str, bounds: _Bounds, doing: str) -> str:
    said = one_line(exc, conninfo)
    match exc.sqlstate:
        case "55P03":
            return (
                f"Migrating stopped while {doing}: a lock was not let go within {bounds.lock_seconds:g} s. "
                "See who holds it in pg_locks and pg_stat_activity, end that, and start again."
            )
        case "57014":
            return (
                f"Migrating stopped while {doing}: it took longer than {bounds.statement_seconds:g} s or was cancelled. "
                "Nothing of it was applied; start again when the database has less to do."
            )
        case "25006":
            return _READ_ONLY
        case "42501":
            return (
                f"The database role may not do what migrations need ({doing}: {said}): make it the owner of the database, "
                "or grant it CREATE on the schema."
            )
        case "42703" if doing == "reading the ledger":
            return (
                "The table schema_migrations in this database belongs to another program: "
                "give switchboard a database of its own."
            )
        case None:
            return (
                f"The connection to the database was lost or refused while {doing}: {said}. "
                "A migration is applied whole or not at all; start again."
            )
        case _:
            return f"The database refused while {doing}: {said} (SQLSTATE {exc.sqlstate}). Nothing of it was applied."

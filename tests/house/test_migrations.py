"""C60, C45: migrations are forward only, whole or not at all, and many processes may start at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from switchboard.database.migrations import Connection, migrate
from switchboard.errors import StartError

from .conftest import with_our_modules

MakeDatabase = Callable[[], str]

ONE = "create table one (x int);\ncreate index on one (x);\n"
TWO = "alter table one add column y int;\ninsert into one values (1, 2);\n"

PROGRAM = """
import os, sys
from pathlib import Path
from switchboard.database.migrations import migrate
from switchboard.errors import StartError
try:
    print(*migrate(os.environ["DSN"], directory=Path(sys.argv[1])))
except StartError as exc:
    sys.exit(str(exc))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path, {"0001_one.sql": ONE, "0002_two.sql": TWO})
    return tmp_path


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (directory / name).write_bytes(text.encode())


def in_a_process(conninfo: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        env=with_our_modules() | {"DSN": conninfo},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask(conninfo: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def wait_for(conninfo: str, condition: str) -> None:
    deadline = time.monotonic() + 10
    while not ask(conninfo, f"select 1 from pg_stat_activity where {condition}"):
        assert time.monotonic() < deadline, condition
        time.sleep(0.01)


def refusal(conninfo: str, directory: Path, **bounds: float) -> str:
    with pytest.raises(StartError) as caught:
        migrate(conninfo, directory=directory, **bounds)  # type: ignore[arg-type]  # floats alone are passed
    said = str(caught.value)
    assert "\n" not in said
    assert str(conninfo_to_dict(conninfo).get("password", "no password")) not in said
    return said


def test_applies_what_is_missing_in_order(empty_database: MakeDatabase, directory: Path) -> None:
    """What is there already is not done again; what comes later is added."""
    conninfo = empty_database()
    assert migrate(conninfo, directory=directory) == ["0001_one.sql", "0002_two.sql"]
    assert migrate(conninfo, directory=directory) == []
    write(directory, {"0003_three.sql": "create table three ()", "notes.txt": "not a migration"})
    assert migrate(conninfo, directory=directory) == ["0003_three.sql"]
    assert ask(conninfo, "select version, name, length(sha256) from schema_migrations order by 1") == [
        (1, "0001_one.sql", 64),
        (2, "0002_two.sql", 64),
        (3, "0003_three.sql", 64),
    ]


def test_c60_five_processes_at_once(empty_database: MakeDatabase, directory: Path) -> None:
    """C60: on an empty database one of five does the work, the others wait, and all of them come up."""
    for _ in range(3):
        conninfo = empty_database()
        processes = [in_a_process(conninfo, directory) for _ in range(5)]
        outcomes = [(*process.communicate(), process.returncode) for process in processes]
        assert [(errors, code) for _, errors, code in outcomes] == [("", 0)] * 5
        names = " ".join(names for names, _, _ in outcomes).split()
        assert sorted(names) == ["0001_one.sql", "0002_two.sql"]
        assert ask(conninfo, "select x, y from one") == [(1, 2)]


def test_c60_newer_database_is_refused(empty_database: MakeDatabase, directory: Path) -> None:
    """C60: an old switchboard does not touch the schema of a newer one."""
    conninfo = empty_database()
    migrate(conninfo, directory=directory)
    ask(conninfo, "insert into schema_migrations select v, 'x', repeat('0', 64) from generate_series(3, 7) v")
    said = refusal(conninfo, directory)
    assert said == "This database is at 7, this switchboard knows up to 2: start the newer switchboard."


def test_edited_and_renamed_files_are_refused(empty_database: MakeDatabase, directory: Path) -> None:
    """What was applied stays as it was written; only the line ends of a checkout may differ."""
    conninfo = empty_database()
    migrate(conninfo, directory=directory)
    (directory / "0001_one.sql").write_bytes(ONE.replace("\n", "\r\n").encode())
    assert migrate(conninfo, directory=directory) == []
    (directory / "0001_one.sql").write_text(ONE + "-- harmless\n")
    write(directory, {"0003_three.sql": "create table three ()"})
    assert "0001_one.sql was edited after it was applied" in refusal(conninfo, directory)
    assert ask(conninfo, "select to_regclass('three')") == [(None,)]
    (directory / "0001_one.sql").rename(directory / "0001_uno.sql")
    assert "Migration 1 was applied as 0001_one.sql, and its file is now called 0001_uno.sql" in refusal(conninfo, directory)


def test_gaps_are_refused(empty_database: MakeDatabase, directory: Path) -> None:
    """A missing file, a second one with the same number, a foreign name, a row that somebody deleted, no file at all."""
    conninfo = empty_database()
    write(directory, {"0004_four.sql": "select 1"})
    assert "Migration 0003 is missing" in refusal(conninfo, directory)
    (directory / "0004_four.sql").rename(directory / "0002_again.sql")
    assert "Migration 0002 is missing" not in refusal(conninfo, directory)
    assert "or there twice (next is 0002_two.sql)" in refusal(conninfo, directory)
    (directory / "0002_again.sql").rename(directory / "3_three.sql")
    assert "3_three.sql is not named like a migration" in refusal(conninfo, directory)
    (directory / "3_three.sql").unlink()
    assert ask(conninfo, "select to_regclass('schema_migrations')") == [(None,)]
    migrate(conninfo, directory=directory)
    ask(conninfo, "delete from schema_migrations where version = 1")
    assert "lacks migration 1 (0001_one.sql), but has 2" in refusal(conninfo, directory)
    assert "There are no migrations" in refusal(conninfo, directory / "nowhere")


def test_failing_migration_leaves_nothing_of_itself(empty_database: MakeDatabase, directory: Path) -> None:
    """A migration and its row in the ledger stand together or not at all; those before it stay."""
    conninfo = empty_database()
    write(directory, {"0003_three.sql": "create table three ();\nselect 1/0;\n"})
    said = refusal(conninfo, directory)
    assert said.startswith("The database refused while applying 0003_three.sql: division by zero (SQLSTATE 22012)")
    assert ask(conninfo, "select to_regclass('three'), (select max(version) from schema_migrations)") == [(None, 2)]
    write(directory, {"0003_three.sql": "create table three ();\ncommit;\n"})
    assert "0003_three.sql ends its transaction itself" in refusal(conninfo, directory)


def test_c60_read_only_server_and_poor_role(empty_database: MakeDatabase, directory: Path) -> None:
    """C60: a standby, and a role that may create nothing, are told as what they are."""
    conninfo = empty_database()
    said = refusal(make_conninfo(conninfo, options="-c default_transaction_read_only=on"), directory)
    assert said.startswith("The database takes no writes")
    ask(conninfo, "drop role if exists poor; create role poor login password 'poor-marker'")
    said = refusal(make_conninfo(conninfo, user="poor", password="poor-marker"), directory)
    ask(conninfo, "drop role poor")
    assert "permission denied for schema public" in said
    assert "grant it CREATE" in said
    assert ask(conninfo, "select to_regclass('schema_migrations')") == [(None,)]


def test_ledger_of_another_program_is_left_alone(empty_database: MakeDatabase, directory: Path) -> None:
    """`schema_migrations` is a common name: another program's database is not migrated."""
    conninfo = empty_database()
    ask(conninfo, "create table schema_migrations (version varchar primary key)")
    assert "belongs to another program" in refusal(conninfo, directory)
    assert ask(conninfo, "select to_regclass('one')") == [(None,)]


def test_serializable_default_changes_nothing(empty_database: MakeDatabase, directory: Path) -> None:
    """A role's own isolation level must not hide what another process applied while we waited for it."""
    conninfo = make_conninfo(empty_database(), options="-c default_transaction_isolation=serializable")
    processes = [in_a_process(conninfo, directory) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in processes] == [("", 0)] * 3


def test_c45_locked_ledger_is_waited_for_within_a_bound(empty_database: MakeDatabase, directory: Path) -> None:
    """C45: whoever holds the ledger, the start ends with one line; once it is let go, the next one goes through."""
    conninfo = empty_database()
    migrate(conninfo, directory=directory)
    write(directory, {"0003_three.sql": "create table three ()"})
    with psycopg.connect(conninfo) as holder:
        holder.execute("lock table schema_migrations")
        began = time.monotonic()
        said = refusal(conninfo, directory, lock_wait_seconds=0.3)
        assert time.monotonic() - began < 3
        assert said.startswith("Migrating stopped while reading the ledger: a lock was not let go within 0.3 s")
    with psycopg.connect(conninfo) as holder:
        holder.execute("select pg_advisory_xact_lock(1937203812)")
        assert "waiting for another switchboard that migrates" in refusal(conninfo, directory, lock_wait_seconds=0.3)
    assert migrate(conninfo, directory=directory) == ["0003_three.sql"]


def test_long_statement_is_bounded(empty_database: MakeDatabase, directory: Path) -> None:
    """A migration that never ends does not hold the start for ever."""
    conninfo = empty_database()
    write(directory, {"0003_three.sql": "create table three (); select pg_sleep(60)"})
    said = refusal(conninfo, directory, statement_seconds=0.3)
    assert said.startswith("Migrating stopped while applying 0003_three.sql: it took longer than 0.3 s")
    assert ask(conninfo, "select to_regclass('three')") == [(None,)]


def test_c45_abort_by_another_thread(empty_database: MakeDatabase, directory: Path) -> None:
    """C45: SIGTERM during a blocked migration shuts the socket down, and the call ends at once with nothing half done."""
    conninfo = empty_database()
    migrate(conninfo, directory=directory)
    write(directory, {"0003_three.sql": "create table three (); lock table one"})
    connections: list[Connection] = []
    errors: list[str] = []

    def work() -> None:
        try:
            migrate(conninfo, directory=directory, on_connect=connections.append)
        except StartError as exc:
            errors.append(str(exc))

    with psycopg.connect(conninfo) as holder:
        holder.execute("lock table one")
        thread = threading.Thread(target=work)
        thread.start()
        wait_for(conninfo, "wait_event_type = 'Lock' and application_name = 'switchboard-migrate'")
        began = time.monotonic()
        with socket.socket(fileno=os.dup(connections[0].fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
        thread.join()
        assert time.monotonic() - began < 5
    assert "was lost or refused while applying 0003_three.sql" in errors[0]
    assert ask(conninfo, "select to_regclass('three')") == [(None,)]
    assert migrate(conninfo, directory=directory) == ["0003_three.sql"]


def test_killed_in_the_middle_is_atomic(empty_database: MakeDatabase, directory: Path) -> None:
    """After a kill -9 in a long migration, the server drops it within a second or two, and the next start does it."""
    conninfo = empty_database()
    write(directory, {"0003_three.sql": "create table three ();\nselect pg_sleep(60);\n"})
    process = in_a_process(conninfo, directory)
    wait_for(conninfo, "wait_event = 'PgSleep'")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    write(directory, {"0003_three.sql": "create table three ();\n"})
    assert migrate(conninfo, directory=directory, lock_wait_seconds=10) == ["0003_three.sql"]

"""How a house opens, or says in one line why it does not: the first screen, the exit codes, and starts that are disturbed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from switchboard import VERSION
from switchboard.database.migrations import migrate
from switchboard.database.queries import MIGRATIONS
from tests.house import facts
from tests.house.endings import end, locked, wait_for_session
from tests.houses import RUN, Opener, run, toml, wait_open, wait_until

STARTING_SECONDS_MAX = 5.0
"""An interpreter with all that the house imports, on a busy machine."""


@pytest.fixture
def write_config(open_directory: Path) -> Any:
    """Writes a configuration for a house that is not open yet; returns the file and the state directory it names."""

    def write(database: str | None, **server: object) -> tuple[Path, Path]:
        directory = open_directory / f"start-{uuid4().hex[:8]}"
        directory.mkdir()
        tables: dict[str, dict[str, Any]] = {
            "server": {"port": 0, "state_dir": str(directory / "state"), "shutdown_grace_seconds": 3} | server
        }
        if database is not None:
            tables["database"] = {"url": database}
        config = directory / "switchboard.toml"
        config.write_text(toml(tables))
        return config, directory / "state"

    return write


@contextmanager
def starting(config: Path) -> Iterator[subprocess.Popen[str]]:
    """`run.py serve`, from the moment of its exec; gone at the end."""
    words = [sys.executable, "-W", "error", str(RUN), "serve", "--config", str(config)]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {}
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def require_one_line(text: str, *parts: str) -> None:
    """One line for the operator that names these, and no traceback."""
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    for part in parts:
        assert part in text


def applied(conninfo: str) -> list[str]:
    """The ledger of migrations; empty where there is none."""
    if not facts.has_tables(conninfo):
        return []
    return [name for (name,) in facts.ask(conninfo, "select name from schema_migrations order by version")]


ALL_MIGRATIONS = sorted(file.name for file in MIGRATIONS.glob("*.sql"))


def test_first_screen_and_exit_codes(postgres: str, write_config: Any) -> None:
    """The commands around a house: `version` and `check` are 0, a wrong configuration or usage is 2 and names the fault,
    `migrate` says what it applied and then that there is nothing left; the first screen names address, state directory
    and the next step, in full, before anything else is on standard output.
    """
    version = run("version")
    assert (version.returncode, version.stdout, version.stderr) == (0, f"switchboard {VERSION}\n", "")
    with facts.bare_database(postgres) as database:
        config, state = write_config(database)
        checked = run("check", "--config", str(config))
        assert (checked.returncode, checked.stderr) == (0, "")
        assert str(config) in checked.stdout
        assert not state.exists()  # a check starts nothing
        first, second = (run("migrate", "--config", str(config)) for _ in range(2))
        assert (first.returncode, first.stdout) == (0, "".join(f"applied {name}\n" for name in ALL_MIGRATIONS))
        assert (second.returncode, second.stdout) == (0, "The database is up to date.\n")
        wrong = config.with_name("wrong.toml")
        wrong.write_text(config.read_text() + "[queue]\nlease_ttll = 5\n")
        for words in (["check"], ["serve"], ["migrate"]):
            refused = run(*words, "--config", str(wrong))
            assert (refused.returncode, refused.stdout) == (2, "")
            require_one_line(refused.stderr, str(wrong), "lease_ttll", "lease_seconds")
        assert run("serve", "--no-such-option").returncode == 2
        with starting(config) as process:
            address = state / "address"
            wait_until(address.exists, seconds=30, what="the address")
            url = address.read_text().strip()
            process.send_signal(signal.SIGINT)
            said, logged = process.communicate(timeout=20)
        assert process.returncode == 0, logged
        for part in (f"switchboard {VERSION} is open", url, str(state), "endpoint vend NAME", "Ctrl-C"):
            assert part in said
        assert "Traceback" not in logged


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_c60_schema_from_the_future_is_refused(postgres: str, write_config: Any, command: str) -> None:
    """C60: a database that a newer switchboard has migrated is refused with exit code 1 and one line, and left as it is."""
    with facts.bare_database(postgres) as database:
        migrate(database, directory=MIGRATIONS)
        facts.ask(database, "insert into schema_migrations values (9999, '9999_future.sql', repeat('a', 64))")
        config, _ = write_config(database)
        refused = run(command, "--config", str(config))
        assert (refused.returncode, refused.stdout) == (1, "")
        require_one_line(refused.stderr, "9999")
        assert applied(database) == [*ALL_MIGRATIONS, "9999_future.sql"]


def test_c60_role_without_rights_is_refused(postgres: str, write_config: Any) -> None:
    """C60: a role that may not create tables: exit code 1, one line that says what to grant, and nothing made."""
    role, password = f"poor_{uuid4().hex[:8]}", uuid4().hex
    with facts.bare_database(postgres) as database:
        facts.ask(database, f"create role {role} login password '{password}'")
        try:
            config, _ = write_config(make_conninfo(database, user=role, password=password))
            refused = run("serve", "--config", str(config))
            assert (refused.returncode, refused.stdout) == (1, "")
            require_one_line(refused.stderr, "may not do", "CREATE")
            assert not facts.has_tables(database)
        finally:
            facts.ask(database, f"drop role {role}")


def test_c44_port_that_is_taken_ends_the_start_before_any_side_effect(postgres: str, write_config: Any) -> None:
    """C44: a second instance on the same port: exit code 1 and one line that names the port, before anything else: no state
    directory is made, an empty database stays without any table, and nobody ever connected to it.
    """
    with socket.socket() as taken, facts.bare_database(postgres) as database:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for url in (database, None):
            config, state = write_config(url, port=port)
            refused = run("serve", "--config", str(config))
            assert (refused.returncode, refused.stdout) == (1, "")
            require_one_line(refused.stderr, f"127.0.0.1:{port}", "taken")
            assert not state.exists()
        assert not facts.has_tables(database)


def test_c44_second_house_leaves_the_first_alone(open_house: Opener) -> None:
    """C44: the very same configuration started twice, embedded server and all: the second exits with 1, the first serves on
    and does not even lose its server.
    """
    first = open_house(embedded=True)
    agent = first.vend()
    port = int(first.url.rpartition(":")[2])
    config = first.directory / "second.toml"
    for server in (
        {"port": port, "state_dir": str(first.directory / "state")},
        {"port": 0, "state_dir": str(first.directory / "state")},
    ):
        config.write_text(toml({"server": server}))
        second = run("serve", "--config", str(config))
        assert (second.returncode, second.stdout) == (1, "")
        require_one_line(second.stderr)
    assert agent.get(agent.push())["state"] == "pending"
    assert (first.directory / "state" / "address").read_text().strip() == first.url
    end(first, within_seconds=3)


DELAYS_MS = [0, 50, 200, 500]


@pytest.mark.parametrize("starts", [8, pytest.param(40, marks=pytest.mark.long)])
def test_c45_sigterm_while_a_slow_database_is_migrated(postgres: str, write_config: Any, starts: int) -> None:
    """C45: SIGTERM at 0, 50, 200 and 500 ms after exec, with the database slow: the process is gone promptly, the migration
    stands whole or not at all, no session stays behind, and the next start is fine.

    A signal before the interpreter has come to run.py ends it as it ends any program, with nothing done.
    """
    with facts.bare_database(postgres) as database:
        config, _ = write_config(database)
        slow = "select pg_advisory_xact_lock(1937203812)"  # what every migration takes first
        for start in range(starts):
            with psycopg.connect(database, application_name=facts.NAME) as holder:
                holder.execute(slow.encode())
                with starting(config) as process:
                    time.sleep(DELAYS_MS[start % len(DELAYS_MS)] / 1000)
                    process.terminate()
                    _, logged = process.communicate(timeout=STARTING_SECONDS_MAX + 3)
                assert process.returncode in (0, -signal.SIGTERM), logged
                assert "Traceback" not in logged
            assert applied(database) in ([], ALL_MIGRATIONS)
        wait_until(lambda: facts.sessions(database) == 0, what="the end of every session")
        _opens_and_ends(config, database)


def test_c45_sigterm_behind_a_lock_on_the_ledger(postgres: str, write_config: Any) -> None:
    """C45: SIGTERM when the start is known to wait, behind another one that migrates and behind a LOCK on the ledger itself:
    code 0 at once, nothing of the migration stands, and the next start is fine.
    """
    with facts.bare_database(postgres) as database:
        config, _ = write_config(database)
        with psycopg.connect(database, application_name=facts.NAME) as holder:
            holder.execute("select pg_advisory_xact_lock(1937203812)")
            _ends_while_waiting(config, database)
            assert not facts.has_tables(database)
        migrate(database, directory=MIGRATIONS)
        with locked(database, "schema_migrations"):
            _ends_while_waiting(config, database)
        _opens_and_ends(config, database)


def _ends_while_waiting(config: Path, database: str) -> None:
    with starting(config) as process:
        wait_for_session(database, "wait_event_type = 'Lock'", seconds=30)
        began = time.monotonic()
        process.terminate()
        _, logged = process.communicate(timeout=10)
        assert process.returncode == 0, logged
        assert "Traceback" not in logged
        assert time.monotonic() - began < 6  # the lock itself is waited for five times as long
    wait_until(lambda: facts.sessions(database) == 0, what="the end of its session")


def _opens_and_ends(config: Path, database: str) -> None:
    address = config.parent / "state" / "address"
    address.unlink(missing_ok=True)
    with starting(config) as process:
        wait_until(address.exists, seconds=30, what="the next start")
        process.terminate()
        _, logged = process.communicate(timeout=20)
        assert process.returncode == 0, logged
    assert applied(database) == ALL_MIGRATIONS


def test_c60_five_houses_at_once_on_an_empty_database(open_house: Opener, postgres: str) -> None:
    """C60: five houses start at once on an empty database: one migrates, the others wait for it, all of them open, and a
    todo that one of them made is done by another.
    """
    with facts.bare_database(postgres) as database:
        token = f"sbo_{uuid4().hex}"
        settings: dict[str, dict[str, Any]] = {"server": {"operator_token": token}, "database": {"pool_size": 2}}
        houses = [open_house(database=database, settings=settings, wait=False) for _ in range(5)]
        try:
            for house in houses:
                wait_open(house)
            assert applied(database) == ALL_MIGRATIONS
            with houses[0].client(token) as http:
                vended = http.post("/operator/v1/endpoints", json={"name": "shared"}).json()
            agents = [house.client(vended["credential"]) for house in houses]
            pushed = agents[0].post("/v1/todos", json={"queue": "work"}).json()["todo"]
            (claimed,) = agents[4].post("/v1/claims", json={}).json()["todos"]
            assert claimed["id"] == pushed["id"]
            done = agents[2].post(f"/v1/todos/{pushed['id']}/complete", json={"lease_token": claimed["lease_token"]})
            assert done.status_code == 200
        finally:
            for house in houses:
                house.signal()
            codes = [house.process.wait(20) for house in houses]
        assert codes == [0] * 5


@pytest.mark.long
@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_database_that_never_answers_is_given_up_after_30_seconds(write_config: Any, command: str) -> None:
    """C60: nobody listens at database.url: tried for 30 s, then exit code 1 and one line; no traceback."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it, and nobody answers
        config, _ = write_config(f"postgresql://someone@127.0.0.1:{nobody.getsockname()[1]}/none")
        began = time.monotonic()
        refused = run(command, "--config", str(config), seconds=60)
        assert 25 < time.monotonic() - began < 40
        assert (refused.returncode, refused.stdout) == (1, "")
        require_one_line(refused.stderr, "did not answer for 30 s")


def test_database_that_does_not_answer_is_waited_for_and_sigterm_ends_the_wait(write_config: Any) -> None:
    """C45, C60: while the house tries a database that is not there, SIGTERM ends it with code 0, promptly and quietly."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes the connection, and says nothing: the worst kind of away
        silent.settimeout(30)
        config, _ = write_config(f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/none")
        with starting(config) as process:
            line, _ = silent.accept()  # it is trying
            with line:
                began = time.monotonic()
                process.terminate()
                said, logged = process.communicate(timeout=20)
        assert process.returncode == 0, logged
        assert said == ""
        assert "Traceback" not in logged
        assert time.monotonic() - began < 3 + 1  # the grace that is configured here, and a busy machine's second

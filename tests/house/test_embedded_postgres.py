"""The embedded PostgreSQL: it starts, lasts, comes back after every kind of end, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from switchboard.database import embedded
from switchboard.database.embedded import EmbeddedPostgres
from switchboard.errors import StartError
from switchboard.state_dir import prepare

from .conftest import House


@pytest.fixture
def state_dir(open_tmp: Path) -> Path:
    return prepare(open_tmp / "state")


@pytest.fixture
def start(state_dir: Path) -> Iterator[Callable[[], EmbeddedPostgres]]:
    """Starts the server of `state_dir`; none is left running."""
    started: list[EmbeddedPostgres] = []

    def start_one() -> EmbeddedPostgres:
        started.append(embedded.start(state_dir))
        return started[-1]

    yield start_one
    for server in started:
        server.stop(10)


def run(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def data_of(state_dir: Path) -> Path:
    (data,) = state_dir.glob("postgres-*/data")
    return data


def test_starts_stops_and_keeps_its_data(start: Callable[[], EmbeddedPostgres]) -> None:
    """A restart finds everything, and a stop is in order and complete."""
    server = start()
    run(server, "create table kept as select 1 as x")
    assert server.running()
    assert server.stop(10) is True
    assert not server.running()
    assert server.stop(10) is True
    again = start()
    assert run(again, "select x from kept") == [(1,)]


def test_is_private_and_durable(start: Callable[[], EmbeddedPostgres], monkeypatch: pytest.MonkeyPatch) -> None:
    """No port, no trust, no secret in the process list, nothing from the environment, and fsync stays on (R28)."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monkeypatch.setenv("PGOPTIONS", "-c fsync=off")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    server = start()
    names = ["listen_addresses", "fsync", "full_page_writes", "server_encoding", "jit", "password_encryption"]
    values = [run(server, f"select current_setting('{name}')")[0][0] for name in names]
    assert values == ["", "on", "on", "UTF8", "off", "scram-sha-256"]
    assert run(server, "select datcollate, datlocprovider, datlocale from pg_database where datname = 'switchboard'") == [
        ("C", "b", "C.UTF-8")
    ]

    parts = conninfo_to_dict(server.conninfo)
    password, socket_dir = str(parts["password"]), Path(str(parts["host"]))
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(make_conninfo(server.conninfo, password="wrong"))
    assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((server.data.parents[1] / "postgres-password").stat().st_mode) == 0o600
    assert password not in repr(server)
    process = Path(f"/proc/{server.pid}")
    assert password.encode() not in (process / "cmdline").read_bytes()
    environment = (process / "environ").read_bytes()
    assert b"LD_LIBRARY_PATH" not in environment
    assert b"PGOPTIONS" not in environment
    assert os.getsid(server.pid) == server.pid
    opened = [str(link.readlink()) for link in (process / "fd").iterdir()]
    assert not [name for name in opened if name.endswith("house.lock")]


def test_comes_back_after_its_own_kill_9(start: Callable[[], EmbeddedPostgres]) -> None:
    """A killed server recovers what was committed, even while a child of the dead one still holds its memory."""
    server = start()
    run(server, "create table kept as select 1 as x")
    log = server.data.parents[1] / "postgres.log"
    session = psycopg.connect(server.conninfo)
    # It stands still, so it does not notice that its parent is gone.
    os.kill(session.info.backend_pid, signal.SIGSTOP)
    os.kill(server.pid, signal.SIGKILL)

    def let_go_once_it_is_in_the_way() -> None:
        deadline = time.monotonic() + 20
        while "pre-existing shared memory block" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(session.info.backend_pid, signal.SIGCONT)

    letting_go = threading.Thread(target=let_go_once_it_is_in_the_way)
    letting_go.start()
    again = start()
    letting_go.join()
    session.close()
    assert "pre-existing shared memory block" in log.read_text()
    assert not server.running()
    assert again.pid != server.pid
    assert run(again, "select x from kept") == [(1,)]


def test_orphan_of_a_killed_house_is_adopted(
    state_dir: Path, start: Callable[[], EmbeddedPostgres], houses: Callable[..., House]
) -> None:
    """After a kill -9 of the house, the next one goes on with the same server, and can stop it."""
    house = houses(state_dir)
    pid = house.said()["pid"]
    house.kill()
    server = start()
    assert server.pid == pid
    assert run(server, "select 1") == [(1,)]
    assert server.running()
    assert server.stop(10) is True
    assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
    assert not server.running()


def test_orphan_that_does_not_answer_is_replaced(
    state_dir: Path,
    start: Callable[[], EmbeddedPostgres],
    houses: Callable[..., House],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hung server of an earlier house costs seconds, not the start."""
    monkeypatch.setattr(embedded, "ADOPT_SECONDS_MAX", 0.2)
    monkeypatch.setattr(embedded, "UNWANTED_STOP_SECONDS_MAX", 1.0)
    monkeypatch.setattr(embedded, "CONNECT_SECONDS_MAX", 1)
    house = houses(state_dir)
    pid = house.said()["pid"]
    house.kill()
    os.kill(pid, signal.SIGSTOP)
    server = start()
    assert server.pid != pid
    assert run(server, "select 1") == [(1,)]


@pytest.mark.parametrize("line", ["another's", "", "0\n", "rubbish\n1\n"])
def test_stale_pid_file_does_not_stop_a_start(state_dir: Path, start: Callable[[], EmbeddedPostgres], line: str) -> None:
    """After a reboot the number in postmaster.pid may be anybody's: it is not believed, and nobody else is touched."""
    server = start()
    run(server, "create table kept as select 1 as x")
    os.kill(server.pid, signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        for file in (data_of(state_dir) / "postmaster.pid", *state_dir.glob("postgres-*/socket/*.lock")):
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join([f"{stranger.pid}\n", *lines[1:]]) if line == "another's" else line)
        again = start()
        assert run(again, "select x from kept") == [(1,)]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_half_finished_initdb_is_done_again(
    state_dir: Path, start: Callable[[], EmbeddedPostgres], houses: Callable[..., House]
) -> None:
    """A first start that was killed at any point leaves nothing that the next one trips over."""
    for _ in range(2):
        house = houses(state_dir)
        while not list(state_dir.glob("postgres-*/data.new-*/base")):
            assert house.process.poll() is None, house.said()
            time.sleep(0.002)
        house.kill()
    server = start()
    assert run(server, "select current_database()::text") == [("switchboard",)]


def test_killed_between_initdb_and_create_database(start: Callable[[], EmbeddedPostgres]) -> None:
    """The database is made at whichever start finds it missing."""
    server = start()
    with psycopg.connect(make_conninfo(server.conninfo, dbname="postgres"), autocommit=True) as connection:
        connection.execute("drop database switchboard")
    server.stop(10)
    assert run(start(), "select current_database()::text") == [("switchboard",)]


@pytest.mark.parametrize("name", ["x" * 120, "a,b"])
def test_state_dir_that_no_socket_fits_into(open_tmp: Path, name: str) -> None:
    """The socket goes to a private directory below /tmp, the same one each time; one that is not ours is refused."""
    state_dir = prepare(open_tmp / name)
    server = embedded.start(state_dir)
    socket_dir = Path(str(conninfo_to_dict(server.conninfo)["host"]))
    try:
        assert run(server, "select 1") == [(1,)]
        assert not socket_dir.is_relative_to(state_dir)
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        assert embedded.start(state_dir).pid == server.pid
    finally:
        server.stop(10)
    try:
        socket_dir.chmod(0o755)
        with pytest.raises(StartError, match=f"{socket_dir} is not a private directory"):
            embedded.start(state_dir)
    finally:
        socket_dir.rmdir()


def test_stop_is_bounded(start: Callable[[], EmbeddedPostgres]) -> None:
    """A server that does not react is ended by force within the time, and recovers."""
    server = start()
    run(server, "create table kept as select 1 as x")
    os.kill(server.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert server.stop(1.0) is False
    assert time.monotonic() - began < 4
    assert not server.running()
    assert run(start(), "select x from kept") == [(1,)]


def test_stop_in_order_ends_open_transactions(start: Callable[[], EmbeddedPostgres]) -> None:
    """A session in the middle of something does not hold the stop up."""
    server = start()
    connection = psycopg.connect(server.conninfo)
    connection.execute("create table gone (x int)")
    assert server.stop(10) is True
    connection.close()
    server = start()
    assert run(server, "select to_regclass('gone')") == [(None,)]
    server.kill_now()
    began = time.monotonic()
    while server.running() and time.monotonic() - began < 5:
        time.sleep(0.01)
    assert not server.running()


def test_start_can_be_given_up(state_dir: Path) -> None:
    """A house that is told to stop while its server starts leaves neither processes nor half-made data."""
    with pytest.raises(StartError):
        embedded.start(state_dir, give_up=lambda: True)
    assert not list(state_dir.glob("postgres-*/data*"))
    embedded.start(state_dir).stop(10)
    with pytest.raises(StartError, match="told to stop"):
        embedded.start(state_dir, give_up=lambda: True)
    assert not (data_of(state_dir) / "postmaster.pid").exists()


def test_failure_is_one_line_with_the_end_of_the_log(state_dir: Path, start: Callable[[], EmbeddedPostgres]) -> None:
    """The operator reads why at once, and in which file more stands."""
    start().stop(10)
    (data_of(state_dir) / "postgresql.conf").write_text("no such line\n")
    with pytest.raises(StartError, match=r"did not start: it ended.*postgres\.log ends: .*syntax error") as caught:
        start()
    assert "\n" not in str(caught.value)


def test_state_of_another_version_or_without_its_password_is_refused(state_dir: Path) -> None:
    """Never an empty database beside a full one, and never a guess at a password."""
    (state_dir / "postgres-1" / "data").mkdir(parents=True)
    with pytest.raises(StartError, match=r"holds the data of another PostgreSQL in .*postgres-1,"):
        embedded.start(state_dir)
    (state_dir / "postgres-1" / "data").rmdir()
    embedded.start(state_dir).stop(10)
    (state_dir / "postgres-password").unlink()
    with pytest.raises(StartError, match="postgres-password is missing"):
        embedded.start(state_dir)

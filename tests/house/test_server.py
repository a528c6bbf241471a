"""C59, C60: a configured database that is silent, refuses us, comes up late, or is too old."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from switchboard.database import embedded
from switchboard.database.migrations import migrate
from switchboard.database.server import refuse_old_server, wait_until_up
from switchboard.errors import StartError
from switchboard.state_dir import prepare


@pytest.mark.parametrize(
    ("parts", "waits", "text"),
    [
        ({"dbname": "none"}, False, 'database "none" does not exist'),
        ({"host": "127.0.0.1", "port": "1", "hostaddr": None}, True, "Connection refused"),
        ({"host": "/nowhere"}, True, "No such file or directory"),
    ],
)
def test_c59_database_that_cannot_be_reached(
    postgres: str, tmp_path: Path, parts: dict[str, str | None], waits: bool, text: str
) -> None:
    """C59: silence is waited out within the bound, a refusal is told at once, and neither line tells the password."""
    (tmp_path / "0001_one.sql").touch()
    conninfo = make_conninfo(postgres, **parts)
    began = time.monotonic()
    with pytest.raises(StartError) as waiting:
        wait_until_up(conninfo, 0.6)
    assert (time.monotonic() - began >= 0.3) is waits
    with pytest.raises(StartError) as migrating:
        migrate(conninfo, directory=tmp_path)
    for said in (str(waiting.value), str(migrating.value)):
        assert text in said
        assert "\n" not in said
        assert str(conninfo_to_dict(postgres).get("password", "no password")) not in said


def test_waiting_can_be_given_up() -> None:
    """SIGTERM while the database is away ends the wait at the next try."""
    with pytest.raises(StartError, match="told to stop"):
        wait_until_up("host=/nowhere user=u", give_up=lambda: True)


def test_database_that_says_nothing_is_not_waited_for_longer(postgres: str) -> None:
    """A machine that takes the connection and stays silent costs the time that was given, and not five seconds more."""
    wait_until_up(postgres)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        began = time.monotonic()
        with pytest.raises(StartError, match=r"did not answer for 0\.5 s"):
            wait_until_up(f"host=127.0.0.1 port={listener.getsockname()[1]} user=u", 0.5)
        assert time.monotonic() - began < 4


def test_database_that_comes_up_late_is_used(open_tmp: Path) -> None:
    """House and database start at the same moment, as after a reboot: the house waits and goes on.

    C59: with a wrong password it does not wait, and says so in one line without it.
    """
    state_dir = prepare(open_tmp / "state")
    server = embedded.start(state_dir)
    server.stop(10)
    waiter = threading.Thread(target=wait_until_up, args=(server.conninfo, 20))
    waiter.start()
    os.sched_yield()
    server = embedded.start(state_dir)
    try:
        waiter.join(10)
        assert not waiter.is_alive()
        with pytest.raises(StartError, match=r'refused us: .* password authentication failed for user "switchboard"') as caught:
            wait_until_up(make_conninfo(server.conninfo, password="wrong-marker"))
        assert "\n" not in str(caught.value)
        assert "wrong-marker" not in str(caught.value)
    finally:
        server.stop(10)


def test_c60_old_server_is_refused() -> None:
    """C60: version found and version needed are told, by the number that the server itself counts with."""
    refuse_old_server(150_000)
    for version, shown in [(120_017, "12.17"), (140_022, "14.22")]:
        with pytest.raises(StartError, match=rf"PostgreSQL {shown}, and switchboard needs 15 or newer"):
            refuse_old_server(version)

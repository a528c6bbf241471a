"""The embedded PostgreSQL: a real server below the state directory, for a house that was given no database.

Everything here blocks; callers give it a thread. The house's lock must be held: one house, one server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import psycopg
from psycopg.conninfo import make_conninfo

from switchboard.database import embedded_postmaster as postmaster
from switchboard.database import queries
from switchboard.database.conninfo import one_line
from switchboard.database.embedded_binaries import Programs, carried_programs, reachable_programs
from switchboard.database.embedded_cluster import (
    DATABASE,
    PORT,
    SUPERUSER,
    Files,
    ensure_cluster,
    files_of,
    home_of,
    log_tail,
    open_log,
    server_words,
)
from switchboard.database.embedded_user import ServerUser, require_passage, server_user, spawn
from switchboard.errors import StartError

READY_SECONDS_MAX = 30.0
ADOPT_SECONDS_MAX = 5.0
UNWANTED_STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.02
CONNECT_SECONDS_MAX = 3

_FIND_DATABASE = queries.load("embedded/find_database")
_CREATE_DATABASE = queries.load("embedded/create_database")

# What the server says, in English whatever the machine speaks, when another one is on the same data, or has just died.
_ANOTHER_SERVER = 'lock file "postmaster.pid" already exists'
_STILL_IN_USE = "pre-existing shared memory block"


@attrs.frozen(kw_only=True, eq=False)
class EmbeddedPostgres:
    """A running server. `conninfo` holds its password and is never shown."""

    conninfo: str = attrs.field(repr=False)
    pid: int
    data: Path
    process: subprocess.Popen[bytes] | None = attrs.field(repr=False)  # None: adopted, started by an earlier house

    def running(self) -> bool:
        """Whether the server's main process lives. Says nothing about whether it answers."""
        if self.process is not None:
            return self.process.poll() is None
        return postmaster.serves(self.pid, self.data)

    def stop(self, timeout_seconds: float) -> bool:
        """Ends the server within `timeout_seconds`, in order if it can: True, else by force: False.

        Force costs nothing that was committed: the next start recovers it.
        """
        # A fast shutdown rolls back what is open and writes a checkpoint; an immediate one takes milliseconds.
        reserve = min(2.0, timeout_seconds / 4)
        started = time.monotonic()
        self._signal(signal.SIGINT)
        if self._gone_by(started + timeout_seconds - reserve):
            return True
        self._signal(signal.SIGQUIT)
        if not self._gone_by(started + timeout_seconds - reserve / 4):
            self._signal(signal.SIGKILL)
            self._gone_by(started + timeout_seconds)
        return False

    def kill_now(self) -> None:
        """Tells the server to drop everything, and does not wait. For the end of the grace."""
        self._signal(signal.SIGQUIT)

    def _signal(self, number: int) -> None:
        # Asked first, since the number of a process that is gone may be somebody else's by now.
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _gone_by(self, deadline: float) -> bool:
        while self.running():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))
        return True


def start(
    state_dir: Path, *, ready_within_seconds: float = READY_SECONDS_MAX, give_up: Callable[[], bool] = lambda: False
) -> EmbeddedPostgres:
    """Starts the server of a prepared state directory, or adopts the one that an earlier house left running.

    Returns when it answers and the database is there. `give_up` is asked many times a second; once it says yes, the
    start is undone. Raises StartError, one line, with the end of the server's log where that says why.
    """
    try:
        carried = carried_programs()
        user = server_user(home_of(state_dir, carried.major))
        files = files_of(state_dir, carried.major, user.uid)
        require_passage(state_dir, user)
        programs = reachable_programs(carried, state_dir, user)
        password = ensure_cluster(files, programs, user, give_up=give_up)
        # Empty ones are said, so that PGOPTIONS and PGHOSTADDR of the operator's shell do not speak for them.
        conninfo = make_conninfo(
            host=str(files.socket_dir),
            port=PORT,
            user=SUPERUSER,
            password=password,
            dbname=DATABASE,
            options="",
            hostaddr="",
        )
        adopted = _adopt(files, programs, user, conninfo)
        server = adopted or _start_new(files, programs, user, conninfo, time.monotonic() + ready_within_seconds, give_up)
    except OSError as exc:
        raise StartError(f"The embedded PostgreSQL could not start: {exc.strerror} ({exc.filename}).") from exc
    try:
        _create_database(conninfo)
    except StartError:
        server.stop(UNWANTED_STOP_SECONDS_MAX)
        raise
    return server


def _adopt(files: Files, programs: Programs, user: ServerUser, conninfo: str) -> EmbeddedPostgres | None:
    """The server that an earlier house left running on our data, if it answers; else it is gone afterwards."""
    found = postmaster.recorded(files.data)
    if found is None or not postmaster.serves(found.pid, files.data):
        postmaster.disown(files.data, files.socket_dir, user.owner)
        return None
    server = EmbeddedPostgres(conninfo=conninfo, pid=found.pid, data=files.data, process=None)
    # One of another installation is replaced, so that an upgrade takes effect.
    if postmaster.command_of(found.pid)[:1] == [str(programs.directory / "postgres")] and found.status != "stopping":
        deadline = time.monotonic() + ADOPT_SECONDS_MAX
        while server.running() and time.monotonic() < deadline:
            if _refusal(conninfo) is None:
                return server
            time.sleep(POLL_SECONDS)
    server.stop(UNWANTED_STOP_SECONDS_MAX)
    postmaster.disown(files.data, files.socket_dir, user.owner)
    return None


def _start_new(
    files: Files,
    programs: Programs,
    user: ServerUser,
    conninfo: str,
    deadline: float,
    give_up: Callable[[], bool],
) -> EmbeddedPostgres:
    while True:
        log = open_log(files)
        try:
            log_start = os.fstat(log).st_size
            process = spawn(server_words(files, programs), user, output=log)
        finally:
            os.close(log)
        server = EmbeddedPostgres(conninfo=conninfo, pid=process.pid, data=files.data, process=process)
        refusal = _await_ready(server, deadline, give_up)
        if refusal is None:
            return server
        ended_by_itself = not server.running()
        server.stop(2.0)
        tail = log_tail(files, log_start)
        may_try_again = ended_by_itself and time.monotonic() < deadline and not give_up()
        if may_try_again and _ANOTHER_SERVER in tail:
            # A house was killed so soon that its server had not written itself down when we looked.
            adopted = _adopt(files, programs, user, conninfo)
            if adopted is not None:
                return adopted
            continue
        if may_try_again and _STILL_IN_USE in tail:
            # The main process was killed, and some of its children have not noticed yet.
            time.sleep(POLL_SECONDS * 10)
            continue
        raise StartError(f"The embedded PostgreSQL did not start: {refusal}. Its log {files.log} ends: {tail}")


def _await_ready(server: EmbeddedPostgres, deadline: float, give_up: Callable[[], bool]) -> str | None:
    """None once the server answers, else why it never will."""
    while True:
        if not server.running():
            return "it ended"
        refusal = _refusal(server.conninfo)
        if refusal is None or "password authentication failed" in refusal:
            return refusal
        if give_up():
            return "the house was told to stop"
        if time.monotonic() > deadline:
            return f"it was not ready in time ({refusal})"
        time.sleep(POLL_SECONDS)


def _refusal(conninfo: str) -> str | None:
    """None where the server lets us in, else what it said."""
    try:
        psycopg.connect(_to_maintenance(conninfo)).close()
    except psycopg.Error as exc:
        return one_line(exc, conninfo)
    return None


def _create_database(conninfo: str) -> None:
    # Asked for at each start: an earlier one may have been killed between making the data and making the database.
    try:
        with psycopg.connect(_to_maintenance(conninfo), autocommit=True) as connection:
            if not connection.execute(_FIND_DATABASE).fetchone():
                connection.execute(_CREATE_DATABASE)
    except psycopg.Error as exc:
        raise StartError(f"The embedded PostgreSQL could not make its database: {one_line(exc, conninfo)}") from exc


def _to_maintenance(conninfo: str) -> str:
    return make_conninfo(conninfo, dbname="postgres", connect_timeout=CONNECT_SECONDS_MAX, application_name="switchboard")

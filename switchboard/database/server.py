"""Is the configured PostgreSQL there, and new enough? Asked once, at the start."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from switchboard.database.conninfo import one_line
from switchboard.errors import StartError

SERVER_VERSION_MIN = 150_000  # as the server counts: 15.0, the oldest that the schema is tested against
UP_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 5
POLL_SECONDS = 0.25

# These are answers and not silence: asking again for half a minute would only delay them. The texts are English unless
# the server was told otherwise; then the answer comes all the same, at the end of the time.
_FINAL = ("password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")


def wait_until_up(conninfo: str, seconds: float = UP_SECONDS_MAX, *, give_up: Callable[[], bool] = lambda: False) -> None:
    """Returns once the database lets us in; tries for about `seconds`, each attempt for at most 5 s a host.

    Raises StartError, one line without secrets, when the time is up, `give_up` says so, or it refused us for good.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            _look(conninfo, deadline - time.monotonic())
        except psycopg.OperationalError as exc:
            said = one_line(exc, conninfo)
            if any(text in said for text in _FINAL):
                raise StartError(f"The database refused us: {said}. Mend database.url or the server's settings.") from exc
            if give_up():
                raise StartError("The house was told to stop while it waited for the database.") from exc
            if time.monotonic() + POLL_SECONDS > deadline:
                raise StartError(
                    f"The database did not answer for {seconds:g} s: {said}. Start it, or mend database.url."
                ) from exc
            time.sleep(POLL_SECONDS)
        except psycopg.Error as exc:
            raise StartError(f"The database cannot be used: {one_line(exc, conninfo)}. Mend database.url.") from exc
        else:
            return


def refuse_old_server(server_version: int) -> None:
    """Raises StartError for a PostgreSQL older than 15. `server_version` is the server's own number: 150004 is 15.4."""
    if server_version < SERVER_VERSION_MIN:
        major, minor = divmod(server_version, 10_000)
        raise StartError(
            f"This database is PostgreSQL {major}.{minor}, and switchboard needs {SERVER_VERSION_MIN // 10_000} or newer: "
            "upgrade it, name another with database.url, or leave the URL out for the embedded one."
        )


def refuse_other_encoding(encoding: str | None) -> None:
    """Raises StartError for a database that cannot hold every text: agents write in all scripts."""
    if encoding not in ("UTF8", None):
        raise StartError(
            f"This database is encoded in {encoding}, and switchboard needs UTF8: "
            "create another one (create database … encoding 'UTF8' template template0), and name it with database.url."
        )


def _look(conninfo: str, seconds: float) -> None:
    psycopg.connect(
        conninfo,
        autocommit=True,
        application_name="switchboard-start",
        # libpq knows whole seconds, and none below 2.
        connect_timeout=min(CONNECT_SECONDS_MAX, max(2, round(seconds))),
    ).close()

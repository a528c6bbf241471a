"""psycopg's errors in the words of this house: one visible map, used at the border and nowhere else."""

from __future__ import annotations

from typing import Final

import psycopg

from switchboard.errors import BlamesOne, QueueError, RerunWhole, SwitchboardError, Unavailable

# data exception, integrity violation, program limit exceeded: one command of the batch is to blame
_BLAMES_ONE_CLASSES: Final = ("22", "23", "54")
_RERUN: Final = ("40001", "40P01")
_READ_ONLY: Final = "25006"
_NOT_ITS_DOING: Final = ("55P03", "57014")  # a lock or a statement took too long
_DETAILS: Final = {
    _READ_ONLY: "The database is read-only at the moment.",
    "55P03": "A row or table that this needs is locked by somebody else.",
    "57014": "The database was too slow for this request.",
    "53100": "The database's disk is full.",
    "53300": "The database has no connection to spare.",
}


class Blamed(BlamesOne):
    """One command is to blame; `sqlstate` says for what (None: text that cannot be encoded)."""

    def __init__(self, message: str, sqlstate: str | None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def translate(exc: Exception) -> Exception:
    """What this house calls `exc`. What is not a database's doing comes back as it is."""
    if isinstance(exc, QueueError | SwitchboardError):
        return exc
    if isinstance(exc, UnicodeEncodeError):
        return Blamed("a text that UTF-8 cannot hold", None)
    if not isinstance(exc, psycopg.Error):
        return exc
    sqlstate = exc.sqlstate
    if sqlstate in _RERUN:
        return RerunWhole(str(sqlstate))
    if sqlstate is not None and sqlstate[:2] in _BLAMES_ONE_CLASSES:
        return Blamed(first_line(exc), sqlstate)
    if sqlstate is None and isinstance(exc, psycopg.DataError):
        return Blamed(first_line(exc), None)
    return Unavailable(detail=_DETAILS.get(sqlstate or "", "The database does not answer. Try again."))


def unusable_afterwards(exc: Exception) -> bool:
    """Whether the connection must go: it is read-only after a failover, or too broken to roll back."""
    return isinstance(exc, psycopg.Error) and (exc.sqlstate is None or exc.sqlstate == _READ_ONLY)


def says_away(exc: psycopg.Error) -> bool:
    """Whether this means that the database cannot serve anybody, rather than that one statement was refused."""
    sqlstate = exc.sqlstate
    return sqlstate is None or sqlstate == _READ_ONLY or sqlstate[:2] in ("08", "53", "28") or sqlstate[:3] == "57P"


def blames_what_it_did(exc: psycopg.Error) -> bool:
    """Whether another row would fare better: not where the database is away, too slow, locked or asks for a rerun.

    Wider than `Blamed`: a row that is corrupt, or that somebody's trigger refuses, says so in any class.
    """
    return not says_away(exc) and exc.sqlstate not in (*_RERUN, *_NOT_ITS_DOING)


def first_line(exc: Exception) -> str:
    """The first line of a database's error: what happened, without the statement or its values."""
    return (str(exc).splitlines() or [type(exc).__name__])[0][:200]

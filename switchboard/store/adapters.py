"""Adapters in the database: what they are told, how they are, and where a lost consumer group starts again (R3, R18, R21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from switchboard.adapter import AdapterRow, Facts, Report, Target
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import NotFound
from switchboard.store.rows import fetch, fetch_one

SILENT_SECONDS_MAX: Final = 15
"""An adapter that no process has reported on for this long is in nobody's configuration: it is not shown, nor switched."""

_REGISTER: Final = load("adapters/register")
_REPORT: Final = load("adapters/report")
_FLAGS: Final = load("adapters/flags")
_TARGETS: Final = load("adapters/targets")
_SWITCH: Final = load("adapters/switch")
_LIST: Final = load("adapters/list")
_FORGOTTEN: Final = load("adapters/forgotten")


def register(session: Session, facts: Sequence[Facts]) -> None:
    """Makes the rows of this process's adapters; what an operator has set stays."""
    session.execute(
        _REGISTER,
        {
            "names": [fact.name for fact in facts],
            "transports": [fact.transport for fact in facts],
            "endpoints": [",".join(fact.endpoints) for fact in facts],
            "queues": [fact.queue for fact in facts],
            "enabled": [fact.enabled for fact in facts],
        },
    )


def report_and_read(
    session: Session, reports: Sequence[Report], names: Sequence[str], endpoints: Sequence[str]
) -> tuple[Mapping[str, bool], Mapping[str, Target]]:
    """Adds `reports` up, then reads who may consume, and what the named endpoints are. Names that are not there are missing."""
    if reports:
        session.execute(
            _REPORT,
            {
                "names": [report.name for report in reports],
                "states": [report.state for report in reports],
                "polled": [report.polled for report in reports],
                "heard": [report.heard for report in reports],
                "last_errors": [report.last_error for report in reports],
                "failures": [report.consecutive_failures for report in reports],
                "stored": [report.stored for report in reports],
                "duplicates": [report.duplicates for report in reports],
                "quarantined": [report.quarantined for report in reports],
                "lost": [report.lost_at_source for report in reports],
                "lags": [report.lag for report in reports],
            },
        )
    flags = {row["name"]: row["enabled"] for row in fetch(session, _FLAGS, {"names": list(names)})}
    targets = {
        row["name"]: Target(
            id=row["id"], queues=None if row["queues"] is None else tuple(row["queues"]), revoked=row["revoked_at"] is not None
        )
        for row in fetch(session, _TARGETS, {"names": list(endpoints)})
    }
    return flags, targets


def switch(session: Session, name: str, names: Sequence[str], *, enabled: bool) -> None:
    """Enables or disables one of `names`, or one that another process reports on. Raises `NotFound`."""
    values = {"name": name, "names": list(names), "enabled": enabled, "seconds": SILENT_SECONDS_MAX}
    if fetch_one(session, _SWITCH, values) is None:
        raise NotFound(detail=f"There is no adapter named {name} in the configuration of any process that runs.")


def list_adapters(session: Session, names: Sequence[str]) -> list[AdapterRow]:
    """The adapters of these names, and those that another process reports on, by name."""
    return [AdapterRow(**row) for row in fetch(session, _LIST, {"names": list(names), "seconds": SILENT_SECONDS_MAX})]


def highest_forgotten(session: Session, stream: str) -> str:
    """The entry id at which a lost consumer group of `stream` is created again; `0` where nothing was ever pruned (R3)."""
    row = fetch_one(session, _FORGOTTEN, {"stream": stream})
    return "0" if row is None else str(row["entry_id"])

"""Slots: each process holds the lowest free number while it beats, all of it by the database's clock (R31)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import RerunWhole
from switchboard.slot import Slots
from switchboard.store.rows import fetch, fetch_one

SLOT_EXPIRY_SECONDS: Final = 10
"""A holder that has not beaten for this long has lost its slot to whoever looks for one."""

_BEAT: Final = load("slots/beat")
_LOCK: Final = load("slots/lock")
_TAKE: Final = load("slots/take")
_ALL: Final = load("slots/all")


def beat(session: Session, holder: UUID) -> Slots:
    """Keeps `holder`'s slot, or takes one: its own again if nobody took it meanwhile, else the lowest free or expired."""
    row = fetch_one(session, _BEAT, {"holder": holder})
    if row is None:
        session.execute(_LOCK)
        row = fetch_one(session, _TAKE, {"holder": holder, "expiry_seconds": SLOT_EXPIRY_SECONDS})
    if row is None:
        raise RerunWhole("another process took the slot")
    known = fetch(session, _ALL, {"expiry_seconds": SLOT_EXPIRY_SECONDS})
    live = frozenset(slot["slot"] for slot in known if slot["live"])
    return Slots(mine=row["slot"], live=live, gone=frozenset(slot["slot"] for slot in known) - live)

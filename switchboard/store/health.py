"""What the database says of itself when it is asked how it is."""

from __future__ import annotations

from typing import Final

import attrs

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.store.rows import fetch_one

_LOOK: Final = load("health/look")


@attrs.frozen(kw_only=True)
class Look:
    """The server's version, and whether it takes writes."""

    server: str
    read_only: bool


def look(session: Session) -> Look:
    """Asks. Whatever is wrong with the database shows here as it would to any caller."""
    row = fetch_one(session, _LOOK, {})
    return Look(server="unknown", read_only=False) if row is None else Look(**row)

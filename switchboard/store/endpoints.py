"""Endpoints: vend, rotate, revoke, list, and the look-up of a credential."""

from __future__ import annotations

from typing import Final

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.endpoint import Endpoint
from switchboard.errors import Conflict, NotFound
from switchboard.store.rows import fetch, fetch_one

_VEND: Final = load("endpoints/vend")
_BY_CREDENTIAL: Final = load("endpoints/by_credential")
_BY_NAME: Final = load("endpoints/by_name")
_LIST: Final = load("endpoints/list")
_ROTATE: Final = load("endpoints/rotate")
_REVOKE: Final = load("endpoints/revoke")


def vend(session: Session, name: str, credential_sha256: bytes, queues: tuple[str, ...] | None) -> Endpoint:
    """Makes an endpoint. Raises `Conflict` where a live one has the name."""
    values = {"name": name, "credential_sha256": credential_sha256, "queues": None if queues is None else list(queues)}
    row = fetch_one(session, _VEND, values)
    if row is None:
        raise Conflict(detail=f"An endpoint named {name} exists already: rotate it for a new credential, or revoke it first.")
    return Endpoint(**row)


def by_credential(session: Session, credential_sha256: bytes) -> Endpoint | None:
    """The live endpoint that this credential opens."""
    row = fetch_one(session, _BY_CREDENTIAL, {"credential_sha256": credential_sha256})
    return None if row is None else Endpoint(**row)


def by_name(session: Session, name: str) -> Endpoint:
    """The live endpoint of this name. Raises `NotFound`."""
    return _known(fetch_one(session, _BY_NAME, {"name": name}), name)


def list_endpoints(session: Session) -> list[Endpoint]:
    """Every endpoint, the revoked ones too, oldest first."""
    return [Endpoint(**row) for row in fetch(session, _LIST, {})]


def rotate(session: Session, name: str, credential_sha256: bytes) -> Endpoint:
    """Gives a live endpoint another credential. Raises `NotFound`."""
    return _known(fetch_one(session, _ROTATE, {"name": name, "credential_sha256": credential_sha256}), name)


def revoke(session: Session, name: str) -> Endpoint:
    """Ends an endpoint; its todos are swept afterwards (R17). Raises `NotFound`."""
    return _known(fetch_one(session, _REVOKE, {"name": name}), name)


def _known(row: dict[str, object] | None, name: str) -> Endpoint:
    if row is None:
        raise NotFound(detail=f"There is no live endpoint named {name}.")
    return Endpoint(**row)  # type: ignore[arg-type]  # a row of the columns that Endpoint has, by name

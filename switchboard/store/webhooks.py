"""Webhooks: create, look up by address, rotate, delete, and route to endpoints. The operator's, but for the look-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.endpoint import Endpoint
from switchboard.errors import Conflict, Invalid, NotFound
from switchboard.push.schemes import Scheme, Settings
from switchboard.store.rows import fetch, fetch_one
from switchboard.webhook import SECRETS_MAX, Receiver, Webhook

_CREATE: Final = load("webhooks/create")
_LIST: Final = load("webhooks/list")
_BY_TOKEN: Final = load("webhooks/by_token")
_LOCK: Final = load("webhooks/lock")
_ROTATE: Final = load("webhooks/rotate")
_DELETE: Final = load("webhooks/delete")
_ROUTE: Final = load("webhooks/route")
_UNROUTE: Final = load("webhooks/unroute")
_NAMED: Final = load("webhooks/named")


def create(
    session: Session,
    *,
    name: str,
    token_sha256: bytes,
    scheme: Scheme,
    settings: Settings,
    queue: str,
    sealed_secrets: Sequence[bytes],
    endpoints: Sequence[str],
) -> Webhook:
    """Makes a webhook with its routes. Raises `Conflict` where there is one of this name, `Invalid` for an unknown endpoint."""
    row = fetch_one(
        session,
        _CREATE,
        {
            "name": name,
            "token_sha256": token_sha256,
            "scheme": scheme,
            "queue": queue,
            "secrets": list(sealed_secrets),
            "header": settings.header,
            "algorithm": settings.algorithm,
            "encoding": settings.encoding,
        },
    )
    if row is None:
        raise Conflict(detail=f"A webhook named {name} exists already: rotate it, or delete it first.")
    _add_routes(session, row["id"], queue, endpoints, field="endpoints")
    return get(session, name)


def list_webhooks(session: Session) -> list[Webhook]:
    """Every webhook, by name."""
    return [_webhook(row) for row in fetch(session, _LIST, {"name": None})]


def get(session: Session, name: str) -> Webhook:
    """One webhook. Raises `NotFound`."""
    row = fetch_one(session, _LIST, {"name": name})
    if row is None:
        raise _unknown(name)
    return _webhook(row)


def by_token(session: Session, token_sha256: bytes) -> Receiver | None:
    """The webhook at the address with this token, and the live endpoints that it is routed to."""
    row = fetch_one(session, _BY_TOKEN, {"token_sha256": token_sha256})
    if row is None:
        return None
    return Receiver(
        name=row["name"],
        scheme=row["scheme"],
        queue=row["queue"],
        sealed_secrets=tuple(map(bytes, row["secrets"])),
        settings=_settings(row),
        endpoint_ids=tuple(row["endpoint_ids"]),
        endpoints=tuple(row["endpoints"]),
    )


def rotate(session: Session, name: str, *, sealed_secrets: Sequence[bytes], keep: int, token_sha256: bytes | None) -> Webhook:
    """Puts new secrets before those that are good, of which the newest `keep` stay; or moves it to another address.

    Raises `NotFound`; `Invalid` where there would be more than `SECRETS_MAX`.
    """
    row = _locked(session, name)
    if token_sha256 is None:
        chosen = [*sealed_secrets, *row["secrets"][:keep]]
        if len(chosen) > SECRETS_MAX:
            raise Invalid(detail=f"A webhook has at most {SECRETS_MAX} secrets.", field="secrets")
    else:
        chosen = row["secrets"]
    session.execute(_ROTATE, {"id": row["id"], "secrets": chosen, "token_sha256": token_sha256})
    return get(session, name)


def delete(session: Session, name: str) -> None:
    """Ends a webhook. Raises `NotFound`."""
    if fetch_one(session, _DELETE, {"name": name}) is None:
        raise _unknown(name)


def route(session: Session, name: str, endpoint: str) -> Webhook:
    """Routes it to one more endpoint. Raises `NotFound`, `Invalid` for an unknown endpoint."""
    row = _locked(session, name)
    _add_routes(session, row["id"], row["queue"], [endpoint], field="endpoint")
    return get(session, name)


def unroute(session: Session, name: str, endpoint: str) -> Webhook:
    """Takes one endpoint off its routes. Raises `NotFound`."""
    row = _locked(session, name)
    if not fetch(session, _UNROUTE, {"webhook_id": row["id"], "endpoint": endpoint}):
        raise NotFound(detail=f"The webhook {name} is not routed to an endpoint named {endpoint}.")
    return get(session, name)


def _add_routes(session: Session, webhook_id: object, queue: str, names: Sequence[str], *, field: str) -> None:
    wanted = list(dict.fromkeys(names))
    live = {row["name"]: Endpoint(**row) for row in fetch(session, _NAMED, {"names": wanted})}
    for name in wanted:
        if name not in live:
            raise Invalid(detail=f"There is no live endpoint named {name}.", field=field)
        if not live[name].may_use(queue):
            raise Invalid(detail=f"Endpoint {name} may not use the queue {queue!r}.", field=field)
    session.execute(_ROUTE, {"webhook_id": webhook_id, "endpoint_ids": [live[name].id for name in wanted]})


def _locked(session: Session, name: str) -> dict[str, Any]:
    row = fetch_one(session, _LOCK, {"name": name})
    if row is None:
        raise _unknown(name)
    return row


def _unknown(name: str) -> NotFound:
    return NotFound(detail=f"There is no webhook named {name}.")


def _webhook(row: Mapping[str, Any]) -> Webhook:
    return Webhook(
        id=row["id"],
        name=row["name"],
        scheme=row["scheme"],
        queue=row["queue"],
        sealed_secrets=tuple(map(bytes, row["secrets"])),
        settings=_settings(row),
        endpoints=tuple(row["endpoints"]),
        revoked_endpoints=tuple(row["revoked_endpoints"]),
        created_at=row["created_at"],
    )


def _settings(row: Mapping[str, Any]) -> Settings:
    return Settings(header=row["header"], algorithm=row["algorithm"], encoding=row["encoding"])

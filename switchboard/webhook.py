"""A webhook: an address that strangers push to, how they prove themselves, and whose todos their deliveries become. No I/O."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from switchboard.push.schemes import Scheme, Settings

SECRETS_MAX: Final = 10
ENDPOINTS_MAX: Final = 100
PATH_PREFIX: Final = "/hooks/"

_TOKEN_BYTES: Final = 32
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@attrs.frozen(kw_only=True)
class Webhook:
    """One webhook as the operator sees it. `sealed_secrets` are newest first; all of them are good."""

    id: UUID
    name: str
    scheme: Scheme
    queue: str
    sealed_secrets: tuple[bytes, ...] = attrs.field(repr=False)
    settings: Settings
    endpoints: tuple[str, ...]
    revoked_endpoints: tuple[str, ...]
    created_at: datetime


@attrs.frozen(kw_only=True)
class Receiver:
    """The same as a delivery meets it: with the live endpoints that it goes to, by id and by name."""

    name: str
    scheme: Scheme
    queue: str
    sealed_secrets: tuple[bytes, ...] = attrs.field(repr=False)
    settings: Settings
    endpoint_ids: tuple[UUID, ...]
    endpoints: tuple[str, ...]


def new_token() -> str:
    """The secret part of a new address."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def digest_of_token(token: str) -> bytes | None:
    """What an address is known by; None for what no webhook's address can be."""
    return hashlib.sha256(token.encode()).digest() if _TOKEN.fullmatch(token) else None

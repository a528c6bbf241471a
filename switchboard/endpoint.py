"""An endpoint: a tenant, the credential that opens it and the queues it may use. No I/O."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

CREDENTIAL_PREFIX: Final = "sbk_"
CREDENTIAL_CHARS_MAX: Final = 512
"""As long as a configured operator token may be; what is longer is not even hashed."""


def _scope(queues: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if queues is None else tuple(queues)


@attrs.frozen(kw_only=True)
class Endpoint:
    """One tenant. `queues` None means every queue; else work in another queue is refused, and invisible."""

    id: UUID
    name: str
    queues: tuple[str, ...] | None = attrs.field(converter=_scope, default=None)
    created_at: datetime
    revoked_at: datetime | None = None

    def may_use(self, queue: str) -> bool:
        """Whether `queue` lies in this endpoint's scope."""
        return self.queues is None or queue in self.queues


def new_credential() -> str:
    """A fresh credential of 256 random bits. It is shown once; only its digest is stored (R28)."""
    return CREDENTIAL_PREFIX + secrets.token_urlsafe(32)


def digest(credential: str) -> bytes:
    """What is stored and looked up instead of a credential. It is random, so one SHA-256 is enough."""
    return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()

"""Who is calling: an endpoint's credential, or the operator's token. A credential of one kind opens nothing of the other."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from switchboard.brief_memory import BriefMemory
from switchboard.endpoint import CREDENTIAL_CHARS_MAX, CREDENTIAL_PREFIX, Endpoint, digest
from switchboard.errors import Unauthorized

REMEMBERED_SECONDS: Final = 1.0
"""A revoke in another process is heard of within this time (R17); one in this process at once."""
REMEMBERED_MAX: Final = 10_000

_SCHEME: Final = "bearer "


class Access:
    """Tells callers by their `Authorization` header. Secrets are compared as digests, and never kept or logged (R28)."""

    def __init__(self, *, find: Callable[[bytes], Awaitable[Endpoint | None]], operator_token: str) -> None:
        self._find = find
        self._operator_sha256 = digest(operator_token)
        self._remembered: BriefMemory[bytes, Endpoint | None] = BriefMemory(
            seconds=REMEMBERED_SECONDS, entries_max=REMEMBERED_MAX
        )

    async def endpoint(self, authorization: str | None) -> tuple[Endpoint, bytes]:
        """The endpoint whose credential this is, and the credential's digest.

        Raises `Unauthorized`, or `Unavailable` when nobody can tell.
        """
        credential = _bearer(authorization)
        if not credential.startswith(CREDENTIAL_PREFIX):
            raise Unauthorized(detail="This needs an endpoint's credential: Authorization: Bearer sbk_…")
        sha256 = digest(credential)
        endpoint = await self._remembered.get(sha256, lambda: self._find(sha256))
        if endpoint is None:
            raise Unauthorized(detail="This credential is unknown, or its endpoint was revoked.")
        return endpoint, sha256

    def operator(self, authorization: str | None) -> None:
        """Raises `Unauthorized` unless this is the operator's token."""
        if not hmac.compare_digest(digest(_bearer(authorization)), self._operator_sha256):
            raise Unauthorized(detail="This needs the operator's token: Authorization: Bearer sbo_…")

    def forget(self) -> None:
        """Drops what is remembered, after a revoke or a rotation has committed."""
        self._remembered.forget()


def _bearer(authorization: str | None) -> str:
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise Unauthorized(detail="There is no credential: send Authorization: Bearer …")
    credential = authorization[len(_SCHEME) :].strip()
    if not credential or len(credential) > CREDENTIAL_CHARS_MAX:
        raise Unauthorized(detail="This credential is unknown, or its endpoint was revoked.")
    return credential

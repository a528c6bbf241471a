"""Secrets that must be read again, sealed: whoever has the database alone cannot read them (R28)."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode

from switchboard.errors import SwitchboardError


class SealBroken(SwitchboardError):
    """This was sealed with another key, or damaged."""


class Sealer:
    """Seals and opens with one key: any text that is long enough, the same in every process of a database."""

    def __init__(self, key: str) -> None:
        self._key = urlsafe_b64encode(hashlib.sha256(key.encode()).digest())

    def seal(self, secret: str) -> bytes:
        """The secret, encrypted and authenticated; each time in other bytes."""
        from cryptography.fernet import Fernet  # a tenth of a second that a house without webhooks does without

        return Fernet(self._key).encrypt(secret.encode())

    def open(self, sealed: bytes) -> str:
        """The secret again. Raises `SealBroken`."""
        from cryptography.fernet import Fernet, InvalidToken

        try:
            return Fernet(self._key).decrypt(bytes(sealed)).decode()
        except InvalidToken:
            raise SealBroken("It was sealed with another key.") from None

"""R28: webhook secrets in the database are of no use without the key, which is not in it."""

from __future__ import annotations

import pytest

from switchboard.sealing import SealBroken, Sealer

KEY = "k" * 43


def test_only_the_key_opens_it() -> None:
    """Each time in other bytes, in none of which the secret stands; another key, or a changed byte, opens nothing."""
    sealer, secret = Sealer(KEY), "wh-\N{SNOWMAN}-secret"
    sealed = [sealer.seal(secret) for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert all(secret.encode() not in one for one in sealed)
    assert [Sealer(KEY).open(one) for one in sealed] == [secret] * 2
    for other, broken in ((Sealer(KEY + "x"), sealed[0]), (sealer, sealed[0][:-4] + b"AAAA"), (sealer, b""), (sealer, b"x")):
        with pytest.raises(SealBroken):
            other.open(broken)
    assert KEY not in repr(sealer)

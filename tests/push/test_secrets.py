"""What may be set: secrets that can be keys, settings that can be right. Nothing said of them repeats them."""

from __future__ import annotations

import base64

import pytest

from switchboard.push.schemes import SCHEMES, SIGNED, Scheme, Settings, new_secret, secret_fault, settings_fault
from tests.push.signing import incoming, passes, sha256_base64

TEXTUAL = sorted(SIGNED - {"standard"})

FAULTS = {
    "": "empty",
    " ": "empty",
    "\n": "empty",
    "sevenby": "shorter than 8",
    "x" * 257: "longer than 256",
    "a secret\n": "printable",
    "a sécret": "printable",
    "a\0secret": "printable",
    "\ud800" * 8: "printable",
    " a secret": "blank",
    "a secret ": "blank",
}


@pytest.mark.parametrize("scheme", TEXTUAL)
def test_a_textual_secret(scheme: Scheme) -> None:
    """8 to 256 printable ASCII characters; Stripe's prefix is part of its text."""
    for good in ("eight by", "x" * 256, "It's a Secret to Everybody", "whsec_" + "0" * 32, "=" * 8):
        assert secret_fault(scheme, good) is None
    for bad, word in FAULTS.items():
        fault = secret_fault(scheme, bad)
        assert fault is not None
        assert word in fault


@pytest.mark.parametrize("prefix", ["whsec_", ""])
def test_a_secret_of_standard_webhooks(prefix: str) -> None:
    """Base64 of at least eight bytes, with or without the prefix."""
    for key in (b"eight by", b"\0" * 32, b"\xff" * 100):
        assert secret_fault("standard", prefix + base64.b64encode(key).decode()) is None
    for bad, word in {
        "": "base64" if prefix else "empty",
        "====": "base64",
        "not base64 at all": "base64",
        "ZWlnaHQg*Ynk=YWdhaW4": "base64",
        "ZWlna HQgYnk=": "base64",
        "c2hvcnQ=": "shorter than 8 bytes",
        base64.b64encode(b"eight by").decode().rstrip("="): "base64",
        base64.urlsafe_b64encode(b"\xff" * 24).decode(): "base64",
        "A" * 260: "longer than 256",
    }.items():
        fault = secret_fault("standard", prefix + bad)
        assert fault is not None
        assert word in fault
        assert not bad or bad not in fault


def test_the_address_takes_no_secret() -> None:
    """The scheme `token` would not look at it, and whoever set it would believe that it does."""
    assert secret_fault("token", "a good secret") is not None


@pytest.mark.parametrize("scheme", sorted(SIGNED))
def test_a_new_secret_can_be_set(scheme: Scheme) -> None:
    """32 random bytes, each time others."""
    made = {new_secret(scheme) for _ in range(50)}
    assert len(made) == 50
    assert all(secret_fault(scheme, secret) is None and len(secret) >= 43 for secret in made)


def test_a_new_standard_secret_is_in_its_form() -> None:
    """`whsec_` and base64, as libraries of the standard take it."""
    secret = new_secret("standard")
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    assert len(key) == 32
    headers = {"webhook-id": "m", "webhook-timestamp": "1700000000"}
    headers["webhook-signature"] = "v1," + sha256_base64(key, b"m.1700000000.{}")
    assert passes("standard", [secret], incoming(headers, b"{}"))


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"hmac"}))
def test_only_hmac_can_be_told(scheme: Scheme) -> None:
    """A setting that would be ignored is refused, and named."""
    assert settings_fault(scheme, Settings()) is None
    for field, settings in (
        ("header", Settings(header="X-Mine")),
        ("algorithm", Settings(algorithm="sha256")),
        ("encoding", Settings(encoding="hex")),
    ):
        found = settings_fault(scheme, settings)
        assert found is not None
        assert found[0] == field
        assert scheme in found[1]


def test_a_header_of_ones_own() -> None:
    """Any name that HTTP allows, but for those that are about the connection or the body."""
    for good in (
        None,
        "X-Signature",
        "x-signature",
        "Authorization",
        "X_Sig",
        "x!#$%&'*+.^`|~",
        "Tea",
        "Date-Signed",
        "x" * 100,
    ):
        assert settings_fault("hmac", Settings(header=good, algorithm="sha512", encoding="base64")) is None
    for bad in ("", " ", "x y", "x:", "x\n", "\nx", "é", "x" * 101, "(x)", "x\0", 'x"', "x,y", "x/y"):
        assert settings_fault("hmac", Settings(header=bad)) is not None
    for bad in (
        "Content-Type",
        "content-length",
        "Connection",
        "Transfer-Encoding",
        "TE",
        "Host",
        "Upgrade",
        "Proxy-Authorization",
    ):
        found = settings_fault("hmac", Settings(header=bad))
        assert found is not None
        assert found[0] == "header"

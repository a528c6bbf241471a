"""Where a request comes from: only trusted proxies are believed, and only as far as they themselves can see."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from switchboard.http.source_address import HOPS_MAX, source_address

TRUSTED = [ip_network("10.0.0.0/8"), ip_network("::1/128")]


@pytest.mark.parametrize(
    ("peer", "said", "source"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "6.6.6.6", "203.0.113.9"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.9, 10.2.3.4", "203.0.113.9"),
        ("10.0.0.1", "10.9.9.9, 10.2.3.4", "10.9.9.9"),
        ("::1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("::1", "203.0.113.9:80", "203.0.113.9"),
        ("::ffff:10.0.0.1", "::ffff:203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "unknown, 10.2.3.4", "10.2.3.4"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "<script>", "10.0.0.1"),
        ("10.0.0.1", ", ".join(["203.0.113.9"] + ["10.0.0.2"] * HOPS_MAX), "10.0.0.2"),
        ("not an address", "203.0.113.9", "not an address"),
        (None, "203.0.113.9", None),
    ],
)
def test_who_is_believed(peer: str | None, said: str | None, source: str | None) -> None:
    """The last hop that no trusted proxy added; what is no address ends the search."""
    headers = [] if said is None else [(b"x-forwarded-for", said.encode())]
    assert source_address(peer, headers, TRUSTED) == source


def test_two_headers_are_one_list() -> None:
    """As HTTP has it."""
    headers = [(b"x-forwarded-for", b"6.6.6.6"), (b"host", b"x"), (b"x-forwarded-for", b"203.0.113.9")]
    assert source_address("10.0.0.1", headers, TRUSTED) == "203.0.113.9"

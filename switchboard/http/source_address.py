"""Where a request comes from: the peer, or what proxies that are believed say of it."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from switchboard.config_options import Network

Address = IPv4Address | IPv6Address
HOPS_MAX: Final = 20


def source_address(peer: str | None, headers: Sequence[tuple[bytes, bytes]], trusted: Sequence[Network]) -> str | None:
    """The address of the sender: the last one in `X-Forwarded-For` that was not added by a trusted proxy.

    From a peer that is no trusted proxy the header is not believed at all. What is no address ends the search.
    """
    if peer is None or not _is_in(peer, trusted):
        return peer
    said = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
    source = peer
    for hop in reversed([hop.strip() for hop in said.split(",")][-HOPS_MAX:]):
        address = _bare(hop)
        if address is None:
            break
        source = address
        if not _is_in(address, trusted):
            break
    return source


def _bare(hop: str) -> str | None:
    """The address without a port."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(_plain(ip_address(hop)))
    except ValueError:
        return None


def _plain(address: Address) -> Address:
    """An IPv4 address as such, also where a socket that listens to both kinds wraps it into IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed = _plain(ip_address(address))
    except ValueError:
        return False
    return any(parsed in network for network in networks)

"""Whether an address is on this machine, where no proxy has any business. No I/O."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def on_loopback(url: str) -> bool:
    """Whether `url` names this very machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""Who may send a browser here: the check against DNS rebinding.

A page of a stranger's that rebinds its own name to our address reaches us as if it were of our origin. The credential stops it
already, which a page does not have; this stops it before anybody looks at a credential. Only browsers say `Origin`, so agents,
and proxies in front of them under whatever name, are not concerned. With an `Origin`:

- it has to be that of this very host, or a page of this machine (an inspector, say);
- the host has to be one that no stranger can point here: an address, a name of this machine, or the configured one. A rebound
  name passes the first rule, and fails here.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from switchboard.errors import Forbidden

_LOCAL: Final = "localhost"


def check_origin(origin: str | None, host: str | None, *, configured_host: str) -> None:
    """Raises `Forbidden` for a browser's request that comes from elsewhere, or by a name that is not ours."""
    if origin is None:
        return
    here, there = _host_of(f"//{host}"), _host_of(origin)
    if here is None or not (_is_address(here) or _is_local(here) or here == configured_host.lower()):
        raise Forbidden(detail="A browser may come here by an address, by localhost or by the configured host only.")
    if there is None or not (there == here or _is_loopback(there)):
        raise Forbidden(detail="A browser may come here from a page of this very host, or of its own machine, only.")


def _host_of(url: str) -> str | None:
    """The host in a URL, in lower case; None where there is none, as in the origin `null`."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_local(host: str) -> bool:
    return host == _LOCAL or host.endswith(f".{_LOCAL}")


def _is_loopback(host: str) -> bool:
    return _is_local(host) or (_is_address(host) and ip_address(host).is_loopback)

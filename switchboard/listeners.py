"""The house's address, taken before anything else happens: a port in use ends the start without a side effect (C44)."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

import attrs
import trio

from switchboard.errors import StartError

# Connections the kernel completes while we are busy. Linux silently caps it at net.core.somaxconn (4,096 by default).
BACKLOG = 1_024

# family, kind, protocol, canonical name, address: one row of getaddrinfo.
_Address = tuple[int, int, int, str, tuple[object, ...]]


@attrs.frozen(kw_only=True)
class Listening:
    """Sockets that already listen, and the address a client may use. `port` is the real one, also where 0 was asked."""

    listeners: tuple[trio.SocketListener, ...]
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address for a person to open; a wildcard host is shown as the loopback address that it contains."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104 - compared, never bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def close(self) -> None:
        """Close every listener. Closing twice is harmless: the front door closes them too, at the end of the house."""
        for listener in self.listeners:
            listener.socket.close()


async def open_listeners(host: str, port: int) -> Listening:
    """Bind `host` (a name, an IPv4 or an IPv6 address, with or without brackets) and listen at once.

    `port` 0 means any free one, the same for every address of the host. Connections queue in the kernel until the
    front door accepts them. Raises StartError, with one line that says what to do. The caller closes what it got.
    """
    host = host.removeprefix("[").removesuffix("]")
    listeners: list[trio.SocketListener] = []
    try:
        for family, kind, protocol, _, address in await _resolve(host, port):
            # With port 0 the first address chooses, and the others follow it.
            chosen = listeners[0].socket.getsockname()[1] if listeners else port
            listeners.append(_listen(family, kind, protocol, (address[0], chosen, *address[2:])))
    except OSError as error:
        for listener in listeners:
            listener.socket.close()
        raise StartError(_advice(host, port, error)) from error
    return Listening(listeners=tuple(listeners), host=host, port=listeners[0].socket.getsockname()[1])


async def _resolve(host: str, port: int) -> list[_Address]:
    try:
        found = await trio.socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from error
    # A host file may name the same address twice; binding it twice would look like a taken port.
    return list(dict.fromkeys((int(f), int(k), p, name, tuple(address)) for f, k, p, name, address in found))


def _listen(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> trio.SocketListener:
    sock = socket.socket(family, kind, protocol)
    try:
        # Without it a restart within a minute would find its own old connections (TIME_WAIT) on the port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The IPv4 address of the same name has a socket of its own.
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    except BaseException:
        sock.close()
        raise


def _advice(host: str, port: int, error: OSError) -> str:
    """The one line for the operator: what stands in the way, and what to do about it."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, socket.gaierror):
        return f"Cannot listen on {where}: this machine knows no host of that name. Correct `host` in [server]."
    advice = {
        errno.EADDRINUSE: "the port is taken. Stop what listens there, or choose another `port` in [server].",
        errno.EACCES: "not permitted. Choose a `port` of 1024 or above in [server], or grant the right to bind it.",
        errno.EPERM: "not permitted. Choose a `port` of 1024 or above in [server], or grant the right to bind it.",
        errno.EADDRNOTAVAIL: "no interface of this machine has that address. Correct `host` in [server].",
        errno.EAFNOSUPPORT: "this machine does not speak that kind of address. Correct `host` in [server].",
    }.get(error.errno or 0, f"{error.strerror or error}.")
    return f"Cannot listen on {where}: {advice}"

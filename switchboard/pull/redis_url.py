"""A Redis URL as a frozen value: server or Sentinels, TLS, ACL user, database number. No I/O, and never an echo (R28)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import attrs

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
_SCHEMES: Final = ("redis", "rediss", "redis+sentinel")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%a-z]{2,60}\]")
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")
_SHAPES: Final = (
    "redis://[user:password@]host[:port][/db], rediss://… for TLS, or redis+sentinel://…@host:port,host:port/service[/db]"
)


class UrlFault(Exception):
    """What is wrong with a URL, as the end of a sentence. Never repeats a part of it."""


@attrs.frozen(kw_only=True)
class RedisPlace:
    """Where a Redis is. With `service`, `nodes` are its Sentinels; else the one node is the server itself."""

    nodes: tuple[tuple[str, int], ...]
    service: str | None = None
    db: int = 0
    username: str | None = attrs.field(default=None, repr=False)
    password: str | None = attrs.field(default=None, repr=False)
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    sentinel_username: str | None = attrs.field(default=None, repr=False)
    sentinel_password: str | None = attrs.field(default=None, repr=False)

    def data(self) -> tuple[object, ...]:
        """What tells one set of keys from another: the same for two URLs of one database."""
        return (self.nodes, self.service, self.db)


def parse(url: str) -> RedisPlace:
    """The place that a URL means. Raises UrlFault."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UrlFault(f"is not a Redis URL; it looks like {_SHAPES}") from None
    if "cluster" in parts.scheme:
        raise UrlFault("means a Redis Cluster, which switchboard does not read from: name one server, or Sentinels")
    if parts.scheme not in _SCHEMES or not url.isprintable() or any(character.isspace() for character in url):
        raise UrlFault(f"is not a Redis URL; it looks like {_SHAPES}")
    if parts.fragment:
        raise UrlFault("has a `#`, which a URL must write as %23")
    sentinel = parts.scheme == "redis+sentinel"
    credentials, _, hosts = parts.netloc.rpartition("@")
    options = _options(parts, _SENTINEL_OPTIONS if sentinel else _TLS_OPTIONS if parts.scheme == "rediss" else ())
    nodes = tuple(_node(host, SENTINEL_PORT if sentinel else REDIS_PORT) for host in hosts.split(","))
    if len(nodes) > 1 and not sentinel:
        raise UrlFault("names several servers; that is for redis+sentinel:// only")
    service, db = _path(parts.path, sentinel=sentinel)
    username, colon, password = credentials.partition(":")
    return RedisPlace(
        nodes=nodes,
        service=service,
        db=db,
        username=unquote(username) or None,
        password=unquote(password) if colon else None,
        tls=parts.scheme == "rediss",
        ca_file=options.get("ssl_ca_certs"),
        cert_file=options.get("ssl_certfile"),
        key_file=options.get("ssl_keyfile"),
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
    )


def fault_in_redis_url(url: str) -> str | None:
    """What is wrong with a URL, without repeating any of it; None where it is right."""
    try:
        place = parse(url)
    except UrlFault as fault:
        return str(fault)
    for option, file in zip(_TLS_OPTIONS, (place.ca_file, place.cert_file, place.key_file), strict=True):
        if file is not None and not Path(file).is_file():
            return f"names a file as {option} that is not there"
    return None


def _options(parts: SplitResult, allowed: tuple[str, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(parts.query, strict_parsing=True, max_num_fields=16) if parts.query else []
    except ValueError:
        raise UrlFault("has options after `?` that are not name=value") from None
    options = dict(pairs)
    if len(options) < len(pairs) or not options.keys() <= set(allowed):
        known = ", ".join(allowed) or "none"
        raise UrlFault(f"has an option after `?` that is not known here (known: {known}), or one that stands twice")
    return options


def _node(text: str, port_default: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(port_default)
    if not _HOST.fullmatch(host):
        raise UrlFault("does not name a host")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        raise UrlFault("has a port that is no number from 1 to 65535")
    return host.strip("[]"), int(port)


def _path(path: str, *, sentinel: bool) -> tuple[str | None, int]:
    words = path.removeprefix("/").split("/") if path.strip("/") else []
    service = None
    if sentinel:
        if not words or not words[0]:
            raise UrlFault("does not name the service that the Sentinels watch: redis+sentinel://host:port/service")
        service = unquote(words.pop(0))
    if not words:
        return service, 0
    if len(words) > 1 or not (words[0].isascii() and words[0].isdigit() and len(words[0]) <= 5):
        raise UrlFault("has a path that is no database number")
    return service, int(words[0])

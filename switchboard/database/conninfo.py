"""Connection strings, and how to speak of them: they hold passwords, so neither they nor parts of them are repeated.

R28, C59: host, port, user and database may be told; a password never, also not as a piece of a mistyped URL.
"""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

LINE_CHARACTERS_MAX = 500

_SECRET_OPTIONS = ("password", "sslpassword", "oauth_client_secret")
_ENCODE = "percent-encode a password that contains @ : / # ? or %"


def fault_in_conninfo(conninfo: str) -> str | None:
    """What is wrong with a connection string, without any part of it; None where libpq understands it.

    Taken are URLs (postgresql://, postgres://) and lists of name=value. Whether anybody answers is not asked.
    """
    is_url = conninfo.startswith(("postgresql://", "postgres://"))
    if not is_url and ("://" in conninfo.partition("=")[0] or "=" not in conninfo):
        return "must be a postgresql:// URL or a list of name=value pairs"
    if is_url and conninfo.partition("?")[0].count("@") > 1:
        # libpq ends the password at the first @, and would take its rest for a host, and name that in its errors.
        return f"has more than one @; {_ENCODE}"
    try:
        options = conninfo_to_dict(conninfo)
    except (psycopg.Error, ValueError):
        # The reason libpq gives may quote the part that it tripped over, so it is not passed on.
        return f"is not a connection string that PostgreSQL understands; in a URL, {_ENCODE}"
    ports = str(options.get("port", "5432"))
    if not all(_is_port(port) for port in ports.split(",")):
        return f"has a port that is no number from 1 to 65535; in a URL, {_ENCODE}"
    if is_url and "@" in conninfo and "@" not in conninfo.partition("://")[2].partition("/")[0]:
        return f"has an @ after a /; {_ENCODE}"
    return None


def one_line(exc: psycopg.Error, conninfo: str) -> str:
    """What psycopg says, as one line of bounded length, with every secret of `conninfo` struck out."""
    said = " ".join((exc.diag.message_primary or str(exc)).split()) or type(exc).__name__
    try:
        options = conninfo_to_dict(conninfo)
    except psycopg.Error:
        return "the connection string is not one that PostgreSQL understands"
    for name in _SECRET_OPTIONS:
        secret = str(options.get(name) or "")
        if secret:
            said = said.replace(secret, "***")
    return said[:LINE_CHARACTERS_MAX]


def _is_port(port: str) -> bool:
    return not port or (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65_535)

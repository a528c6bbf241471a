"""Which requests the express lane takes, told from their bytes alone.

It takes no more than one plain spelling of a request: HTTP/1.1, POST, a path of ours without a query, header lines ended by
CR LF, no header twice, a length in digits. One pattern says that spelling whole, and every reader of such a head reads the
same request in it, so that nothing can be smuggled past it. Whatever is spelled in another way, right or wrong, is handed
over to the general lane with the bytes read so far, and is parsed, refused or answered there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import attrs

from switchboard.http.bodies import LARGE_BODY_BYTES
from switchboard.http.exchange import is_host

HEAD_BYTES_MAX: Final = 32 * 1024
"""In the general lane too."""

_BEGINNING: Final = b"POST /v1/"
_END: Final = b"\r\n\r\n"
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE: Final = rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
_HEAD: Final = re.compile(
    rb"POST (/v1/[0-9A-Za-z/-]{1,128}) HTTP/1\.1\r\n((?:" + _TOKEN + rb": ?" + _VALUE + rb"\r\n){1,100})\r\n"
)
_DIGITS: Final = re.compile(r"[0-9]{1,10}")

# What changes how a message is framed, or asks for more than an answer.
_NEVER: Final = frozenset({"transfer-encoding", "expect", "upgrade", "te", "trailer", "http2-settings", "proxy-connection"})

Verdict = Literal["more", "hand over"]


@attrs.frozen(kw_only=True, eq=False)
class Head:
    """The head of a request. `size_bytes` is how long it is itself; the body follows it."""

    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    size_bytes: int
    content_length: int
    keep_alive: bool


def read_head(data: bytes | bytearray) -> Head | Verdict:
    """The head at the beginning of `data`; "more" where it is not here whole yet; "hand over" where it is not for this lane.

    What can no longer become a head of ours is handed over at once, without waiting for its end.
    """
    end = data.find(_END, 0, HEAD_BYTES_MAX)
    if end < 0:
        ours = data.startswith(_BEGINNING) or _BEGINNING.startswith(data)
        return "more" if ours and len(data) < HEAD_BYTES_MAX else "hand over"
    size = end + len(_END)
    found = _HEAD.fullmatch(data, 0, size)
    if found is None:
        return "hand over"
    headers: dict[str, str] = {}
    lines = found[2].decode("ascii").split("\r\n")
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.lstrip(" ")
    connection = headers.get("connection", "keep-alive").lower()
    content_length = headers.get("content-length", "0")
    if (
        len(headers) != len(lines) - 1
        or not _NEVER.isdisjoint(headers)
        or connection not in ("keep-alive", "close")
        or not _DIGITS.fullmatch(content_length)
        or int(content_length) > LARGE_BODY_BYTES  # these take turns in memory, beside which the general lane costs nothing
        or not is_host(headers.get("host", "?").encode())
    ):
        return "hand over"
    return Head(
        path=found[1].decode("ascii"),
        headers=headers,
        size_bytes=size,
        content_length=int(content_length),
        keep_alive=connection == "keep-alive",
    )

"""A webhook delivery as it came in: headers, the very bytes of its body, and when. Pure; no I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import attrs

from switchboard.masking import mask

HEADERS_KEPT_MAX: Final = 100
NAME_CHARS_MAX: Final = 200
VALUE_CHARS_MAX: Final = 2_000

REDACTED: Final = "(redacted)"

# They may hide too much (`x-author`), never too little; a signature that still passes is as good as its secret.
_SENSITIVE: Final = ("auth", "cookie", "token", "secret", "signature", "password", "passwd", "credential", "api-key", "apikey")
_BLANKS: Final = b" \t"


@attrs.frozen(kw_only=True)
class Incoming:
    """One request to a webhook's address, not yet believed. `headers` are as ASGI gives them, `at` is in Unix seconds."""

    headers: Sequence[tuple[bytes, bytes]] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    at: float

    def header(self, name: str) -> str | None:
        """A header's value as latin-1, so that encoding it gives its bytes back; None where it is missing or blank.

        One that stands more than once with different values counts as missing: a proxy before us and we ourselves could
        each believe another one, and what is checked must be what is read.
        """
        wanted = name.lower().encode()
        values = {value.strip(_BLANKS) for key, value in self.headers if key == wanted}
        if len(values) != 1:
            return None
        return values.pop().decode("latin-1") or None

    def media_type(self) -> str | None:
        """What the body says that it is, lower-case and without parameters: `application/json`."""
        value = self.header("content-type")
        return None if value is None else value.partition(";")[0].rstrip().lower() or None

    def redacted_headers(self, also: Collection[str] = ()) -> str:
        """The headers as the text of a JSON object, in order, to be kept; one that stands twice stands twice.

        Values of headers that may carry a secret, by their name or because it is among `also`, are replaced; in the others
        what looks like one is hidden, since a proxy may repeat the address, whose token is a secret (R28).
        """
        names = {name.lower() for name in also}
        return "{" + ", ".join(f"{_json(name)}: {_json(value)}" for name, value in self._kept(names)) + "}"

    def _kept(self, hidden: Collection[str]) -> Iterator[tuple[str, str]]:
        for key, value in self.headers[:HEADERS_KEPT_MAX]:
            name = _text(key)
            yield name[:NAME_CHARS_MAX], REDACTED if _is_sensitive(name, hidden) else mask(_text(value))[:VALUE_CHARS_MAX]
        if len(self.headers) > HEADERS_KEPT_MAX:
            yield "…", f"{len(self.headers) - HEADERS_KEPT_MAX} more"


def _is_sensitive(name: str, hidden: Collection[str]) -> bool:
    name = name.lower()
    return name in hidden or any(word in name.replace("_", "-") for word in _SENSITIVE)


def _text(raw: bytes) -> str:
    """Text that Postgres can hold (R22): no NUL, and no half of a surrogate pair, which UTF-8 cannot give."""
    return raw.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

"""What comes in from outside, as one plain value: the back half that pull adapters and webhooks share. Pure; no I/O.

An adapter fills in a `Delivery`; from there on nobody asks where it came from, so that a push and a pull of the same
logical event make the same todo (SPEC-0002 Adapter Interface and Trust Mode).
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Final, Literal

import attrs

from switchboard.json_bounds import fault_in, unstorable

Family = Literal["queue", "webhook"]

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""A body above this becomes no todo: it is quarantined with its bytes (R23)."""
KEY_BYTES_MAX: Final = 512
SHA256_HEX_CHARS: Final = 64

Fields = Sequence[tuple[bytes, bytes]]


def _sha256(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


@attrs.frozen(kw_only=True, cache_hash=True)
class Origin:
    """What is the same for every message of one adapter's connection, or of one webhook; made once for all of them."""

    source: str
    family: Family
    trust_mode: str
    verified: bool
    verify_detail: str | None
    queue: str
    adapter: str | None = None
    content_type: str | None = None


@attrs.frozen(kw_only=True)
class Delivery:
    """One message, normalised.

    `external_id` is its idempotency key; `native_id` says that the source gave it an id of its own, so that a redelivery
    is known for ever (R3), else the key collapses only while a todo is live. `headers` is a JSON text of what came beside the
    body. `body` are the very bytes. `kind` and `title` tell a person what it is, where its provider is known.
    """

    origin: Origin
    external_id: str
    native_id: bool
    body: bytes = attrs.field(repr=False)
    headers: str | None = attrs.field(default=None, repr=False)
    kind: str | None = None
    title: str | None = attrs.field(default=None, repr=False)
    body_sha256: bytes = attrs.field(repr=False)

    @body_sha256.default
    def _hash_body(self) -> bytes:
        return _sha256(self.body)


def payload_of(body: bytes) -> str:
    """The todo's payload: the body's own JSON text where it can be kept as that, else the bytes in a wrapper (R22)."""
    return wrapper_of(body) or body.decode()


def wrapper_of(body: bytes) -> str | None:
    """The wrapper of a body that cannot be kept as the JSON text it is; None where it can."""
    fault = fault_in(body)
    if fault is None:
        return None
    return json.dumps({"encoding": "base64", "data": b64encode(body).decode(), "reason": fault})


def key_prefix(name: str, namespace: str | None) -> str:
    """What every key of one source begins with: `redis:{stream}`, or `redis:{namespace}/{stream}` (R19)."""
    return f"redis:{name}" if namespace is None else f"redis:{namespace}/{name}"


def native_key(prefix: str, native_id: str) -> str:
    """The key of a message that has an id of its own."""
    return f"{prefix}:{native_id}"


def body_key(prefix: str, body: bytes) -> str:
    """The key of a message that has none: the hash of its raw body."""
    return f"{prefix}:{_sha256(body).hex()}"


def body_of_fields(fields: Fields, body_field: str) -> tuple[bytes, str | None]:
    """The body of a stream entry, and what else was in it as a JSON text.

    The first field named `body_field` is the body, as it is; without one, the field map as JSON is.
    """
    wanted = body_field.encode()
    for place, (name, value) in enumerate(fields):
        if name == wanted:
            if len(fields) == 1:
                return value, None
            return value, _object_of([*fields[:place], *fields[place + 1 :]])
    return _object_of(fields).encode(), None


def _object_of(fields: Fields) -> str:
    """Fields as a JSON object, in order; a name that stands twice stands twice. Binary values are wrapped one by one."""
    return "{" + ", ".join(f"{_name(name)}: {_value(value)}" for name, value in fields) + "}"


def _name(raw: bytes) -> str:
    return json.dumps(raw.decode("utf-8", "backslashreplace").replace("\0", "\\x00"), ensure_ascii=False)


def _value(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _wrapped(raw, "it is not UTF-8")
    if unstorable(text):
        return _wrapped(raw, "it holds a NUL")
    return json.dumps(text, ensure_ascii=False)


def _wrapped(raw: bytes, reason: str) -> str:
    return json.dumps({"encoding": "base64", "data": b64encode(raw).decode(), "reason": reason})

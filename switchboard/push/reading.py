"""What can be read of a webhook delivery: its id, what it is about, and what of its body a todo can keep. Pure; no I/O.

Reading never refuses: what a provider did not write as expected gives no kind and no title, and the body is kept (R22).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

import attrs

from switchboard.ingestion import body_key, native_key, wrapper_of
from switchboard.json_bounds import PAYLOAD_DEPTH_MAX, fault_in, nesting, unstorable
from switchboard.push.incoming import Incoming
from switchboard.push.schemes import Scheme
from switchboard.push.titles import Said, one_line, text_at, title_of

KIND_CHARS_MAX: Final = 200
CONTENT_TYPE_CHARS_MAX: Final = 200
CHALLENGE_CHARS_MAX: Final = 1_000
DELIVERY_ID_BYTES_MAX: Final = 200
"""A longer id is hashed (R27), so that no key passes `KEY_BYTES_MAX`."""

READ_BYTES_MAX: Final = 5 * 1024 * 1024
"""A body above this is kept like any other, but nobody looks into it for a kind, a title or an id."""
FORM_FIELDS_MAX: Final = 100

_FORM: Final = "application/x-www-form-urlencoded"
_FORM_FIELD: Final = "payload"

_ID_HEADERS: Final[Mapping[Scheme, tuple[str, ...]]] = {
    "github": ("x-github-delivery",),
    "gitea": ("x-gitea-delivery", "x-forgejo-delivery", "x-github-delivery"),
    "gitlab": ("idempotency-key", "x-gitlab-event-uuid"),
    "standard": ("webhook-id",),
    "hmac": ("idempotency-key",),
    "token": ("idempotency-key",),
}
_ID_FIELDS: Final[Mapping[Scheme, str]] = {"stripe": "id", "slack": "event_id"}
_KIND_HEADERS: Final[Mapping[Scheme, tuple[str, ...]]] = {
    "github": ("x-github-event",),
    "gitea": ("x-gitea-event", "x-forgejo-event", "x-github-event"),
}
_UNTOLD: Final[frozenset[Scheme]] = frozenset({"hmac", "token"})
"""Of these schemes' bodies nothing is known."""


@attrs.frozen(kw_only=True)
class Reading:
    """What was read. `payload` is the todo's where it is not the body itself: a form's JSON, or a wrapper; None: the body is.

    `delivery_id` is the provider's own, at most 200 bytes. `silent` makes no todo: a ping. Nor does a `challenge`, which is
    what Slack wants to hear back when it is told this address.
    """

    delivery_id: str | None
    kind: str | None
    title: str | None
    payload: str | None = attrs.field(repr=False)
    content_type: str | None
    silent: bool = False
    challenge: str | None = attrs.field(default=None, repr=False)


def read(scheme: Scheme, incoming: Incoming) -> Reading:
    """Reads a delivery that has been verified. Never raises.

    It looks at every byte: a body of a few MiB takes tenths of a second, too long for an event loop.
    """
    form = _form_of(incoming)
    inner = _form_value(form, _FORM_FIELD)
    if inner is None:
        payload = wrapper_of(incoming.body)
        sound = payload is None
    else:
        sound = fault_in(inner) is None
        payload = inner.decode() if sound else wrapper_of(incoming.body)
    said: Said = {} if scheme in _UNTOLD else _said(incoming.body if inner is None else inner, sound=sound)
    if not said and scheme == "slack":
        said = _command(form)
    event = _first_header(incoming, _KIND_HEADERS.get(scheme, ()))
    kind = one_line(_kind(scheme, event, said), KIND_CHARS_MAX)
    return Reading(
        delivery_id=_delivery_id(scheme, incoming, said),
        kind=kind,
        title=title_of(scheme, kind, said),
        payload=payload,
        content_type=one_line(incoming.header("content-type") or "", CONTENT_TYPE_CHARS_MAX),
        silent=event == "ping",
        challenge=_challenge(said) if scheme == "slack" else None,
    )


def key_of(webhook_name: str, reading: Reading, body: bytes) -> str:
    """The idempotency key of a delivery: by its own id, or by its body where it has none. At most `KEY_BYTES_MAX` bytes."""
    if reading.delivery_id is None:
        return body_key(webhook_name, body)
    return native_key(webhook_name, reading.delivery_id)


def _delivery_id(scheme: Scheme, incoming: Incoming, said: Said) -> str | None:
    found = text_at(said, _ID_FIELDS[scheme]) if scheme in _ID_FIELDS else _first_header(incoming, _ID_HEADERS[scheme])
    text = found.strip()
    if not text:
        return None
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > DELIVERY_ID_BYTES_MAX or not text.isprintable():
        return "sha256:" + hashlib.sha256(raw).hexdigest()
    return text


def _first_header(incoming: Incoming, names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := incoming.header(name)) is not None), "")


def _kind(scheme: Scheme, event: str, said: Said) -> str:
    if scheme in _KIND_HEADERS:
        return _with_action(event, text_at(said, "action"))
    if scheme == "gitlab":
        return _with_action(text_at(said, "object_kind"), text_at(said, "object_attributes", "action"))
    return text_at(said, "event", "type") or text_at(said, "type") or text_at(said, "command")


def _with_action(event: str, action: str) -> str:
    return f"{event}.{action}" if event and action else event


def _challenge(said: Said) -> str | None:
    challenge = said.get("challenge")
    if said.get("type") != "url_verification" or not isinstance(challenge, str):
        return None
    return challenge if 0 < len(challenge) <= CHALLENGE_CHARS_MAX and not unstorable(challenge) else None


def _said(content: bytes, *, sound: bool) -> Said:
    """The JSON object that a body is; empty for whatever else it may be. One that is sound is known to be shallow."""
    if len(content) > READ_BYTES_MAX or (not sound and nesting(content, PAYLOAD_DEPTH_MAX) > PAYLOAD_DEPTH_MAX):
        return {}
    try:
        said = json.loads(content.decode())
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _form_of(incoming: Incoming) -> Mapping[bytes, bytes]:
    """The first fields of a form, still encoded, the first of each name; empty where the body is none."""
    if incoming.media_type() != _FORM:
        return {}
    form: dict[bytes, bytes] = {}
    for field in incoming.body.split(b"&", FORM_FIELDS_MAX)[:FORM_FIELDS_MAX]:
        name, _, value = field.partition(b"=")
        form.setdefault(name, value)
    return form


def _form_value(form: Mapping[bytes, bytes], name: str) -> bytes | None:
    value = form.get(name.encode())
    return None if value is None else unquote_to_bytes(value.replace(b"+", b" "))


def _command(form: Mapping[bytes, bytes]) -> Said:
    """What Slack says of a slash command, which comes as a form of its own."""
    values = {name: _form_value(form, name) for name in ("command", "text", "channel_name", "user_name")}
    return {name: value.decode("utf-8", "replace") for name, value in values.items() if value is not None}

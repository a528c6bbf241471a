"""One strict decoder for every body and query: bytes in, a frozen struct out, or an error that names the field.

It accepts less than Python's `json` does: no NaN, no duplicate meaning, no text that Postgres could not hold, no nesting
or number that a reader could choke on (R22, R27). What it lets through is passed on as the text it came as.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from switchboard import json_bounds
from switchboard.errors import Invalid, QueueError, TooLarge
from switchboard.http.requests import ENDPOINT_NAME_IN_WORDS
from switchboard.json_bounds import NUMBER_CHARS_MAX, PAYLOAD_DEPTH_MAX, Pairs, has_long_number, nesting, unstorable

T = TypeVar("T", bound=msgspec.Struct)

_BODY_DEPTH_MAX: Final = PAYLOAD_DEPTH_MAX + 8
"""Deeper than any payload within its own bound can make a body; the look at each payload comes after it."""

_PLACE = re.compile(r"\[\d+\]`$")
_AT: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_IN: Final = re.compile(r"^(?P<problem>.*) - in `(?P<field>\w+)`$")
_UNKNOWN: Final = re.compile(r"unknown field `(?P<field>[^`]*)`|missing required field `(?P<missing>[^`]*)`")


def decode_body(body: bytes, kind: type[T], *, payload_bytes_max: int) -> T:
    """Decodes a JSON body into `kind`.

    Raises:
        Invalid: 400 where it is not JSON in UTF-8; 422 where it is not of this kind, with the field.
        TooLarge: a payload or result over `payload_bytes_max` bytes.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Invalid(detail="The body is not UTF-8.", field="body", status=400) from None
    if text.startswith("\ufeff"):
        raise Invalid(detail="The body starts with a byte order mark; send plain UTF-8.", field="body", status=400)
    if nesting(body, _BODY_DEPTH_MAX) > _BODY_DEPTH_MAX:
        raise Invalid(detail=f"Nested deeper than {PAYLOAD_DEPTH_MAX} levels.", field=_deep_field(kind))
    _refuse_unstorable_text(text)
    try:
        decoded: T = _decoder(kind).decode(body)
    except msgspec.ValidationError as exc:
        raise _invalid(str(exc)) from None
    except msgspec.DecodeError as exc:
        raise Invalid(detail=f"The body is not JSON: {exc}.", field="body", status=400) from None
    except RecursionError:  # what is balanced and deep was refused above: these brackets are never closed
        raise Invalid(detail="The body is not JSON: its brackets do not match.", field="body", status=400) from None
    _check_raw(decoded, "", payload_bytes_max)
    return decoded


def decode_query(query: Mapping[str, list[str]], kind: type[T]) -> T:
    """Decodes query parameters into `kind`; numbers may stand as text. Raises `Invalid` with the parameter."""
    repeatable: frozenset[str] = getattr(kind, "repeatable", frozenset())
    for name, values in query.items():
        if len(values) > 1 and name not in repeatable:
            raise Invalid(detail=f"`{name}` is given more than once.", field=name)
        if any(unstorable(value) for value in values):
            raise Invalid(detail=f"`{name}` holds a character that cannot be stored.", field=name)
    try:
        given = {name: values if name in repeatable else values[0] for name, values in query.items()}
        converted: T = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise _invalid(_PLACE.sub("`", str(exc))) from None  # of a repeated parameter the name says it all
    return converted


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def _invalid(message: str) -> Invalid:
    """msgspec's message as ours: the problem, and the way to the field as `todos[3].queue`."""
    path = ""
    at = _AT.search(message)
    if at is not None:
        path, message = at["path"].lstrip("."), message[: at.start()]
    inside = _IN.match(message)
    if inside is not None:
        path, message = _joined(path, inside["field"]), inside["problem"]
    if "matching regex" in message:  # the contract has one pattern only, and words say it better
        message = f"Expected {ENDPOINT_NAME_IN_WORDS}"
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        path = _joined(path, unknown["field"] or unknown["missing"])
    return Invalid(detail=f"{message}.", field=path or "body")


def _joined(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _deep_field(kind: type[msgspec.Struct]) -> str:
    """Only two fields can nest at all, and no kind has both."""
    return "result" if "result" in kind.__name__.lower() or "Complete" in kind.__name__ else "payload"


def _refuse_unstorable_text(text: str) -> None:
    """Refuses the escapes of NUL and of lone surrogates, naming the field: Postgres holds neither (R22).

    The look into the parsed body is taken only where such an escape may stand: an escaped backslash before `u0000` is a
    legitimate text, and a pair of surrogates is an emoji.
    """
    if not json_bounds.has_suspect_escape(text):
        return
    try:
        parsed = json_bounds.parse(text)
    except (ValueError, RecursionError):
        return  # not JSON, as the decoder will say
    field = _unstorable(parsed, "")
    if field is not None:
        raise Invalid(detail="It holds a NUL or half a surrogate pair, which cannot be stored.", field=field or "body")


def _unstorable(value: object, path: str) -> str | None:
    """The way to the first text that cannot be stored, no deeper than the contract's own fields; None if all can."""
    if isinstance(value, str):
        return path if unstorable(value) else None
    opaque = path.rpartition(".")[2] in ("payload", "result")
    if isinstance(value, Pairs):
        for name, item in value:
            if _unstorable(name, "") is not None:
                return path
            found = _unstorable(item, path if opaque else _joined(path, name))
            if found is not None:
                return found
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found = _unstorable(item, path if opaque else f"{path}[{index}]")
            if found is not None:
                return found
    return None


def _check_raw(value: object, path: str, payload_bytes_max: int) -> None:
    """Holds every payload and result in a decoded struct against its bounds."""
    if isinstance(value, Raw):
        problem = _raw_problem(bytes(value), path, payload_bytes_max)
        if problem is not None:
            raise problem
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name in ("payload", "result", "todos", "items"):
                _check_raw(getattr(value, name), _joined(path, name), payload_bytes_max)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_raw(item, f"{path}[{index}]", payload_bytes_max)


def _raw_problem(raw: bytes, field: str, payload_bytes_max: int) -> QueueError | None:
    if len(raw) > payload_bytes_max:
        return TooLarge(detail=f"`{field}` is {len(raw)} bytes; the limit is {payload_bytes_max}.", field=field)
    if nesting(raw, PAYLOAD_DEPTH_MAX) > PAYLOAD_DEPTH_MAX:
        return Invalid(detail=f"Nested deeper than {PAYLOAD_DEPTH_MAX} levels.", field=field)
    if has_long_number(raw):
        return Invalid(detail=f"A number of more than {NUMBER_CHARS_MAX} characters.", field=field)
    return None

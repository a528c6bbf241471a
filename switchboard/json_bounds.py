"""What of a JSON text can be kept: the front door refuses by these bounds, ingestion wraps by them (R22, R27). No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

PAYLOAD_DEPTH_MAX: Final = 100
NUMBER_CHARS_MAX: Final = 1_000

_LONG_NUMBER: Final = re.compile(rb"[0-9.eE+-]{%d}" % (NUMBER_CHARS_MAX + 1))
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SUSPECT_ESCAPE: Final = re.compile(
    r"\\u0000"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"  # a high half without its low one
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"  # a low half without its high one
)
_BRACKETS_ONLY: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def nesting(text: bytes, limit: int) -> int:
    """How deep brackets nest in a JSON text; anything above `limit` is only known to be above it.

    Each round takes the innermost pairs out, so the rounds are the depth: quick for any size, and no recursion.
    """
    if text.count(b"[") + text.count(b"{") <= limit:
        return 0  # too few to nest too deep: the usual case needs no look
    brackets = _STRINGS.sub(b"", text).translate(_BRACKETS_ONLY, _NO_BRACKETS)
    depth = 0
    while brackets and depth <= limit:
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):
            break  # unbalanced: not JSON, as the decoder will say
        brackets, depth = fewer, depth + 1
    return depth


def has_long_number(text: bytes) -> bool:
    """Whether a number in it has more than `NUMBER_CHARS_MAX` characters."""
    return bool(_LONG_NUMBER.search(text) and _LONG_NUMBER.search(_STRINGS.sub(b"", text)))


def has_suspect_escape(text: str) -> bool:
    """Whether an escape of NUL or of half a surrogate pair may stand in it; an escaped backslash before `u0000` is none."""
    return "\\u" in text and _SUSPECT_ESCAPE.search(text.replace(r"\\", "__")) is not None


def unstorable(text: str) -> bool:
    """Whether a decoded text holds what Postgres cannot: NUL, or half a surrogate pair (R22)."""
    return "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)


class Pairs(list[tuple[str, object]]):
    """An object with every one of its members, so that none hides behind a later one of the same name."""


def parse(text: str) -> object:
    """A JSON text as Python values: objects as `Pairs`, numbers as the text they are.

    Raises ValueError where it is not JSON (NaN and Infinity are none), RecursionError where it nests too deeply for Python.
    """
    return _WHOLE.decode(text)


def fault_in(body: bytes) -> str | None:
    """Why these bytes cannot be kept as the JSON text they are; None where they can."""
    if not body.strip(b" \t\r\n"):
        return "it is empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    if nesting(body, PAYLOAD_DEPTH_MAX) > PAYLOAD_DEPTH_MAX:
        return f"it is nested deeper than {PAYLOAD_DEPTH_MAX} levels"
    try:
        if not has_suspect_escape(text):
            _CHECK.decode(text)
        elif any(unstorable(found) for found in _texts(parse(text))):
            return "it holds a NUL or half a surrogate pair"
    except (ValueError, RecursionError):
        return "it is not JSON"
    if has_long_number(body):
        return f"it holds a number of more than {NUMBER_CHARS_MAX} characters"
    return None


def _texts(value: object) -> Iterator[str]:
    """Every string in a parsed text, names included; no deeper than the nesting that was checked before."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Pairs):
        for name, item in value:
            yield name
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(word)


# Numbers stay the text they are: Python has no integers of 5,000 digits, JSON has. Made once, since making one takes longer
# than decoding a usual body.
_CHECK: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)
_WHOLE: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant, object_pairs_hook=Pairs)

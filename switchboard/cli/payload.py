"""The payload of a todo: from what was typed to the text that is sent, and back to lines for a person.

It is checked here and passed on as the text it is, never decoded and encoded again: integers of any size, the order of
keys and repeated keys survive, as they do in the house (R22).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from switchboard.cli.failures import UsageError
from switchboard.cli.output import printable

# No house takes a larger one, whatever its limits.payload_bytes: a reading without end stops here.
PAYLOAD_BYTES_MAX: Final = 16 * 1_048_576
INDENT: Final = "  "

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def read(typed: str) -> str:
    """The JSON text that `--payload` means: itself, the file after `@`, or standard input for `-`.

    Raises UsageError, with line and column, where that is not one JSON value in UTF-8, or cannot be read.
    """
    if typed == "-":
        if sys.stdin is None:
            raise UsageError("The payload was to come from standard input, but there is none.")
        return _checked(_read_all(sys.stdin.buffer, "standard input"), "standard input")
    if typed.startswith("@"):
        name = f"the file {typed[1:]}"
        try:
            with Path(typed[1:]).open("rb") as file:
                return _checked(_read_all(file, name), name)
        except OSError as exc:
            raise UsageError(f"The payload could not be read from {name}: {exc.strerror}.") from exc
    return _checked(typed.encode("utf-8"), "--payload")


def pretty(text: str) -> str:
    """The same JSON, indented and safe to show. Every token stays as it was written."""
    lines, depth = [""], 0
    pieces = _TOKEN.findall(text)
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
        lines[-1] += ": " if piece == ":" else printable(piece)
        if piece == ":":
            continue
        opens, closes = piece in {"{", "["}, following in {"}", "]"}
        # An empty object or array stays on its line.
        if opens is not closes or piece == ",":
            depth += opens - closes
            lines.append(INDENT * depth)
    return "\n".join(lines)


def _read_all(source: BinaryIO, name: str) -> bytes:
    raw = source.read(PAYLOAD_BYTES_MAX + 1)
    if len(raw) > PAYLOAD_BYTES_MAX:
        raise UsageError(
            f"The payload from {name} is over {PAYLOAD_BYTES_MAX} bytes, more than any house takes: "
            "keep it in a file store, and push its address."
        )
    return raw


def _checked(raw: bytes, name: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(f"The payload from {name} is not UTF-8 (byte {exc.start + 1}): save it as UTF-8.") from exc
    if not text.strip():
        raise UsageError(f"The payload from {name} is empty: it must be JSON, if only null.")
    try:
        # Numbers are looked at, not converted: Python has no integers of 5,000 digits, JSON has.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except json.JSONDecodeError as exc:
        # Nothing of the text is repeated: a payload may hold a secret.
        hint = " (a string needs its own quotes too: '\"like this\"')" if exc.msg == "Expecting value" and exc.pos == 0 else ""
        raise UsageError(
            f"The payload from {name} is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}{hint}."
        ) from exc
    except RecursionError as exc:
        raise UsageError(f"The payload from {name} is nested too deeply: a house takes 100 levels.") from exc
    return text


def _refuse_constant(word: str) -> NoReturn:
    raise UsageError(f"The payload is not JSON: it holds {word}, which JSON does not have.")

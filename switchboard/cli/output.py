"""Text for people and programs: tables, ages, and a way to standard output that survives what is at its other end.

Titles, owners and errors come from agents and from strangers' webhooks. Nothing of theirs may move the cursor of the
operator's terminal, so whatever is not printable is shown as an escape.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NoReturn

from switchboard.cli.failures import CommandError, OutputClosed
from switchboard.masking import mask

CELL_CHARACTERS_MAX: Final = 60

# What JSON allows in a string unescaped, but a terminal may obey, hide or fail to encode.
_UNSAFE_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def write(text: str) -> None:
    """Writes to standard output and flushes. What its encoding lacks is escaped.

    Raises OutputClosed where the reader has gone, CommandError where it cannot be written (a full disk).
    """
    if sys.stdout is None:
        raise CommandError("There is no standard output to write to. What was asked for has been done all the same.")
    write_bytes(text.encode(sys.stdout.encoding or "ascii", "backslashreplace"))


def write_bytes(left: bytes) -> None:
    """Writes bytes to standard output as they are, and flushes. Raises as `write` does."""
    if sys.stdout is None:
        raise CommandError("There is no standard output to write to. What was asked for has been done all the same.")
    try:
        # Not the text layer: with PYTHONUNBUFFERED it takes a short write, which a closing pipe makes, for a whole one.
        while left:
            left = left[sys.stdout.buffer.write(left) or _no_room() :]
        sys.stdout.buffer.flush()
    except BrokenPipeError as exc:
        _discard_output()
        raise OutputClosed from exc
    except OSError as exc:
        _discard_output()
        raise CommandError(
            f"The output could not be written: {exc.strerror}. What was asked for has been done all the same."
        ) from exc


def complain(*messages: str) -> None:
    """One line for each message to standard error, without secrets."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write("".join(f"{line(message)}\n" for message in messages))
            sys.stderr.flush()


def json_text(text: str) -> str:
    """JSON as it came, on one line of its own: the same document, safe for a terminal of any encoding."""
    text = _UNSAFE_IN_JSON.sub(_json_escape, text)
    try:
        text.encode((sys.stdout and sys.stdout.encoding) or "ascii")
    except UnicodeEncodeError:
        text = _NOT_ASCII.sub(_json_escape, text)
    return f"{text}\n"


def printable(text: str) -> str:
    """`text` with every character escaped that is not printable, line breaks and terminal controls included."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def line(text: str) -> str:
    """`text` as one printable line without secrets."""
    return printable(mask(" ".join(text.split())))


def cell(text: str | None) -> str:
    """`text` as a cell of a table: printable, at most CELL_CHARACTERS_MAX, `-` where there is none."""
    if not text:
        return "-"
    shown = printable(text[: CELL_CHARACTERS_MAX + 1])
    return shown if len(shown) <= CELL_CHARACTERS_MAX else f"{shown[: CELL_CHARACTERS_MAX - 3]}..."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, two blanks apart, a line for each row. Cells are printable already."""
    everything = [head, *rows]
    widths = [max(map(_columns, column)) for column in zip(*everything, strict=True)]
    return "".join(
        "  ".join(text + " " * (width - _columns(text)) for text, width in zip(row, widths, strict=True)).rstrip() + "\n"
        for row in everything
    )


def duration(length: timedelta) -> str:
    """A length of time in the largest unit that fits: `40 s`, `3 min`, `5 h`, `12 d`. Never negative."""
    seconds = max(0, int(length.total_seconds()))
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size or size == 1)
    return f"{seconds // size} {unit}"


def moment(instant: datetime | None, now: datetime) -> str:
    """How long ago an instant was, or in how long it is; `-` for none. `now` is told in whole seconds, so the last second of
    the past may lie before the next of them: what is less than a second away is no future.
    """
    if instant is None:
        return "-"
    if instant - now >= timedelta(seconds=1):
        return f"in {duration(instant - now)}"
    return f"{duration(now - instant)} ago"


def _columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _json_escape(found: re.Match[str]) -> str:
    # JSON has non-ASCII characters inside strings alone, so this changes the spelling, never the meaning.
    return json.dumps(found.group())[1:-1]


def _no_room() -> NoReturn:
    """A pipe that somebody else made non-blocking, and that is full."""
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _discard_output() -> None:
    """Sends what is still buffered nowhere: Python flushes once more at its end, and would complain of it then."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)

"""C59 and R28: whoever logs whatever, no secret leaves, and an event is one line."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from switchboard import log, masking

MARK = "hunter2hunter2"

# A text, and what may be left of it.
SECRETS = [
    (f"Bearer sbk_{MARK}-_x", "Bearer sbk_***"),
    (f"token=sbo_{MARK}", "token=sbo_***"),
    (f"whsec_{MARK}+/==", "whsec_***"),
    (f"sbk%5F{MARK}", "sbk_***"),
    (f"POST /hooks/{MARK} 404", "POST /hooks/*** 404"),
    (f"POST /hook/{MARK}", "POST /hook/***"),
    (f"POST //hooks//{MARK}?x=1", "POST //hooks//***?x=1"),
    (f"POST /Hooks%2F{MARK}/more", "POST /Hooks%2F***"),
    (f"https://h/hooks/{MARK}", "https://h/hooks/***"),
    (f"postgresql://me:{MARK}@db.example:5432/x", "postgresql://me:***@db.example:5432/x"),
    (f"redis://:{MARK}@h/0", "redis://:***@h/0"),
    (f"postgres://me:a@b/{MARK}@h/db", "postgres://me:***@h/db"),
    (f"host=h password={MARK} dbname=x", "host=h password=*** dbname=x"),
    (f"password='it\\'s {MARK}' dbname=x", "password=*** dbname=x"),
    (f'{{"password": "a {MARK}", "b": 1}}', '{"password": ***, "b": 1}'),
    (f"PGPASSWORD={MARK}", "PGPASSWORD=***"),
    (f"Authorization: Basic {MARK}", "Authorization: Basic ***"),
    (f"secret = {MARK}", "secret = ***"),
]

HARMLESS = [
    "GET /v1/todos?queue=a@b 200",
    "http://127.0.0.1:8080/board",
    "/hooks",
    "a webhook was created",
    "the password is wrong",
    "2026-01-01T00:00:00Z me@example.com",
]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The house's log as a pipe gets it; everything is put back afterwards."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    stream = io.StringIO()
    log.configure(stream=stream)
    yield Lines(stream)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)


class Lines:
    def __init__(self, stream: io.StringIO) -> None:
        self.stream = stream

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def only(self) -> dict[str, Any]:
        (line,) = self.text.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(("text", "left"), SECRETS)
def test_a_secret_is_hidden_and_the_rest_stays(text: str, left: str) -> None:
    """What helps the reader stays, the secret does not."""
    assert masking.mask(text) == left
    assert MARK not in masking.mask(f"before {text} after")


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    """A masked log that hides everything helps nobody."""
    assert masking.mask(text) == text


def test_an_event_is_one_json_line_with_time_and_level(lines: Lines) -> None:
    """Not a terminal: JSON, the time in UTC, when and what first."""
    structlog.get_logger("x").info("todo made", queue="builds", count=3, ok=True, nothing=None)
    event = lines.only()
    assert list(event)[:3] == ["timestamp", "level", "event"]
    assert datetime.fromisoformat(event.pop("timestamp")).tzinfo == UTC
    assert event == {
        "level": "info", "event": "todo made", "queue": "builds", "count": 3, "ok": True, "nothing": None,
    }  # fmt: skip


@pytest.mark.parametrize("text", [text for text, _ in SECRETS])
def test_c59_no_secret_in_any_value(lines: Lines, text: str) -> None:
    """As the event, a value, a key, bytes, deep inside, in an object's words, in an exception and in its cause."""

    class Thing:
        def __repr__(self) -> str:
            return f"<Thing {text}>"

    logger = structlog.get_logger("x")
    logger.warning(text)
    logger.warning("e", value=text, raw=text.encode(), deep=[{"a": (text, {text})}], thing=Thing(), **{text: 1})
    error = ExceptionGroup(text, [KeyError(text)])
    error.__cause__ = ValueError(text)
    try:
        fail(error)
    except ExceptionGroup:
        logger.exception("failed")
        logger.exception("failed", exc_info=error, error=error)
    logging.getLogger("hypercorn.error").error("Error in %s", text)
    logging.getLogger("quart.app").error(f"Exception on request {text}", exc_info=ValueError(text))
    assert len(lines.text.splitlines()) == 6
    assert MARK not in lines.text


def test_values_under_a_secret_key_are_hidden_whatever_they_are(lines: Lines) -> None:
    """A name says enough: password, secret, credential, authorization, token."""
    structlog.get_logger("x").info(
        "e", password=MARK, db={"password": [MARK]}, credential=MARK.encode(), Authorization=MARK, token=MARK, tokens=7
    )
    assert MARK not in lines.text
    assert lines.only()["tokens"] == 7


def test_an_exception_is_one_field(lines: Lines) -> None:
    """With its traceback, in one line."""
    try:
        fail(ValueError("no"))
    except ValueError:
        structlog.get_logger("x").exception("failed", actor="reaper")
    event = lines.only()
    assert event["traceback"].startswith("Traceback (most recent call last)")
    assert event["traceback"].endswith("ValueError: no\n")
    assert event["actor"] == "reaper"


def test_the_standard_library_goes_the_same_way(lines: Lines) -> None:
    """What hypercorn and quart say has the same shape, and the name of who said it."""
    logging.getLogger("hypercorn.error").warning("Oops %d", 7)
    logging.getLogger("hypercorn.error").debug("not this")
    event = lines.only()
    assert (event["event"], event["level"], event["logger"]) == ("Oops 7", "warning", "hypercorn.error")


def test_nobody_breaks_a_line_or_fills_the_disk(lines: Lines) -> None:
    """Line breaks in a value stay inside it; a value is cut; a structure that contains itself ends."""
    loop: list[object] = []
    loop.append(loop)
    structlog.get_logger("x").info("a\nb", value="x\n" * 99_999, loop=loop, many=list(range(1_000)))
    event = lines.only()
    assert len(event["value"]) < masking.VALUE_CHARACTERS_MAX + 10
    assert len(event["many"]) == log.ITEMS_MAX


@pytest.mark.parametrize("text", ["a" * 200_000, "a://" * 50_000, "x:" * 99_999, "/hooks/" * 30_000, "password=" * 20_000])
def test_masking_takes_no_time_whatever_the_bytes(text: str) -> None:
    """A stranger's long line must not hold up the house."""
    begun = time.perf_counter()
    masking.mask(text)
    assert time.perf_counter() - begun < 0.5


def test_a_person_gets_a_console(lines: Lines) -> None:
    """A terminal: no JSON, still one line, still masked."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    log.configure(stream=terminal)
    structlog.get_logger("x").error("failed\nfake line", dsn=f"postgres://me:{MARK}@h/x", exc_info=ValueError(MARK + "\nx"))
    (line,) = terminal.getvalue().splitlines()
    assert "dsn" in line
    assert f"me:{MARK}" not in line
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)


def test_a_closed_stream_disturbs_nobody() -> None:
    """A full disk or a closed terminal is no reason to fail a request."""

    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    try:
        log.configure(stream=Full())
        structlog.get_logger("x").error("nobody reads this")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**config)

"""Every log line of the house, configured in one place: one event, one line, no secrets.

structlog and the standard library's logging (hypercorn, quart, trio) end in the same handler, with the same processors.
R28 and SPEC-0009: nothing that could be a credential leaves through a log line, whoever wrote it.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from switchboard.masking import HIDDEN, SCANNED_CHARACTERS_MAX, mask

# Deeper than this a value is shown by its type alone; it also ends a structure that contains itself.
DEPTH_MAX = 6
ITEMS_MAX = 100

# Keys whose value is a secret whatever it looks like.
_SECRET_KEY = re.compile(
    r"(?i)(password|passwd|passphrase|secret|credential|authorization|api_?key|^token$|(?:operator|path|bearer)_token)"
)


def configure(*, stream: TextIO) -> None:
    """Send every log line of the process to `stream`: for a person where it is a terminal, else as JSON.

    Times are ISO 8601 in UTC. May be called again (the tests do); the last call wins.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        exception_as_field,
    ]
    render: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if stream.isatty():
        render = [_printable, structlog.dev.ConsoleRenderer(pad_event_to=32)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )

    handler = _QuietHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            # The foreign chain sees what the standard library's loggers wrote; ours has been through it already.
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, mask_secrets, _event_first, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor: masks every value of the event, however deep, also of types that only their repr describes."""
    return {mask(str(key)): _masked(str(key), value, DEPTH_MAX) for key, value in event.items()}


def exception_as_field(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Processor: `exc_info` becomes one text field, `traceback`, so that an event stays one line."""
    info = event.pop("exc_info", None)
    if not info:
        return event
    error = info if isinstance(info, BaseException) else (info[1] if isinstance(info, tuple) else sys.exc_info()[1])
    if error is not None:
        event["traceback"] = "".join(traceback.format_exception(error))
    return event


class _QuietHandler(logging.StreamHandler[TextIO]):
    """A stream handler for which a full disk or a closed terminal is no reason to disturb whoever logs."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        """Drop the line: there is nowhere left to complain to, and the house goes on."""


def _masked(key: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if _SECRET_KEY.search(key):
        return HIDDEN
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, (bytes, bytearray)):
        return mask(bytes(value[:SCANNED_CHARACTERS_MAX]).decode("utf-8", "backslashreplace"))
    if depth == 0:
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        some = list(value.items())[:ITEMS_MAX]
        return {mask(str(name)): _masked(str(name), item, depth - 1) for name, item in some}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_masked(key, item, depth - 1) for item in list(value)[:ITEMS_MAX]]
    return mask(str(value))


def _event_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """When, how bad and what, then the rest: a person reads a JSON line from the left."""
    head = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return {**head, **event}


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """For a terminal: no line break and no control sequence of a stranger's reaches it. JSON escapes them anyway."""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

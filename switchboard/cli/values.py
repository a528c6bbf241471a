"""What a word on the command line may be, told before any house is asked. Each raises argparse's ArgumentTypeError."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from switchboard.todo import (
    ENDPOINT_NAME,
    LEASE_SECONDS_MAX,
    LIST_LIMIT_MAX,
    NOWHERE,
    OWNER_CHARS_MAX,
    QUEUE_CHARS_MAX,
    canonical_id,
)


def text(word: str) -> str:
    """Any text. Bytes that are not UTF-8 reach Python as lone surrogates, which no JSON can carry."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise ArgumentTypeError("is not UTF-8") from None
    return word


def _name_of(what: str) -> Callable[[str], str]:
    def check(word: str) -> str:
        if not ENDPOINT_NAME.fullmatch(word):
            raise ArgumentTypeError(f"{word!a} is no {what} name: 1 to 63 of a-z, 0-9, _ and -, the first a letter or a digit")
        return word

    return check


# All of them are names by the contract's one pattern.
endpoint_name = _name_of("endpoint")
adapter_name = _name_of("adapter")
webhook_name = _name_of("webhook")


def queue(word: str) -> str:
    """A queue's name: 1 to 200 characters (R27)."""
    if not 1 <= len(word) <= QUEUE_CHARS_MAX:
        raise ArgumentTypeError(f"must be 1 to {QUEUE_CHARS_MAX} characters")
    return text(word)


def owner(word: str) -> str:
    """Who a claim belongs to: 1 to 200 characters (R27)."""
    if not 1 <= len(word) <= OWNER_CHARS_MAX:
        raise ArgumentTypeError(f"must be 1 to {OWNER_CHARS_MAX} characters")
    return text(word)


def todo_id(word: str) -> str:
    """A todo's id in its one spelling (R16). Anything else would be looked for in vain, or change the path of the request."""
    if canonical_id(word) == NOWHERE:
        raise ArgumentTypeError(f"{word!a} is no todo id: they look like 0198c0de-0000-7000-8000-000000000001")
    return word


def event_id(word: str) -> str:
    """An event's id in its one spelling."""
    if canonical_id(word) == NOWHERE:
        raise ArgumentTypeError(f"{word!a} is no event id: they look like 0198c0de-0000-7000-8000-000000000001")
    return word


def limit(word: str) -> int:
    """How many rows: 1 to 200. More is refused, never silently made less (R27)."""
    return _whole(word, LIST_LIMIT_MAX)


def lease_seconds(word: str) -> int:
    """How long a claim holds between two heartbeats: 1 to 86,400 seconds (R27)."""
    return _whole(word, LEASE_SECONDS_MAX)


def _whole(word: str, high: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 9 and 1 <= int(word) <= high):
        raise ArgumentTypeError(f"must be a whole number from 1 to {high}")
    return int(word)

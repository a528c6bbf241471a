"""The command line: what may be typed, and the frozen value it becomes. No I/O but `--help` and the line on bad usage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import attrs

from switchboard.cli import grammar, output
from switchboard.cli.failures import BAD_USAGE
from switchboard.event import Disposition
from switchboard.todo import Status

Command = Literal["serve", "check", "migrate", "endpoint", "todo", "adapter", "event", "webhook", "work", "demo", "version"]
OPERATOR_COMMANDS: Final = frozenset({"endpoint", "todo", "adapter", "event", "webhook"})
"""The commands that talk to a running house: `switchboard.cli.run_operator_command` does them."""


@attrs.frozen(kw_only=True)
class Arguments:
    """One command line, checked as far as that is possible without a house. What a command does not take has its default.

    `name` is the endpoint, adapter or webhook that the command is about; `endpoint` is the filter of the lists, or what a
    webhook is routed to. `secrets` say where secrets are to be read.
    `payload` is as typed: JSON text, `@file` or `-`. `words` is the command that `work` runs for each todo.
    """

    command: Command
    action: str = ""
    config: Path | None = None
    url: str | None = None
    token: str | None = attrs.field(default=None, repr=False)
    as_json: bool = False
    name: str = ""
    queues: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    queue: str | None = None
    title: str | None = None
    payload: str | None = attrs.field(default=None, repr=False)
    key: str | None = None
    endpoint: str | None = None
    status: Status | None = None
    limit: int = grammar.LIST_LIMIT_DEFAULT
    todo_id: str = ""
    event_id: str = ""
    source: str | None = None
    disposition: Disposition | None = None
    scheme: str | None = None
    endpoints: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    secrets: tuple[str, ...] = attrs.field(default=(), converter=tuple, repr=False)
    header: str | None = None
    algorithm: str | None = None
    encoding: str | None = None
    path: bool = False
    remove: bool = False
    owner: str | None = None
    lease_seconds: int | None = None
    words: tuple[str, ...] = attrs.field(default=(), converter=tuple, repr=False)


def parse(argv: Sequence[str]) -> Arguments:
    """The command in `argv` (without the program's name); `serve` where none is given.

    Raises SystemExit: 2 after one line on standard error for bad usage, 0 after `--help`.
    """
    parser = grammar.build()
    misplaced = _option_before_command(argv)
    if misplaced is not None:
        parser.error(f"there is no {misplaced} before the command")
    namespace, unknown = parser.parse_known_args(argv)
    given = vars(namespace)
    if unknown:
        place = " ".join([grammar.PROGRAM, *(given[word] for word in ("command", "action") if given.get(word))])
        name = next((word for word in unknown if word.startswith("-")), unknown[0])
        parser.exit(BAD_USAGE, f"{place}: there is no {_option_name(name)} here. See `{place} --help`.\n")
    if given["command"] is None:
        given["command"] = "serve"
    return Arguments(**given)


def _option_before_command(argv: Sequence[str]) -> str | None:
    """An option before the command that is not ours; argparse would take its value for the command, and repeat it."""
    words = iter(argv)
    for word in words:
        if word == "--config":
            next(words, None)
        elif not word.startswith("--config="):
            return _option_name(word) if word.startswith("-") and word not in {"-h", "--help"} else None
    return None


def _option_name(word: str) -> str:
    """Only the name of an option: its value may be the secret of a mistyped --token."""
    return output.line(word.split("=")[0])

"""The commands that talk to a running house: each is asked of it over HTTP, and ends with the exit code of the shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from switchboard.cli import adapters, endpoints, events, output, todos, webhooks
from switchboard.cli.address import find_house
from switchboard.cli.arguments import Arguments
from switchboard.cli.client import OperatorClient
from switchboard.cli.endings import exit_code_of

_COMMANDS: Final[Mapping[tuple[str, str], Callable[[Arguments, OperatorClient], str | bytes]]] = {
    ("endpoint", "vend"): endpoints.vend,
    ("endpoint", "list"): endpoints.list_all,
    ("endpoint", "rotate"): endpoints.rotate,
    ("endpoint", "revoke"): endpoints.revoke,
    ("todo", "push"): todos.push,
    ("todo", "list"): todos.list_some,
    ("todo", "show"): todos.show,
    ("todo", "retry"): todos.retry,
    ("todo", "release"): todos.release,
    ("adapter", "list"): adapters.list_all,
    ("adapter", "enable"): adapters.enable,
    ("adapter", "disable"): adapters.disable,
    ("event", "list"): events.list_some,
    ("event", "show"): events.show,
    ("event", "raw"): events.raw,
    ("event", "release"): events.release,
    ("event", "replay"): events.replay,
    ("event", "discard"): events.discard,
    ("webhook", "create"): webhooks.create,
    ("webhook", "list"): webhooks.list_all,
    ("webhook", "rotate"): webhooks.rotate,
    ("webhook", "delete"): webhooks.delete,
    ("webhook", "route"): webhooks.route,
}


def run_operator_command(args: Arguments, environ: Mapping[str, str]) -> int:
    """Does one of the commands that talk to a running house (`args.command` in `arguments.OPERATOR_COMMANDS`).

    Returns the exit code: 0 done; 1 refused or not reached, 2 bad usage or configuration, each after one line on
    standard error; 130 after Ctrl-C, 141 where the reader of the output has gone. It never raises for any of these.
    """
    return exit_code_of(lambda: _ask(args, environ))


def _ask(args: Arguments, environ: Mapping[str, str]) -> None:
    with OperatorClient(find_house(args, environ)) as client:
        said = _COMMANDS[args.command, args.action](args, client)
    if isinstance(said, bytes):
        output.write_bytes(said)
    else:
        output.write(said)

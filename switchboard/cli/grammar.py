"""What may be typed: commands, options and their help, declared for argparse. `arguments` turns it into a value."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, get_args

from switchboard.cli import output, values
from switchboard.cli.failures import BAD_USAGE, DONE, CommandError, OutputClosed
from switchboard.event import Disposition
from switchboard.push.schemes import SCHEMES, Algorithm, Encoding
from switchboard.todo import LIST_LIMIT_MAX, Status

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

PROGRAM: Final = "run.py"
LIST_LIMIT_DEFAULT: Final = 50
AddParser = Callable[..., argparse.ArgumentParser]

_EXAMPLE: Final = f"""\
example:
  {PROGRAM} serve
  {PROGRAM} endpoint vend reviewer
  {PROGRAM} todo push reviewer --queue reviews --title 'Look at this' --payload '{{"commit": "5703a6d"}}'
  {PROGRAM} todo list --status dead
"""
_VEND_EXAMPLE: Final = f"""\
example:
  {PROGRAM} endpoint vend reviewer --queue reviews --queue urgent
  {PROGRAM} endpoint vend reviewer --json > reviewer.json
"""
_PUSH_EXAMPLE: Final = f"""\
example:
  {PROGRAM} todo push reviewer --queue reviews --title 'Look at this' --payload '{{"commit": "5703a6d"}}'
  {PROGRAM} todo push reviewer --queue reviews --payload @task.json --key task-17
  git log -1 --format='{{"commit": "%H"}}' | {PROGRAM} todo push reviewer --queue reviews --payload -
"""
_HOOK_EXAMPLE: Final = f"""\
example:
  {PROGRAM} webhook create pushes --scheme github --queue reviews --endpoint reviewer
  {PROGRAM} webhook create invoices --scheme stripe --queue billing --endpoint clerk --secret @stripe-secret
  {PROGRAM} webhook create builds --scheme hmac --header X-Build-Signature --queue builds --endpoint builder
"""
_WORK_EXAMPLE: Final = f"""\
It claims one todo at a time, gives it to COMMAND as JSON on standard input, and keeps its lease while COMMAND runs. Exit 0
completes it with the standard output as its result; anything else fails it with the end of the standard error.
The credential comes from the variable SWITCHBOARD_CREDENTIAL. SIGTERM or Ctrl-C ends COMMAND and gives the todo back.

example:
  SWITCHBOARD_CREDENTIAL=sbk_... {PROGRAM} work --queue reviews -- ./review.sh --quick
"""


class Parser(argparse.ArgumentParser):
    """argparse with one line for a fault, and a help that does not mind a closed pipe."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {output.line(message)}. See `{self.prog} --help`.\n")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        if file is not None:
            super().print_help(file)
            return
        try:
            output.write(self.format_help())
        except (OutputClosed, CommandError):
            sys.exit(DONE)


def build() -> Parser:
    """The whole command line. Options that are not given stay out of what it parses to, all but `command`."""
    parser = Parser(
        prog=PROGRAM,
        description="A durable work queue that AI agents reach over HTTP. Without a command: serve.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        parents=[_config_option()],
    )
    parser.set_defaults(command=None)
    add = _subcommands(parser, dest="command", required=False)
    _command(add, "serve", "migrate the database and start the house; SIGTERM or Ctrl-C ends it")
    _command(add, "check", "say all that is wrong with the configuration; starts nothing")
    _command(add, "migrate", "bring the database up to this version, and stop")
    _endpoint_commands(_command(add, "endpoint", "vend, list, rotate or revoke the endpoints that agents use"))
    _todo_commands(_command(add, "todo", "push, list, show, retry or release the work of any endpoint"))
    _adapter_commands(_command(add, "adapter", "list, enable or disable what reads from brokers"))
    _event_commands(_command(add, "event", "list or show what came in; decide about what is quarantined"))
    _webhook_commands(_command(add, "webhook", "create, list, rotate, delete or route the addresses that others push to"))
    _work_command(add)
    _command(add, "demo", "show it live: a Redis, an adapter, a producer and two agents; Ctrl-C ends all of it")
    _command(add, "version", "print the version")
    return parser


def _endpoint_commands(parser: argparse.ArgumentParser) -> None:
    add = _subcommands(parser, dest="action", required=True)
    vend = _operator_command(add, "vend", "make an endpoint and print its credential, once", example=_VEND_EXAMPLE)
    _name_of_endpoint(vend)
    queues = "a queue that it may use; may be repeated; without it, all queues"
    vend.add_argument("--queue", dest="queues", metavar="Q", action="append", type=values.queue, help=queues)
    _operator_command(add, "list", "show every endpoint, the revoked ones too")
    _name_of_endpoint(_operator_command(add, "rotate", "give an endpoint a new credential; the old one ends at once"))
    _name_of_endpoint(_operator_command(add, "revoke", "end an endpoint; its open todos are dead-lettered"))


def _todo_commands(parser: argparse.ArgumentParser) -> None:
    add = _subcommands(parser, dest="action", required=True)
    push = _operator_command(add, "push", "make a todo for an endpoint", example=_PUSH_EXAMPLE)
    push.add_argument("name", metavar="ENDPOINT", type=values.endpoint_name, help="the endpoint that it is for")
    push.add_argument("--queue", metavar="Q", required=True, type=values.queue, help="the queue to put it in")
    push.add_argument("--title", metavar="T", type=values.text, help="one line for people")
    payload = "what the agent gets: JSON text, @FILE to read a file, or - for standard input"
    push.add_argument("--payload", metavar="JSON", type=values.text, help=payload)
    key = "idempotency key: while a todo with this key is open, no second one is made"
    push.add_argument("--key", metavar="K", type=values.text, help=key)
    listing = _operator_command(add, "list", "show todos, the newest first")
    listing.add_argument("--endpoint", metavar="E", type=values.endpoint_name, help="only this endpoint's")
    listing.add_argument("--queue", metavar="Q", type=values.queue, help="only this queue's")
    listing.add_argument("--status", choices=get_args(Status), help="only those in this status")
    limit = f"how many, 1 to {LIST_LIMIT_MAX} ({LIST_LIMIT_DEFAULT} if not said)"
    listing.add_argument("--limit", metavar="N", type=values.limit, help=limit)
    _id_of_todo(_operator_command(add, "show", "show one todo: payload, result, every attempt"))
    _id_of_todo(_operator_command(add, "retry", "queue a failed todo again, its attempts counted from 0"))
    _id_of_todo(_operator_command(add, "release", "take a claimed todo from whoever holds it, back to its queue"))


def _adapter_commands(parser: argparse.ArgumentParser) -> None:
    add = _subcommands(parser, dest="action", required=True)
    _operator_command(add, "list", "show every adapter: its state, its lag, its last error")
    for verb, does in (("enable", "let an adapter consume"), ("disable", "stop an adapter, within two seconds")):
        command = _operator_command(add, verb, does)
        command.add_argument("name", metavar="NAME", type=values.adapter_name, help="the adapter's name")


def _event_commands(parser: argparse.ArgumentParser) -> None:
    add = _subcommands(parser, dest="action", required=True)
    listing = _operator_command(add, "list", "show events, the newest first")
    listing.add_argument("--endpoint", metavar="E", type=values.endpoint_name, help="only this endpoint's")
    listing.add_argument("--source", metavar="S", type=values.queue, help="only of this source, such as redis")
    listing.add_argument("--disposition", choices=get_args(Disposition), help="only those with this disposition")
    limit = f"how many, 1 to {LIST_LIMIT_MAX} ({LIST_LIMIT_DEFAULT} if not said)"
    listing.add_argument("--limit", metavar="N", type=values.limit, help=limit)
    for verb, does in (
        ("show", "show one event, with its headers"),
        ("raw", "write the bytes that came in to standard output, as they are"),
        ("replay", "make a todo of a stored event once more"),
        ("release", "store a quarantined event after all, as a todo"),
        ("discard", "make nothing of a quarantined event; it stays known"),
    ):
        command = _operator_command(add, verb, does)
        command.add_argument("event_id", metavar="ID", type=values.event_id, help="the event's id, as `event list` shows it")


def _webhook_commands(parser: argparse.ArgumentParser) -> None:
    add = _subcommands(parser, dest="action", required=True)
    where = "a secret of the sender's: @FILE, or - for standard input; may be repeated; without it one is made"
    create = _operator_command(add, "create", "make a webhook and print its address and secret, once", example=_HOOK_EXAMPLE)
    _name_of_webhook(create)
    create.add_argument("--scheme", required=True, choices=SCHEMES, help="how its sender proves itself")
    create.add_argument("--queue", metavar="Q", required=True, type=values.queue, help="the queue of its todos")
    to = "who gets a todo of each delivery; may be repeated"
    create.add_argument(
        "--endpoint", dest="endpoints", metavar="E", action="append", required=True, type=values.endpoint_name, help=to
    )
    create.add_argument("--secret", dest="secrets", metavar="S", action="append", type=values.text, help=where)
    create.add_argument("--header", metavar="H", type=values.text, help="hmac: the header that carries the signature")
    create.add_argument("--algorithm", choices=get_args(Algorithm), help="hmac: of the signature")
    create.add_argument("--encoding", choices=get_args(Encoding), help="hmac: of the signature")
    _operator_command(add, "list", "show every webhook, and whom its deliveries go to")
    rotate = _operator_command(add, "rotate", "give a webhook a new secret; the newest old one stays good until the next time")
    _name_of_webhook(rotate)
    rotate.add_argument("--secret", dest="secrets", metavar="S", action="append", type=values.text, help=where)
    rotate.add_argument("--path", action="store_true", help="a new address instead; the old one ends at once")
    _name_of_webhook(_operator_command(add, "delete", "end a webhook; what it brought stays"))
    route = _operator_command(add, "route", "let one more endpoint have a todo of each delivery")
    _name_of_webhook(route)
    route.add_argument("endpoint", metavar="ENDPOINT", type=values.endpoint_name, help="the endpoint")
    route.add_argument("--remove", action="store_true", help="no more, instead of one more")


def _work_command(add: AddParser) -> None:
    does = "be a worker: run a command for each todo of a queue"
    work = add("work", parents=[_config_option(), _url_option()], epilog=_WORK_EXAMPLE, **_help(does))
    work.add_argument("--queue", metavar="Q", required=True, type=values.queue, help="the queue to work on")
    work.add_argument("--owner", metavar="O", type=values.owner, help="who claims; else the endpoint's name")
    lease = "how long a claim holds between two heartbeats, 1 to 86400 seconds; else the house says it"
    work.add_argument("--lease-seconds", metavar="N", type=values.lease_seconds, help=lease)
    work.add_argument("words", metavar="COMMAND", nargs="+", help="the program and its words, after `--`")


def _subcommands(parser: argparse.ArgumentParser, *, dest: str, required: bool) -> AddParser:
    return parser.add_subparsers(
        dest=dest, required=required, metavar=dest.upper(), title=f"{dest}s", parser_class=Parser
    ).add_parser


def _command(add: AddParser, name: str, does: str) -> argparse.ArgumentParser:
    return add(name, parents=[_config_option()], **_help(does))


def _operator_command(add: AddParser, name: str, does: str, *, example: str = "") -> argparse.ArgumentParser:
    parser = add(name, parents=[_config_option(), _url_option()], epilog=example, **_help(does))
    proof = "the operator token; others on this machine can see it here, so rather SWITCHBOARD_TOKEN or the state directory's"
    parser.add_argument("--token", help=proof)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON for programs")
    return parser


def _help(does: str) -> dict[str, object]:
    return {
        "help": does,
        "description": f"{does[0].upper()}{does[1:]}.",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
        # What is not given stays out of the result: a default here would overwrite a --config before the command.
        "argument_default": argparse.SUPPRESS,
    }


def _config_option() -> argparse.ArgumentParser:
    option = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    option.add_argument("--config", metavar="FILE", type=Path, help="the configuration; else ./switchboard.toml if it is there")
    return option


def _url_option() -> argparse.ArgumentParser:
    option = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    option.add_argument("--url", help="the house's address; else SWITCHBOARD_URL, else the configuration says it")
    return option


def _name_of_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=values.endpoint_name, help="the endpoint's name")


def _name_of_webhook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=values.webhook_name, help="the webhook's name")


def _id_of_todo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("todo_id", metavar="ID", type=values.todo_id, help="the todo's id, as `todo list` shows it")

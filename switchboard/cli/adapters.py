"""`adapter list | enable | disable`: each makes one request and returns the text to print."""

from __future__ import annotations

from switchboard.cli import output
from switchboard.cli.arguments import Arguments
from switchboard.cli.client import OperatorClient
from switchboard.cli.replies import AdapterList, AdapterReply


def list_all(args: Arguments, client: OperatorClient) -> str:
    """Every adapter, by name, with the reason under each that is not well."""
    answer = client.get("/adapters")
    if args.as_json:
        return output.json_text(answer.text)
    adapters = answer.read(AdapterList).adapters
    if not adapters:
        return "There is no adapter: [[adapters]] in the configuration makes one.\n"
    head = ("NAME", "TRANSPORT", "STATE", "LAG", "STORED", "TWICE", "QUARANTINED", "LOST", "LAST MESSAGE", "LAST ERROR")
    rows = [
        (
            adapter.name,
            adapter.transport,
            adapter.state,
            "-" if adapter.lag is None else str(adapter.lag),
            str(adapter.stored),
            str(adapter.duplicates),
            str(adapter.quarantined),
            str(adapter.lost_at_source),
            output.moment(adapter.last_message_at, answer.now),
            "-" if adapter.last_error is None else output.printable(adapter.last_error),
        )
        for adapter in adapters
    ]
    return output.table(head, rows)


def enable(args: Arguments, client: OperatorClient) -> str:
    """Lets an adapter consume."""
    return _switch(args, client, "enable", "it consumes within two seconds")


def disable(args: Arguments, client: OperatorClient) -> str:
    """Stops an adapter, in every process."""
    return _switch(args, client, "disable", "it stops within two seconds, and what it was working on is kept by its broker")


def _switch(args: Arguments, client: OperatorClient, verb: str, then: str) -> str:
    answer = client.post(f"/adapters/{args.name}/{verb}")
    if args.as_json:
        return output.json_text(answer.text)
    return f"Adapter {answer.read(AdapterReply).adapter.name} is {verb}d: {then}.\n"

"""`event list | show | raw | replay | release | discard`: each makes one request and returns what to print."""

from __future__ import annotations

from switchboard.cli import output, payload
from switchboard.cli.arguments import Arguments
from switchboard.cli.client import OperatorClient
from switchboard.cli.replies import Event, EventList, EventReply, Pushed
from switchboard.todo import LIST_LIMIT_MAX


def list_some(args: Arguments, client: OperatorClient) -> str:
    """The newest events that match."""
    wanted = {"endpoint": args.endpoint, "source": args.source, "disposition": args.disposition, "limit": str(args.limit)}
    answer = client.get("/events", {name: value for name, value in wanted.items() if value is not None})
    if args.as_json:
        return output.json_text(answer.text)
    listed = answer.read(EventList)
    if not listed.events:
        return "There is no such event.\n"
    head = ("ID", "ENDPOINT", "SOURCE", "ADAPTER", "DISPOSITION", "AGE", "BYTES", "KEY", "ERROR")
    rows = [
        (
            event.id,
            event.endpoint,
            output.cell(event.source),
            output.cell(event.adapter),
            event.disposition,
            output.duration(answer.now - event.received_at),
            str(event.size),
            output.cell(event.external_id),
            output.cell(event.error),
        )
        for event in listed.events
    ]
    more = f"There are more: narrow the list, or ask for up to {LIST_LIMIT_MAX} with --limit.\n"
    return output.table(head, rows) + (more if listed.next_cursor is not None else "")


def show(args: Arguments, client: OperatorClient) -> str:
    """One event with all that is known of it but its bytes."""
    answer = client.get(f"/events/{args.event_id}")
    if args.as_json:
        return output.json_text(answer.text)
    event = answer.read(EventReply).event
    facts = {
        "event": event.id,
        "endpoint": event.endpoint,
        "source": event.source,
        "adapter": event.adapter,
        "queue": event.queue,
        "trust": f"{event.trust_mode}, {'verified' if event.verified else 'not verified'}: {event.verify_detail or '-'}",
        "disposition": event.disposition,
        "error": event.error,
        "key": event.external_id,
        "bytes": str(event.size),
        "received": f"{event.received_at:%Y-%m-%dT%H:%M:%SZ} ({output.moment(event.received_at, answer.now)})",
        "todo": ", ".join(event.todo_ids),
    }
    text = "".join(f"{name:<13}{output.printable(value)}\n" for name, value in facts.items() if value)
    headers = bytes(event.headers).decode("utf-8")
    if headers not in {"", "null"}:
        text += "\nheaders\n" + "".join(f"  {line}\n" for line in payload.pretty(headers).split("\n"))
    return text


def raw(args: Arguments, client: OperatorClient) -> bytes:
    """The bytes that came in, as they are."""
    return client.get(f"/events/{args.event_id}/raw").body


def release(args: Arguments, client: OperatorClient) -> str:
    """quarantined -> a todo after all."""
    event, said = _decided(args, client, "release")
    return said or f"Event {event.id} is {event.disposition}: todo {', '.join(event.todo_ids)} of endpoint {event.endpoint}.\n"


def replay(args: Arguments, client: OperatorClient) -> str:
    """A todo of a stored event once more."""
    answer = client.post(f"/events/{args.event_id}/replay")
    if args.as_json:
        return output.json_text(answer.text)
    made = answer.read(Pushed)
    if made.created:
        return f"Todo {made.todo.id} is pending in the queue {output.cell(made.todo.queue)}.\n"
    return f"Todo {made.todo.id} of this event is still open: no second one was made.\n"


def discard(args: Arguments, client: OperatorClient) -> str:
    """quarantined -> nothing; it stays known."""
    event, said = _decided(args, client, "discard")
    return said or f"Event {event.id} is discarded; its bytes are kept until it is pruned.\n"


def _decided(args: Arguments, client: OperatorClient, verb: str) -> tuple[Event, str | None]:
    answer = client.post(f"/events/{args.event_id}/{verb}")
    event = answer.read(EventReply).event
    return event, output.json_text(answer.text) if args.as_json else None

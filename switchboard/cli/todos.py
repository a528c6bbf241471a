"""`todo push | list | show | retry | release`: each returns the text to print."""

from __future__ import annotations

import json
from datetime import datetime

from switchboard.cli import output, payload
from switchboard.cli.arguments import Arguments
from switchboard.cli.client import OperatorClient
from switchboard.cli.endpoints import names_by_id
from switchboard.cli.grammar import PROGRAM
from switchboard.cli.replies import Attempt, Pushed, Todo, TodoList, TodoReply
from switchboard.todo import LIST_LIMIT_MAX


def push(args: Arguments, client: OperatorClient) -> str:
    """Makes a todo, or finds its live twin of the same key. Raises UsageError where the payload is none."""
    given = {"endpoint": args.name, "queue": args.queue, "title": args.title, "idempotency_key": args.key}
    body = json.dumps({name: value for name, value in given.items() if value is not None})
    if args.payload is not None:
        # Spliced in as text: decoding and encoding it again would cost big integers and repeated keys.
        body = f'{body[:-1]}, "payload": {payload.read(args.payload)}}}'
    answer = client.post("/todos", body)
    if args.as_json:
        return output.json_text(answer.text)
    pushed = answer.read(Pushed)
    todo = pushed.todo
    if pushed.created:
        return f"Todo {todo.id} waits in queue {output.printable(todo.queue)} of endpoint {args.name}.\n"
    return (
        f"Todo {todo.id} has this key already: it is {todo.status} in queue {output.printable(todo.queue)} "
        f"of endpoint {args.name}, and no second one was made.\n"
    )


def list_some(args: Arguments, client: OperatorClient) -> str:
    """The newest todos that match, of any endpoint where none is named."""
    wanted = {"endpoint": args.endpoint, "queue": args.queue, "status": args.status, "limit": str(args.limit)}
    answer = client.get("/todos", {name: value for name, value in wanted.items() if value is not None})
    if args.as_json:
        return output.json_text(answer.text)
    listed = answer.read(TodoList)
    if not listed.todos:
        return "No todo matches.\n"
    names = {} if args.endpoint is not None else names_by_id(client)
    head = ("ID", "ENDPOINT", "QUEUE", "STATUS", "ATTEMPT", "AGE", "OWNER", "TITLE")
    rows = [
        (
            todo.id,
            args.endpoint or names.get(todo.endpoint_id, todo.endpoint_id),
            output.cell(todo.queue),
            todo.status,
            f"{todo.attempt}/{todo.max_attempts}",
            output.duration(answer.now - todo.created_at),
            output.cell(todo.owner),
            output.cell(todo.title),
        )
        for todo in listed.todos
    ]
    more = f"There are more: narrow the list, or ask for up to {LIST_LIMIT_MAX} with --limit.\n"
    return output.table(head, rows) + (more if listed.next_cursor is not None else "")


def show(args: Arguments, client: OperatorClient) -> str:
    """One todo with all that is known of it."""
    answer = client.get(f"/todos/{args.todo_id}")
    if args.as_json:
        return output.json_text(answer.text)
    todo = answer.read(TodoReply).todo
    endpoint = names_by_id(client).get(todo.endpoint_id, todo.endpoint_id)
    parts = [_facts(todo, endpoint, answer.now)]
    if todo.error is not None:
        parts.append("error\n" + "".join(f"  {output.printable(line)}\n" for line in todo.error.splitlines()))
    for name, raw in (("payload", todo.payload), ("result", todo.result)):
        text = bytes(raw).decode("utf-8")
        if text not in {"", "null"}:
            parts.append(f"{name}\n" + "".join(f"  {line}\n" for line in payload.pretty(text).split("\n")))
    parts.append(_history(todo.attempts, answer.now))
    return "\n".join(parts)


def retry(args: Arguments, client: OperatorClient) -> str:
    """failed -> pending, its attempts counted from 0 (R8)."""
    return _moved(args, client, "retry")


def release(args: Arguments, client: OperatorClient) -> str:
    """claimed -> pending, whoever holds it; dead-lettered instead at the attempt cap (R7)."""
    return _moved(args, client, "release")


def _moved(args: Arguments, client: OperatorClient, verb: str) -> str:
    answer = client.post(f"/todos/{args.todo_id}/{verb}")
    if args.as_json:
        return output.json_text(answer.text)
    todo = answer.read(TodoReply).todo
    where = f"queue {output.printable(todo.queue)}, attempt {todo.attempt} of {todo.max_attempts}"
    said = f"Todo {todo.id} is {todo.status} in {where}."
    if verb == "release" and todo.status == "dead":
        said += f" That was its last attempt: `{PROGRAM} todo retry {todo.id}` queues it again."
    return f"{said}\n"


def _facts(todo: Todo, endpoint: str, now: datetime) -> str:
    """The short facts, one a line; what is not there is left out."""
    status: str = todo.status
    if todo.status == "retrying":
        status += f" (due {output.moment(todo.next_retry_at, now)})"
    if todo.status == "claimed":
        status += f" (lease ends {output.moment(todo.lease_expires_at, now)})"
    facts = {
        "todo": todo.id,
        "title": todo.title,
        "status": status,
        "endpoint": endpoint,
        "queue": todo.queue,
        "kind": todo.kind,
        "source": todo.source,
        "key": todo.idempotency_key,
        "attempt": f"{todo.attempt} of {todo.max_attempts}",
        "owner": todo.owner,
        "assignee": todo.assignee,
        "created": _when(todo.created_at, now),
        "claimed": _when(todo.claimed_at, now),
        "ended": _when(todo.completed_at, now),
    }
    return "".join(f"{name:<10}{output.printable(value)}\n" for name, value in facts.items() if value)


def _when(instant: datetime | None, now: datetime) -> str | None:
    return None if instant is None else f"{instant:%Y-%m-%dT%H:%M:%SZ} ({output.moment(instant, now)})"


def _history(attempts: tuple[Attempt, ...], now: datetime) -> str:
    if not attempts:
        return "no attempts yet\n"
    rows = [
        (
            str(attempt.attempt),
            output.cell(attempt.owner),
            output.moment(attempt.claimed_at, now),
            output.duration((attempt.ended_at or now) - attempt.claimed_at),
            attempt.outcome or "under way",
            output.cell(attempt.error),
        )
        for attempt in attempts
    ]
    return "attempts\n" + output.table(("ATTEMPT", "OWNER", "CLAIMED", "TOOK", "OUTCOME", "ERROR"), rows)

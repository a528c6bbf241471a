"""What agents do with todos that they do not hold: create, look, retry, and see what their queues hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import attrs

from switchboard.brief_memory import BriefMemory
from switchboard.commands import Command, Created, CreateTodo, Moved, Outcome, Retry, rings_of
from switchboard.database.border import Session
from switchboard.endpoint import Endpoint
from switchboard.errors import Forbidden, NotFound, QueueError
from switchboard.http import requests, wire
from switchboard.http.call import Call, Ledger, Reply, RingBell, Transact
from switchboard.rounds import rounds_of
from switchboard.store import reading, retrying
from switchboard.store.reading import QueueCounts, TodoFilter
from switchboard.todo import Attempt, Todo

COUNTS_SECONDS: Final = 1.0
"""Counting reads a whole history, so it is done at most once in this time for each endpoint."""
COUNTS_MAX: Final = 1_000
ANSWER_PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Defaults:
    """What the server takes where a request says nothing."""

    lease_seconds: int
    max_attempts: int
    payload_bytes: int


class AgentTodos:
    """Handlers of the agents' routes around todos."""

    def __init__(self, *, ledger: Ledger, transact: Transact, defaults: Defaults, ring: RingBell) -> None:
        self._ledger = ledger
        self._transact = transact
        self._defaults = defaults
        self._ring = ring
        self._counts: BriefMemory[UUID, list[QueueCounts]] = BriefMemory(seconds=COUNTS_SECONDS, entries_max=COUNTS_MAX)

    async def create(self, call: Call[requests.CreateTodoBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos`. SPEC-0003 Idempotent Enqueue and Dedup."""
        outcome = await self._ledger.submit_one(create_command(call.endpoint, call.body, self._defaults))
        return created_reply(outcome)

    async def create_batch(self, call: Call[requests.CreateBatchBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/batch`: each item has its own outcome, in order."""
        outcomes: dict[int, Outcome] = {}
        commands: dict[int, CreateTodo] = {}
        for place, body in enumerate(call.body.todos):
            try:
                commands[place] = create_command(call.endpoint, body, self._defaults)
            except Forbidden as refused:
                outcomes[place] = refused
        places = list(commands)
        for together in rounds_of([commands[place].idempotency_key for place in places]):
            mine = [places[index] for index in together]
            answers = await self._ledger.submit([commands[place] for place in mine])
            outcomes |= dict(zip(mine, answers, strict=True))
        return results_reply([outcomes[place] for place in range(len(call.body.todos))])

    async def get(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`GET /v1/todos/{id}`, with its history."""
        found = await self._transact(partial(_find, endpoint=call.endpoint, todo_id=call.path["id"]))
        if found is None:
            raise NotFound
        todo, attempts = found
        return Reply(content=wire.TodoReply(todo=wire.todo_out(todo, attempts=attempts)))

    async def list_todos(self, call: Call[requests.NoBody, requests.ListQuery]) -> Reply:
        """`GET /v1/todos`: newest first, a page at a time."""
        endpoint, query = call.endpoint, call.query
        wanted = filter_of(query)
        todos = await self._transact(lambda session: reading.list_todos(session, endpoint.id, endpoint.queues, wanted))
        return page_reply(todos, query.limit)

    async def retry(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/{id}/retry` (R8)."""
        command = Retry(endpoint_id=call.endpoint.id, todo_id=call.path["id"])
        return await retry_reply(command, transact=self._transact, ring=self._ring)

    async def queues(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`GET /v1/queues`: what each queue of the endpoint holds, at most a second old."""
        endpoint = call.endpoint
        counts = await self._counts.get(
            endpoint.id,
            lambda: self._transact(lambda session: reading.count_queues(session, endpoint.id, endpoint.queues)),
        )
        return Reply(content=wire.QueuesReply(queues=[wire.queue_out(count) for count in counts]))

    async def whoami(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`GET /v1/whoami`."""
        endpoint = call.endpoint
        return Reply(
            content=wire.WhoamiReply(
                endpoint=endpoint.name,
                id=endpoint.id,
                queues=None if endpoint.queues is None else list(endpoint.queues),
                defaults=wire.DefaultsOut(
                    lease_seconds=self._defaults.lease_seconds,
                    max_attempts=self._defaults.max_attempts,
                    payload_bytes=self._defaults.payload_bytes,
                ),
            )
        )


def _find(session: Session, *, endpoint: Endpoint, todo_id: str) -> tuple[Todo, list[Attempt]] | None:
    return reading.find_with_history(session, endpoint.id, todo_id)


def create_command(endpoint: Endpoint, body: requests.CreateTodoBody, defaults: Defaults, *, source: str = "api") -> CreateTodo:
    """The command in a create's body. Raises `Forbidden` for a queue out of the endpoint's scope."""
    if not endpoint.may_use(body.queue):
        raise Forbidden(detail=f"Endpoint {endpoint.name} may not use the queue {body.queue!r}.")
    return CreateTodo(
        endpoint_id=endpoint.id,
        queue=body.queue,
        title=body.title,
        kind=body.kind,
        payload=requests.text_of(body.payload),
        idempotency_key=body.idempotency_key,
        assignee=body.assignee,
        max_attempts=body.max_attempts or defaults.max_attempts,
        source=source,
    )


def created_reply(outcome: Outcome) -> Reply:
    """201 for a new todo, 200 for its live twin."""
    if not isinstance(outcome, Created):
        raise TypeError(f"a create ended as {type(outcome).__name__}")
    content = wire.CreatedReply(todo=wire.todo_out(outcome.todo), created=outcome.created)
    return Reply(content=content, status=201 if outcome.created else 200)


def filter_of(query: requests.ListQuery) -> TodoFilter:
    """What a listing's query asks for, and one row more, which tells whether there is another page."""
    return TodoFilter(queue=query.queue, state=query.state, status=query.status, before=query.cursor, limit=query.limit + 1)


def page_reply(todos: Sequence[Todo], limit: int) -> Reply:
    """A page, and the cursor of the next one where there is one."""
    shown = [wire.todo_out(todo) for todo in todos[:limit]]
    return Reply(content=wire.PageReply(todos=shown, next_cursor=shown[-1].id if len(todos) > limit else None))


def results_reply(outcomes: Sequence[Outcome], to_claimer: Sequence[bool] | None = None) -> Reply:
    """The outcomes of a batch in order. Payloads stop at `ANSWER_PAYLOAD_BYTES_MAX`; after that only their sizes are sent."""
    payload_bytes = 0
    results: list[wire.ResultOut] = []
    for outcome, shows_token in zip(outcomes, to_claimer or [False] * len(outcomes), strict=True):
        if isinstance(outcome, QueueError):
            results.append(wire.ResultOut(error=wire.problem_out(outcome)))
        elif isinstance(outcome, Created):
            payload_bytes += outcome.todo.payload_bytes
            todo = outcome.todo
            if payload_bytes > ANSWER_PAYLOAD_BYTES_MAX:
                todo = attrs.evolve(todo, payload=None, payload_read=False)
            results.append(wire.ResultOut(todo=wire.todo_out(todo), created=outcome.created))
        elif isinstance(outcome, Moved):
            results.append(wire.ResultOut(todo=wire.todo_out(outcome.todo, to_claimer=shows_token)))
        else:
            raise TypeError(f"an item of a batch ended as {type(outcome).__name__}")
    return Reply(content=wire.ResultsReply(results=results))


async def retry_reply(command: Retry, *, transact: Transact, ring: RingBell) -> Reply:
    """Runs an explicit retry, and rings after its commit."""
    outcome = await transact(lambda session: retrying.retry(session, command))
    if isinstance(outcome, QueueError):
        raise outcome
    if not isinstance(outcome, Moved):
        raise TypeError(f"a retry ended as {type(outcome).__name__}")
    ring_after(command, outcome, ring)
    return Reply(content=wire.TodoReply(todo=wire.todo_out(outcome.todo)))


def ring_after(command: Command, outcome: Outcome, ring: RingBell) -> None:
    """Rings for an outcome that has committed."""
    for owed in rings_of(command, outcome):
        ring(owed)

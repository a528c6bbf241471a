"""The operator's routes around todos, over every endpoint. Each verb finds out whose todo it is and runs in that scope."""

from __future__ import annotations

from functools import partial
from typing import Final
from uuid import UUID

from switchboard.commands import ClaimOne, Complete, Fail, Moved, Outcome, Release, Retry
from switchboard.database.border import Session
from switchboard.errors import Conflict, QueueError
from switchboard.http import requests, wire
from switchboard.http.agent_claims import claimed_one_reply
from switchboard.http.agent_todos import Defaults, create_command, created_reply, filter_of, page_reply, retry_reply, ring_after
from switchboard.http.call import Call, Ledger, Reply, RingBell, Transact
from switchboard.store import operator, retrying
from switchboard.store.operator import RetryFilter
from switchboard.todo import NOWHERE

OPERATOR: Final = "operator"
RETRIES_IN_ONE_COMMIT: Final = 100
RETRIES_LOOKED_AT_MAX: Final = 10_000
"""Candidates that one call of a bulk retry looks at, retried or not."""


class OperatorTodos:
    """Handlers of the operator's routes around todos."""

    def __init__(self, *, ledger: Ledger, transact: Transact, defaults: Defaults, ring: RingBell) -> None:
        self._ledger = ledger
        self._transact = transact
        self._defaults = defaults
        self._ring = ring

    async def create(self, call: Call[requests.OperatorCreateTodoBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos`: a todo for the endpoint that the body names."""
        name = call.body.endpoint
        endpoint = await self._transact(partial(operator.endpoint_named, name=name))
        if endpoint.revoked_at is not None:
            raise Conflict(detail=f"Endpoint {name} was revoked; it takes no more todos.")
        command = create_command(endpoint, call.body, self._defaults, source=OPERATOR)
        return created_reply(await self._ledger.submit_one(command))

    async def list_todos(self, call: Call[requests.NoBody, requests.OperatorListQuery]) -> Reply:
        """`GET /operator/v1/todos`: of every endpoint, or of one."""
        query = call.query
        endpoint_id: UUID | None = None
        if query.endpoint is not None:
            endpoint_id = (await self._transact(partial(operator.endpoint_named, name=query.endpoint))).id
        wanted = filter_of(query)
        todos = await self._transact(lambda session: operator.list_todos_any_endpoint(session, endpoint_id, wanted))
        return page_reply(todos, query.limit)

    async def get(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`GET /operator/v1/todos/{id}`, with its history."""
        todo_id = call.path["id"]
        todo, attempts = await self._transact(lambda session: operator.get_todo_any_endpoint(session, todo_id))
        return Reply(content=wire.TodoReply(todo=wire.todo_out(todo, attempts=attempts)))

    async def claim(self, call: Call[requests.ClaimOneBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos/{id}/claim`."""
        command = ClaimOne(
            endpoint_id=await self._endpoint_of(call.path["id"]),
            todo_id=call.path["id"],
            owner=call.body.owner or OPERATOR,
            lease_seconds=call.body.lease_seconds or self._defaults.lease_seconds,
        )
        return claimed_one_reply(await self._ledger.submit_one(command))

    async def complete(self, call: Call[requests.CompleteItemBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos/{id}/complete`; without a guard, whoever holds it."""
        command = Complete(
            endpoint_id=await self._endpoint_of(call.path["id"]),
            todo_id=call.path["id"],
            owner=call.body.owner,
            lease_token=call.body.lease_token,
            result=requests.text_of(call.body.result),
        )
        return _moved_reply(await self._ledger.submit_one(command))

    async def fail(self, call: Call[requests.FailBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos/{id}/fail`; without a guard, whoever holds it."""
        command = Fail(
            endpoint_id=await self._endpoint_of(call.path["id"]),
            todo_id=call.path["id"],
            owner=call.body.owner,
            lease_token=call.body.lease_token,
            error=call.body.error,
        )
        return _moved_reply(await self._ledger.submit_one(command))

    async def release(self, call: Call[requests.ReleaseBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos/{id}/release`, also another's stuck lease."""
        command = Release(
            endpoint_id=await self._endpoint_of(call.path["id"]),
            todo_id=call.path["id"],
            owner=call.body.owner,
            lease_token=call.body.lease_token,
        )
        return _moved_reply(await self._ledger.submit_one(command))

    async def retry(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos/{id}/retry`."""
        command = Retry(endpoint_id=await self._endpoint_of(call.path["id"]), todo_id=call.path["id"])
        return await retry_reply(command, transact=self._transact, ring=self._ring)

    async def retry_many(self, call: Call[requests.RetryManyBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/todos/retry`: every failed todo that the filter means, oldest first, up to `limit`."""
        body = call.body
        endpoint_id: UUID | None = None
        if body.endpoint is not None:
            endpoint_id = (await self._transact(partial(operator.endpoint_named, name=body.endpoint))).id
        wanted = RetryFilter(endpoint_id=endpoint_id, queue=body.queue, status=body.status, before=body.before)
        retried = conflicts = 0
        after, left = NOWHERE, body.limit
        while left > 0:
            batch = partial(_retry_batch, wanted=wanted, after=after, limit=min(left, RETRIES_IN_ONE_COMMIT))
            outcomes = await self._transact(batch)
            for command, outcome in outcomes:
                ring_after(command, outcome, self._ring)
                retried += isinstance(outcome, Moved)
                conflicts += isinstance(outcome, QueueError)
            if len(outcomes) < min(left, RETRIES_IN_ONE_COMMIT):
                break
            # What could not be retried does not count: else the same conflicts would fill every call.
            after, left = outcomes[-1][0].todo_id, body.limit - retried
            if retried + conflicts >= RETRIES_LOOKED_AT_MAX:
                break
        return Reply(content=wire.RetriedReply(retried=retried, conflicts=conflicts))

    async def _endpoint_of(self, todo_id: str) -> UUID:
        return await self._transact(lambda session: operator.endpoint_of_todo(session, todo_id))


def _retry_batch(session: Session, *, wanted: RetryFilter, after: UUID, limit: int) -> list[tuple[Retry, Outcome]]:
    places = operator.retriable_any_endpoint(session, wanted, after=after, limit=limit)
    commands = [Retry(endpoint_id=endpoint_id, todo_id=todo_id) for endpoint_id, todo_id in places]
    return [(command, retrying.retry(session, command)) for command in commands]


def _moved_reply(outcome: Outcome) -> Reply:
    if not isinstance(outcome, Moved):
        raise TypeError(f"a holder's verb ended as {type(outcome).__name__}")
    return Reply(content=wire.TodoReply(todo=wire.todo_out(outcome.todo)))

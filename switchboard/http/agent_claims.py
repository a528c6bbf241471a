"""What agents do to hold todos: claim them, by id or the next ones, and the verbs of a claim's holder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import attrs
import trio

from switchboard.commands import (
    Claimed,
    ClaimNext,
    ClaimOne,
    Complete,
    Fail,
    Heartbeat,
    HolderVerb,
    Moved,
    Outcome,
    Release,
)
from switchboard.endpoint import Endpoint
from switchboard.errors import Forbidden, Unauthorized
from switchboard.http import requests, wire
from switchboard.http.agent_todos import Defaults, results_reply
from switchboard.http.call import Call, Ledger, Reply
from switchboard.rounds import rounds_of
from switchboard.todo import NOWHERE, Ring, Todo
from switchboard.waiting_room import QUIET_SECONDS_MAX, Waiter, WaitingRoom

V = TypeVar("V", bound=HolderVerb)


class AgentClaims:
    """Handlers of the agents' routes around claims."""

    def __init__(self, *, ledger: Ledger, defaults: Defaults, room: WaitingRoom) -> None:
        self._ledger = ledger
        self._defaults = defaults
        self._room = room

    async def claim(self, call: Call[requests.ClaimBody, requests.NoQuery]) -> Reply:
        """`POST /v1/claims`: the next todos, waiting up to `wait_seconds` for the first."""
        endpoint, body = call.endpoint, call.body
        command = ClaimNext(
            endpoint_id=endpoint.id,
            owner=body.owner or endpoint.name,
            lease_seconds=body.lease_seconds or self._defaults.lease_seconds,
            queues=queues_in_scope(endpoint, body.chosen()),
            limit=body.max,
        )
        claimed = await self._claim_waiting(command, body.wait_seconds, call.credential_sha256)
        return Reply(content=wire.TodosReply(todos=_to_claimer(claimed.todos)), claims=claimed.todos)

    async def _claim_waiting(self, command: ClaimNext, wait_seconds: float, credential_sha256: bytes) -> Claimed:
        """Claims; with nothing there, waits for a ring and tries again. A wait holds no connection and no thread."""
        if not wait_seconds:
            return await self._claim_now(command)
        waiter = Waiter(
            endpoint_id=command.endpoint_id,
            credential_sha256=credential_sha256,
            queues=frozenset(command.queues),
            owner=command.owner,
        )
        until = trio.current_time() + wait_seconds
        claimed = Claimed()
        known = wait_seconds >= QUIET_SECONDS_MAX and self._room.is_quiet(waiter)
        # Inside before the first look, so that nothing that becomes pending after it goes unheard.
        self._room.enter(waiter)
        acting_on: Ring | None = None
        try:
            while True:
                if not known:
                    acting_on, waiter.heard = waiter.heard, None
                    if acting_on is not None:  # back in line, again before the look
                        self._room.wait_again(waiter)
                    claimed = await self._claim_now(command)
                    acting_on = None
                known = False
                if claimed.todos or self._room.closed:
                    return claimed
                with trio.move_on_at(until) as patience:
                    await waiter.bell.wait()
                if patience.cancelled_caught:
                    return claimed
                if waiter.refused:  # who waits with a dead credential is handed nothing (R17)
                    raise Unauthorized(detail="This credential is unknown, or its endpoint was revoked.")
        finally:
            self._room.leave(waiter)
            if acting_on is not None:  # woken, but gone before its claim was through: the wake goes to the next
                self._room.wake(acting_on)

    async def _claim_now(self, command: ClaimNext) -> Claimed:
        outcome = await self._ledger.submit_one(command)
        if not isinstance(outcome, Claimed):
            raise TypeError(f"a claim ended as {type(outcome).__name__}")
        return outcome

    async def claim_one(self, call: Call[requests.ClaimOneBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/{id}/claim`."""
        endpoint, body = call.endpoint, call.body
        command = ClaimOne(
            endpoint_id=endpoint.id,
            todo_id=call.path["id"],
            owner=body.owner or endpoint.name,
            lease_seconds=body.lease_seconds or self._defaults.lease_seconds,
        )
        return claimed_one_reply(await self._ledger.submit_one(command))

    async def heartbeat(self, call: Call[requests.HeartbeatBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/{id}/heartbeat`."""
        command = heartbeat_of(call.endpoint, call.path["id"], call.body)
        return await self._hold(command, to_claimer=command.lease_token is not None)

    async def complete(self, call: Call[requests.CompleteBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/{id}/complete`; with `next`, the following claim in the same commit."""
        command = complete_of(call.endpoint, call.path["id"], call.body)
        following = call.body.next
        if following is None:
            return await self._hold(command)
        then = ClaimNext(
            endpoint_id=call.endpoint.id,
            owner=command.owner or call.endpoint.name,
            lease_seconds=following.lease_seconds or self._defaults.lease_seconds,
            queues=queues_in_scope(call.endpoint, following.chosen()),
        )
        moved = _moved(await self._ledger.submit_one(attrs.evolve(command, then=then)))
        claimed = moved.then.todos if moved.then is not None else ()
        content = wire.CompletedReply(
            todo=wire.todo_out(moved.todo), next=wire.todo_out(claimed[0], to_claimer=True) if claimed else None
        )
        return Reply(content=content, claims=claimed)

    async def fail(self, call: Call[requests.FailBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/{id}/fail`."""
        return await self._hold(fail_of(call.endpoint, call.path["id"], call.body))

    async def release(self, call: Call[requests.ReleaseBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/{id}/release`."""
        return await self._hold(release_of(call.endpoint, call.path["id"], call.body))

    async def heartbeat_batch(self, call: Call[requests.HeartbeatBatchBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/heartbeat`."""
        return await self._hold_batch([heartbeat_of(call.endpoint, item.id, item) for item in call.body.items])

    async def complete_batch(self, call: Call[requests.CompleteBatchBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/complete`."""
        return await self._hold_batch([complete_of(call.endpoint, item.id, item) for item in call.body.items])

    async def fail_batch(self, call: Call[requests.FailBatchBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/fail`."""
        return await self._hold_batch([fail_of(call.endpoint, item.id, item) for item in call.body.items])

    async def release_batch(self, call: Call[requests.ReleaseBatchBody, requests.NoQuery]) -> Reply:
        """`POST /v1/todos/release`."""
        return await self._hold_batch([release_of(call.endpoint, item.id, item) for item in call.body.items])

    async def _hold(self, command: Heartbeat | Complete | Fail | Release, *, to_claimer: bool = False) -> Reply:
        moved = _moved(await self._ledger.submit_one(command))
        return Reply(content=wire.TodoReply(todo=wire.todo_out(moved.todo, to_claimer=to_claimer)))

    async def _hold_batch(self, commands: Sequence[Heartbeat | Complete | Fail | Release]) -> Reply:
        """The same todo twice in one batch: the first counts, the second is what the state then says."""
        outcomes: dict[int, Outcome] = {}
        # What is no id names nothing twice; else each such item would be a round, and a transaction, of its own.
        ids = [None if command.todo_id == NOWHERE else command.todo_id for command in commands]
        for together in rounds_of(ids):
            answers = await self._ledger.submit([commands[place] for place in together])
            outcomes |= dict(zip(together, answers, strict=True))
        in_order = [outcomes[place] for place in range(len(commands))]
        # Whoever names the lease token is its claimer.
        return results_reply(in_order, to_claimer=[command.lease_token is not None for command in commands])


def queues_in_scope(endpoint: Endpoint, chosen: Sequence[str]) -> tuple[str, ...]:
    """The queues to look at; empty for any. Raises `Forbidden` for one out of the endpoint's scope."""
    for queue in chosen:
        if not endpoint.may_use(queue):
            raise Forbidden(detail=f"Endpoint {endpoint.name} may not use the queue {queue!r}.")
    return tuple(chosen) or endpoint.queues or ()


def claimed_one_reply(outcome: Outcome) -> Reply:
    """The todo that a claim by id handed over."""
    if not isinstance(outcome, Claimed):
        raise TypeError(f"a claim ended as {type(outcome).__name__}")
    (todo,) = outcome.todos
    return Reply(content=wire.TodoReply(todo=wire.todo_out(todo, to_claimer=True)), claims=(todo,))


def _to_claimer(todos: Sequence[Todo]) -> list[wire.TodoOut]:
    return [wire.todo_out(todo, to_claimer=True) for todo in todos]


def _moved(outcome: Outcome) -> Moved:
    if not isinstance(outcome, Moved):
        raise TypeError(f"a holder's verb ended as {type(outcome).__name__}")
    return outcome


def heartbeat_of(endpoint: Endpoint, todo_id: str, body: requests.HeartbeatBody) -> Heartbeat:
    """The command in a heartbeat's body."""
    return Heartbeat(
        endpoint_id=endpoint.id,
        todo_id=todo_id,
        owner=_guard_owner(endpoint, body),
        lease_token=body.lease_token,
        lease_seconds=body.lease_seconds,
    )


def complete_of(endpoint: Endpoint, todo_id: str, body: requests.CompleteItemBody) -> Complete:
    """The command in a completion's body."""
    return Complete(
        endpoint_id=endpoint.id,
        todo_id=todo_id,
        owner=_guard_owner(endpoint, body),
        lease_token=body.lease_token,
        result=requests.text_of(body.result),
    )


def fail_of(endpoint: Endpoint, todo_id: str, body: requests.FailBody) -> Fail:
    """The command in a failure's body."""
    return Fail(
        endpoint_id=endpoint.id,
        todo_id=todo_id,
        owner=_guard_owner(endpoint, body),
        lease_token=body.lease_token,
        error=body.error,
    )


def release_of(endpoint: Endpoint, todo_id: str, body: requests.ReleaseBody) -> Release:
    """The command in a release's body."""
    return Release(endpoint_id=endpoint.id, todo_id=todo_id, owner=_guard_owner(endpoint, body), lease_token=body.lease_token)


def _guard_owner(endpoint: Endpoint, body: requests.HolderBody) -> str | None:
    """The token alone is enough; where both are given both must match; with neither, the endpoint's name is the owner."""
    if body.owner is None and body.lease_token is None:
        return endpoint.name
    return body.owner

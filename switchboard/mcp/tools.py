"""The tools: one table of what agents may call, each the handler of an HTTP route under another roof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
from msgspec import UNSET, Struct, UnsetType

from switchboard.endpoint import Endpoint
from switchboard.http import requests, wire
from switchboard.http.agent_claims import AgentClaims
from switchboard.http.agent_todos import AgentTodos
from switchboard.http.call import Call, Handler, Reply
from switchboard.mcp import arguments
from switchboard.mcp.schemas import Schema, schema_of, within_queues

Effect = Literal["reads", "adds", "changes"]


class ClaimedReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The claimed todos, each with its `lease_token`; or `empty`, which says that there is nothing to do."""

    todos: list[wire.TodoOut] | UnsetType = UNSET
    empty: bool | UnsetType = UNSET


@attrs.frozen(kw_only=True)
class Tool:
    """One tool: what it is called, what it says of itself, what it takes and gives, and who does it."""

    name: str
    description: str
    takes: type[Struct]
    gives: type[Struct]
    handler: Handler
    effect: Effect
    shape: Callable[[Any], Struct] | None = None
    """Makes the tool's answer of the handler's, where the two differ."""

    def input_schema(self, endpoint: Endpoint) -> Schema:
        """What it takes from this endpoint: one that is limited to some queues is offered those."""
        schema = schema_of(self.takes)
        return schema if endpoint.queues is None else within_queues(schema, endpoint.queues)

    def output_schema(self) -> Schema:
        """What it gives."""
        return schema_of(self.gives)

    def call_of(self, given: Struct, endpoint: Endpoint, credential_sha256: bytes) -> Call[Any, Any]:
        """The handler's call in these arguments: it takes of them what it would take of a path, a body or a query."""
        path = {"id": given.todo_id} if hasattr(given, "todo_id") else {}
        return Call(path=path, body=given, query=given, caller=endpoint, credential_sha256=credential_sha256)

    def answer_of(self, reply: Reply) -> bytes:
        """The JSON text of the answer in this reply."""
        content = reply.content
        if not isinstance(content, Struct):
            raise TypeError(f"the handler of {self.name} replied with {type(content).__name__}")
        return wire.encode(content if self.shape is None else self.shape(content))


class Toolbox:
    """Every tool of the house."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}

    def permitted(self, endpoint: Endpoint) -> Sequence[Tool]:  # noqa: ARG002 - the one place to ask what an endpoint may do
        """The tools that this endpoint may use. Today an endpoint is limited by queues alone, so these are all."""
        return list(self._tools.values())

    def find(self, name: str, endpoint: Endpoint) -> Tool | None:
        """The tool of this name; None where there is none, or none for this endpoint."""
        tool = self._tools.get(name)
        return tool if tool in self.permitted(endpoint) else None


def tools(todos: AgentTodos, claims: AgentClaims) -> list[Tool]:
    """The table."""
    return [
        Tool(
            name="claim_next",
            description=(
                "Take the oldest todos that may be worked on, under a lease. Each comes with its payload and a "
                "`lease_token`: keep it, and call `complete` or `fail` with it when the work is over, `heartbeat` while it "
                "lasts. `queue` or `queues` choose where to look, neither looks everywhere. With `wait_seconds` an answer "
                'waits for work. With nothing to do the answer is {"empty": true}.'
            ),
            takes=requests.ClaimBody,
            gives=ClaimedReply,
            handler=claims.claim,
            effect="changes",
            shape=_claimed,
        ),
        Tool(
            name="claim",
            description=(
                "Take this one todo, under a lease, as `claim_next` does: when the doorbell or a listing has named it. "
                "`conflict` says that somebody else has it, or that it is done."
            ),
            takes=arguments.ClaimArguments,
            gives=wire.TodoReply,
            handler=claims.claim_one,
            effect="changes",
        ),
        Tool(
            name="heartbeat",
            description=(
                "Keep a claimed todo: its lease begins anew, for its own duration or for `lease_seconds`. Call it well "
                "before the lease ends. `conflict` says that the claim is lost: stop working on it."
            ),
            takes=arguments.HeartbeatArguments,
            gives=wire.TodoReply,
            handler=claims.heartbeat,
            effect="changes",
        ),
        Tool(
            name="complete",
            description=(
                "The work on a claimed todo is done; `result` is kept with it. With `next` the following todo is claimed in "
                "the same step (an empty object: from any queue), null when there is none. Repeating a call whose answer "
                "was lost is safe."
            ),
            takes=arguments.CompleteArguments,
            gives=wire.CompletedReply,
            handler=claims.complete,
            effect="changes",
        ),
        Tool(
            name="fail",
            description=(
                "The work on a claimed todo failed; `error` says why. It is tried again after a pause that doubles from 30 "
                "seconds, and is dead-lettered after its last attempt."
            ),
            takes=arguments.FailArguments,
            gives=wire.TodoReply,
            handler=claims.fail,
            effect="changes",
        ),
        Tool(
            name="release",
            description="Give a claimed todo back, unfinished, so that another can claim it at once. The attempt counts.",
            takes=arguments.ReleaseArguments,
            gives=wire.TodoReply,
            handler=claims.release,
            effect="changes",
        ),
        Tool(
            name="retry",
            description="Put a failed or dead-lettered todo back to pending, its attempts counted from nothing.",
            takes=arguments.TodoArguments,
            gives=wire.TodoReply,
            handler=todos.retry,
            effect="changes",
        ),
        Tool(
            name="create_todo",
            description=(
                "Put work into a queue, for whoever claims it there. With an `idempotency_key` that a live todo holds "
                "already, that todo is returned and `created` is false."
            ),
            takes=requests.CreateTodoBody,
            gives=wire.CreatedReply,
            handler=todos.create,
            effect="adds",
        ),
        Tool(
            name="get_todo",
            description="One todo, with its payload, its result, and the history of its attempts. It is not claimed by this.",
            takes=arguments.TodoArguments,
            gives=wire.TodoReply,
            handler=todos.get,
            effect="reads",
        ),
        Tool(
            name="list_todos",
            description=(
                "Todos, newest first, without payloads and results. `status` tells more than `state`: a failed one is "
                "`retrying` or `dead`. `next_cursor`, given as `cursor`, brings the next page."
            ),
            takes=requests.ListQuery,
            gives=wire.PageReply,
            handler=todos.list_todos,
            effect="reads",
        ),
        Tool(
            name="queues",
            description="What each queue holds, by status, and for how long the oldest todo has been waiting.",
            takes=requests.NoBody,
            gives=wire.QueuesReply,
            handler=todos.queues,
            effect="reads",
        ),
    ]


def _claimed(reply: wire.TodosReply) -> ClaimedReply:
    return ClaimedReply(todos=reply.todos) if reply.todos else ClaimedReply(empty=True)

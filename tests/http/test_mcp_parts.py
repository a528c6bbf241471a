"""What `/mcp` is made of, without a house: schemas of the tools, what is taken out of a request, and whose browser may come."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from switchboard import todo as bounds
from switchboard.endpoint import Endpoint
from switchboard.errors import Forbidden
from switchboard.http.agent_claims import AgentClaims
from switchboard.http.agent_todos import AgentTodos, Defaults
from switchboard.mcp.framing import Mark, take_arguments
from switchboard.mcp.origins import check_origin
from switchboard.mcp.schemas import schema_of
from switchboard.mcp.tools import Tool, tools
from switchboard.todo import NOWHERE

ANYWHERE: Any = None
"""Handlers are never called here: the table is read for its words alone."""

STRING = {"type": "string"}
QUEUE = STRING | {"minLength": 1, "maxLength": bounds.QUEUE_CHARS_MAX}
OWNER = STRING | {"minLength": 1, "maxLength": bounds.OWNER_CHARS_MAX}
LEASE = {"type": "integer", "minimum": 1, "maximum": bounds.LEASE_SECONDS_MAX}
UUID = STRING | {"format": "uuid"}
QUEUES = {"type": "array", "items": QUEUE, "minItems": 1, "maxItems": bounds.QUEUES_PER_CALL_MAX}
CHOICE = {"queue": QUEUE, "queues": QUEUES}
HOLDER = {"todo_id": STRING, "owner": OWNER, "lease_token": UUID}
NEXT = {"type": "object", "properties": CHOICE | {"lease_seconds": LEASE}, "additionalProperties": False}

CONTRACT: dict[str, dict[str, Any]] = {
    "create_todo": {
        "queue": QUEUE,
        "title": STRING | {"maxLength": bounds.TITLE_CHARS_MAX},
        "kind": STRING | {"minLength": 1, "maxLength": bounds.KIND_CHARS_MAX},
        "payload": {},
        "idempotency_key": STRING | {"minLength": 1, "maxLength": bounds.IDEMPOTENCY_KEY_BYTES_MAX},
        "assignee": OWNER,
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": bounds.MAX_ATTEMPTS_MAX},
    },
    "list_todos": {
        "queue": QUEUE,
        "state": {"enum": ["claimed", "done", "failed", "pending"]},
        "status": {"enum": ["claimed", "dead", "done", "pending", "retrying"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": bounds.LIST_LIMIT_MAX},
        "cursor": UUID,
    },
    "get_todo": {"todo_id": STRING},
    "claim": {"todo_id": STRING, "owner": OWNER, "lease_seconds": LEASE},
    "claim_next": CHOICE
    | {
        "owner": OWNER,
        "lease_seconds": LEASE,
        "max": {"type": "integer", "minimum": 1, "maximum": bounds.BATCH_MAX},
        "wait_seconds": {"type": "number", "minimum": 0, "maximum": bounds.WAIT_SECONDS_MAX},
    },
    "heartbeat": HOLDER | {"lease_seconds": LEASE},
    "complete": HOLDER | {"result": {}, "next": NEXT},
    "fail": HOLDER | {"error": STRING | {"maxLength": bounds.ERROR_CHARS_MAX}},
    "release": HOLDER,
    "retry": {"todo_id": STRING},
    "queues": {},
}
"""What each tool takes: `design/api.md`, its bounds included."""

REQUIRED = {"create_todo": ["queue"], "list_todos": [], "claim_next": [], "queues": []}


def table() -> dict[str, Tool]:
    """Every tool."""
    defaults = Defaults(lease_seconds=300, max_attempts=5, payload_bytes=1 << 20)
    todos = AgentTodos(ledger=ANYWHERE, transact=ANYWHERE, defaults=defaults, ring=ANYWHERE)
    return {tool.name: tool for tool in tools(todos, AgentClaims(ledger=ANYWHERE, defaults=defaults, room=ANYWHERE))}


def bare(schema: Any) -> Any:
    """A schema without its words, and without the null that an optional field may be as well."""
    if isinstance(schema, list):
        return [bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        (schema,) = (item for item in schema["anyOf"] if item != {"type": "null"})
    if schema.get("type") == "object":
        properties = {name: bare(field) for name, field in schema["properties"].items()}
        return {"type": "object", "properties": properties, "additionalProperties": schema["additionalProperties"]}
    return {name: bare(item) for name, item in schema.items() if name not in ("description", "default")}


@pytest.mark.parametrize("name", list(CONTRACT))
def test_what_a_tool_takes(name: str) -> None:
    """R27: every field and its bounds, no other field, and what is required."""
    schema = table()[name].input_schema(Endpoint(id=NOWHERE, name="a", created_at=ANYWHERE))
    assert bare(schema) == {"type": "object", "properties": CONTRACT[name], "additionalProperties": False}
    assert schema["required"] == REQUIRED.get(name, ["todo_id"])


def test_the_tools_are_the_contracts() -> None:
    """No tool more, none less; each stands alone, and says what it is for."""
    assert table().keys() == CONTRACT.keys()
    for tool in table().values():
        for kind in (tool.takes, tool.gives):
            assert schema_of(kind)["type"] == "object"
            assert "$" not in json.dumps(schema_of(kind))
        assert 60 < len(tool.description) < 500


def call(arguments: str | None, more: str = "") -> bytes:
    """A call of a tool."""
    given = "" if arguments is None else f',"arguments":{arguments}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t"{given}{more}}}}}'.encode()


@pytest.mark.parametrize("arguments", ['{"n":1.10,"n":2}', "{ }", "[1]", '"x"', "9" * 500, "[" * 300 + "]" * 300])
def test_arguments_are_taken_out_as_they_stand(arguments: str) -> None:
    """The SDK gets a request without them, and all the rest of it."""
    taken = take_arguments(call(arguments, ',"_meta":{"progressToken":7}'))
    assert (taken.id, taken.method, taken.arguments.decode()) == ("1", "tools/call", arguments)
    assert msgspec.json.decode(taken.body) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "t", "arguments": {}, "_meta": {"progressToken": 7}},
    }


@pytest.mark.parametrize("arguments", [None, "null", " null "])
def test_no_arguments_are_none(arguments: str | None) -> None:
    """A tool that takes nothing may be called with nothing."""
    assert take_arguments(call(arguments)).arguments == b"{}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"\xff",
        b'{"method":7}',
        b'{"method":"tools/call"}',
        b'{"method":"tools/call","params":[]}',
        b'{"method":"ping","params":{"arguments":1}}',
        b"[" * 100_000,
        call("[" * 100_000),
    ],
)
def test_what_calls_no_tool_stays_as_it_is(body: bytes) -> None:
    """What is wrong with it, the SDK says."""
    taken = take_arguments(body)
    assert (taken.body, taken.arguments) == (body, b"{}")


def test_an_answer_takes_the_place_of_its_mark() -> None:
    """In a response however it is spelled; and nowhere else."""
    mark, answer = Mark(), b'{"n":1.10,"s":"\\"\\u0041\xc3\xa9"}'
    result = {"content": [{"type": "text", "text": mark.text}], "structuredContent": mark.structured(), "isError": False}
    for response in (json.dumps(result), json.dumps(result, indent=1), json.dumps(result, separators=(",", ":"))):
        replaced = mark.replaced(response.encode(), answer)
        assert replaced is not None
        assert answer in replaced
        assert json.loads(replaced)["content"][0]["text"] == answer.decode()
        assert Mark().replaced(response.encode(), answer) is None


@pytest.mark.parametrize(
    ("origin", "host", "configured", "fine"),
    [
        (None, "evil.example", "127.0.0.1", True),  # no browser: an agent, or a proxy in front of it
        (None, None, "127.0.0.1", True),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1", True),
        ("http://localhost:6274", "127.0.0.1:8080", "127.0.0.1", True),
        ("http://tool.localhost", "localhost:8080", "127.0.0.1", True),
        ("http://[::1]:3000", "[::1]:8080", "::1", True),
        ("http://10.0.0.7:8080", "10.0.0.7:8080", "0.0.0.0", True),  # noqa: S104 - compared, never bound
        ("https://queue.example", "queue.example", "queue.example", True),
        ("https://Queue.Example", "queue.example", "Queue.Example", True),
        ("https://evil.example", "127.0.0.1:8080", "127.0.0.1", False),
        ("http://evil.example:8080", "evil.example:8080", "127.0.0.1", False),  # rebound
        ("http://localhost", "evil.example:8080", "127.0.0.1", False),
        ("http://10.0.0.8", "10.0.0.7:8080", "10.0.0.7", False),
        ("http://localhost.evil.example", "127.0.0.1", "127.0.0.1", False),
        ("http://127.0.0.1.evil.example", "127.0.0.1", "127.0.0.1", False),
        ("null", "127.0.0.1", "127.0.0.1", False),
        ("", "127.0.0.1", "127.0.0.1", False),
        ("http://[", "127.0.0.1", "127.0.0.1", False),
        ("http://127.0.0.1", None, "127.0.0.1", False),
        ("http://127.0.0.1", "", "127.0.0.1", False),
    ],
)
def test_whose_browser_may_come(origin: str | None, host: str | None, configured: str, fine: bool) -> None:
    """DNS rebinding: a page comes by an address, by localhost or by the configured name, from there or from this machine."""
    try:
        check_origin(origin, host, configured_host=configured)
    except Forbidden:
        assert not fine
    else:
        assert fine

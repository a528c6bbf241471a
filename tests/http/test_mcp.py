"""`/mcp` over real sockets: every tool, every shape of error, and that what is claimed and never heard of is undone (R15)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.houses import Agent, House, Opener, no_leftovers, wait_until
from tests.http.asking import CALM, NEVER_MINTED, TODO_FIELDS, address, execute, locked_todos, row
from tests.http.mcp_talk import VERSION, Talk, is_troubled, request_bytes, talk
from tests.http.test_undo import BACK_SECONDS_MAX, assert_untouched, statements_waiting

TOOLS = {
    *("create_todo", "list_todos", "get_todo", "claim", "claim_next", "heartbeat"),
    *("complete", "fail", "release", "retry", "queues"),
}


@pytest.fixture(scope="module")
def house(open_directory: Path, new_database: Callable[[], str]) -> Iterator[House]:
    """A house without sweeps."""
    opener = Opener(open_directory, new_database)
    opened = opener(settings=CALM)
    yield opened
    opener.close()
    no_leftovers(opener.directories)
    assert not is_troubled(opened.log())


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


@pytest.fixture
def session(house: House, agent: Agent) -> Talk:
    """A session of its own."""
    return talk(house, agent)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_official_client(house: House, agent: Agent, mode: str) -> None:
    """The whole life of a todo by the SDK's own client, which checks each answer against its tool's schema.

    One that asks which versions there are comes with a session; one that insists on 2026-07-28 is served without.
    """
    headers = {"Authorization": f"Bearer {agent.credential}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        transport = streamable_http_client(f"{house.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            assert client.protocol_version == ("2026-07-28" if mode == "2026-07-28" else VERSION)
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            made = await client.call_tool("create_todo", {"queue": "work", "payload": {"n": 1}})
            assert not made.is_error
            claimed = await client.call_tool("claim_next", {"queue": "work", "wait_seconds": 1})
            assert claimed.structured_content is not None
            (todo,) = claimed.structured_content["todos"]
            assert todo["payload"] == {"n": 1}
            held = {"todo_id": todo["id"], "lease_token": todo["lease_token"]}
            assert not (await client.call_tool("heartbeat", held)).is_error
            done = await client.call_tool("complete", held | {"result": [1, 2], "next": {}})
            assert done.structured_content is not None
            assert (done.structured_content["todo"]["status"], done.structured_content["next"]) == ("done", None)
            nothing = await client.call_tool("claim_next", {})
            assert nothing.structured_content == {"empty": True}
            again = await client.call_tool("complete", held)
            assert again.is_error
            with trio.fail_after(5):
                await client.call_tool("queues")


def test_every_tool(session: Talk, agent: Agent) -> None:
    """What each answers, and that it is what the HTTP route would have done."""
    made = session.call(
        "create_todo", queue="work", title="t", kind="k", payload={"a": 1}, idempotency_key="key", max_attempts=2
    )
    todo = made["todo"]
    assert made["created"] is True
    assert todo.keys() == TODO_FIELDS
    assert todo["endpoint_id"] == agent.id
    assert session.call("create_todo", queue="work", idempotency_key="key") == {"todo": todo, "created": False}
    assert session.call("get_todo", todo_id=todo["id"])["todo"] == agent.get(todo)

    claimed = session.call("claim", todo_id=todo["id"], owner="me", lease_seconds=60)["todo"]
    assert (claimed["status"], claimed["owner"], claimed["attempt"], claimed["payload"]) == ("claimed", "me", 1, {"a": 1})
    held = {"todo_id": todo["id"], "lease_token": claimed["lease_token"]}
    assert session.call("heartbeat", **held)["todo"]["status"] == "claimed"
    assert session.call("release", **held)["todo"]["status"] == "pending"

    (claimed,) = session.call("claim_next", queues=["work", "other"])["todos"]
    held = {"todo_id": todo["id"], "lease_token": claimed["lease_token"]}
    assert (claimed["owner"], claimed["attempt"]) == (agent.name, 2)
    failed = session.call("fail", **held, error="on purpose")["todo"]
    assert (failed["status"], failed["error"]) == ("dead", "on purpose")
    assert session.call("retry", todo_id=todo["id"])["todo"]["status"] == "pending"

    (claimed,) = session.call("claim_next", max=5)["todos"]
    following = agent.push("more")
    held = {"todo_id": todo["id"], "lease_token": claimed["lease_token"]}
    done = session.call("complete", **held, result={"n": [1]}, next={"queue": "more"})
    assert (done["todo"]["status"], done["todo"]["result"], done["next"]["id"]) == ("done", {"n": [1]}, following["id"])

    page = session.call("list_todos", limit=1)
    assert ([found["id"] for found in page["todos"]], page["next_cursor"]) == ([following["id"]], following["id"])
    (found,) = session.call("list_todos", cursor=page["next_cursor"], status="done")["todos"]
    assert found["id"] == todo["id"]
    assert "payload" not in found
    assert [(queue["queue"], queue["claimed"], queue["done"]) for queue in session.call("queues")["queues"]] == [
        ("more", 1, 0),
        ("work", 0, 1),
    ]
    assert session.call("claim_next") == {"empty": True}
    assert session.call("claim_next", wait_seconds=0.05) == {"empty": True}


def test_a_waiting_claim_is_woken(session: Talk, agent: Agent) -> None:
    """R25: `claim_next` with `wait_seconds` has the todo as soon as it is there."""
    threading.Timer(0.5, agent.push).start()
    (todo,) = session.call("claim_next", wait_seconds=30)["todos"]
    assert todo["status"] == "claimed"


@pytest.mark.parametrize(
    "text",
    [
        '{"n":1.10,"big":123456789012345678901234567890,"e":1e400,"twice":1,"twice":2,"s":"\\u00e9\\\\u0000"}',
        "[" * 100 + "]" * 100,
        '"\N{GRINNING FACE}"',
        "null",
        "9" * 1_000,
    ],
)
def test_what_a_payload_says_is_kept_to_the_letter(session: Talk, agent: Agent, text: str) -> None:
    """R22: what comes in is what goes out, structured and as text; no parser's idea of it."""
    arguments = f'{{"queue":"work","payload":{text}}}'
    message = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"create_todo","arguments":{arguments}}}}}'
    reply = session.http.post(
        "/mcp", content=message.encode(), headers=session.headers() | {"Content-Type": "application/json"}
    )
    assert f'"payload":{text},' in reply.text
    assert json.dumps(f'"payload":{text},', ensure_ascii=False)[1:-1] in reply.text
    assert f'"payload":{text},' in agent.http.post("/v1/claims", json={}).text


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("create_todo", {}, "invalid: Object missing required field `queue`. (field: queue)"),
    ("create_todo", {"queue": 1}, "invalid: Expected `str`, got `int`. (field: queue)"),
    ("create_todo", {"queue": ""}, "invalid: Expected `str` of length >= 1. (field: queue)"),
    ("create_todo", {"queue": "q" * 201}, "invalid: Expected `str` of length <= 200. (field: queue)"),
    ("create_todo", {"queue": "q", "colour": 1}, "invalid: Object contains unknown field `colour`. (field: colour)"),
    (
        "create_todo",
        {"queue": "q\0"},
        "invalid: It holds a NUL or half a surrogate pair, which cannot be stored. (field: queue)",
    ),
    (
        "create_todo",
        {"queue": "q", "payload": json.loads("[" * 101 + "]" * 101)},
        "invalid: Nested deeper than 100 levels. (field: payload)",
    ),
    (
        "create_todo",
        {"queue": "q", "payload": int("9" * 1_001)},
        "invalid: A number of more than 1000 characters. (field: payload)",
    ),
    (
        "create_todo",
        {"queue": "q", "idempotency_key": "é" * 300},
        "invalid: Expected at most 512 bytes of UTF-8. (field: idempotency_key)",
    ),
    ("claim_next", {"max": 1_001}, "invalid: Expected `int` <= 1000. (field: max)"),
    ("claim_next", {"max": "1"}, "invalid: Expected `int`, got `str`. (field: max)"),
    ("claim_next", {"wait_seconds": 61}, "invalid: Expected `float` <= 60.0. (field: wait_seconds)"),
    ("claim_next", {"queue": "a", "queues": ["b"]}, "invalid: Expected `queue` or `queues`, not both. (field: queues)"),
    ("claim_next", {"queues": ["a", 1]}, "invalid: Expected `str`, got `int`. (field: queues[1])"),
    ("complete", {}, "invalid: Object missing required field `todo_id`. (field: todo_id)"),
    (
        "complete",
        {"todo_id": NEVER_MINTED, "next": {"lease_seconds": 0}},
        "invalid: Expected `int` >= 1. (field: next.lease_seconds)",
    ),
    ("heartbeat", {"todo_id": NEVER_MINTED, "lease_token": "x"}, "invalid: Invalid UUID. (field: lease_token)"),
    ("list_todos", {"limit": 201}, "invalid: Expected `int` <= 200. (field: limit)"),
    ("list_todos", {"state": "new"}, "invalid: Invalid enum value 'new'. (field: state)"),
    ("queues", {"queue": "a"}, "invalid: Object contains unknown field `queue`. (field: queue)"),
    *(
        (tool, {"todo_id": todo_id}, "not_found: There is no such todo.")
        for tool in ("get_todo", "claim", "heartbeat", "complete", "fail", "release", "retry")
        for todo_id in (NEVER_MINTED, "not-an-id", "")
    ),
]


@pytest.mark.parametrize(("tool", "arguments", "text"), REFUSED)
def test_refusals(session: Talk, tool: str, arguments: dict[str, Any], text: str) -> None:
    """R16, R22, R27: `code: message`, and the field that is wrong."""
    assert session.refused(tool, **arguments) == text


def test_refusals_of_state_and_scope(house: House, session: Talk, agent: Agent) -> None:
    """A conflict says what is so instead; a queue out of scope is forbidden; another endpoint's todo is not there."""
    todo = agent.push()
    (claimed,) = session.call("claim_next")["todos"]
    assert session.refused("claim", todo_id=todo["id"]).startswith("conflict: ")
    held = {"todo_id": todo["id"], "lease_token": claimed["lease_token"]}
    session.call("complete", **held)
    text = session.refused("complete", **held)
    assert text.startswith("conflict: ")
    assert text.endswith("(state: done, already: true)")
    limited = talk(house, house.vend(queues=["a"]))
    assert limited.refused("create_todo", queue="b").startswith("forbidden: ")
    assert limited.refused("claim_next", queue="b").startswith("forbidden: ")
    assert limited.refused("get_todo", todo_id=todo["id"]) == "not_found: There is no such todo."


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "1", "true"])
def test_arguments_that_are_no_object(session: Talk, arguments: str) -> None:
    """They are refused as any other wrong arguments are."""
    params = {"name": "queues", "arguments": json.loads(arguments)}
    result = session.ask("tools/call", params)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("invalid: Expected `object`")


def test_without_arguments(session: Talk) -> None:
    """None at all are as good as none in an object."""
    for params in ({"name": "queues"}, {"name": "queues", "arguments": None}, {"name": "claim_next", "arguments": {}}):
        assert session.ask("tools/call", params)["isError"] is False


def test_unknown_tools_and_methods(session: Talk) -> None:
    """They are the protocol's errors."""
    for method, params, code in (
        ("tools/call", {"name": "no_such_tool"}, -32602),
        ("tools/call", {"name": 1}, -32602),
        ("resources/list", {}, -32601),
        ("no/such", {}, -32601),
    ):
        reply = session.send(method, params)
        assert reply.status_code in (200, 400, 404), reply.text
        assert reply.json()["error"]["code"] == code, reply.text


def test_a_payload_over_its_bound(house: House, session: Talk) -> None:
    """R27: one byte too many is refused by name; a body that no payload explains is 413 before it is read."""
    fits = "x" * ((1 << 20) - 2)
    assert session.call("create_todo", queue="work", payload=fits)["created"] is True
    assert session.refused("create_todo", queue="work", payload=fits + "x").startswith("too_large: ")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "create_todo", "x": "y" * (1 << 21)}}
    reply = session.http.post("/mcp", json=message, headers=session.headers())
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")

    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    reply = session.http.post("/mcp", content=chunks(), headers=session.headers() | {"Content-Type": "application/json"})
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")


def call_bytes(session: Talk, agent: Agent, tool: str, arguments: dict[str, Any], *, version: str = VERSION) -> bytes:
    """A whole call of a tool, for a plain socket: in this session, or by the protocol that has none."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": "cut", "method": "tools/call", "params": params}
    if version == VERSION:
        return request_bytes(agent, message, session=session.session)
    meta = "io.modelcontextprotocol"
    params["_meta"] = {f"{meta}/protocolVersion": version, f"{meta}/clientCapabilities": {}}
    return request_bytes(agent, message, version=version, Mcp_Method="tools/call", Mcp_Name=tool)


@contextmanager
def calling(house: House, request: bytes) -> Iterator[socket.socket]:
    """A call under way, on a connection that is closed when the block ends, answered or not."""
    with socket.create_connection(address(house), timeout=20) as sock:
        sock.sendall(request)
        yield sock


@pytest.mark.parametrize("version", [VERSION, "2026-07-28"])
@pytest.mark.parametrize("tool", ["claim_next", "claim"])
def test_c36_a_client_that_is_cut_while_its_claim_waits(
    house: House, session: Talk, agent: Agent, tool: str, version: str
) -> None:
    """C36: the claim blocks on a lock, the client goes, the lock goes: the todo is pending again, the attempt not counted."""
    todo = agent.push()
    arguments = {"owner": "gone"} | ({"todo_id": todo["id"]} if tool == "claim" else {})
    with (
        locked_todos(house),
        calling(house, call_bytes(session, agent, tool, arguments, version=version)),
    ):
        wait_until(lambda: statements_waiting(house) == 1, what="a statement that waits")
    (claimed,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert (claimed["id"], claimed["attempt"], claimed["owner"]) == (todo["id"], 1, "next")
    assert session.call("heartbeat", todo_id=todo["id"], owner="next")["todo"]["status"] == "claimed"


def test_the_next_of_a_completion_is_undone_and_the_completion_stands(house: House, session: Talk, agent: Agent) -> None:
    """R15, R32: `complete` with `next`, its answer lost: the work is done, the next todo is back, a repeat says `already`."""
    agent.push()
    (held,) = agent.claim()
    following = agent.push()
    arguments = {"todo_id": held["id"], "lease_token": held["lease_token"], "next": {}}
    with locked_todos(house), calling(house, call_bytes(session, agent, "complete", arguments)):
        wait_until(lambda: statements_waiting(house) == 1, what="a statement that waits")
    wait_until(lambda: agent.get(held)["status"] == "done", seconds=BACK_SECONDS_MAX, what="the completion")
    wait_until(lambda: row(house, following)["state"] == "pending", seconds=BACK_SECONDS_MAX, what="the undo")
    assert_untouched(house, agent, following)
    assert session.refused("complete", **arguments).endswith("already: true)")


def test_a_claim_that_its_client_cancels_is_undone(house: House, session: Talk, agent: Agent) -> None:
    """R15: `notifications/cancelled` for a claim under way; the client hears no lease token, so it holds nothing."""
    todo = agent.push()
    with locked_todos(house), calling(house, call_bytes(session, agent, "claim_next", {"owner": "gone"})) as sock:
        wait_until(lambda: statements_waiting(house) == 1, what="a statement that waits")
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "cut"}}
        assert session.http.post("/mcp", json=cancelled, headers=session.headers()).status_code == 202
        answer = b""
        while not answer.endswith(b"}"):
            answer += sock.recv(65_536)
        assert b"-32800" in answer
    (claimed,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert (claimed["id"], claimed["attempt"]) == (todo["id"], 1)


@pytest.mark.parametrize("second", ["cut", 7])
def test_an_id_that_is_used_twice_at_once(house: House, session: Talk, agent: Agent, second: str | int) -> None:
    """Two calls by one id would get one another's answer, and lose a claim: the second is refused while the first lasts."""
    first = call_bytes(session, agent, "claim_next", {"wait_seconds": 60}).replace(b'"cut"', f'"{second}"'.ljust(5).encode())
    message = {"jsonrpc": "2.0", "id": second, "method": "ping"}
    with calling(house, first) as sock:
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        reply = session.http.post("/mcp", json=message, headers=session.headers())
        assert (reply.status_code, reply.json()["code"]) == (409, "conflict")
        agent.push()
        sock.settimeout(20)
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")

    def again() -> bool:
        return session.http.post("/mcp", json=message, headers=session.headers()).status_code == 200

    wait_until(again, what="the id to be free again, a moment after its answer,")


def test_a_claim_of_a_session_that_ends_is_undone(house: House, session: Talk, agent: Agent) -> None:
    """R15: the session is ended by its client while a claim of it is under way."""
    todo = agent.push()
    with locked_todos(house), calling(house, call_bytes(session, agent, "claim_next", {"owner": "gone"})) as sock:
        wait_until(lambda: statements_waiting(house) == 1, what="a statement that waits")
        assert session.end().status_code == 200
        answer = b""
        while not answer.endswith(b"}"):
            answer += sock.recv(65_536)
        assert b"unavailable: " in answer
    (claimed,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert (claimed["id"], claimed["attempt"]) == (todo["id"], 1)


@pytest.mark.parametrize("version", [VERSION, "2026-07-28"])
def test_a_client_that_goes_while_it_waits_claims_nothing(house: House, session: Talk, agent: Agent, version: str) -> None:
    """A waiting claim whose client is gone is no claimer any more, and its session answers others meanwhile."""
    request = call_bytes(session, agent, "claim_next", {"owner": "gone", "wait_seconds": 60}, version=version)
    with calling(house, request) as sock:
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        assert session.call("queues") == {"queues": []}
    todo = agent.push()
    (claimed,) = agent.claim(owner="next", wait_seconds=BACK_SECONDS_MAX)
    assert (claimed["id"], claimed["attempt"]) == (todo["id"], 1)


def test_an_answer_that_arrived_is_never_undone(house: House, session: Talk, agent: Agent) -> None:
    """R15 is for what was not heard: a client that has read its answer and hangs up at once keeps its claim."""
    for _ in range(20):
        todo = agent.push()
        with calling(house, call_bytes(session, agent, "claim_next", {"owner": "quick"})) as sock:
            answer = b""
            while todo["id"].encode() not in answer or not answer.endswith(b"}"):
                answer += sock.recv(65_536)
        assert execute(house, "select state, owner from todos where id = %s", todo["id"]) == [("claimed", "quick")]
    assert execute(house, "select count(*) from todos where endpoint_id = %s and state = 'claimed'", agent.id) == [(20,)]

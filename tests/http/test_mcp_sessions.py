"""`/mcp` at its edges: who may come in, whose a session is, how it ends, and that nothing on the socket does harm."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import h2.connection
import h2.events
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from switchboard.endpoint import Endpoint
from switchboard.errors import NotFound, RateLimited
from switchboard.http.delivery import Delivery
from switchboard.mcp import sessions
from switchboard.mcp.exchange import McpExchange
from switchboard.mcp.framing import Taken
from switchboard.mcp.sessions import SESSION_IDLE_SECONDS_MAX, Sessions
from switchboard.waiting_room import WaitingRoom
from tests.houses import Agent, House, Opener, no_leftovers
from tests.http.asking import CALM, address, problem
from tests.http.door import Client
from tests.http.listening import push
from tests.http.mcp_talk import BOTH, HELLO, Talk, attached, is_troubled, request_bytes, talk


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


def test_hello(house: House, agent: Agent) -> None:
    """What it says of itself: its name, that it has tools, and Claude Code's channel."""
    said = Talk(house.client(agent.credential)).ask("initialize", HELLO)
    assert said["serverInfo"]["name"] == "switchboard"
    assert said["protocolVersion"] == HELLO["protocolVersion"]
    assert said["capabilities"]["experimental"] == {"claude/channel": {}}
    assert "tools" in said["capabilities"]
    assert "claim_next" in said["instructions"]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_credential_is_needed(house: House, session: Talk, method: str) -> None:
    """401 as on every route, before the protocol is spoken: without one, with an unknown one, with the operator's."""
    for credential in (None, "sbk_unknown", house.token):
        with house.client(credential) as http:
            reply = http.request(method, "/mcp", headers=session.headers(), json=HELLO if method == "POST" else None)
        problem(reply, 401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"


async def test_a_session_is_its_credentials(house: House, session: Talk) -> None:
    """Whoever names another endpoint's session gets 404, whatever it asks; the session goes on."""
    other = house.vend()
    stranger = Talk(house.client(other.credential), session.session)
    assert stranger.send("tools/call", {"name": "queues"}).status_code == 404
    assert stranger.http.get("/mcp", headers=session.headers()).status_code == 404
    assert stranger.end().status_code == 404
    assert session.call("queues") == {"queues": []}
    unknown = attrs.evolve(session, session="0" * 32)
    assert unknown.send("ping").status_code == 404


async def test_delete_ends_it(house: House, agent: Agent, session: Talk) -> None:
    """Its stream comes to a clean end, its id is unknown from then on, and others of the endpoint go on."""
    async with attached(house, agent, session) as stream, attached(house, agent) as other:
        assert (await trio.to_thread.run_sync(session.end)).status_code == 200
        with trio.fail_after(5):
            await stream.ended.wait()
        assert not stream.cut
        assert session.send("ping").status_code == 404
        assert session.end().status_code == 404
        todo = await push(agent)
        assert await other.next_ids(1) == [todo]


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (None, "anything.example", 200),
        ("http://localhost:6274", None, 200),
        ("https://evil.example", None, 403),
        ("http://evil.example:8080", "evil.example:8080", 403),
        ("null", None, 403),
    ],
)
def test_origin_and_host(house: House, agent: Agent, origin: str | None, host: str | None, status: int) -> None:
    """A rebound page is refused, whatever it carries; agents and proxies say no Origin, and go by any name."""
    headers = {name: value for name, value in (("Origin", origin), ("Host", host)) if value is not None}
    reply = Talk(house.client(agent.credential)).send("initialize", HELLO, **headers)
    assert reply.status_code == status, reply.text
    if status == 403:
        problem(reply, 403, "forbidden")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"\xff\xfe",
        b"[]",
        b"1",
        b"{}",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"queues","arguments":' + b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"9" * 10_000 + b"}",
    ],
)
def test_garbage(session: Talk, body: bytes) -> None:
    """A JSON-RPC error and never a 500; the session goes on."""
    reply = session.http.post("/mcp", content=body, headers=session.headers() | {"Content-Type": "application/json"})
    assert reply.status_code == 400, reply.text
    assert reply.json()["jsonrpc"] == "2.0"
    assert reply.json()["error"]["code"] < 0
    assert session.call("queues") == {"queues": []}


def test_what_http_refuses(session: Talk) -> None:
    """Methods, encodings and content types that are not spoken; a request that is no hello, without a session."""
    for method in ("PUT", "PATCH", "OPTIONS", "HEAD"):
        reply = session.http.request(method, "/mcp", headers=session.headers())
        assert (reply.status_code, reply.headers["allow"]) == (405, "GET, POST, DELETE")
    packed = session.headers() | {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    problem(session.http.post("/mcp", content=b"x", headers=packed), 415, "unsupported")
    assert session.http.post("/mcp", content=b"{}", headers=session.headers() | {"Content-Type": "text/plain"}).is_client_error
    assert (
        session.http.get("/mcp", headers={"Mcp-Session-Id": session.session or ""} | {"Accept": "text/html"}).status_code == 406
    )
    assert attrs.evolve(session, session=None).send("ping").status_code == 400
    assert session.http.get("/mcp", headers={"Accept": BOTH}).status_code == 400
    assert session.http.get("/mcp/none", headers=session.headers()).status_code == 404
    assert session.http.post("/mcp/", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=session.headers()).is_success


async def test_a_stream_that_names_its_last_event_is_opened_anew(house: House, agent: Agent, session: Talk) -> None:
    """Nothing is replayed; attaching begins with what waits."""
    todo = await push(agent)
    session.http.headers["Last-Event-ID"] = "7"
    headers = session.headers() | {"Accept": "text/event-stream"}
    with session.http.stream("GET", "/mcp", headers=headers, timeout=5) as reply:
        assert reply.status_code == 200
        assert todo in next(text for text in reply.iter_text() if "todo_ready" in text)


def test_tools_are_what_the_endpoint_may_do(house: House, session: Talk) -> None:
    """One that is limited to queues is offered those, wherever a tool takes one, and no other."""
    limited = talk(house, house.vend(queues=["a", "b"]))
    for tool in limited.ask("tools/list")["tools"]:
        for field in fields_named("queue", tool["inputSchema"]):
            assert field["enum"] == ["a", "b"], tool["name"]
    assert [field["enum"] for field in fields_named("queue", session.ask("tools/list")["tools"]) if "enum" in field] == []
    by_name = {tool["name"]: tool for tool in session.ask("tools/list")["tools"]}
    assert by_name["queues"]["annotations"]["readOnlyHint"] is True
    assert by_name["complete"]["annotations"]["readOnlyHint"] is False
    assert all(len(tool["description"]) > 60 for tool in by_name.values())


def fields_named(name: str, value: Any) -> Iterator[dict[str, Any]]:
    """The schemas of strings in every field `queue` or `queues`."""
    if isinstance(value, list):
        for item in value:
            yield from fields_named(name, item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in (name, f"{name}s") and isinstance(item, dict):
                yield from strings_in(item)
            else:
                yield from fields_named(name, item)


def strings_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas of strings within a field's."""
    if schema.get("type") == "string":
        yield schema
    for inner in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from strings_in(inner)


async def test_two_hundred_sessions_at_once(house: House, agent: Agent) -> None:
    """Each with a stream of its own: all of them hear of a todo, and one of them has it."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    claim = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "claim_next"}}
    ready, attached_one = trio.open_memory_channel[None](0)
    answers: list[dict[str, Any]] = []

    async def be_one() -> None:
        async with await trio.open_tcp_stream(*address(house)) as asks, await trio.open_tcp_stream(*address(house)) as listens:
            client, ears = Client(stream=asks), Client(stream=listens)
            await client.send(request_bytes(agent, hello))
            status, headers, _ = await client.read()
            assert status == 200
            session = headers["mcp-session-id"]
            await ears.send(request_bytes(agent, None, session=session))
            assert (await ears._until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await ready.send(None)
            await ears._until(b"todo_ready")
            await client.send(request_bytes(agent, claim, session=session))
            answers.append(json.loads((await client.read())[2])["result"]["structuredContent"])

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(be_one)
            for _ in range(200):
                await attached_one.receive()
            todo = await push(agent)
    assert len(answers) == 200
    assert [answer["todos"][0]["id"] for answer in answers if answer != {"empty": True}] == [todo]


async def test_over_http2(house: House, agent: Agent, session: Talk) -> None:
    """A client that speaks HTTP/2 has the same: an answer, and a stream on which it hears."""
    peer = h2.connection.H2Connection()
    peer.initiate_connection()
    peer.send_headers(
        1,
        [
            *((":method", "GET"), (":path", "/mcp"), (":authority", "house"), (":scheme", "http")),
            ("authorization", f"Bearer {agent.credential}"),
            *((name.lower(), value) for name, value in session.headers().items()),
        ],
        end_stream=True,
    )
    status, heard = "", b""
    with trio.fail_after(10):
        async with await trio.open_tcp_stream(*address(house)) as stream:
            await stream.send_all(peer.data_to_send())
            while b"todo_ready" not in heard:
                for event in peer.receive_data(bytes(await stream.receive_some())):
                    if isinstance(event, h2.events.ResponseReceived):
                        status = dict(event.headers)[b":status"].decode()
                        await push(agent)
                    elif isinstance(event, h2.events.DataReceived):
                        heard += event.data
                await stream.send_all(peer.data_to_send())
    assert status == "200"


def test_no_credential_and_no_flood_in_the_log(house: House, session: Talk, agent: Agent) -> None:
    """R28: nothing of a session is logged, neither its credential nor a line for each of its requests."""
    before = len(house.log().splitlines())
    for _ in range(20):
        session.call("queues")
        session.send("no/such")
    talk(house, agent).end()
    assert agent.credential not in house.log()
    assert len(house.log().splitlines()) - before <= 1, house.log()


SOMEBODY = UUID(int=7)


@attrs.define(eq=False)
class Desk:
    """Sessions with nothing behind them, and which of them were ended."""

    sessions: Sessions
    room: WaitingRoom
    ended: list[str] = attrs.field(factory=list)

    def open(self, name: str, credential: bytes = b"c") -> None:
        self.sessions.open(name, opener(credential))

    def in_use(self, name: str) -> AbstractContextManager[None]:
        session = self.sessions.find(name, b"c")
        assert session is not None
        return session.in_use(opener(b"c"))


@asynccontextmanager
async def open_desk() -> AsyncIterator[Desk]:
    """A desk of its own."""
    ended: list[str] = []

    async def discard(session_id: str, _credential: bytes, _endpoint: UUID) -> None:
        await trio.lowlevel.checkpoint()
        ended.append(session_id)

    async with trio.open_nursery() as nursery:
        room = WaitingRoom()
        yield Desk(Sessions(room=room, discard=discard, nursery=nursery), room, ended)
        nursery.cancel_scope.cancel()
    assert len(room) == 0


def opener(credential: bytes) -> McpExchange:
    """The request of an endpoint that opens a session."""
    anything: Any = None
    endpoint = Endpoint(id=SOMEBODY, name="a", created_at=anything)
    return McpExchange(
        endpoint=endpoint,
        credential_sha256=credential,
        delivery=Delivery(undo=anything),
        taken=Taken(body=b""),
        payload_bytes_max=1,
        opened=anything,
        door_receive=anything,
        door_send=anything,
    )


async def test_a_session_that_is_left_alone_ends(autojump_clock: MockClock) -> None:
    """After half an hour without a request; one that has a stream stays, and gets its half hour when that is over."""
    async with open_desk() as desk:
        desk.open("alone")
        desk.open("used")
        used = desk.sessions.find("used", b"c")
        assert used is not None
        assert desk.sessions.find("used", b"another") is None
        with used.in_use(opener(b"c")):
            await trio.sleep(SESSION_IDLE_SECONDS_MAX + 1)
            assert (desk.ended, len(desk.sessions), len(desk.room)) == (["alone"], 1, 1)
        await trio.sleep(SESSION_IDLE_SECONDS_MAX - 1)
        assert desk.ended == ["alone"]
        await trio.sleep(2)
        assert (desk.ended, len(desk.sessions)) == (["alone", "used"], 0)


async def test_sessions_end_with_their_credential(autojump_clock: MockClock) -> None:
    """R17: those that came in by it, once their requests are through; the others stay."""
    async with open_desk() as desk:
        desk.open("idle")
        desk.open("busy")
        desk.open("other", b"d")
        busy = desk.sessions.find("busy", b"c")
        assert busy is not None
        with busy.in_use(opener(b"c")):
            desk.room.refuse(SOMEBODY, b"c")
            await wait_all_tasks_blocked()
            assert desk.ended == ["idle"]
        await wait_all_tasks_blocked()
        assert (desk.ended, len(desk.sessions)) == (["idle", "busy"], 1)
        desk.room.close()  # the others go with the house, after their requests
        await wait_all_tasks_blocked()
        assert (desk.ended, len(desk.sessions)) == (["idle", "busy"], 1)


async def test_a_session_at_its_end_takes_no_requests(autojump_clock: MockClock) -> None:
    """Those under way are stopped, and only then does the SDK forget it: nothing is taken away under a request."""
    async with open_desk() as desk:
        desk.open("s")
        session = desk.sessions.find("s", b"c")
        assert session is not None
        request = opener(b"c")
        with session.in_use(request):
            desk.sessions.end(session)
            assert (await request.receive())["type"] == "http.request"
            assert (await request.receive())["type"] == "http.disconnect"
            with pytest.raises(NotFound):
                desk.sessions.find("s", b"c")
            assert desk.ended == []
        await session.gone.wait()
        assert (desk.ended, desk.sessions.find("s", b"c")) == (["s"], None)


async def test_an_endpoint_has_so_many_sessions(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one left alone longest makes room for another; where all of them are in use, another is refused."""
    monkeypatch.setattr(sessions, "SESSIONS_PER_ENDPOINT_MAX", 3)
    async with open_desk() as desk:
        for name in ("a", "b", "c"):
            desk.sessions.make_room(SOMEBODY)
            desk.open(name)
            await trio.sleep(1)
        first = desk.sessions.find("a", b"c")
        assert first is not None
        with first.in_use(opener(b"c")):
            desk.sessions.make_room(SOMEBODY)
            desk.open("d")
            await wait_all_tasks_blocked()
            assert desk.ended == ["b"]
            with desk.in_use("c"), desk.in_use("d"):
                with pytest.raises(RateLimited):
                    desk.sessions.make_room(SOMEBODY)
                desk.sessions.make_room(UUID(int=8))  # another endpoint is not concerned

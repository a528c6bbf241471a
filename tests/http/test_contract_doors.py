"""What every address has in common: who may call, how it says no, which bodies it takes, and what it never says."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.houses import Agent, House, wait_until
from tests.http.asking import NEVER_MINTED, Health, address, post, problem

AGENT_CALLS = [
    ("POST", "/v1/todos"),
    ("POST", "/v1/todos/batch"),
    ("GET", "/v1/todos"),
    ("GET", f"/v1/todos/{NEVER_MINTED}"),
    ("POST", "/v1/claims"),
    ("POST", f"/v1/todos/{NEVER_MINTED}/claim"),
    ("POST", f"/v1/todos/{NEVER_MINTED}/heartbeat"),
    ("POST", f"/v1/todos/{NEVER_MINTED}/complete"),
    ("POST", f"/v1/todos/{NEVER_MINTED}/fail"),
    ("POST", f"/v1/todos/{NEVER_MINTED}/release"),
    ("POST", f"/v1/todos/{NEVER_MINTED}/retry"),
    ("POST", "/v1/todos/heartbeat"),
    ("POST", "/v1/todos/complete"),
    ("POST", "/v1/todos/fail"),
    ("POST", "/v1/todos/release"),
    ("GET", "/v1/queues"),
    ("GET", "/v1/doorbell"),
    ("GET", "/v1/whoami"),
]
OPERATOR_CALLS = [
    ("GET", "/operator/v1/endpoints"),
    ("POST", "/operator/v1/endpoints"),
    ("POST", "/operator/v1/endpoints/somebody/rotate"),
    ("POST", "/operator/v1/endpoints/somebody/revoke"),
    ("GET", "/operator/v1/todos"),
    ("POST", "/operator/v1/todos"),
    ("POST", "/operator/v1/todos/retry"),
    ("GET", f"/operator/v1/todos/{NEVER_MINTED}"),
    ("POST", f"/operator/v1/todos/{NEVER_MINTED}/claim"),
    ("POST", f"/operator/v1/todos/{NEVER_MINTED}/complete"),
    ("POST", f"/operator/v1/todos/{NEVER_MINTED}/fail"),
    ("POST", f"/operator/v1/todos/{NEVER_MINTED}/release"),
    ("POST", f"/operator/v1/todos/{NEVER_MINTED}/retry"),
]
BODY_CALLS = [call for call in AGENT_CALLS if call[0] == "POST"]
RSS_GROWTH_BYTES_MAX = 48 * 1024 * 1024
MARKER = "m4rk3r-7d1f"


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


@pytest.fixture(scope="module")
def agent(house: House) -> Agent:
    """One endpoint for all."""
    return house.vend()


def refused(reply: httpx.Response) -> dict[str, Any]:
    """Asserts a 401 as RFC 9110 wants it."""
    assert reply.headers["www-authenticate"] == "Bearer"
    return problem(reply, 401, "unauthorized")


class TestWhoMayCall:
    """401 with WWW-Authenticate for anything but the right kind of credential."""

    @pytest.mark.parametrize(("method", "path"), AGENT_CALLS + OPERATOR_CALLS)
    def test_nobody_without_a_credential(self, house: House, method: str, path: str) -> None:
        """No header: 401, whatever the body would have been."""
        with house.client() as http:
            refused(http.request(method, path))

    @pytest.mark.parametrize(("method", "path"), AGENT_CALLS)
    def test_the_operators_token_opens_no_agents_door(self, house: House, method: str, path: str) -> None:
        """A credential of one kind opens nothing of the other."""
        refused(house.operator().request(method, path))

    @pytest.mark.parametrize(("method", "path"), OPERATOR_CALLS)
    def test_an_agents_credential_opens_no_operators_door(self, agent: Agent, method: str, path: str) -> None:
        """Nor the other way round."""
        refused(agent.http.request(method, path))

    def test_a_credential_must_be_whole_and_known(self, house: House, agent: Agent) -> None:
        """Another scheme, none, an empty one, a prefix, one letter too many, another case, one far too long."""
        good = agent.credential
        for header in (
            f"Basic {good}",
            good,
            "Bearer",
            f"Bearer {good[:-1]}",
            f"Bearer {good}x",
            f"Bearer {good.upper()}",
            f"Bearer {good} {good}",
            "Bearer sbk_" + "a" * 43,
            "Bearer sbk_" + "a" * 5_000,
        ):
            with house.client() as http:
                refused(http.get("/v1/whoami", headers={"Authorization": header}))
        for scheme in ("bearer", "BEARER"):
            with house.client() as http:
                assert http.get("/v1/whoami", headers={"Authorization": f"{scheme} {good}"}).status_code == 200

    def test_a_credential_in_the_query_is_no_credential(self, house: House, agent: Agent) -> None:
        """Credentials travel in one header only."""
        with house.client() as http:
            refused(http.get("/v1/whoami", params={"access_token": agent.credential}))

    def test_machines_need_none(self, house: House) -> None:
        """`/healthz`, `/readyz` and `/openapi.json` are open."""
        with house.client() as http:
            assert http.get("/healthz").json()["status"] == "ok"
            ready = http.get("/readyz").json()
            assert http.get("/openapi.json").json()["openapi"].startswith("3.")
        assert ready["status"] == "ready"
        assert ready["database"]["up"] is True
        assert {"ledger", "doorbell", "reaper", "retry_scheduler", "front_door"} <= ready["actors"].keys()
        for actor in ready["actors"].values():
            assert actor.keys() == {"running", "restarts", "last_error"}
            assert actor["running"] is True
        assert ready["adapters"] == {}


class TestHowItSaysNo:
    """Problem+json for all of it (RFC 9457)."""

    @pytest.mark.parametrize("path", ["/", "/v1", "/v2/todos", "/v1/todo", "/v1/todos/a/b/c", f"/v1/todos/{NEVER_MINTED}/undo"])
    def test_an_unknown_address(self, agent: Agent, path: str) -> None:
        """404, to whoever asks and by whatever method."""
        for method in ("GET", "POST", "DELETE"):
            problem(agent.http.request(method, path), 404, "not_found")

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("DELETE", "/v1/todos", {"GET", "HEAD", "POST"}),
            ("GET", "/v1/claims", {"POST"}),
            ("PUT", "/v1/claims", {"POST"}),
            ("OPTIONS", "/v1/whoami", {"GET", "HEAD"}),
            ("POST", f"/v1/todos/{NEVER_MINTED}", {"GET", "HEAD"}),
            ("PATCH", f"/v1/todos/{NEVER_MINTED}/fail", {"POST"}),
            ("POST", "/healthz", {"GET", "HEAD"}),
            ("BREW", "/healthz", {"GET", "HEAD"}),
        ],
    )
    def test_a_method_that_is_not_taken(self, agent: Agent, method: str, path: str, allowed: set[str]) -> None:
        """405 with Allow."""
        reply = agent.http.request(method, path)
        problem(reply, 405, "unsupported")
        assert {word.strip() for word in reply.headers["allow"].split(",")} == allowed

    @pytest.mark.parametrize("path", ["/healthz", "/v1/whoami", "/v1/todos"])
    def test_head_is_get_without_its_body(self, agent: Agent, path: str) -> None:
        """The same status and headers, no bytes of body."""
        head, get = agent.http.head(path), agent.http.get(path)
        assert head.status_code == get.status_code == 200
        assert head.content == b""
        assert head.headers["content-length"] == str(len(get.content))
        assert head.headers["content-type"] == get.headers["content-type"]

    def test_head_of_a_post_address(self, agent: Agent) -> None:
        """405, without a body too."""
        reply = agent.http.head("/v1/claims")
        assert (reply.status_code, reply.content) == (405, b"")

    def test_the_shape_of_a_problem(self, agent: Agent) -> None:
        """`type`, `title`, `status`, `detail`, `code`, and `field` only where one is to blame."""
        absent = problem(agent.http.get(f"/v1/todos/{NEVER_MINTED}"), 404, "not_found")
        assert absent.keys() == {"type", "title", "status", "detail", "code"}
        invalid = problem(agent.http.post("/v1/todos", json={}), 422, "invalid", "queue")
        assert invalid.keys() == {"type", "title", "status", "detail", "code", "field"}

    @pytest.mark.parametrize(("method", "path"), BODY_CALLS)
    def test_an_unknown_field(self, agent: Agent, method: str, path: str) -> None:
        """422 naming it, on every address that takes a body."""
        problem(agent.http.request(method, path, json={"surprise": 1}), 422, "invalid", "surprise")


class TestBodies:
    """C10, C4: one strict decoder in front of everything."""

    @pytest.mark.parametrize("path", [path for _, path in BODY_CALLS])
    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b"}",
            b"not json",
            b"NaN",
            b"{'queue': 'a'}",
            b"\xef\xbb\xbf{}",
            b'{"queue":"\xff\xfe"}',
            b'{"queue":"\xed\xa0\x80"}',
            '{"queue":"a"}'.encode("utf-16"),
            b" ",
        ],
        ids=repr,
    )
    def test_what_is_not_json_is_400(self, agent: Agent, path: str, body: bytes) -> None:
        """C10: malformed, a BOM, UTF-16, bytes that are not UTF-8: 400 on every address, never a 5xx."""
        problem(post(agent.http, path, body), 400, "invalid")

    @pytest.mark.parametrize(
        "body",
        [
            b'{"queue":"a","max_attempts":NaN}',
            b'{"queue":"a","payload":{"a":NaN}}',
            b'{"queue":"a","payload":[-Infinity]}',
            b'{"queue":"a","payload":Infinity}',
            b'{"queue":"a",}',
            b'{"queue":"a"} {}',
            b'{"queue":"a" // no\n}',
            b'{"queue":"a\nb"}',
            b'{"queue":"a","payload":[1,]}',
            b'{"queue":"a","payload":01}',
            b'{"queue":"a","payload":.5}',
            b'{"queue":"a","payload":1.}',
            b'{"queue":"a","payload":+1}',
            b'{"queue":"a","payload":0x1}',
            b'{"queue":"a","payload":tru}',
            b'{"queue":"a","payload":True}',
            b'{"queue":"a","payload":"\\x"}',
            b'{"queue":"a","payload":"\\u12g4"}',
            b'{"queue":"a","payload":"tab\there"}',
            b'{"queue":"a","payload":{"a":1}',
            b'{"queue":"a","payload":{1:2}}',
            b'{"queue":"a","payload":}',
        ],
        ids=repr,
    )
    def test_what_looks_like_json_is_400(self, house: House, body: bytes) -> None:
        """C4: what Python's own parser, or a lenient one, would take: 400, and no row."""
        agent = house.vend()
        problem(post(agent.http, "/v1/todos", body), 400, "invalid")
        assert agent.http.get("/v1/todos").json()["todos"] == []

    @pytest.mark.parametrize("path", [path for _, path in BODY_CALLS])
    @pytest.mark.parametrize(
        "body", [b"[" * 100_000, b'{"queue":' * 50_000, b'{"payload":' + b"[" * 500_000], ids=["[", "{", "p"]
    )
    def test_brackets_without_end_are_refused_at_once(self, agent: Agent, path: str, body: bytes) -> None:
        """C10: never a 5xx, never a long time: whatever is wrong first is named."""
        began = time.monotonic()
        assert post(agent.http, path, body).status_code in (400, 422)
        assert time.monotonic() - began < 2

    def test_an_empty_body_where_a_field_is_required_is_400(self, agent: Agent) -> None:
        """C10: and where none is required it is every default."""
        for path in ("/v1/todos", "/v1/todos/batch", "/v1/todos/heartbeat", "/v1/todos/complete"):
            problem(post(agent.http, path, b""), 400, "invalid")
        assert post(agent.http, "/v1/claims", b"").status_code == 200
        for verb in ("claim", "heartbeat", "complete", "fail", "release", "retry"):
            problem(post(agent.http, f"/v1/todos/{NEVER_MINTED}/{verb}", b""), 404, "not_found")

    @pytest.mark.parametrize(
        "content_type",
        [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/jsonx",
            "application/json; charset=utf-16",
            "application/json; charset=nope",
            "application/json; charset=latin-1",
            "",
        ],
    )
    def test_another_content_type_is_415(self, agent: Agent, content_type: str) -> None:
        """C10: JSON in UTF-8 or nothing."""
        reply = agent.http.post("/v1/todos", content=b'{"queue":"a"}', headers={"Content-Type": content_type})
        problem(reply, 415, "unsupported")

    @pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=UTF-8", "Application/JSON", None])
    def test_json_by_its_names_is_taken(self, agent: Agent, content_type: str | None) -> None:
        """With a charset, in any case, or without a header."""
        headers = {"Content-Type": content_type} if content_type else {}
        assert agent.http.post("/v1/todos", content=b'{"queue":"a"}', headers=headers).status_code == 201

    @pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "nope"])
    def test_an_encoded_body_is_415(self, agent: Agent, encoding: str) -> None:
        """C10, C11: nothing is ever unpacked, so no bomb can go off."""
        body = gzip.compress(b'{"queue":"a"}')
        problem(post(agent.http, "/v1/todos", body, **{"Content-Encoding": encoding}), 415, "unsupported")

    def test_identity_is_no_encoding(self, agent: Agent) -> None:
        """The one coding that changes nothing."""
        assert post(agent.http, "/v1/todos", b'{"queue":"a"}', **{"Content-Encoding": "identity"}).status_code == 201


class TestTooLarge:
    """C11: refused in every form, memory flat, the others served meanwhile."""

    @pytest.fixture
    def connection(self, house: House) -> Iterator[http.client.HTTPConnection]:
        """A plain client, that sends what it is told to."""
        connection = http.client.HTTPConnection(*address(house), timeout=20)
        yield connection
        connection.close()

    def send(self, connection: http.client.HTTPConnection, agent: Agent, path: str, size: int, *, chunked: bool) -> int:
        """Posts that many bytes of JSON, and returns the status; a house that has said no may stop reading."""
        body = b'{"queue":"a","payload":"' + b"x" * size + b'"}'
        headers = {"Authorization": f"Bearer {agent.credential}", "Content-Type": "application/json"}
        chunks = (body[start : start + 65_536] for start in range(0, len(body), 65_536))
        try:
            if chunked:
                connection.request("POST", path, chunks, headers | {"Transfer-Encoding": "chunked"}, encode_chunked=True)
            else:
                connection.request("POST", path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer is here already
        reply = connection.getresponse()
        assert reply.headers["content-type"] == "application/problem+json"
        reply.read()
        return reply.status

    @pytest.mark.parametrize("chunked", [False, True], ids=["Content-Length", "chunked"])
    @pytest.mark.parametrize(("path", "size"), [("/v1/todos", 2 << 20), ("/v1/todos/batch", 17 << 20), ("/v1/claims", 2 << 20)])
    def test_a_body_over_its_bound(
        self, agent: Agent, connection: http.client.HTTPConnection, path: str, size: int, chunked: bool
    ) -> None:
        """413 with Content-Length and chunked alike."""
        assert self.send(connection, agent, path, size, chunked=chunked) == 413

    def test_a_length_that_is_declared_is_refused_before_it_is_sent(self, house: House, agent: Agent) -> None:
        """The head alone gets the answer: nobody has to send a gigabyte to hear that it is too much."""
        with socket.create_connection(address(house), timeout=10) as sock:
            head = (
                f"POST /v1/todos HTTP/1.1\r\nHost: house\r\nAuthorization: Bearer {agent.credential}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {1 << 30}\r\n\r\n"
            )
            sock.sendall(head.encode())
            assert sock.recv(64).startswith(b"HTTP/1.1 413 ")

    def test_a_payload_over_its_bound_in_a_body_within_its(self, agent: Agent) -> None:
        """413 naming the field, at the byte; a result likewise, and one in a batch by its path."""
        most = 1 << 20
        at_the_bound = '"' + "x" * (most - 2) + '"'
        assert post(agent.http, "/v1/todos", f'{{"queue":"big","payload":{at_the_bound}}}').status_code == 201
        over = '"' + "x" * (most - 1) + '"'
        problem(post(agent.http, "/v1/todos", f'{{"queue":"big","payload":{over}}}'), 413, "too_large", "payload")
        batch = f'{{"todos":[{{"queue":"big"}},{{"queue":"big","payload":{over}}}]}}'
        problem(post(agent.http, "/v1/todos/batch", batch), 413, "too_large", "todos[1].payload")
        (claimed,) = agent.claim(queue="big")
        path = f"/v1/todos/{claimed['id']}/complete"
        problem(post(agent.http, path, f'{{"result":{over}}}'), 413, "too_large", "result")
        assert post(agent.http, path, f'{{"result":{at_the_bound}}}').status_code == 200

    def test_memory_stays_flat_and_others_are_served(self, house: House, agent: Agent) -> None:
        """Many oversized bodies at once, in both forms and gzipped: bounded memory, health within a second."""
        before = _rss_bytes(house)
        statuses: list[int] = []

        def flood(chunked: bool) -> None:
            for _ in range(3):
                connection = http.client.HTTPConnection(*address(house), timeout=20)
                statuses.append(self.send(connection, agent, "/v1/todos", 8 << 20, chunked=chunked))
                connection.close()

        def bomb() -> None:
            packed = gzip.compress(b" " * (64 << 20))
            with house.client(agent.credential) as client:
                for _ in range(5):
                    reply = post(client, "/v1/todos", packed, **{"Content-Encoding": "gzip"})
                    statuses.append(reply.status_code)

        threads = [threading.Thread(target=flood, args=(n % 2 == 0,)) for n in range(8)] + [threading.Thread(target=bomb)]
        with Health(house) as health:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(set(statuses)) == [413, 415]
        assert len(statuses) == 29
        assert health.answers.keys() == {("/healthz", 200), ("/readyz", 200)}
        assert health.slowest_seconds < 1
        assert _rss_bytes(house) - before < RSS_GROWTH_BYTES_MAX


def _rss_bytes(house: House) -> int:
    for line in Path(f"/proc/{house.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the house has no memory")


def test_no_secret_of_a_request_reaches_the_log(house: House) -> None:
    """R28: credentials in the path, the query, a header, a body, an error text; also where they make a request fail."""
    agent = house.vend()
    secret = f"sbk_{MARKER}AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    wrong = {"Authorization": f"Bearer {secret}"}
    with house.client() as http:
        http.get("/v1/whoami", headers=wrong)
        http.get("/v1/whoami", headers={"Authorization": f"Basic {secret}"})
        http.get("/v1/whoami", headers={"Authorization": secret})
        http.get(f"/{secret}", headers=wrong)
        http.get(f"/hooks/{secret}", headers=wrong)
        http.get(f"/hook//{secret}/x", headers=wrong)
        http.get("/v1/todos", params={"access_token": secret}, headers=wrong)
    good = agent.http
    good.get(f"/v1/todos/{secret}")
    good.get("/v1/todos", params={secret: "1", "queue": secret})
    good.request(f"X{MARKER}", "/v1/todos")
    good.post(f"/v1/todos/{secret}/claim", json={"owner": secret})
    good.post("/v1/todos", json={secret: secret})
    good.post("/v1/todos", json={"queue": secret, "payload": {"password": MARKER, "a\0": secret}})
    good.post("/v1/todos", json={"queue": "a", "title": secret, "idempotency_key": f"password={MARKER}"})
    good.post("/v1/todos", content=secret.encode(), headers={"Content-Type": f"text/{MARKER}"})
    good.post("/v1/todos", content=b"{}", headers={"Content-Encoding": MARKER, "X-Api-Key": secret, "Cookie": secret})
    claimed = agent.verb("claim", agent.push(title=MARKER)).json()["todo"]
    agent.verb("fail", claimed, error=f"could not connect with {secret}")
    operator = house.operator()
    operator.post(f"/operator/v1/endpoints/{secret}/rotate")
    operator.post("/operator/v1/endpoints/%00/rotate", headers={"X-Secret": secret})
    rotated = operator.post(f"/operator/v1/endpoints/{agent.name}/rotate").json()["credential"]
    for odd in (f"GET /\x00{secret} HTTP/1.1\r\n\r\n", f"{secret}\r\n\r\n", f"GET / HTTP/1.1\r\n{secret}\r\n\r\n"):
        with socket.create_connection(address(house), timeout=10) as sock:
            sock.sendall(odd.encode())
            sock.recv(1_000)
    assert house.ready()
    told = house.log() + house.said()
    for hidden in (MARKER, secret, agent.credential, rotated, house.token):
        assert hidden not in told


def test_no_secret_of_a_request_reaches_an_answer(house: House, agent: Agent) -> None:
    """R28: a wrong credential is not repeated to whoever sent it, and a listing of endpoints shows none."""
    secret = f"sbk_{MARKER}"
    with house.client(secret) as http:
        assert secret not in http.get("/v1/whoami").text
    listed = house.operator().get("/operator/v1/endpoints").text
    assert "credential" not in listed
    assert agent.credential not in listed


def test_a_bad_request_never_costs_the_house_anything(house: House) -> None:
    """R30: after all of the above it is ready, and no actor was restarted."""
    with house.client() as http:
        wait_until(lambda: http.get("/readyz").status_code == 200, what="ready")
        assert {actor["restarts"] for actor in http.get("/readyz").json()["actors"].values()} == {0}
        assert {actor["last_error"] for actor in http.get("/readyz").json()["actors"].values()} == {None}

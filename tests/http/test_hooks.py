"""`POST /hooks/{token}` over real HTTP: who is let in, what becomes of a delivery, and what its sender is told (C56, C61)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.houses import Agent, House, Opener
from tests.http.asking import CALM, execute, problem
from tests.http.pushing import KEY, SIGN, Hook, event, generic, github, hexed, hook, slack, standard, stripe

SIGNED = sorted(set(SIGN) - {"token"})


@pytest.fixture(scope="module")
def house(calm_house: House) -> House:
    """A house without sweeps."""
    return calm_house


@pytest.fixture
def agent(house: House) -> Agent:
    """An endpoint of the test's own."""
    return house.vend()


def accepted(reply: httpx.Response) -> list[dict[str, Any]]:
    """Asserts that the delivery was stored; its targets."""
    assert reply.status_code == 202, reply.text
    targets: list[dict[str, Any]] = reply.json()["targets"]
    return targets


def todos(agent: Agent) -> list[dict[str, Any]]:
    """All of an endpoint's todos, newest first."""
    found: list[dict[str, Any]] = agent.http.get("/v1/todos", params={"limit": 200}).json()["todos"]
    return found


@pytest.mark.parametrize("scheme", sorted(SIGN))
def test_a_good_delivery_becomes_a_todo(house: House, agent: Agent, scheme: str) -> None:
    """Each scheme: the event with its bytes, and the todo that a claim hands over, before the answer."""
    webhook, body = hook(house, scheme, agent), event()
    reply = webhook.push(body, SIGN[scheme](body))
    (target,) = accepted(reply)
    assert reply.json()["verified"] is (scheme != "token")
    assert (target["endpoint"], target["created"]) == (agent.name, True)
    (claimed,) = agent.claim()
    assert (claimed["id"], claimed["source"], claimed["queue"]) == (target["todo_id"], webhook.name, "work")
    assert claimed["payload"] == json.loads(body)
    with house.operator() as operator:
        stored = operator.get(f"/operator/v1/events/{claimed['event_id']}").json()["event"]
        assert operator.get(f"/operator/v1/events/{claimed['event_id']}/raw").content == body
    assert (stored["family"], stored["disposition"], stored["source"]) == ("webhook", "stored", webhook.name)
    assert stored["verified"] is (scheme != "token")
    assert "127.0.0.1" in stored["verify_detail"]
    assert KEY not in json.dumps(stored)


@pytest.mark.parametrize("scheme", SIGNED)
def test_a_bad_one_is_refused_without_a_word(house: House, agent: Agent, scheme: str) -> None:
    """C61: another body, another secret, no header at all: 401, always the same, and nothing is stored."""
    webhook, body = hook(house, scheme, agent), event()
    secret = "whsec_" + "QUJDREVGR0g=" * 3 if scheme == "standard" else "another-secret"
    twins: list[tuple[bytes, dict[str, str]]] = [(body, {}), (body, SIGN[scheme](body, secret))]
    if scheme != "gitlab":  # whose secret says nothing about the body
        twins.append((body + b" ", SIGN[scheme](body)))
    replies = [webhook.push(*twin) for twin in twins]
    assert len({problem(reply, 401, "unauthorized")["detail"] for reply in replies}) == 1
    assert todos(agent) == []
    assert execute(house, "select count(*) from events where source = %s", webhook.name) == [(0,)]


@pytest.mark.parametrize("sign", [stripe, slack, standard])
def test_an_old_signature_is_refused(house: House, agent: Agent, sign: Callable[..., dict[str, str]]) -> None:
    """C56: what signs its time cannot be replayed outside the tolerance, to either side."""
    webhook, body = hook(house, sign.__name__, agent), event()
    now = float(execute(house, "select extract(epoch from clock_timestamp())")[0][0])
    for off in (-330, 330):
        problem(webhook.push(body, sign(body, at=now + off)), 401, "unauthorized")
    accepted(webhook.push(body, sign(body, at=now - 270)))


def test_same_delivery_routed_to_two_endpoints_yields_two_todos(house: House) -> None:
    """SPEC-0003 Same delivery routed to two endpoints yields two todos, and Redelivery to one target dedups only within that
    target.
    """
    a, b = house.vend(), house.vend()
    webhook, body = hook(house, "github", a, b), event()
    headers = github(body)
    first = accepted(webhook.push(body, headers))
    assert {target["endpoint"] for target in first} == {a.name, b.name}
    assert [target["created"] for target in first] == [True, True]
    again = accepted(webhook.push(body, headers))
    assert {(t["endpoint"], t["todo_id"], t["created"]) for t in again} == {(t["endpoint"], t["todo_id"], False) for t in first}
    (mine,) = a.claim()
    a.verb("complete", mine)
    third = {target["endpoint"]: target for target in accepted(webhook.push(body, headers))}
    assert (third[a.name]["created"], third[b.name]["created"]) == (True, False)  # R3: done is done, live collapses
    assert (len(todos(a)), len(todos(b))) == (2, 1)


@pytest.mark.parametrize("state", ["pending", "claimed", "parked", "done", "dead"])
def test_c56_the_same_id_twice(house: House, agent: Agent, state: str) -> None:
    """C56, R2, R3: while its todo is live a delivery collapses; once that is over it is new work. Always 202."""
    webhook, body = hook(house, "github", agent), event()
    headers = github(body)
    accepted(webhook.push(body, headers))
    if state != "pending":
        (todo,) = agent.claim()
        if state == "dead":
            execute(house, "update todos set max_attempts = attempt where id = %s", todo["id"])
        verb = {"claimed": None, "parked": "fail", "done": "complete", "dead": "fail"}[state]
        if verb:
            assert agent.verb(verb, todo).status_code == 200
    (target,) = accepted(webhook.push(body, headers))
    assert target["created"] is (state in ("done", "dead"))


def test_c56_ids(house: House, agent: Agent) -> None:
    """C56: no id collapses by the body; a new id is new work; ids that differ in case are two."""
    webhook, body = hook(house, "github", agent), event()
    signature = {"X-Hub-Signature-256": github(body)["X-Hub-Signature-256"]}

    def push(**headers: str) -> bool:
        given = signature | {name.replace("_", "-"): value for name, value in headers.items()}
        (target,) = accepted(webhook.push(body, given))
        return bool(target["created"])

    assert [push(), push(), push(X_GitHub_Delivery="")] == [True, False, False]
    assert [push(X_GitHub_Delivery=id_) for id_ in ("Abc", "abc", "abc")] == [True, True, False]


def test_rotation_keeps_the_newest_old_secret(house: House, agent: Agent) -> None:
    """Both are good until the next rotation; then the older one is refused."""
    webhook, secrets = hook(house, "github", agent), [KEY]
    with house.operator() as operator:
        for _ in range(2):
            reply = operator.post(f"/operator/v1/webhooks/{webhook.name}/rotate").json()
            assert reply["path"] is None
            secrets += reply["secrets"]
    for secret, good in zip(secrets, (False, True, True), strict=True):
        body = event()
        assert webhook.push(body, github(body, secret)).status_code == (202 if good else 401)


def test_an_address_can_be_moved(house: House, agent: Agent) -> None:
    """By `path`, and for what has no secret but its address always: the old one is unknown at once."""
    for scheme, asked in (("token", {}), ("hmac", {"path": True})):
        webhook, body = hook(house, scheme, agent), event()
        with house.operator() as operator:
            moved = operator.post(f"/operator/v1/webhooks/{webhook.name}/rotate", json=asked).json()
        assert moved["secrets"] == []
        problem(webhook.push(body, SIGN[scheme](body)), 404, "not_found")
        there = Hook(name=webhook.name, path=moved["path"], secrets=[], http=webhook.http)
        accepted(there.push(body, SIGN[scheme](body)))


def test_routes_and_revokes(house: House) -> None:
    """R17: what is revoked gets nothing more, at once; with nobody left the sender is told to come again: nothing is lost."""
    a, b = house.vend(), house.vend()
    webhook = hook(house, "token", a)
    with house.operator() as operator:
        routes = f"/operator/v1/webhooks/{webhook.name}/routes"
        assert operator.post(routes, json={"endpoint": b.name}).json()["webhook"]["endpoints"] == sorted([a.name, b.name])
        assert {target["endpoint"] for target in accepted(webhook.push(event()))} == {a.name, b.name}
        assert operator.delete(f"{routes}/{a.name}").json()["webhook"]["endpoints"] == [b.name]
        problem(operator.delete(f"{routes}/{a.name}"), 404, "not_found")
        assert [target["endpoint"] for target in accepted(webhook.push(event()))] == [b.name]
        assert operator.post(f"/operator/v1/endpoints/{b.name}/revoke").status_code == 200
        refused = webhook.push(event())
        problem(refused, 503, "unavailable")
        assert int(refused.headers["retry-after"]) >= 1
        shown = operator.get(f"/operator/v1/webhooks/{webhook.name}").json()["webhook"]
        assert (shown["endpoints"], shown["revoked_endpoints"]) == ([], [b.name])
        assert operator.delete(f"/operator/v1/webhooks/{webhook.name}").status_code == 200
    problem(webhook.push(event()), 404, "not_found")


def test_bodies_of_any_kind(house: House, agent: Agent) -> None:
    """R22, C1: JSON as it is, a form's payload as the JSON in it, anything else wrapped; the event has the bytes."""
    webhook = hook(house, "token", agent)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    plain = {"Content-Type": "text/plain"}
    cases: list[tuple[bytes, dict[str, str], Any]] = [
        (b'{"a": 1e2, "a": 2}', {}, {"a": 2}),
        ('{"text": "\N{GRINNING FACE} \\u001B \\u001b"}\r\n'.encode(), {}, {"text": "\N{GRINNING FACE} \x1b \x1b"}),
        (b"payload=%7B%22zen%22%3A+%22Keep+it%22%7D&other=1", form, {"zen": "Keep it"}),
        (b"a=1&b=2", form, None),
        (b"just text", plain, None),
        (b'{"a": "\\u0000"}', {}, None),
        (b"\xff\xfe\x00", {}, None),
        (b"", {}, None),
        (b"[" * 5_000, {}, None),
    ]
    for body, headers, payload in cases:
        (target,) = accepted(webhook.push(body, headers))
        todo = agent.get({"id": target["todo_id"]})
        if payload is None:
            assert todo["payload"]["encoding"] == "base64"
        else:
            assert todo["payload"] == payload
        with house.operator() as operator:
            assert operator.get(f"/operator/v1/events/{todo['event_id']}/raw").content == body


def test_what_a_person_reads(house: House, agent: Agent) -> None:
    """Kind and title where the provider is known; they travel with the ring too."""
    body = json.dumps(
        {"action": "opened", "number": 7, "pull_request": {"number": 7, "title": "Mend it"}, "repository": {"full_name": "o/r"}}
    ).encode()
    webhook = hook(house, "github", agent)
    accepted(webhook.push(body, github(body, X_GitHub_Event="pull_request")))
    (todo,) = todos(agent)
    assert todo["kind"] == "pull_request.opened"
    assert "o/r" in todo["title"]
    assert "Mend it" in todo["title"]


def test_questions_of_providers(house: House, agent: Agent) -> None:
    """GitHub's ping makes no todo; Slack's url_verification is answered with its challenge; both only if they are signed."""
    ping, body = hook(house, "github", agent), b'{"zen": "x", "hook_id": 1}'
    assert accepted(ping.push(body, github(body, X_GitHub_Event="ping"))) == []
    asks = hook(house, "slack", agent)
    body = b'{"type": "url_verification", "challenge": "abc123", "token": "t"}'
    reply = asks.push(body, slack(body))
    assert (reply.status_code, reply.json()) == (200, {"challenge": "abc123"})
    problem(asks.push(body, slack(body, "other-secret")), 401, "unauthorized")
    assert todos(agent) == []


def test_secrets_are_nowhere(house: House, agent: Agent) -> None:
    """C59, R28: no header that proves anything, no secret and no token in events, listings, the database or the log."""
    webhook, body = hook(house, "gitlab", agent), event()
    accepted(webhook.push(body, {"X-Gitlab-Token": KEY, "Authorization": "Bearer marker-auth", "Cookie": "a=marker-cookie"}))
    problem(webhook.push(body, {"X-Gitlab-Token": "marker-wrong"}), 401, "unauthorized")
    stored = execute(house, "select headers::text, verify_detail from events where source = %s", webhook.name)
    hooks = execute(house, "select encode(w.token_sha256, 'escape'), array_to_string(w.secrets, ' ') from webhooks w")
    with house.operator() as operator:
        listed = operator.get("/operator/v1/webhooks").text
    told = f"{stored} {hooks} {listed} {house.log()} {house.said()}"
    for secret in (KEY, "marker-auth", "marker-cookie", "marker-wrong", webhook.path.rpartition("/")[2]):
        assert secret not in told


def test_addresses_that_are_none(house: House) -> None:
    """Whatever it looks like, without a question to the database where it cannot be one; other methods are refused."""
    with house.client() as http:
        for token in ("x", "a" * 43, "a" * 44, "%00", "..%2f..", "\N{SNOWMAN}" * 43, "a" * 5_000):
            assert http.post(f"/hooks/{token}", content=b"{}").status_code in (404, 414, 400), token
        assert http.get("/hooks/" + "a" * 43).status_code == 405


def test_whatever_a_sender_adds_to_the_address(house: House, agent: Agent) -> None:
    """A query string changes nothing: many senders append one, and a 4xx is final to some of them."""
    webhook = hook(house, "token", agent)
    for query in ("?user_id=5&user_id=6", "?", "?%ff=%00"):
        accepted(webhook.http.post(webhook.path + query, content=event()))


def test_limits(open_house: Opener) -> None:
    """413 over the limit, before the address is looked at; 429 with Retry-After over the rate, and others are not held up."""
    house = open_house(settings={"webhooks": {"max_body_bytes": 2_048, "rate_per_second": 0.5, "burst": 3}})
    agent = house.vend()
    webhook, other = hook(house, "token", agent), hook(house, "token", agent)
    with house.client() as http:
        problem(http.post("/hooks/" + "a" * 43, content=b"x" * 2_049), 413, "too_large")
    problem(webhook.http.post(webhook.path, content=iter([b"x" * 1_500, b"x" * 1_500])), 413, "too_large")
    accepted(webhook.push(b"x" * 2_048))
    assert [webhook.push(event()).status_code for _ in range(2)].count(202) >= 1
    refused = webhook.push(event())
    problem(refused, 429, "rate_limited")
    assert 1 <= int(refused.headers["retry-after"]) <= 2
    accepted(other.push(event()))


def test_proxies_that_are_believed(open_house: Opener) -> None:
    """The sender's address is the last that no trusted proxy added; from anybody else the header says nothing."""
    house = open_house(settings={"webhooks": {"trusted_proxies": ["127.0.0.0/8", "10.0.0.0/8"]}})
    agent = house.vend()
    webhook = hook(house, "token", agent)
    (target,) = accepted(webhook.push(event(), {"X-Forwarded-For": "6.6.6.6, 203.0.113.9, 10.1.2.3"}))
    todo = agent.get({"id": target["todo_id"]})
    with house.operator() as operator:
        detail = operator.get(f"/operator/v1/events/{todo['event_id']}").json()["event"]["verify_detail"]
    assert detail.endswith("from 203.0.113.9")


def test_replay_makes_the_same_todo_once_more(house: House, agent: Agent) -> None:
    """Of a stored event, as its first todo was: payload, kind, title, key; while that is open, it is that one."""
    body = json.dumps({"ref": "refs/heads/main", "repository": {"full_name": "o/r"}}).encode()
    webhook = hook(house, "github", agent)
    (target,) = accepted(webhook.push(body, github(body)))
    first = agent.get({"id": target["todo_id"]})
    with house.operator() as operator:
        replay = f"/operator/v1/events/{first['event_id']}/replay"
        open_still = operator.post(replay).json()
        assert (open_still["created"], open_still["todo"]["id"]) == (False, first["id"])
        (claimed,) = agent.claim()
        agent.verb("complete", claimed)
        made = operator.post(replay).json()
        assert made["created"] is True
        problem(operator.post(f"/operator/v1/events/{uuid4()}/replay"), 404, "not_found")
        (event_now,) = operator.get("/operator/v1/events", params={"source": webhook.name}).json()["events"]
    again = agent.get({"id": made["todo"]["id"]})
    same = ("queue", "kind", "title", "payload", "source", "idempotency_key", "event_id", "max_attempts")
    assert {name: again[name] for name in same} == {name: first[name] for name in same}
    assert event_now["todo_ids"] == [again["id"]]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "Not A Name"}, "name"),
        ({"scheme": "bitbucket"}, "scheme"),
        ({"endpoints": []}, "endpoints"),
        ({"endpoints": ["nobody-there"]}, "endpoints"),
        ({"queue": ""}, "queue"),
        ({"secrets": []}, "secrets"),
        ({"secrets": [""]}, "secrets[0]"),
        ({"header": "X-Signature"}, "header"),
        ({"scheme": "token", "secrets": ["s" * 20]}, "secrets"),
        ({"scheme": "standard", "secrets": ["whsec_!!"]}, "secrets[0]"),
        ({"scheme": "hmac", "header": "no header"}, "header"),
        ({"scheme": "hmac", "algorithm": "md5"}, "algorithm"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_a_webhook_that_cannot_be(house: House, agent: Agent, wrong: dict[str, Any], field: str) -> None:
    """Never open by accident: an empty list of secrets, or an empty secret, is refused, like everything else that is wrong."""
    good = {"name": "fine", "scheme": "github", "endpoints": [agent.name], "queue": "work"}
    with house.operator() as operator:
        problem(operator.post("/operator/v1/webhooks", json=good | wrong), 422, "invalid", field)


def test_a_webhook_as_the_operator_sees_it(house: House, agent: Agent) -> None:
    """A secret is made where none is given, shown once; a second one of its name is refused; agents get nowhere near."""
    limited = house.vend(queues=["a"])
    body = {"name": "seen", "scheme": "hmac", "endpoints": [agent.name], "queue": "work", "encoding": "base64"}
    with house.operator() as operator:
        made = operator.post("/operator/v1/webhooks", json=body).json()
        (secret,) = made["secrets"]
        assert len(secret) >= 32
        assert made["webhook"] | {"header": "x-signature", "algorithm": "sha256", "encoding": "base64"} == made["webhook"]
        problem(operator.post("/operator/v1/webhooks", json=body), 409, "conflict")
        listed = operator.get("/operator/v1/webhooks").json()["webhooks"]
        assert next(webhook for webhook in listed if webhook["name"] == "seen") == made["webhook"]
        assert made["webhook"]["secrets"] == 1
        refused = operator.post("/operator/v1/webhooks", json=body | {"name": "seen-2", "endpoints": [limited.name]})
        problem(refused, 422, "invalid", "endpoints")
        for path in ("/operator/v1/webhooks/none", "/operator/v1/webhooks/No%20Name"):
            problem(operator.get(path), 404, "not_found")
            problem(operator.delete(path), 404, "not_found")
    problem(agent.http.get("/operator/v1/webhooks"), 401, "unauthorized")
    with house.client() as nobody:
        problem(nobody.delete("/operator/v1/webhooks/seen"), 401, "unauthorized")


def test_hmac_by_its_settings(house: House, agent: Agent) -> None:
    """Header, algorithm and encoding as the operator said them; the defaults say nothing there."""
    webhook = hook(house, "hmac", agent, header="X-Build-Signature", algorithm="sha512")
    body = event()
    problem(webhook.push(body, generic(body)), 401, "unauthorized")
    accepted(webhook.push(body, {"X-Build-Signature": hexed(body, algorithm="sha512")}))
    accepted(webhook.push(event_ := event(), {"X-Build-Signature": f"sha512={hexed(event_, algorithm='sha512')}"}))


def test_a_todo_that_the_database_refuses_is_quarantined(open_house: Opener) -> None:
    """R23: its sender would only send it again; the event is kept with the reason, and can be released once it is mended."""
    house = open_house(settings=CALM)
    agent = house.vend()
    webhook = hook(house, "token", agent)
    execute(house, "alter table todos add constraint no_poison check (payload::text not like '%%poison%%')")
    (target,) = accepted(webhook.push(b'"poison"'))
    assert (target["todo_id"], target["created"]) == (None, False)
    accepted(webhook.push(b'"good"'))
    with house.operator() as operator:
        (kept,) = operator.get("/operator/v1/events", params={"disposition": "quarantined"}).json()["events"]
        problem(operator.post(f"/operator/v1/events/{kept['id']}/replay"), 409, "conflict")
        execute(house, "alter table todos drop constraint no_poison")
        released = operator.post(f"/operator/v1/events/{kept['id']}/release").json()["event"]
    assert released["disposition"] == "stored"
    assert {todo["payload_bytes"] for todo in todos(agent)} == {6, 8}


def test_secrets_sealed_with_another_key(open_house: Opener) -> None:
    """A house whose key was lost says so, to its operator, and takes nothing that it cannot verify; a rotation mends it."""
    house = open_house(settings=CALM)
    agent = house.vend()
    webhook, body = hook(house, "github", agent), event()
    assert house.stop() == 0
    (house.directory / "state" / "webhook-key").unlink()
    again = open_house.again(house)
    with again.client() as http:
        problem(http.post(webhook.path, content=body, headers=github(body)), 503, "unavailable")
        assert "webhook_secret_unreadable" in again.log()
        assert webhook.name in again.log()
        with again.operator() as operator:
            (secret,) = operator.post(f"/operator/v1/webhooks/{webhook.name}/rotate").json()["secrets"]
        assert http.post(webhook.path, content=body, headers=github(body, secret)).status_code == 202
        problem(http.post(webhook.path, content=body, headers=github(body)), 401, "unauthorized")

"""Payloads and results come back exactly as they were sent, or are refused at once with the name of the field (R22)."""

from __future__ import annotations

import json

import pytest

from tests.houses import Agent, House
from tests.http.asking import dead_letter, execute, post, problem, raw_field

TEXTS = {
    "order of keys": '{"z":1,"a":2,"m":3}',
    "spaces": '{ "a" :  [ 1 , 2 ] ,\n\t"b":\r\n null }',
    "duplicate keys": '{"action":"a","action":"b"}',
    "an escaped backslash before u0000": '"\\\\u0000"',
    "the same deeper": '{"a":["\\\\\\\\u0000","x\\\\u0000y"],"\\\\u0000":1}',
    "escaped backslashes before half a pair": '["\\\\ud83d","\\\\udc00"]',
    "escapes": '"\\u0041\\u00e9\\/\\b\\f\\n\\r\\t\\"\\\\\\u001B\\u001b"',
    "a pair of surrogates": '"\\ud83d\\ude00\\uD83D\\uDE00"',
    "unicode": '"é 🦉 \u2028\u2029 \ufeff \ufffe \uffff \x7f"',
    "unicode keys": '{"é":{"🦉":[]}}',
    "big numbers": "[123456789012345678901234567890,-0,0.1000,1E400,1e-400,-0.0,1.0]",
    "the longest number": "9" * 1_000,
    "a long number in a text": '"' + "9" * 4_000 + '"',
    "depth": "[" * 100 + "]" * 100,
    "empty": "{}",
    "empty text": '""',
    "a null inside": "[null]",
    "false": "false",
    "zero": "0",
    "html": '"</script><!-- &amp; %s {0} $1 \'; drop table todos; --"',
}
REFUSED = {
    "NUL in a text": '{"a":"x\\u0000y"}',
    "NUL in a key": '{"a\\u0000":1}',
    "NUL alone": '"\\u0000"',
    "NUL deep": '{"a":[1,{"b":["\\u0000"]}]}',
    "NUL behind a backslash": '"\\\\\\u0000"',
    "NUL in the earlier of two equal keys": '{"a":"\\u0000","a":1}',
    "a high half alone": '"\\ud83d"',
    "a low half alone": '["\\ude00"]',
    "halves in the wrong order": '"\\ude00\\ud83d"',
    "two high halves": '"\\ud83d\\ud83d"',
    "a half at the end": '"x\\uD83D"',
    "a half before text": '"\\ud83dx"',
    "half a pair in a key": '{"\\ud83d":1}',
    "half a pair behind what looks like the other": '"\\\\ud83d\\ude00"',
    "half a pair before an escaped backslash": '"\\ud83d\\\\ude00"',
    "too long a number": "9" * 1_001,
    "too deep": "[" * 101 + "]" * 101,
}


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


@pytest.fixture(scope="module")
def agent(house: House) -> Agent:
    """One endpoint for all payloads: each stored one is a neighbour of the others."""
    return house.vend()


@pytest.mark.parametrize("payload", TEXTS.values(), ids=TEXTS.keys())
def test_a_payload_comes_back_as_it_was_sent(house: House, payload: str) -> None:
    """R22, C13: to its creator, to whoever reads, claims or retries it, and to the operator: the very same text."""
    agent = house.vend()
    created = post(agent.http, "/v1/todos", f'{{"queue":"q","max_attempts":1,"idempotency_key":"k","payload":{payload}}}')
    assert created.status_code == 201, created.text
    todo = created.json()["todo"]
    assert todo["payload_bytes"] == len(payload.encode())
    path = f"/v1/todos/{todo['id']}"
    claimed = agent.http.post("/v1/claims")
    token = claimed.json()["todos"][0]["lease_token"]
    replies = [
        created,
        claimed,
        agent.http.get(path),
        house.operator().get(f"/operator{path}"),
        post(agent.http, "/v1/todos", '{"queue":"q","idempotency_key":"k"}'),
    ]
    agent.http.post(f"{path}/fail", json={"lease_token": token})
    replies += [agent.http.post(f"{path}/retry"), agent.http.post(f"{path}/claim")]
    for reply in replies:
        assert reply.status_code in (200, 201)
        assert raw_field(reply, "payload") == payload


@pytest.mark.parametrize("result", TEXTS.values(), ids=TEXTS.keys())
def test_a_result_comes_back_as_it_was_sent(house: House, result: str) -> None:
    """R22: results are held to the same promise, one by one and in a batch."""
    agent = house.vend()
    agent.push()
    agent.push()
    first, second = agent.claim(max=2)
    one = post(agent.http, f"/v1/todos/{first['id']}/complete", f'{{"result":{result}}}')
    batch = post(agent.http, "/v1/todos/complete", f'{{"items":[{{"id":"{second["id"]}","result":{result}}}]}}')
    for reply in (one, batch, agent.http.get(f"/v1/todos/{first['id']}"), agent.http.get(f"/v1/todos/{second['id']}")):
        assert reply.status_code == 200
        assert raw_field(reply, "result") == result
        assert f'"result_bytes":{len(result.encode())}' in reply.text


@pytest.mark.parametrize("payload", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_stored_is_refused_by_name(house: House, payload: str) -> None:
    """C1, R22: 422 naming the field, in a create, a batch and a completion; nothing is stored, a clean one follows."""
    agent = house.vend()
    problem(post(agent.http, "/v1/todos", f'{{"queue":"q","payload":{payload}}}'), 422, "invalid", "payload")
    batch = f'{{"todos":[{{"queue":"q"}},{{"queue":"q","payload":{payload}}}]}}'
    problem(post(agent.http, "/v1/todos/batch", batch), 422, "invalid", "todos[1].payload")
    assert agent.http.get("/v1/todos").json()["todos"] == []
    todo = agent.push(payload={"clean": True})
    (claimed,) = agent.claim()
    complete = f"/v1/todos/{todo['id']}/complete"
    problem(post(agent.http, complete, f'{{"result":{payload}}}'), 422, "invalid", "result")
    items = f'{{"items":[{{"id":"{todo["id"]}","result":{payload}}}]}}'
    problem(post(agent.http, "/v1/todos/complete", items), 422, "invalid", "items[0].result")
    assert agent.verb("complete", claimed).status_code == 200


@pytest.mark.parametrize("text", ['"x\\u0000"', '"\\ud83d"', '"\\\\ud83d\\ude00"'])
@pytest.mark.parametrize("field", ["queue", "title", "kind", "assignee", "idempotency_key"])
def test_texts_that_cannot_be_stored_are_refused_in_every_field(agent: Agent, field: str, text: str) -> None:
    """C1: NUL and half a pair of surrogates, by the name of the field."""
    beside = "" if field == "queue" else '"queue":"q",'
    problem(post(agent.http, "/v1/todos", f'{{{beside}"{field}":{text}}}'), 422, "invalid", field)


@pytest.mark.parametrize("text", ['"x\\u0000"', '"\\ud83d"'])
def test_so_are_those_of_the_verbs(agent: Agent, text: str) -> None:
    """C1: an owner, an error, a queue to claim from, an id in a batch, a field that is not known."""
    agent.push()
    (claimed,) = agent.claim()
    path = f"/v1/todos/{claimed['id']}"
    problem(post(agent.http, f"{path}/fail", f'{{"error":{text}}}'), 422, "invalid", "error")
    problem(post(agent.http, f"{path}/heartbeat", f'{{"owner":{text}}}'), 422, "invalid", "owner")
    problem(post(agent.http, "/v1/claims", f'{{"queue":{text}}}'), 422, "invalid", "queue")
    problem(post(agent.http, "/v1/claims", f'{{"queues":["a",{text}]}}'), 422, "invalid", "queues[1]")
    problem(post(agent.http, "/v1/todos/release", f'{{"items":[{{"id":{text}}}]}}'), 422, "invalid", "items[0].id")
    assert post(agent.http, "/v1/claims", f"{{{text}:1}}").status_code == 422
    assert agent.get(claimed)["status"] == "claimed"


def test_a_raw_control_character_is_no_json(agent: Agent) -> None:
    """C1: the byte itself, unescaped: 400."""
    for byte in (b"\0", b"\x1f"):
        problem(post(agent.http, "/v1/todos", b'{"queue":"q","payload":"' + byte + b'"}'), 400, "invalid")


def test_an_emoji_is_no_half_of_anything(agent: Agent) -> None:
    """Pairs of surrogates are decoded in our own fields, and kept as they are in payloads."""
    reply = post(agent.http, "/v1/todos", '{"queue":"\\ud83e\\udd89","title":"\\\\u0000","payload":"\\ud83e\\udd89"}')
    todo = reply.json()["todo"]
    assert (todo["queue"], todo["title"]) == ("🦉", "\\u0000")
    assert raw_field(reply, "payload") == '"\\ud83e\\udd89"'
    assert [each["queue"] for each in agent.claim(queue="🦉")] == ["🦉"]
    listed = agent.http.get("/v1/todos", params={"queue": "🦉"}).json()["todos"]
    assert [each["id"] for each in listed] == [todo["id"]]


def test_a_null_payload_is_null(agent: Agent) -> None:
    """`payload: null` reads as null, as one that was left out does."""
    for body in ('{"queue":"n","payload":null}', '{"queue":"n"}'):
        todo = post(agent.http, "/v1/todos", body).json()["todo"]
        assert agent.get(todo)["payload"] is None


def test_equal_fields_in_our_own_part_of_a_body_are_deterministic(agent: Agent) -> None:
    """C13: of two equal names in the contract's own part of a body the last one counts, always."""
    for _ in range(3):
        assert post(agent.http, "/v1/todos", '{"queue":"a","queue":"b"}').json()["todo"]["queue"] == "b"


def test_payloads_of_a_batch_keep_their_places(house: House) -> None:
    """R22: every text of the table side by side; each comes back from its own place, in a batch and in one claim."""
    agent = house.vend()
    todos = ",".join(f'{{"queue":"q","payload":{payload}}}' for payload in TEXTS.values())
    created = post(agent.http, "/v1/todos/batch", f'{{"todos":[{todos}]}}')
    assert created.status_code == 200
    claimed = agent.http.post("/v1/claims", json={"max": 1_000})
    for reply in (created, claimed):
        rest = reply.text
        for payload in TEXTS.values():
            assert f'"payload":{payload},"payload_bytes":' in rest
            rest = rest.split(f'"payload":{payload},"payload_bytes":', 1)[1]


def test_errors_and_titles_come_back_as_they_are(house: House) -> None:
    """Texts of ours are texts: whatever they hold, they come back as the same characters."""
    agent = house.vend()
    odd = "line\nline\r\ttab \\u0000 \\ \" ' é 🦉 \u2028 \ufeff \x01\x7f</script>%s"
    dead = dead_letter(agent, title=odd, kind=odd, idempotency_key=odd, assignee=None)
    assert [dead[name] for name in ("title", "kind", "idempotency_key")] == [odd] * 3
    agent.verb("retry", dead)
    agent.verb("fail", agent.claim(owner=odd)[0], error=odd)
    found = agent.get(dead)
    assert (found["error"], found["owner"]) == (odd, odd)
    assert [found["attempts"][-1][name] for name in ("error", "owner")] == [odd, odd]


def test_what_is_stored_is_the_text(house: House, agent: Agent) -> None:
    """R22: the column holds the text itself, so that nothing between two houses can re-encode it."""
    text = TEXTS["spaces"]
    todo = post(agent.http, "/v1/todos", f'{{"queue":"stored","payload":{text}}}').json()["todo"]
    assert execute(house, "select payload::text from todos where id = %s", todo["id"]) == [(text,)]


def test_a_claim_stops_at_its_bound_of_bytes(house: House) -> None:
    """R27: an answer carries at most 16 MiB of payload and at least one todo; what it left is still pending, in order."""
    agent = house.vend()
    payload = json.dumps("x" * (1 << 20 >> 1))
    for _ in range(4):
        todos = ",".join([f'{{"queue":"q","payload":{payload}}}'] * 10)
        assert post(agent.http, "/v1/todos/batch", f'{{"todos":[{todos}]}}').status_code == 200
    first = agent.claim(max=1_000)
    assert 0 < sum(todo["payload_bytes"] for todo in first) <= 16 << 20
    assert len(first) == 31
    second = agent.claim(max=1_000)
    assert len(second) == 9
    ids = [todo["id"] for todo in first + second]
    assert ids == sorted(ids)

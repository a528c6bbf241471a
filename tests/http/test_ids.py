"""Malformed, unknown, foreign and out-of-scope ids get the same bytes on every verb (R16, C15)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import attrs
import httpx
import pytest

from tests.houses import Agent, House
from tests.http.asking import NEVER_MINTED, dead_letter, error, execute, problem, row

CALLS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "", None),
    ("POST", "/claim", None),
    ("POST", "/claim", {"owner": "w1"}),
    ("POST", "/heartbeat", None),
    ("POST", "/heartbeat", {"lease_seconds": 30}),
    ("POST", "/complete", None),
    ("POST", "/complete", {"result": {"a": 1}}),
    ("POST", "/complete", {"next": {}}),
    ("POST", "/fail", {"error": "x"}),
    ("POST", "/release", None),
    ("POST", "/retry", None),
]
BATCHES = ("heartbeat", "complete", "fail", "release")


@attrs.frozen(kw_only=True)
class Tenants:
    """Bob, who asks; and Alice's todos, in every state, with all that Bob could know of them."""

    bob: Agent
    alice: Agent
    foreign: dict[str, dict[str, Any]]
    hidden: dict[str, dict[str, Any]]
    own: dict[str, Any]


def in_every_state(agent: Agent, queue: str) -> dict[str, dict[str, Any]]:
    """A todo of each state, as its owner last saw it: the claimed one with its token."""
    todos: dict[str, dict[str, Any]] = {}
    agent.push(queue)
    todos["done"] = agent.verb("complete", agent.claim(queue=queue)[0]).json()["todo"]
    todos["dead"] = dead_letter(agent, queue=queue)
    agent.push(queue)
    todos["parked"] = agent.verb("fail", agent.claim(queue=queue)[0]).json()["todo"]
    agent.push(queue)
    (todos["claimed"],) = agent.claim(queue=queue, owner="w1")
    todos["pending"] = agent.push(queue)
    return todos


@pytest.fixture(scope="module")
def tenants(house: House) -> Tenants:
    """Both with the same queue name; Bob may use one queue, and has todos in another, as if he once might."""
    bob, alice = house.vend("bob", queues=["reviews"]), house.vend("alice")
    hidden = in_every_state(bob, "reviews")
    execute(house, "update todos set queue = 'elsewhere' where endpoint_id = %s", bob.id)
    return Tenants(bob=bob, alice=alice, foreign=in_every_state(alice, "reviews"), hidden=hidden, own=bob.push("reviews"))


def malformed(tenants: Tenants) -> list[str]:
    """Spellings that are no id, most of them of todos that do exist."""
    own, foreign = tenants.own["id"], tenants.foreign["pending"]["id"]
    spellings = [
        "not-a-uuid",
        "0",
        "-",
        "null",
        "NaN",
        "..",
        "x" * 1_000,
        "é",
        "🦉",
        "%00",
        "\0",
        "00000000-0000-0000-0000-000000000000",
    ]
    for id_ in (own, foreign):
        spellings += [
            id_[:-1],
            id_ + "0",
            id_.upper(),
            id_.replace("-", ""),
            f"{{{id_}}}",
            f"urn:uuid:{id_}",
            f" {id_}",
            f"{id_}\n",
            id_[:-1] + "g",
            id_.replace("-", "_"),
            f"{id_},{id_}",
            f"{id_}'--",
        ]
    return [spelling for spelling in spellings if spelling not in (own, foreign)]


def ask(agent: Agent, method: str, id_: str, suffix: str, body: dict[str, Any] | None) -> httpx.Response:
    """One call with this id in its path, encoded so that it stays one part of it."""
    encoded = quote(id_, safe="").replace("..", "%2E%2E")
    return (
        agent.http.request(method, f"/v1/todos/{encoded}{suffix}", json=body)
        if body is not None
        else agent.http.request(method, f"/v1/todos/{encoded}{suffix}")
    )


def seen(reply: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """All of an answer that a prober could compare."""
    headers = {name: value for name, value in reply.headers.items() if name != "date"}
    return reply.status_code, headers, reply.content


@pytest.mark.parametrize(("method", "suffix", "body"), CALLS, ids=lambda part: str(part))
def test_every_id_that_is_not_the_callers_gets_the_same_bytes(
    house: House, tenants: Tenants, method: str, suffix: str, body: dict[str, Any] | None
) -> None:
    """C15, R16: byte for byte, header for header; and nothing of what exists is touched."""
    others = [*tenants.foreign.values(), *tenants.hidden.values()]
    before = [row(house, todo) for todo in others]
    unknown = ask(tenants.bob, method, NEVER_MINTED, suffix, body)
    problem(unknown, 404, "not_found")
    ids = [str(uuid4()), *malformed(tenants), *(todo["id"] for todo in others)]
    for id_ in ids:
        reply = ask(tenants.bob, method, id_, suffix, body)
        assert seen(reply) == seen(unknown), (id_, reply.status_code, reply.text)
    assert [row(house, todo) for todo in others] == before


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release"])
@pytest.mark.parametrize("state", ["pending", "claimed", "parked", "dead", "done"])
def test_not_even_the_right_token_opens_anothers_todo(house: House, tenants: Tenants, verb: str, state: str) -> None:
    """SPEC-0003 A foreign todo id is indistinguishable from a nonexistent one: never a conflict, token and owner or not."""
    todo = tenants.foreign[state]
    token = tenants.foreign["claimed"]["lease_token"]
    before = row(house, todo)
    for body in ({"lease_token": token}, {"owner": "w1"}, {"owner": "w1", "lease_token": token}):
        foreign = ask(tenants.bob, "POST", todo["id"], f"/{verb}", body)
        unknown = ask(tenants.bob, "POST", NEVER_MINTED, f"/{verb}", body)
        assert seen(foreign) == seen(unknown)
        problem(foreign, 404, "not_found")
    assert row(house, todo) == before


@pytest.mark.parametrize("suffix", ["/claim", "/release", "/retry"])
@pytest.mark.parametrize("state", ["pending", "claimed", "parked", "dead", "done"])
def test_no_verb_tells_which_ids_exist(tenants: Tenants, suffix: str, state: str) -> None:
    """SPEC-0003, the same scenario: claim, release and retry, over a todo in each state."""
    foreign = ask(tenants.bob, "POST", tenants.foreign[state]["id"], suffix, None)
    hidden = ask(tenants.bob, "POST", tenants.hidden[state]["id"], suffix, None)
    assert seen(foreign) == seen(hidden) == seen(ask(tenants.bob, "POST", NEVER_MINTED, suffix, None))


@pytest.mark.parametrize("verb", BATCHES)
def test_in_a_batch_they_are_alike_too(tenants: Tenants, verb: str) -> None:
    """R16: one and the same error for each such item, and none of them spoils the others."""
    ids = [NEVER_MINTED, *(id_ for id_ in malformed(tenants) if "\0" not in id_), *(t["id"] for t in tenants.foreign.values())]
    ids += [todo["id"] for todo in tenants.hidden.values()]
    items = [{"id": id_, "owner": "w1"} for id_ in ids]
    results = tenants.bob.http.post(f"/v1/todos/{verb}", json={"items": items}).json()["results"]
    assert len(results) == len(items)
    error(results[0], "not_found")
    assert [(id_, result) for id_, result in zip(ids, results, strict=True) if result != results[0]] == []


def test_the_one_spelling_works(tenants: Tenants) -> None:
    """The canonical id finds the caller's own todo: the tables above are refused for their ids, not for anything else."""
    assert ask(tenants.bob, "GET", tenants.own["id"], "", None).status_code == 200
    for method, suffix, body in CALLS[3:]:
        reply = ask(tenants.bob, method, tenants.own["id"], suffix, body)
        assert problem(reply, 409, "conflict")["state"] == "pending"


def test_the_operator_hears_the_same_of_malformed_and_unknown(house: House, tenants: Tenants) -> None:
    """C15: the operator sees every endpoint's todos, so only what is nowhere is not found; no type error ever shows."""
    operator = house.operator()
    for method, suffix in (("GET", ""), *(("POST", f"/{verb}") for verb in ("claim", "complete", "fail", "release", "retry"))):
        unknown = operator.request(method, f"/operator/v1/todos/{NEVER_MINTED}{suffix}")
        problem(unknown, 404, "not_found")
        for id_ in malformed(tenants):
            encoded = quote(id_, safe="").replace("..", "%2E%2E")
            assert seen(operator.request(method, f"/operator/v1/todos/{encoded}{suffix}")) == seen(unknown), id_

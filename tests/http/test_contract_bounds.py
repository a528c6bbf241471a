"""R27: every field of every body, at its bound and over it, of the wrong type and null; one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import attrs
import httpx
import pytest

from tests.houses import Agent, House
from tests.http.asking import NEVER_MINTED, post, problem

ACCEPTED = (200, 201, 404, 409)
"""What a well-formed request is answered with here, where there may be no such todo."""

NO_TEXT: tuple[str, ...] = ("7", "true", "[]", "{}", "1.5")
NO_NUMBER = ('"7"', "true", "[]", "{}", '""')
NO_WHOLE_NUMBER = (*NO_NUMBER, "1.5", "1e999", "-1", "-1e999", "99999999999999999999999999999999")
TOO_LONG_A_NUMBER = "1" + "0" * 1_001


def text(chars: int, char: str = "x") -> str:
    """A JSON text of so many characters."""
    return json.dumps(char * chars, ensure_ascii=False)


def label(chars_max: int = 200) -> dict[str, Any]:
    """Bounds of a text that must not be empty: counted in characters, of any alphabet."""
    return {
        "good": (text(1), text(chars_max), text(chars_max, "é"), text(chars_max, "🦉"), text(1, " ")),
        "bad": (text(0), text(chars_max + 1), text(chars_max + 1, "é"), *NO_TEXT),
    }


def whole(least: int, most: int) -> dict[str, Any]:
    """Bounds of a whole number."""
    return {"good": (str(least), str(most)), "bad": (str(least - 1), str(most + 1), *NO_WHOLE_NUMBER)}


@attrs.frozen(kw_only=True)
class Field:
    """One field of one address: texts of JSON that it takes, and texts that it refuses by name."""

    path: str
    name: str
    good: tuple[str, ...]
    bad: tuple[str, ...]
    null: bool = True
    beside: str = ""
    named: str | None = None
    inside: str | None = None
    operator: bool = False

    def body(self, value: str) -> str:
        """The request's body with this value in the field."""
        fields = f'{{{self.beside}{"," if self.beside else ""}"{self.name}":{value}}}'
        return f'{{"{self.inside}":{fields}}}' if self.inside else fields

    @property
    def answer(self) -> str:
        """How a refusal names the field."""
        return self.named or (f"{self.inside}.{self.name}" if self.inside else self.name)


def queue_choice(path: str, **options: Any) -> Iterator[Field]:
    """`queue` and `queues`."""
    yield Field(path=path, name="queue", **label(), **options)
    yield Field(
        path=path,
        name="queues",
        good=('["a"]', json.dumps(["q"] * 100), json.dumps([f"q{n}" for n in range(100)])),
        bad=("[]", json.dumps([f"q{n}" for n in range(101)]), '"a"', "7", "{}"),
        **options,
    )
    named = f"{options['inside']}.queues[1]" if "inside" in options else "queues[1]"
    yield Field(
        path=path,
        name="queues",
        good=(f'["a",{text(200)}]',),
        bad=('["a",""]', f'["a",{text(201)}]', '["a",7]', '["a",null]'),
        named=named,
        null=False,
        **options,
    )


def holder(path: str, **options: Any) -> Iterator[Field]:
    """The guard of a holder's verb."""
    yield Field(path=path, name="owner", **label(), **options)
    yield Field(
        path=path, name="lease_token", good=(f'"{uuid4()}"',), bad=('""', '"x"', '"null"', *NO_TEXT, text(36)), **options
    )


def fields() -> Iterator[Field]:
    """Every field that the agents' and operators' addresses take."""
    create = "/v1/todos"
    yield Field(path=create, name="queue", null=False, **label())
    for path, beside, operator in (
        (create, '"queue":"bounds"', False),
        ("/operator/v1/todos", '"endpoint":"bounds","queue":"bounds"', True),
    ):
        common: dict[str, Any] = {"path": path, "beside": beside, "operator": operator}
        yield Field(name="title", good=(text(0), text(1_000), text(1_000, "é")), bad=(text(1_001), *NO_TEXT), **common)
        yield Field(name="kind", **label(), **common)
        yield Field(name="assignee", **label(), **common)
        yield Field(
            name="idempotency_key",
            good=(text(1), text(255), text(512), text(256, "é"), text(128, "🦉")),
            # C14: lengths that an index row could not hold are refused long before it.
            bad=(text(0), text(513), text(257, "é"), text(2_600), text(2_800), text(20_000), *NO_TEXT),
            **common,
        )
        yield Field(name="max_attempts", **whole(1, 100), **common)
        yield Field(name="payload", good=("0", '""', "[]", "{}", "false", "1e999"), bad=(TOO_LONG_A_NUMBER,), **common)

    yield from queue_choice("/v1/claims", beside='"max":1')
    yield Field(path="/v1/claims", name="owner", **label())
    yield Field(path="/v1/claims", name="lease_seconds", **whole(1, 86_400))
    yield Field(path="/v1/claims", name="max", null=False, beside='"queue":"few"', **whole(1, 1_000))
    yield Field(
        path="/v1/claims",
        name="wait_seconds",
        good=("0", "0.001", "0e5", "60", "60.0"),  # the sixty seconds are not waited for: there is work
        bad=("-1", "-0.001", "60.001", "61", "1e999", *NO_NUMBER),
        null=False,
        beside='"queue":"plenty"',
    )

    todo = f"/v1/todos/{NEVER_MINTED}"
    for path, operator in ((todo, False), (f"/operator{todo}", True)):
        yield Field(path=f"{path}/claim", name="owner", operator=operator, **label())
        yield Field(path=f"{path}/claim", name="lease_seconds", operator=operator, **whole(1, 86_400))
        for verb in ("complete", "fail", "release"):
            yield from holder(f"{path}/{verb}", operator=operator)
        yield Field(
            path=f"{path}/complete",
            name="result",
            good=("0", '""', "[]", "{}", "null", "9" * 1_000),
            bad=(TOO_LONG_A_NUMBER, "[" * 101 + "]" * 101),
            operator=operator,
        )
        yield Field(
            path=f"{path}/fail",
            name="error",
            good=(text(0), text(65_536), text(20_000, "é")),
            bad=(text(65_537), *NO_TEXT),
            operator=operator,
        )
    yield from holder(f"{todo}/heartbeat")
    yield Field(path=f"{todo}/heartbeat", name="lease_seconds", **whole(1, 86_400))
    yield Field(path=f"{todo}/complete", name="next", good=("{}",), bad=("7", "[]", '"x"', "true"))
    yield Field(path=f"{todo}/complete", inside="next", name="lease_seconds", **whole(1, 86_400))
    yield from queue_choice(f"{todo}/complete", inside="next")

    name: dict[str, Any] = {
        "good": ('"bounds"', '"b"', '"0"', '"a-_9"', text(63)),
        "bad": ('""', text(64), '"A"', '"-a"', '"_a"', '"a b"', '"a/b"', '"é"', '"a."', '"٣"', *NO_TEXT),
    }
    yield Field(path="/operator/v1/endpoints", name="name", null=False, operator=True, **name)
    yield Field(path="/operator/v1/endpoints", name="name", null=False, operator=True, good=(), bad=('"a\\n"',))
    yield from (
        attrs.evolve(each, beside=f'"name":"b-{uuid4().hex}"')
        for each in queue_choice("/operator/v1/endpoints", operator=True)
        if each.name == "queues"
    )
    yield Field(path="/operator/v1/todos", name="endpoint", null=False, beside='"queue":"q"', operator=True, **name)
    retry = "/operator/v1/todos/retry"
    nobody: dict[str, Any] = {"path": retry, "beside": '"endpoint":"nobody-at-all"', "operator": True}
    yield Field(path=retry, name="endpoint", operator=True, beside='"queue":"nowhere-at-all"', **name)
    yield Field(name="queue", **label(), **nobody)
    yield Field(name="status", good=('"dead"', '"retrying"'), bad=('"done"', '"pending"', '""', *NO_TEXT), **nobody)
    yield Field(
        name="before",
        good=('"2026-11-30T20:00:00Z"', '"2026-11-30T20:00:00.123456+02:00"', '"0001-01-01T00:00:00+23:59"'),
        bad=('"2026-11-30"', '"2026-11-30T20:00:00"', '"yesterday"', '""', '"2026-13-01T00:00:00Z"', *NO_TEXT),
        **nobody,
    )
    yield Field(name="limit", null=False, **whole(1, 1_000), **nobody)


FIELDS = list(fields())


@pytest.fixture(scope="module")
def house(each_lane: House) -> House:
    """A house without sweeps, asked through either lane."""
    return each_lane


@pytest.fixture(scope="module")
def agent(house: House) -> Agent:
    """The endpoint of all these requests, with plenty to claim."""
    made = house.vend()
    made.http.post("/v1/todos/batch", json={"todos": [{"queue": "plenty"} for _ in range(100)]})
    return made


def ask(house: House, agent: Agent, field: Field, value: str) -> httpx.Response:
    """The request with this value in the field."""
    if not field.operator:
        return post(agent.http, field.path, field.body(value))
    with house.client(house.token) as http:
        return post(http, field.path, field.body(value))


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.path.replace(NEVER_MINTED, 'id')} {field.answer}")
def test_a_field_takes_its_bounds_and_refuses_the_rest(house: House, agent: Agent, field: Field) -> None:
    """R27, C14: at the bound it is taken; over it, of the wrong type, negative or too large for a number it is 422."""
    for value in field.good:
        reply = ask(house, agent, field, value)
        assert reply.status_code in ACCEPTED, (value[:60], reply.text)
    for value in field.bad:
        reply = ask(house, agent, field, value)
        assert reply.status_code == 422, (value[:60], reply.text)
        problem(reply, 422, "invalid", field.answer)
    reply = ask(house, agent, field, "NaN")
    problem(reply, 400, "invalid")


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.path.replace(NEVER_MINTED, 'id')} {field.answer}")
def test_null_is_for_optional_fields(house: House, agent: Agent, field: Field) -> None:
    """Null where a field is optional is as good as leaving it out; where it is needed, or has a default, it is 422."""
    reply = ask(house, agent, field, "null")
    if field.null:
        assert reply.status_code in ACCEPTED, reply.text
    elif field.named is None:
        problem(reply, 422, "invalid", field.answer)


def test_a_payload_is_bounded_in_depth(agent: Agent) -> None:
    """R27: 100 levels are taken, 101 are refused by name; brackets in texts do not count."""
    for text_, status in (
        ("[" * 100 + "]" * 100, 201),
        ("[" * 101 + "]" * 101, 422),
        ('{"a":' * 100 + "1" + "}" * 100, 201),
        ('{"a":' * 101 + "1" + "}" * 101, 422),
        ("[" * 5_000 + "]" * 5_000, 422),
        ('{"a":[' * 100_000 + "]}" * 100_000, 422),
        (json.dumps("[" * 5_000), 201),
        (json.dumps(["[{" * 50 + '"\\' * 50] * 3), 201),
        ("[" + "[]," * 5_000 + "[]]", 201),
    ):
        reply = post(agent.http, "/v1/todos", f'{{"queue":"deep","payload":{text_}}}')
        assert reply.status_code == status, text_[:40]
        if status == 422:
            problem(reply, 422, "invalid", "payload")
    deep = "[" * 101 + "]" * 101
    problem(
        post(agent.http, "/v1/todos/batch", f'{{"todos":[{{"queue":"q","payload":{deep}}}]}}'),
        422,
        "invalid",
        "todos[0].payload",
    )
    items = f'{{"items":[{{"id":"{NEVER_MINTED}"}},{{"id":"{NEVER_MINTED}","result":{deep}}}]}}'
    problem(post(agent.http, "/v1/todos/complete", items), 422, "invalid", "items[1].result")


def test_a_number_is_bounded_in_length(agent: Agent) -> None:
    """R22: 1,000 characters of a number are taken, and 1,001 are refused, wherever they stand; in a text they are text."""
    for payload, status in (
        ("9" * 1_000, 201),
        ("9" * 1_001, 422),
        ('{"a":[1,-' + "9" * 5_000 + "]}", 422),
        ("1." + "0" * 5_000, 422),
        ("1e" + "0" * 5_000, 422),
        ('"' + "9" * 5_000 + '"', 201),
        ('{"' + "9" * 5_000 + '":"\\"' + "9" * 5_000 + '"}', 201),
    ):
        reply = post(agent.http, "/v1/todos", f'{{"queue":"long","payload":{payload}}}')
        assert reply.status_code == status, payload[:40]


def test_keys_at_their_bound_are_kept_apart(agent: Agent) -> None:
    """C14: two keys of 512 bytes that differ in their last byte are two keys."""
    one, other = "k" * 511 + "a", "k" * 511 + "b"
    first = agent.push(idempotency_key=one)
    assert first["idempotency_key"] == one
    assert agent.push(idempotency_key=other)["id"] != first["id"]
    assert agent.push(idempotency_key=one)["id"] == first["id"]

"""`/openapi.json` says what the house does: every route, and schemas that take and refuse what the server takes and refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
import pytest

from switchboard.http import routes
from switchboard.http.agent_claims import AgentClaims
from switchboard.http.agent_doorbell import AgentDoorbell
from switchboard.http.agent_todos import AgentTodos, Defaults
from switchboard.http.call import Route
from switchboard.http.hooks import Hooks
from switchboard.http.machine import Machine
from switchboard.http.operator_adapters import OperatorAdapters
from switchboard.http.operator_endpoints import OperatorEndpoints
from switchboard.http.operator_events import OperatorEvents
from switchboard.http.operator_todos import OperatorTodos
from switchboard.http.operator_webhooks import OperatorWebhooks
from tests.houses import House
from tests.http.asking import NEVER_MINTED, dead_letter
from tests.http.test_contract_bounds import FIELDS, Field

ANYWHERE: Any = None
"""Handlers are never called here: the table is read for its words alone."""

BEYOND_A_SCHEMA = re.compile(r"payload|result|idempotency_key")
"""Bounds that a JSON Schema has no word for: bytes of UTF-8, depth, and the length of a number."""

HTTP_STATUSES = {"200", "201", "202", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503"}


MEDIA = {"application/json", "application/problem+json", "application/octet-stream", "text/event-stream"}


def table() -> list[Route]:
    """Every route of the house."""
    defaults = Defaults(lease_seconds=300, max_attempts=5, payload_bytes=1 << 20)
    todos = AgentTodos(ledger=ANYWHERE, transact=ANYWHERE, defaults=defaults, ring=ANYWHERE)
    claims = AgentClaims(ledger=ANYWHERE, defaults=defaults, room=ANYWHERE)
    doorbell = AgentDoorbell(ANYWHERE)
    endpoints = OperatorEndpoints(transact=ANYWHERE, forget=ANYWHERE, drain=ANYWHERE)
    any_todos = OperatorTodos(ledger=ANYWHERE, transact=ANYWHERE, defaults=defaults, ring=ANYWHERE)
    adapters = OperatorAdapters(transact=ANYWHERE, names=[])
    events = OperatorEvents(transact=ANYWHERE, ring=ANYWHERE, max_attempts=5)
    webhooks = OperatorWebhooks(transact=ANYWHERE, sealer=ANYWHERE, forget=ANYWHERE)
    hooks = Hooks(ledger=ANYWHERE, find=ANYWHERE, sealer=ANYWHERE, limits=ANYWHERE)
    machine = Machine(database=ANYWHERE, actors={}, adapters={})
    return [
        *routes.agent_routes(todos, claims, doorbell),
        *routes.operator_routes(endpoints, any_todos),
        *routes.ingestion_routes(adapters, events),
        *routes.webhook_routes(webhooks),
        *routes.hook_routes(hooks),
        *routes.machine_routes(machine),
    ]


@pytest.fixture(scope="module")
def document(house: House) -> dict[str, Any]:
    """The document, as anybody gets it."""
    reply = httpx.get(f"{house.url}/openapi.json", trust_env=False)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    found: dict[str, Any] = reply.json()
    return found


KNOWN = frozenset(
    {
        "$ref",
        "type",
        "properties",
        "required",
        "additionalProperties",
        "anyOf",
        "enum",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "pattern",
        "format",
        "default",
        "title",
        "description",
    }
)
KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
PARSERS: dict[str, Callable[[str], object]] = {"uuid": UUID, "date-time": datetime.fromisoformat}


class Judge:
    """As much of JSON Schema as the document uses; a word that it does not know is an error, so that none is overlooked."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema that a reference means."""
        if "$ref" not in schema:
            return schema
        found = self._document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return found

    def takes(self, schema: dict[str, Any], value: Any) -> bool:
        """Whether the value is one of this schema's."""
        schema = self.resolve(schema)
        assert schema.keys() <= KNOWN, schema.keys() - KNOWN
        if "anyOf" in schema and not any(self.takes(one, value) for one in schema["anyOf"]):
            return False
        if "type" in schema and not _is(schema["type"], value):
            return False
        if "enum" in schema and value not in schema["enum"]:
            return False
        if isinstance(value, str):
            return self._takes_text(schema, value)
        if isinstance(value, list):
            within = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            return within and all(self.takes(schema.get("items", {}), item) for item in value)
        if isinstance(value, dict):
            return self._takes_object(schema, value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
        return True

    def _takes_text(self, schema: dict[str, Any], value: str) -> bool:
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        if "pattern" in schema and not re.search(schema["pattern"].replace("$", r"\Z"), value):
            return False
        parse = PARSERS.get(schema.get("format", ""))
        try:
            parsed = parse(value) if parse else None
        except ValueError:
            return False
        return not isinstance(parsed, datetime) or parsed.tzinfo is not None

    def _takes_object(self, schema: dict[str, Any], value: dict[str, Any]) -> bool:
        properties = schema.get("properties", {})
        if any(name not in value for name in schema.get("required", [])):
            return False
        others = schema.get("additionalProperties", True)
        return all(
            self.takes(properties[name], item)
            if name in properties
            else (others if isinstance(others, bool) else self.takes(others, item))
            for name, item in value.items()
        )


def _is(kind: str, value: object) -> bool:
    """Whether the value is of this type of JSON's, in which true is no number."""
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


@pytest.fixture(scope="module")
def judge(document: dict[str, Any]) -> Judge:
    """A judge by this document."""
    return Judge(document)


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and what is said of it."""
    return [(method, path, said) for path, item in document["paths"].items() for method, said in item.items()]


def body_schema(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of what is posted to a path."""
    template = path.replace(NEVER_MINTED, "{id}")
    found: dict[str, Any] = document["paths"][template]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return found


def test_it_is_a_whole_document(document: dict[str, Any]) -> None:
    """OpenAPI 3.1 with info, paths and components; every reference leads somewhere; every operation has its own id."""
    assert document["openapi"].startswith("3.1.")
    assert {"title", "version", "description", "license"} <= document["info"].keys()
    schemas = document["components"]["schemas"]
    references = set(re.findall(r'"\$ref": ?"([^"]+)"', json.dumps(document)))
    assert references
    assert {reference.removeprefix("#/components/schemas/") for reference in references} <= schemas.keys()
    ids = [said["operationId"] for _, _, said in operations(document)]
    assert len(ids) == len(set(ids))
    for _, path, said in operations(document):
        assert said["summary"]
        assert said["responses"].keys() <= HTTP_STATUSES
        assert "200" in said["responses"] or "201" in said["responses"]
        parameters = said["parameters"]
        in_path = [parameter["name"] for parameter in parameters if parameter["in"] == "path"]
        assert in_path == re.findall(r"{(\w+)}", path)
        assert all(parameter["required"] for parameter in parameters if parameter["in"] == "path")
        assert len({(parameter["in"], parameter["name"]) for parameter in parameters}) == len(parameters)
        for response in said["responses"].values():
            assert response["description"]
            (content,) = response["content"].items()
            assert content[0] in MEDIA
    for name, schema in schemas.items():
        assert set(schema.get("required", [])) <= schema.get("properties", {}).keys(), name


def test_every_route_is_in_it_and_nothing_else(document: dict[str, Any]) -> None:
    """One table makes the router and the document."""
    described = {(method.upper(), path) for method, path, _ in operations(document)}
    assert described == {(route.method, route.path) for route in table()}


def test_each_operation_says_who_may_call_it(document: dict[str, Any]) -> None:
    """Agents' and operators' routes name their credential; the machines' name none."""
    assert document["components"]["securitySchemes"].keys() == {"agent", "operator"}
    for _, path, said in operations(document):
        kind = "agent" if path.startswith("/v1/") else "operator" if path.startswith("/operator/") else None
        assert said.get("security") == ([{kind: []}] if kind else None), path


def test_an_operation_is_served_where_it_is_described(house: House, document: dict[str, Any]) -> None:
    """Every address of the document is one of the house's: with a credential it is neither 404 by address nor 405."""
    agent, operator = house.vend(), house.operator()
    for method, path, said in operations(document):
        client = operator if path.startswith("/operator") else agent.http
        asked = "head" if "text/event-stream" in json.dumps(said) else method  # an answer without an end
        reply = client.request(asked.upper(), path.replace("{id}", NEVER_MINTED).replace("{name}", "nobody-at-all"))
        assert reply.status_code != 405
        assert "no such address" not in reply.text
        assert str(reply.status_code) in said["responses"], (path, reply.text)


def test_bodies_are_strict_and_marked(document: dict[str, Any], judge: Judge) -> None:
    """Unknown fields are refused by every schema; a body is required exactly where a field of it is."""
    for route in table():
        said = document["paths"][route.path][route.method.lower()]
        if route.body is None:
            assert ("requestBody" in said) is route.any_bytes
            continue
        schema = judge.resolve(said["requestBody"]["content"]["application/json"]["schema"])
        assert schema["additionalProperties"] is False
        assert said["requestBody"]["required"] == (not route.body_optional)
        assert bool(schema.get("required")) == (not route.body_optional)


def sent(field: Field, value: str) -> Any:
    """What a field's body parses to."""
    return json.loads(field.body(value))


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.path.replace(NEVER_MINTED, 'id')} {field.answer}")
def test_a_schema_takes_and_refuses_what_the_server_does(document: dict[str, Any], judge: Judge, field: Field) -> None:
    """The table that the server was held against (R27), judged by its own description."""
    schema = body_schema(document, field.path)
    for value in field.good:
        assert judge.takes(schema, sent(field, value)), value[:60]
    for value in field.bad:
        if not BEYOND_A_SCHEMA.search(field.name):
            assert not judge.takes(schema, sent(field, value)), value[:60]
    if field.named is None:
        assert judge.takes(schema, sent(field, "null")) == field.null
    for value in field.good[:1]:
        assert not judge.takes(schema, sent(field, value) | {"surprise": 1})


@pytest.mark.parametrize("path", ["/v1/todos", "/operator/v1/todos"])
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("limit", [1, 200], [0, 201, -1, "many"]),
        ("state", ["pending", "claimed", "done", "failed"], ["dead", ""]),
        ("status", ["pending", "claimed", "retrying", "dead", "done"], ["failed", ""]),
        ("queue", ["q", "q" * 200], ["", "q" * 201]),
        ("cursor", [NEVER_MINTED], ["x", ""]),
    ],
)
def test_query_parameters_are_described(
    document: dict[str, Any], judge: Judge, path: str, name: str, good: list[Any], bad: list[Any]
) -> None:
    """By the same bounds, and each of them optional."""
    (parameter,) = [each for each in document["paths"][path]["get"]["parameters"] if each["name"] == name]
    assert (parameter["in"], parameter["required"]) == ("query", False)
    for value in good:
        assert judge.takes(parameter["schema"], value), value
    for value in bad:
        assert not judge.takes(parameter["schema"], value), value


def test_replies_are_what_is_described(house: House, document: dict[str, Any], judge: Judge) -> None:
    """Real answers of each kind are taken by their schema, and hold no field that it does not name."""
    agent, operator = house.vend(), house.operator()
    path_of = {
        f"/v1/todos/{verb}": ("post", f"/v1/todos/{verb}") for verb in ("batch", "heartbeat", "complete", "fail", "release")
    }
    todo = agent.push(payload={"a": 1}, idempotency_key="k")
    replies = [
        agent.http.post("/v1/todos", json={"queue": "work", "idempotency_key": "k"}),
        agent.http.post("/v1/todos", json={"queue": "work"}),
        agent.http.post("/v1/todos/batch", json={"todos": [{"queue": "q"}, {"queue": "q", "payload": [1]}]}),
        agent.http.post("/v1/claims", json={"queue": "q", "max": 2}),
        agent.http.post(f"/v1/todos/{todo['id']}/claim"),
        agent.http.post(f"/v1/todos/{todo['id']}/heartbeat"),
        agent.http.get(f"/v1/todos/{todo['id']}"),
        agent.http.post(f"/v1/todos/{todo['id']}/complete", json={"result": 1, "next": {}}),
        agent.http.get("/v1/todos"),
        agent.http.get("/v1/queues"),
        agent.http.get("/v1/whoami"),
        agent.http.post("/v1/todos/heartbeat", json={"items": [{"id": todo["id"]}, {"id": NEVER_MINTED}]}),
        agent.http.post(f"/v1/todos/{dead_letter(agent)['id']}/retry"),
        agent.http.post(f"/v1/todos/{todo['id']}/fail"),
        agent.http.post("/v1/claims", json={"max": 0}),
        agent.http.get(f"/v1/todos/{NEVER_MINTED}"),
        operator.get("/operator/v1/todos"),
        operator.get(f"/operator/v1/todos/{todo['id']}"),
        operator.post("/operator/v1/todos/retry", json={"endpoint": agent.name}),
        operator.post(f"/operator/v1/endpoints/{agent.name}/rotate"),
        operator.post(f"/operator/v1/endpoints/{agent.name}/revoke"),
        operator.get("/operator/v1/endpoints"),
        operator.get("/healthz"),
        operator.get("/readyz"),
        agent.http.get("/v1/whoami"),
    ]
    seen = set()
    for reply in replies:
        path = reply.request.url.path.replace(todo["id"], "{id}").replace(NEVER_MINTED, "{id}").replace(agent.name, "{name}")
        path = path_of.get(path, ("", re.sub(r"/todos/[0-9a-f-]{36}/", "/todos/{id}/", path)))[1]
        said = document["paths"][path][reply.request.method.lower()]["responses"][str(reply.status_code)]
        ((media, content),) = said["content"].items()
        assert reply.headers["content-type"] == media
        schema = judge.resolve(content["schema"])
        assert judge.takes(schema, reply.json()), (path, reply.text)
        assert reply.json().keys() <= schema["properties"].keys()
        seen.add(reply.status_code)
        for shown in reply.json().get("todos", []) + [reply.json()[name] for name in ("todo",) if name in reply.json()]:
            assert shown.keys() <= document["components"]["schemas"]["TodoOut"]["properties"].keys()
    assert seen == {200, 201, 401, 404, 409, 422}


def test_the_judge_judges() -> None:
    """A judge that takes everything would prove nothing."""
    judge = Judge({"components": {"schemas": {"A": {"type": "integer", "minimum": 1}}}})
    schema = {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]},
            "b": {"type": "array", "maxItems": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert judge.takes(schema, {"a": 1, "b": [1]})
    assert judge.takes(schema, {"a": None})
    wrongs: list[Any] = [{}, {"a": 0}, {"a": True}, {"a": 1.5}, {"a": "1"}, {"a": 1, "b": [1, 2]}, {"a": 1, "c": 1}, [], None]
    for wrong in wrongs:
        assert not judge.takes(schema, wrong), wrong

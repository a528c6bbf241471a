"""Whatever a scope or an id is made of, it owns something or nothing; it is never a type error. R16, C15."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from switchboard.commands import Complete, Fail, Heartbeat, Held, Release, Undo
from switchboard.errors import NotFound, QueueError, Unauthorized
from switchboard.store import attending, operator, reading
from switchboard.store.reading import TodoFilter
from switchboard.todo import NOWHERE
from tests.store.desk import Desk

MALFORMED: list[object] = [
    None,
    "",
    "x",
    "not-a-uuid",
    7,
    b"bytes",
    "00000000-0000-0000-0000-000000000000",
    NOWHERE,
    "' or true --",
    "\x00",
    "\ud800",
    [],
]


def _spellings(real: UUID) -> list[object]:
    """Every way to write a real id but the one that counts."""
    text = str(real)
    return [
        text.upper() if text.upper() != text else text + " ",
        real.hex,
        f"{{{text}}}",
        f"urn:uuid:{text}",
        f" {text}",
        f"{text}\n",
        text[:-1],
        f"{text}0",
        text.replace("-", "\u2010"),
        text[:8] + text[9:] + "-",
    ]


def _held(endpoint_id: object, todo_id: object) -> list[Held]:
    guards: list[dict[str, object]] = [{"owner": "worker"}, {"lease_token": uuid4()}, {}]
    return [
        verb(endpoint_id=endpoint_id, todo_id=todo_id, **guard)  # type: ignore[arg-type]  # what this test is about
        for verb in (Heartbeat, Complete, Fail, Release)
        for guard in guards
    ]


def _refusals(desk: Desk, endpoint_id: object, todo_id: object) -> list[object]:
    outcomes: list[object] = [*desk.hold(*_held(endpoint_id, todo_id))]
    outcomes += [desk.ask_claim(endpoint_id, todo_id), desk.ask_retry(endpoint_id, todo_id)]
    return outcomes


def test_a_malformed_id_is_an_unknown_id(desk: Desk) -> None:
    """R16: for every verb, every malformed or oddly spelled id gives exactly what an id that was never minted gives."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint)
    before = desk.row(todo)
    for todo_id in [*MALFORMED, *_spellings(todo.id), uuid4()]:
        refusals = _refusals(desk, endpoint, todo_id)
        assert {(type(refusal), str(refusal)) for refusal in refusals} == {(NotFound, "There is no such todo.")}
        assert reading.find(desk.session, endpoint, todo_id) is None
        assert reading.find_with_history(desk.session, endpoint, todo_id) is None
        for look in (operator.get_todo_any_endpoint, operator.endpoint_of_todo):
            with pytest.raises(NotFound):
                look(desk.session, todo_id)
    assert desk.row(todo) == before
    assert reading.find(desk.session, endpoint, str(todo.id)) == reading.find(desk.session, str(endpoint), todo.id) != None  # noqa: E711


def test_a_malformed_scope_owns_nothing(desk: Desk) -> None:
    """R16, SPEC-0003 Endpoint Ownership: an absent or malformed endpoint gives NotFound, an empty list or no claim."""
    endpoint = desk.endpoint()
    todo = desk.claimed(endpoint)
    pending = desk.create(endpoint)
    before = [desk.row(todo), desk.row(pending)]
    for scope in [*MALFORMED, *_spellings(endpoint), uuid4()]:
        for id_ in (todo.id, pending.id, uuid4()):
            assert {type(refusal) for refusal in _refusals(desk, scope, id_)} == {NotFound}
            assert reading.find(desk.session, scope, id_) is None
        for queues in (("work",), ("work", "other"), ()):
            assert desk.claim(scope, *queues, limit=10) == []
        for wanted in (TodoFilter(), TodoFilter(queue="work"), TodoFilter(status="pending"), TodoFilter(state="failed")):
            assert reading.list_todos(desk.session, scope, None, wanted) == []
            assert reading.list_todos(desk.session, scope, ("work",), wanted) == []
        assert reading.count_queues(desk.session, scope, None) == []
        assert attending.already_waiting(desk.session, scope, None, "worker", 10) == []
        assert isinstance(desk.ask_create(scope), Unauthorized)
    assert [desk.row(todo), desk.row(pending)] == before


def test_nothing_can_ever_belong_to_the_scope_that_owns_nothing(desk: Desk) -> None:
    """R16: the schema refuses the endpoint that malformed scopes become, so there is nothing to find under it."""
    assert desk.one("select count(*) from endpoints where id = %s", NOWHERE) == 0
    with pytest.raises(Exception, match="endpoints_id_check"), desk.session.transaction():
        desk.session.execute(
            "insert into endpoints (id, name, credential_sha256) values (%s, 'nowhere', sha256('x'))", [NOWHERE]
        )


def test_an_undo_of_nothing_is_not_found(desk: Desk) -> None:
    """R15, R16: taking back a claim of an unknown todo is NotFound like everything else."""
    outcome = desk.hold_one(Undo(endpoint_id=desk.endpoint(), todo_id=uuid4(), lease_token=uuid4()))
    assert isinstance(outcome, NotFound)
    assert isinstance(outcome, QueueError)

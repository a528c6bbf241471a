"""What the holder of a claim does with it: heartbeat, complete, fail, release; and undo, for a claim nobody heard of.

SPEC-0003 Visibility Window, Lease, and Heartbeat; Bounded Retries; Error Handling Standards. R4 to R7, R15, R32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import attrs

from switchboard.commands import Claimed, ClaimNext, Complete, Fail, Heartbeat, Held, Moved, Outcome, Release, Undo
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import Conflict, NotFound
from switchboard.rounds import rounds_of
from switchboard.store.claiming import claim
from switchboard.store.overdue_turns import OverdueTurns
from switchboard.store.rows import fetch, todos_by_ordinal

_LOCK: Final = load("holder/lock")
_HEARTBEAT: Final = load("holder/heartbeat")
_COMPLETE: Final = load("holder/complete")
_FAIL: Final = load("holder/fail")
_RELEASE: Final = load("holder/release")
_UNDO: Final = load("holder/undo")
_ENDED_BY: Final = load("todos/ended_by")

_Place = tuple[UUID, UUID]


@attrs.frozen(kw_only=True)
class _Verb:
    """One statement, the columns it takes beside the common ones, and how the history calls an attempt it ended."""

    statement: bytes
    extra: dict[str, Callable[[Held], object]] = attrs.field(factory=dict)
    outcome: str | None = None
    participle: str


_VERBS: Final[dict[type[Held], _Verb]] = {
    Heartbeat: _Verb(
        statement=_HEARTBEAT,
        extra={"leases": lambda c: c.lease_seconds if isinstance(c, Heartbeat) else None},
        participle="extended",
    ),
    Complete: _Verb(
        statement=_COMPLETE,
        extra={"results": lambda c: c.result if isinstance(c, Complete) else None},
        outcome="completed",
        participle="completed",
    ),
    Fail: _Verb(
        statement=_FAIL,
        extra={"errors": lambda c: c.error if isinstance(c, Fail) else None},
        outcome="failed",
        participle="failed",
    ),
    Release: _Verb(statement=_RELEASE, outcome="released", participle="released"),
    Undo: _Verb(statement=_UNDO, participle="undone"),
}


def hold(session: Session, commands: Sequence[Held], turns: OverdueTurns) -> list[Outcome]:
    """Runs the holder's verbs, in order.

    Outcomes: `Moved`; `NotFound` for what the endpoint cannot see; `Conflict` with the state for the rest, `already` where
    this very lease token ended its attempt in this very way. A completion's `then` is claimed in the same transaction.
    """
    places = [_place_of(command) for command in commands]
    asked = sorted(set(places))
    locked = fetch(session, _LOCK, {"endpoint_ids": [place[0] for place in asked], "ids": [place[1] for place in asked]})
    states: dict[_Place, str] = {(row["endpoint_id"], row["id"]): row["state"] for row in locked}
    outcomes: dict[int, Outcome] = {}
    for ordinals in rounds_of(places):
        outcomes |= _round(session, commands, ordinals, states)
    _mark_repeats(session, commands, outcomes)
    _claim_following(session, commands, outcomes, turns)
    return [outcomes[ordinal] for ordinal in range(len(commands))]


def _round(
    session: Session, commands: Sequence[Held], ordinals: Sequence[int], states: dict[_Place, str]
) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    for kind, verb in _VERBS.items():
        mine = [ordinal for ordinal in ordinals if type(commands[ordinal]) is kind]
        # Only what was locked is touched: the lock's statement is the one that knows what an endpoint may see.
        visible = [ordinal for ordinal in mine if _place_of(commands[ordinal]) in states]
        moved = todos_by_ordinal(fetch(session, verb.statement, _columns(verb, commands, visible))) if visible else {}
        for ordinal in mine:
            command = commands[ordinal]
            place = _place_of(command)
            if ordinal in moved:
                todo = moved[ordinal]
                states[place] = todo.state
                if isinstance(command, Complete):
                    todo = attrs.evolve(todo, result=command.result)
                outcomes[ordinal] = Moved(todo=todo)
            elif place in states:
                outcomes[ordinal] = _conflict(verb, states[place])
            else:
                outcomes[ordinal] = NotFound()
    return outcomes


def _place_of(command: Held) -> _Place:
    return command.endpoint_id, command.todo_id


def _columns(verb: _Verb, commands: Sequence[Held], ordinals: Sequence[int]) -> dict[str, object]:
    asked = [commands[ordinal] for ordinal in ordinals]
    return {
        "ordinals": list(ordinals),
        "endpoint_ids": [command.endpoint_id for command in asked],
        "ids": [command.todo_id for command in asked],
        "owners": [None if isinstance(command, Undo) else command.owner for command in asked],
        "tokens": [command.lease_token for command in asked],
        **{name: [column(command) for command in asked] for name, column in verb.extra.items()},
    }


def _conflict(verb: _Verb, state: str) -> Conflict:
    if state == "claimed":
        return Conflict(detail="This todo is claimed, but not by this holder.", state=state)
    return Conflict(detail=f"This todo is {state}; only a claimed one can be {verb.participle}.", state=state)


def _mark_repeats(session: Session, commands: Sequence[Held], outcomes: dict[int, Outcome]) -> None:
    """A repeated finish, whose first answer was lost, is told that it is done already (R32)."""
    lost = [ordinal for ordinal, outcome in outcomes.items() if isinstance(outcome, Conflict) and commands[ordinal].lease_token]
    if not lost:
        return
    rows = fetch(
        session,
        _ENDED_BY,
        {
            "endpoint_ids": [commands[ordinal].endpoint_id for ordinal in lost],
            "ids": [commands[ordinal].todo_id for ordinal in lost],
            "tokens": [commands[ordinal].lease_token for ordinal in lost],
        },
    )
    ended = {(row["endpoint_id"], row["todo_id"], row["lease_token"]): row["outcome"] for row in rows}
    for ordinal in lost:
        command, outcome = commands[ordinal], outcomes[ordinal]
        how = ended.get((command.endpoint_id, command.todo_id, command.lease_token))
        if how is not None and how == _VERBS[type(command)].outcome and isinstance(outcome, Conflict):
            outcomes[ordinal] = attrs.evolve(outcome, already=True)


def _claim_following(session: Session, commands: Sequence[Held], outcomes: dict[int, Outcome], turns: OverdueTurns) -> None:
    """The claims that completions asked for, in the same commit. Their probes skip what is locked, so nothing waits."""
    following: dict[int, ClaimNext] = {}
    for ordinal, command in enumerate(commands):
        outcome = outcomes[ordinal]
        if isinstance(command, Complete) and command.then is not None and isinstance(outcome, Moved):
            # Whoever completed goes on, also where only the lease token told who that is.
            following[ordinal] = attrs.evolve(command.then, owner=outcome.todo.owner or command.then.owner)
    if not following:
        return
    for ordinal, claimed in zip(following, claim(session, list(following.values()), turns), strict=True):
        moved = outcomes[ordinal]
        if isinstance(moved, Moved) and isinstance(claimed, Claimed):
            outcomes[ordinal] = attrs.evolve(moved, then=claimed)

"""Claim: by id, or the next ones of some queues. SPEC-0003 Atomic Claim with FOR UPDATE SKIP LOCKED; R4, R9, R11, R12.

Most claims want one todo and find it at the head of a pool: one statement locks and takes. What that leaves short, and
every other claim, is two steps in one transaction: probes that lock exactly what will be taken and step over what others
hold, then one conditional update. Claims of one (endpoint, queues) in a batch share the statements for the sum of what they
want, and are dealt the rows in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final
from uuid import UUID, uuid4

import attrs

from switchboard.commands import Claim, Claimed, ClaimNext, ClaimOne, Outcome
from switchboard.database.border import Session
from switchboard.database.queries import load
from switchboard.errors import Conflict, NotFound, QueueError
from switchboard.rounds import rounds_of
from switchboard.store.overdue_turns import OverdueTurns
from switchboard.store.rows import Row, fetch, todos_by_ordinal
from switchboard.todo import CLAIM_ANSWER_PAYLOAD_BYTES_MAX, Todo

_TAKE_HEAD_IN_QUEUE: Final = load("claims/take_head_in_queue")
_TAKE_HEAD_ANYWHERE: Final = load("claims/take_head_anywhere")
_OWNERS_WITH_ASSIGNED: Final = load("claims/owners_with_assigned")
_LOCK_IN_QUEUE: Final = load("claims/lock_pending_in_queue")
_LOCK_IN_QUEUES: Final = load("claims/lock_pending_in_queues")
_LOCK_ANYWHERE: Final = load("claims/lock_pending_anywhere")
_LOCK_LEFTOVER: Final = load("claims/lock_pending_leftover")
_LOCK_DUE: Final = load("claims/lock_due")
_LOCK_LAPSED: Final = load("claims/lock_lapsed")
_LOCK_NAMED: Final = load("claims/lock_named")
_STATES: Final = load("claims/states")
_TAKE: Final = load("claims/take")


@attrs.frozen
class _Scope:
    """What one probe looks at. `owner` is set only for an owner who has something assigned, and shares with nobody."""

    endpoint_id: UUID
    queues: tuple[str, ...]
    owner: str | None


_Pool = tuple[UUID, tuple[str, ...]]
"""An endpoint and the queues asked for, in order; none: any."""

_Probe = Callable[[Session, _Scope, int], list[Row]]


@attrs.frozen
class _Pick:
    """A locked row and the claim that will have it."""

    ordinal: int
    endpoint_id: UUID
    todo_id: UUID
    owner: str
    lease_seconds: int
    lease_token: UUID


def claim(session: Session, commands: Sequence[Claim], turns: OverdueTurns) -> list[Outcome]:
    """Claims for each command, in order.

    Outcomes: `Claimed` (empty where there is no work); for a claim by id also `NotFound` and `Conflict`.
    """
    outcomes: dict[int, Outcome] = {}
    named = [(ordinal, command) for ordinal, command in enumerate(commands) if isinstance(command, ClaimOne)]
    nexts = [(ordinal, command) for ordinal, command in enumerate(commands) if isinstance(command, ClaimNext)]
    if named:
        outcomes |= _claim_named(session, named)
    if nexts:
        outcomes |= _claim_next(session, nexts, turns)
    return [outcomes[ordinal] for ordinal in range(len(commands))]


def _claim_named(session: Session, named: Sequence[tuple[int, ClaimOne]]) -> dict[int, Outcome]:
    asked = {
        "endpoint_ids": [command.endpoint_id for _, command in named],
        "ids": [command.todo_id for _, command in named],
    }
    locked = {(row["endpoint_id"], row["id"]) for row in fetch(session, _LOCK_NAMED, asked)}
    picks = []
    for ordinal, command in named:
        place = (command.endpoint_id, command.todo_id)
        if place in locked:
            locked.discard(place)  # the same todo twice in one batch: the first has it
            picks.append(
                _Pick(ordinal, *place, command.owner, command.lease_seconds, command.lease_token),
            )
    outcomes: dict[int, Outcome] = {
        picks[place].ordinal: Claimed(todos=(todo,)) for place, todo in _take(session, picks).items()
    }
    if len(outcomes) < len(named):
        seen = {(row["endpoint_id"], row["id"]): row for row in fetch(session, _STATES, asked)}
        for ordinal, command in named:
            if ordinal not in outcomes:
                outcomes[ordinal] = _refusal(command, seen.get((command.endpoint_id, command.todo_id)))
    return outcomes


def _refusal(command: ClaimOne, row: Row | None) -> QueueError:
    if row is None:
        return NotFound()
    if row["assignee"] is not None and row["assignee"] != command.owner:
        return Conflict(detail="This todo is assigned to somebody else.", state=row["state"])
    if row["state"] == "pending":
        return Conflict(detail="Somebody else is changing this todo at this moment.", state="pending")
    return Conflict(detail=f"This todo is {row['state']}; it cannot be claimed now.", state=row["state"])


def _claim_next(session: Session, nexts: Sequence[tuple[int, ClaimNext]], turns: OverdueTurns) -> dict[int, Outcome]:
    dealt: dict[int, list[Todo]] = {ordinal: [] for ordinal, _ in nexts}
    looked: set[_Pool] = set()
    overdue_first: set[_Pool] = set()
    for pool, members in _by_pool(nexts).items():
        if turns.overdue_first(pool):
            overdue_first.add(pool)
        elif len(pool[1]) <= 1 and all(command.limit == 1 for _, command in members):
            looked.add(pool)
            for place, todo in _take_heads(session, pool, [command for _, command in members]).items():
                dealt[members[place][0]].append(todo)
    left = [(ordinal, command) for ordinal, command in nexts if not dealt[ordinal]]
    scopes = list(_by_scope(session, left).items()) if left else []
    # Scopes of one endpoint overlap, and a lock hides no row from its own transaction: each takes before the next one looks.
    for apart in rounds_of([scope.endpoint_id for scope, _ in scopes]):
        picks: list[_Pick] = []
        for scope, members in (scopes[place] for place in apart):
            wanted = sum(command.limit for _, command in members)
            picks += _deal(members, _lock(session, scope, wanted, _probes(scope, looked, overdue_first)))
        for place, todo in sorted(_take(session, picks).items()):
            dealt[picks[place].ordinal].append(todo)
    return {ordinal: Claimed(todos=tuple(todos)) for ordinal, todos in dealt.items()}


def _by_pool(nexts: Sequence[tuple[int, ClaimNext]]) -> dict[_Pool, list[tuple[int, ClaimNext]]]:
    pools: dict[_Pool, list[tuple[int, ClaimNext]]] = {}
    for ordinal, command in nexts:
        pools.setdefault((command.endpoint_id, _queues_of(command)), []).append((ordinal, command))
    return pools


def _queues_of(command: ClaimNext) -> tuple[str, ...]:
    return tuple(sorted(set(command.queues)))


def _take_heads(session: Session, pool: _Pool, commands: Sequence[ClaimNext]) -> dict[int, Todo]:
    """The oldest todos of a pool for claims of one each, by place; none for an owner who has something assigned."""
    endpoint_id, queues = pool
    values: dict[str, object] = {
        "endpoint_id": endpoint_id,
        "limit": len(commands),
        "owners": [command.owner for command in commands],
        "tokens": [uuid4() for _ in commands],
        "leases": [command.lease_seconds for command in commands],
    }
    if queues:
        return todos_by_ordinal(fetch(session, _TAKE_HEAD_IN_QUEUE, values | {"queue": queues[0]}))
    return todos_by_ordinal(fetch(session, _TAKE_HEAD_ANYWHERE, values))


def _by_scope(session: Session, nexts: Sequence[tuple[int, ClaimNext]]) -> dict[_Scope, list[tuple[int, ClaimNext]]]:
    owners = sorted({(command.endpoint_id, command.owner) for _, command in nexts})
    rows = fetch(
        session,
        _OWNERS_WITH_ASSIGNED,
        {"endpoint_ids": [endpoint_id for endpoint_id, _ in owners], "owners": [owner for _, owner in owners]},
    )
    apart = {(row["endpoint_id"], row["owner"]) for row in rows}
    scopes: dict[_Scope, list[tuple[int, ClaimNext]]] = {}
    for ordinal, command in nexts:
        owner = command.owner if (command.endpoint_id, command.owner) in apart else None
        scope = _Scope(command.endpoint_id, _queues_of(command), owner)
        scopes.setdefault(scope, []).append((ordinal, command))
    return scopes


def _probes(scope: _Scope, looked: Set[_Pool], overdue_first: Set[_Pool]) -> Sequence[_Probe]:
    """What is looked at, in order: pending first, but at least once a second what is overdue (R9)."""
    pool = (scope.endpoint_id, scope.queues)
    if pool in overdue_first:
        return (_lock_due, _lock_lapsed, _lock_pending)
    if pool in looked and scope.owner is None:  # a moment ago, and there was not enough
        return (_lock_due, _lock_lapsed)
    return (_lock_pending, _lock_due, _lock_lapsed)


def _lock(session: Session, scope: _Scope, wanted: int, probes: Sequence[_Probe]) -> list[Row]:
    """Up to `wanted` claimable rows, locked. Each probe looks only for what those before it left short (R9)."""
    rows: list[Row] = []
    for probe in probes:
        if len(rows) < wanted:
            rows += probe(session, scope, wanted - len(rows))
    return rows


def _lock_pending(session: Session, scope: _Scope, limit: int) -> list[Row]:
    values: dict[str, object] = {"endpoint_id": scope.endpoint_id, "owner": scope.owner, "limit": limit}
    if not scope.queues:
        rows = fetch(session, _LOCK_ANYWHERE, values)
    elif len(scope.queues) == 1:
        rows = fetch(session, _LOCK_IN_QUEUE, values | {"queue": scope.queues[0]})
    else:
        values["queues"] = list(scope.queues)
        rows = fetch(session, _LOCK_IN_QUEUES, values)
        if len(rows) < limit:
            held = [row["id"] for row in rows]
            rows += fetch(session, _LOCK_LEFTOVER, values | {"limit": limit - len(rows), "held": held})
    return sorted(rows, key=lambda row: (row["created_at"], row["id"]))


def _lock_due(session: Session, scope: _Scope, limit: int) -> list[Row]:
    return fetch(session, _LOCK_DUE, _overdue_values(scope, limit))


def _lock_lapsed(session: Session, scope: _Scope, limit: int) -> list[Row]:
    return fetch(session, _LOCK_LAPSED, _overdue_values(scope, limit))


def _overdue_values(scope: _Scope, limit: int) -> dict[str, object]:
    return {
        "endpoint_id": scope.endpoint_id,
        "queues": list(scope.queues) or None,
        "owner": scope.owner,
        "limit": limit,
    }


def _deal(members: Iterable[tuple[int, ClaimNext]], rows: Sequence[Row]) -> list[_Pick]:
    """Deals locked rows to claims, both in order. A claim stops at its payload bound, with one todo at least (R27)."""
    picks: list[_Pick] = []
    left = iter(rows)
    row = next(left, None)
    for ordinal, command in members:
        payload_bytes = 0
        for taken in range(command.limit):
            if row is None:
                return picks
            payload_bytes += row["payload_bytes"]
            if taken and payload_bytes > CLAIM_ANSWER_PAYLOAD_BYTES_MAX:
                break
            picks.append(_Pick(ordinal, row["endpoint_id"], row["id"], command.owner, command.lease_seconds, uuid4()))
            row = next(left, None)
    return picks


def _take(session: Session, picks: Sequence[_Pick]) -> dict[int, Todo]:
    """The one transition to claimed, for rows that are locked; by place in `picks`."""
    if not picks:
        return {}
    rows = fetch(
        session,
        _TAKE,
        {
            "ordinals": list(range(len(picks))),
            "endpoint_ids": [pick.endpoint_id for pick in picks],
            "ids": [pick.todo_id for pick in picks],
            "owners": [pick.owner for pick in picks],
            "tokens": [pick.lease_token for pick in picks],
            "leases": [pick.lease_seconds for pick in picks],
        },
    )
    return todos_by_ordinal(rows)

"""Every handler with what it needs, bound to its route: the one place that knows all that answers over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import attrs

from switchboard import sweeps
from switchboard.config import Config
from switchboard.database.border import Database
from switchboard.http import openapi, routes
from switchboard.http.access import Access
from switchboard.http.agent_claims import AgentClaims
from switchboard.http.agent_doorbell import AgentDoorbell
from switchboard.http.agent_todos import AgentTodos, Defaults
from switchboard.http.bodies import LargeBodies
from switchboard.http.call import Ledger
from switchboard.http.delivery import Undo, delivering
from switchboard.http.desk import Desk
from switchboard.http.exchange import Application
from switchboard.http.express_lane import ExpressLane
from switchboard.http.hearing import Hearing
from switchboard.http.hooks import Hooks, Limits
from switchboard.http.machine import Beat, Machine, json_bytes
from switchboard.http.operator_adapters import OperatorAdapters
from switchboard.http.operator_endpoints import OperatorEndpoints
from switchboard.http.operator_events import OperatorEvents
from switchboard.http.operator_todos import OperatorTodos
from switchboard.http.operator_webhooks import OperatorWebhooks
from switchboard.http.shell import quart_application
from switchboard.sealing import Sealer
from switchboard.store import webhooks
from switchboard.supervisor import ActorHealth
from switchboard.tally import Tally
from switchboard.todo import Ring
from switchboard.waiting_room import WaitingRoom


@attrs.frozen(kw_only=True)
class Agents:
    """What agents may ask of the house, over whichever protocol they ask it."""

    todos: AgentTodos
    claims: AgentClaims
    hearing: Hearing
    large_bodies: LargeBodies = attrs.field(factory=LargeBodies)


@attrs.frozen(kw_only=True)
class Lanes:
    """The two ways into the same handlers: the general one, as an ASGI application, and the express lane."""

    general: Application
    express: ExpressLane


def agents(*, settings: Config, database: Database, ledger: Ledger, ring: Callable[[Ring], None], room: WaitingRoom) -> Agents:
    """The handlers of everything that agents ask."""
    defaults, transact = _defaults(settings), database.transact
    return Agents(
        todos=AgentTodos(ledger=ledger, transact=transact, defaults=defaults, ring=ring),
        claims=AgentClaims(ledger=ledger, defaults=defaults, room=room),
        hearing=Hearing(room=room, transact=transact),
    )


def lanes(
    *,
    settings: Config,
    access: Access,
    database: Database,
    ledger: Ledger,
    undo: Undo,
    ring: Callable[[Ring], None],
    room: WaitingRoom,
    tell_others: Callable[[UUID], None],
    beat: Callable[[], Beat],
    actors: Mapping[str, ActorHealth],
    adapters: Mapping[str, Tally],
    sealer: Sealer,
    asked_by_agents: Agents,
    beside: Mapping[str, Application],
) -> Lanes:
    """The whole contract; `beside` are the applications that serve a path of their own, below which is nothing."""
    defaults, transact = _defaults(settings), database.transact

    def forget(endpoint_id: UUID) -> None:
        access.forget()
        hooks.forget()  # a revoked endpoint gets no todos of deliveries either (R17)
        room.refuse(endpoint_id)
        tell_others(endpoint_id)

    desk = Desk(
        access=access,
        large_bodies=asked_by_agents.large_bodies,
        payload_bytes_max=settings.limits.payload_bytes,
        batch_body_bytes_max=settings.limits.batch_body_bytes,
    )
    tenants = OperatorEndpoints(transact=transact, forget=forget, drain=partial(sweeps.drain, database))
    any_todos = OperatorTodos(ledger=ledger, transact=transact, defaults=defaults, ring=ring)
    pulled = OperatorAdapters(transact=transact, names=list(adapters))
    events = OperatorEvents(transact=transact, ring=ring, max_attempts=settings.queue.max_attempts)
    hooks = Hooks(
        ledger=ledger,
        find=lambda sha256: transact(partial(webhooks.by_token, token_sha256=sha256), capacity="vital"),
        sealer=sealer,
        limits=Limits(
            body_bytes_max=settings.webhooks.max_body_bytes,
            tolerance_seconds=settings.webhooks.tolerance_seconds,
            rate_per_second=settings.webhooks.rate_per_second,
            burst=settings.webhooks.burst,
            trusted_proxies=settings.webhooks.trusted_proxies,
            max_attempts=settings.queue.max_attempts,
        ),
    )
    pushed = OperatorWebhooks(transact=transact, sealer=sealer, forget=hooks.forget)
    machine = Machine(database=beat, actors=actors, adapters=adapters)
    table = [
        *routes.agent_routes(asked_by_agents.todos, asked_by_agents.claims, AgentDoorbell(asked_by_agents.hearing)),
        *routes.operator_routes(tenants, any_todos),
        *routes.ingestion_routes(pulled, events),
        *routes.webhook_routes(pushed),
        *routes.hook_routes(hooks),
        *routes.machine_routes(machine),
    ]
    machine.openapi = json_bytes(openapi.describe(table))
    app = quart_application(desk, table, hook_body_bytes_max=settings.webhooks.max_body_bytes)
    return Lanes(
        general=delivering(_by_path(beside, app), undo),
        express=ExpressLane(desk=desk, routes=table, undo=undo),
    )


def _by_path(beside: Mapping[str, Application], others: Application) -> Application:
    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        await beside.get(scope["path"].rstrip("/"), others)(scope, receive, send)

    return dispatch


def _defaults(settings: Config) -> Defaults:
    return Defaults(
        lease_seconds=settings.queue.lease_seconds,
        max_attempts=settings.queue.max_attempts,
        payload_bytes=settings.limits.payload_bytes,
    )

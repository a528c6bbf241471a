"""Every address of the house in one table: the router, the contract's description and the tests are made of it."""

from __future__ import annotations

from msgspec import Struct

from switchboard.http import requests, wire
from switchboard.http.agent_claims import AgentClaims
from switchboard.http.agent_doorbell import MEDIA as DOORBELL_MEDIA
from switchboard.http.agent_doorbell import AgentDoorbell
from switchboard.http.agent_todos import AgentTodos
from switchboard.http.call import Handler, Route, Size
from switchboard.http.hooks import Hooks
from switchboard.http.machine import HealthReply, Machine, ReadyReply
from switchboard.http.operator_adapters import OperatorAdapters
from switchboard.http.operator_endpoints import OperatorEndpoints
from switchboard.http.operator_events import RAW_MEDIA, OperatorEvents
from switchboard.http.operator_todos import OperatorTodos
from switchboard.http.operator_webhooks import OperatorWebhooks


class OpenApiReply(Struct, frozen=True, kw_only=True):
    """An OpenAPI 3.1 document."""


def agent_routes(todos: AgentTodos, claims: AgentClaims, doorbell: AgentDoorbell) -> list[Route]:
    """What agents call, with an endpoint's credential."""
    return [
        _agent_post(
            "/v1/todos",
            todos.create,
            requests.CreateTodoBody,
            {201: wire.CreatedReply, 200: wire.CreatedReply},
            "Make a todo, or get its live twin.",
        ),
        _agent_post(
            "/v1/todos/batch",
            todos.create_batch,
            requests.CreateBatchBody,
            {200: wire.ResultsReply},
            "Make up to 1,000 todos.",
            size="batch",
        ),
        _agent_get("/v1/todos", todos.list_todos, wire.PageReply, "List todos, newest first.", requests.ListQuery),
        _agent_get("/v1/todos/{id}", todos.get, wire.TodoReply, "One todo with its payload and history."),
        _agent_post(
            "/v1/claims",
            claims.claim,
            requests.ClaimBody,
            {200: wire.TodosReply},
            "Claim the next todos, waiting for the first if asked to.",
            optional=True,
        ),
        _agent_verb("claim", claims.claim_one, requests.ClaimOneBody, "Claim this todo."),
        _agent_verb("heartbeat", claims.heartbeat, requests.HeartbeatBody, "Extend the lease."),
        _agent_post(
            "/v1/todos/{id}/complete",
            claims.complete,
            requests.CompleteBody,
            {200: wire.CompletedReply},
            "Complete a claimed todo and, with `next`, claim the following one in the same commit.",
            optional=True,
        ),
        _agent_verb("fail", claims.fail, requests.FailBody, "Fail a claimed todo: it is retried later, or dead-lettered."),
        _agent_verb("release", claims.release, requests.ReleaseBody, "Give a claimed todo back."),
        _agent_verb("retry", todos.retry, requests.NoBody, "Put a failed todo back to pending."),
        _agent_batch("heartbeat", claims.heartbeat_batch, requests.HeartbeatBatchBody, "Extend up to 1,000 leases."),
        _agent_batch("complete", claims.complete_batch, requests.CompleteBatchBody, "Complete up to 1,000 todos."),
        _agent_batch("fail", claims.fail_batch, requests.FailBatchBody, "Fail up to 1,000 todos."),
        _agent_batch("release", claims.release_batch, requests.ReleaseBatchBody, "Give up to 1,000 todos back."),
        _agent_get("/v1/queues", todos.queues, wire.QueuesReply, "What each queue holds."),
        _agent_get(
            "/v1/doorbell",
            doorbell.listen,
            wire.DoorbellReply,
            "Hear, as Server-Sent Events, of todos that wait.",
            requests.DoorbellQuery,
            media=DOORBELL_MEDIA,
        ),
        _agent_get("/v1/whoami", todos.whoami, wire.WhoamiReply, "Whose credential this is, and the server's defaults."),
    ]


def operator_routes(endpoints: OperatorEndpoints, todos: OperatorTodos) -> list[Route]:
    """What the operator calls, with the operator's token."""
    verb = "/todos/{id}/"
    return [
        _operator_get("/endpoints", endpoints.list_endpoints, wire.EndpointsReply, "Every endpoint."),
        _operator_post(
            "/endpoints",
            endpoints.vend,
            {201: wire.CredentialReply},
            "Vend an endpoint; its credential is shown this once.",
            requests.VendBody,
            optional=False,
        ),
        _operator_post(
            "/endpoints/{name}/rotate", endpoints.rotate, {200: wire.CredentialReply}, "Replace an endpoint's credential."
        ),
        _operator_post(
            "/endpoints/{name}/revoke",
            endpoints.revoke,
            {200: wire.RevokedReply},
            "Revoke an endpoint and dead-letter its open todos.",
        ),
        _operator_get("/todos", todos.list_todos, wire.PageReply, "Todos of any endpoint.", requests.OperatorListQuery),
        _operator_post(
            "/todos",
            todos.create,
            {201: wire.CreatedReply, 200: wire.CreatedReply},
            "Make a todo for an endpoint.",
            requests.OperatorCreateTodoBody,
            optional=False,
        ),
        _operator_post("/todos/retry", todos.retry_many, {200: wire.RetriedReply}, "Retry by filter.", requests.RetryManyBody),
        _operator_get("/todos/{id}", todos.get, wire.TodoReply, "One todo of any endpoint, with its history."),
        _operator_post(f"{verb}claim", todos.claim, {200: wire.TodoReply}, "Claim this todo.", requests.ClaimOneBody),
        _operator_post(f"{verb}complete", todos.complete, {200: wire.TodoReply}, "Complete it.", requests.CompleteItemBody),
        _operator_post(f"{verb}fail", todos.fail, {200: wire.TodoReply}, "Fail it.", requests.FailBody),
        _operator_post(
            f"{verb}release", todos.release, {200: wire.TodoReply}, "Give it back, whoever holds it.", requests.ReleaseBody
        ),
        _operator_post(f"{verb}retry", todos.retry, {200: wire.TodoReply}, "Put it back to pending."),
    ]


def hook_routes(hooks: Hooks) -> list[Route]:
    """Where strangers push to."""
    return [
        Route(
            method="POST",
            path="/hooks/{token}",
            handler=hooks.receive,
            who="anyone",
            summary="Deliver to a webhook; its scheme verifies the bytes.",
            any_bytes=True,
            query=requests.NoQuery,
            replies={202: wire.AcceptedReply, 200: wire.ChallengeReply},
        )
    ]


def webhook_routes(webhooks: OperatorWebhooks) -> list[Route]:
    """What the operator calls about webhooks."""
    one, routes = "/webhooks/{name}", "/webhooks/{name}/routes"
    return [
        _operator_get("/webhooks", webhooks.list_webhooks, wire.WebhooksReply, "Every webhook."),
        _operator_post(
            "/webhooks",
            webhooks.create,
            {201: wire.NewWebhookReply},
            "Make a webhook; its address and its secrets are shown this once.",
            requests.CreateWebhookBody,
            optional=False,
        ),
        _operator_get(one, webhooks.get, wire.WebhookReply, "One webhook."),
        _operator_delete(one, webhooks.delete, wire.WebhookReply, "End a webhook."),
        _operator_post(
            f"{one}/rotate",
            webhooks.rotate,
            {200: wire.RotatedWebhookReply},
            "Give it a new secret beside the newest one, or a new address.",
            requests.RotateWebhookBody,
        ),
        _operator_post(
            routes,
            webhooks.route,
            {200: wire.WebhookReply},
            "Route it to one more endpoint.",
            requests.RouteBody,
            optional=False,
        ),
        _operator_delete(f"{routes}/{{endpoint}}", webhooks.unroute, wire.WebhookReply, "Take an endpoint off its routes."),
    ]


def ingestion_routes(adapters: OperatorAdapters, events: OperatorEvents) -> list[Route]:
    """What the operator calls about what comes in from outside."""
    return [
        _operator_get("/adapters", adapters.list_adapters, wire.AdaptersReply, "Every pull adapter, and how it is."),
        _operator_post("/adapters/{name}/enable", adapters.enable, {200: wire.AdapterReply}, "Let an adapter consume."),
        _operator_post("/adapters/{name}/disable", adapters.disable, {200: wire.AdapterReply}, "Stop an adapter."),
        _operator_get("/events", events.list_events, wire.EventsReply, "What came in.", requests.EventsQuery),
        _operator_get("/events/{id}", events.get, wire.EventReply, "One event, with its headers."),
        _operator_get("/events/{id}/raw", events.raw, wire.RawReply, "The bytes that came in.", media=RAW_MEDIA),
        _operator_post(
            "/events/{id}/release", events.release, {200: wire.EventReply}, "Store a quarantined event after all, as a todo."
        ),
        _operator_post(
            "/events/{id}/replay", events.replay, {200: wire.CreatedReply}, "Make a todo of a stored event once more."
        ),
        _operator_post("/events/{id}/discard", events.discard, {200: wire.EventReply}, "Make nothing of a quarantined event."),
    ]


def machine_routes(machine: Machine) -> list[Route]:
    """What anybody may call."""
    return [
        _open("/healthz", machine.healthz, HealthReply, "Alive; no database is asked."),
        _open("/readyz", machine.readyz, ReadyReply, "Ready, with each part of the house.", 503),
        _open("/openapi.json", machine.describe, OpenApiReply, "This description."),
    ]


def _agent_get(
    path: str,
    handler: Handler,
    reply: type[Struct],
    summary: str,
    query: type[Struct] = requests.NoQuery,
    *,
    media: str = "application/json",
) -> Route:
    return Route(
        method="GET", path=path, handler=handler, who="agent", summary=summary, query=query, replies={200: reply}, media=media
    )


def _agent_post(
    path: str,
    handler: Handler,
    body: type[Struct],
    replies: dict[int, type[Struct]],
    summary: str,
    *,
    optional: bool = False,
    size: Size = "payload",
) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        who="agent",
        summary=summary,
        body=body,
        body_optional=optional,
        size=size,
        query=requests.NoQuery,
        replies=replies,
    )


def _agent_verb(verb: str, handler: Handler, body: type[Struct], summary: str) -> Route:
    return _agent_post(f"/v1/todos/{{id}}/{verb}", handler, body, {200: wire.TodoReply}, summary, optional=True)


def _agent_batch(verb: str, handler: Handler, body: type[Struct], summary: str) -> Route:
    return _agent_post(f"/v1/todos/{verb}", handler, body, {200: wire.ResultsReply}, summary, size="batch")


def _operator_get(
    path: str,
    handler: Handler,
    reply: type[Struct],
    summary: str,
    query: type[Struct] = requests.NoQuery,
    *,
    media: str = "application/json",
) -> Route:
    return Route(
        method="GET",
        path=f"/operator/v1{path}",
        handler=handler,
        who="operator",
        summary=summary,
        query=query,
        replies={200: reply},
        media=media,
    )


def _operator_post(
    path: str,
    handler: Handler,
    replies: dict[int, type[Struct]],
    summary: str,
    body: type[Struct] = requests.NoBody,
    *,
    optional: bool = True,
) -> Route:
    return Route(
        method="POST",
        path=f"/operator/v1{path}",
        handler=handler,
        who="operator",
        summary=summary,
        body=body,
        body_optional=optional,
        query=requests.NoQuery,
        replies=replies,
    )


def _operator_delete(path: str, handler: Handler, reply: type[Struct], summary: str) -> Route:
    return Route(
        method="DELETE",
        path=f"/operator/v1{path}",
        handler=handler,
        who="operator",
        summary=summary,
        query=requests.NoQuery,
        replies={200: reply},
    )


def _open(path: str, handler: Handler, reply: type[Struct], summary: str, *others: int) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        who="anyone",
        summary=summary,
        query=requests.NoQuery,
        replies={200: reply} | dict.fromkeys(others, reply),
    )

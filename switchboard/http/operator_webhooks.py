"""The operator's routes around webhooks: create, list, rotate, delete, and the endpoints that each is routed to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from switchboard.errors import Invalid, NotFound
from switchboard.http import requests, wire
from switchboard.http.call import Call, Reply, Transact
from switchboard.push import schemes
from switchboard.sealing import Sealer
from switchboard.store import webhooks
from switchboard.todo import ENDPOINT_NAME
from switchboard.webhook import PATH_PREFIX, digest_of_token, new_token

KEPT_AT_ROTATION: Final = 1
"""Secrets that stay good beside a new one, until the next rotation: time to give the new one to the sender."""

NoCall = Call[requests.NoBody, requests.NoQuery]


class OperatorWebhooks:
    """Handlers of the operator's routes around webhooks."""

    def __init__(self, *, transact: Transact, sealer: Sealer, forget: Callable[[], None]) -> None:
        self._transact = transact
        self._sealer = sealer
        self._forget = forget

    async def list_webhooks(self, call: NoCall) -> Reply:  # noqa: ARG002 - nothing to ask
        """`GET /operator/v1/webhooks`."""
        found = await self._transact(webhooks.list_webhooks)
        return Reply(content=wire.WebhooksReply(webhooks=[wire.webhook_out(webhook) for webhook in found]))

    async def get(self, call: NoCall) -> Reply:
        """`GET /operator/v1/webhooks/{name}`."""
        webhook = await self._transact(partial(webhooks.get, name=_name(call)))
        return Reply(content=wire.WebhookReply(webhook=wire.webhook_out(webhook)))

    async def create(self, call: Call[requests.CreateWebhookBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/webhooks`: its address and its secrets are shown this once."""
        body = call.body
        secrets = _secrets(body.scheme, body.secrets)
        token = new_token()
        webhook = await self._transact(
            partial(
                webhooks.create,
                name=body.name,
                token_sha256=_digest(token),
                scheme=body.scheme,
                settings=_settings(body),
                queue=body.queue,
                sealed_secrets=[self._sealer.seal(secret) for secret in secrets],
                endpoints=body.endpoints,
            )
        )
        self._forget()
        content = wire.NewWebhookReply(webhook=wire.webhook_out(webhook), path=f"{PATH_PREFIX}{token}", secrets=secrets)
        return Reply(content=content, status=201)

    async def rotate(self, call: Call[requests.RotateWebhookBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/webhooks/{name}/rotate`: a new secret, the one before it stays good until the next rotation;
        with `path`, and for what has no secret but its address, a new address, and the old one ends at once.
        """
        name, body = _name(call), call.body
        webhook = await self._transact(partial(webhooks.get, name=name))
        moves = body.path or webhook.scheme == "token"
        if moves and body.secrets is not None:
            raise Invalid(detail="A rotation gives new secrets or a new address, not both.", field="secrets")
        token = new_token() if moves else None
        secrets = [] if moves else _secrets(webhook.scheme, body.secrets)
        changed = await self._transact(
            partial(
                webhooks.rotate,
                name=name,
                sealed_secrets=[self._sealer.seal(secret) for secret in secrets],
                keep=KEPT_AT_ROTATION,
                token_sha256=None if token is None else _digest(token),
            )
        )
        self._forget()
        path = None if token is None else f"{PATH_PREFIX}{token}"
        return Reply(content=wire.RotatedWebhookReply(webhook=wire.webhook_out(changed), path=path, secrets=secrets))

    async def delete(self, call: NoCall) -> Reply:
        """`DELETE /operator/v1/webhooks/{name}`: its address is unknown at once; what it brought stays."""
        name = _name(call)
        webhook = await self._transact(partial(webhooks.get, name=name))
        await self._transact(partial(webhooks.delete, name=name))
        self._forget()
        return Reply(content=wire.WebhookReply(webhook=wire.webhook_out(webhook)))

    async def route(self, call: Call[requests.RouteBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/webhooks/{name}/routes`."""
        return await self._changed(partial(webhooks.route, name=_name(call), endpoint=call.body.endpoint))

    async def unroute(self, call: NoCall) -> Reply:
        """`DELETE /operator/v1/webhooks/{name}/routes/{endpoint}`."""
        return await self._changed(partial(webhooks.unroute, name=_name(call), endpoint=call.path["endpoint"]))

    async def _changed(self, work: Callable[..., Any]) -> Reply:
        webhook = await self._transact(work)
        self._forget()
        return Reply(content=wire.WebhookReply(webhook=wire.webhook_out(webhook)))


def _secrets(scheme: schemes.Scheme, given: Sequence[str] | None) -> list[str]:
    """The secrets to be good: those given, or one that is made; none where the address is the secret."""
    if scheme == "token":
        if given is not None:
            raise Invalid(detail="The scheme `token` has no secret but its address.", field="secrets")
        return []
    if given is None:
        return [schemes.new_secret(scheme)]
    for place, secret in enumerate(given):
        fault = schemes.secret_fault(scheme, secret)
        if fault is not None:
            raise Invalid(detail=fault, field=f"secrets[{place}]")
    return list(given)


def _settings(body: requests.CreateWebhookBody) -> schemes.Settings:
    """What the generic scheme is told. Raises `Invalid` for a header that cannot be, and for settings of another scheme."""
    settings = schemes.Settings(header=body.header, algorithm=body.algorithm, encoding=body.encoding)
    fault = schemes.settings_fault(body.scheme, settings)
    if fault is not None:
        field, problem = fault
        raise Invalid(detail=problem, field=field)
    return settings


def _digest(token: str) -> bytes:
    digest = digest_of_token(token)
    if digest is None:
        raise RuntimeError("a new token is none")
    return digest


def _name(call: Call[Any, Any]) -> str:
    """The webhook's name in the path. One that no webhook can have is as absent as any other."""
    name = call.path["name"]
    if not ENDPOINT_NAME.fullmatch(name):
        raise NotFound(detail="There is no webhook of this name.")
    return name

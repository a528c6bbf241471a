"""The operator's routes around endpoints: vend, list, rotate, revoke. Credentials are shown once and stored as digests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from switchboard.endpoint import digest, new_credential
from switchboard.errors import NotFound
from switchboard.http import requests, wire
from switchboard.http.call import Call, Reply, Transact
from switchboard.store import endpoints
from switchboard.todo import ENDPOINT_NAME


class OperatorEndpoints:
    """Handlers of the operator's routes around endpoints."""

    def __init__(self, *, transact: Transact, forget: Callable[[UUID], None], drain: Callable[[UUID], Awaitable[int]]) -> None:
        self._transact = transact
        self._forget = forget
        self._drain = drain

    async def vend(self, call: Call[requests.VendBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/endpoints`."""
        credential = new_credential()
        queues = tuple(dict.fromkeys(call.body.queues)) if call.body.queues is not None else None
        endpoint = await self._transact(
            partial(endpoints.vend, name=call.body.name, credential_sha256=digest(credential), queues=queues)
        )
        content = wire.CredentialReply(endpoint=wire.endpoint_out(endpoint), credential=credential)
        return Reply(content=content, status=201)

    async def list_endpoints(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:  # noqa: ARG002 - nothing to ask
        """`GET /operator/v1/endpoints`, the revoked ones too."""
        found = await self._transact(endpoints.list_endpoints)
        return Reply(content=wire.EndpointsReply(endpoints=[wire.endpoint_out(endpoint) for endpoint in found]))

    async def rotate(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/endpoints/{name}/rotate`: the old credential is refused from the commit on."""
        credential = new_credential()
        endpoint = await self._transact(partial(endpoints.rotate, name=_name(call), credential_sha256=digest(credential)))
        self._forget(endpoint.id)
        return Reply(content=wire.CredentialReply(endpoint=wire.endpoint_out(endpoint), credential=credential))

    async def revoke(self, call: Call[requests.NoBody, requests.NoQuery]) -> Reply:
        """`POST /operator/v1/endpoints/{name}/revoke`: refused from its commit on, then swept (R17)."""
        endpoint = await self._transact(partial(endpoints.revoke, name=_name(call)))
        self._forget(endpoint.id)
        dead_lettered = await self._drain(endpoint.id)
        return Reply(content=wire.RevokedReply(endpoint=wire.endpoint_out(endpoint), dead_lettered=dead_lettered))


def _name(call: Call[requests.NoBody, requests.NoQuery]) -> str:
    """The endpoint's name in the path. One that no endpoint can have is as absent as any other."""
    name = call.path["name"]
    if not ENDPOINT_NAME.fullmatch(name):
        raise NotFound(detail="There is no live endpoint of this name.")
    return name

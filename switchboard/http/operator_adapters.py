"""The operator's routes around pull adapters: how they are, and the flag that lets them consume (R21)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from switchboard.adapter import AdapterRow
from switchboard.database.border import Session
from switchboard.http import requests, wire
from switchboard.http.call import Call, Reply, Transact
from switchboard.store import adapters

NoCall = Call[requests.NoBody, requests.NoQuery]


class OperatorAdapters:
    """Handlers of the operator's routes around adapters. `names` are those of this process's configuration."""

    def __init__(self, *, transact: Transact, names: Sequence[str]) -> None:
        self._transact = transact
        self._names = tuple(names)

    async def list_adapters(self, call: NoCall) -> Reply:  # noqa: ARG002 - nothing to ask
        """`GET /operator/v1/adapters`."""
        rows = await self._transact(partial(adapters.list_adapters, names=self._names))
        return Reply(content=wire.AdaptersReply(adapters=[wire.adapter_out(row) for row in rows]))

    async def enable(self, call: NoCall) -> Reply:
        """`POST /operator/v1/adapters/{name}/enable`: it consumes within two seconds."""
        return await self._switch(call.path["name"], enabled=True)

    async def disable(self, call: NoCall) -> Reply:
        """`POST /operator/v1/adapters/{name}/disable`: it stops within two seconds, in every process."""
        return await self._switch(call.path["name"], enabled=False)

    async def _switch(self, name: str, *, enabled: bool) -> Reply:
        row = await self._transact(partial(_switch, name=name, names=self._names, enabled=enabled))
        return Reply(content=wire.AdapterReply(adapter=wire.adapter_out(row)))


def _switch(session: Session, *, name: str, names: Sequence[str], enabled: bool) -> AdapterRow:
    adapters.switch(session, name, names, enabled=enabled)
    return next(row for row in adapters.list_adapters(session, [name]) if row.name == name)

"""A pull adapter: one actor for each, whatever the broker. Consumes while it is permitted to, and says how it is (SPEC-0002).

Any failure ends the run, and the supervisor starts the next one: the only retry there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import structlog
import trio

from switchboard.adapter import Permission
from switchboard.pull.consumption import Consumption, PullSettings
from switchboard.pull.source import OpenSource
from switchboard.slot import Slots
from switchboard.supervisor import one_line

LOOK_SECONDS: Final = 1.0

_log = structlog.get_logger("adapter")


@attrs.frozen(kw_only=True)
class PullAdapter:
    """One adapter with all that it needs. `run` is its actor."""

    settings: PullSettings
    open_source: OpenSource
    permission: Callable[[str], Permission]
    until_changed: Callable[[str, Permission], Awaitable[Permission]]
    slots: Callable[[], Slots | None]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor. It is up at once: a broker that is away keeps no house closed. Ends by any error but a message's own."""
        task_status.started()
        while True:
            permission, slots = await self._until_permitted()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._withdraw, permission, slots, nursery.cancel_scope)
                    async with self.open_source(slots) as source:
                        await Consumption(self.settings, source, permission, self.slots).run()
            except* Exception as group:
                self.settings.tally.state = "backing_off"
                self.settings.tally.last_error = one_line(group)
                self.settings.tally.consecutive_failures += 1
                raise

    async def _until_permitted(self) -> tuple[Permission, Slots]:
        """Waits until this adapter may consume (R18, R21) and the process holds a slot (R31)."""
        permission = self.permission(self.settings.name)
        while True:
            slots = self.slots()
            self.settings.tally.waiting_for = permission.reason
            self.settings.tally.degraded = permission.reason is not None
            if permission.granted and slots is not None:
                return permission, slots
            if not permission.granted and permission.state != self.settings.tally.state:
                self.settings.tally.state = permission.state
                _log.info("adapter_waits", adapter=self.settings.name, state=permission.state, reason=permission.reason)
            with trio.move_on_after(LOOK_SECONDS):
                await self.until_changed(self.settings.name, permission)
            permission = self.permission(self.settings.name)

    async def _withdraw(self, permission: Permission, slots: Slots, scope: trio.CancelScope) -> None:
        """Ends the consumption, blocked read and all, as soon as it is not permitted any more as it was when it began."""
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self.until_changed(self.settings.name, permission)
            now = self.slots()
            if self.permission(self.settings.name) != permission or now is None or now.mine != slots.mine:
                scope.cancel()
                return

"""The adapter flags: once a second, one transaction that reads who may consume and tells the database how everyone is (R21).

A reading older than two seconds counts as unknown, and then nothing is consumed: what an operator has switched off must
not go on because the database that says so is away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs
import trio

from switchboard.adapter import Facts, Permission, Report, Target

LOOK_SECONDS: Final = 1.0
TRUSTED_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 5.0
"""An adapter to which nothing happens is reported this often."""

Flags = tuple[Mapping[str, bool], Mapping[str, Target]]


class AdapterFlags:
    """The last reading, and whoever waits for the next one."""

    def __init__(
        self,
        *,
        adapters: Sequence[Facts],
        register: Callable[[], Awaitable[None]],
        report_and_read: Callable[[Sequence[Report]], Awaitable[Flags]],
        reports: Mapping[str, Callable[[], Report]],
        taken_back: Callable[[Report], None],
    ) -> None:
        self._adapters = {facts.name: facts for facts in adapters}
        self._register = register
        self._report_and_read = report_and_read
        self._reports = reports
        self._taken_back = taken_back
        self._flags: Flags = ({}, {})
        self._read_at = float("-inf")
        self._news = trio.Event()
        self._reported: dict[str, tuple[float, Report]] = {}

    def permission(self, name: str) -> Permission:
        """What the last reading means for an adapter; nothing is permitted by one that is too old."""
        if trio.current_time() - self._read_at > TRUSTED_SECONDS:
            return Permission(state="backing_off", reason="the database is away, so nobody knows whether this is enabled")
        enabled, targets = self._flags
        if not enabled.get(name, False):
            return Permission(state="disabled")
        return _permission(self._adapters[name], targets)

    async def until_changed(self, name: str, known: Permission) -> Permission:
        """Waits until the permission is another one than `known`; returns it."""
        while (now := self.permission(name)) == known:
            # A reading grows old without any event, so there is a time to look as well.
            with trio.move_on_at(max(self._read_at + TRUSTED_SECONDS, trio.current_time()) + 0.01):
                await self._news.wait()
        return now

    async def until_switched(self, name: str) -> None:
        """Waits until an operator has switched the adapter on or off."""
        before = self._flags[0].get(name)
        while self._flags[0].get(name) == before:
            await self._news.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The actor. A database that is away ends the run; the supervisor starts it again."""
        await self._register()
        task_status.started()
        while True:
            asked_at = trio.current_time()
            reports = self._due(asked_at)
            try:
                flags = await self._report_and_read(reports)
            except BaseException:
                # The counts were not added, or nobody knows: told again, they are at worst too high after an outage.
                for report in reports:
                    self._taken_back(report)
                raise
            self._reported |= {report.name: (asked_at, _without_counts(report)) for report in reports}
            self._flags, self._read_at = flags, asked_at
            self._news.set()
            self._news = trio.Event()
            await trio.sleep(max(0.0, LOOK_SECONDS - (trio.current_time() - asked_at)))

    def _due(self, now: float) -> list[Report]:
        """The reports that say something new, and those of quiet adapters now and then."""
        due: list[Report] = []
        for name, take in self._reports.items():
            report = take()
            at, before = self._reported.get(name, (float("-inf"), None))
            if _without_counts(report) != before or _counts(report) or now - at >= QUIET_SECONDS:
                due.append(report)
            else:
                self._taken_back(report)
        return due


def _permission(facts: Facts, targets: Mapping[str, Target]) -> Permission:
    missing = [name for name in facts.endpoints if name not in targets]
    if missing:
        return Permission(state="waiting_for_endpoint", reason=f"endpoint {missing[0]} is not vended yet")
    live = [(name, targets[name]) for name in facts.endpoints if not targets[name].revoked]
    open_ = [target.id for _, target in live if target.queues is None or facts.queue in target.queues]
    if not live:
        return Permission(state="waiting_for_endpoint", reason=f"endpoint {facts.endpoints[0]} was revoked")
    if len(open_) < len(live):
        closed = next(name for name, target in live if target.queues is not None and facts.queue not in target.queues)
        return Permission(state="waiting_for_endpoint", reason=f"endpoint {closed} may not use the queue {facts.queue!r}")
    gone = [name for name in facts.endpoints if targets[name].revoked]
    reason = f"endpoint {gone[0]} was revoked; going on for the others" if gone else None
    return Permission(state="running", endpoint_ids=tuple(open_), reason=reason)


def _without_counts(report: Report) -> Report:
    """A report as far as it is compared with the one before: that something was polled is no news."""
    return attrs.evolve(report, stored=0, duplicates=0, quarantined=0, lost_at_source=0, polled=False, heard=False)


def _counts(report: Report) -> bool:
    return bool(report.stored or report.duplicates or report.quarantined or report.lost_at_source or report.heard)

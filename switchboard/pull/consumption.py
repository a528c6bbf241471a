"""The life of one connection to a broker: read, store, and only then acknowledge (SPEC-0002 Store-Then-Ack Coupling).

It knows no broker: a `Source` does the reading. It reads ahead while up to two batches are being stored, so that broker,
house and database all work; each batch is acknowledged, in order, for exactly what was stored of it.

Two kinds of failure, never mixed up. Whatever is not the message's own fault (the broker, the database, a flip, the end of
the house) ends the run with nothing acknowledged; the source then hands everything out again to the next one. Only what the
database refuses for one message's own sake is counted, here and for that message alone; after `STORES_MAX` it is
quarantined, then acknowledged (R23).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import structlog
import trio

from switchboard.adapter import Permission
from switchboard.commands import Command, Ingest, Ingested, Outcome
from switchboard.errors import Unavailable, Unstorable
from switchboard.ingestion import BODY_BYTES_MAX, Delivery, Origin, wrapper_of
from switchboard.pull.source import Batch, Received, Source
from switchboard.slot import Slots
from switchboard.supervisor import one_line
from switchboard.tally import Tally

STORES_MAX: Final = 10
"""Failed stores of one message alone, for errors that blame it, before it is quarantined (R23)."""
STORE_AGAIN_SECONDS: Final = 0.5
STORES_IN_FLIGHT_MAX: Final = 2
"""As many as the ledger has workers for them. Todos of two such batches may be in either order."""
RECOVER_SECONDS: Final = 10.0
"""How often a running adapter looks again for what was handed out and never acknowledged, its own and of the gone."""
FIRST_POLL_SECONDS: Final = 0.05
POLL_SECONDS: Final = 2.0
LAG_SECONDS: Final = 1.0
QUIET_LAG_SECONDS: Final = 5.0
BLAMED_MESSAGES_MAX: Final = 10_000
NAMED_IN_LOG_MAX: Final = 5

_log = structlog.get_logger("adapter")


@attrs.frozen(kw_only=True)
class PullSettings:
    """What an adapter makes of every message, where it sends them (the ledger's `submit`), and where it keeps count."""

    name: str
    queue: str
    source: str
    max_attempts: int
    submit: Callable[[Sequence[Command]], Awaitable[list[Outcome]]]
    tally: Tally


@attrs.define(eq=False)
class _Storing:
    """A batch on its way into the database, and what came of it: what may be acknowledged, and the outage, if any."""

    batch: Batch
    over: trio.Event = attrs.field(factory=trio.Event)
    receipts: list[bytes] = attrs.field(factory=list)
    outage: Exception | None = None


@attrs.define(eq=False)
class Consumption:
    """One connection's life: `run` reads, stores and acknowledges until it is cancelled or something fails."""

    settings: PullSettings
    source: Source
    permission: Permission
    slots: Callable[[], Slots | None]
    # How often each message was refused for its own sake, and the last word on it. Ours, never the broker's count, which
    # outages raise; forgotten with the run, which only means that a bad message is tried a few times more.
    blamed: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    origin: Origin = attrs.field(init=False)
    recover_at: float = float("-inf")
    lag_at: float = float("-inf")

    @origin.default
    def _origin(self) -> Origin:
        """SPEC-0002 Pull event carries queue trust metadata."""
        return Origin(
            source=self.settings.source,
            family="queue",
            trust_mode="queue",
            verified=False,
            verify_detail=self.source.identity,
            queue=self.settings.queue,
            adapter=self.settings.name,
        )

    async def run(self) -> None:
        """Consumes until cancelled. What nobody acknowledged comes before anything new."""
        storing: deque[_Storing] = deque()
        async with trio.open_nursery() as nursery:
            while True:
                if trio.current_time() >= self.recover_at:
                    await self._finish(storing, left_max=0)
                    await self._recover()
                batch = await self.source.fresh(wait_seconds=0 if storing else self._patience())
                self._healthy()
                await self._finish(storing, left_max=STORES_IN_FLIGHT_MAX - 1 if batch else 0)
                if batch:
                    storing.append(_Storing(batch))
                    nursery.start_soon(self._store, storing[-1])
                await self._look_at_lag()

    def _patience(self) -> float:
        """How long to wait for something new: no longer than until the next look at what was left behind.

        The first wait is a short one: only a read that came back says that this broker lets us read.
        """
        if self.settings.tally.state != "running":
            return FIRST_POLL_SECONDS
        return max(0.01, min(POLL_SECONDS, self.recover_at - trio.current_time()))

    def _healthy(self) -> None:
        tally = self.settings.tally
        if tally.state != "running":
            _log.info("adapter_runs", adapter=self.settings.name, broker=self.source.identity)
        tally.state = "running"
        tally.consecutive_failures = 0
        tally.polled = True

    async def _recover(self) -> None:
        """One pass over everything that was handed out before and is not acknowledged."""
        self.recover_at = trio.current_time() + RECOVER_SECONDS
        slots = self.slots()
        if slots is None:
            return
        batch = await self.source.unacknowledged(slots, from_start=True)
        while batch:
            storing = _Storing(batch)
            await self._store(storing)
            await self._finish(deque([storing]), left_max=0)
            batch = await self.source.unacknowledged(slots, from_start=False)

    async def _finish(self, storing: deque[_Storing], *, left_max: int) -> None:
        """Waits for stores, oldest first, until so many are left; acknowledges what they stored.

        An outage ends the run only after that, so that what was stored is not delivered again for nothing.
        """
        while storing and (len(storing) > left_max or storing[0].over.is_set()):
            oldest = storing.popleft()
            await oldest.over.wait()
            await self.source.acknowledge(oldest.receipts)
            if oldest.outage is not None:
                raise oldest.outage

    async def _look_at_lag(self) -> None:
        if trio.current_time() >= self.lag_at:
            lag = self.settings.tally.lag = await self.source.lag()
            self.lag_at = trio.current_time() + (LAG_SECONDS if lag else QUIET_LAG_SECONDS)

    async def _store(self, storing: _Storing) -> None:
        """Stores a batch as one transaction, where the ledger's bounds allow, and sorts the outcomes."""
        tally = self.settings.tally
        tally.lost_at_source += len(storing.batch.lost)
        messages = storing.batch.messages
        if messages:
            tally.heard = True
            try:
                outcomes = await self.settings.submit([self._command(message) for message in messages])
            except Unavailable as away:
                storing.outage = self._outage(messages, away)
            else:
                self._sort(storing, messages, outcomes)
        storing.over.set()

    def _sort(self, storing: _Storing, messages: Sequence[Received], outcomes: Sequence[Outcome]) -> None:
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, Ingested):
                if self._count(message, outcome):
                    storing.receipts.append(message.receipt)
            elif isinstance(outcome, Unstorable):
                self._blame(message, outcome)
            else:
                if storing.outage is None and isinstance(outcome, Exception):
                    storing.outage = self._outage([message], outcome)

    def _count(self, message: Received, outcome: Ingested) -> bool:
        """Counts a message that is stored; whether it is. One whose every endpoint is revoked belongs to nobody yet (R18)."""
        tally = self.settings.tally
        dispositions = {target.disposition for target in outcome.targets}
        if "stored" in dispositions:
            tally.stored += 1
        if "quarantined" in dispositions:
            tally.quarantined += 1
            _, reason = self.blamed.get(message.key, (0, "see the event"))
            _log.error("message_quarantined", adapter=self.settings.name, message=message.key, reason=reason)
        if dispositions == {"duplicate"}:
            tally.duplicates += 1
        if dispositions != {"refused"}:
            self.blamed.pop(message.key, None)
            return True
        return False

    def _blame(self, message: Received, refusal: Unstorable) -> None:
        """One more failed store of this message alone; it stays with the broker, and is tried again soon."""
        times = self.blamed.get(message.key, (0, ""))[0] + 1
        if len(self.blamed) < BLAMED_MESSAGES_MAX or message.key in self.blamed:
            self.blamed[message.key] = (times, refusal.detail)
        self.recover_at = min(self.recover_at, trio.current_time() + STORE_AGAIN_SECONDS)
        if times == 1:
            _log.warning("message_refused", adapter=self.settings.name, message=message.key, reason=refusal.detail)

    def _outage(self, messages: Sequence[Received], why: Exception) -> Exception:
        """The error that ends the run: what was to be stored, and why it was not. None of it is acknowledged."""
        keys = [message.key for message in messages[:NAMED_IN_LOG_MAX]]
        _log.error("store_failed", adapter=self.settings.name, messages=keys, of=len(messages), error=one_line(why))
        if isinstance(why, Unavailable):
            return attrs.evolve(why, detail=f"store of {keys[0]}: {why.detail}")
        return why

    def _command(self, message: Received) -> Ingest:
        """Normalises a message."""
        times, reason = self.blamed.get(message.key, (0, ""))
        fault = reason if times >= STORES_MAX else None
        if len(message.body) > BODY_BYTES_MAX:
            fault = f"its body is {len(message.body)} bytes; the limit is {BODY_BYTES_MAX}"
        return Ingest(
            delivery=Delivery(
                origin=self.origin,
                external_id=message.key,
                native_id=message.native_id,
                body=message.body,
                headers=message.headers,
            ),
            payload=None if fault else wrapper_of(message.body),
            endpoint_ids=self.permission.endpoint_ids,
            max_attempts=self.settings.max_attempts,
            quarantine=fault,
        )

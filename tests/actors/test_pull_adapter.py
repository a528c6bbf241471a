"""The poll loop against a broker of thirty lines: what is acknowledged, and when; what ends a run; what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
import trio
import trio.testing

from actors.adapter_flags import AdapterFlags
from actors.pull_adapter import PullAdapter
from switchboard.adapter import Facts, Permission, Report, Target
from switchboard.commands import Command, Ingest, Ingested, IngestedFor, Outcome
from switchboard.errors import BrokerError, Unavailable, Unstorable
from switchboard.pull.consumption import STORES_MAX, PullSettings
from switchboard.pull.source import Batch, Received, Source
from switchboard.slot import Slots
from switchboard.tally import Tally

ENDPOINT = uuid4()
SLOTS = Slots(mine=1, live=frozenset({1}), gone=frozenset())


@attrs.define(eq=False)
class FakeBroker:
    """Messages that wait, and those that were handed out; a failure to raise once, if any."""

    waiting: list[bytes] = attrs.field(factory=list)
    unacknowledged_ones: dict[bytes, Received] = attrs.field(factory=dict)
    acknowledged: list[bytes] = attrs.field(factory=list)
    failure: Exception | None = None
    opened: int = 0
    closed: int = 0
    identity: str = "fake: bot"
    _left: list[Received] = attrs.field(factory=list)

    @asynccontextmanager
    async def open(self, slots: Slots) -> AsyncIterator[Source]:
        assert slots == SLOTS
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1

    async def unacknowledged(self, slots: Slots, *, from_start: bool) -> Batch:
        assert slots == SLOTS
        await trio.lowlevel.checkpoint()
        if from_start:
            self._left = list(self.unacknowledged_ones.values())
        batch, self._left = self._left, []
        return Batch(messages=tuple(batch))

    async def fresh(self, *, wait_seconds: float) -> Batch:
        await trio.sleep(0 if self.waiting else wait_seconds)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        messages = [Received(receipt=body, key=body.decode(), native_id=True, body=body) for body in self.waiting]
        self.waiting.clear()
        self.unacknowledged_ones |= {message.receipt: message for message in messages}
        return Batch(messages=tuple(messages))

    async def acknowledge(self, receipts: Sequence[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        for receipt in receipts:
            del self.unacknowledged_ones[receipt]
            self.acknowledged.append(receipt)

    async def lag(self) -> int | None:
        await trio.lowlevel.checkpoint()
        return len(self.waiting)


@attrs.define(eq=False)
class FakeLedger:
    """Answers as `answer` says; keeps what was asked."""

    answer: Callable[[Ingest], Outcome]
    asked: list[list[Ingest]] = attrs.field(factory=list)

    async def submit(self, commands: Sequence[Command]) -> list[Outcome]:
        await trio.sleep(0.01)
        ingests = [command for command in commands if isinstance(command, Ingest)]
        self.asked.append(ingests)
        return [self.answer(command) for command in ingests]


def stored(command: Ingest) -> Outcome:
    disposition: Any = "quarantined" if command.quarantine else "stored"
    return Ingested(targets=(IngestedFor(endpoint_id=ENDPOINT, disposition=disposition, todo_id=uuid4()),))


async def forever(name: str, permission: Permission) -> Permission:
    await trio.sleep_forever()
    raise AssertionError


def adapter(broker: FakeBroker, ledger: FakeLedger, **more: Any) -> PullAdapter:
    granted = Permission(state="running", endpoint_ids=(ENDPOINT,))
    tally = more.pop("tally", None) or Tally(name="orders")
    settings = PullSettings(name="orders", queue="work", source="redis", max_attempts=5, submit=ledger.submit, tally=tally)
    return PullAdapter(
        **{
            "settings": settings,
            "open_source": broker.open,
            "permission": lambda _name: granted,
            "until_changed": forever,
            "slots": lambda: SLOTS,
            **more,
        }
    )


async def test_a_message_is_normalised_stored_and_then_acknowledged(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """SPEC-0002 Store-Then-Ack Coupling; what was handed out before comes first, and everything carries the broker's word."""
    broker = FakeBroker(waiting=[b"2", b"3"])
    broker.unacknowledged_ones[b"1"] = Received(receipt=b"1", key="1", native_id=True, body=b"1")
    ledger = FakeLedger(stored)
    pull = adapter(broker, ledger)
    await nursery.start(pull.run)
    await trio.sleep(1)
    assert broker.acknowledged == [b"1", b"2", b"3"]
    assert [[command.delivery.body for command in batch] for batch in ledger.asked] == [[b"1"], [b"2", b"3"]]
    delivery = ledger.asked[0][0].delivery
    origin = delivery.origin
    assert (origin.family, origin.trust_mode, origin.verified) == ("queue", "queue", False)
    assert (origin.verify_detail, origin.adapter, origin.queue) == ("fake: bot", "orders", "work")
    assert (pull.settings.tally.state, pull.settings.tally.stored) == ("running", 3)
    nursery.cancel_scope.cancel()


async def test_an_outage_acknowledges_what_was_stored_and_ends_the_run(autojump_clock: trio.testing.MockClock) -> None:
    """A batch of which the database stored a part: that part is acknowledged, the rest stays, and nothing is counted."""
    broker = FakeBroker(waiting=[b"1", b"2"])
    away = Unavailable(detail="away")
    ledger = FakeLedger(lambda command: away if command.delivery.body == b"2" else stored(command))
    pull = adapter(broker, ledger)
    with pytest.RaisesGroup(Unavailable, flatten_subgroups=True):
        await pull.run()
    assert broker.acknowledged == [b"1"]
    assert list(broker.unacknowledged_ones) == [b"2"]
    assert (broker.opened, broker.closed) == (1, 1)
    assert (pull.settings.tally.state, pull.settings.tally.consecutive_failures, pull.settings.tally.quarantined) == (
        "backing_off",
        1,
        0,
    )


async def test_r23_only_blame_counts_and_ten_times_is_enough(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """R23: refused for its own sake ten times, a message is quarantined with the last word on it; its neighbours flow."""
    broker = FakeBroker(waiting=[b"good", b"bad", b"fine"])

    def answer(command: Ingest) -> Outcome:
        if command.delivery.body == b"bad" and command.quarantine is None:
            return Unstorable(detail="no such thing")
        return stored(command)

    ledger = FakeLedger(answer)
    pull = adapter(broker, ledger)
    await nursery.start(pull.run)
    await trio.sleep(2)
    assert broker.acknowledged == [b"good", b"fine"]
    await trio.sleep(60)
    assert broker.acknowledged == [b"good", b"fine", b"bad"]
    tries = [command for batch in ledger.asked for command in batch if command.delivery.body == b"bad"]
    assert len(tries) == STORES_MAX + 1
    assert [command.quarantine for command in tries] == [None] * STORES_MAX + ["no such thing"]
    assert pull.settings.tally.quarantined == 1
    nursery.cancel_scope.cancel()


async def test_a_broker_error_ends_the_run_and_is_told(autojump_clock: trio.testing.MockClock) -> None:
    """SPEC-0002 Broker error backs off: the supervisor's retry is the only one; the tally says what went wrong."""
    broker = FakeBroker(failure=BrokerError("XREADGROUP orders: gone"))
    pull = adapter(broker, FakeLedger(stored))
    with pytest.RaisesGroup(BrokerError, flatten_subgroups=True):
        await pull.run()
    assert pull.settings.tally.last_error == "BrokerError: XREADGROUP orders: gone"
    assert pull.settings.tally.broken


async def test_r21_a_flip_and_a_silent_database_end_a_blocked_read(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """R21: switched off, the connection is closed within two seconds; so it is when nobody can tell for two seconds."""
    enabled = {"orders": True}
    target = {"a": Target(id=ENDPOINT, queues=None, revoked=False)}
    silent = trio.Event()

    async def read(reports: Sequence[Report]) -> Any:
        if silent.is_set():
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return dict(enabled), target

    facts = Facts(name="orders", transport="stream", endpoints=("a",), queue="work", enabled=True)
    tally = Tally(name="orders")
    flags = AdapterFlags(
        adapters=[facts],
        register=trio.lowlevel.checkpoint,
        report_and_read=read,
        reports={"orders": tally.take},
        taken_back=tally.give_back,
    )
    await nursery.start(flags.run)
    broker = FakeBroker()
    pull = adapter(broker, FakeLedger(stored), tally=tally, permission=flags.permission, until_changed=flags.until_changed)
    await nursery.start(pull.run)
    await trio.sleep(5)
    assert (broker.opened, broker.closed) == (1, 0)
    enabled["orders"] = False
    await trio.sleep(2)
    assert (broker.closed, tally.state) == (1, "disabled")
    enabled["orders"] = True
    await trio.sleep(2)
    assert (broker.opened, broker.closed) == (2, 1)
    silent.set()
    await trio.sleep(4)
    assert (broker.closed, tally.state) == (2, "backing_off")
    assert "nobody knows" in str(tally.waiting_for)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("targets", "state", "ids", "reason"),
    [
        ({}, "waiting_for_endpoint", 0, "endpoint a is not vended yet"),
        ({"a": False}, "waiting_for_endpoint", 0, "endpoint b is not vended yet"),
        ({"a": False, "b": False}, "running", 2, None),
        ({"a": False, "b": True}, "running", 1, "endpoint b was revoked; going on for the others"),
        ({"a": True, "b": True}, "waiting_for_endpoint", 0, "endpoint a was revoked"),
    ],
)
async def test_r18_permission(targets: dict[str, bool], state: str, ids: int, reason: str | None) -> None:
    """R18: all must be vended; revoked ones are dropped; none left, nothing is consumed."""
    known = {
        name: Target(id=UUID(int=number), queues=None, revoked=gone) for number, (name, gone) in enumerate(targets.items())
    }
    permission = await permitted(known)
    assert (permission.state, len(permission.endpoint_ids), permission.reason) == (state, ids, reason)


async def test_r18_an_endpoint_that_may_not_use_the_queue() -> None:
    """A todo that its own endpoint could never see is not made."""
    known = {name: Target(id=ENDPOINT, queues=("other",), revoked=False) for name in ("a", "b")}
    permission = await permitted(known)
    assert permission.reason == "endpoint a may not use the queue 'work'"


async def permitted(targets: dict[str, Target]) -> Permission:
    """What one reading of these targets permits."""

    async def read(reports: Sequence[Report]) -> Any:
        await trio.lowlevel.checkpoint()
        return {"orders": True}, targets

    tally = Tally(name="orders")
    flags = AdapterFlags(
        adapters=[Facts(name="orders", transport="stream", endpoints=("a", "b"), queue="work", enabled=True)],
        register=trio.lowlevel.checkpoint,
        report_and_read=read,
        reports={"orders": tally.take},
        taken_back=tally.give_back,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(flags.run)
        permission = flags.permission("orders")
        if permission.state == "backing_off":  # nothing was read yet
            permission = await flags.until_changed("orders", permission)
        nursery.cancel_scope.cancel()
    return permission


async def test_counts_are_not_lost_when_a_report_is() -> None:
    """A report that did not arrive is given back, and told again with the next."""
    tally = Tally(name="orders", stored=2, lost_at_source=1)
    report = tally.take()
    tally.stored += 3
    tally.give_back(report)
    assert (tally.take().stored, tally.take().stored, report.lost_at_source) == (5, 0, 1)

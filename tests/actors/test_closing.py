"""The two ways to the end: a signal sets the closing event; and at the end of the grace the process exits (R30)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import trio
import trio.testing

from switchboard.last_resort import LastResort
from switchboard.signals import closing_on_signals

# A process whose worker thread cannot be cancelled, as one inside a COMMIT cannot: Trio waits for it for ever.
STUCK = """
import signal, sys, threading, time, trio
from switchboard import log
from switchboard.last_resort import LastResort
from switchboard.signals import closing_on_signals

def commit():
    threading.Event().wait()

def rescue():
    print("rescued", flush=True)
    {rescue}

async def main():
    closing = trio.Event()
    last = LastResort(grace_seconds={grace}, rescue=rescue)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: closing_on_signals(closing, on_closing=last.arm, task_status=task_status))
        nursery.start_soon(trio.to_thread.run_sync, commit)
        print("up", flush=True)
        await closing.wait()
        print("closing", flush=True)
        nursery.cancel_scope.cancel()
    last.disarm()

log.configure(stream=sys.stderr)
trio.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_sets_closing_and_later_ones_change_nothing(number: signal.Signals) -> None:
    """Nor do they end the process in the middle of its end."""
    closing = trio.Event()
    armed: list[bool] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(_closing, closing, armed)
        assert not closing.is_set()
        os.kill(os.getpid(), number)
        with trio.fail_after(5):
            await closing.wait()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert armed == [False]
        nursery.cancel_scope.cancel()


async def _closing(closing: trio.Event, armed: list[bool], *, task_status: trio.TaskStatus[None]) -> None:
    await closing_on_signals(closing, on_closing=lambda: armed.append(closing.is_set()), task_status=task_status)


@pytest.mark.parametrize("rescue", ["pass", "time.sleep(99)", "raise ValueError", "sys.exit(3)"])
def test_at_the_end_of_the_grace_the_process_exits_even_inside_a_commit(rescue: str) -> None:
    """R30: exit 0 within the grace; the rescue is called, and hanging or failing it cannot stop the exit."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK.format(grace=0.5, rescue=rescue)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        took = time.monotonic() - begun
    assert process.returncode == 0
    assert output == "closing\nrescued\n"
    assert 0.5 <= took < 4.5


def test_a_house_that_ends_in_time_needs_no_last_resort() -> None:
    """Disarmed, its thread is gone; arming twice is arming once."""
    last = LastResort(grace_seconds=60, rescue=lambda: pytest.fail("nobody asked"))
    last.arm()
    last.arm()
    last.disarm()
    LastResort(grace_seconds=60).disarm()

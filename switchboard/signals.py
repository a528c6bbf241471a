"""From a signal to the one event that ends the house."""

from __future__ import annotations

import signal
from collections.abc import Callable

import structlog
import trio

_log = structlog.get_logger("signals")


async def closing_on_signals(
    closing: trio.Event,
    *,
    on_closing: Callable[[], None] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Set `closing` at the first SIGTERM, SIGINT or SIGHUP (a terminal that went away).

    `on_closing`, which arms the last resort, is called just before. Later signals change nothing: the grace is bounded as
    it is, and an impatient second Ctrl-C must not cut an answer short. Runs until it is cancelled, so that they stay
    harmless until the last actor has ended (R30).
    """
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if closing.is_set():
                continue
            _log.info("closing", signal=signal.Signals(number).name)
            if on_closing is not None:
                on_closing()
            closing.set()

"""The end of the grace: the process exits, even inside a COMMIT (R30).

A worker thread that waits for Postgres cannot be cancelled, and Trio waits for its threads. So the last word belongs to
a thread outside of Trio, which needs nothing of the house but the interpreter.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import attrs

# The rescue (stopping an embedded Postgres hard, say) may itself hang; the exit waits no longer than this for it.
RESCUE_SECONDS_MAX = 2.0


@attrs.define(kw_only=True, eq=False)
class LastResort:
    """Ends the process with exit code 0 when it is still there `grace_seconds` after `arm`.

    0, because whoever asked for the end got it: what was not committed by then was never answered, and comes again.
    `rescue`, if any, is called first, in a thread: it kills what would outlive us, and must not touch Trio.
    """

    grace_seconds: float
    rescue: Callable[[], None] | None = None
    _done: threading.Event = attrs.field(init=False, factory=threading.Event)
    _timer: threading.Thread | None = attrs.field(init=False, default=None)

    def arm(self) -> None:
        """Start the clock. Calling it again changes nothing."""
        if self._timer is None:
            self._timer = threading.Thread(target=self._wait, name="last resort", daemon=True)
            self._timer.start()

    def disarm(self) -> None:
        """The house has ended in time: stop the clock, and wait for its thread, so that none is left behind."""
        self._done.set()
        if self._timer is not None:
            self._timer.join()

    def _wait(self) -> None:
        if self._done.wait(self.grace_seconds):
            return
        try:
            if self.rescue is not None:
                rescue = threading.Thread(target=self.rescue, name="rescue", daemon=True)
                rescue.start()
                rescue.join(RESCUE_SECONDS_MAX)
        finally:
            # Not sys.exit: it would wait for the very threads that are stuck. Log lines are flushed one by one.
            os._exit(0)

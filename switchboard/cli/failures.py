"""How a command ends when it does not do what was asked, and the exit code that says so."""

from __future__ import annotations

from switchboard.errors import SwitchboardError

DONE = 0
FAILED = 1
BAD_USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, what a shell reports for any program that Ctrl-C ended
OUTPUT_CLOSED = 141  # 128 + SIGPIPE: `| head` has seen enough


class CommandError(SwitchboardError):
    """The command could not be done. The message is the one line that the operator reads; exit code 1."""


class UsageError(SwitchboardError):
    """What was typed cannot be done by any house. Nothing was asked of one; exit code 2."""


class OutputClosed(SwitchboardError):
    """Whoever read our output has gone. Nothing is said about it; exit code 141."""

"""What makes a worker's commands die with it, also by kill -9: a process that waits for its end and kills what is left.

It holds the reading end of a pipe whose writing end only the worker has, so the end of the pipe is the end of the worker,
however it came. A command tells its process group before it has begun, so there is no moment at which nobody knows it.

PR_SET_PDEATHSIG was not chosen: it reaches the command alone, not what a shell has started for it, and it fires at the end of
the thread that forked, which for Trio is a thread that ends when it has been idle.

This file is also the program of that process, on the standard library alone: a start takes some 20 ms, once for each worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

END_SECONDS_MAX: Final = 5.0


class Guard:
    """The worker's end of the pipe. The watching process lives as long as the `with` block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, where: TracebackType | None) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
                self._process.communicate(timeout=END_SECONDS_MAX)

    def announcing(self) -> Callable[[], None]:
        """What a new process is to call before it becomes the command: it puts its process group under guard."""
        pipe = self._pipe()
        return lambda: _tell(pipe, b"+", os.getpid())

    def forget(self, group: int) -> None:
        """Nothing of this process group is left: its number may soon be somebody else's."""
        _tell(self._pipe(), b"-", group)

    def _pipe(self) -> int:
        """The pipe to a watching process; a new one where somebody has killed the last."""
        if self._process is None or self._process.poll() is not None:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is the worker's to answer
            )
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: it was asked for above
        return self._process.stdin.fileno()


def watch(lines: Iterable[bytes]) -> None:
    """Keeps the process groups that are told (`+12`, `-12`) until there are no more lines, then kills those that are left."""
    groups: set[int] = set()
    for line in lines:
        (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _tell(pipe: int, sign: bytes, group: int) -> None:
    # Far below PIPE_BUF, so it arrives whole. Where somebody has just killed the process that watches, the command runs
    # unwatched this once, and the next one gets a new watcher.
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, b"%b%d\n" % (sign, group))


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its end is the worker's
    watch(sys.stdin.buffer)

"""One house on a state directory at a time: two of them would stop each other's embedded server."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType

import attrs

from switchboard.errors import StartError


@attrs.frozen(kw_only=True)
class HouseLock:
    """Held until closed, or until the process is gone, however it went: the kernel lets go of it."""

    file: Path
    descriptor: int

    def close(self) -> None:
        """Lets the next house in. The file stays, since removing it would let two houses lock two different ones."""
        # Closed once already is fine: a signal and a failing start may both get here.
        with contextlib.suppress(OSError):
            os.close(self.descriptor)

    def __enter__(self) -> HouseLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def hold(state_dir: Path) -> HouseLock:
    """Takes the lock of a prepared state directory, at once or not at all.

    Raises StartError naming the directory, and the process that holds it, where another house does.
    """
    file = state_dir / "house.lock"
    # Close-on-exec, so that the database server does not inherit it: after a kill -9 of the house, a server that lives
    # on must not keep the next house out.
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise StartError(f"The lock file {file} cannot be opened: {exc.strerror}.") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as exc:
        holder = os.pread(descriptor, 20, 0).strip()
        os.close(descriptor)
        who = f" (process {int(holder)})" if holder.isdigit() else ""
        raise StartError(
            f"Another switchboard{who} already uses the state directory {state_dir}: "
            "stop it, or give this one its own with server.state_dir."
        ) from exc
    except OSError as exc:
        os.close(descriptor)
        raise StartError(f"The lock file {file} cannot be locked: {exc.strerror}.") from exc
    return HouseLock(file=file, descriptor=descriptor)

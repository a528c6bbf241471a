"""Who this process is to the slots: an id kept in the state directory, so that a restart finds its slot again (R31)."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from switchboard.errors import StartError
from switchboard.todo import NOWHERE, canonical_id

FILE: Final = "slot-holder"
_BYTES_MAX: Final = 64


@contextlib.contextmanager
def hold(state_dir: Path) -> Iterator[UUID]:
    """The holder id, ours alone for as long as the block lasts; the lock dies with the process, also by kill -9.

    Where another process holds it (two houses that share a state directory), a fresh one that nobody keeps.
    Raises StartError where the file cannot be used.
    """
    try:
        descriptor = os.open(state_dir / FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StartError(f"The file {state_dir / FILE} cannot be opened: {exc.strerror}.") from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield uuid4()
        else:
            yield _kept(descriptor)
    finally:
        os.close(descriptor)


def _kept(descriptor: int) -> UUID:
    kept = canonical_id(os.read(descriptor, _BYTES_MAX).decode("ascii", "replace").strip())
    if kept != NOWHERE:
        return kept
    # Empty, or cut off by a crash: nobody has a slot under what it once said.
    fresh = uuid4()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{fresh}\n".encode("ascii"), 0)
    os.fsync(descriptor)
    return fresh

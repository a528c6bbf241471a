"""Is the server of an earlier house still there? Read from `postmaster.pid`, believed only after a look at the process.

Process numbers are used again, after a reboot above all: a number alone proves nothing.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import attrs

NO_PROCESS = 2_147_483_646  # above every system's highest process number
_PROC = Path("/proc")


@attrs.frozen(kw_only=True)
class Recorded:
    """What `postmaster.pid` says: `status` is `starting`, `ready`, `stopping` or empty."""

    pid: int
    status: str


def recorded(data: Path) -> Recorded | None:
    """What the last server on `data` wrote down, or None where it ended in order or wrote nothing sensible."""
    try:
        lines = (data / "postmaster.pid").read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit():
        return None
    return Recorded(pid=int(lines[0]), status=lines[7].strip() if len(lines) > 7 else "")


def serves(pid: int, data: Path) -> bool:
    """Whether process `pid` is, at this moment, a postmaster that runs on `data`."""
    words = command_of(pid)
    if not words or Path(words[0]).name != "postgres" or "-D" not in words[:-1]:
        return False
    if words[words.index("-D") + 1] == str(data):
        return True
    # It may have been started under another name of the same directory. The server works inside its data directory;
    # root in a container may not be allowed to look, and then the answer is no, which is safe (see `disown`).
    try:
        return (_PROC / str(pid) / "cwd").samefile(data)
    except OSError:
        return False


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty where it is gone, a zombie, or this system has no /proc."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in raw.rstrip(b"\0").split(b"\0") if word]


def disown(data: Path, socket_dir: Path, owner: tuple[int, int] | None) -> None:
    """Lets a new server start though the recorded number is in use again, by a process that is not ours.

    The number alone is replaced, by one that nobody has. Removing the file would be wrong: the server reads in it which
    shared memory the last one used, and refuses to start while anything still uses it, so that a mistake here costs a
    start and never the data. The socket and its lock have no such second look, and lie in a directory of ours.
    """
    file = data / "postmaster.pid"
    for stale in socket_dir.glob(".s.PGSQL.*"):
        stale.unlink(missing_ok=True)
    try:
        lines = file.read_text("utf-8", "replace").splitlines(keepends=True)
    except FileNotFoundError:
        return
    if len(lines) < 2:
        # Cut off by a crash before anything was shared; the server would refuse to start on it.
        file.unlink()
        return
    aside = file.with_name(f"postmaster.pid.{secrets.token_hex(8)}")
    aside.write_text("".join([f"{NO_PROCESS}\n", *lines[1:]]), "utf-8")
    aside.chmod(0o600)
    if owner is not None:
        os.chown(aside, *owner)
    aside.replace(file)

"""Who the embedded PostgreSQL runs as. It refuses root, so a house of root gives it an unprivileged user."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from pathlib import Path
from typing import IO, Any

import attrs

from switchboard.errors import StartError

SYSTEM_USER = "switchboard"
FALLBACK_USER = "nobody"  # where no user can be made: a read-only /etc, a container without useradd
HELPER_SECONDS_MAX = 10.0

# Says the first of its arguments, directories from / downwards, that cannot be entered.
_FIRST_CLOSED = 'for each; do cd "$each" 2>/dev/null || { printf %s "$each"; exit 1; }; done'


@attrs.frozen(kw_only=True)
class ServerUser:
    """The user of the server process; `dropped` where it is another than the house's own."""

    name: str
    uid: int
    gid: int
    dropped: bool

    @property
    def owner(self) -> tuple[int, int] | None:
        """(uid, gid) for files that must belong to the server; None where they do anyway."""
        return (self.uid, self.gid) if self.dropped else None

    def make_directory(self, path: Path) -> None:
        """A directory of the server's own, mode 0700, made where it is missing."""
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
        if self.dropped and found.st_uid == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_user(home: Path) -> ServerUser:
    """The user for the server whose files are below `home`: their owner, if there is one yet.

    Root's house makes the system user `switchboard`, or takes `nobody`. Raises StartError where the files belong to
    somebody that this process cannot become.
    """
    try:
        owner = home.stat().st_uid
    except FileNotFoundError:
        owner = None
    here = os.geteuid()
    if here != 0:
        if owner not in {None, here}:
            raise StartError(f"{home} belongs to {_name(owner)}, and this is {_name(here)}: start as them, or as root.")
        return ServerUser(name=_name(here), uid=here, gid=os.getegid(), dropped=False)
    if owner:
        return ServerUser(name=_name(owner), uid=owner, gid=home.stat().st_gid, dropped=True)
    chosen = _system_user()
    if (home / "data").exists():
        raise StartError(f"{home} belongs to root, which PostgreSQL refuses: run chown -R {chosen.name} {home}")
    return chosen


def spawn(words: list[str], user: ServerUser, *, output: int | IO[Any]) -> subprocess.Popen[bytes]:
    """Starts a child of the server's kind, as `user`, with its output to `output`.

    In a session of its own, so that Ctrl-C in the terminal reaches the house alone, which then stops it in order.
    With an environment of three words: neither PG* settings nor a packager's LD_LIBRARY_PATH may reach it.
    """
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        cwd="/",  # the directory of the house may be closed to `user`
        umask=0o077,
        start_new_session=True,
        user=user.uid if user.dropped else None,
        group=user.gid if user.dropped else None,
        extra_groups=[] if user.dropped else None,
    )


def run_briefly(words: list[str], user: ServerUser) -> tuple[int, str]:
    """Exit code and output of a command that should take no time; what cannot be started or hangs is code -1."""
    try:
        with spawn(words, user, output=subprocess.PIPE) as process:
            try:
                said, _ = process.communicate(timeout=HELPER_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                return -1, f"no answer within {HELPER_SECONDS_MAX:g} s"
            return process.returncode, said.decode("utf-8", "replace").strip()
    except OSError as exc:
        return -1, exc.strerror or type(exc).__name__


def require_passage(state_dir: Path, user: ServerUser) -> None:
    """Raises StartError, naming the closed directory, where `user` cannot get to the state directory."""
    if not user.dropped:
        return
    # Asked of the system rather than worked out from mode bits, which know nothing of access lists.
    way = [*reversed(state_dir.parents), state_dir]
    code, closed = run_briefly(["/bin/sh", "-c", _FIRST_CLOSED, "sh", *map(str, way)], user)
    if code != 0:
        raise StartError(
            f"The embedded PostgreSQL runs as the user {user.name}, who may not enter {closed}: put the state directory "
            f"elsewhere with server.state_dir (/var/lib/switchboard, say), or name a database with database.url."
        )


def _system_user() -> ServerUser:
    found = _look_up(SYSTEM_USER)
    if found is None:
        words = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
        # Whether it worked is seen by looking: another house may have made the same user at the same moment.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=HELPER_SECONDS_MAX, check=False)
        found = _look_up(SYSTEM_USER) or _look_up(FALLBACK_USER)
    if found is None:
        raise StartError(
            f"PostgreSQL does not run as root, and there is neither a user {SYSTEM_USER} nor {FALLBACK_USER}: "
            f"make one (useradd --system {SYSTEM_USER}), start as another user, or name a database with database.url."
        )
    return found


def _look_up(name: str) -> ServerUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return ServerUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid, dropped=True) if entry.pw_uid else None


def _name(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid or 0).pw_name
    except KeyError:
        return f"uid {uid}"

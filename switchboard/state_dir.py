"""The state directory: what a house keeps on disk beside its database. Open to others for passing through only.

Passing through is needed: as root, the embedded PostgreSQL runs as a user of its own, below this directory.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from switchboard.errors import StartError

STATE_DIR_MODE = 0o711  # ours alone, but others may pass through to what is theirs
PARENT_MODE = 0o755  # for parents that we make ourselves; those that are there stay as they are
SECRET_FILE_BYTES_MAX = 4_096

_VISIBLE = re.compile(r"[!-~]{1,512}")


def prepare(path: Path) -> Path:
    """Makes the state directory where it is missing, and returns where it really is, absolute and without links.

    Raises StartError, one line, where it cannot be made, is no directory, or cannot be written.
    """
    try:
        real = Path(os.path.realpath(path))
        for parent in reversed(real.parents):
            _make_directory(parent, PARENT_MODE)
        _make_directory(real, STATE_DIR_MODE)
        found = real.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise StartError(f"The state directory {real} is a file: name another one with server.state_dir.")
        if os.geteuid() in {0, found.st_uid} and not found.st_mode & stat.S_IXOTH:
            real.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXOTH)
    except OSError as exc:
        raise StartError(
            f"The state directory {path} cannot be made: {exc.strerror} ({exc.filename}). "
            "Name one with server.state_dir that this user may write."
        ) from exc
    if not os.access(real, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StartError(f"The state directory {real} cannot be written by this user: give it to them, or name another.")
    return real


def operator_token(path: Path, configured: str | None) -> str:
    """The operator's token: the configured one, else the one in `path`/operator-token, made at the first start.

    Raises StartError where the file cannot be read or does not hold a token.
    """
    if configured is not None:
        return configured
    return secret_file(path / "operator-token", make=lambda: "sbo_" + secrets.token_urlsafe(32))


def webhook_key(path: Path, configured: str | None) -> str:
    """What webhooks' secrets are sealed with: the configured key, else the one in `path`/webhook-key, made at the first start.

    Raises StartError where the file cannot be read or does not hold a key.
    """
    if configured is not None:
        return configured
    return secret_file(path / "webhook-key", make=lambda: secrets.token_urlsafe(32))


def write_address(path: Path, url: str) -> None:
    """Writes down where the house listens, for the operator's commands: `path`/address, replaced whole.

    Raises StartError where it cannot be written.
    """
    aside = path / f".address.{secrets.token_hex(8)}"
    try:
        aside.write_text(f"{url}\n", encoding="ascii")
        aside.chmod(0o644)
        aside.replace(path / "address")
    except OSError as exc:
        aside.unlink(missing_ok=True)
        raise StartError(f"The file {path / 'address'} cannot be written: {exc.strerror}.") from exc


def forget_address(path: Path) -> None:
    """Takes the address back, so that nobody knocks where the house was."""
    (path / "address").unlink(missing_ok=True)


def secret_file(file: Path, *, make: Callable[[], str], owner: tuple[int, int] | None = None) -> str:
    """The secret in `file`; where there is none yet, `make` gives it, and the file appears whole, with mode 0600.

    Of several processes that start at once, one makes it and all return the same. `owner` is (uid, gid) for a new file.
    """
    try:
        if not os.path.lexists(file):
            _create_whole(file, make(), owner)
        return _read_secret(file)
    except OSError as exc:
        raise StartError(f"The file {file} cannot be read or made: {exc.strerror}.") from exc


def _make_directory(path: Path, mode: int) -> None:
    # Only what was made here is given a mode: mkdir subtracts the umask, and nobody else's directory is touched.
    try:
        path.mkdir(mode=0o700)
    except (FileExistsError, IsADirectoryError):
        return
    except OSError:
        # A parent that is there may still answer "read-only file system" or "permission denied" to mkdir.
        if path.exists():
            return
        raise
    path.chmod(mode)


def _create_whole(file: Path, secret: str, owner: tuple[int, int] | None) -> None:
    # Written aside and linked into place: a crash leaves no half of it, and of two that start at once the first wins.
    aside = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(descriptor, f"{secret}\n".encode("ascii"))
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(aside, file)
        except FileExistsError:
            return
    finally:
        aside.unlink(missing_ok=True)


def _read_secret(file: Path) -> str:
    # No link is followed: as root this would read, and use, a file that somebody else pointed at.
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise StartError(f"{file} is not a regular file: remove it, and start again.")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
        held = os.read(descriptor, SECRET_FILE_BYTES_MAX).decode("ascii", "replace").removesuffix("\n")
    finally:
        os.close(descriptor)
    if not _VISIBLE.fullmatch(held):
        raise StartError(
            f"{file} is empty or damaged: bring it back from a backup, or, if it is the operator token, remove it."
        )
    return held

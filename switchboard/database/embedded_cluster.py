"""The files of the embedded PostgreSQL: where they are, how they come to be, and the settings it is started with."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from switchboard import state_dir as state_directory
from switchboard.database.embedded_binaries import Programs
from switchboard.database.embedded_user import ServerUser, spawn
from switchboard.errors import StartError

SUPERUSER = "switchboard"
DATABASE = "switchboard"
PORT = 5432  # part of the socket's file name; no port is opened
SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux, less its final zero
INITDB_SECONDS_MAX = 120.0
LOG_BYTES_MAX = 4_194_304

SETTINGS = {
    "listen_addresses": "",  # the socket only
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "130",  # the largest pool_size, what is kept beside it, and an operator's psql
    "shared_buffers": "128MB",
    # Bounds how much there is to replay after a crash, so that recovery is over well before a start gives up.
    "max_wal_size": "512MB",
    "jit": "off",  # a queue's statements are short; compiling one costs more than running it
    # Parallel workers share memory in /dev/shm, which containers often bound to 64 MB, and a queue has no use for them.
    "max_parallel_workers_per_gather": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # What a statement did wrong is told to its caller, and may hold a payload: the log is for what nobody else hears (R28).
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
    "log_statement": "none",
}


@attrs.frozen(kw_only=True)
class Files:
    """Where everything of one embedded server is; `home` belongs to the server's user, the rest to the house."""

    state_dir: Path
    home: Path
    data: Path
    socket_dir: Path
    password: Path
    log: Path


def files_of(state_dir: Path, major: str, uid: int) -> Files:
    """The places below a prepared state directory, for one major version and the server's user."""
    home = home_of(state_dir, major)
    socket_dir = home / "socket"
    if not _fits_a_socket(socket_dir):
        # The same each time, so that an orphaned server is found again; told apart by user, so that nobody is in the way.
        digest = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:16]
        socket_dir = Path("/tmp") / f"switchboard-{uid}-{digest}"  # noqa: S108  # owner and mode are verified before use
    return Files(
        state_dir=state_dir,
        home=home,
        data=home / "data",
        socket_dir=socket_dir,
        password=state_dir / "postgres-password",
        log=state_dir / "postgres.log",
    )


def home_of(state_dir: Path, major: str) -> Path:
    """The directory of one major version: another cannot read its data."""
    return state_dir / f"postgres-{major}"


def ensure_cluster(files: Files, programs: Programs, user: ServerUser, *, give_up: Callable[[], bool]) -> str:
    """Makes directories, password and data where they are missing, and returns the superuser's password.

    The data appears whole or not at all: it is made aside and renamed. Raises StartError, one line.
    """
    _refuse_other_majors(files)
    user.make_directory(files.home)
    user.make_directory(files.socket_dir)
    _require_private(files.socket_dir, user)
    fresh = not files.data.exists()
    if not fresh and not os.path.lexists(files.password):
        raise StartError(f"{files.password} is missing, and the data in {files.data} needs it: restore it from a backup.")
    password = state_directory.secret_file(files.password, make=lambda: secrets.token_urlsafe(32), owner=user.owner)
    for stale in files.home.glob("data.new-*"):
        shutil.rmtree(stale, ignore_errors=True)
    if fresh:
        aside = files.home / f"data.new-{secrets.token_hex(8)}"
        _initdb(aside, files, programs, user, give_up)
        aside.rename(files.data)
        _sync_directory(files.home)
    return password


def server_words(files: Files, programs: Programs) -> list[str]:
    """The command that runs the server. It holds no secret: anybody may read it in the process list."""
    quoted = str(files.socket_dir).replace('"', '""')
    settings = SETTINGS | {"unix_socket_directories": f'"{quoted}"'}
    words = [str(programs.directory / "postgres"), "-D", str(files.data)]
    return words + [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def open_log(files: Files) -> int:
    """A descriptor to add to the server's log. One that has grown large is put aside first, over the one before it."""
    with contextlib.suppress(FileNotFoundError):
        if files.log.lstat().st_size > LOG_BYTES_MAX:
            files.log.replace(files.log.with_name(files.log.name + ".old"))
    return os.open(files.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _initdb(aside: Path, files: Files, programs: Programs, user: ServerUser, give_up: Callable[[], bool]) -> None:
    words = [str(programs.directory / "initdb"), "-D", str(aside), f"--username={SUPERUSER}", f"--pwfile={files.password}"]
    # The collation comes with the server, so that an upgrade of the machine's C library cannot reorder an index.
    words += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    words += ["--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--no-instructions"]
    log = open_log(files)
    try:
        start = os.fstat(log).st_size
        process = spawn(words, user, output=log)
    finally:
        os.close(log)
    deadline = time.monotonic() + INITDB_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline and not give_up():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
    if process.poll() == 0:
        return
    hung = process.returncode is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    shutil.rmtree(aside, ignore_errors=True)
    why = f"it was stopped after at most {INITDB_SECONDS_MAX:g} s" if hung else log_tail(files, start)
    raise StartError(f"The embedded PostgreSQL could not make its data in {files.home}: {why}")


def log_tail(files: Files, start_bytes: int) -> str:
    """The end of what was logged after `start_bytes`, as one line."""
    with files.log.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(start_bytes, end - 2_000))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return " / ".join(line.strip() for line in lines[-6:] if line.strip())[-800:] or "it said nothing"


def _refuse_other_majors(files: Files) -> None:
    # Going on would start an empty database beside the full one, and the operator would see a queue without its work.
    others = [path.parent for path in files.state_dir.glob("postgres-*/data") if path != files.data]
    if others and not files.data.exists():
        raise StartError(
            f"The state directory holds the data of another PostgreSQL in {others[0]}, which this switchboard cannot read: "
            "start the switchboard that made it, move its work, or give this one another server.state_dir."
        )


def _require_private(directory: Path, user: ServerUser) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user.uid or stat.S_IMODE(found.st_mode) & 0o077:
        raise StartError(
            f"{directory} is not a private directory of {user.name} (mode 0700): somebody else made or changed it. "
            "Remove it, or choose a shorter server.state_dir."
        )


def _fits_a_socket(directory: Path) -> bool:
    """Whether a socket there can be bound and named: libpq splits its host at commas, the server at quotes."""
    name = str(directory / f".s.PGSQL.{PORT}")
    return len(os.fsencode(name)) <= SOCKET_PATH_BYTES_MAX and name.isprintable() and not set(name) & set(",\"'\\")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

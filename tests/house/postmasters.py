"""Postgres servers that a test may stop, freeze and kill: the embedded ones of its houses, and ones of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
from psycopg.conninfo import make_conninfo

from switchboard.database import embedded
from switchboard.database.embedded import EmbeddedPostgres
from switchboard.state_dir import prepare
from tests.house import facts
from tests.houses import House, wait_until


def postmaster_of(house: House) -> int:
    """The main process of a house's embedded server."""
    return _recorded(house.directory / "state")


def conninfo_of(house: House) -> str:
    """A superuser's way into the embedded database of a house."""
    state = house.directory / "state"
    password = (state / "postgres-password").read_text().strip()
    (socket_dir,) = state.glob("postgres-*/socket")
    return make_conninfo(host=str(socket_dir), port=5432, user="switchboard", password=password, dbname="switchboard")


def freeze(postmaster: int) -> list[int]:
    """SIGSTOP to a whole server; returns its processes."""
    # The main process first, and stopped for sure, so that it makes no more children while they are counted.
    os.kill(postmaster, signal.SIGSTOP)
    wait_until(lambda: _stat(postmaster)[0] == "T", what="the stop of the main process")
    stopped = [postmaster]
    for pid in children_of(postmaster):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
    return stopped


def thaw(processes: list[int]) -> None:
    """SIGCONT to those that are still there."""
    for pid in reversed(processes):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def children_of(parent: int) -> list[int]:
    """The processes that have this one for a parent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int(_stat(int(entry.name))[1]) == parent:
                    found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    """A process's state, its parent, and what else the kernel says of it."""
    # The name, in parentheses, may hold anything; the fields after it are plain.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@attrs.define(eq=False)
class OwnServer:
    """A real server of the test's own, external to the house: it can be stopped and started again at the same place."""

    state_dir: Path
    _server: EmbeddedPostgres | None = None
    disks: list[Path] = attrs.field(factory=list)

    @property
    def conninfo(self) -> str:
        """A superuser's way into its database."""
        assert self._server is not None
        return self._server.conninfo

    @property
    def pid(self) -> int:
        """Its main process."""
        return _recorded(self.state_dir)

    def start(self) -> None:
        """Starts it, with all that it held."""
        self._server = embedded.start(self.state_dir)

    def stop(self) -> None:
        """A fast shutdown."""
        if self._server is not None:
            self._server.stop(10)

    def read_only(self, on: bool) -> None:
        """What a failover, or an operator, does to a primary."""
        conninfo = make_conninfo(self.conninfo, options="-c default_transaction_read_only=off")
        facts.ask(conninfo, f"alter system set default_transaction_read_only = {'on' if on else 'off'}")
        facts.ask(conninfo, "select pg_reload_conf()")

    def database(self) -> str:
        """A way into a fresh database on it, never used, and gone with the server."""
        name = f"own_{os.urandom(6).hex()}"
        facts.ask(self.conninfo, f"create database {name}")
        return make_conninfo(self.conninfo, dbname=name)

    def mount(self, size_bytes: int) -> Path | None:
        """A small disk that the server may write to, in memory; None where nobody may mount one."""
        disk = self.state_dir / f"disk-{len(self.disks)}"
        disk.mkdir()
        owner = (self.state_dir / "postgres-password").stat()
        options = f"size={size_bytes},mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            return None
        self.disks.append(disk)
        return disk


@contextmanager
def own_server(below: Path) -> Iterator[OwnServer]:
    """A server of one's own, running; stopped at the end, however it is then."""
    server = OwnServer(prepare(below / f"own-{os.urandom(4).hex()}"))
    server.start()
    try:
        yield server
    finally:
        with suppress(FileNotFoundError):
            thaw([server.pid, *children_of(server.pid)])
        server.stop()
        for disk in server.disks:
            subprocess.run(["umount", str(disk)], check=True)


def _recorded(state_dir: Path) -> int:
    (file,) = state_dir.glob("postgres-*/data/postmaster.pid")
    return int(file.read_text().split("\n", 1)[0])

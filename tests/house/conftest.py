"""An embedded server of the house's own making, and directories that its unprivileged user can reach."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from switchboard.database.embedded import EmbeddedPostgres, start
from switchboard.state_dir import prepare


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A directory of mode 0755: pytest's own is closed to other users, and the server of root's house is one."""
    path = Path(tempfile.mkdtemp(prefix="sb-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def embedded_house_db() -> Iterator[EmbeddedPostgres]:
    """One embedded server for all tests of a module."""
    path = Path(tempfile.mkdtemp(prefix="sb-"))
    path.chmod(0o755)
    server = start(prepare(path / "state"))
    yield server
    server.stop(10)
    shutil.rmtree(path)


@pytest.fixture
def empty_database(embedded_house_db: EmbeddedPostgres) -> Callable[[], str]:
    """Makes a database nobody has used and returns its connection string."""

    def make() -> str:
        name = f"t_{uuid4().hex}"
        with psycopg.connect(embedded_house_db.conninfo, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return make_conninfo(embedded_house_db.conninfo, dbname=name)

    return make

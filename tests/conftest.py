"""What every test may stand on: a real PostgreSQL, databases of its own, a session that is rolled back, real houses."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from switchboard.database.border import Bounds, Session, session_conninfo
from switchboard.database.embedded import start
from switchboard.database.migrations import migrate
from switchboard.database.queries import MIGRATIONS
from switchboard.state_dir import prepare
from tests.houses import House, Opener, no_leftovers
from tests.scheduling import Scheduling, in_turns, scheduler

DATABASE_VARIABLE = "SWITCHBOARD_TEST_DATABASE_URL"
"""A superuser's way into the PostgreSQL that the suite runs on; without it, the wheel's."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long` runs the forms that take minutes."""
    parser.addoption("--long", action="store_true", help="also run full kill and outage runs, and half a million rows")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--long`, what is marked long is skipped, and says so."""
    items[:] = in_turns(items)
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with --long"))


def pytest_collection_finish() -> None:
    """Some 3,000 tests and what they import stay to the end; the collector need not go through them again and again."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """What `--dist` says is for those who have no files like SPREAD's."""
    return scheduler(config, log)


@pytest.fixture(scope="session")
def open_directory() -> Iterator[Path]:
    """A directory of mode 0755: pytest's own is closed to other users, and the server of root's house is one."""
    path = Path(tempfile.mkdtemp(prefix="switchboard-tests-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def postgres(open_directory: Path) -> Iterator[str]:
    """A superuser's way into the PostgreSQL under test."""
    given = os.environ.get(DATABASE_VARIABLE)
    if given:
        yield given
        return
    server = start(prepare(open_directory / "postgres"))
    yield server.conninfo
    server.stop(10)


@pytest.fixture(scope="session")
def template(postgres: str) -> Iterator[str]:
    """The name of a database that is migrated and empty, to be copied."""
    name = f"template_{uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        migrate(make_conninfo(postgres, dbname=name), directory=MIGRATIONS)
        yield name
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def new_database(postgres: str, template: str) -> Iterator[Callable[[], str]]:
    """Makes a migrated database that nobody has used, and returns the way into it. Dropped at the end of the run."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{uuid4().hex[:12]}")
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"create database {names[-1]} template {template}")
        return make_conninfo(postgres, dbname=names[-1])

    yield make
    if DATABASE_VARIABLE not in os.environ:
        return  # the whole server is thrown away; half a second for each database would be wasted
    with psycopg.connect(postgres, autocommit=True) as connection:
        for name in names:
            connection.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def store_database(new_database: Callable[[], str]) -> str:
    """The one database of all store tests: each of them rolls back what it did."""
    return new_database()


@pytest.fixture
def session(store_database: str) -> Iterator[Session]:
    """A session as the border opens one, inside a transaction that is rolled back."""
    with Session.connect(session_conninfo(store_database, Bounds.within(10)), autocommit=True, prepare_threshold=0) as opened:
        opened.execute("begin")
        yield opened
        opened.execute("rollback")


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """A migrated database of this test's own."""
    return new_database()


@pytest.fixture
def open_house(open_directory: Path, new_database: Callable[[], str]) -> Iterator[Opener]:
    """Opens real houses: `run.py serve` in a process of its own. All are gone, with all they had, when the test ends."""
    opener = Opener(open_directory, new_database)
    yield opener
    opener.close()
    no_leftovers(opener.directories)


@pytest.fixture(scope="module")
def house(open_directory: Path, new_database: Callable[[], str]) -> Iterator[House]:
    """One house for all the tests of a module that do it no harm."""
    opener = Opener(open_directory, new_database)
    yield opener()
    opener.close()
    no_leftovers(opener.directories)

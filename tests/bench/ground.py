"""What every bench stands on: an embedded PostgreSQL with the house's own settings, migrated databases, real houses."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import attrs
import psycopg
from psycopg.conninfo import make_conninfo

from switchboard.database.embedded import start
from switchboard.database.migrations import migrate
from switchboard.database.queries import MIGRATIONS
from switchboard.state_dir import prepare
from tests.bench.words import PAYLOAD, QUEUE
from tests.houses import House, Opener

LEAVE_TO_CLAIMS = {"queue": {"reap_interval_seconds": 3600, "retry_interval_seconds": 3600}}
"""Settings of a house that sweeps nothing while it is measured."""
ENDPOINT = UUID("018f0000-0000-7000-8000-000000000001")
CREDENTIAL = "sbk_bench"
FILL_ROWS = 100_000

# Rows as the store leaves them. Terminal ones come first in time, as they would have.
_FILL = """
insert into todos (
    endpoint_id, id, queue, source, payload, payload_bytes, max_attempts, state, created_at, updated_at,
    attempt, owner, claimed_at, completed_at
)
select %(endpoint)s::uuid, uuid_v7(i.at, (n %% 16384)::integer),
    %(queue)s, 'api', %(payload)s::text::json, octet_length(%(payload)s::text), 5,
    case when %(done)s::boolean then 'done' else 'pending' end, i.at, i.at,
    case when %(done)s::boolean then 1 else 0 end, case when %(done)s::boolean then 'filler' end,
    case when %(done)s::boolean then i.at end, case when %(done)s::boolean then i.at end
from generate_series(%(first)s::bigint, %(last)s::bigint) n
cross join lateral (select clock_timestamp() - make_interval(secs => case when %(done)s::boolean then 3600 else 60 end) as at) i
"""
_FILL_ATTEMPTS = """
insert into attempts (endpoint_id, todo_id, lease_token, attempt, owner, claimed_at, ended_at, outcome)
select t.endpoint_id, t.id, gen_random_uuid(), 1, 'filler', t.claimed_at, t.completed_at, 'completed'
from todos t where t.state = 'done'
"""


@attrs.frozen(kw_only=True)
class Ground:
    """A running server, and where houses are opened."""

    superuser: str = attrs.field(repr=False)
    directory: Path
    opener: Opener
    _templates: dict[tuple[int, int], str] = attrs.field(factory=dict)

    def database(self, *, pending: int = 0, done: int = 0) -> str:
        """A database with one endpoint and so many todos, that nobody has used; a copy of one that is made once."""
        template = self._templates.get((pending, done))
        if template is None:
            template = self._templates[pending, done] = self._filled(pending, done)
        name = f"bench_{uuid4().hex[:12]}"
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            connection.execute(f"create database {name} template {template} strategy file_copy")
        return make_conninfo(self.superuser, dbname=name)

    def empty_database(self) -> str:
        """A database with nothing in it: peers bring their own schema."""
        name = f"bench_{uuid4().hex[:12]}"
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return make_conninfo(self.superuser, dbname=name)

    def drop(self, database: str) -> None:
        """Throws a database away, whoever is in it."""
        name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)")

    @contextmanager
    def fresh(self, *, pending: int = 0, done: int = 0) -> Iterator[str]:
        """A database for one measurement."""
        database = self.database(pending=pending, done=done)
        try:
            yield database
        finally:
            self.drop(database)

    def house(self, database: str, **settings: dict[str, Any]) -> House:
        """A house on this database."""
        return self.opener(database=database, settings=LEAVE_TO_CLAIMS | settings)

    def _filled(self, pending: int, done: int) -> str:
        database = self.empty_database()
        migrate(database, directory=MIGRATIONS)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "insert into endpoints (id, name, credential_sha256) values (%s, 'bench', %s)",
                (ENDPOINT, hashlib.sha256(CREDENTIAL.encode()).digest()),
            )
            fill(connection, done, done=True)
            connection.execute(_FILL_ATTEMPTS)
            fill(connection, pending, done=False)
            for table in ("todos", "attempts"):
                connection.execute(f"vacuum (analyze) {table}")
        return str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])


def fill(connection: psycopg.Connection[Any], rows: int, *, done: bool) -> None:
    """Inserts so many todos, done or pending."""
    for first in range(0, rows, FILL_ROWS):
        last = min(rows, first + FILL_ROWS) - 1
        values = {"endpoint": ENDPOINT, "queue": QUEUE, "payload": PAYLOAD, "done": done, "first": first, "last": last}
        connection.execute(_FILL, values)


@contextmanager
def ground() -> Iterator[Ground]:
    """The server and its directory; everything that was started on it is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="switchboard-bench-"))
    directory.chmod(0o755)
    try:
        server = start(prepare(directory / "postgres"))
        try:
            opener = Opener(directory, lambda: "")
            try:
                yield Ground(superuser=server.conninfo, directory=directory, opener=opener)
            finally:
                for house in opener._houses:
                    house.close()
        finally:
            server.stop(10)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

"""The limit: pgbench runs our own SQL, the statements of `sql/queries` in the transactions that the store makes of them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from psycopg.conninfo import conninfo_to_dict

from switchboard.database.border import Bounds, session_conninfo
from switchboard.database.embedded_binaries import carried_programs
from switchboard.database.queries import load
from tests.bench.ground import ENDPOINT
from tests.bench.words import PAYLOAD, QUEUE

SECONDS_MAX: Final = 600
_PARAMETER: Final = re.compile(r"%\((\w+)\)[sb]")
_RATE: Final = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)
_TOKEN: Final = "018f0000-0000-4000-8000-"


def transactions_per_second(
    database: str, script: str, *, clients: int, transactions_each: int | None = None, seconds: int | None = None
) -> float:
    """Runs a script with so many clients, for a number of transactions each or for some seconds; scripts a second."""
    given = conninfo_to_dict(session_conninfo(database, Bounds.within(10)))
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "options": "PGOPTIONS"}
    environ = os.environ | {variable: str(given[name]) for name, variable in names.items()}
    bound = ["-t", str(transactions_each)] if transactions_each is not None else ["-T", str(seconds)]
    words = [str(carried_programs().directory / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), *bound]
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        Path(file.name).write_text(script)
        done = subprocess.run(
            [*words, "-j", str(min(2, clients)), "-f", file.name, str(given["dbname"])],
            env=environ,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    rate = _RATE.search(done.stdout)
    if done.returncode != 0 or rate is None:
        raise RuntimeError(f"pgbench failed: {done.stderr[-2000:]}")
    return float(rate[1])


def insert(batch: int) -> str:
    """Creates `batch` todos with idempotency keys that nobody used."""
    keys = "(select array_agg('limit-' || :number::bigint || '-' || n) from generate_series(1, {batch}) n)"
    return "\\set number random(1, 9000000000000000000)\n" + _transaction(
        _statement(
            "todos/create",
            {
                "ordinals": _numbers(batch),
                "endpoint_ids": _each(batch, str(ENDPOINT)),
                "queues": _each(batch, QUEUE),
                "sources": _each(batch, "api"),
                "kinds": "null",
                "titles": "null",
                "payloads": f"array_fill('{PAYLOAD}'::text, array[{batch}])",
                "assignees": "null",
                "caps": _each(batch, "5"),
                "keys": keys.format(batch=batch),
                "event_ids": "null",
            },
        )
        + ";\n"
    )


def claim_and_complete(batch: int) -> str:
    """Claims `batch` todos, and completes them: two transactions. One alone is claimed by one statement, as the store does."""
    scope = {"endpoint_id": f"'{ENDPOINT}'", "queue": f"'{QUEUE}'", "owner": "null", "limit": str(batch)}
    tokens = "'{" + ",".join(f"{_TOKEN}{place:012}" for place in range(batch)) + "}'"
    held = {"endpoint_ids": _each(batch, str(ENDPOINT)), "ids": ":ids" if batch > 1 else "array[:id]::uuid[]"}
    locked = _statement("claims/lock_pending_in_queue", scope)
    claim = (
        _statement("claims/owners_with_assigned", {"endpoint_ids": f"'{{{ENDPOINT}}}'", "owners": "'{limit}'"})
        + ";\n"
        + f"select array_agg(l.id order by l.id) as ids from ({locked}) l \\gset\n"
        + _statement(
            "claims/take",
            held
            | {
                "ordinals": _numbers(batch),
                "owners": _each(batch, "limit"),
                "tokens": tokens,
                "leases": _each(batch, "300"),
            },
        )
        + ";\n"
    )
    if batch == 1:
        one = {"owners": "'{limit}'", "tokens": tokens, "leases": "'{300}'"}
        claim = _statement("claims/take_head_in_queue", scope | one) + "\n\\gset\n"
    complete = (
        _statement("holder/lock", held)
        + ";\n"
        + _statement(
            "holder/complete",
            held
            | {
                "ordinals": _numbers(batch),
                "owners": f"array_fill(null::text, array[{batch}])",
                "tokens": tokens,
                "results": f"array_fill(null::text, array[{batch}])",
            },
        )
        + ";\n"
    )
    return _transaction(claim) + _transaction(complete)


def _transaction(statements: str) -> str:
    return f"begin;\n{statements}commit;\n"


def _statement(name: str, values: Mapping[str, str]) -> str:
    """A statement's text on as few lines as pgbench wants, its parameters replaced by SQL."""
    text = "\n".join(line for line in load(name).decode().splitlines() if not line.lstrip().startswith("--"))
    return _PARAMETER.sub(lambda found: values[found[1]], text).replace("%%", "%")


def _each(batch: int, value: str) -> str:
    return "'{" + ",".join([value] * batch) + "}'"


def _numbers(batch: int) -> str:
    return "'{" + ",".join(str(number) for number in range(batch)) + "}'"

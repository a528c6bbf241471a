"""The same durable work written by hand: FastAPI, uvicorn with uvloop and httptools, asyncpg; one statement, one commit a call.

    python -m tests.bench.rivals.fastapi_service PORT CONNINFO_JSON

Runs in a virtual environment of its own. It keeps idempotency keys, leases and the history of attempts; it has no tenants, no
retries with backoff, no dead letters, no long polls, no bounds on what comes in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import asyncpg
import uvicorn
from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel

CREDENTIAL: Final = "sbk_bench"
POOL_SIZE: Final = 8
LEASE_SECONDS: Final = 300

SCHEMA: Final = """
create table if not exists jobs (
    id uuid primary key default uuidv7(), queue text not null, payload json, state text not null default 'pending',
    idempotency_key text, owner text, lease_token uuid, lease_expires_at timestamptz, attempt integer not null default 0,
    created_at timestamptz not null default now(), completed_at timestamptz
) with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
create unique index if not exists jobs_key on jobs (idempotency_key) where state <> 'done';
create index if not exists jobs_pending on jobs (queue, created_at, id) where state = 'pending';
create table if not exists job_attempts (
    job_id uuid not null, lease_token uuid not null, owner text, claimed_at timestamptz not null default now(),
    ended_at timestamptz, outcome text, primary key (job_id, lease_token)
);
"""
CREATE: Final = """
with made as (
    insert into jobs (queue, payload, idempotency_key) values ($1, $2::json, $3)
    on conflict (idempotency_key) where state <> 'done' do nothing
    returning id, queue, state, created_at, true as created
)
select * from made
union all
select id, queue, state, created_at, false from jobs
where idempotency_key = $3 and state <> 'done' and not exists (select from made)
"""
CLAIM: Final = """
with next as (
    select id from jobs where queue = $1 and state = 'pending' order by created_at, id limit $2 for update skip locked
),
taken as (
    update jobs j set state = 'claimed', owner = 'bench', lease_token = gen_random_uuid(), attempt = attempt + 1,
        lease_expires_at = now() + make_interval(secs => $3)
    from next where j.id = next.id
    returning j.id, j.queue, j.payload, j.state, j.lease_token, j.lease_expires_at, j.attempt
),
history as (insert into job_attempts (job_id, lease_token, owner) select id, lease_token, 'bench' from taken)
select * from taken
"""
COMPLETE: Final = """
with done as (
    update jobs set state = 'done', lease_token = null, lease_expires_at = null, completed_at = now()
    where id = $1 and state = 'claimed' and lease_token = $2
    returning id, queue, state, completed_at
),
history as (
    update job_attempts a set ended_at = now(), outcome = 'completed' from done where a.job_id = done.id and a.lease_token = $2
)
select * from done
"""


class NewTodo(BaseModel):
    """What a create takes."""

    queue: str
    payload: Any = None
    idempotency_key: str | None = None


class Claim(BaseModel):
    """What a claim takes."""

    queue: str
    max: int = 1


class Completion(BaseModel):
    """What a completion takes."""

    lease_token: UUID


def service(conninfo: dict[str, str]) -> Any:
    """The application."""
    pool: Any = None

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        nonlocal pool
        async with asyncpg.create_pool(**conninfo, min_size=POOL_SIZE, max_size=POOL_SIZE) as opened:
            await opened.execute(SCHEMA)
            pool = opened
            yield

    app = FastAPI(lifespan=lifespan)

    def check(authorization: str) -> None:
        if authorization != f"Bearer {CREDENTIAL}":
            raise HTTPException(401)

    async def create(new: NewTodo, authorization: str = Header()) -> Response:
        check(authorization)
        row = await pool.fetchrow(CREATE, new.queue, json.dumps(new.payload), new.idempotency_key)
        return answer({"todo": dict(row), "created": row["created"]}, 201 if row["created"] else 200)

    async def claim(asked: Claim, authorization: str = Header()) -> Response:
        check(authorization)
        rows = await pool.fetch(CLAIM, asked.queue, asked.max, LEASE_SECONDS)
        return answer({"todos": [dict(row) | {"payload": json.loads(row["payload"])} for row in rows]})

    async def complete(todo_id: UUID, completion: Completion, authorization: str = Header()) -> Response:
        check(authorization)
        row = await pool.fetchrow(COMPLETE, todo_id, completion.lease_token)
        if row is None:
            raise HTTPException(409)
        return answer({"todo": dict(row)})

    app.post("/v1/todos")(create)
    app.post("/v1/claims")(claim)
    app.post("/v1/todos/{todo_id}/complete")(complete)
    return app


def answer(content: dict[str, Any], status: int = 200) -> Response:
    """A response of its own spares FastAPI's walk over it, as its documentation advises."""
    body = json.dumps(content, default=str, separators=(",", ":"))
    return Response(body, status_code=status, media_type="application/json")


def main(port: int, conninfo: dict[str, str]) -> None:
    """Serves until it is told to end."""
    uvicorn.run(service(conninfo), port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))

"""P12: the house and the other queues, durable, in the same rounds on the same server, and what each keeps and drops."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from psycopg.conninfo import conninfo_to_dict

from switchboard.database.embedded_binaries import carried_programs
from tests.bench.figures import Figure, turned
from tests.bench.ground import Ground
from tests.bench.peers import ourselves, over_http
from tests.bench.venvs import NotInstalled, node_version_of, node_with, python_with, version_of
from tests.houses import ROOT

PEER_SECONDS_MAX: Final = 180
GOALS: Final = {("pgqueuer", "drain"): 1.8}
"""Beyond being ahead: P1's second half."""
COLUMNS: Final = {
    "enqueue_1": "enqueue, 1 caller",
    "enqueue_64": "enqueue, 64 callers",
    "bulk_100": "bulk 100",
    "drain": "drain",
    "pick_up_p50_ms": "pick-up p50, ms",
    "pick_up_p99_ms": "pick-up p99, ms",
}


@attrs.frozen(kw_only=True)
class Peer:
    """A queue, what it is installed from, and in words what it keeps and drops beside the house."""

    name: str
    packages: tuple[str, ...]
    keeps: str
    drops: str
    newer_python: bool = False
    node: bool = False

    def words(self) -> tuple[list[str], Path, str]:
        """The command that runs it, where, and its version; installed where it is missing. Raises NotInstalled."""
        script = self.name.replace("-", "_")
        if self.node:
            directory = node_with(self.name, self.packages)
            file = Path(__file__).with_name(f"{script}.mjs")
            return ["node", str(file)], directory, node_version_of(directory, self.name)
        python = python_with(self.name, self.packages, newer=self.newer_python)
        return [str(python), "-m", f"tests.bench.peers.{script}"], ROOT, version_of(python, self.name)


PEERS: Final = (
    Peer(
        name="procrastinate",
        packages=("procrastinate", "psycopg[binary]"),
        keeps="finished jobs, an event for each step",
        drops="leases (a crashed job waits for a manual or periodic rescue)",
    ),
    Peer(
        name="pgqueuer",
        packages=("pgqueuer[asyncpg]",),
        keeps="a log row for each status of a job",
        drops="the job and its payload once it has ended; dedup of an ended key",
    ),
    Peer(
        name="oban",
        packages=("oban", "psycopg[binary]"),
        keeps="finished jobs for a day, errors of attempts",
        drops="leases (a crashed node's jobs are rescued once a minute)",
        newer_python=True,
    ),
    Peer(
        name="absurd-sdk",
        packages=("absurd-sdk", "absurdctl"),
        keeps="tasks, runs, checkpoints, leases",
        drops="waking (it polls each 250 ms), batches",
    ),
    Peer(
        name="chancy",
        packages=("chancy", "psycopg[binary]"),
        keeps="finished jobs until they are pruned",
        drops="a history of attempts that ended well; writes results behind, in batches",
    ),
    Peer(
        name="graphile-worker",
        packages=("graphile-worker@0.17", "pg"),
        keeps="jobs that failed",
        drops="every finished job, all history",
        node=True,
    ),
    Peer(
        name="pg-boss",
        packages=("pg-boss@10",),
        keeps="finished jobs until they are archived",
        drops="a history of attempts, waking (it polls)",
        node=True,
    ),
)


def measure(ground: Ground, rounds: int) -> list[dict[str, Any]]:
    """A row for each that could be measured; a line says who could not."""
    found: dict[str, list[dict[str, Any]]] = {}
    about: dict[str, dict[str, str]] = {}
    installed = {}
    for peer in PEERS:
        try:
            words, directory, version = peer.words()
        except NotInstalled as missing:
            print(missing, flush=True)
            continue
        installed[peer.name] = (words, directory)
        about[peer.name] = {"version": version, "keeps": peer.keeps, "drops": peer.drops}
    about |= {ourselves.NAME: ourselves.ABOUT, **over_http.ABOUT}
    for turn in range(rounds):
        for name in turned([ourselves.NAME, *over_http.OPEN, *installed], turn):
            try:
                if name == ourselves.NAME:
                    row = ourselves.measure(ground)
                elif name in over_http.OPEN:
                    row = over_http.measure(ground, name)
                else:
                    row = run_peer(ground, *installed[name])
            except (RuntimeError, NotInstalled, subprocess.TimeoutExpired) as exc:
                print(f"{name} failed: {exc}", flush=True)
                continue
            found.setdefault(name, []).append(row)
    return [
        {"name": name, **about[name], "rounds": rows, **{key: middle([row[key] for row in rows]) for key in COLUMNS}}
        for name, rows in found.items()
    ]


def run_peer(ground: Ground, words: Sequence[str], directory: Path) -> dict[str, Any]:
    """One run of a peer, on an empty database of its own."""
    database = ground.empty_database()
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(database).items() if value}
        wanted = {
            "conninfo": database,
            "programs": str(carried_programs().directory),
            **{key: given[key] for key in ("host", "user", "password", "dbname")},
        }
        asked = [*words, json.dumps(wanted)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=PEER_SECONDS_MAX, check=False, cwd=directory)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-600:])
        row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return row
    finally:
        ground.drop(database)


def middle(values: Sequence[float | None]) -> float | None:
    """The median, or None where it has none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def figures_of(peers: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """P12, line by line: in process beside those in process, HTTP beside HTTP; above 1 is ahead, also for latencies."""
    by_name = {peer["name"]: peer for peer in peers}
    figures = []
    for peer in peers:
        ours = by_name.get(over_http.HOUSE if peer["name"] == over_http.FASTAPI else ourselves.NAME)
        if ours is None or peer["name"] in (ourselves.NAME, over_http.HOUSE):
            continue
        for key, words in COLUMNS.items():
            pairs = [(us[key], them[key]) for us, them in zip(ours["rounds"], peer["rounds"], strict=False)]
            values = tuple((b / a if key.endswith("_ms") else a / b) for a, b in pairs if a and b)
            if values:
                what = f"ahead of {peer['name']}: {words}"
                figures.append(Figure(number="P12", what=what, values=values, goal=GOALS.get((peer["name"], key), 1.0)))
    return figures


def lines(peers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table."""
    yield f"{'side by side, a second':<28}" + "".join(f"{words:>22}" for words in COLUMNS.values())
    for peer in peers:
        cells = "".join(f"{'-':>22}" if peer[key] is None else f"{peer[key]:>22,.1f}" for key in COLUMNS)
        yield f"{peer['name'] + ' ' + peer['version']:<28}{cells}"
        yield f"    keeps {peer['keeps']}; drops {peer['drops']}"

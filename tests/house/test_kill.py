"""What a kill -9 costs: time, and nothing else. Of agents (acceptance 3) and of the house itself (acceptance 5)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from tests.house import facts
from tests.house.load import Load, drain
from tests.house.postmasters import conninfo_of, postmaster_of
from tests.houses import ROOT, Agent, House, Opener, wait_until

AGENTS = 8
ATTEMPTS_MAX = 20
AGENT_LEASE_SECONDS = 2
SECONDS_BETWEEN_KILLS = 1.0
ACKNOWLEDGED_BETWEEN_KILLS = 60


@attrs.define(eq=False)
class Crew:
    """Processes of agents that drain one house, and what was acknowledged to them."""

    house: House
    agent: Agent
    out: Path
    processes: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    hired: int = 0

    def hire(self) -> None:
        """One more."""
        self.hired += 1
        words = [self.house.url, f"agent-{self.hired}", str(AGENT_LEASE_SECONDS)]
        with self.out.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.house.agent_process", *words], stdin=subprocess.PIPE, stdout=out, cwd=ROOT
            )
        assert process.stdin is not None
        process.stdin.write(f"{self.agent.credential}\n".encode())
        process.stdin.close()
        self.processes.append(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9."""
        self.processes.remove(process)
        process.kill()
        process.wait()

    def acknowledged(self) -> list[tuple[str, str]]:
        """Each completion that some agent heard of: id and lease token."""
        return [(id_, token) for id_, token in map(str.split, self.out.read_text().splitlines())]


@contextmanager
def crew_of(house: House, agent: Agent) -> Iterator[Crew]:
    """A crew; all of it is gone at the end."""
    crew = Crew(house, agent, house.directory / "acknowledged")
    crew.out.touch()
    try:
        yield crew
    finally:
        for process in list(crew.processes):
            crew.kill(process)


@pytest.mark.parametrize(
    ("todos", "seconds_between_kills"), [(1_000, 0.3), pytest.param(20_000, SECONDS_BETWEEN_KILLS, marks=pytest.mark.long)]
)
def test_agents_killed_while_they_drain(
    open_house: Opener, todos: int, seconds_between_kills: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Acceptance 3, C50: 8 agents drain while one random agent is killed -9 each second; every todo ends done exactly
    once per its final claim, none is lost, no attempt goes above the cap, and no completion was acknowledged twice.
    """
    house = open_house(settings={"queue": {"reap_interval_seconds": 0.5}})
    agent = house.vend()
    database = str(house.database)
    for first in range(0, todos, 1_000):
        batch = [{"queue": "work", "max_attempts": ATTEMPTS_MAX} for _ in range(min(1_000, todos - first))]
        assert agent.http.post("/v1/todos/batch", json={"todos": batch}).status_code == 200
    dice = random.Random(todos)
    began = time.monotonic()
    deadline = began + 20 + todos / 50
    kills = 0
    with crew_of(house, agent) as crew:
        for _ in range(AGENTS):
            crew.hire()
        wait_until(lambda: len(crew.acknowledged()) > 0, seconds=30, what="the first completion")
        next_kill = time.monotonic()
        while facts.one(database, "select exists (select 1 from todos where state <> 'done')"):
            assert time.monotonic() < deadline, facts.ask(database, "select state, count(*) from todos group by state")
            if time.monotonic() >= next_kill:
                crew.kill(dice.choice(crew.processes))
                crew.hire()
                kills += 1
                next_kill += seconds_between_kills
            time.sleep(0.05)  # the beat of the killing; there is no event in another process's queue
        took = time.monotonic() - began
        acknowledged = crew.acknowledged()
    assert kills >= 3
    facts.require_done_once(database, todos=todos, attempts_max=ATTEMPTS_MAX)
    facts.require_kept(database, created=(), completed=acknowledged)
    assert len({id_ for id_, _ in acknowledged}) == len(acknowledged)
    again, highest = facts.ask(database, "select count(*) filter (where attempt > 1), max(attempt) from todos")[0]
    with capsys.disabled():
        print(f"\n  {todos} todos, {kills} kills, {took:.1f} s, {again} tried again, at most {highest} attempts")


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("embedded", [False, True], ids=["external", "embedded"])
def test_house_killed_in_the_middle_of_load(
    open_house: Opener, kills: int, embedded: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Acceptance 5, R32: after each kill -9 and restart every acknowledged create is there and every acknowledged
    complete is done; callers who repeat with their key or token never hear anything but success or 503; the orphaned
    embedded server is adopted, not replaced; and in the end everything can be drained.
    """
    house = open_house(embedded=embedded)
    agent = house.vend()
    database = conninfo_of(house) if embedded else str(house.database)
    pid = postmaster_of(house) if embedded else None
    dice = random.Random(kills)
    began = time.monotonic()
    with Load(url=house.url, credential=agent.credential) as load:
        for _ in range(kills):
            enough = load.acknowledged() + dice.randint(ACKNOWLEDGED_BETWEEN_KILLS // 2, ACKNOWLEDGED_BETWEEN_KILLS)
            wait_until(lambda: load.acknowledged() >= enough or bool(load.wrong), seconds=30, what="load")  # noqa: B023
            house.kill()
            house = open_house.again(house)
            load.url = house.url
        enough = load.acknowledged() + ACKNOWLEDGED_BETWEEN_KILLS
        wait_until(lambda: load.acknowledged() >= enough or bool(load.wrong), seconds=30, what="load after the last restart")
    load.require_clean()
    assert load.statuses[0] >= 1  # connections were lost, or nothing was tried
    facts.require_kept(database, created=load.created.items(), completed=load.completed.items())
    if embedded:
        assert postmaster_of(house) == pid
    # What died with the claims that nobody heard of comes back with their leases.
    facts.ask(database, "update todos set lease_expires_at = now() - interval '1 second' where state = 'claimed'")
    drain(house.url, agent.credential)
    todos = facts.one(database, "select count(*) from todos")
    facts.require_done_once(database, todos=todos, attempts_max=5)
    assert house.stop() == 0
    with capsys.disabled():
        print(
            f"\n  {kills} kills in {time.monotonic() - began:.1f} s: {len(load.created)} creates and"
            f" {len(load.completed)} completes acknowledged, statuses {dict(load.statuses)}"
        )


@pytest.mark.long
def test_house_killed_while_its_server_starts(open_house: Opener) -> None:
    """Acceptance 5: a kill -9 at the moment of opening, embedded server and all, is no worse: the next start opens."""
    house = open_house(embedded=True, wait=False)
    wait_until(lambda: any((house.directory / "state").glob("postgres-*/data*")), seconds=30, what="the data directory")
    house.kill()
    house = open_house.again(house)
    house.kill()
    os.kill(postmaster_of(house), signal.SIGKILL)
    house = open_house.again(house)
    agent = house.vend()
    assert agent.get(agent.push())["state"] == "pending"
    assert house.stop() == 0

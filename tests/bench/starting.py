"""P11: from the start of the process to its first answer, and what it holds in memory, idle and with a thousand streams."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import httpx
import trio

from tests.bench.doorbell import attach, raise_file_limit, rss_mb
from tests.bench.figures import Figure, Report
from tests.bench.ground import Ground
from tests.houses import PLAIN, RUN, Agent, House, toml, wait_open
from tests.redis.servers import free_port

STREAMS: Final = 1_000
OPEN_SECONDS_MAX: Final = 30.0
SETTLE_SECONDS: Final = 2.0


def starting(ground: Ground, rounds: int) -> Report:
    """P11."""
    raise_file_limit()
    directory = ground.directory / "starting"
    directory.mkdir()
    port = free_port()
    config = directory / "switchboard.toml"
    config.write_text(toml({"server": {"port": port, "state_dir": str(directory / "state")}}))
    idle, crowded = [], []
    open_and_close(config, port)  # makes the state directory and the database
    first_answers = [open_and_close(config, port) for _ in range(rounds)]
    for _ in range(min(2, rounds)):
        house = opened(config, directory)
        try:
            agent = house.vend()
            time.sleep(SETTLE_SECONDS)
            idle.append(float(rss_mb(house)))
            crowded.append(trio.run(with_streams, house, agent))
        finally:
            house.close()
    return Report(
        figures=(
            Figure(
                number="P11",
                what="first answer after `run.py serve`",
                values=tuple(first_answers),
                goal=2.0,
                at_most=True,
                unit="s",
            ),
            Figure(number="P11", what="resident memory, idle", values=tuple(idle), goal=120, at_most=True, unit="MB"),
            Figure(
                number="P11",
                what=f"resident memory with {STREAMS:,} event streams",
                values=tuple(crowded),
                goal=250,
                at_most=True,
                unit="MB",
            ),
        )
    )


def serve(config: Path) -> subprocess.Popen[bytes]:
    """The process, started."""
    words = [sys.executable, str(RUN), "serve", "--config", str(config)]
    with (config.parent / "stdout").open("ab") as stdout, (config.parent / "stderr").open("ab") as stderr:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def open_and_close(config: Path, port: int) -> float:
    """Seconds from the start of the process to its first answer, of `/readyz`."""
    began = time.monotonic()
    process = serve(config)
    try:
        with httpx.Client(timeout=OPEN_SECONDS_MAX, trust_env=False, verify=PLAIN) as client:
            while True:
                try:
                    status = client.get(f"http://127.0.0.1:{port}/readyz").status_code
                except httpx.ConnectError:
                    status = 0
                if status == 200:
                    return time.monotonic() - began
                if process.poll() is not None or time.monotonic() - began > OPEN_SECONDS_MAX:
                    raise RuntimeError(f"the house did not open: {(config.parent / 'stderr').read_text()[-2000:]}")
                time.sleep(0.005)  # a process that opens has no event that another one could wait for
    finally:
        process.terminate()
        process.wait(OPEN_SECONDS_MAX)


def opened(config: Path, directory: Path) -> House:
    """A house that is open."""
    (directory / "state" / "address").unlink(missing_ok=True)
    house = House(process=serve(config), directory=directory, config=config, database=None)
    wait_open(house)
    return house


async def with_streams(house: House, agent: Agent) -> float:
    """MB while so many listen."""
    async with trio.open_nursery() as nursery:
        limit = trio.CapacityLimiter(100)
        port = int(house.url.rsplit(":", 1)[1])
        for _ in range(STREAMS):
            await nursery.start(attach, "127.0.0.1", port, agent.credential, limit)
        await trio.sleep(SETTLE_SECONDS)
        held = float(rss_mb(house))
        nursery.cancel_scope.cancel()
    return held

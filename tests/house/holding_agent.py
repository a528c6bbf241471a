"""An agent in a process of its own that claims one todo, says which, and then hangs: to be killed with it in its hands.

Usage: holding_agent.py URL LEASE_SECONDS, its credential on the first line of stdin.
"""

from __future__ import annotations

import signal
import sys

from tests.house.agent_process import Caller


def main(url: str, lease_seconds: str) -> None:
    caller = Caller(url, sys.stdin.readline().strip())
    _, claimed = caller.post("/v1/claims", {"lease_seconds": int(lease_seconds)})
    print(claimed["todos"][0]["id"], flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

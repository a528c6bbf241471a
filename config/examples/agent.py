"""A worker in forty lines: claims, works, completes, until the queue stays empty. Standard library only.

    SWITCHBOARD_CREDENTIAL=sbk_… python3 config/examples/agent.py NAME

Kill it with kill -9 while it works: what it held comes back when its lease lapses, and another one takes it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

URL = os.environ.get("SWITCHBOARD_URL", "http://127.0.0.1:8080")
QUEUE = os.environ.get("SWITCHBOARD_QUEUE", "commits")
LEASE_SECONDS = 5
WORK_SECONDS = float(os.environ.get("SWITCHBOARD_WORK_SECONDS", "0.2"))


def main() -> None:
    """Drains the queue; waits for more as long as a lease of somebody else could still come back."""
    owner = sys.argv[1] if len(sys.argv) > 1 else f"agent-{os.getpid()}"
    while True:
        claim = {"queue": QUEUE, "owner": owner, "lease_seconds": LEASE_SECONDS, "wait_seconds": 2 * LEASE_SECONDS}
        todos = post("/v1/claims", claim)["todos"]
        if not todos:
            break
        (todo,) = todos
        time.sleep(WORK_SECONDS)  # the work itself; longer work sends heartbeats meanwhile
        try:
            finish = {"lease_token": todo["lease_token"], "result": {"looked_at_by": owner}}
            post(f"/v1/todos/{todo['id']}/complete", finish)
        except urllib.error.HTTPError as error:
            # 409: the lease lapsed and somebody else has it, or this very call was a repetition that had worked before.
            print(f"{owner}: {error.code} {json.load(error)['detail']}")  # noqa: T201 - a script for a terminal
        else:
            print(f"{owner}: {todo['title']} (attempt {todo['attempt']})", flush=True)  # noqa: T201
    print(f"{owner}: nothing left to do")  # noqa: T201


def post(path: str, body: object) -> dict[str, Any]:
    """One request of an agent."""
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        URL + path,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['SWITCHBOARD_CREDENTIAL']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        answer: dict[str, Any] = json.load(reply)
    return answer


if __name__ == "__main__":
    main()

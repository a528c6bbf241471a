"""Pushes one todo for each commit of a git repository: real work for agents to drain. Standard library only.

    SWITCHBOARD_CREDENTIAL=sbk_… python3 config/examples/push_git_log.py [REPOSITORY]

The commit is the idempotency key, so pushing twice while the todos are live makes nothing new.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

URL = os.environ.get("SWITCHBOARD_URL", "http://127.0.0.1:8080")
QUEUE = os.environ.get("SWITCHBOARD_QUEUE", "commits")
BATCH = 200


def main() -> None:
    """Reads the log and pushes it, a batch a request."""
    repository = sys.argv[1] if len(sys.argv) > 1 else "."
    log = ["git", "-C", repository, "log", "--reverse", "--format=%H%x09%s"]
    lines = subprocess.run(log, check=True, capture_output=True, text=True).stdout.splitlines()
    todos = [
        {"queue": QUEUE, "title": subject[:200], "payload": {"commit": commit}, "idempotency_key": commit}
        for commit, _, subject in (line.partition("\t") for line in lines)
    ]
    created = 0
    for start in range(0, len(todos), BATCH):
        results = post("/v1/todos/batch", {"todos": todos[start : start + BATCH]})["results"]
        created += sum(result.get("created", False) for result in results)
    print(f"{created} of {len(todos)} commits are new todos in queue {QUEUE}")  # noqa: T201 - a script for a terminal


def post(path: str, body: object) -> dict[str, list[dict[str, bool]]]:
    """One request of an agent."""
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        URL + path,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['SWITCHBOARD_CREDENTIAL']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
        answer: dict[str, list[dict[str, bool]]] = json.load(reply)
    return answer


if __name__ == "__main__":
    main()

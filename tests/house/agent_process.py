"""An agent in a process of its own, to be killed at any point: claims, and completes what it claimed, without end.

Usage: agent_process.py URL OWNER LEASE_SECONDS, its credential on the first line of stdin. Each completion that was
acknowledged to it is one line of its standard output, written at once: the todo's id and the lease token.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from typing import Any
from urllib.parse import urlsplit

CLAIMED_AT_ONCE = 4
"""So that an agent that is killed leaves todos behind that it had not begun."""
PAUSE_SECONDS = 0.05


class Caller:
    """One keep-alive connection to the house, made anew whenever it is lost."""

    def __init__(self, url: str, credential: str, *, timeout_seconds: float = 20.0) -> None:
        self._at = urlsplit(url)
        self._headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
        self._timeout = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None
        self.headers: dict[str, str] = {}
        """Of the last answer, their names in lower case."""

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """Status and decoded body; status 0 where the connection was lost, so that nobody knows what happened."""
        return self.ask("POST", path, json.dumps(body))

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """The same for any method."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._at.hostname or "", self._at.port, timeout=self._timeout)
            self._connection.request(method, path, body, self._headers)
            reply = self._connection.getresponse()
            raw = reply.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, None
        self.headers = {name.lower(): value for name, value in reply.getheaders()}
        return reply.status, json.loads(raw)

    def close(self) -> None:
        """Hangs up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def main(url: str, owner: str, lease_seconds: str) -> None:
    caller = Caller(url, sys.stdin.readline().strip())
    while True:
        claim = {"owner": owner, "lease_seconds": int(lease_seconds), "max": CLAIMED_AT_ONCE}
        status, claimed = caller.post("/v1/claims", claim)
        if status != 200 or not claimed["todos"]:
            time.sleep(PAUSE_SECONDS)
            continue
        for todo in claimed["todos"]:
            _complete(caller, todo, owner)


def _complete(caller: Caller, todo: dict[str, Any], owner: str) -> None:
    """Completes one, again while nobody knows whether it happened (R32)."""
    while True:
        guard = {"lease_token": todo["lease_token"], "result": {"by": owner}}
        status, reply = caller.post(f"/v1/todos/{todo['id']}/complete", guard)
        if status == 200 or (status == 409 and reply.get("already")):
            os.write(1, f"{todo['id']} {todo['lease_token']}\n".encode())
            return
        if status == 409:  # its lease lapsed, and somebody else has it
            return
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Load on a house that is about to be hurt: what it acknowledged, what it refused, and what it must not have said."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import attrs

from tests.house.agent_process import Caller

CREATORS = 3
WORKERS = 3
LEASE_SECONDS = 300
"""Longer than any test: no claim is lost to time, so whoever holds a token must succeed with it."""
PAUSE_SECONDS = 0.02


@attrs.define(kw_only=True, eq=False)
class Load:
    """Creates with idempotency keys, and claims with completes, from threads, until the block ends.

    Callers do what R32 asks of them: while the outcome of a call is unknown they repeat it, with the same key or token.
    """

    url: str
    """Where the house is; set it anew when it has moved."""
    credential: str = attrs.field(repr=False)
    created: dict[str, str] = attrs.field(factory=dict)
    """Acknowledged creates: key, id."""
    completed: dict[str, str] = attrs.field(factory=dict)
    """Acknowledged completes: id, lease token."""
    statuses: Counter[int] = attrs.field(factory=Counter)
    """How often each status was answered; 0 stands for a lost connection."""
    wrong: list[str] = attrs.field(factory=list)
    """Answers that nobody should ever get."""
    _ended: threading.Event = attrs.field(factory=threading.Event)
    _threads: list[threading.Thread] = attrs.field(factory=list)

    def __enter__(self) -> Load:
        for work in [self._create] * CREATORS + [self._drain] * WORKERS:
            self._threads.append(threading.Thread(target=self._until_ended, args=(work,)))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def acknowledged(self) -> int:
        """How many calls that change something were acknowledged so far."""
        return len(self.created) + len(self.completed)

    def require_clean(self) -> None:
        """Nothing but success, 503 with Retry-After, and connections that were lost."""
        assert not self.wrong, self.wrong[:5]
        assert not {status for status in self.statuses if status not in (0, 200, 201, 409, 503)}, self.statuses

    def _until_ended(self, work: Callable[[Callable[[str, object], tuple[int, Any]]], None]) -> None:
        url, caller = self.url, Caller(self.url, self.credential)

        def post(path: str, body: object) -> tuple[int, Any]:
            nonlocal url, caller
            if url != self.url:
                caller.close()
                url, caller = self.url, Caller(self.url, self.credential)
            status, reply = caller.post(path, body)
            self._note(caller, path, status, reply)
            return status, reply

        try:
            while not self._ended.is_set():
                work(post)
        except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
            self.wrong.append(repr(error))
        finally:
            caller.close()

    def _create(self, post: Callable[[str, object], tuple[int, Any]]) -> None:
        key = uuid4().hex
        while not self._ended.is_set():
            status, reply = post("/v1/todos", {"queue": "load", "idempotency_key": key, "payload": {"n": key}})
            if status in (200, 201):
                self.created[key] = reply["todo"]["id"]
                return
            self._ended.wait(PAUSE_SECONDS)

    def _drain(self, post: Callable[[str, object], tuple[int, Any]]) -> None:
        status, reply = post("/v1/claims", {"queue": "load", "lease_seconds": LEASE_SECONDS})
        if status != 200 or not reply["todos"]:
            self._ended.wait(PAUSE_SECONDS)
            return
        (todo,) = reply["todos"]
        while not self._ended.is_set():
            status, reply = post(f"/v1/todos/{todo['id']}/complete", {"lease_token": todo["lease_token"]})
            if status == 200 or (status == 409 and reply.get("already")):
                self.completed[todo["id"]] = todo["lease_token"]
                return
            if status == 409:
                self.wrong.append(f"the holder of a live claim was refused: {reply}")
                return
            self._ended.wait(PAUSE_SECONDS)

    def _note(self, caller: Caller, path: str, status: int, reply: Any) -> None:
        self.statuses[status] += 1
        if status == 503 and (not caller.headers.get("retry-after", "").isdigit() or reply.get("code") != "unavailable"):
            self.wrong.append(f"503 without Retry-After from {path}: {caller.headers} {reply}")
        elif status not in (0, 200, 201, 409, 503):
            self.wrong.append(f"{status} from {path}: {reply}")


def drain(url: str, credential: str) -> None:
    """Claims and completes in batches until nothing is left."""
    caller = Caller(url, credential)
    while True:
        status, reply = caller.post("/v1/claims", {"max": 500})
        assert status == 200, reply
        if not reply["todos"]:
            break
        items = [{"id": todo["id"], "lease_token": todo["lease_token"]} for todo in reply["todos"]]
        status, reply = caller.post("/v1/todos/complete", {"items": items})
        assert status == 200, reply
        assert all("todo" in result for result in reply["results"])
    caller.close()

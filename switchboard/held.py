"""A todo that is held: its lease is kept alive while the work is done, and it is finished exactly once.

On AnyIO, for Trio and asyncio alike. How a call reaches the house is the client's business.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar

import anyio
import msgspec

from switchboard.answers import Todo
from switchboard.errors import Conflict, NotFound, SwitchboardError
from switchboard.masking import mask
from switchboard.pauses import Pauses, passes

BEATS_PER_LEASE: Final = 3
"""So that one beat may be lost, and the next one come late, before the lease is over."""
HEARTBEAT_SECONDS_MAX: Final = 10.0
FINISH_SECONDS_MIN: Final = 60.0
"""A finish is repeated at least so long, and until the lease would be over: it is taken until somebody else has the todo."""
LET_GO_SECONDS_MAX: Final = 5.0
"""How long a cancelled worker may take to give its todo back. If it does not succeed, the lease lapses by itself."""

Verb = Literal["heartbeat", "complete", "fail", "release"]
Send = Callable[[Verb, str, float], Awaitable[Todo]]
"""One call about the todo: the verb, its fields as JSON text, and how many seconds it may take."""
T = TypeVar("T")


class LeaseLost(SwitchboardError):
    """The todo is no longer ours: its lease lapsed, or somebody took it away. Whatever was done for it is done again."""


class Work:
    """The work on one todo, from `Client.work_on`. Finish it with `complete`, `fail` or `release`, once."""

    def __init__(self, todo: Todo, send: Send, *, finish_seconds_max: float) -> None:
        self.todo = todo
        """The todo as it was claimed."""
        self.ending: Todo | None = None
        """The todo as the house showed it after it was finished here; None before that, and where that answer was lost."""
        self.finished = False
        """Whether it needs no finish any more: the house has taken one, or it may have and nobody can tell."""
        self.lost: LeaseLost | None = None
        self._send = send
        self._finish_seconds_max = finish_seconds_max
        self._lease_ends = todo.heard_at + todo.lease_seconds
        # One call about the todo at a time: a heartbeat must not cross a finish, and take its 409 for a lost lease.
        self._asking = anyio.Lock()

    async def complete(self, result: object = None) -> None:
        """Done. `result` is anything that JSON can say, or a `msgspec.Raw` that is JSON already.

        Repeated, with pauses, while no answer comes; a house that has done it already counts as success.

        Raises:
            LeaseLost: it is somebody else's by now.
            TooLarge, Invalid: the house does not take this result; the todo is still held, and may be failed.
            TypeError, ValueError: the result cannot be JSON.
            Unreachable, Unavailable: no answer came in time; nobody can tell whether it happened.
        """
        text = bytes(result).decode() if isinstance(result, msgspec.Raw) else _json(result)
        await self._finish("complete", "{}" if result is None else f'{{"result": {text}}}')

    async def fail(self, error: str | None = None) -> None:
        """It went wrong: tried again after a pause, dead-lettered at its last attempt. `error`: at most 65,536 characters.

        Repeated as `complete` is. Raises LeaseLost, Invalid, Unreachable or Unavailable, as that does.
        """
        await self._finish("fail", "{}" if error is None else _json({"error": error}))

    async def release(self) -> None:
        """Given back for somebody else; dead-lettered instead at its last attempt.

        Repeated as `complete` is. Raises LeaseLost, Unreachable or Unavailable, as that does.
        """
        await self._finish("release", "{}")

    async def let_go(self) -> None:
        """Gives it back from inside a cancellation, within LET_GO_SECONDS_MAX. Raises nothing; if in vain, the lease lapses."""
        with anyio.move_on_after(LET_GO_SECONDS_MAX, shield=True):
            try:
                if not self.finished:
                    await self.release()
            except SwitchboardError:
                return

    async def give_up(self, failure: Exception) -> None:
        """Fails it for `failure`; what goes wrong with that becomes a note on the failure, which is the news."""
        try:
            await self.fail(_sayable(mask(f"{type(failure).__name__}: {failure}")))
        except SwitchboardError as exc:
            failure.add_note(f"The todo {self.todo.id} could not be failed: {exc}")

    async def keep_lease(self, beating: anyio.CancelScope, body: anyio.CancelScope) -> None:
        """Sends heartbeats until `beating` is cancelled or the todo is finished; cancels `body` when the lease is lost.

        `beating` is shielded by its maker: whoever is cancelled keeps the lease until it has really left off.
        """
        with beating:
            due = self.todo.heard_at + self.todo.lease_seconds / BEATS_PER_LEASE
            pauses = Pauses()
            while True:
                await anyio.sleep_until(due)
                try:
                    lease_seconds = await self._beat()
                except SwitchboardError as exc:
                    now = anyio.current_time()
                    if not passes(exc) or now >= self._lease_ends:
                        self.lost = LeaseLost(f"The lease of todo {self.todo.id} is lost: {exc}")
                        self.lost.__cause__ = exc
                        body.cancel()
                        return
                    due = min(now + pauses.after(exc), self._lease_ends)
                else:
                    if self.finished:
                        return
                    due, pauses = self._lease_ends - lease_seconds * (1 - 1 / BEATS_PER_LEASE), Pauses()

    async def _beat(self) -> float:
        """One heartbeat; returns how long the lease is from the moment that it was asked for."""
        async with self._asking:
            if self.finished:
                return 0.0
            asked_at = anyio.current_time()
            seconds_max = min(HEARTBEAT_SECONDS_MAX, max(self._lease_ends - asked_at, 1 / BEATS_PER_LEASE))
            lease_seconds = (await self._send("heartbeat", "{}", seconds_max)).lease_seconds
            self._lease_ends = asked_at + lease_seconds
            return lease_seconds

    async def _finish(self, verb: Verb, fields: str) -> None:
        if self.lost is not None:
            raise self.lost
        if self.finished:
            raise RuntimeError(f"the todo {self.todo.id} is finished already")
        async with self._asking:
            until = max(self._lease_ends, anyio.current_time() + FINISH_SECONDS_MIN)
            try:
                self.ending = await repeated(lambda: self._send(verb, fields, self._finish_seconds_max), until=until)
            except (Conflict, NotFound) as exc:
                if not (isinstance(exc, Conflict) and exc.already):
                    self.lost = LeaseLost(f"The lease of todo {self.todo.id} is lost: {exc}")
                    raise self.lost from exc
            except SwitchboardError as exc:
                # A doubtful finish is not followed by another kind of finish: the first may have happened.
                self.finished = passes(exc)
                raise
            self.finished = True


async def repeated(ask: Callable[[], Awaitable[T]], *, until: float) -> T:
    """What `ask` returns, asked again with pauses while its errors may pass, until this moment of the event loop's clock."""
    pauses = Pauses()
    while True:
        try:
            return await ask()
        except SwitchboardError as exc:
            pause = pauses.after(exc)
            if not passes(exc) or anyio.current_time() + pause > until:
                raise
        await anyio.sleep(pause)


def _sayable(text: str) -> str:
    """`text` without what no JSON of a house can carry: NUL and half surrogate pairs."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)

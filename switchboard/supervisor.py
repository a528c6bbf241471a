"""The supervisor: starts the actors in order, keeps them running, and ends them in order. The only retry loop there is.

An actor has four endings, and no others:

    raises before started(), at the house's first start  ->  the house does not open: StartError, one line
    raises later, or in a restart                        ->  logged, restarted after 0.5 s doubling, shown in /readyz
    returns though nobody asked it to                    ->  the same
    is cancelled                                         ->  passes

Only the closing signal ends the house (R30). It is also the one place that catches everything: see `contain`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs
import structlog
import trio

from switchboard.errors import BrokerError, StartError, Unavailable
from switchboard.masking import mask

RETRY_FIRST_SECONDS = 0.5

# Whoever failed because our own database is away is back soon after it, however patient it is with others (brokers).
DATABASE_RETRY_SECONDS_MAX = 2.0

# After this long without a failure the next one is a new story, and waits RETRY_FIRST_SECONDS again.
HEALTHY_SECONDS = 60.0

# last_error is shown on a page and in /readyz; the whole story, with its traceback, is in the log.
ERROR_CHARACTERS_MAX = 300

_log = structlog.get_logger("supervisor")


@attrs.frozen(kw_only=True)
class Actor:
    """A name and what it runs.

    `run` is called as `run(task_status=...)`, calls `task_status.started()` after all that can fail, and then goes on
    until it is cancelled. `retry_max_seconds` bounds the pause between restarts: 2 for what needs our own database, 30
    for brokers. `drains` says that it watches the closing signal and ends by itself (the front door finishes what is in
    flight); all others are cancelled after it. `essential` says that without it the house is not ready. A pause between
    restarts ends early when `reason_to_hurry` returns: something has changed about what failed.
    """

    name: str
    run: Callable[..., Awaitable[None]]
    retry_max_seconds: float = 2.0
    drains: bool = False
    essential: bool = True
    reason_to_hurry: Callable[[], Awaitable[object]] | None = None


@attrs.frozen(kw_only=True)
class ActorHealth:
    """What /readyz tells of an actor. `last_error` stays after a recovery, masked and short; `restarts` only grows."""

    running: bool = False
    restarts: int = 0
    last_error: str | None = None
    essential: bool = True


class ActorReturned(Exception):
    """The actor returned though nobody asked it to."""


def jittered(seconds: float) -> float:
    """Between half of `seconds` and all of it, so that two houses that lost one database do not knock in step."""
    return random.uniform(seconds / 2, seconds)  # noqa: S311 - spreads load, guards nothing


async def contain(work: Callable[[], Awaitable[None]], *, failed: Callable[[Exception], None]) -> None:
    """Await `work()` and hand what it raises to `failed`, a plain function, instead of letting it through.

    A group of one is unwrapped. Cancellation, KeyboardInterrupt and SystemExit pass, also out of a group in which
    they come together with failures; those are handed over first. What `failed` raises passes as well.
    """
    caught: list[Exception] = []
    try:
        await work()
    # Broad on purpose, and nowhere else in the house: behind this line runs code that no list of expected errors can
    # describe (an actor with its libraries, a connection with a stranger's bytes), and one of them must not end all.
    except* Exception as group:  # noqa: BLE001
        caught.append(_alone(group))
        failed(caught[0])


async def supervise(
    actors: Sequence[Actor],
    *,
    closing: trio.Event,
    drain_seconds: float,
    health: dict[str, ActorHealth],
    on_restart: Callable[[str], None] | None = None,
    jitter: Callable[[float], float] = jittered,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `actors` until `closing` is set and the last of them has ended; return then.

    They start in the order given, each after the one before has called started(); then this calls started() itself.
    On `closing` those that drain may end by themselves for `drain_seconds`; then every one still there is cancelled in
    reverse order, each gone before the next. The signal also ends a start that is under way, without an error.

    `health` belongs to the caller and is kept current, by name. `on_restart`, if any, is told the name of each actor
    that is tried again. Raises StartError if one fails at its first start, after those before it have ended.
    """
    keepers = [_Keeper(actor=actor, closing=closing, health=health, on_restart=on_restart, jitter=jitter) for actor in actors]
    if len({keeper.actor.name for keeper in keepers}) != len(keepers):
        raise ValueError("two actors have the same name")
    health.update({keeper.actor.name: ActorHealth(essential=keeper.actor.essential) for keeper in keepers})

    begun: list[_Keeper] = []
    refused: StartError | None = None
    async with trio.open_nursery() as nursery:
        for keeper in keepers:
            if refused is not None or closing.is_set():
                break
            begun.append(keeper)
            nursery.start_soon(keeper.keep, name=f"actor {keeper.actor.name}")
            await _first(keeper.settled, closing)
            refused = keeper.refused

        if refused is None:
            task_status.started()
            await closing.wait()
            with trio.move_on_after(drain_seconds):
                for keeper in begun:
                    if keeper.actor.drains:
                        await keeper.ended.wait()
        for keeper in reversed(begun):
            keeper.scope.cancel()
            await keeper.ended.wait()
    if refused is not None:
        raise refused


@attrs.define(kw_only=True, eq=False)
class _Keeper:
    """Runs one actor again and again. Its fields are the supervisor's view of that actor."""

    actor: Actor
    closing: trio.Event
    health: dict[str, ActorHealth]
    on_restart: Callable[[str], None] | None
    jitter: Callable[[float], float]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    # Set when the first start is over, well or badly.
    settled: trio.Event = attrs.field(factory=trio.Event)
    # Set when the actor's last task is gone.
    ended: trio.Event = attrs.field(factory=trio.Event)
    refused: StartError | None = None
    # When this run called started(), on Trio's clock; None while it has not.
    started_at: float | None = None

    async def keep(self) -> None:
        """Run the actor until it is cancelled, the house closes, or its first start fails."""
        pause = RETRY_FIRST_SECONDS
        try:
            with self.scope:
                while True:
                    self.started_at = None
                    failures: list[Exception] = []
                    await contain(partial(self.actor.run, task_status=self), failed=failures.append)
                    error = failures[0] if failures else ActorReturned("returned though nobody asked it to")
                    if self.closing.is_set():
                        # Its work is over however it ended; a failure on the way out is still worth a line.
                        if failures:
                            _log.warning("actor failed while closing", actor=self.actor.name, exc_info=error)
                        return
                    if not self.settled.is_set():
                        self.refused = _refusal(self.actor.name, error)
                        return
                    if self._was_healthy():
                        pause = RETRY_FIRST_SECONDS
                    if isinstance(error, Unavailable):
                        pause = min(pause, DATABASE_RETRY_SECONDS_MAX)
                    if not await self._pause(error, self.jitter(pause)):
                        return
                    pause = min(pause * 2, self.actor.retry_max_seconds)
        finally:
            self._show(attrs.evolve(self._shown, running=False))
            self.settled.set()
            self.ended.set()

    def started(self, value: object = None) -> None:  # noqa: ARG002 - Trio's signature; an actor reports no value
        """The actor's task_status: it is up."""
        if self.started_at is not None:
            raise RuntimeError("called 'started' twice on the same task status")
        self.started_at = trio.current_time()
        self._show(attrs.evolve(self._shown, running=True))
        self.settled.set()

    async def _pause(self, error: Exception, seconds: float) -> bool:
        """Say what happened and wait. False when the house closed meanwhile, which nobody need wait out."""
        line = one_line(error)
        before = self._shown
        # The traceback of an outage is worth reading once, not every two seconds of it.
        # That of a database or a broker that is away says nothing that its line does not.
        told = {} if line == before.last_error or isinstance(_alone(error), Unavailable | BrokerError) else {"exc_info": error}
        _log.error("actor failed", actor=self.actor.name, error=line, retry_seconds=round(seconds, 2), **told)
        self._show(attrs.evolve(before, running=False, last_error=line))
        with trio.move_on_after(seconds):
            if self.actor.reason_to_hurry is None:
                await self.closing.wait()
            else:
                await _first_of(self.closing.wait, self.actor.reason_to_hurry)
        if self.closing.is_set():
            return False
        self._show(attrs.evolve(self._shown, restarts=before.restarts + 1))
        if self.on_restart is not None:
            self.on_restart(self.actor.name)
        return True

    def _was_healthy(self) -> bool:
        return self.started_at is not None and trio.current_time() - self.started_at >= HEALTHY_SECONDS

    @property
    def _shown(self) -> ActorHealth:
        return self.health[self.actor.name]

    def _show(self, health: ActorHealth) -> None:
        self.health[self.actor.name] = health


def one_line(error: BaseException) -> str:
    """An error as one masked line of bounded length, for pages and messages: what it is, then what it says."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    text = mask(" ".join(f"{type(error).__name__}: {error}".split()))
    return text if len(text) <= ERROR_CHARACTERS_MAX else text[: ERROR_CHARACTERS_MAX - 1] + "…"


def _refusal(name: str, error: Exception) -> StartError:
    """Why the house cannot open. A StartError is already written for the operator; anything else is introduced."""
    if isinstance(error, StartError):
        return error
    refusal = StartError(f"{name} did not start. {one_line(error)}")
    refusal.__cause__ = error
    return refusal


def _alone(error: Exception) -> Exception:
    """The one failure that a group holds, or the group; what is no group is itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _first(*events: trio.Event) -> None:
    """Wait until one of `events` is set."""
    await _first_of(*[event.wait for event in events])


async def _first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of these returns."""
    async with trio.open_nursery() as nursery:
        for wait in waits:
            nursery.start_soon(_then, wait, nursery.cancel_scope.cancel)


async def _then(wait: Callable[[], Awaitable[object]], act: Callable[[], None]) -> None:
    await wait()
    act()

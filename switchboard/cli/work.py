"""`work`: a worker for any program. It claims, runs the command for each todo, and tells the house how that ended."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import attrs
import trio

from switchboard.answers import NotAHouse, Todo
from switchboard.cli import child, output
from switchboard.cli.address import CREDENTIAL_VARIABLE, find_credential, find_url
from switchboard.cli.arguments import Arguments
from switchboard.cli.endings import exit_code_of
from switchboard.cli.failures import CommandError
from switchboard.cli.grammar import PROGRAM
from switchboard.cli.guard import Guard
from switchboard.client import Client
from switchboard.errors import Invalid, QueueError, SwitchboardError, TooLarge, Unauthorized
from switchboard.held import LeaseLost, Work
from switchboard.pauses import passes
from switchboard.todo import WAIT_SECONDS_MAX

T = TypeVar("T")


def run_worker(args: Arguments, environ: Mapping[str, str]) -> int:
    """Works until SIGTERM, SIGINT or SIGHUP; returns the exit code.

    0 after a signal; 1 where the house refuses the credential or the queue, 2 for bad usage or configuration, each after one
    line on standard error. A house that is away is waited for.
    """
    return exit_code_of(lambda: _work(args, environ))


def _work(args: Arguments, environ: Mapping[str, str]) -> None:
    credential = find_credential(environ)
    url, url_from = find_url(args, environ)
    with Guard() as guard:
        trio.run(_until_told, args, url, url_from, credential, guard)


async def _until_told(args: Arguments, url: str, url_from: str, credential: str, guard: Guard) -> None:
    """Works until a signal comes. Raises CommandError where the house refuses what this worker needs."""
    refusal: CommandError | None = None
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as working:
            await nursery.start(_end_on_signal, working)
            try:
                async with _client(url, credential, _Telltale(url, url_from)) as client:
                    await _Worker(client, args, guard).work()
            except Unauthorized as exc:
                refusal = CommandError(
                    f"Unauthorized: the house at {url} does not take the credential from {CREDENTIAL_VARIABLE}. {exc}"
                )
            except QueueError as exc:
                refusal = CommandError(f"{exc.title}: {exc}")
            except NotAHouse as exc:
                refusal = CommandError(f"There is no house at {url} (from {url_from}). {exc}")
            except CommandError as exc:
                refusal = exc
        nursery.cancel_scope.cancel()
    if refusal is not None:
        raise refusal


async def _end_on_signal(scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    # It listens to the very end: a second signal must not cut the first one's grace short.
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()


def _client(url: str, credential: str, telltale: _Telltale) -> Client:
    try:
        return Client(url, credential, heard=telltale.heard)
    except ValueError as exc:
        raise CommandError(str(exc)) from exc


@attrs.define
class _Telltale:
    """Says once that the house is away, and once that it is back."""

    url: str
    url_from: str
    away: bool = False

    def heard(self, error: SwitchboardError | None) -> None:
        """What the client hears of the house."""
        if error is not None and not self.away:
            output.complain(
                f"The house at {self.url} (from {self.url_from}) is away, and is tried again until it is back. {error}"
            )
        elif error is None and self.away:
            output.complain(f"The house at {self.url} is back.")
        self.away = error is not None


@attrs.frozen
class _Worker:
    """Claims and works, one todo at a time."""

    client: Client
    args: Arguments
    guard: Guard

    async def work(self) -> None:
        """Never returns. Raises the house's refusals of the credential, the queue or the claim's other words."""
        me = await _until_back(self.client.whoami)
        while True:
            for todo in await _until_back(self._claim):
                try:
                    await self._work_on(todo, me.defaults.payload_bytes)
                except LeaseLost as lost:
                    output.complain(f"{lost} What its command did does not count.")
                except SwitchboardError as exc:
                    if not passes(exc):
                        raise
                    output.complain(f"Nobody knows whether the house heard how todo {todo.id} ended. {exc}")

    async def _claim(self) -> list[Todo]:
        return await self.client.claim(
            queue=self.args.queue,
            owner=self.args.owner,
            lease_seconds=self.args.lease_seconds,
            wait_seconds=WAIT_SECONDS_MAX,
        )

    async def _work_on(self, todo: Todo, result_bytes_max: int) -> None:
        held: Work | None = None
        try:
            async with self.client.work_on(todo) as held:
                ended = await child.run(
                    self.args.words, bytes(todo.as_json), result_bytes_max=result_bytes_max, guard=self.guard
                )
                if ended.error is not None:
                    await held.fail(ended.error)
                    return
                try:
                    await held.complete(ended.result)
                except (TooLarge, Invalid) as refused:
                    await held.fail(f"The house does not take the command's output as the result: {refused}")
        except trio.Cancelled:
            if held is not None and held.ending is not None and held.ending.status == "dead":  # R7
                output.complain(
                    f"Todo {todo.id} was released at its last attempt, and is dead now: "
                    f"`{PROGRAM} todo retry {todo.id}` queues it again."
                )
            raise


async def _until_back(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` returns once the house answers: it repeats and pauses by itself, for a while each time."""
    while True:
        try:
            return await ask()
        except SwitchboardError as exc:
            if not passes(exc):
                raise

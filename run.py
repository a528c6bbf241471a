#!/usr/bin/env python3
"""switchboard: the composition root and the command line. configuration -> database -> channels -> actors -> supervise."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    # Before the imports below, which take a second: whoever is told to end before anything has begun just ends.
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(_number, lambda *_: os._exit(0))

    from switchboard.cli.arguments import OPERATOR_COMMANDS, parse

    arguments = parse(sys.argv[1:])
    if arguments.command in OPERATOR_COMMANDS:
        # They ask a house, and need nothing of what one is made of.
        from switchboard.cli.operator_commands import run_operator_command

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a command knows how to be interrupted
        sys.exit(run_operator_command(arguments, os.environ))
    if arguments.command == "work":
        from switchboard.cli.work import run_worker

        sys.exit(run_worker(arguments, os.environ))

import gc

gc.disable()  # the imports below leave nothing behind that is worth a search; `main` enables it

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import trio

from actors.adapter_flags import AdapterFlags, Flags
from actors.doorbell import Doorbell
from actors.front_door import front_door
from actors.ledger import LaneName, Ledger, RunBatch
from actors.mcp_sessions import McpSessions
from actors.postgres_keeper import postgres_keeper
from actors.pull_adapter import PullAdapter
from actors.pulse import Pulse
from actors.reaper import reaper
from actors.relay import Relay
from actors.retry_scheduler import retry_scheduler
from actors.slot_keeper import SlotKeeper
from switchboard import VERSION, config, log, slot_holder, state_dir, sweeps
from switchboard.adapter import Facts, Report
from switchboard.cli.arguments import Arguments
from switchboard.commands import Outcome
from switchboard.config import Config
from switchboard.database import house_lock, opening
from switchboard.database.border import Bounds, Database
from switchboard.database.notices import Notices, open_notices
from switchboard.database.opening import EmbeddedServer
from switchboard.endpoint import Endpoint
from switchboard.errors import ConfigError, StartError
from switchboard.http.access import Access
from switchboard.http.application import agents, lanes
from switchboard.last_resort import LastResort
from switchboard.listeners import Listening, open_listeners
from switchboard.mcp import application as mcp
from switchboard.mcp.opening import open_protocol
from switchboard.mcp.tools import Toolbox, tools
from switchboard.pull.consumption import PullSettings
from switchboard.sealing import Sealer
from switchboard.signals import closing_on_signals
from switchboard.slot import Slots
from switchboard.store import adapters, attending, claiming, creating, endpoints, health, holding, ingesting, slots
from switchboard.store.overdue_turns import OverdueTurns
from switchboard.supervisor import Actor, ActorHealth, supervise
from switchboard.tally import Tally
from switchboard.todo import Ring
from switchboard.waiting_room import Scope, WaitingRoom

DRAIN_SHARE = 0.6
"""How much of the grace requests in flight may take; the rest is for the ledger's last batch and the database."""
STOP_SHARE = 0.25
BROKER_RETRY_SECONDS_MAX = 30.0
COLLECT_AFTER_OBJECTS = 20_000
REDIS = "redis"  # the `source` of every event and todo that comes from one
DONE, CANNOT_START, BAD_CONFIGURATION = 0, 1, 2


def main(args: Arguments) -> int:
    """Runs one command of those that are not asked of a house; returns its exit code."""
    gc.freeze()
    gc.enable()
    if args.command == "version":
        return _say(f"switchboard {VERSION}")
    if args.command == "demo":
        from switchboard import demo  # with an HTTP client and a Redis client, which a house without adapters does without

        try:
            return demo.run(Path(__file__))
        except StartError as refusal:
            return _complain(str(refusal), CANNOT_START)
    try:
        settings = config.load(args.config, os.environ)
    except ConfigError as wrong:
        return _complain(str(wrong), BAD_CONFIGURATION)
    if args.command == "check":
        return _say(f"The configuration is right ({config.file_to_read(args.config) or 'the defaults; there is no file'}).")
    log.configure(stream=sys.stderr)
    try:
        return trio.run(_until_closed, _migrate if args.command == "migrate" else partial(_serve, args.config), settings)
    except StartError as refusal:
        return _complain(str(refusal), CANNOT_START)


async def _until_closed(command: Callable[[Config, trio.Event, LastResort], Awaitable[None]], settings: Config) -> int:
    """Runs `command` with the signals bound to the one event that ends it, and the last resort to the end of the grace."""
    closing = trio.Event()
    last_resort = LastResort(grace_seconds=settings.server.shutdown_grace_seconds)
    refusal: StartError | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(closing_on_signals, closing, on_closing=last_resort.arm))
        try:
            await command(settings, closing, last_resort)
        except* StartError as group:
            refusal = _first(group)
        nursery.cancel_scope.cancel()
    last_resort.disarm()
    if refusal is not None and not closing.is_set():  # a start that the operator ended has not failed
        raise refusal
    return DONE


async def _migrate(settings: Config, closing: trio.Event, last_resort: LastResort) -> None:
    async with _database(settings, closing, last_resort) as (conninfo, _):
        applied = await opening.bring_up_to_date(conninfo, closing)
    _say("\n".join(f"applied {name}" for name in applied) or "The database is up to date.")


async def _serve(config_file: Path | None, settings: Config, closing: trio.Event, last_resort: LastResort) -> None:
    # The port first: one that is taken ends the start before anything has had a side effect (C44).
    listening = await open_listeners(settings.server.host, settings.server.port)
    try:
        async with _database(settings, closing, last_resort) as (conninfo, embedded):
            await opening.bring_up_to_date(conninfo, closing)
            if not closing.is_set():
                await _keep_house(settings, conninfo, embedded, listening, closing, config_file)
    finally:
        listening.close()


@asynccontextmanager
async def _database(
    settings: Config, closing: trio.Event, last_resort: LastResort
) -> AsyncIterator[tuple[str, EmbeddedServer | None]]:
    """The configured database, or an embedded one that lives as long as this block."""
    directory = await opening.in_thread(partial(state_dir.prepare, settings.server.state_dir))
    if settings.database.url is not None:
        yield settings.database.url, None
        return
    with await opening.in_thread(partial(house_lock.hold, directory)):
        embedded = EmbeddedServer(directory, closing)
        last_resort.rescue = embedded.kill_now
        try:
            yield await embedded.start(), embedded
        finally:
            await embedded.stop(settings.server.shutdown_grace_seconds * STOP_SHARE)


async def _keep_house(
    settings: Config,
    conninfo: str,
    embedded: EmbeddedServer | None,
    listening: Listening,
    closing: trio.Event,
    config_file: Path | None,
) -> None:
    """Puts the house together and keeps it until `closing`: the one place that knows every part."""
    directory = state_dir.prepare(settings.server.state_dir)
    token = state_dir.operator_token(directory, settings.server.operator_token)
    grace_seconds = settings.server.shutdown_grace_seconds
    bounds = Bounds.within(grace_seconds)
    database = Database(conninfo, pool_size=settings.database.pool_size, bounds=bounds)
    room = WaitingRoom()
    access = Access(find=partial(_find_endpoint, database), operator_token=token)
    doorbell = Doorbell(room, look=partial(_look, database))
    relay = _relay(database, partial(open_notices, conninfo, bounds), room, doorbell, access)

    def ring(*todos: Ring) -> None:
        """Whatever became pending here is announced here and in the other processes."""
        doorbell.ring(*todos)
        relay.tell(*todos)

    ledger = Ledger(run_batch=_batches(database, OverdueTurns()), ring=ring)
    pulse = Pulse(partial(database.transact, health.look, capacity="vital"))
    actors_health: dict[str, ActorHealth] = {}
    tallies = {adapter.name: Tally(name=adapter.name) for adapter in settings.adapters}
    asked_by_agents = agents(settings=settings, database=database, ledger=ledger, ring=ring, room=room)
    mcp_sessions = McpSessions(
        partial(
            open_protocol,
            toolbox=Toolbox(tools(asked_by_agents.todos, asked_by_agents.claims)),
            room=room,
            body_bytes_max=mcp.body_bytes_max(settings.limits.payload_bytes),
        )
    )
    mcp_app = mcp.McpApplication(
        access=access,
        hearing=asked_by_agents.hearing,
        large_bodies=asked_by_agents.large_bodies,
        spoken=mcp_sessions.spoken,
        host=settings.server.host,
        payload_bytes_max=settings.limits.payload_bytes,
    )
    ways_in = lanes(
        settings=settings,
        access=access,
        database=database,
        ledger=ledger,
        undo=ledger.undo,
        ring=ring,
        room=room,
        tell_others=relay.tell_changed,
        beat=pulse.beat,
        actors=actors_health,
        adapters=tallies,
        sealer=Sealer(state_dir.webhook_key(directory, settings.webhooks.secret_key)),
        asked_by_agents=asked_by_agents,
        beside={mcp.PATH: mcp_app},
    )

    actors = [
        Actor(name="pulse", run=pulse.run),
        Actor(name="ledger", run=ledger.run),
        Actor(name="doorbell", run=doorbell.run),
        Actor(name="relay", run=relay.run, essential=False),
        Actor(
            name="reaper",
            run=reaper(
                reap=partial(sweeps.reap, database, ring),
                drain_revoked=partial(sweeps.drain_revoked, database),
                interval_seconds=settings.queue.reap_interval_seconds,
            ),
        ),
        Actor(
            name="retry_scheduler",
            run=retry_scheduler(
                requeue=partial(sweeps.requeue, database, ring),
                interval_seconds=settings.queue.retry_interval_seconds,
            ),
        ),
        Actor(name="mcp_sessions", run=mcp_sessions.run, essential=False),
        Actor(
            name="front_door",
            run=front_door(
                app=ways_in.general,
                express=ways_in.express.serve,
                listeners=listening.listeners,
                closing=closing,
                drain_seconds=grace_seconds * DRAIN_SHARE,
            ),
            drains=True,
        ),
    ]
    if embedded is not None:
        actors.insert(0, Actor(name="postgres", run=postgres_keeper(running=embedded.running, restart=embedded.restart)))

    with slot_holder.hold(directory) as holder:
        if settings.adapters:
            # Before the front door, so that whoever is told that the house is open can see them.
            actors[-1:-1] = _adapter_actors(settings, database, ledger, tallies, holder)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_close_room, closing, room)
            await supervise(
                actors,
                closing=closing,
                drain_seconds=grace_seconds * DRAIN_SHARE,
                health=actors_health,
                task_status=_Open(closing, partial(_greet, listening, directory, embedded is not None, config_file)),
            )
    state_dir.forget_address(directory)
    database.close()


def _adapter_actors(
    settings: Config, database: Database, ledger: Ledger, tallies: Mapping[str, Tally], holder: UUID
) -> list[Actor]:
    """The pull adapters, one actor each, and the two that tell them what they may do."""
    from switchboard.redis_source import redis_source  # redis-py with it, which a house without adapters does without

    facts = [
        Facts(
            name=adapter.name,
            transport=adapter.transport,
            endpoints=adapter.endpoints,
            queue=adapter.todo_queue,
            enabled=adapter.enabled,
        )
        for adapter in settings.adapters
    ]
    names = [fact.name for fact in facts]
    targets = sorted({endpoint for fact in facts for endpoint in fact.endpoints})

    async def report_and_read(reports: Sequence[Report]) -> Flags:
        work = partial(adapters.report_and_read, reports=reports, names=names, endpoints=targets)
        return await database.transact(work, capacity="vital")

    async def beat() -> Slots:
        return await database.transact(partial(slots.beat, holder=holder), capacity="vital")

    keeper = SlotKeeper(beat)
    flags = AdapterFlags(
        adapters=facts,
        register=lambda: database.transact(partial(adapters.register, facts=facts)),
        report_and_read=report_and_read,
        reports={name: tally.take for name, tally in tallies.items()},
        taken_back=lambda report: tallies[report.name].give_back(report),
    )
    actors = [
        Actor(name="slot_keeper", run=keeper.run, essential=False),
        Actor(name="adapter_flags", run=flags.run, essential=False),
    ]
    for adapter in settings.adapters:
        pull = PullAdapter(
            settings=PullSettings(
                name=adapter.name,
                queue=adapter.todo_queue,
                source=REDIS,
                max_attempts=settings.queue.max_attempts,
                submit=ledger.submit,
                tally=tallies[adapter.name],
            ),
            open_source=redis_source(adapter, group_start=partial(_group_start, database, adapter.remembered_name)),
            permission=flags.permission,
            until_changed=flags.until_changed,
            slots=keeper.slots,
        )
        name = f"adapter:{adapter.name}"
        actors.append(
            Actor(
                name=name,
                run=pull.run,
                retry_max_seconds=BROKER_RETRY_SECONDS_MAX,
                essential=False,
                # an operator who switches it off and on means now
                reason_to_hurry=partial(flags.until_switched, adapter.name),
            )
        )
    return actors


async def _group_start(database: Database, stream: str) -> str:
    return await database.transact(partial(adapters.highest_forgotten, stream=stream))


@attrs.frozen
class _Open:
    """What the supervisor reports to once every actor is up."""

    closing: trio.Event
    greet: Callable[[], None]

    def started(self, value: None = None) -> None:  # noqa: ARG002 - Trio's signature
        """The house is open, unless it was told to close while it opened."""
        _spare_the_collector()
        if not self.closing.is_set():
            self.greet()


def _spare_the_collector() -> None:
    """What is here now stays as long as the house does, and what a batch makes goes with the batch.

    By Python's own thresholds the collector goes through both again and again, to find nothing: a fifth of the work of an
    entry of a stream. A cycle that something does leave behind is found a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


def _batches(database: Database, turns: OverdueTurns) -> RunBatch:
    """The store behind the ledger's lanes: one call, one thread, one transaction."""

    async def run_batch(lane: LaneName, commands: Sequence[Any], /) -> list[Outcome]:
        if lane == "creates":
            return await database.transact(partial(creating.create, commands=commands))
        if lane == "ingests":
            return await database.transact(partial(ingesting.ingest, commands=commands))
        if lane == "claims":
            return await database.transact(partial(claiming.claim, commands=commands, turns=turns))
        return await database.transact(partial(holding.hold, commands=commands, turns=turns), capacity="holders")

    return run_batch


async def _find_endpoint(database: Database, credential_sha256: bytes) -> Endpoint | None:
    return await database.transact(partial(endpoints.by_credential, credential_sha256=credential_sha256), capacity="vital")


async def _look(database: Database, scopes: Sequence[Scope], credentials: Set[tuple[UUID, bytes]]) -> attending.Seen:
    work = partial(attending.look, scopes=scopes, credentials=credentials)
    return await database.transact(work, capacity="vital")


def _relay(
    database: Database,
    open_line: Callable[[], AbstractAsyncContextManager[Notices]],
    room: WaitingRoom,
    doorbell: Doorbell,
    access: Access,
) -> Relay:
    return Relay(
        open_line=open_line,
        room=room,
        pending=lambda todos: database.transact(partial(attending.pending, todos=todos), capacity="vital"),
        refused=lambda credentials: database.transact(partial(attending.refused, credentials=credentials), capacity="vital"),
        hear=doorbell.ring,
        forget=access.forget,
    )


async def _close_room(closing: trio.Event, room: WaitingRoom) -> None:
    await closing.wait()
    room.close()


def _greet(listening: Listening, directory: Path, embedded: bool, config_file: Path | None) -> None:  # noqa: FBT001
    """Writes the address down for the operator's commands, and says what to do next."""
    state_dir.write_address(directory, listening.url)
    store = "an embedded PostgreSQL, its data below the state directory" if embedded else "the configured PostgreSQL"
    again = f"{sys.executable} {sys.argv[0]}"
    named = f" --config {config_file}" if config_file is not None else ""
    greeting = (
        f"switchboard {VERSION} is open.\n\n"
        f"  address          {listening.url}\n"
        f"  state directory  {directory}\n"
        f"  database         {store}\n\n"
        f"  next, in another terminal: vend an endpoint, and keep the credential that it prints\n"
        f"      {again} endpoint vend NAME{named}\n\n"
        f"  Ctrl-C ends the house; nothing that was acknowledged is lost."
    )
    # A full disk or a closed pipe behind standard output is no reason not to open.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        _say(greeting)


def _first(group: BaseExceptionGroup[StartError]) -> StartError:
    (error, *_) = group.exceptions
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _say(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return DONE


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(arguments))

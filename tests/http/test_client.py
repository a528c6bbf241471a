"""The agents' client against a real house, on Trio and on asyncio; where the line must be bad, through a relay that is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from switchboard import client as client_module
from switchboard import errors
from switchboard.answers import claimed, refusal
from switchboard.client import Client, LeaseLost, NotAHouse, Todo, Unreachable
from switchboard.held import FINISH_SECONDS_MIN
from switchboard.pauses import PAUSE_SECONDS_MAX, Pauses, passes
from tests.houses import Agent, House
from tests.http.relay import Relay, relay_to

Run = Callable[[Callable[[], Awaitable[None]]], None]
NOBODY = "http://127.0.0.1:1"
BEATS = 5
"""A third of a lease apart, two of them in vain: the last one comes well after the first lease would have been over."""


@pytest.fixture(params=["trio", "asyncio"])
def go(request: pytest.FixtureRequest) -> Run:
    """Runs an async function under one of the two."""
    backend: str = request.param
    return lambda main: anyio.run(main, backend=backend)


@pytest.fixture(scope="module")
def agent(house: House) -> Agent:
    """One endpoint for all tests; each uses a queue of its own."""
    return house.vend()


@pytest.fixture
def relay(house: House) -> Iterator[Relay]:
    """A line to the house that can be bad."""
    with relay_to(house.url) as relay:
        yield relay


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    return f"{request.node.name}-{time.monotonic_ns()}"


async def claim_one(client: Client, queue: str, **fields: Any) -> Todo:
    """Claims one todo, which is there."""
    (todo,) = await client.claim(queue=queue, **fields)
    return todo


async def until(event: Callable[[], object]) -> None:
    """Waits in a thread for what is waited for in threads."""
    await anyio.to_thread.run_sync(event)


def test_claims_and_completes_what_json_can_say(go: Run, house: House, agent: Agent, queue: str) -> None:
    """A todo's fields and payload are there; the result is what was given, and a `msgspec.Raw` is kept to the letter."""
    made = [agent.push(queue, title="Look", payload={"n": n}) for n in range(3)]

    async def main() -> None:
        async with Client(house.url + "/", agent.credential) as client:
            me = await client.whoami()
            assert (me.endpoint, me.queues, me.defaults.payload_bytes) == (agent.name, None, 1_048_576)
            todos = await client.claim(queues=[queue], owner="ada", lease_seconds=60, max=5)
            assert [(todo.id, todo.payload, todo.title, todo.owner, todo.attempt) for todo in todos] == [
                (one["id"], {"n": n}, "Look", "ada", 1) for n, one in enumerate(made)
            ]
            assert [todo.lease_seconds for todo in todos] == pytest.approx([60] * 3, abs=0.5)
            async with client.work_on(todos[0]) as work:
                await work.complete({"ü": [1, None]})
            assert work.ending is not None
            assert work.ending.status == "done"
            async with client.work_on(todos[1]) as work:
                await work.complete(msgspec.Raw(b'{"a": 1e999,  "a": 123456789012345678901234567890.10}'))
            async with client.work_on(todos[2]):
                pass
            assert await client.claim(queue=queue) == []

    go(main)
    assert [agent.get(todo)["status"] for todo in made] == ["done"] * 3
    assert [agent.get(todo)["result"] for todo in (made[0], made[2])] == [{"ü": [1, None]}, None]
    assert '"a": 1e999,  "a": 123456789012345678901234567890.10' in agent.http.get(f"/v1/todos/{made[1]['id']}").text


def test_waiting_claim_hears_at_once(go: Run, house: House, agent: Agent, queue: str) -> None:
    """A claim that waits longer than any answer may take is answered as soon as there is work."""
    pushing = threading.Timer(0.5, agent.push, [queue])  # nothing outside tells that a claim has sat down to wait

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            pushing.start()
            todo = await claim_one(client, queue, wait_seconds=60)
            assert todo.queue == queue

    began = time.monotonic()
    go(main)
    pushing.join()
    assert time.monotonic() - began < 20


def test_lease_is_kept_far_beyond_its_length(go: Run, relay: Relay, agent: Agent, queue: str) -> None:
    """Heartbeats every third of the lease; two that fail on the way do no harm, and the todo stays at its first attempt."""
    made = agent.push(queue)
    relay.faults["heartbeat"] = ["lose", "unavailable"]

    async def main() -> None:
        async with Client(relay.url, agent.credential) as client:
            todo = await claim_one(client, queue, lease_seconds=3)
            async with client.work_on(todo):
                await until(lambda: relay.wait_for("heartbeat", BEATS))

    go(main)
    assert [(one["outcome"], one["attempt"]) for one in agent.get(made)["attempts"]] == [("completed", 1)]


def test_lost_lease_cancels_the_body(go: Run, house: House, agent: Agent, queue: str) -> None:
    """An operator takes the todo away: the body is cancelled at the next heartbeat, and nothing is finished."""
    made = agent.push(queue)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            todo = await claim_one(client, queue, lease_seconds=1)
            assert house.operator().post(f"/operator/v1/todos/{todo.id}/release").status_code == 200
            with pytest.raises(LeaseLost, match=made["id"]) as lost:
                async with client.work_on(todo):
                    await anyio.sleep_forever()
            assert isinstance(lost.value.__cause__, errors.Conflict)

    go(main)
    assert agent.get(made)["status"] == "pending"


def test_lease_is_lost_when_no_heartbeat_is_heard_until_its_end(go: Run, relay: Relay, agent: Agent, queue: str) -> None:
    """A line that is cut: tried again until the lease would be over, and no longer."""
    made = agent.push(queue)
    relay.broken.add("heartbeat")

    async def main() -> None:
        async with Client(relay.url, agent.credential) as client:
            todo = await claim_one(client, queue, lease_seconds=1)
            began = anyio.current_time()
            with pytest.raises(LeaseLost):
                async with client.work_on(todo):
                    await anyio.sleep_forever()
            assert 0.9 < anyio.current_time() - began < 10

    go(main)
    assert relay.passed.count("heartbeat") > 1
    assert "complete" not in relay.passed
    assert agent.get(made)["attempt"] == 1


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_finish_whose_answer_is_lost_is_repeated(go: Run, relay: Relay, agent: Agent, queue: str, verb: str) -> None:
    """A second try says `already`, which is success; a 503 is repeated no sooner than its Retry-After says."""
    made = agent.push(queue)
    relay.faults[verb] = ["unavailable", "lose"]

    async def main() -> None:
        async with Client(relay.url, agent.credential) as client:
            async with client.work_on(await claim_one(client, queue)) as work:
                began = anyio.current_time()
                await getattr(work, verb)()
                assert anyio.current_time() - began >= 1
            assert work.finished
            assert work.ending is None
            with pytest.raises(RuntimeError, match="finished already"):
                await work.release()

    go(main)
    assert relay.passed.count(verb) == 3
    assert agent.get(made)["status"] == {"complete": "done", "fail": "retrying", "release": "pending"}[verb]


def test_finish_that_nobody_hears_is_given_up(
    go: Run, relay: Relay, agent: Agent, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded: after the lease and its least patience the error is raised, and no finish of another kind follows."""
    agent.push(queue)
    relay.broken.add("complete")
    assert FINISH_SECONDS_MIN >= 10
    monkeypatch.setattr("switchboard.held.FINISH_SECONDS_MIN", 0.5)

    async def main() -> None:
        async with Client(relay.url, agent.credential) as client:
            with pytest.raises(Unreachable):
                async with client.work_on(await claim_one(client, queue, lease_seconds=1)) as work:
                    await work.complete()
            assert work.finished

    go(main)
    assert relay.passed.count("complete") > 1
    assert "fail" not in relay.passed


def test_body_that_raises_fails_the_todo(go: Run, house: House, agent: Agent, queue: str) -> None:
    """The exception goes on as it is; the todo's error says its type and words, storable and without a credential."""
    made = agent.push(queue)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            with pytest.raises(ValueError, match="no good") as raised:
                async with client.work_on(await claim_one(client, queue)):
                    raise ValueError(f"no good: \0 \ud800 {agent.credential}")
            assert not hasattr(raised.value, "__notes__")

    go(main)
    todo = agent.get(made)
    assert (todo["status"], todo["error"]) == ("retrying", "ValueError: no good: \ufffd ? sbk_***")


def test_result_that_the_house_refuses_leaves_the_todo_to_be_failed(go: Run, house: House, agent: Agent, queue: str) -> None:
    """Too large is told as such, with the field, and the todo is still held."""
    made = agent.push(queue)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client, client.work_on(await claim_one(client, queue)) as work:
            with pytest.raises(errors.TooLarge, match="the limit is 1048576") as refused:
                await work.complete("x" * 1_048_577)
            assert (refused.value.field, refused.value.status, refused.value.code) == ("result", 413, "too_large")
            with pytest.raises(ValueError, match="JSON"):
                await work.complete(float("nan"))
            await work.fail("too much")

    go(main)
    assert agent.get(made)["error"] == "too much"


def test_cancelled_body_releases_the_todo(go: Run, house: House, agent: Agent, queue: str) -> None:
    """Cancelled from outside: given back at once, the attempt kept, and the cancellation goes on."""
    made = agent.push(queue)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            with anyio.CancelScope() as scope:
                async with client.work_on(await claim_one(client, queue)) as work:
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
            assert work.ending is not None
            assert work.ending.status == "pending"

    go(main)
    assert [one["outcome"] for one in agent.get(made)["attempts"]] == ["released"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_interrupted_body_releases_the_todo(
    go: Run, house: House, agent: Agent, queue: str, interruption: type[BaseException]
) -> None:
    """Ctrl-C is no failure of the todo."""
    made = agent.push(queue)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            with pytest.raises(interruption):
                async with client.work_on(await claim_one(client, queue)):
                    raise interruption

    go(main)
    assert agent.get(made)["status"] == "pending"


def test_asyncio_timeout_releases_the_todo(house: House, agent: Agent, queue: str) -> None:
    """asyncio's own cancellation, which knows nothing of AnyIO, is one too."""
    made = agent.push(queue)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            todo = await claim_one(client, queue)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), client.work_on(todo):
                    await asyncio.sleep(60)

    asyncio.run(main())
    assert agent.get(made)["status"] == "pending"


def test_claim_whose_answer_is_lost_is_asked_again(go: Run, relay: Relay, agent: Agent, queue: str) -> None:
    """What the first answer held comes back by its lease, and the same call hands it over."""
    made = agent.push(queue)
    relay.faults["claims"] = ["lose", "unavailable", "refuse"]

    async def main() -> None:
        async with Client(relay.url, agent.credential) as client:
            todo = await claim_one(client, queue, lease_seconds=1, wait_seconds=30)
            assert (todo.id, todo.attempt) == (made["id"], 2)
            async with client.work_on(todo):
                pass

    go(main)


def test_claim_cancelled_while_its_answer_comes_in_holds_nothing(go: Run, relay: Relay, agent: Agent, queue: str) -> None:
    """The house has handed the todo over, the caller has gone: the client gives it back."""
    made = agent.push(queue)
    relay.faults["claims"] = ["halt"]

    async def main() -> None:
        async with Client(relay.url, agent.credential) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(claim_one, client, queue)
            await until(lambda: relay.halted.wait(30))
            tasks.cancel_scope.cancel()
            relay.may_go_on.set()

    go(main)
    assert agent.get(made)["status"] == "pending"
    assert relay.passed == ["claims", "release"]


def test_refusals_are_the_errors_that_they_are(go: Run, house: House, queue: str) -> None:
    """Code, status, title, detail and field; no credential in any of them, nor in a repr."""
    agent = house.vend(queues=["theirs"])
    wrong = "sbk_" + "w" * 43

    async def main() -> None:
        async with Client(house.url, wrong) as client:
            with pytest.raises(errors.Unauthorized) as refused:
                await client.whoami()
            assert (refused.value.code, refused.value.status, refused.value.title) == ("unauthorized", 401, "Unauthorized")
            assert wrong not in repr(refused.value) + str(refused.value) + repr(client)
        async with Client(house.url, agent.credential) as client:
            with pytest.raises(errors.Forbidden):
                await client.claim(queue=queue)
            with pytest.raises(errors.Invalid) as invalid:
                await client.claim(queue="theirs", lease_seconds=0)
            assert (invalid.value.field, invalid.value.status) == ("lease_seconds", 422)
            with pytest.raises(errors.Invalid):
                await client.claim(queue="theirs", wait_seconds=61)
            agent.push("theirs")
            held = await claim_one(client, "theirs")
            assert str(held.lease_token) not in repr(held)
            with pytest.raises(ValueError, match="not held"):
                async with client.work_on(msgspec.structs.replace(held, lease_token=None)):
                    pass

    go(main)


def test_nobody_there(go: Run, house: House, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that refuses is Unreachable once the patience is over, and whoever wants to hear of it does."""
    monkeypatch.setattr(client_module, "REPEAT_SECONDS", 0.5)
    heard: list[object] = []

    async def main() -> None:
        async with Client(NOBODY, agent.credential, heard=heard.append) as client:
            for ask in (client.whoami, client.claim):
                with pytest.raises(Unreachable, match="No connection"):
                    await ask()
        assert len(heard) > 2
        assert {type(error) for error in heard} == {Unreachable}

    go(main)


def test_no_proxy_is_asked_on_loopback(go: Run, house: House, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxies are for the way out of this machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, NOBODY)

    async def main() -> None:
        async with Client(house.url, agent.credential) as client:
            assert (await client.whoami()).endpoint == agent.name

    go(main)


@pytest.mark.parametrize(
    ("url", "credential"),
    [
        ("http://user:hunter2@127.0.0.1:1", "sbk_x"),
        ("hunter2", "sbk_x"),
        ("ftp://127.0.0.1/hunter2", "sbk_x"),
        ("http://[hunter2", "sbk_x"),
        (NOBODY, "hunter2\n"),
        (NOBODY, ""),
    ],
)
def test_what_cannot_be_is_refused_and_not_repeated(url: str, credential: str) -> None:
    """Nothing is sent, and no part of a secret is in the message."""
    with pytest.raises(ValueError, match=r"looks like http|must be 1 to 512") as refused:
        Client(url, credential)
    assert "hunter2" not in str(refused.value)


def test_pauses_double_within_bounds_and_honour_the_house() -> None:
    """From a tenth of a second to five, jittered; a Retry-After is the least, and more than a minute is not waited for."""
    pauses = Pauses()
    waited = [pauses.after() for _ in range(12)]
    assert waited[0] <= 0.1
    assert waited[-1] <= PAUSE_SECONDS_MAX
    assert waited[-1] >= PAUSE_SECONDS_MAX / 2
    assert Pauses().after(errors.Unavailable(detail="", retry_after_seconds=7)) == 7
    assert Pauses().after(errors.RateLimited(detail="", retry_after_seconds=3_600)) == 60


def test_answers_of_strangers() -> None:
    """Something in front of the house may be without it for a while; anything else that speaks otherwise is no house."""
    away = refusal(502, b"<html>", "")
    assert isinstance(away, errors.Unavailable)
    assert passes(away)
    assert isinstance(refusal(302, b"", "5"), NotAHouse)
    assert isinstance(refusal(404, b'{"detail": "whatever"}', ""), NotAHouse)
    asked_later = refusal(503, b'{"code": "unavailable"}', "7")
    assert isinstance(asked_later, errors.Unavailable)
    assert asked_later.retry_after_seconds == 7
    with pytest.raises(NotAHouse):
        claimed(b'{"todos": [{"id": 1}]}', heard_at=0)

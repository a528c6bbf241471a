"""`run.py work` as its user runs it: a process, a real command, a real house, and whatever may be killed in between."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pytest

from switchboard.cli import child
from tests.houses import RUN, Agent, House, Opener, run, wait_until

RUNS = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import json, os, sys; os.execvp('sh', ['sh', '-c', json.load(sys.stdin)['payload']])",
)
"""A command that runs the shell script which is its todo's payload: one worker for many cases."""
SECONDS = 30.0
"""Patience for what another process does, on a machine that has other things to do."""
MARK_SECRET = "sbk_hunter2marker"
HOLDS = "echo $$ > {file}.new; mv {file}.new {file}; sleep 600 & wait"
"""A command that says which process it is, and then works on, with a process of its own, until it is ended."""


@attrs.define(kw_only=True)
class Worker:
    """A running `work`."""

    process: subprocess.Popen[bytes]
    errors: Path

    def said(self) -> str:
        """What it has written to standard error so far."""
        return self.errors.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers for an agent; all of them are gone at the end."""
    workers: list[Worker] = []

    def start(agent: Agent, queue: str, *words: str, options: tuple[str, ...] = (), url: str | None = None) -> Worker:
        errors = tmp_path / f"stderr-{len(workers)}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHBOARD_")}
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", str(RUN), "work", "--queue", queue, *options, "--", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=kept | {"SWITCHBOARD_CREDENTIAL": agent.credential, "SWITCHBOARD_URL": url or str(agent.http.base_url)},
            )
        workers.append(Worker(process=process, errors=errors))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


@pytest.fixture(scope="module")
def agent(house: House) -> Agent:
    """One endpoint for all tests that share the house; each uses a queue of its own."""
    return house.vend()


@pytest.fixture
def queue() -> str:
    """A queue of this test's own."""
    return f"q-{uuid4().hex[:12]}"


def ended(agent: Agent, todo: dict[str, Any]) -> dict[str, Any]:
    """The todo, once it is neither pending nor claimed."""
    wait_until(lambda: agent.get(todo)["status"] in {"done", "retrying", "dead"}, seconds=SECONDS, what="the end of the todo")
    return agent.get(todo)


def pid_in(file: Path) -> int:
    """The number that a command writes into a file when it has begun."""
    wait_until(file.exists, seconds=SECONDS, what="the command")
    return int(file.read_text())


def alive_in_group(group: int) -> bool:
    """Whether anything of a process group still runs; one that only waits to be reaped does not."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(its_group) == group and state not in "ZX":
                    return True
    return False


def gone(group: int) -> None:
    """Waits until nothing of this process group runs."""
    wait_until(lambda: not alive_in_group(group), seconds=SECONDS, what="the end of the command")


def free_port() -> int:
    """A port that a house may use again and again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_todo_comes_in_as_json_to_the_letter(agent: Agent, queue: str, start: Start) -> None:
    """`cat` gives the todo back: numbers, repeated names and all are kept, and JSON on standard output is the result."""
    payload = '{"z": 123456789012345678901234567890.10, "z": [1], "ü": "é"}'
    text = json.dumps({"queue": queue, "title": "ü"})[:-1] + f', "payload": {payload}}}'
    made = agent.http.post("/v1/todos", content=text.encode(), headers={"Content-Type": "application/json"}).json()["todo"]
    worker = start(agent, queue, "cat")
    result = ended(agent, made)["result"]
    assert (result["id"], result["title"], result["status"], result["attempt"]) == (made["id"], "ü", "claimed", 1)
    assert payload in agent.http.get(f"/v1/todos/{made['id']}").text.split('"result"', 1)[1]
    assert worker.stop() == 0
    assert worker.said() == ""


def test_output_is_the_result(agent: Agent, queue: str, start: Start) -> None:
    """JSON that can be kept is the value that it is, anything else the text that it is; too much of it fails the todo."""
    worker = start(agent, queue, *RUNS)
    scripts: dict[str, object] = {
        "echo hello": "hello\n",
        "true": "",
        "echo '[1] 2'": "[1] 2\n",
        "echo ' {\"a\": [null]} '": {"a": [None]},
        "printf '\\000\\377'": "\ufffd\ufffd",
        "echo NaN": "NaN\n",
        "printf '\"%s\"' '\\u0000'": '"\\u0000"',
        "echo quiet >&2": "",
        "yes | head -c 600000": "y\n" * 300_000,
    }
    todos = {script: agent.push(queue, payload=script) for script in scripts}
    assert {script: ended(agent, todo)["result"] for script, todo in todos.items()} == scripts
    too_large = [
        agent.push(queue, payload=script) for script in ("yes | head -c 2000000", "yes '\"' | tr -d '\\n' | head -c 600000")
    ]
    assert [ended(agent, todo)["error"] for todo in too_large] == [
        f"The command's output is too large to be the result: {size} bytes, and the house takes 1048576 as JSON."
        for size in (2_000_000, 600_000)
    ]
    assert worker.stop() == 0


def test_waiting_worker_hears_at_once_and_ends_at_once(agent: Agent, queue: str, start: Start) -> None:
    """A worker that was there before the work; Ctrl-C ends one that waits, also while it waits."""
    worker = start(agent, queue, "true", options=("--owner", "ada"))
    first = ended(agent, agent.push(queue))
    assert first["attempts"][0]["owner"] == "ada"
    assert ended(agent, agent.push(queue))["status"] == "done"
    assert worker.stop(signal.SIGINT) == 0
    assert worker.said() == ""


def test_whatever_is_not_exit_0_fails_the_todo(agent: Agent, queue: str, start: Start) -> None:
    """The end of standard error is the todo's error, bounded and storable; without any, how the command ended."""
    worker = start(agent, queue, *RUNS)
    scripts = {
        "echo said; echo first >&2; echo boom >&2; exit 3": "first\nboom",
        "exit 4": "The command ended with exit code 4.",
        "yes x 2>/dev/null | head -c 100000 >&2; printf 'é\\377\\000end' >&2; exit 1": "x\n" * 2045 + "é\ufffd\ufffdend",
        f"echo {MARK_SECRET} >&2; exit 1": "sbk_***",
        "echo last words >&2; kill -9 $$": "last words\nThe command was ended by SIGKILL.",
        "kill -TERM $$": "The command was ended by SIGTERM.",
    }
    todos = {script: agent.push(queue, payload=script) for script in scripts}
    assert {script: ended(agent, todo)["error"] for script, todo in todos.items()} == scripts
    assert {agent.get(todo)["status"] for todo in todos.values()} == {"retrying"}
    assert worker.stop() == 0


def test_command_that_is_not_there_fails_the_todo(agent: Agent, queue: str, start: Start) -> None:
    """Not found, and not to be executed: told by name, and the worker goes on."""
    worker = start(agent, queue, "/nowhere/no-such-command")
    error = "The command '/nowhere/no-such-command' cannot be started: No such file or directory."
    assert ended(agent, agent.push(queue))["error"] == error
    assert ended(agent, agent.push(queue))["error"] == error
    assert worker.stop() == 0


def test_long_command_keeps_its_lease_and_lost_lease_ends_it(
    open_house: Opener, tmp_path: Path, queue: str, start: Start
) -> None:
    """Beyond three leases nobody else gets the todo; then an operator takes it away, and the command is ended for it."""
    house = open_house(settings={"queue": {"reap_interval_seconds": 0.2}})
    agent = house.vend()
    todo = agent.push(queue)
    script = HOLDS.format(file=tmp_path / "pid")
    worker = start(agent, queue, "sh", "-c", script, options=("--lease-seconds", "2"))
    pid = pid_in(tmp_path / "pid")
    first = agent.get(todo)["lease_expires_at"]
    beats = set()

    def kept_long_enough() -> bool:
        now = agent.get(todo)
        assert (now["status"], now["attempt"]) == ("claimed", 1)
        beats.add(now["lease_expires_at"])
        return len(beats) > 6

    wait_until(kept_long_enough, seconds=SECONDS, what="heartbeats")
    assert max(beats) > first
    assert alive_in_group(pid)
    assert house.operator().post(f"/operator/v1/todos/{todo['id']}/release").status_code == 200
    gone(pid)
    wait_until(lambda: f"The lease of todo {todo['id']} is lost" in worker.said(), seconds=SECONDS, what="the line")
    assert worker.stop() == 0


def test_sigterm_ends_the_command_and_gives_the_todo_back(agent: Agent, tmp_path: Path, queue: str, start: Start) -> None:
    """With all that the command has started; exit 0, the todo pending, the attempt kept. At the cap it is dead, and told."""
    todo = agent.push(queue, max_attempts=2)
    for attempt, status in ((1, "pending"), (2, "dead")):
        file = tmp_path / f"pid-{attempt}"
        worker = start(agent, queue, "sh", "-c", HOLDS.format(file=file))
        pid = pid_in(file)
        assert worker.stop() == 0
        assert not alive_in_group(pid)
        now = agent.get(todo)
        assert (now["status"], now["attempt"], now["attempts"][-1]["outcome"]) == (status, attempt, "released")
    retry = f"`run.py todo retry {todo['id']}` queues it again."
    assert worker.said() == f"Todo {todo['id']} was released at its last attempt, and is dead now: {retry}\n"


def test_command_that_minds_no_sigterm_is_killed(agent: Agent, tmp_path: Path, queue: str, start: Start) -> None:
    """Within the grace, whatever it does; a second signal does not cut that short."""
    todo = agent.push(queue)
    worker = start(
        agent, queue, "sh", "-c", "trap : TERM; " + HOLDS.format(file=tmp_path / "pid") + "; while :; do sleep 1; done"
    )
    pid = pid_in(tmp_path / "pid")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.stop() == 0
    assert child.GRACE_SECONDS < 10 < SECONDS
    assert not alive_in_group(pid)
    assert agent.get(todo)["status"] == "pending"


def test_killed_command_fails_the_todo(agent: Agent, tmp_path: Path, queue: str, start: Start) -> None:
    """kill -9 of the command from outside; what it had started goes with it."""
    todo = agent.push(queue)
    worker = start(agent, queue, "sh", "-c", HOLDS.format(file=tmp_path / "pid"))
    pid = pid_in(tmp_path / "pid")
    os.kill(pid, signal.SIGKILL)
    assert ended(agent, todo)["error"] == "The command was ended by SIGKILL."
    gone(pid)
    assert worker.stop() == 0


def test_killed_worker_returns_the_todo_by_lease_and_its_command_dies(
    open_house: Opener, tmp_path: Path, queue: str, start: Start
) -> None:
    """kill -9 of the worker: the command dies with it, children and all, and the next worker gets the todo."""
    agent = open_house(settings={"queue": {"reap_interval_seconds": 0.2}}).vend()
    todo = agent.push(queue)
    worker = start(agent, queue, "sh", "-c", HOLDS.format(file=tmp_path / "pid"), options=("--lease-seconds", "1"))
    pid = pid_in(tmp_path / "pid")
    worker.process.kill()
    worker.process.wait()
    gone(pid)
    wait_until(lambda: agent.get(todo)["status"] == "pending", seconds=SECONDS, what="the end of the lease")
    start(agent, queue, "true")
    assert [one["outcome"] for one in ended(agent, todo)["attempts"]] == ["expired", "completed"]


def test_house_that_is_away_is_waited_for(open_house: Opener, tmp_path: Path, queue: str, start: Start) -> None:
    """Away at the start, and killed while a command runs: one line each time it goes and comes, and the result arrives."""
    port = free_port()
    house = open_house(settings={"server": {"port": port}})
    agent, url = house.vend(), house.url
    todo = agent.push(queue)
    house.kill()
    may_end = tmp_path / "may-end"
    script = f"touch {tmp_path}/begun; while ! [ -e {may_end} ]; do sleep 0.05; done; echo 1"
    worker = start(agent, queue, "sh", "-c", script, url=url)
    away = f"The house at {url} (from SWITCHBOARD_URL) is away, and is tried again until it is back. No connection.\n"
    back = f"The house at {url} is back.\n"
    wait_until(lambda: worker.said() == away, seconds=SECONDS, what="the first line")
    house = open_house.again(house)
    wait_until((tmp_path / "begun").exists, seconds=SECONDS, what="the command")
    assert worker.said() == away + back
    house.kill()
    may_end.touch()
    wait_until(lambda: worker.said() == away + back + away, seconds=SECONDS, what="the third line")
    house = open_house.again(house)
    client = house.client(agent.credential)
    wait_until(lambda: client.get(f"/v1/todos/{todo['id']}").json()["todo"]["result"] == 1, seconds=SECONDS, what="the result")
    wait_until(lambda: worker.said() == away + back + away + back, seconds=SECONDS, what="the fourth line")
    assert worker.stop() == 0


def test_refusals_end_the_worker_with_one_line(house: House, queue: str) -> None:
    """A wrong credential and a queue out of scope are exit 1, bad usage is exit 2; the credential is never repeated."""
    limited = house.vend(queues=["theirs"])
    words = ("work", "--queue", queue, "--config", str(house.config), "--", "true")
    for credential, code, line in (
        (MARK_SECRET, 1, f"Unauthorized: the house at {house.url} does not take the credential from SWITCHBOARD_CREDENTIAL."),
        (limited.credential, 1, "Forbidden: "),
        ("", 2, "There is no credential: "),
        ("hunter2 marker", 2, "The credential from SWITCHBOARD_CREDENTIAL must be "),
    ):
        done = run(*words, environ={"SWITCHBOARD_CREDENTIAL": credential})
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(line)
        assert done.stderr.count("\n") == 1
        assert "hunter2" not in done.stderr
        assert limited.credential not in done.stderr
    for wrong in (
        ("work", "--", "true"),
        ("work", "--queue", "q"),
        ("work", "--queue", "q", "--lease-seconds", "0", "--", "x"),
    ):
        done = run(*wrong, environ={"SWITCHBOARD_CREDENTIAL": MARK_SECRET})
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_worker_whose_guard_was_killed_gets_a_new_one(agent: Agent, tmp_path: Path, queue: str, start: Start) -> None:
    """Whatever happens to the process that watches: the next command is watched again, and dies with the worker."""
    worker = start(agent, queue, "sh", "-c", HOLDS.format(file=tmp_path / "pid"))
    agent.push(queue)
    pid = pid_in(tmp_path / "pid")
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children")
    (guard,) = [int(child) for child in children.read_text().split() if int(child) != pid]
    os.kill(guard, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    (tmp_path / "pid").unlink()
    agent.push(queue)
    pid = pid_in(tmp_path / "pid")
    worker.process.kill()
    worker.process.wait()
    gone(pid)

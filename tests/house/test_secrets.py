"""C59, R28: faults of every kind in a house whose every secret is a marker; then everything it said is looked through."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from psycopg.conninfo import make_conninfo

from tests.house import facts
from tests.house.postmasters import OwnServer, own_server
from tests.houses import RUN, House, Opener, run, toml, wait_until

MARK = "Zx9Marker"
"""In every secret of this module; nothing else contains it."""


def secret() -> str:
    """A secret that can be told from all others, and from everything that is none."""
    return f"{MARK}{uuid4().hex}"


@pytest.fixture(scope="module")
def scram(open_directory: Path) -> Iterator[OwnServer]:
    """A server that does ask for passwords, whatever the suite runs on."""
    with own_server(open_directory) as server:
        yield server


def require_no_mark(**told: str) -> None:
    """None of these texts holds a marker."""
    for where, text in told.items():
        assert MARK not in text, f"{where}: …{text[max(0, text.index(MARK) - 200) : text.index(MARK) + 60]}…"


def words_of(pid: int) -> str:
    """A process's command line, and those of its threads' names: what `ps` shows to everybody."""
    texts = [(Path("/proc") / str(pid) / "cmdline").read_bytes()]
    texts += [file.read_bytes() for file in Path(f"/proc/{pid}/task").glob("*/comm")]
    return b" ".join(texts).decode(errors="replace")


def files_of(directory: Path, *, but: tuple[str, ...] = ()) -> str:
    """All that lies in a directory, less what is there to hold a secret."""
    return "\n".join(
        file.read_bytes().decode(errors="replace")
        for file in directory.rglob("*")
        if file.is_file() and file.name not in but and "postgres-" not in str(file.parent)
    )


@pytest.mark.parametrize(
    ("url", "command", "code"),
    [
        ("postgresql://switchboard:{secret}@localhost/switchboard?host={socket_dir}&port=5432", "serve", 1),  # wrong password
        ("host={socket_dir} port=5432 user=switchboard password={secret} dbname=none", "migrate", 1),  # and wrong database
        ("postgresql://someone:{secret}@127.0.0.1:5432:5432/none", "serve", 2),  # bad DSN
        ("postgresql://someone:{secret}/@127.0.0.1/none", "check", 2),  # bad DSN, the password not encoded
        ("host=127.0.0.1 password={secret} nonsense", "check", 2),
        ("{secret}", "serve", 2),
    ],
)
def test_c59_start_that_fails_tells_no_secret(
    scram: OwnServer, open_directory: Path, url: str, command: str, code: int
) -> None:
    """C59: a wrong password, a bad DSN: the start fails with its line, and the line holds no part of the secret."""
    directory = open_directory / f"secret-{uuid4().hex[:8]}"
    directory.mkdir()
    (socket_dir,) = scram.state_dir.glob("postgres-*/socket")
    written = url.format(secret=secret(), socket_dir=socket_dir)
    config = directory / "switchboard.toml"
    tables: dict[str, dict[str, Any]] = {
        "server": {"port": 0, "state_dir": str(directory / "state")},
        "database": {"url": written},
    }
    config.write_text(toml(tables))
    ended = run(command, "--config", str(config))
    assert ended.returncode == code, ended.stderr
    require_no_mark(stdout=ended.stdout, stderr=ended.stderr)
    assert "Traceback" not in ended.stderr


def test_c59_database_that_is_away_at_the_start(open_directory: Path) -> None:
    """C59: while the house tries a database that is not there, neither its words nor the process list tell the password,
    given in the environment or in a file.
    """
    directory = open_directory / f"secret-{uuid4().hex[:8]}"
    directory.mkdir()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(30)
        url = f"postgresql://someone:{secret()}@127.0.0.1:{silent.getsockname()[1]}/none"
        token = directory / "token"
        token.write_text(secret())
        config = directory / "switchboard.toml"
        config.write_text(
            f'[server]\nport = 0\nstate_dir = "{directory}/state"\nshutdown_grace_seconds = 2\n'
            f'operator_token = {{ file = "{token}" }}\n[database]\nurl = {{ env = "THE_DATABASE" }}\n'
        )
        words = [sys.executable, str(RUN), "serve", "--config", str(config)]
        environ = os.environ | {"THE_DATABASE": url}
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
            line, _ = silent.accept()
            with line:
                shown = words_of(process.pid)
                asked = line.recv(4_096).decode(errors="replace")
                process.terminate()
                said, logged = process.communicate(timeout=20)
    assert process.returncode == 0
    require_no_mark(ps=shown, asked=asked, stdout=said, stderr=logged, files=files_of(directory / "state"))


class Told(list[str]):
    """Every answer of the house: status line, headers and body."""

    def ask(self, http: httpx.Client, method: str, path: str, **more: object) -> httpx.Response:
        reply = http.request(method, path, **more)  # type: ignore[arg-type]  # httpx's own keywords
        self.append(f"{reply.status_code} {reply.headers} {reply.text}")
        return reply


def test_c59_running_house_with_every_fault_tells_no_secret(open_house: Opener, scram: OwnServer) -> None:
    """C59, R28: near misses of token paths, wrong and foreign credentials, a database that loses its tables and then goes
    away, a crash of the interpreter with faulthandler on: standard output and error, every HTTP answer, the process list,
    pg_stat_activity and the state directory hold no secret, though each was in use.
    """
    password, operator_token = secret(), "sbo_" + secret()
    database = scram.database()
    facts.ask(database, f"create role marked login superuser password '{password}'")
    house = open_house(
        database=make_conninfo(database, user="marked", password=password),
        settings={"server": {"operator_token": operator_token}},
        environ={"PYTHONFAULTHANDLER": "1"},
    )
    told = Told()
    operator = house.client(operator_token)
    vended = told.ask(operator, "POST", "/operator/v1/endpoints", json={"name": "one"}).json()
    told.clear()  # the one answer that is there to tell a secret
    credential = vended["credential"]
    agent = house.client(credential)
    told.ask(agent, "POST", "/v1/todos", json={"queue": "work", "idempotency_key": "k"})

    for token in (secret(), "whsec_" + secret(), "sbk_" + secret(), credential, operator_token):
        for path in (f"/hooks/{token}", f"/hook/{token}", f"//hooks//{token}", f"/hooks/{token}/x", f"/v1/hooks%2F{token}"):
            told.ask(house.client(), "POST", path, json={})
        told.ask(house.client(token), "GET", "/v1/todos")
        told.ask(house.client(token), "GET", "/operator/v1/todos")
        told.ask(house.client(), "GET", f"/v1/todos?access_token={token}")
        told.ask(house.client(), "GET", "/v1/todos", headers={"Authorization": f"Basic {token}"})
        told.ask(agent, "POST", "/v1/todos", content=f'{{"queue": "{token}'.encode())
        told.ask(house.client(), "GET", "/readyz")
    for breaking, mending in (
        ("alter table todos rename to elsewhere", "alter table elsewhere rename to todos"),
        ("alter table endpoints rename to elsewhere", "alter table elsewhere rename to endpoints"),
        (f"alter role marked password '{secret()}'", "select 1"),
    ):
        facts.ask(database, breaking)
        terminate = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'switchboard%'"
        facts.ask(database, terminate)
        told.ask(agent, "POST", "/v1/todos", json={"queue": "work"})
        told.ask(operator, "GET", "/operator/v1/endpoints")
        wait_until(lambda: not house.ready(), what="/readyz 503")
        told.ask(house.client(), "GET", "/readyz")
        facts.ask(database, mending)
    facts.ask(database, f"alter role marked password '{password}'")
    wait_until(house.ready, what="/readyz 200")
    told.ask(agent, "POST", "/v1/claims", json={})

    seen = [str(row) for row in facts.ask(scram.conninfo, "select * from pg_stat_activity")]
    shown = words_of(house.process.pid)
    house.signal(signal.SIGABRT)  # faulthandler's dump: every thread's stack
    assert house.process.wait(20) == -signal.SIGABRT
    assert "most recent call first" in house.log()
    text = house.log()
    for where in (text, "\n".join(told), "\n".join(seen), shown):
        at = where.find(credential.removeprefix("sbk_"))
        assert at < 0, where[max(0, at - 300) : at]
    require_no_mark(
        stdout=house.said(),
        stderr=text,
        answers="\n".join(told),
        activity="\n".join(seen),
        ps=shown,
        files=files_of(house.directory / "state"),
    )


def test_c59_operators_commands_tell_no_secret(open_house: Opener) -> None:
    """C59: a wrong operator token on the command line's environment, an address that carries a password: refused, and not
    repeated; a vended credential is printed once, and a list of endpoints does not hold it.
    """
    house: House = open_house()
    vended = house.command("endpoint", "vend", "one")
    assert vended.returncode == 0
    credential = next(word for word in vended.stdout.split() if word.startswith("sbk_"))
    listed = house.command("endpoint", "list", "--json")
    assert credential not in listed.stdout + listed.stderr + house.log() + house.said()
    refused = run("endpoint", "list", "--config", str(house.config), environ={"SWITCHBOARD_TOKEN": secret()})
    assert refused.returncode != 0
    away = run("endpoint", "list", "--config", str(house.config), "--url", f"http://someone:{secret()}@127.0.0.1:1")
    assert away.returncode != 0
    require_no_mark(refused=refused.stdout + refused.stderr, away=away.stdout + away.stderr, log=house.log())

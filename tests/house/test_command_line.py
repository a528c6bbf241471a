"""The operator's commands as an operator runs them: `python run.py …` as a process, against a real house.

A process takes a second to start. So each command, and whatever depends on its being a process, is run as one (`did`);
what a test needs besides goes the same way within this process (`quickly`).
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from switchboard import VERSION
from switchboard.cli.arguments import parse
from switchboard.cli.operator_commands import run_operator_command
from switchboard.cli.output import moment
from tests.houses import RUN, House, Opener, run

NOBODY = "http://127.0.0.1:1"
"""A proxy that no request may go to: port 1 refuses."""
UNKNOWN_ID = "0198c0de-0000-7000-8000-000000000001"
# A number that a float or a decoder would change, keys out of order, one of them twice, blanks: all of it is kept.
ODD_PAYLOAD = '{"z": 123456789012345678901234567890.10, "a": [1,  {}],\n "z": "caf\\u00e9 ü"}'
TERMINAL_ATTACK = "\x1b[2J\x9b31m\u202e日本\nsecond line"


def did(house: House, *words: str, stdin: str | None = None) -> str:
    """Standard output of a command, run as a process, that succeeds without a word on standard error."""
    done = house.command(*words, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def quickly(house: House, *words: str, code: int = 0) -> str:
    """The same within this process: what it says on standard output, or the one line of a refusal."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert run_operator_command(parse([*words, "--config", str(house.config)]), {}) == code, err.getvalue()
    out.seek(0)
    said, complaint = out.read(), err.getvalue()
    assert complaint.count("\n") == (0 if code == 0 else 1), complaint
    assert not (said and complaint)
    return said or complaint


def refused(house: House, *words: str) -> str:
    """The one line of a command that the house refuses."""
    return quickly(house, *words, code=1)


def columns(table: str) -> list[list[str]]:
    """The cells of a table; two blanks or more part them."""
    return [re.split(r" {2,}", line) for line in table.splitlines()]


def claims_with(house: House, credential: str) -> int:
    """What the house says to a claim with this credential."""
    return house.client(credential).post("/v1/claims", json={}).status_code


def test_vend_prints_the_credential_once_and_a_curl_line_that_works(house: House) -> None:
    """What is printed is all that an agent needs; it is never shown again."""
    said = did(house, "endpoint", "vend", "printed")
    (credential,) = set(re.findall(r"sbk_[\w-]+", said))
    assert said.startswith("Endpoint printed is vended. Queues: all.\n")
    assert "shown only this once" in said
    (line,) = [line for line in said.splitlines() if "curl" in line]
    curl, silent, url, *options = shlex.split(line)
    assert (curl, silent, options[::2]) == ("curl", "-sS", ["-H", "-H", "-d"])
    headers = dict(header.split(": ") for header in (options[1], options[3]))
    assert httpx.post(url, headers=headers, content=options[5], trust_env=False).json() == {"todos": []}
    assert credential not in quickly(house, "endpoint", "list")
    assert "printed exists already" in refused(house, "endpoint", "vend", "printed")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-90, "1 min ago"), (-1, "1 s ago"), (0, "0 s ago"), (0.9, "0 s ago"), (1, "in 1 s"), (120, "in 2 min")],
)
def test_the_second_that_is_not_over_is_no_future(seconds: float, told: str) -> None:
    """What the house calls now is whole seconds, so what has just happened may lie a little after it."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert moment(now + timedelta(seconds=seconds), now) == told


def test_life_of_an_endpoint_in_json(house: House) -> None:
    """vend and rotate print exactly name, id and credential; a rotation ends the old credential, a revoke the new one."""
    vended = json.loads(did(house, "endpoint", "vend", "lifelong", "--queue", "a", "--queue", "b", "--json"))
    rotated = json.loads(did(house, "endpoint", "rotate", "lifelong", "--json"))
    assert list(vended) == list(rotated) == ["name", "id", "credential"]
    assert (vended["name"], vended["id"]) == (rotated["name"], rotated["id"])
    assert vended["name"] == "lifelong"
    assert claims_with(house, vended["credential"]) == 401
    assert claims_with(house, rotated["credential"]) == 200

    todo = json.loads(quickly(house, "todo", "push", "lifelong", "--queue", "a", "--json"))["todo"]
    assert did(house, "endpoint", "revoke", "lifelong") == (
        "Endpoint lifelong is revoked: its credential is refused, 1 open todo dead-lettered so far.\n"
    )
    assert claims_with(house, rotated["credential"]) == 401
    assert "endpoint revoked" in quickly(house, "todo", "show", todo["id"])
    assert refused(house, "endpoint", "revoke", "lifelong") == "Not found: There is no live endpoint named lifelong.\n"

    listed = json.loads(quickly(house, "endpoint", "list", "--json"))
    (endpoint,) = [endpoint for endpoint in listed["endpoints"] if endpoint["name"] == "lifelong"]
    assert (endpoint["id"], endpoint["queues"]) == (vended["id"], ["a", "b"])
    head, *rows = columns(did(house, "endpoint", "list"))
    assert head == ["NAME", "STATE", "VENDED", "QUEUES", "ID"]
    (row,) = [row for row in rows if row[0] == "lifelong"]
    assert re.fullmatch(r"revoked \d+ s ago", row[1])
    assert row[3:] == ["a, b", vended["id"]]


def test_payload_arrives_as_the_text_it_was(house: House) -> None:
    """From the command line, a file and standard input: big numbers, order, repeated keys and blanks survive (R22)."""
    agent = house.vend("verbatim")
    file = house.directory / "payload.json"
    file.write_text(f"\ufeff{ODD_PAYLOAD}\n", encoding="utf-8")
    push = ("todo", "push", "verbatim", "--queue", "q", "--payload")
    for word, stdin in ((ODD_PAYLOAD, None), (f"@{file}", None), ("-", ODD_PAYLOAD)):
        if stdin is None:
            quickly(house, *push, word)
        else:
            did(house, *push, word, stdin=stdin)
        assert ODD_PAYLOAD in agent.http.post("/v1/claims", json={}).text
    assert refused(house, *push, '"\\u0000"').startswith("Invalid request: ")


def test_push_says_what_became_of_it(house: House) -> None:
    """A key makes it one todo while that is open; the API's JSON with --json; an unknown endpoint is one line."""
    house.vend("keyed")
    push = ("todo", "push", "keyed", "--queue", "q", "--key", "k-1", "--title", "Look at this")
    first = did(house, *push)
    found = re.fullmatch(r"Todo ([0-9a-f-]{36}) waits in queue q of endpoint keyed\.\n", first)
    assert found is not None
    again = json.loads(quickly(house, *push, "--json"))
    assert (again["created"], again["todo"]["id"]) == (False, found[1])
    assert (again["todo"]["title"], again["todo"]["idempotency_key"]) == ("Look at this", "k-1")
    assert quickly(house, *push).startswith(f"Todo {found[1]} has this key already: it is pending in queue q ")
    assert refused(house, "todo", "push", "nobody", "--queue", "q").startswith("Not found: There is no ")


def test_list_filters_and_prints_the_answer_of_the_api(house: House) -> None:
    """Newest first, aligned; by endpoint, queue and status; what does not fit is said."""
    agent = house.vend("listed")
    ids = [agent.push("one", title="first")["id"], agent.push("two")["id"], agent.push("two", title="third")["id"]]
    agent.claim(queue="one", owner="worker 7")

    head, *rows = columns(did(house, "todo", "list", "--endpoint", "listed"))
    assert head == ["ID", "ENDPOINT", "QUEUE", "STATUS", "ATTEMPT", "AGE", "OWNER", "TITLE"]
    assert [row[0] for row in rows] == ids[::-1]
    assert rows[0][1:5] == ["listed", "two", "pending", "0/5"]
    assert rows[0][6:] == ["-", "third"]
    assert rows[2][1:5] == ["listed", "one", "claimed", "1/5"]
    assert rows[2][6:] == ["worker 7", "first"]
    assert all(re.fullmatch(r"\d+ s", row[5]) for row in rows)

    listed = did(
        house, "todo", "list", "--endpoint", "listed", "--queue", "two", "--status", "pending", "--limit", "1", "--json"
    )
    query = {"endpoint": "listed", "queue": "two", "status": "pending", "limit": "1"}
    assert json.loads(listed) == house.operator().get("/operator/v1/todos", params=query).json()
    assert [todo["id"] for todo in json.loads(listed)["todos"]] == ids[2:]
    everywhere = quickly(house, "todo", "list", "--limit", "1")
    assert columns(everywhere)[1][:2] == [ids[2], "listed"]
    assert everywhere.endswith("There are more: narrow the list, or ask for up to 200 with --limit.\n")
    assert quickly(house, "todo", "list", "--endpoint", "listed", "--status", "dead") == "No todo matches.\n"


def test_show_release_and_retry(house: House) -> None:
    """A stuck claim is taken away, a failed todo is queued again, and `show` tells the whole story."""
    agent = house.vend("storied")
    push = ("todo", "push", "storied", "--queue", "q", "--payload", ODD_PAYLOAD, "--title", "A story", "--json")
    todo = json.loads(quickly(house, *push))["todo"]
    agent.claim(owner="stuck")
    assert "status    claimed (lease ends in " in quickly(house, "todo", "show", todo["id"])
    assert did(house, "todo", "release", todo["id"]) == f"Todo {todo['id']} is pending in queue q, attempt 1 of 5.\n"
    agent.verb("fail", agent.claim(owner="clumsy")[0], error="line one\nline two")
    shown = quickly(house, "todo", "show", todo["id"])
    assert "status    retrying (due in " in shown
    assert "error\n  line one\n  line two\n" in shown
    assert did(house, "todo", "retry", todo["id"]) == f"Todo {todo['id']} is pending in queue q, attempt 0 of 5.\n"
    assert refused(house, "todo", "retry", todo["id"]).startswith("Conflict: ")
    assert refused(house, "todo", "release", todo["id"]).startswith("Conflict: ")
    assert refused(house, "todo", "show", UNKNOWN_ID) == "Not found: There is no such todo.\n"
    agent.verb("complete", agent.claim(owner="able")[0], result=[1, {}])

    shown = did(house, "todo", "show", todo["id"])
    for line in ("title     A story", "status    done", "endpoint  storied", "queue     q", "source    operator"):
        assert f"{line}\n" in shown
    assert (
        '  "z": 123456789012345678901234567890.10,\n    "a": [\n      1,\n      {}\n    ],\n    "z": "caf\\u00e9 ü"\n' in shown
    )
    assert "result\n  [\n    1,\n    {}\n  ]\n" in shown
    head, *attempts = columns(shown.partition("attempts\n")[2])
    assert head == ["ATTEMPT", "OWNER", "CLAIMED", "TOOK", "OUTCOME", "ERROR"]
    assert [(row[1], row[4]) for row in attempts] == [("stuck", "released"), ("clumsy", "failed"), ("able", "completed")]
    assert attempts[1][5] == "line one\\nline two"


@pytest.mark.parametrize(
    ("encoding", "words"), [("utf-8", ["show"]), ("latin-1", ["show"]), ("ascii", ["list"]), ("ascii", ["show", "--json"])]
)
def test_what_strangers_write_cannot_touch_the_terminal(house: House, encoding: str, words: list[str]) -> None:
    """Whatever the encoding of the terminal, nothing fails, nothing unprintable reaches it, and JSON stays the same JSON."""
    todo = house.vend().push(title=TERMINAL_ATTACK, payload={"\x9b31m": TERMINAL_ATTACK})
    id_of_it = [todo["id"]] if "show" in words else []
    done = subprocess.run(
        [sys.executable, str(RUN), "todo", *words, *id_of_it, "--config", str(house.config)],
        capture_output=True,
        check=True,
        env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert done.stderr == b""
    text = done.stdout.decode(encoding)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert ("日本" in text) is (encoding == "utf-8")
    if "--json" in words:
        assert json.loads(text)["todo"]["title"] == TERMINAL_ATTACK
    else:
        assert "\\x1b[2J\\x9b31m\\u202e" in text


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_is_no_news(house: House, unbuffered: str) -> None:
    """`| head` with far more to come: not a word, and the exit code of any program that a closed pipe ended."""
    todo = house.vend().push(payload=["x" * 100] * 5_000)
    command = [sys.executable, str(RUN), "todo", "show", todo["id"], "--config", str(house.config)]
    environ = {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b"todo"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_house_is_found_by_environment_and_by_option(house: House) -> None:
    """Options before variables before the configuration; no proxy is asked on loopback; tokens never leak."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), NOBODY)
    environ = {"SWITCHBOARD_URL": f"{house.url}/", "SWITCHBOARD_TOKEN": house.token} | proxies
    done = run("endpoint", "list", "--json", environ=environ)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("endpoint", "list", "--url", NOBODY, "--token", "sbo_wrong", environ=environ)
    assert done.returncode == 1
    assert done.stderr.startswith(f"No house answers at {NOBODY} (from --url): Connection refused.")
    said = refused(house, "endpoint", "list", "--token", "sbo_wrong")
    assert said.startswith(f"Unauthorized: the house at {house.url} does not take the operator token from --token.")
    assert "sbo_wrong" not in said


def test_house_that_was_killed_is_told_by_its_address(open_house: Opener) -> None:
    """The address that it wrote down is still there: the line names it, the file, and the way to start."""
    house = open_house()
    house.kill()
    assert refused(house, "todo", "list") == (
        f"No house answers at {house.url} (from the file {house.directory}/state/address): Connection refused. "
        "Is it running? Start it with `run.py serve`, or give the right address with --url.\n"
    )


def test_version_and_check(house: House) -> None:
    """Neither needs a house; `check` of a wrong configuration is 2, with file and key."""
    assert run("version").stdout.strip().endswith(VERSION)
    wrong = house.directory / "wrong.toml"
    wrong.write_text("[queue]\nlease_secs = 5\n")
    done = run("check", "--config", str(wrong))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{wrong}: `queue.lease_secs` is not a known option; did you mean `queue.lease_seconds`?" in done.stderr

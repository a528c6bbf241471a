"""What the command line says when it cannot do what was asked: one line, the exit code, never a secret, never a traceback.

No house is needed for these: the peer is a few lines of HTTP that misbehave on purpose. `test_command_line.py` has the rest.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from switchboard.cli import arguments, client
from switchboard.cli.operator_commands import run_operator_command

TOKEN = "sbo_hunter2-marker"
SOME_ID = "0198c0de-0000-7000-8000-000000000001"
Said = tuple[int, str, str]
Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command in an empty directory; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, environ: Mapping[str, str] | None = None) -> Said:
        try:
            code = run_operator_command(arguments.parse(words), environ or {})
        except SystemExit as exc:
            code = int(exc.code or 0)
        captured = capsys.readouterr()
        assert "hunter2" not in captured.out + captured.err, "a secret was repeated"
        assert "Traceback" not in captured.err
        assert captured.err.count("\n") == (0 if code in {0, 141} else 1), captured.err
        return code, captured.out, captured.err

    return run


@contextmanager
def answering(status: int, body: bytes, kind: str = "application/problem+json", **headers: str) -> Iterator[str]:
    """A server that says the same to everyone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the standard library's name

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silent(first_bytes: bytes = b"") -> Iterator[str]:
    """A server that takes a request, says `first_bytes` and then nothing until the client has gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(first_bytes)
                while connection.recv(65_536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@contextmanager
def nobody() -> Iterator[str]:
    """An address that refuses: bound, so that nobody else takes it, but not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def problem(**fields: object) -> bytes:
    return json.dumps({"type": "about:blank", "status": 0, **fields}).encode()


def test_connection_refused_names_the_address_and_the_next_step(run: Run) -> None:
    with nobody() as url:
        code, _, said = run("endpoint", "list", "--url", url, "--token", TOKEN)
    assert code == 1
    assert said == (
        f"No house answers at {url} (from --url): Connection refused. Is it running? "
        "Start it with `run.py serve`, or give the right address with --url.\n"
    )


def test_unauthorized_names_where_the_token_came_from(run: Run, tmp_path: Path) -> None:
    """Of --token, SWITCHBOARD_TOKEN, the configuration and the file, the one that was used."""
    body = problem(title="Unauthorized", code="unauthorized", detail="no")
    state, config = tmp_path / "var", tmp_path / "house.toml"
    state.mkdir()
    (state / "operator-token").write_text(f"{TOKEN}\n")
    config.write_text(f'[server]\noperator_token = "{TOKEN}"\n')
    with answering(401, body) as url:
        from_option = run("endpoint", "list", "--url", url, "--token", TOKEN)
        from_variable = run("endpoint", "list", environ={"SWITCHBOARD_URL": url, "SWITCHBOARD_TOKEN": TOKEN})
        from_config = run("endpoint", "list", "--url", url, "--config", str(config))
        from_file = run("endpoint", "list", "--url", url)
        of_endpoint = run("endpoint", "list", "--url", url, "--token", "sbk_hunter2-marker")
    for (code, _, said), source in (
        (from_option, "--token"),
        (from_variable, "SWITCHBOARD_TOKEN"),
        (from_config, "server.operator_token of the configuration"),
        (from_file, f"the file {state}/operator-token"),
    ):
        assert code == 1
        assert said.startswith(f"Unauthorized: the house at {url} does not take the operator token from {source}. ")
        assert "operator-token in its state directory" in said
    assert "an endpoint's credential; an operator token begins with sbo_" in of_endpoint[2]


def test_problem_becomes_title_and_detail(run: Run) -> None:
    """With the field that is to blame, and when to try again; whatever else stands in it, it stays one printable line."""
    to = ("todo", "retry", SOME_ID, "--token", TOKEN, "--url")
    with answering(409, problem(title="Conflict", code="conflict", detail="It is\nclaimed\x1b[2J.")) as url:
        assert run(*to, url) == (1, "", "Conflict: It is claimed\\x1b[2J.\n")
    with answering(422, problem(title="Invalid request", code="invalid", detail="too long", field="title")) as url:
        assert run(*to, url) == (1, "", "Invalid request: too long (field title)\n")
    with answering(503, problem(title="Unavailable", code="unavailable", detail="Not now."), Retry_After="2") as url:
        assert run(*to, url) == (1, "", "Unavailable: Not now. Try again in 2 s.\n")
    with answering(500, problem(title="Internal error", code="internal")) as url:
        assert run(*to, url) == (1, "", "Internal error: it says no more here; its log does\n")


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_is_no_house_is_told_as_such(run: Run, status: int) -> None:
    """A proxy's HTML page, a redirect, some other service: the address is to blame, and is named."""
    with answering(status, b"<html><h1>Oh no</h1></html>", "text/html", Location="http://127.0.0.1:1/") as url:
        code, out, said = run("endpoint", "list", "--url", url, "--token", TOKEN)
    assert (code, out) == (1, "")
    assert said.startswith(f"{url} (from --url) answered {status}, and not as a house does: ")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"endpoints": 1}', b'{"endpoints": [{"name": 1}]}', b"\xff", b"[" * 100_000]
)
def test_success_that_is_no_answer_is_told_as_such(run: Run, body: bytes) -> None:
    """200 with anything but the contract's shape."""
    with answering(200, body, "application/json") as url:
        code, out, said = run("endpoint", "list", "--url", url, "--token", TOKEN)
    assert (code, out) == (1, "")
    assert said.startswith(f"The answer of {url} is not what switchboard ")


@pytest.mark.parametrize("first_bytes", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_slow_house_is_not_waited_for_without_end(run: Run, monkeypatch: pytest.MonkeyPatch, first_bytes: bytes) -> None:
    """Silence before or within the answer ends the command; a change may have happened, and it says so."""
    monkeypatch.setattr(client, "SILENCE_SECONDS_MAX", 0.2)
    with silent(first_bytes) as url:
        code, _, said = run("endpoint", "vend", "reviewer", "--url", url, "--token", TOKEN)
    assert code == 1
    assert said.startswith(f"The house at {url} (from --url) did not answer in time: ")
    assert said.endswith("It may have done it all the same: look before you repeat it.\n")
    with silent(first_bytes) as url:
        assert "all the same" not in run("endpoint", "list", "--url", url, "--token", TOKEN)[2]


def test_endless_answer_is_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that goes on for ever, in time or in bytes, is given up."""
    with answering(200, b" " * 100_000, "application/json") as url:
        monkeypatch.setattr(client, "ANSWER_BYTES_MAX", 10_000)
        assert "broke off before it had answered" in run("endpoint", "list", "--url", url, "--token", TOKEN)[2]
        monkeypatch.setattr(client, "ANSWER_BYTES_MAX", 1_000_000)
        monkeypatch.setattr(client, "ANSWER_SECONDS_MAX", -1.0)
        assert "did not answer in time" in run("endpoint", "list", "--url", url, "--token", TOKEN)[2]


def test_proxies_of_the_environment_are_ignored_on_loopback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with nobody() as proxy, answering(200, b'{"endpoints": []}', "application/json") as url:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        assert run("endpoint", "list", "--url", url, "--token", TOKEN)[0] == 0


def test_house_that_never_started_here(run: Run, tmp_path: Path) -> None:
    """No token file: the path is named, absolute, since the wrong current directory is the usual cause."""
    code, _, said = run("endpoint", "list")
    assert code == 1
    assert said.startswith(
        f"There is no operator token at {tmp_path}/var/operator-token: start the house with `run.py serve`, "
    )


def test_port_0_without_an_address_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "switchboard.toml").write_text("[server]\nport = 0\n")
    code, _, said = run("endpoint", "list", "--token", TOKEN)
    assert code == 1
    assert said.startswith(
        f"The house has not said where it listens (server.port is 0, and there is no {tmp_path}/var/address)"
    )


def test_address_file_wins_over_the_configured_port(run: Run, tmp_path: Path) -> None:
    """What the running house wrote down is right, also for port 0; $STATE_DIRECTORY says where, as for the house."""
    (tmp_path / "operator-token").write_text(f"{TOKEN}\n")
    (tmp_path / "switchboard.toml").write_text('[server]\nport = 1\n[database]\nurl = { env = "NOT_IN_THIS_SHELL" }\n')
    with answering(200, b'{"endpoints": []}', "application/json") as url:
        (tmp_path / "address").write_text(f"{url}\n")
        assert run("endpoint", "list", environ={"STATE_DIRECTORY": str(tmp_path)})[0] == 0


@pytest.mark.parametrize(
    ("host", "reached"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"), ("127.0.0.2", "127.0.0.2")],  # noqa: S104 - told, not bound
)
def test_every_interface_is_reached_on_loopback(run: Run, tmp_path: Path, host: str, reached: str) -> None:
    (tmp_path / "switchboard.toml").write_text(f'[server]\nhost = "{host}"\nport = 1\n')
    assert f"No house answers at http://{reached}:1 (from the configuration): " in run("todo", "list", "--token", TOKEN)[2]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://me:hunter2@h",
        "http://h/?hunter2",
    ],
)
def test_address_that_is_none(run: Run, url: str) -> None:
    """Refused before anything is sent, and not repeated: it may hold a password."""
    code, _, said = run("endpoint", "list", "--url", url, "--token", TOKEN)
    assert code == 2
    assert said.startswith("The address from --url ")


@pytest.mark.parametrize("token", ["", "two words hunter2", "hunter2\n", "hunter2-é", "hunter2" * 100])
def test_token_that_is_none(run: Run, token: str) -> None:
    assert run("endpoint", "list", "--url", "http://127.0.0.1:1", "--token", token)[:2] == (2, "")


def test_wrong_configuration_is_told_with_file_and_key(run: Run, tmp_path: Path) -> None:
    (tmp_path / "house.toml").write_text("[server]\nprot = 1\n")
    code, _, said = run("--config", "house.toml", "todo", "list")
    assert (code, said) == (2, "house.toml: `server.prot` is not a known option; did you mean `server.port`?\n")
    assert run("todo", "list", "--config", "gone.toml")[0] == 2


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        (["endpoint"], "ACTION"),
        (["endpoint", "vend"], "NAME"),
        (["endpoint", "vend", "Bad Name"], "is no endpoint name"),
        (["endpoint", "vend", "a" * 64], "is no endpoint name"),
        (["endpoint", "vend", "a\n"], "is no endpoint name"),
        (["todo", "push", "reviewer"], "--queue"),
        (["todo", "push", "reviewer", "--queue", ""], "--queue"),
        (["todo", "push", "reviewer", "--queue", "q", "--title", "\udcff"], "--title: is not UTF-8"),
        (["todo", "show", "../endpoints"], "is no todo id"),
        (["todo", "list", "--limit", "201"], "from 1 to 200"),
        (["todo", "list", "--limit", "٣"], "from 1 to 200"),
        (["todo", "list", "--status", "failed"], "choose from"),
        (["todo", "list", "--toekn", "hunter2"], "there is no --toekn here"),
        (["todo", "list", "--toekn=hunter2"], "there is no --toekn here"),
        (["--token", "hunter2", "todo", "list"], "there is no --token before the command"),
        (["serve", "--url", "http://h"], "there is no --url here"),
        (["webhooks", "list"], "invalid choice"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(run: Run, words: list[str], blamed: str) -> None:
    code, out, said = run(*words)
    assert (code, out) == (2, "")
    assert blamed in said
    assert said.endswith("--help`.\n")


def test_config_is_taken_before_and_after_the_command() -> None:
    """And no command at all means serve."""
    assert arguments.parse([]) == arguments.Arguments(command="serve")
    for words in (
        "--config f endpoint list",
        "endpoint --config f list",
        "endpoint list --config f",
        "--config=f endpoint list",
    ):
        assert arguments.parse(words.split()) == arguments.Arguments(command="endpoint", action="list", config=Path("f"))
    for words in ("--config f", "--config f serve", "serve --config f"):
        assert arguments.parse(words.split()) == arguments.Arguments(command="serve", config=Path("f"))


@pytest.mark.parametrize("words", ["", "endpoint", "endpoint vend", "todo", "todo push", "todo list", "serve"])
def test_help_is_exit_0(run: Run, words: str) -> None:
    code, out, _ = run(*words.split(), "--help")
    assert (code, out.startswith("usage: run.py")) == (0, True)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("hello", "--payload is not JSON: Expecting value at line 1, column 1 (a string needs its own quotes too"),
        ('{"hunter2": 1,\n "b" 2}', "--payload is not JSON: Expecting ':' delimiter at line 2, column 6."),
        ('{"a": NaN}', "it holds NaN, which JSON does not have."),
        ("", "--payload is empty"),
        ("[" * 100_000, "--payload is nested too deeply"),
        ("@gone.json", "could not be read from the file gone.json: No such file or directory."),
        ("@.", "could not be read from the file .: Is a directory."),
        ("@latin1.json", "the file latin1.json is not UTF-8 (byte 5)"),
        ("@huge.json", "the file huge.json is over 16777216 bytes"),
        ("-", "standard input is not JSON: Extra data at line 1, column 3."),
    ],
)
def test_payload_is_checked_before_anything_is_sent(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: str, said: str
) -> None:
    """With its place, without its content. Nobody listens there: a request would be exit 1."""
    (tmp_path / "latin1.json").write_bytes(b'"caf\xe9"')
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(16 * 1_048_576 + 1)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 hunter2")))
    push = ("todo", "push", "reviewer", "--queue", "q", "--url", "http://127.0.0.1:1", "--token", TOKEN, "--payload")
    code, out, line = run(*push, payload)
    assert (code, out) == (2, "")
    assert said in line


@pytest.mark.parametrize(("full", "code"), [(False, 141), (True, 1)])
def test_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], full: bool, code: int
) -> None:
    """A reader that has gone (`| head`) is no news; a full disk is one line."""
    if full:
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reading, descriptor = os.pipe()
        os.close(reading)
    with os.fdopen(descriptor, "w") as stream, answering(200, b'{"endpoints": []}', "application/json") as url:
        monkeypatch.setattr(sys, "stdout", stream)
        args = arguments.parse(["endpoint", "list", "--url", url, "--token", TOKEN])
        assert run_operator_command(args, {}) == code
    said = capsys.readouterr().err
    assert said == (
        "The output could not be written: No space left on device. What was asked for has been done all the same.\n"
        if full
        else ""
    )

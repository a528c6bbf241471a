"""Ways to a Redis: TLS, Sentinels, a database number, and a cluster, which is refused with a clear word."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from switchboard.errors import BrokerError
from switchboard.pull.redis_link import open_link
from switchboard.pull.redis_url import parse
from tests.houses import wait_until
from tests.redis.conftest import StartRedis
from tests.redis.servers import RedisServer, binary, free_port

SECRET = "marker-hunter2"


def refused(match: str) -> Any:
    """A BrokerError that says so, out of the groups that trio-asyncio's loop puts around it."""
    return pytest.RaisesGroup(pytest.RaisesExc(BrokerError, match=match), flatten_subgroups=True)


async def who(url: str) -> str:
    """Who the server says that we are."""
    async with open_link(parse(url), client_name="switchboard:test") as link:
        assert await link.call("PING") == b"PONG"
        return link.identity


async def test_acl_user_and_database_number(redis_server: RedisServer) -> None:
    """User and password prove us, the path chooses the database, and the identity is the server's own word."""
    redis_server.client.acl_setuser("bot", enabled=True, passwords=[f"+{SECRET}"], keys="*", categories=["+@all"])
    url = f"redis://bot:{SECRET}@127.0.0.1:{redis_server.port}/3"
    assert await who(url) == "redis acl: bot"
    async with open_link(parse(url), client_name="x") as link:
        await link.call("SET", "a", "1")
    assert redis_server.client.execute_command("INFO", "keyspace")["db3"]["keys"] == 1
    with refused("AUTH") as caught:
        await who(f"redis://bot:{SECRET}x@127.0.0.1:{redis_server.port}")
    assert SECRET not in str(caught.value)


async def test_an_old_server_without_acl_words(redis_server: RedisServer) -> None:
    """Where ACL WHOAMI, HELLO and CLIENT are denied, everything else still works."""
    redis_server.client.acl_setuser(
        "bot", enabled=True, passwords=["+x"], keys="*", categories=["+@all"], commands=["-acl", "-hello", "-client"]
    )
    assert await who(f"redis://bot:x@127.0.0.1:{redis_server.port}") == "redis acl: unknown"


async def test_a_cancelled_read_is_over_at_once(redis_server: RedisServer) -> None:
    """A blocked read ends with its cancellation, and the connection with it: no reply is ever taken for another's."""
    async with open_link(parse(redis_server.url), client_name="x") as link:
        with trio.move_on_after(0.2) as patience:
            await link.call("BLPOP", "nothing", 5)
        assert patience.cancelled_caught
        began = trio.current_time()
        with pytest.raises(BrokerError, match="PING: the connection is closed"):
            await link.call("PING")
        assert trio.current_time() - began < 1


async def test_a_cluster_is_refused(start_redis: StartRedis) -> None:
    """A node of a cluster is told from a server by itself, whatever its URL says."""
    server = start_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with refused("a node of a Redis Cluster"):
        await who(server.url)


async def test_tls(redis_server: RedisServer, tmp_path: Path) -> None:
    """`rediss://` speaks TLS and believes only a certificate that it was told to believe."""
    certificate(tmp_path)
    with tls_in_front_of(redis_server.port, tmp_path) as port:
        assert await who(f"rediss://localhost:{port}?ssl_ca_certs={tmp_path}/cert.pem") == "redis acl: default"
        with refused("certificate"):
            await who(f"rediss://localhost:{port}")


async def test_sentinel(start_redis: StartRedis, tmp_path: Path) -> None:
    """The Sentinels say which server is the master; the first one may be away; an unknown service is told."""
    server = start_redis()
    port = free_port()
    (tmp_path / "sentinel.conf").write_text(f"port {port}\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {server.port} 1\n")
    with (tmp_path / "log").open("wb") as log:
        sentinel = subprocess.Popen([binary(), str(tmp_path / "sentinel.conf"), "--sentinel"], stdout=log, stderr=log)  # noqa: ASYNC220 - a fork, not a wait
    try:
        await trio.to_thread.run_sync(lambda: wait_until(lambda: answers(port), what="a Sentinel that answers"))
        url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}"
        assert await who(f"{url}/main/2") == "redis acl: default"
        with refused("SENTINEL MASTER other"):
            await who(f"{url}/other")
    finally:
        sentinel.kill()
        sentinel.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def certificate(directory: Path) -> None:
    """A certificate for localhost that signs itself."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(directory / "key.pem")),
            *("-out", str(directory / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )


@contextlib.contextmanager
def tls_in_front_of(port: int, directory: Path) -> Iterator[int]:
    """A port that speaks TLS and passes everything on: the wheel's server does not speak it itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener, context, port), daemon=True).start()
        yield listener.getsockname()[1]


def accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            raw, _ = listener.accept()
            threading.Thread(target=serve, args=(raw, context, port), daemon=True).start()


def serve(raw: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """One connection: requests and replies take turns, as a client without pipelining makes them."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(raw, server_side=True) as secure,
    ):
        while data := secure.recv(65_536):
            plain.sendall(data)
            secure.sendall(plain.recv(65_536))

"""C57, R19, R20: adapters in the configuration; what is wrong is told with all else, and no secret with it."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from switchboard.config import load
from switchboard.config_adapters import AdapterConfig
from switchboard.errors import ConfigError
from switchboard.pull.redis_url import RedisPlace, UrlFault, parse

SHIPPED = Path(__file__).resolve().parents[2] / "config" / "switchboard.toml"
MARKER = "hunter2-marker"
GOOD = {
    "name": '"orders"',
    "transport": '"stream"',
    "url": '"redis://h/0"',
    "stream": '"orders"',
    "endpoints": '["reviewer"]',
}


def table(**changes: str | None) -> str:
    """One adapter as TOML: the good one with these keys changed, or taken out."""
    values = {key: value for key, value in (GOOD | changes).items() if value is not None}
    return "[[adapters]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def read(directory: Path, text: str, environ: dict[str, str] | None = None) -> tuple[AdapterConfig, ...]:
    path = directory / "house.toml"
    path.write_text(text)
    return load(path, environ or {}).adapters


def faults(directory: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(directory, text, environ)
    assert MARKER not in str(caught.value)
    return [line.partition(": ")[2] for line in str(caught.value).splitlines()]


def test_defaults(tmp_path: Path) -> None:
    """What an adapter is when only what must be said is said."""
    (adapter,) = read(tmp_path, table())
    assert (adapter.group, adapter.consumer, adapter.body_field) == ("switchboard", "switchboard", "payload")
    assert (adapter.claim_idle_seconds, adapter.enabled, adapter.todo_queue) == (60, True, "orders")
    assert adapter.prefix == "redis:orders"
    (named,) = read(tmp_path, table(namespace='"eu"', queue='"work"'))
    assert (named.prefix, named.todo_queue) == ("redis:eu/orders", "work")


def test_shipped_file_names_every_option() -> None:
    """`config/switchboard.toml` has every option of an adapter, commented out, with its default where it has one."""
    text = SHIPPED.read_text().partition("# [[adapters]]\n")[2]
    for name, field in attrs.fields_dict(AdapterConfig).items():
        if name in ("list", "channel"):
            continue
        (line,) = re.findall(rf"^# {name} = (.*)$", text, re.MULTILINE)
        if name in ("group", "consumer", "body_field"):
            assert line == f'"{field.default}"'
        if name in ("claim_idle_seconds", "enabled", "accept_loss"):
            assert line == str(field.default).lower()
    uncommented = "\n".join(line.removeprefix("# ") for line in text.splitlines())
    assert uncommented


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"transprt": '"x"'}, "`adapters.orders.transprt` is not a known option; did you mean `transport`?"),
        ({"name": None}, "`adapters[0].name` is missing"),
        ({"name": f'"{MARKER} x"'}, "`adapters[0].name` must be a name: 1 to 63 of a-z, 0-9, _ and -, the first a letter or a"),
        ({"transport": '"kafka"'}, "`adapters.orders.transport` must be one of stream, list, pubsub"),
        ({"transport": "5"}, "`adapters.orders.transport` must be one of stream, list, pubsub"),
        ({"url": None}, "`adapters.orders.url` is missing"),
        ({"url": '""'}, "`adapters.orders.url` is empty"),
        ({"url": f'"http://u:{MARKER}@h"'}, "`adapters.orders.url` is not a Redis URL; it looks like redis://"),
        ({"url": f'"redis+cluster://u:{MARKER}@h"'}, "`adapters.orders.url` means a Redis Cluster"),
        ({"url": f'{{ env = "{MARKER}-" }}'}, "`adapters.orders.url` names with `env` what cannot be an environment variable"),
        ({"stream": None}, "`adapters.orders.stream` is missing; transport stream needs it"),
        ({"list": '"x"'}, "`adapters.orders.list` means nothing for transport stream, which takes `stream`"),
        ({"stream": f'"{"x" * 442}"', "queue": '"q"'}, "`adapters.orders.stream` is too long: its idempotency keys would pass"),
        ({"stream": f'"{"x" * 201}"'}, "`adapters.orders.queue` is missing, and the name of the stream is too long for one"),
        ({"endpoints": "[]"}, "`adapters.orders.endpoints` must be a list of 1 to 16 names"),
        ({"endpoints": '["a", "a"]'}, "`adapters.orders.endpoints` names one of them twice"),
        ({"endpoints": '"a"'}, "`adapters.orders.endpoints` must be a list of 1 to 16 names"),
        ({"enabled": '"yes"'}, "`adapters.orders.enabled` must be true or false, not a string"),
        ({"claim_idle_seconds": "0"}, "`adapters.orders.claim_idle_seconds` must be from 1 to 86400, not 0"),
        ({"accept_loss": "true"}, "`adapters.orders.accept_loss` is for transport pubsub only"),
        ({"namespace": '"E U"'}, "`adapters.orders.namespace` must be a name"),
        (
            {"transport": '"pubsub"', "stream": None, "channel": '"x"'},
            "`adapters.orders.transport` is pubsub, which loses every message",
        ),
    ],
)
def test_c57_wrong_adapters(tmp_path: Path, changes: dict[str, str | None], fault: str) -> None:
    """C57: each fault is one line that names the adapter and the key."""
    (told,) = faults(tmp_path, table(**changes))
    assert told.startswith(fault)


def test_c57_names_and_keys_that_clash(tmp_path: Path) -> None:
    """R19: one name twice; keys that could meet for one endpoint; one stream and group, or one list, read twice."""
    told = faults(tmp_path, table() + table(stream='"other"'))
    assert told == ["`adapters.orders.name` is the name of another adapter too"]
    other = table(name='"b"', url='"redis://h/1"')
    (fault,) = faults(tmp_path, table() + other)
    assert fault.startswith(
        "`adapters.b.namespace` could mint the same idempotency keys, for endpoint reviewer, as adapter orders"
    )
    assert read(tmp_path, table() + other + 'namespace = "b"\n')
    assert read(tmp_path, table() + table(name='"b"', url='"redis://h/1"', endpoints='["other"]'))
    (fault,) = faults(tmp_path, table() + table(name='"b"', endpoints='["other"]'))
    assert fault.startswith("`adapters.b.stream` is read by adapter orders already")
    assert read(tmp_path, table() + table(name='"b"', endpoints='["other"]', group='"b"'))
    items = {"transport": '"list"', "stream": None, "list": '"orders"'}
    assert read(tmp_path, table() + table(name='"b"', **items))  # an entry id never looks like a body's hash
    spoken = {"transport": '"pubsub"', "stream": None, "channel": '"orders"', "accept_loss": "true"}
    (fault,) = faults(tmp_path, table(**items) + table(name='"b"', **spoken))
    assert "could mint the same" in fault


def test_all_faults_in_one_message_and_no_secret(tmp_path: Path) -> None:
    """C57, R28: faults of adapters and of the rest come together; a URL from the environment is told by its variable only."""
    text = "[server]\nport = true\n" + table(url='{ env = "R" }', endpoint='["x"]') + table(name='"b"', transport='"x"')
    told = faults(tmp_path, text, {"R": f"redis://u:{MARKER}@h:99999999"})
    assert [fault.split()[0] for fault in told] == [
        "`server.port`",
        "`adapters.orders.endpoint`",
        "`adapters.orders.url`",
        "`adapters.b.transport`",
    ]
    assert "(environment variable R)" in told[2]
    (adapter,) = read(tmp_path, table(url=f'"redis://u:{MARKER}@h"'))
    assert MARKER not in repr(adapter)
    assert MARKER not in repr(adapter.place)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://h", RedisPlace(nodes=(("h", 6379),))),
        ("redis://:p%40ss@h:1/2", RedisPlace(nodes=(("h", 1),), db=2, password="p@ss")),
        ("rediss://u:p@[::1]:7/0", RedisPlace(nodes=(("::1", 7),), username="u", password="p", tls=True)),
        ("rediss://h?ssl_ca_certs=/ca.pem", RedisPlace(nodes=(("h", 6379),), tls=True, ca_file="/ca.pem")),
        (
            "redis+sentinel://u:p@a,b:27/main/3?sentinel_password=s",
            RedisPlace(
                nodes=(("a", 26379), ("b", 27)), service="main", db=3, username="u", password="p", sentinel_password="s"
            ),
        ),
    ],
)
def test_urls(url: str, place: RedisPlace) -> None:
    """Every form of URL that is documented."""
    assert parse(url) == place


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{MARKER}",
        "redis://",
        "redis://a,b/0",
        "redis://h/x",
        "redis://h/0/1",
        "redis://h:0",
        "redis://h:x",
        "redis://h?db=1",
        "redis://h?ssl_ca_certs=/x",
        "redis://h#1",
        "redis+sentinel://h:1",
        "rediss://h?ssl_ca_certs=a&ssl_ca_certs=b",
        "redis://[h",
        "unix:///run/redis.sock",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    """C59: told without an echo of any part."""
    with pytest.raises(UrlFault) as caught:
        parse(url)
    assert MARKER not in str(caught.value)

"""C57: a configuration that is wrong in any way is refused whole, with file, key and the nearest right name."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from switchboard.config import SECTIONS, Config, load
from switchboard.errors import ConfigError

SHIPPED = Path(__file__).resolve().parents[2] / "config" / "switchboard.toml"
MARKER = "hunter2-marker"
NETWORKS = 'must be a list of addresses or networks in quotes, such as "10.0.0.0/8"'
ONE_OF_TWO = 'must be a string, { env = "NAME" } or { file = "PATH" }, with one of the two and no more'


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "house.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults_of(directory: Path, text: str | bytes, environ: dict[str, str] | None = None) -> list[str]:
    path = write(directory, text)
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines), lines
    assert MARKER not in str(caught.value)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_shipped_file_says_the_defaults() -> None:
    """`config/switchboard.toml` changes nothing, and no option is left out of it."""
    assert load(SHIPPED, {}) == Config()
    text = SHIPPED.read_text()
    for section, kind in SECTIONS.items():
        part = text.partition(f"[{section}]\n")[2].partition("\n[")[0]
        for key in attrs.fields_dict(kind):
            assert re.search(rf"^(# )?{key} = ", part, re.MULTILINE), f"[{section}] {key}"


def test_shipped_file_lies_where_no_house_reads_it_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --config it is ./switchboard.toml if that is there, else the defaults; nothing else is looked for."""
    monkeypatch.chdir(tmp_path)
    assert load(None, {}) == Config()
    (tmp_path / "switchboard.toml").write_text("[server]\nport = 9\n")
    assert load(None, {}).server.port == 9
    (tmp_path / "switchboard.toml").unlink()
    (tmp_path / "switchboard.toml").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"switchboard\.toml: there is no such file"):
        load(None, {})


def test_named_file_must_exist(tmp_path: Path) -> None:
    """--config FILE never falls back to the defaults."""
    with pytest.raises(ConfigError, match=r"gone\.toml: there is no such file"):
        load(tmp_path / "gone.toml", {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_c57_bom_and_crlf_are_fine(tmp_path: Path) -> None:
    """C57: a file saved by a Windows editor is a file like any other."""
    path = write(tmp_path, b"\xef\xbb\xbf[server]\r\nport = 1\r\n[queue]\r\nreap_interval_seconds = 1\r\n")
    config = load(path, {})
    assert config.server.port == 1
    assert config.queue.reap_interval_seconds == 1.0
    assert isinstance(config.queue.reap_interval_seconds, float)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[queue]\nlease_ttll = 5", "`queue.lease_ttll` is not a known option; did you mean `queue.lease_seconds`?"),
        ("[queue]\nlease_second = 5", "`queue.lease_second` is not a known option; did you mean `queue.lease_seconds`?"),
        ("[queue]\nLEASE_SECONDS = 5", "`queue.LEASE_SECONDS` is not a known option; did you mean `queue.lease_seconds`?"),
        ("lease_seconds = 5", "`lease_seconds` belongs in [queue]"),
        ("[server]\nlease_seconds = 5", "`server.lease_seconds` belongs in [queue]"),
        ("[server]\npaylod_bytes = 5", "`server.paylod_bytes` is not a known option; did you mean `limits.payload_bytes`?"),
        ("prot = 5", "`prot` is not a known option; did you mean `server.port`?"),
        ("[qeue]\nx = 1", "`qeue` is not a known table; did you mean `[queue]`?"),
        ("[retention]", "`retention` is not a known table"),
        ("[adapters]\nname = 'a'", "`adapters` must be tables, each written [[adapters]], not a table"),
        ("[server.queue]\nx = 1", "`server.queue` stands inside [server]; [queue] is a table of its own at the top level"),
        ("queue = 5", "`queue` must be a table, written [queue], not a whole number"),
        ("[[queue]]", "`queue` must be a table, written [queue], not an array"),
        ('"a\\nb" = 1', "`a?b` is not a known option"),
    ],
)
def test_c57_unknown_names(tmp_path: Path, text: str, fault: str) -> None:
    """C57: a misspelt or misplaced name is told with the nearest right one."""
    assert faults_of(tmp_path, text) == [fault]


@pytest.mark.parametrize(
    ("section", "line", "what"),
    [
        ("queue", 'lease_seconds = "30"', "must be a whole number from 1 to 86400, not a string"),
        ("queue", "lease_seconds = true", "must be a whole number from 1 to 86400, not true or false"),
        ("queue", "lease_seconds = 30.0", "must be a whole number from 1 to 86400, not a number with a fraction"),
        ("queue", "lease_seconds = [30]", "must be a whole number from 1 to 86400, not an array"),
        ("queue", "lease_seconds = {}", "must be a whole number from 1 to 86400, not a table"),
        ("queue", "lease_seconds = 2026-01-01", "must be a whole number from 1 to 86400, not a date or time"),
        ("queue", "lease_seconds = -1", "must be from 1 to 86400, not -1"),
        ("queue", "lease_seconds = 0", "must be from 1 to 86400, not 0"),
        ("queue", "lease_seconds = 86401", "must be from 1 to 86400, not 86401"),
        ("queue", "lease_seconds = 1" + "0" * 400, "must be from 1 to 86400, not a number of 401 digits"),
        ("queue", "max_attempts = 101", "must be from 1 to 100, not 101"),
        ("queue", "reap_interval_seconds = nan", "must be from 0.1 to 3600, not nan"),
        ("queue", "reap_interval_seconds = inf", "must be from 0.1 to 3600, not inf"),
        ("queue", "reap_interval_seconds = -5", "must be from 0.1 to 3600, not -5"),
        ("queue", "retry_interval_seconds = 0.09", "must be from 0.1 to 3600, not 0.09"),
        ("queue", "retry_interval_seconds = false", "must be a number from 0.1 to 3600, not true or false"),
        ("server", "shutdown_grace_seconds = 0.5", "must be from 1 to 300, not 0.5"),
        ("server", "port = 65536", "must be from 0 to 65535, not 65536"),
        ("server", "port = -1", "must be from 0 to 65535, not -1"),
        ("server", "host = 5", "must be a string, not a whole number"),
        ("server", 'host = ""', "must be 1 to 4096 printable characters"),
        ("server", 'host = "a b"', "must not contain blanks"),
        ("server", 'state_dir = "a\\u0000b"', "must be 1 to 4096 printable characters"),
        ("database", "pool_size = 0", "must be from 1 to 100, not 0"),
        ("limits", "payload_bytes = 1023", "must be from 1024 to 16777216, not 1023"),
        ("webhooks", "max_body_bytes = 1023", "must be from 1024 to 16777216, not 1023"),
        ("webhooks", "burst = 0", "must be from 1 to 1000000, not 0"),
        ("webhooks", "rate_per_second = 0", "must be from 0.1 to 100000, not 0"),
        ("webhooks", 'trusted_proxies = "10.0.0.0/8"', "must be a list of at most 100 networks"),
        ("webhooks", 'trusted_proxies = ["10.0.0.1/8"]', NETWORKS),
        ("webhooks", "trusted_proxies = [10]", NETWORKS),
        ("webhooks", 'secret_key = "short"', "must be 32 to 512 visible ASCII characters without blanks"),
        ("limits", "batch_body_bytes = 67108865", "must be from 1048576 to 67108864, not 67108865"),
    ],
)
def test_c57_wrong_values(tmp_path: Path, section: str, line: str, what: str) -> None:
    """C57, R27: wrong type, NaN, negative and out of range are refused, never silently changed."""
    assert faults_of(tmp_path, f"[{section}]\n{line}\n") == [f"`{section}.{line.partition(' ')[0]}` {what}"]


def test_bounds_themselves_are_allowed(tmp_path: Path) -> None:
    """A bound is the last value that is taken, at both ends."""
    for lease, interval, port in [(1, "0.1", 0), (86_400, "3600", 65_535)]:
        text = f"[queue]\nlease_seconds = {lease}\nreap_interval_seconds = {interval}\n[server]\nport = {port}\n"
        config = load(write(tmp_path, text), {})
        assert (config.queue.lease_seconds, config.server.port) == (lease, port)


def test_payload_must_fit_into_a_batch(tmp_path: Path) -> None:
    """Two limits that contradict each other are a fault, not a surprise at the first large todo."""
    text = "[limits]\npayload_bytes = 16777216\nbatch_body_bytes = 1048576\n"
    (fault,) = faults_of(tmp_path, text)
    assert fault.startswith("`limits.payload_bytes` must not be larger than `limits.batch_body_bytes`")


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"[server\nport = 1", "is not TOML: Expected ']' at the end of a table declaration (at line 1, column 8)"),
        (b"[server]\n\nport = = 1", "is not TOML: Invalid value (at line 3, column 8)"),
        (b"[server]\nport = 1\nport = 2\n", "is not TOML: Cannot overwrite a value (at line 3, column 9)"),
        (b"port = " + b"9" * 5_000, "is not TOML: a number is far too long"),
        (b"[server]\nhost = '\xff'", "is not UTF-8 (line 2); save it as UTF-8"),
        ("[server]\n".encode("utf-16"), "is not UTF-8 (line 1); save it as UTF-8"),
        (b"a = " + b"[" * 100_000, "is nested too deeply to be a configuration"),
        (b"#" * 1_048_577, "is larger than 1048576 bytes, so it is not a configuration"),
    ],
)
def test_c57_not_a_configuration_at_all(tmp_path: Path, raw: bytes, what: str) -> None:
    """C57: a file that cannot be read as TOML is told with the line, and without a traceback."""
    assert faults_of(tmp_path, raw) == [what]


def test_c57_every_fault_in_one_message(tmp_path: Path) -> None:
    """C57: an operator mends the file once, not once for each fault; and the message has a bound."""
    faults = faults_of(tmp_path, "x = 1\n[server]\nport = true\n[queue]\nlease_ttll = 5\nmax_attempts = 0\n")
    assert [fault.split()[0] for fault in faults] == ["`x`", "`server.port`", "`queue.lease_ttll`", "`queue.max_attempts`"]
    many = faults_of(tmp_path, "\n".join(f"zzz{number} = 1" for number in range(60)))
    assert len(many) == 51
    assert many[-1] == "and 10 more"


def test_secrets_from_string_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is a string, { env } or { file }; one newline at the end of a file is dropped, and no more."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_bytes(b"sbo_abc\r\n")
    text = '[server]\noperator_token = { file = "token" }\n[database]\nurl = { env = "DB" }\n'
    config = load(write(tmp_path, text), {"DB": f"postgresql://u:{MARKER}@db/x"})
    assert config.server.operator_token == "sbo_abc"
    assert config.database.url == f"postgresql://u:{MARKER}@db/x"
    assert MARKER not in repr(config)
    assert "sbo_abc" not in repr(config)
    (tmp_path / "token").write_bytes(b"sbo_abc\n\n")
    (fault,) = faults_of(tmp_path, '[server]\noperator_token = { file = "token" }\n')
    assert fault.endswith("must be 1 to 512 visible ASCII characters without blanks (file token)")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ('{ env = "UNSET" }', "wants the environment variable UNSET, which is not set"),
        ('{ env = "EMPTY" }', "is empty (environment variable EMPTY)"),
        ('{ env = "BAD" }', "must be 1 to 512 visible ASCII characters without blanks (environment variable BAD)"),
        (f'{{ env = "{MARKER}" }}', "names with `env` what cannot be an environment variable (letters, digits and _)"),
        ('{ file = "gone" }', "wants the file gone, which cannot be read: No such file or directory"),
        ('{ file = "." }', "wants the file ., which cannot be read: Is a directory"),
        ('{ file = "binary" }', "wants the file binary, which is not UTF-8"),
        ('{ file = "large" }', "wants the file large, which is over 65536 bytes and no secret"),
        (f'{{ file = "https://u:{MARKER}@h" }}', "names with `file` what is not a path"),
        (f'"{MARKER} x"', "must be 1 to 512 visible ASCII characters without blanks"),
        ('""', "is empty"),
        ("5", 'must be a string, { env = "NAME" } or { file = "PATH" }, not a whole number'),
        ("{}", ONE_OF_TWO),
        ('{ evn = "X" }', ONE_OF_TWO),
        ('{ env = "X", file = "y" }', ONE_OF_TWO),
        ("{ env = 5 }", ONE_OF_TWO),
    ],
)
def test_r28_faults_of_secrets_never_tell_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, what: str) -> None:
    """R28, C59: the key and where it was to come from are told; the value never is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff" + MARKER.encode())
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    environ = {"EMPTY": "", "BAD": f"{MARKER} with blanks"}
    assert faults_of(tmp_path, f"[server]\noperator_token = {value}\n", environ) == [f"`server.operator_token` {what}"]


@pytest.mark.parametrize(
    "url",
    [
        MARKER,
        f"mysql://u:{MARKER}@h/d",
        f"postgres://u:{MARKER}@x@h/d",
        f"postgres://u:{MARKER}/x@h/d",
        f"postgres://u:5432/{MARKER}@h/d",
        f"postgres://u:{MARKER}%zz@h/d",
        f"postgres://u@h:{MARKER}/d",
        f"postgres://u@h:70000/{MARKER}",
        f"postgres://u@h/d?{MARKER}=1",
        f"host=h {MARKER}=1",
        f"host=h password={MARKER} {MARKER}",
        f"host=h password='{MARKER}",
        f"HTTP_PROXY://{MARKER}=",
    ],
)
def test_c59_bad_dsn_is_refused_without_an_echo(tmp_path: Path, url: str) -> None:
    """C59: a mistyped URL may have the password anywhere in it, so no part of it is repeated."""
    (fault,) = faults_of(tmp_path, '[database]\nurl = { env = "DB" }\n', {"DB": url})
    assert fault.startswith("`database.url` ")
    assert fault.endswith("(environment variable DB)")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p%40w@h:5432/d?sslmode=require",
        "postgres://h1:5432,h2:5433/d?target_session_attrs=primary",
        "postgresql:///d?host=/run/postgresql",
        "postgresql://u:p@h/d?application_name=a@b",
        "host=/tmp dbname=d user=u password='a b@c/d'",
    ],
)
def test_good_dsn_is_taken(tmp_path: Path, url: str) -> None:
    """Everything that libpq understands is a database URL."""
    assert load(write(tmp_path, '[database]\nurl = { env = "DB" }\n'), {"DB": url}).database.url == url


def test_systemd_state_directory_wins(tmp_path: Path) -> None:
    """$STATE_DIRECTORY is where systemd made a directory for us; of several, the first is meant."""
    path = write(tmp_path, '[server]\nstate_dir = "elsewhere"\n')
    assert load(path, {}).server.state_dir == Path("elsewhere")
    assert load(path, {"STATE_DIRECTORY": ""}).server.state_dir == Path("elsewhere")
    assert load(path, {"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}).server.state_dir == Path("/var/lib/a")
    assert load(write(tmp_path, ""), {"STATE_DIRECTORY": "/var/lib/a"}).server.state_dir == Path("/var/lib/a")

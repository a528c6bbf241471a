"""The configuration of the house: every option, its default and its bounds. `config/switchboard.toml` says why.

An option of a later capability comes with that capability; until then its name is refused like any unknown one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from switchboard import config_toml
from switchboard.config_adapters import AdapterConfig, check_adapters
from switchboard.config_options import Network, folder, key_fault, networks, number, secret, text, visible_token_fault, whole
from switchboard.config_toml import Faults
from switchboard.database.conninfo import fault_in_conninfo

DEFAULT_FILE = Path("switchboard.toml")  # read from the current directory when no file was named, if it is there
MIB = 1_048_576
NETWORKS_MAX = 100


@attrs.frozen(kw_only=True)
class ServerConfig:
    """`[server]`: where the house listens, keeps its state, and how long it takes its leave."""

    host: str = text(default="127.0.0.1")
    port: int = whole(default=8080, low=0, high=65_535)
    state_dir: Path = folder(default="var", environment_name="STATE_DIRECTORY")  # noqa: RUF009  # a field, not a value
    shutdown_grace_seconds: float = number(default=10, low=1, high=300)
    operator_token: str | None = secret(fault_in=visible_token_fault)


@attrs.frozen(kw_only=True)
class DatabaseConfig:
    """`[database]`: which PostgreSQL, and how many connections. Without a `url`, an embedded one in the state dir."""

    url: str | None = secret(fault_in=fault_in_conninfo)
    pool_size: int = whole(default=8, low=1, high=100)


@attrs.frozen(kw_only=True)
class QueueConfig:
    """`[queue]`: what a claim gets when it does not ask, and how often lapsed and parked work is looked for (R27)."""

    lease_seconds: int = whole(default=300, low=1, high=86_400)
    max_attempts: int = whole(default=5, low=1, high=100)
    reap_interval_seconds: float = number(default=5, low=0.1, high=3_600)
    retry_interval_seconds: float = number(default=5, low=0.1, high=3_600)


@attrs.frozen(kw_only=True)
class LimitsConfig:
    """`[limits]`: the largest payload and the largest batch body that are taken, in bytes (R27)."""

    payload_bytes: int = whole(default=MIB, low=1_024, high=16 * MIB)
    batch_body_bytes: int = whole(default=16 * MIB, low=MIB, high=64 * MIB)


@attrs.frozen(kw_only=True)
class WebhooksConfig:
    """`[webhooks]`: what a delivery may be, how old its signature, how many may come at one address, whose word is believed."""

    max_body_bytes: int = whole(default=5 * MIB, low=1_024, high=16 * MIB)
    tolerance_seconds: float = number(default=300, low=1, high=86_400)
    rate_per_second: float = number(default=50, low=0.1, high=100_000)
    burst: int = whole(default=500, low=1, high=1_000_000)
    trusted_proxies: tuple[Network, ...] = networks(at_most=NETWORKS_MAX)
    secret_key: str | None = secret(fault_in=key_fault)


@attrs.frozen(kw_only=True)
class Config:
    """All of it. `Config()` is the house without a configuration file."""

    server: ServerConfig = attrs.field(factory=ServerConfig)
    database: DatabaseConfig = attrs.field(factory=DatabaseConfig)
    queue: QueueConfig = attrs.field(factory=QueueConfig)
    limits: LimitsConfig = attrs.field(factory=LimitsConfig)
    webhooks: WebhooksConfig = attrs.field(factory=WebhooksConfig)
    adapters: tuple[AdapterConfig, ...] = ()


SECTIONS: Mapping[str, type[attrs.AttrsInstance]] = {
    "server": ServerConfig,
    "database": DatabaseConfig,
    "queue": QueueConfig,
    "limits": LimitsConfig,
    "webhooks": WebhooksConfig,
}
ARRAYS: Mapping[str, type[attrs.AttrsInstance]] = {"adapters": AdapterConfig}
"""Tables that may stand many times, written [[name]]."""


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """The configuration in `path`, or in ./switchboard.toml if that is there, or the defaults.

    `path` None means that no file was named. Relative paths inside the file are meant from the current directory.
    Raises ConfigError with every fault at once, a line for each: file, key, what is wrong, the nearest right key.
    """
    chosen = file_to_read(path)
    faults = Faults(file="(defaults)" if chosen is None else str(chosen))
    document = {} if chosen is None else config_toml.parse(chosen, faults)
    values = config_toml.read_sections(document, SECTIONS, environ, faults, arrays=ARRAYS)
    adapters = config_toml.read_array(document, "adapters", AdapterConfig, environ, faults)
    config = Config(
        server=ServerConfig(**values["server"]),
        database=DatabaseConfig(**values["database"]),
        queue=QueueConfig(**values["queue"]),
        limits=LimitsConfig(**values["limits"]),
        webhooks=WebhooksConfig(**values["webhooks"]),
        adapters=check_adapters([(label, AdapterConfig(**given)) for label, given in adapters], faults),
    )
    if config.limits.payload_bytes > config.limits.batch_body_bytes:
        faults.add("limits.payload_bytes", "must not be larger than `limits.batch_body_bytes`, which must hold it")
    faults.raise_if_any()
    return config


def file_to_read(path: Path | None) -> Path | None:
    """The file that `load(path, …)` reads; None where it is the defaults alone."""
    if path is not None:
        return path
    # lexists: a dangling link is a fault to tell, not a reason to start with another database than was configured.
    return DEFAULT_FILE if os.path.lexists(DEFAULT_FILE) else None

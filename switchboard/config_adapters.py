"""`[[adapters]]`: the brokers that are read from, and what is refused before any of them is (R19, R20)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import attrs

from switchboard.adapter import ENDPOINTS_PER_ADAPTER_MAX
from switchboard.config_options import choice, flag, name, names, optional_name, required_secret, whole, words
from switchboard.config_toml import Faults
from switchboard.ingestion import KEY_BYTES_MAX, SHA256_HEX_CHARS, key_prefix
from switchboard.pull.redis_url import RedisPlace, fault_in_redis_url, parse
from switchboard.todo import QUEUE_CHARS_MAX

SOURCE_CHARS_MAX: Final = 512
_PLACE_OF: Final = {"stream": "stream", "list": "list", "pubsub": "channel"}


@attrs.frozen(kw_only=True)
class AdapterConfig:
    """One adapter. Exactly one of `stream`, `list` and `channel` is there, as the transport says."""

    name: str = name()
    transport: str = choice(*_PLACE_OF)
    url: str = required_secret(fault_in=fault_in_redis_url)
    stream: str | None = words(default=None, at_most=SOURCE_CHARS_MAX)
    list: str | None = words(default=None, at_most=SOURCE_CHARS_MAX)
    channel: str | None = words(default=None, at_most=SOURCE_CHARS_MAX)
    group: str = words(default="switchboard", at_most=QUEUE_CHARS_MAX)
    endpoints: tuple[str, ...] = names(at_most=ENDPOINTS_PER_ADAPTER_MAX)
    queue: str | None = words(default=None, at_most=QUEUE_CHARS_MAX)
    enabled: bool = flag(default=True)
    body_field: str = words(default="payload", at_most=QUEUE_CHARS_MAX)
    consumer: str = words(default="switchboard", at_most=QUEUE_CHARS_MAX)
    claim_idle_seconds: int = whole(default=60, low=1, high=86_400)
    namespace: str | None = optional_name()
    accept_loss: bool = flag(default=False)

    @property
    def place(self) -> RedisPlace:
        """Where the broker is, and how to prove oneself to it."""
        return parse(self.url)

    @property
    def source_name(self) -> str:
        """The stream, list or channel."""
        return self.stream or self.list or self.channel or ""

    @property
    def todo_queue(self) -> str:
        """The queue of the todos: the source's name where none is given."""
        return self.queue or self.source_name

    @property
    def prefix(self) -> str:
        """What every idempotency key of this adapter begins with."""
        return key_prefix(self.source_name, self.namespace)

    @property
    def remembered_name(self) -> str:
        """What the house remembers the stream by, where it forgets entries: with its namespace, as the keys have it (R3)."""
        return self.prefix.removeprefix("redis:")


Labelled = Sequence[tuple[str, AdapterConfig]]


def check_adapters(adapters: Labelled, faults: Faults) -> tuple[AdapterConfig, ...]:
    """Adds what is wrong with them, each alone and between them; returns those that are right."""
    right: list[tuple[str, AdapterConfig]] = []
    for label, adapter in adapters:
        before = len(faults.lines)
        _check_alone(label, adapter, faults)
        if len(faults.lines) == before:
            right.append((label, adapter))
    _refuse_twins(right, faults, "name", lambda adapter: [adapter.name], "is the name of another adapter too")
    _refuse_twins(
        right,
        faults,
        "namespace",
        _keys_minted,
        "could mint the same idempotency keys, for endpoint {endpoint}, as adapter {owner}: give one of them a `namespace`",
    )
    _refuse_twins(
        right,
        faults,
        _PLACE_OF,
        _consumed,
        "is read by adapter {owner} already, and each would get a part of it: name several endpoints in one adapter",
    )
    return tuple(adapter for _, adapter in right)


def _check_alone(label: str, adapter: AdapterConfig, faults: Faults) -> None:
    wanted = _PLACE_OF[adapter.transport]
    for key in _PLACE_OF.values():
        given = getattr(adapter, key) is not None
        if given and key != wanted:
            faults.add(f"{label}.{key}", f"means nothing for transport {adapter.transport}, which takes `{wanted}`")
        elif not given and key == wanted:
            faults.add(f"{label}.{key}", f"is missing; transport {adapter.transport} needs it")
    if adapter.transport == "pubsub" and not adapter.accept_loss:
        faults.add(
            f"{label}.transport",
            "is pubsub, which loses every message that is published while nobody listens, and delivers none again: "
            "use stream or list for work, or write `accept_loss = true` beside it",
        )
    if adapter.accept_loss and adapter.transport != "pubsub":
        faults.add(f"{label}.accept_loss", f"is for transport pubsub only; {adapter.transport} loses nothing")
    if len(f"{adapter.prefix}:".encode()) + SHA256_HEX_CHARS > KEY_BYTES_MAX:
        faults.add(f"{label}.{wanted}", f"is too long: its idempotency keys would pass {KEY_BYTES_MAX} bytes")
    if len(adapter.todo_queue) > QUEUE_CHARS_MAX:
        faults.add(f"{label}.queue", f"is missing, and the name of the {wanted} is too long for one ({QUEUE_CHARS_MAX})")


def _keys_minted(adapter: AdapterConfig) -> list[Hashable]:
    # Entry ids and body hashes never look alike, so a stream and a list of one name cannot meet.
    kind = "id" if adapter.transport == "stream" else "hash"
    return [(kind, adapter.prefix, endpoint) for endpoint in adapter.endpoints]


def _consumed(adapter: AdapterConfig) -> list[Hashable]:
    if adapter.transport == "pubsub":
        return []
    return [(adapter.place.data(), adapter.source_name, adapter.group if adapter.transport == "stream" else None)]


def _refuse_twins(
    adapters: Labelled, faults: Faults, key: Any, traits: Callable[[AdapterConfig], list[Hashable]], what: str
) -> None:
    """Refuses each adapter that shares a trait with an earlier one; the first shared trait is told."""
    owners: dict[Hashable, str] = {}
    for label, adapter in adapters:
        twin = next((trait for trait in traits(adapter) if trait in owners), None)
        if twin is None:
            owners |= dict.fromkeys(traits(adapter), adapter.name)
            continue
        said = what.format(owner=owners[twin], endpoint=twin[-1] if isinstance(twin, tuple) else "")
        faults.add(f"{label}.{key if isinstance(key, str) else key[adapter.transport]}", said)

"""From an adapter's configuration to the way to its broker: the one place that knows every transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from switchboard.config_adapters import AdapterConfig
from switchboard.pull.redis_list import ListSettings, list_source
from switchboard.pull.redis_pubsub import ChannelSettings, pubsub_source
from switchboard.pull.redis_stream import StreamSettings, stream_source
from switchboard.pull.source import OpenSource


def redis_source(adapter: AdapterConfig, *, group_start: Callable[[], Awaitable[str]]) -> OpenSource:
    """Opens connections for one adapter. `group_start` tells where a lost consumer group of its stream starts again (R3)."""
    name, place, prefix, source = adapter.name, adapter.place, adapter.prefix, adapter.source_name
    if adapter.transport == "pubsub":
        return pubsub_source(ChannelSettings(adapter=name, place=place, channel=source, key_prefix=prefix))
    if adapter.transport == "list":
        return list_source(ListSettings(adapter=name, place=place, name=source, consumer=adapter.consumer, key_prefix=prefix))
    return stream_source(
        StreamSettings(
            adapter=name,
            place=place,
            stream=source,
            group=adapter.group,
            consumer=adapter.consumer,
            body_field=adapter.body_field,
            key_prefix=prefix,
            claim_idle_seconds=adapter.claim_idle_seconds,
            group_start=group_start,
        )
    )

"""JSON Schemas of what tools take and give, generated from the types that decode the one and encode the other.

Each stands alone, without references: not every client that reads a tool's schema follows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

Schema = dict[str, Any]

_REFERENCE: Final = "#/$defs/{name}"
_PREFIX: Final = _REFERENCE.format(name="")
_QUEUE_FIELDS: Final = frozenset({"queue", "queues"})


@cache
def schema_of(kind: type[msgspec.Struct]) -> Schema:
    """The schema of this type, self-contained. It is shared: whoever changes it copies it first."""
    (reference,), definitions = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    inlined: Schema = _inlined(reference, definitions)
    return inlined


def within_queues(schema: Schema, queues: Sequence[str]) -> Schema:
    """The same schema, for an endpoint that may use these queues only."""
    narrowed: Schema = _narrowed(schema, queues)
    return narrowed


def _inlined(value: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(definitions[value["$ref"].removeprefix(_PREFIX)], definitions)
    # The names of types are ours, and say nothing to whoever fills them in.
    return {name: _inlined(item, definitions) for name, item in value.items() if name != "title" or isinstance(item, dict)}


def _narrowed(value: Any, queues: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_narrowed(item, queues) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _of_queues(item, queues) if name in _QUEUE_FIELDS and isinstance(item, dict) else _narrowed(item, queues)
        for name, item in value.items()
    }


def _of_queues(schema: Any, queues: Sequence[str]) -> Any:
    """The schema of a field that names queues: every string in it is one of those."""
    if isinstance(schema, list):
        return [_of_queues(item, queues) for item in schema]
    if not isinstance(schema, dict):
        return schema
    narrowed = {name: _of_queues(item, queues) if name in ("anyOf", "items") else item for name, item in schema.items()}
    return narrowed | {"enum": list(queues)} if schema.get("type") == "string" else narrowed

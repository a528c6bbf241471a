"""What tools take and give, beside the protocol that carries it.

The SDK parses a request into Python's values and writes the response anew from such values. A payload would not survive that:
a long number, a name that stands twice or the spelling of a number is gone (R22), and a large one costs seconds of everybody's
time. So arguments are taken out of a request before the SDK reads it, and an answer is put into the response after it was
written, as the bytes that they are: the SDK sees no arguments, and a mark where the answer goes.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

import attrs
import msgspec
from msgspec import Raw

NOTHING: Final = b"{}"
_NULL: Final = b"null"
_CALL: Final = "tools/call"
_object: Final = msgspec.json.Decoder(dict[str, Raw])


@attrs.frozen(kw_only=True)
class Taken:
    """A request as the SDK gets it, its id and method, and the arguments that were taken out of it."""

    body: bytes = attrs.field(repr=False)
    id: str | None = None
    """Its JSON-RPC id as text: 7 and "7" are one to the SDK."""
    method: str = ""
    arguments: bytes = attrs.field(default=NOTHING, repr=False)


def take_arguments(body: bytes) -> Taken:
    """Takes a tool's arguments out of the request that calls it.

    What calls no tool, or is no request at all, stays as it is: that is for the SDK to answer.
    """
    as_it_is = Taken(body=body)
    try:
        envelope = _object.decode(body)
        as_it_is = attrs.evolve(as_it_is, method=msgspec.json.decode(envelope["method"], type=str))
        if "id" in envelope:
            as_it_is = attrs.evolve(as_it_is, id=str(msgspec.json.decode(envelope["id"], type=str | int)))
        if as_it_is.method != _CALL:
            return as_it_is
        params = _object.decode(envelope["params"])
    except (msgspec.MsgspecError, KeyError, RecursionError):
        return as_it_is
    given = bytes(params.get("arguments", _NULL)).strip()
    params["arguments"] = Raw(NOTHING)
    envelope["params"] = Raw(msgspec.json.encode(params))
    arguments = NOTHING if given == _NULL else given
    return attrs.evolve(as_it_is, body=msgspec.json.encode(envelope), arguments=arguments)


@attrs.frozen
class Mark:
    """Where in a response an answer goes. Nobody else can have written it."""

    text: str = attrs.field(factory=lambda: secrets.token_hex(16))

    def structured(self) -> dict[str, Any]:
        """What stands for the answer where it is structured."""
        return {"answer": self.text}

    def replaced(self, response: bytes, answer: bytes) -> bytes | None:
        """The response with the answer in it, structured and as text; None where the mark is not in it."""
        structured = re.compile(rb'\{\s*"answer"\s*:\s*"' + self.text.encode() + rb'"\s*\}')
        before, found, after = _parted(structured, response)
        if not found:
            return None
        quoted, text = b'"' + self.text.encode() + b'"', msgspec.json.encode(answer.decode())
        return before.replace(quoted, text) + answer + after.replace(quoted, text)


def _parted(pattern: re.Pattern[bytes], text: bytes) -> tuple[bytes, bool, bytes]:
    found = pattern.search(text)
    return (text, False, b"") if found is None else (text[: found.start()], True, text[found.end() :])

"""The numbered slot that a process holds, as the last beat told it (R31). No I/O."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Slots:
    """`mine` is this process's number; `live` are all that somebody holds now, `gone` those that nobody does any more."""

    mine: int
    live: frozenset[int]
    gone: frozenset[int]

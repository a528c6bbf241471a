"""A batch cut into rounds, so that the second word about the same thing meets what the first one left."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def rounds_of(keys: Sequence[Hashable | None]) -> list[list[int]]:
    """The places of `keys`, cut so that no key stands twice in a round; each round in order. None is never the same twice."""
    rounds: list[list[int]] = []
    times_named: dict[Hashable, int] = {}
    for place, key in enumerate(keys):
        earlier = 0 if key is None else times_named.get(key, 0)
        if key is not None:
            times_named[key] = earlier + 1
        if earlier == len(rounds):
            rounds.append([])
        rounds[earlier].append(place)
    return rounds

"""A queue of queues: batches are gathered one item from each key in turn, so that no key fills one while another waits."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items in order within their key, keys in turn. All of it synchronous: whoever waits, waits elsewhere."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[Hashable, deque[tuple[int, T]]] = OrderedDict()
        self._items = 0

    def __len__(self) -> int:
        return self._items

    def put(self, key: Hashable, weight: int, item: T) -> None:
        """Adds an item behind the others of its key. `weight` is its share of a batch."""
        self._by_key.setdefault(key, deque()).append((weight, item))
        self._items += 1

    def gather(self, weight_max: int) -> list[T]:
        """Takes the next batch: items of at most `weight_max` together, but always one if there is any."""
        batch: list[T] = []
        weight = 0
        while self._by_key:
            key, items = next(iter(self._by_key.items()))
            if batch and weight + items[0][0] > weight_max:
                break
            item_weight, item = items.popleft()
            weight += item_weight
            batch.append(item)
            if items:
                self._by_key.move_to_end(key)
            else:
                del self._by_key[key]
        self._items -= len(batch)
        return batch

"""The queue of queues that batches are gathered from: keys in turn, items in order, batches within their weight."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from switchboard.fair_queue import FairQueue

PUTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 12)), max_size=60)


def filled(*puts: tuple[str, int]) -> FairQueue[tuple[str, int]]:
    """A queue in which each item is its key and its number."""
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for number, (key, weight) in enumerate(puts):
        queue.put(key, weight, (key, number))
    return queue


def keys(batch: list[tuple[str, int]]) -> str:
    return "".join(key for key, _ in batch)


def test_items_of_one_key_come_in_order() -> None:
    """First in, first out."""
    queue = filled(*[("a", 1)] * 5)
    assert queue.gather(3) == [("a", 0), ("a", 1), ("a", 2)]
    assert queue.gather(3) == [("a", 3), ("a", 4)]


def test_keys_take_turns() -> None:
    """However many came first of one key."""
    queue = filled(*[("a", 1)] * 6, *[("b", 1)] * 2, ("c", 1))
    assert keys(queue.gather(9)) == "abcabaaaa"


def test_turns_go_on_in_the_next_batch() -> None:
    """The key that stood last in one batch does not begin the next."""
    queue = filled(*[("a", 1)] * 4, *[("b", 1)] * 4)
    assert keys(queue.gather(3)) == "aba"
    assert keys(queue.gather(3)) == "bab"
    assert keys(queue.gather(3)) == "ab"


def test_a_batch_stops_before_it_is_too_heavy() -> None:
    """The next item waits for the next batch, and is its first."""
    queue = filled(("a", 4), ("b", 4), ("a", 4))
    assert keys(queue.gather(10)) == "ab"
    assert keys(queue.gather(10)) == "a"


def test_one_item_always_goes() -> None:
    """One that is too heavy for any batch goes alone."""
    queue = filled(("a", 1_000), ("b", 1))
    assert keys(queue.gather(10)) == "a"
    assert keys(queue.gather(10)) == "b"


def test_an_empty_queue_gathers_nothing() -> None:
    """And says that it is empty."""
    queue = filled()
    assert queue.gather(10) == []
    assert not queue


def test_a_key_that_was_emptied_starts_behind_the_others() -> None:
    """Coming back at once does not give it the next turn."""
    queue = filled(("a", 1), ("b", 1), ("b", 1))
    assert keys(queue.gather(1)) == "a"
    queue.put("a", 1, ("a", 9))
    assert keys(queue.gather(9)) == "bab"


@given(PUTS, st.integers(1, 20))
def test_everything_comes_out_once_in_order_and_in_bounds(puts: list[tuple[str, int]], weight_max: int) -> None:
    """Whatever is put in: nothing lost, nothing twice, each key in order, each batch within its weight or a single item."""
    queue = filled(*puts)
    gathered: list[tuple[str, int]] = []
    while queue:
        before = len(queue)
        batch = queue.gather(weight_max)
        assert batch
        assert len(queue) == before - len(batch)
        weight = sum(puts[number][1] for _, number in batch)
        assert weight <= weight_max or len(batch) == 1
        gathered += batch
    assert Counter(gathered) == Counter((key, number) for number, (key, _) in enumerate(puts))
    order = defaultdict(list)
    for key, number in gathered:
        order[key].append(number)
    assert all(numbers == sorted(numbers) for numbers in order.values())


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_no_key_waits_for_more_than_one_item_of_each_other(counts: list[int]) -> None:
    """With equal weights, between two items of a key that still has some there is at most one of each other key."""
    names = "abcde"[: len(counts)]
    queue = filled(*[(name, 1) for name, count in zip(names, counts, strict=True) for _ in range(count)])
    order = keys(queue.gather(1_000))
    for name in names:
        places = [place for place, key in enumerate(order) if key == name]
        for earlier, later in pairwise(places):
            assert max(Counter(order[earlier + 1 : later]).values(), default=0) <= 1

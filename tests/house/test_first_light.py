"""The shortest way through the house: vend, push, claim, complete."""

from __future__ import annotations

from tests.houses import House


def test_a_todo_goes_all_the_way(house: House) -> None:
    """A vended agent pushes a todo, claims it, completes it, and reads what became of it."""
    agent = house.vend()
    pushed = agent.push(title="look at this", payload={"commit": "5703a6d"})
    (claimed,) = agent.claim(owner="w1")
    assert claimed["id"] == pushed["id"]
    assert claimed["payload"] == {"commit": "5703a6d"}
    reply = agent.verb("complete", claimed, result={"ok": True})
    assert reply.json()["todo"]["state"] == "done"
    found = agent.get(pushed)
    assert found["result"] == {"ok": True}
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["completed"]

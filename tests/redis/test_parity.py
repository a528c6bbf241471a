"""SPEC-0002 Adapter Interface: a push delivery and a pull delivery of the same logical event make the identical todo shape."""

from __future__ import annotations

from tests.houses import Opener
from tests.http.pushing import hook
from tests.redis.reading import ENDPOINT, stream, todos, until_state
from tests.redis.servers import RedisServer

ITS_OWN = {"id", "event_id", "source", "idempotency_key", "created_at", "updated_at"}
"""What says which of the two it is, and nothing more."""


BODIES = [b'{"order": 7, "text": "\\u00e9"}', b"not JSON at all", b"\xff\xfe", b'{"a": "\\u0000"}']


def test_push_and_pull_make_the_same_todo(open_house: Opener, redis_server: RedisServer) -> None:
    """Payload, state, queue, attempts and sizes alike, for bodies that can be kept as they are and for those that cannot."""
    house = open_house(adapters=[stream(redis_server)])
    agent = house.vend(ENDPOINT)
    until_state(house, "orders", "running")
    webhook = hook(house, "token", agent)
    for number, body in enumerate(BODIES, start=1):
        assert webhook.push(body).status_code == 202
        redis_server.client.xadd("orders", {"payload": body})
        todos(house, 2 * number)
        newest = agent.http.get("/v1/todos", params={"limit": 2}).json()["todos"]
        pushed, pulled = ({name: value for name, value in agent.get(todo).items() if name not in ITS_OWN} for todo in newest)
        assert pushed == pulled

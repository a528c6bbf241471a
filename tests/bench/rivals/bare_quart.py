"""quart-trio under Hypercorn, answering a constant to any JSON POST: the floor of the general stack.

python -m tests.bench.rivals.bare_quart PORT
"""

from __future__ import annotations

import sys
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart import request
from quart_trio import QuartTrio


def application() -> Any:
    """One route."""
    app = QuartTrio(__name__)

    async def answer() -> dict[str, object]:
        await request.get_json()
        return {"todo": {"id": "00000000-0000-0000-0000-000000000000", "state": "pending"}, "created": True}

    app.post("/v1/todos")(answer)
    return app


def main(port: int) -> None:
    """Serves until it is told to end."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = None
    trio.run(serve, application(), config)


if __name__ == "__main__":
    main(int(sys.argv[1]))

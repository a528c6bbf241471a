"""P4: one todo a request over HTTP, beside a bare quart-trio and a service written by hand on FastAPI, in the same rounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from tests.bench import servers
from tests.bench.figures import Figure, Report, alternate, ratios
from tests.bench.ground import Ground
from tests.bench.load import Served, Work
from tests.bench.venvs import NotInstalled

CONNECTIONS: Final = 64
SECONDS: Final = 4.0


def single_requests(ground: Ground, rounds: int) -> Report:
    """P4."""
    served: dict[str, list[Served]] = {}
    note = ""

    def measure(name: str, port: int, work: Work) -> float:
        answers = servers.load_on(port, work, connections=CONNECTIONS, seconds=SECONDS)
        served.setdefault(name, []).append(answers)
        return answers.requests_per_second

    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {
            "house": partial(measure, "house", stack.enter_context(servers.house(ground)), "lifecycle"),
            "bare quart-trio": partial(measure, "bare quart-trio", stack.enter_context(servers.bare_quart(ground)), "constant"),
        }
        try:
            port = stack.enter_context(servers.fastapi(ground))
            sides["FastAPI by hand"] = partial(measure, "FastAPI by hand", port, "lifecycle")
        except NotInstalled as missing:
            note = str(missing)
        found = alternate(rounds, sides)
    beside = {f"{name}, requests per second": rates for name, rates in found.items()}
    beside |= {f"{name}, p99 ms": tuple(each.p99_ms for each in answers) for name, answers in served.items()}
    goals = {"FastAPI by hand": 1.5, "bare quart-trio": 3.0}
    figures = [
        Figure(
            number="P4",
            what=f"HTTP: create, claim, complete, {CONNECTIONS} connections, of {rival}",
            values=ratios(found["house"], found[rival]),
            goal=goals[rival],
            beside={name: values for name, values in beside.items() if name.startswith(("house", rival))},
            note=note,
        )
        for rival in goals
        if rival in found
    ]
    return Report(figures=tuple(figures))

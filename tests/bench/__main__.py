"""Everything that is claimed to be fast, measured in one run, on an embedded PostgreSQL and a wheel's Redis.

    python -m tests.bench [--only P4,P5] [--rounds N] [--peers] [--scale] [--soak MINUTES] [--json FILE] [--plots DIR]

Floors and limits are measured in the same rounds as what is held against them. The machine is noisy: trust the ratios.
Exit 0 when every figure that has a goal is met, 1 when one is not or could not be measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from tests.bench import batches, curves, figures, held_snapshot, history, single_requests, soak, starting, svg, waiting
from tests.bench.figures import Report
from tests.bench.ground import Ground, ground
from tests.bench.machine import machine
from tests.bench.peers import side_by_side

ROUNDS = 3

Bench = Callable[[Ground], Report]


def main(words: Sequence[str]) -> int:
    """Runs what was asked for; prints the table."""
    asked = parse(words)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # so that every server is stopped on the way out
    began = time.monotonic()
    found: list[figures.Figure] = []
    drawn: list[figures.Curve] = []
    peers: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    on = machine()
    print(", ".join(f"{name} {value}" for name, value in on.items()), flush=True)
    with ground() as here:
        for name, bench in chosen(asked).items():
            started = time.monotonic()
            try:
                report = bench(here)
            except Exception as exc:  # noqa: BLE001 - one bench that breaks must not cost the others' minutes
                failed[name] = f"{type(exc).__name__}: {exc}"
                traceback.print_exc()
                continue
            found += report.figures
            drawn += report.curves
            print(f"-- {name}, {time.monotonic() - started:.0f} s", flush=True)
            print("\n".join(figures.lines(report.figures)), flush=True)
        if asked.peers:
            peers = side_by_side.measure(here, asked.rounds)
            print("\n".join(side_by_side.lines(peers)), flush=True)
            found += side_by_side.figures_of(peers)
    print(f"\n== all figures, {asked.rounds} rounds, {time.monotonic() - began:.0f} s")
    print("\n".join(figures.lines(found)))
    for name, why in failed.items():
        print(f"{name} could not be measured: {why}")
    write(asked, on, found, drawn, peers, words)
    return 0 if not failed and all(figure.met is not False for figure in found) else 1


def chosen(asked: argparse.Namespace) -> Mapping[str, Bench]:
    """The benches that were asked for, in the order in which they run."""
    rounds = asked.rounds
    sizes = history.LARGE if asked.scale else history.SMALL
    todos = held_snapshot.LARGE_TODOS if asked.scale else held_snapshot.SMALL_TODOS
    # At scale a round takes minutes.
    few = 1 if asked.scale else rounds
    benches: dict[str, Bench] = {
        "P1": partial(batches.engine_drain, rounds=rounds),
        "P2": partial(batches.engine_singles, rounds=rounds),
        "P5": partial(batches.enqueue, rounds=rounds),
        "P3": partial(batches.http_batches, rounds=rounds),
        "P4": partial(single_requests.single_requests, rounds=rounds),
        "P6": partial(history.history, rounds=rounds, sizes=sizes),
        "P7": partial(held_snapshot.held_snapshot, rounds=few, todos=todos),
        "P8": partial(waiting.pick_up, rounds=rounds),
        "P9": partial(waiting.fifty_attached, rounds=rounds),
        "P10": partial(waiting.redis_to_todos, rounds=rounds),
        "P11": partial(starting.starting, rounds=rounds),
        "curves": partial(curves.curves, rounds=rounds),
    }
    if asked.only:
        benches = {name: bench for name, bench in benches.items() if name in asked.only}
    if asked.soak:
        benches["soak"] = partial(soak.soak, minutes=asked.soak)
    return benches


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="P1 to P11 or curves, with commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="alternating rounds of each figure")
    parser.add_argument("--peers", action="store_true", help="other queues side by side (P12), installed on demand")
    parser.add_argument("--scale", action="store_true", help="1,000,000 terminal rows, 200,000 todos under an open transaction")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES", help="full load for so long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="everything, for tests.bench.readme")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="a picture of each curve")
    return parser.parse_args(words)


def write(
    asked: argparse.Namespace,
    on: Mapping[str, str],
    found: Sequence[figures.Figure],
    drawn: Sequence[figures.Curve],
    peers: Sequence[Mapping[str, Any]],
    words: Sequence[str],
) -> None:
    """The JSON and the pictures."""
    if asked.json:
        everything = {
            "command": " ".join(["python -m tests.bench", *words]),
            "rounds": asked.rounds,
            "machine": on,
            "figures": [figure.as_json() for figure in found],
            "curves": [attrs.asdict(curve) for curve in drawn],
            "peers": list(peers),
        }
        asked.json.write_text(json.dumps(everything, indent=1) + "\n")
    if asked.plots:
        asked.plots.mkdir(parents=True, exist_ok=True)
        for curve in drawn:
            (asked.plots / f"{curve.name}.svg").write_text(svg.plot(curve))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

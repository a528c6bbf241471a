"""Writes the README's performance section from the JSON of a run, between its two markers.

python -m tests.bench.readme FILE.json [PLOTS_DIR]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.bench.peers.side_by_side import COLUMNS
from tests.houses import ROOT

START: Final = "<!-- performance -->"
END: Final = "<!-- /performance -->"


def section(found: Mapping[str, Any], plots: Path | None) -> Iterator[str]:
    """The lines between the markers."""
    on = found["machine"]
    yield f"Measured by `{found['command']}` ({found['rounds']} alternating rounds; median, and from the least to the most)"
    yield f"on {on['cores']} cores of {on['processor']}, {on['memory']}, Python {on['Python']}, PostgreSQL {on['PostgreSQL']},"
    yield f"switchboard {on['switchboard']}; fsync and synchronous_commit on, client and server on the same cores."
    yield ""
    yield "| # | what | median | spread | goal | |"
    yield "|---|---|---|---|---|---|"
    for figure in found["figures"]:
        least, most = min(figure["values"]), max(figure["values"])
        unit = "" if figure["unit"] == "ratio" else f" {figure['unit']}"
        goal = "" if figure["goal"] is None else f"{'≤' if figure['at_most'] else '≥'} {figure['goal']:g}"
        met = {None: "", True: "met", False: "**not met**"}[figure["met"]]
        values = f"{figure['median']:.3g}{unit} | {least:.3g} to {most:.3g}"
        yield f"| {figure['number']} | {figure['what']} | {values} | {goal} | {met} |"
    if found["peers"]:
        yield ""
        yield "| side by side | " + " | ".join(COLUMNS.values()) + " | keeps; drops |"
        yield "|---" * (len(COLUMNS) + 2) + "|"
        for peer in found["peers"]:
            cells = [
                "-" if peer[key] is None else f"{peer[key]:,.3g}" if "ms" in key else f"{peer[key]:,.0f}" for key in COLUMNS
            ]
            yield f"| {peer['name']} {peer['version']} | " + " | ".join(cells) + f" | {peer['keeps']}; drops {peer['drops']} |"
    if plots:
        yield ""
        for curve in found["curves"]:
            yield f"![{curve['title']}]({plots.as_posix()}/{curve['name']}.svg)"


def main(source: Path, plots: Path | None) -> int:
    """Replaces the section; 1 where the README has no markers."""
    readme = ROOT / "README.md"
    before, marker, rest = readme.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not marker or not end:
        print(f"README.md has no {START} … {END}", file=sys.stderr)
        return 1
    lines = "\n".join(section(json.loads(source.read_text()), plots))
    readme.write_text(f"{before}{START}\n{lines}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))

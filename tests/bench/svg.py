"""A line plot as SVG: a few lines, two axes from zero, a legend. Readable on light and on dark ground."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final
from xml.sax.saxutils import escape

from tests.bench.figures import Curve

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 40, 90
COLOURS: Final = ("#2f6fdb", "#d9662b", "#3a9a5b", "#9a4fb5", "#c43b58", "#6b7280")
TICKS: Final = 5


def plot(curve: Curve) -> str:
    """The picture."""
    points = [point for line in curve.lines.values() for point in line]
    xs = [x for x, _ in points]
    y_max = rounded_up(max(y for _, y in points))
    x_place = axis(min(xs) if curve.x_logarithmic else 0.0, max(xs), LEFT, WIDTH - RIGHT, logarithmic=curve.x_logarithmic)
    y_place = axis(0.0, y_max, HEIGHT - BOTTOM, TOP, logarithmic=False)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(WIDTH / 2, 22, curve.title, size=15),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 36, curve.x),
        f'<g transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)">{text(0, 0, curve.y)}</g>',
    ]
    for step in range(TICKS + 1):
        y = y_max * step / TICKS
        parts.append(f'<path d="M{LEFT} {y_place(y):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(text(LEFT - 8, y_place(y) + 4, short(y), anchor="end"))
    parts += [text(x_place(x), HEIGHT - BOTTOM + 18, short(x)) for x in x_ticks(curve, xs)]
    for place, (name, line) in enumerate(curve.lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{x_place(x):.1f},{y_place(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x_place(x):.1f}" cy="{y_place(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        column, row = place % 2, place // 2
        left, top = LEFT + column * 310, HEIGHT - 34 + row * 18
        parts.append(f'<rect x="{left}" y="{top - 9}" width="18" height="4" fill="{colour}"/>')
        parts.append(text(left + 24, top - 3, name, anchor="start"))
    return "\n".join([*parts, "</svg>\n"])


def axis(least: float, most: float, start: float, end: float, *, logarithmic: bool) -> Callable[[float], float]:
    """From a value to its place in the picture."""
    scale: Callable[[float], float] = math.log10 if logarithmic else float
    low, high = scale(least), scale(most)
    span = (high - low) or 1.0
    return lambda value: start + (scale(value) - low) / span * (end - start)


def x_ticks(curve: Curve, xs: list[float]) -> list[float]:
    """The points themselves on a logarithmic axis, else even steps from zero."""
    if curve.x_logarithmic:
        return sorted(set(xs))
    return [max(xs) * step / TICKS for step in range(TICKS + 1)]


def rounded_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def short(value: float) -> str:
    """A number for an axis."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "middle") -> str:
    """Words in the picture."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'

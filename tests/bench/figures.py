"""What a bench says: figures with their rounds, their goals, and whatever was measured beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Figure:
    """One figure: a value for each round, in `unit` ("ratio" for one of two rates of the same round), and its goal.

    `beside` holds the absolute values it was made of, a value for each round by name; trust the ratios alone.
    """

    number: str
    what: str
    values: tuple[float, ...]
    goal: float | None = None
    at_most: bool = False
    unit: str = "ratio"
    beside: Mapping[str, tuple[float, ...]] = attrs.field(factory=dict)
    note: str = ""

    @property
    def median(self) -> float:
        """The value that is held against the goal."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.median <= self.goal if self.at_most else self.median >= self.goal

    def as_json(self) -> dict[str, Any]:
        """Everything, for the file that the README is made of."""
        return {
            **attrs.asdict(self),
            "median": self.median,
            "met": self.met,
        }


@attrs.frozen(kw_only=True)
class Curve:
    """How one thing goes with another: lines of (x, y) by name."""

    name: str
    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[tuple[float, float], ...]]
    x_logarithmic: bool = False


@attrs.frozen(kw_only=True)
class Report:
    """What one bench found."""

    figures: tuple[Figure, ...] = ()
    curves: tuple[Curve, ...] = ()


def alternate(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, tuple[float, ...]]:
    """Measures each side once a round, each of them first as often, so that all see the same neighbours."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in turned(list(sides), turn):
            found[name].append(sides[name]())
    return {name: tuple(values) for name, values in found.items()}


def turned(names: Sequence[str], turn: int) -> Sequence[str]:
    """The names in their order of this round."""
    start = turn % len(names)
    return [*names[start:], *names[:start]]


def ratios(some: Sequence[float], of: Sequence[float]) -> tuple[float, ...]:
    """Round by round."""
    return tuple(one / other for one, other in zip(some, of, strict=True))


def lines(figures: Sequence[Figure]) -> Iterator[str]:
    """The table: median, spread, goal; below each figure what it was made of."""
    yield f"{'':<6}{'what':<74}{'median':>9}  {'[min - max]':<19}{'goal':>9}"
    for figure in figures:
        yield (
            f"{figure.number:<6}{figure.what:<74}{shown(figure.median, figure.unit):>9}  {spread(figure):<19}"
            f"{goal(figure):>9}  {verdict(figure)}"
        )
        for name, values in figure.beside.items():
            yield f"{'':<8}{name}: {statistics.median(values):,.4g} [{min(values):,.4g} - {max(values):,.4g}]"
        if figure.note:
            yield f"{'':<8}{figure.note}"


def shown(value: float, unit: str) -> str:
    """A value with its unit."""
    return f"{value:.2f}" if unit == "ratio" else f"{value:.3g} {unit}"


def spread(figure: Figure) -> str:
    """From the least to the most."""
    return f"[{min(figure.values):.3g} - {max(figure.values):.3g}]"


def goal(figure: Figure) -> str:
    """The goal as a bound."""
    return "" if figure.goal is None else f"{'<=' if figure.at_most else '>='} {figure.goal:g}"


def verdict(figure: Figure) -> str:
    """One word."""
    return {None: "", True: "met", False: "NOT MET"}[figure.met]

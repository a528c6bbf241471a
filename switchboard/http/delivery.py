"""Whether what an answer hands over has arrived (R15): the layer around every application of the house.

An application finds the delivery of its request in its scope, and hands over there what its answer carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from switchboard.http.exchange import Application
from switchboard.todo import Todo

DELIVERY: Final = "switchboard.delivery"

Undo = Callable[[Sequence[Todo]], None]


@attrs.define(kw_only=True, eq=False)
class Delivery:
    """One answer under way: the claims that it carries, and what is to be done once it is over, however it ended."""

    undo: Undo = attrs.field(repr=False)
    over: Callable[[], None] | None = None
    _claims: list[Todo] = attrs.field(factory=list)
    _ended: bool = False

    def hand_over(self, claims: Sequence[Todo]) -> None:
        """These go with the answer. Where that is over already nobody hears of them, and they are undone at once."""
        if self._ended:
            self.undo(claims)
        else:
            self._claims += claims

    def end(self, *, arrived: bool) -> None:
        """The answer is over. Whatever it carried and did not bring is undone."""
        self._ended = True
        if self.over is not None:
            self.over()
        if self._claims and not arrived:
            self.undo(self._claims)


def delivery_of(scope: Mapping[str, Any]) -> Delivery:
    """The delivery of the request with this scope."""
    delivery: Delivery = scope[DELIVERY]
    return delivery


def delivering(app: Application, undo: Undo) -> Application:
    """`app`, with a delivery for each of its requests."""

    async def deliver(scope: Any, receive: Any, send: Any) -> None:
        delivery = scope[DELIVERY] = Delivery(undo=undo)
        try:
            await app(scope, receive, send)
        finally:
            delivery.end(arrived=scope["state"]["connection"].answered)

    return deliver

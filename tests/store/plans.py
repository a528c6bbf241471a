"""What Postgres really did: the plan, rows and buffers of every statement that the store sent, as it was sent.

`auto_explain` reports EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) of the prepared statements themselves, with the session's
settings and whichever plan the server kept for them. So nothing here is a copy of a statement, and none goes unseen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import attrs
from psycopg.errors import Diagnostic

from switchboard.database.border import Session
from switchboard.database.queries import SQL_DIRECTORY

Node = dict[str, Any]

_SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
    "client_min_messages": "notice",
}


@attrs.frozen
class Scan:
    """One scan of a table in one plan: through which index (or by place, `ctid`), and what it looked at."""

    table: str
    index: str | None
    rows_read: float
    buffers: int
    condition: str | None

    @property
    def reads_all(self) -> bool:
        """Whether it begins at one end of the table or index and goes on to the other."""
        return self.index is None or self.condition is None


@attrs.frozen
class Statement:
    """One statement as it ran: which file it is, all its scans, and what it cost."""

    name: str
    scans: tuple[Scan, ...]
    buffers: int
    writes: bool
    text: str = attrs.field(repr=False)

    @property
    def of_todos(self) -> list[Scan]:
        """Its scans of todos that were carried out."""
        return [scan for scan in self.scans if scan.table == "todos"]

    @property
    def rows_of_todos_read(self) -> float:
        """How many rows of todos it looked at, whether it kept them or not."""
        return sum(scan.rows_read for scan in self.of_todos)


class Explainer:
    """Collects every statement that a session runs inside the `with` block."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names = _names_by_first_line()
        self.statements: list[Statement] = []

    def __enter__(self) -> Explainer:
        self._session.execute("load 'auto_explain'")
        for name, value in _SETTINGS.items():
            self._session.execute("select set_config(%s, %s, false)", [name, value])
        self._session.add_notice_handler(self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if exc is None:
            # also brings the last plan, which the server tells of only when the next statement takes its portal
            self._session.execute("set auto_explain.log_min_duration = -1")
        self._session.remove_notice_handler(self._hear)

    def named(self, name: str) -> list[Statement]:
        """The statements of one file."""
        return [statement for statement in self.statements if statement.name == name]

    def _hear(self, diagnostic: Diagnostic) -> None:
        said = diagnostic.message_primary or ""
        if not said.startswith("duration:"):
            return
        plan = json.loads(said[said.index("{") :])
        text = plan["Query Text"]
        name = self._names.get(text.splitlines()[0])
        if name is None:
            return  # the test's own
        root = plan["Plan"]
        nodes = list(_nodes(root))
        self.statements.append(
            Statement(
                name=name,
                scans=tuple(_scan(node) for node in nodes if "Relation Name" in node and "Scan" in node["Node Type"]),
                buffers=_buffers(root),
                writes=any(node["Node Type"] == "ModifyTable" for node in nodes),
                text=json.dumps(root, indent=1),
            )
        )


def _names_by_first_line() -> dict[str, str]:
    directory = SQL_DIRECTORY / "queries"
    files = sorted(directory.rglob("*.sql"))
    names = {path.read_text().splitlines()[0]: str(path.relative_to(directory).with_suffix("")) for path in files}
    assert len(names) == len(files), "each statement opens with a sentence of its own"
    return names


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _scan(node: Node) -> Scan:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return Scan(
        table=node["Relation Name"],
        index="ctid" if node["Node Type"] == "Tid Scan" else node.get("Index Name"),
        rows_read=(node["Actual Rows"] + removed) * node["Actual Loops"],
        buffers=_buffers(node),
        condition=node.get("Index Cond") or node.get("TID Cond"),
    )


def _buffers(node: Node) -> int:
    return int(node.get("Shared Hit Blocks", 0)) + int(node.get("Shared Read Blocks", 0))

"""Where the SQL is: one statement a file below `sql/queries`, read once when the module that runs it is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SQL_DIRECTORY: Final = Path(__file__).resolve().parents[2] / "sql"
MIGRATIONS: Final = SQL_DIRECTORY / "migrations"


def load(name: str) -> bytes:
    """The text of `sql/queries/<noun>/<verb>.sql`, as bytes: psycopg takes those as a query that nobody interpolated."""
    return (SQL_DIRECTORY / "queries" / f"{name}.sql").read_bytes()

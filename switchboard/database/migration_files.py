"""Which migration comes next, decided from the files and the ledger alone. Forward only: there is no way back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import attrs

from switchboard.errors import StartError

_NAME = re.compile(r"(\d{4})_[a-z0-9_]{1,80}\.sql")


@attrs.frozen(kw_only=True)
class Migration:
    """One file: `version` 1 to 9999 from its name, `sql` as it is run, `sha256` of that in hexadecimal."""

    version: int
    name: str
    sql: bytes = attrs.field(repr=False)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql).hexdigest()


@attrs.frozen(kw_only=True)
class Applied:
    """One row of the ledger."""

    version: int
    name: str
    sha256: str


def read_migrations(directory: Path) -> list[Migration]:
    """The migrations in `directory`, in order. Raises StartError for a gap, a wrong name, or none at all."""
    try:
        paths = sorted(directory.glob("*.sql"))
        files = [_read(path) for path in paths]
    except OSError as exc:
        raise StartError(f"The migration {exc.filename} cannot be read: {exc.strerror}.") from exc
    if not files:
        raise StartError(f"There are no migrations in {directory}: this installation is incomplete, install it again.")
    for expected, file in enumerate(files, start=1):
        if file.version != expected:
            raise StartError(
                f"Migration {expected:04d} is missing in {directory}, or there twice (next is {file.name}): "
                "this installation is damaged, install it again."
            )
    return files


def next_migration(files: Sequence[Migration], ledger: Sequence[Applied]) -> Migration | None:
    """The migration to apply now; None where the database is up to date.

    Raises StartError where ledger and files tell different stories: going on could only make it worse.
    """
    newest = max((row.version for row in ledger), default=0)
    if newest > len(files):
        raise StartError(
            f"This database is at {newest}, this switchboard knows up to {len(files)}: start the newer switchboard."
        )
    for file, row in zip(files, sorted(ledger, key=lambda row: row.version), strict=False):
        if row.version != file.version:
            raise StartError(
                f"The ledger of this database lacks migration {file.version} ({file.name}), but has {newest}: somebody "
                "removed the row. Restore the database from a backup, or put the row back if the migration did happen."
            )
        if row.name != file.name:
            raise StartError(
                f"Migration {file.version} was applied as {row.name}, and its file is now called {file.name}: "
                "give it its old name back; a change of the schema is a new file."
            )
        if row.sha256 != file.sha256:
            raise StartError(
                f"The migration {file.name} was edited after it was applied to this database: put it back as it was; "
                "a change of the schema is a new file."
            )
    return files[len(ledger)] if len(ledger) < len(files) else None


def _read(path: Path) -> Migration:
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise StartError(f"{path} is not named like a migration (NNNN_name.sql, lower case): rename or remove it.")
    # A checkout on Windows may have given the lines another end; that is no edit.
    return Migration(version=int(named[1]), name=path.name, sql=path.read_bytes().replace(b"\r\n", b"\n"))

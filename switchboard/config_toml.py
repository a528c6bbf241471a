"""From a TOML file to checked values, with every fault told at once (C57)."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import attrs

from switchboard.config_options import READER, RefusedError, kind_of
from switchboard.errors import ConfigError
from switchboard.todo import ENDPOINT_NAME

FILE_BYTES_MAX = 1_048_576  # a configuration is a few hundred lines; more is the wrong file
FAULTS_SHOWN_MAX = 50
KEY_CHARACTERS_SHOWN_MAX = 60
TABLES_MAX = 100
# difflib's ratio from which a name counts as a slip of the pen. Options are long: `lease_ttll` is 0.52 near to
# `lease_seconds`. Tables are short words, and `adapters` is 0.5 near to `database`, which would only mislead.
OPTION_NEARNESS_MIN = 0.5
TABLE_NEARNESS_MIN = 0.7

Sections = Mapping[str, type[attrs.AttrsInstance]]


@attrs.define(kw_only=True)
class Faults:
    """What was found wrong in one file, in the order in which it was met."""

    file: str
    lines: list[str] = attrs.field(factory=list)

    def add(self, key: str, what: str) -> None:
        self.lines.append(f"{self.file}: `{_shown(key)}` {what}")

    def add_about_file(self, what: str) -> None:
        self.lines.append(f"{self.file}: {what}")

    def raise_if_any(self) -> None:
        """Raises ConfigError with one line for each fault."""
        if not self.lines:
            return
        hidden = len(self.lines) - FAULTS_SHOWN_MAX
        more = [f"{self.file}: and {hidden} more"] if hidden > 0 else []
        raise ConfigError("\n".join(self.lines[:FAULTS_SHOWN_MAX] + more))


def parse(path: Path, faults: Faults) -> dict[str, Any]:
    """The TOML document in `path`; a BOM and CRLF are fine. Raises ConfigError, since nothing can be said beyond it."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            faults.add_about_file(f"is larger than {FILE_BYTES_MAX} bytes, so it is not a configuration")
            faults.raise_if_any()
        return tomllib.loads(raw.decode("utf-8-sig"))
    except FileNotFoundError:
        faults.add_about_file("there is no such file; name another with --config, or leave it out for the defaults")
    except OSError as exc:
        faults.add_about_file(f"cannot be read: {exc.strerror}")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        faults.add_about_file(f"is not UTF-8 (line {line}); save it as UTF-8")
    except RecursionError:
        faults.add_about_file("is nested too deeply to be a configuration")
    except ValueError as exc:
        # tomllib names line and column, and quotes no value; an integer of 5,000 digits is a bare ValueError.
        where = str(exc) if isinstance(exc, tomllib.TOMLDecodeError) else "a number is far too long"
        faults.add_about_file(f"is not TOML: {where}")
    faults.raise_if_any()
    raise AssertionError("unreachable: every branch above adds a fault")


def read_sections(
    document: Mapping[str, Any], sections: Sections, environ: Mapping[str, str], faults: Faults, *, arrays: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """The checked values by section and key, ready for the sections' constructors. Faults are added, not raised.

    `arrays` are the tables that may stand many times, written [[name]]: `read_array` reads those.
    """
    for name, value in document.items():
        if name not in sections and name not in arrays:
            faults.add(name, _unknown_at_top(name, value, sections))
    return {name: _read_section(name, document.get(name, {}), sections, environ, faults) for name in sections}


def read_array(
    document: Mapping[str, Any], name: str, kind: type[attrs.AttrsInstance], environ: Mapping[str, str], faults: Faults
) -> list[tuple[str, dict[str, Any]]]:
    """The checked values of each table written [[name]], with the word that faults name it by.

    A table in which something is wrong is told and left out.
    """
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        faults.add(name, f"must be tables, each written [[{name}]], not {kind_of(tables)}")
        return []
    if len(tables) > TABLES_MAX:
        faults.add(name, f"must not stand more than {TABLES_MAX} times")
        return []
    read: list[tuple[str, dict[str, Any]]] = []
    for place, table in enumerate(tables):
        own = table.get("name")
        label = f"{name}.{own}" if isinstance(own, str) and ENDPOINT_NAME.fullmatch(own) else f"{name}[{place}]"
        before = len(faults.lines)
        values = _read_table(label, table, kind, environ, faults)
        if len(faults.lines) == before:
            read.append((label, values))
    return read


def _read_table(
    label: str, table: Mapping[str, Any], kind: type[attrs.AttrsInstance], environ: Mapping[str, str], faults: Faults
) -> dict[str, Any]:
    fields = attrs.fields_dict(kind)
    known = {key: key for key in fields}
    for key in table:
        if key not in fields:
            faults.add(f"{label}.{key}", "is not a known option" + _nearest(key, known))
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key not in table:
            if field.default is attrs.NOTHING:
                faults.add(f"{label}.{key}", "is missing")
            continue
        try:
            values[key] = field.metadata[READER](table[key], environ)
        except RefusedError as exc:
            faults.add(f"{label}.{key}", str(exc))
    return values


def _read_section(name: str, table: object, sections: Sections, environ: Mapping[str, str], faults: Faults) -> dict[str, Any]:
    if not isinstance(table, dict):
        faults.add(name, f"must be a table, written [{name}], not {kind_of(table)}")
        table = {}
    values: dict[str, Any] = {}
    fields = attrs.fields_dict(sections[name])
    for key in table:
        if key not in fields:
            faults.add(f"{name}.{key}", _unknown_in_section(name, key, sections))
    for key, field in fields.items():
        # A folder is read even where the file is silent: the environment may speak for it.
        given = table.get(key, str(field.default) if isinstance(field.default, Path) else None)
        if given is None:
            continue
        try:
            values[key] = field.metadata[READER](given, environ)
        except RefusedError as exc:
            faults.add(f"{name}.{key}", str(exc))
    return values


def _unknown_at_top(name: str, value: object, sections: Sections) -> str:
    if isinstance(value, dict | list):
        tables = {table: f"[{table}]" for table in sections}
        return "is not a known table" + _nearest(name, tables, nearness_min=TABLE_NEARNESS_MIN)
    homes = _homes(name, sections)
    return f"belongs in {homes}" if homes else "is not a known option" + _nearest(name, _paths(sections))


def _unknown_in_section(section: str, key: str, sections: Sections) -> str:
    if key in sections:
        return f"stands inside [{section}]; [{key}] is a table of its own at the top level"
    homes = _homes(key, sections)
    if homes:
        return f"belongs in {homes}"
    here = {name: f"{section}.{name}" for name in attrs.fields_dict(sections[section])}
    return "is not a known option" + (_nearest(key, here) or _nearest(key, _paths(sections)))


def _homes(key: str, sections: Sections) -> str:
    return " or ".join(f"[{name}]" for name, kind in sections.items() if key in attrs.fields_dict(kind))


def _paths(sections: Sections) -> dict[str, str]:
    return {key: f"{name}.{key}" for name, kind in sections.items() for key in attrs.fields_dict(kind)}


def _nearest(name: str, known: Mapping[str, str], *, nearness_min: float = OPTION_NEARNESS_MIN) -> str:
    """`; did you mean …?` where a known name is near, else nothing. Names are compared without regard to case."""
    matches = difflib.get_close_matches(name.lower()[:KEY_CHARACTERS_SHOWN_MAX], known, n=1, cutoff=nearness_min)
    return f"; did you mean `{known[matches[0]]}`?" if matches else ""


def _shown(key: str) -> str:
    """A key as one short printable word: TOML allows line breaks and a megabyte in a quoted one."""
    printable = "".join(character if character.isprintable() else "?" for character in key)
    return printable if len(printable) <= KEY_CHARACTERS_SHOWN_MAX else printable[:KEY_CHARACTERS_SHOWN_MAX] + "…"

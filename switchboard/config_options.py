"""What an option of the configuration may be: its default and its bounds, in one place, next to its name.

An option is an attrs field that carries its reader: a function that takes what TOML holds and the environment, and
returns the value or refuses it. Refusals are collected by `config_toml`; none ever repeats a secret (R28).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

import attrs

from switchboard.todo import ENDPOINT_NAME

Network = IPv4Network | IPv6Network
Reader = Callable[[object, Mapping[str, str]], object]

READER = "reader"  # the key of a field's metadata under which its reader lies
TEXT_CHARACTERS_MAX = 4_096  # PATH_MAX on Linux; a host name is far shorter
SECRET_BYTES_MAX = 65_536  # a file larger than this is not a secret, but the wrong file

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class RefusedError(Exception):
    """Why a value is not taken, as the end of a sentence that starts with its key. Never repeats a secret."""


def whole(*, default: int, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both allowed. `true` and `5.0` are none."""

    def read(value: object, _environ: Mapping[str, str]) -> int:
        # bool is a subclass of int, and nobody who writes `port = true` means port 1.
        if type(value) is not int:
            raise RefusedError(f"must be a whole number from {low} to {high}, not {kind_of(value)}")
        if not low <= value <= high:
            raise RefusedError(f"must be from {low} to {high}, not {_shown(value)}")
        return value

    return attrs.field(default=default, metadata={READER: read})


def number(*, default: float, low: float, high: float) -> float:
    """A number from `low` to `high`, both allowed; whole numbers are taken too. NaN and infinity are refused."""

    def read(value: object, _environ: Mapping[str, str]) -> float:
        if type(value) is not int and type(value) is not float:
            raise RefusedError(f"must be a number from {low:g} to {high:g}, not {kind_of(value)}")
        # Written so that NaN, which compares false with everything, is refused too.
        if not low <= value <= high:
            raise RefusedError(f"must be from {low:g} to {high:g}, not {_shown(value)}")
        return float(value)

    return attrs.field(default=float(default), metadata={READER: read})


def text(*, default: str) -> str:
    """Printable text that is not empty and has no blanks, such as a host name."""

    def read(value: object, _environ: Mapping[str, str]) -> str:
        checked = _checked_text(value)
        if any(character.isspace() for character in checked):
            raise RefusedError("must not contain blanks")
        return checked

    return attrs.field(default=default, metadata={READER: read})


def folder(*, default: str, environment_name: str) -> Path:
    """A directory; a relative one is meant from the current directory.

    Where `environment_name` is set (systemd's `$STATE_DIRECTORY`), it wins: its first entry, if it lists several.
    """

    def read(value: object, environ: Mapping[str, str]) -> Path:
        chosen = _checked_text(value)
        from_environment = environ.get(environment_name, "").split(":")[0]
        return Path(from_environment or chosen)

    return attrs.field(default=Path(default), metadata={READER: read})


def secret(*, fault_in: Callable[[str], str | None]) -> str | None:
    """A secret or nothing: a string, `{ env = "NAME" }` or `{ file = "PATH" }`. Never part of a repr.

    `fault_in` says what is wrong with the value, without repeating any of it, or None.
    """

    def read(value: object, environ: Mapping[str, str]) -> str:
        found, source = _secret_and_source(value, environ)
        if not found:
            raise RefusedError(f"is empty{source}")
        fault = fault_in(found)
        if fault is not None:
            raise RefusedError(f"{fault}{source}")
        return found

    field: str | None = attrs.field(default=None, repr=False, metadata={READER: read})
    return field


def required_secret(*, fault_in: Callable[[str], str | None]) -> str:
    """The same, where there must be one."""
    optional: Any = secret(fault_in=fault_in)
    field: str = attrs.field(repr=False, metadata=dict(optional.metadata))
    return field


def flag(*, default: bool) -> bool:
    """`true` or `false`, and nothing that only looks like it."""

    def read(value: object, _environ: Mapping[str, str]) -> bool:
        if not isinstance(value, bool):
            raise RefusedError(f"must be true or false, not {kind_of(value)}")
        return value

    return attrs.field(default=default, metadata={READER: read})


def choice(*words: str) -> str:
    """One of these words; there must be one."""

    def read(value: object, _environ: Mapping[str, str]) -> str:
        if not isinstance(value, str) or value not in words:
            raise RefusedError(f"must be one of {', '.join(words)}")
        return value

    field: str = attrs.field(metadata={READER: read})
    return field


def name() -> str:
    """A name as endpoints and adapters have them; there must be one."""
    field: str = attrs.field(metadata={READER: _read_name})
    return field


def optional_name() -> str | None:
    """The same, or nothing."""
    field: str | None = attrs.field(default=None, metadata={READER: _read_name})
    return field


def names(*, at_most: int) -> tuple[str, ...]:
    """A list of 1 to `at_most` different names."""

    def read(value: object, environ: Mapping[str, str]) -> tuple[str, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= at_most:
            raise RefusedError(f"must be a list of 1 to {at_most} names")
        read_names = tuple(_read_name(item, environ) for item in value)
        if len(set(read_names)) < len(read_names):
            raise RefusedError("names one of them twice")
        return read_names

    field: tuple[str, ...] = attrs.field(metadata={READER: read})
    return field


def networks(*, at_most: int) -> tuple[Network, ...]:
    """A list of up to `at_most` addresses or networks, such as `10.0.0.0/8`; none where absent."""

    def read(value: object, _environ: Mapping[str, str]) -> tuple[Network, ...]:
        if not isinstance(value, list) or len(value) > at_most:
            raise RefusedError(f"must be a list of at most {at_most} networks")
        return tuple(map(_network, value))

    field: tuple[Network, ...] = attrs.field(default=(), metadata={READER: read})
    return field


def _network(value: object) -> Network:
    fault = 'must be a list of addresses or networks in quotes, such as "10.0.0.0/8"'
    if not isinstance(value, str):
        raise RefusedError(fault)
    try:
        return ip_network(value)
    except ValueError:
        raise RefusedError(fault) from None


def words(*, default: str | None, at_most: int) -> Any:
    """Printable text of 1 to `at_most` characters, blanks allowed, such as the name of a stream; None where absent."""

    def read(value: object, _environ: Mapping[str, str]) -> str:
        if not isinstance(value, str):
            raise RefusedError(f"must be a string, not {kind_of(value)}")
        if not 1 <= len(value) <= at_most or not value.isprintable():
            raise RefusedError(f"must be 1 to {at_most} printable characters")
        return value

    return attrs.field(default=default, metadata={READER: read})


def _read_name(value: object, _environ: Mapping[str, str]) -> str:
    if not isinstance(value, str) or not ENDPOINT_NAME.fullmatch(value):
        raise RefusedError("must be a name: 1 to 63 of a-z, 0-9, _ and -, the first a letter or a digit")
    return value


def visible_token_fault(value: str) -> str | None:
    """A bearer token travels in an HTTP header: 1 to 512 visible ASCII characters."""
    if len(value) <= 512 and all("!" <= character <= "~" for character in value):
        return None
    return "must be 1 to 512 visible ASCII characters without blanks"


def key_fault(value: str) -> str | None:
    """A key to seal with is 32 to 512 visible ASCII characters."""
    if 32 <= len(value) <= 512 and visible_token_fault(value) is None:
        return None
    return "must be 32 to 512 visible ASCII characters without blanks"


def kind_of(value: object) -> str:
    """What a TOML value is, in the words of someone who wrote it."""
    kinds = {bool: "true or false", int: "a whole number", float: "a number with a fraction", str: "a string"}
    kinds |= {list: "an array", dict: "a table"}
    return kinds.get(type(value), "a date or time")


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError(f"must be a string, not {kind_of(value)}")
    if not value or len(value) > TEXT_CHARACTERS_MAX or not value.isprintable():
        raise RefusedError(f"must be 1 to {TEXT_CHARACTERS_MAX} printable characters")
    return value


def _secret_and_source(value: object, environ: Mapping[str, str]) -> tuple[str, str]:
    """The secret, and where it came from as the end of a sentence."""
    if isinstance(value, str):
        return value, ""
    if not isinstance(value, dict):
        raise RefusedError(f'must be a string, {{ env = "NAME" }} or {{ file = "PATH" }}, not {kind_of(value)}')
    name = next(iter(value), None)
    if len(value) != 1 or name not in {"env", "file"} or not isinstance(value[name], str) or not value[name]:
        raise RefusedError('must be a string, { env = "NAME" } or { file = "PATH" }, with one of the two and no more')
    if name == "env":
        return _from_environment(value[name], environ)
    return _from_file(value[name])


def _from_environment(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    # A name that cannot be one is not repeated: someone may have put the secret itself here.
    if not _ENVIRONMENT_NAME.fullmatch(name):
        raise RefusedError("names with `env` what cannot be an environment variable (letters, digits and _)")
    if name not in environ:
        raise RefusedError(f"wants the environment variable {name}, which is not set")
    return environ[name], f" (environment variable {name})"


def _from_file(name: str) -> tuple[str, str]:
    # The same care: a URL with a password is no path.
    if "://" in name or not name.isprintable():
        raise RefusedError("names with `file` what is not a path")
    try:
        with Path(name).open("rb") as file:
            raw = file.read(SECRET_BYTES_MAX + 1)
    except OSError as exc:
        raise RefusedError(f"wants the file {name}, which cannot be read: {exc.strerror}") from exc
    if len(raw) > SECRET_BYTES_MAX:
        raise RefusedError(f"wants the file {name}, which is over {SECRET_BYTES_MAX} bytes and no secret")
    try:
        held = raw.decode("utf-8")
    except UnicodeDecodeError:
        # `from None`: the exception holds the bytes of the secret.
        raise RefusedError(f"wants the file {name}, which is not UTF-8") from None
    return held.removesuffix("\n").removesuffix("\r"), f" (file {name})"


def _shown(value: float) -> str:
    """A number as it was written, unless it is absurdly long."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"a number of {int(math.log10(abs(value))) + 1} digits"
    return str(value)

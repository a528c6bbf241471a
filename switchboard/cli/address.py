"""Where the running house is and what opens it: command line, else environment, else the configuration of the house."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

from switchboard import config_toml
from switchboard.cli.arguments import Arguments
from switchboard.cli.failures import CommandError, UsageError
from switchboard.cli.grammar import PROGRAM
from switchboard.config import ServerConfig, file_to_read
from switchboard.config_options import visible_token_fault
from switchboard.config_toml import Faults
from switchboard.loopback import on_loopback

URL_VARIABLE: Final = "SWITCHBOARD_URL"
TOKEN_VARIABLE: Final = "SWITCHBOARD_TOKEN"  # noqa: S105 - the name of a variable, not a token
CREDENTIAL_VARIABLE: Final = "SWITCHBOARD_CREDENTIAL"
ADDRESS_FILE: Final = "address"
TOKEN_FILE: Final = "operator-token"  # noqa: S105 - the name of a file
FILE_BYTES_MAX: Final = 4_096


@attrs.frozen(kw_only=True)
class House:
    """A running house as a command reaches it. `…_from` says where the value was found, for whoever must change it."""

    url: str
    url_from: str
    token: str = attrs.field(repr=False)
    token_from: str

    @property
    def on_loopback(self) -> bool:
        """Whether it is on this machine, where no proxy has any business."""
        return on_loopback(self.url)


def find_house(args: Arguments, environ: Mapping[str, str]) -> House:
    """The house that `args` means.

    Raises UsageError where a given address or token cannot be one, ConfigError where the configuration is wrong, and
    CommandError where the house has left no token or no address.
    """
    url, url_from = _given(args.url, "--url", environ, URL_VARIABLE)
    token, token_from = _given(args.token, "--token", environ, TOKEN_VARIABLE)
    if url is None or token is None:
        server = _server(args.config, environ, token_wanted=token is None)
        if token is None:
            token, token_from = _token(server)
        if url is None:
            url, url_from = _url(server)
    fault = visible_token_fault(token) if token else "is empty"
    if fault is not None:
        raise UsageError(f"The operator token from {token_from} {fault}.")
    checked = _checked(url, url_from, secret_variable=TOKEN_VARIABLE)
    return House(url=checked, url_from=url_from, token=token, token_from=token_from)


def find_url(args: Arguments, environ: Mapping[str, str]) -> tuple[str, str]:
    """The address of the house that `args` means, for an agent, and where it was found. Raises as `find_house` does."""
    url, url_from = _given(args.url, "--url", environ, URL_VARIABLE)
    if url is None:
        url, url_from = _url(_server(args.config, environ, token_wanted=False))
    return _checked(url, url_from, secret_variable=CREDENTIAL_VARIABLE), url_from


def find_credential(environ: Mapping[str, str]) -> str:
    """An agent's credential. Raises UsageError where the environment holds none that could be one."""
    credential = environ.get(CREDENTIAL_VARIABLE)
    if not credential:
        raise UsageError(
            f"There is no credential: put one that `{PROGRAM} endpoint vend NAME` printed into {CREDENTIAL_VARIABLE}."
        )
    fault = visible_token_fault(credential)
    if fault is not None:
        raise UsageError(f"The credential from {CREDENTIAL_VARIABLE} {fault}.")
    return credential


def _given(option: str | None, name: str, environ: Mapping[str, str], variable: str) -> tuple[str | None, str]:
    if option is not None:
        return option, name
    # A variable that is set to nothing counts as not set, as in every shell script.
    return environ.get(variable) or None, variable


def _server(path: Path | None, environ: Mapping[str, str], *, token_wanted: bool) -> ServerConfig:
    """The `[server]` table alone: the operator's shell need not have the database's secrets to talk to the house."""
    chosen = file_to_read(path)
    faults = Faults(file="(defaults)" if chosen is None else str(chosen))
    table = {} if chosen is None else config_toml.parse(chosen, faults).get("server", {})
    if isinstance(table, dict) and not token_wanted:
        table.pop("operator_token", None)
    values = config_toml.read_sections({"server": table}, {"server": ServerConfig}, environ, faults)
    faults.raise_if_any()
    return ServerConfig(**values["server"])


def _token(server: ServerConfig) -> tuple[str, str]:
    if server.operator_token is not None:
        return server.operator_token, "server.operator_token of the configuration"
    path = (server.state_dir / TOKEN_FILE).absolute()
    try:
        return _small_file(path), f"the file {path}"
    except FileNotFoundError as exc:
        raise CommandError(
            f"There is no operator token at {path}: start the house with `{PROGRAM} serve`, "
            f"or name its configuration with --config, or give --url and {TOKEN_VARIABLE}."
        ) from exc
    except OSError as exc:
        raise CommandError(
            f"The operator token {path} cannot be read: {exc.strerror}. "
            f"Run this as the user of the house, or give the token with {TOKEN_VARIABLE}."
        ) from exc


def _url(server: ServerConfig) -> tuple[str, str]:
    """The address that the running house wrote down, which is right for port 0 too; else the configured one."""
    path = (server.state_dir / ADDRESS_FILE).absolute()
    try:
        return _small_file(path), f"the file {path}"
    except FileNotFoundError as exc:
        if server.port == 0:
            raise CommandError(
                f"The house has not said where it listens (server.port is 0, and there is no {path}): "
                f"start it with `{PROGRAM} serve`, or give --url."
            ) from exc
    except OSError as exc:
        raise CommandError(f"The address of the house, {path}, cannot be read: {exc.strerror}. Give it with --url.") from exc
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{host}:{server.port}", "the configuration"


def _small_file(path: Path) -> str:
    # As the house reads its secrets: no link is followed, and a pipe in its place does not hold us.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, FILE_BYTES_MAX).decode("ascii", "replace").removesuffix("\n")
    finally:
        os.close(descriptor)


def _checked(url: str, url_from: str, *, secret_variable: str) -> str:
    """`url` without a slash at its end; an address that means "every interface" becomes loopback.

    Raises UsageError. The url is repeated only where it can hold no password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"The address from {url_from} holds a user name or a secret; give that with {secret_variable}.")
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment or not url.isprintable():
        raise UsageError(f"The address from {url_from} is none: it looks like http://127.0.0.1:8080.")
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not listened on
    host = everywhere.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"

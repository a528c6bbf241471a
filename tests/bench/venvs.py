"""Virtual environments for what is measured beside the house: each has only its own packages, and is made once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

INSTALL_SECONDS_MAX: Final = 300
OTHER_PYTHONS: Final = ("python3.14", "python3.13", "python3.12")


class NotInstalled(Exception):
    """A peer that this machine cannot have."""


def cache() -> Path:
    """Where they are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "switchboard-bench"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def python_with(name: str, packages: Sequence[str], *, newer: bool = False) -> Path:
    """The interpreter of an environment with these packages; made where it is missing. `newer`: a Python from 3.12 on.

    Raises NotInstalled, one line.
    """
    directory = cache() / name
    python = directory / "bin" / "python"
    if python.exists():
        return python
    base = newer_python() if newer else sys.executable
    if base is None:
        raise NotInstalled(f"{name} wants Python 3.12 or newer, and there is none on the PATH")
    aside = cache() / f"{name}.new"
    shutil.rmtree(aside, ignore_errors=True)
    run([base, "-m", "venv", str(aside)], name)
    run([str(aside / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages], name)
    aside.rename(directory)
    return python


def run(words: Sequence[str], name: str, *, cwd: Path | None = None) -> None:
    """One step of an installation. Raises NotInstalled."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotInstalled(f"{name} could not be installed: {exc}") from exc
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        last = next((line for line in reversed(said) if "ERROR" in line), said[-1])
        raise NotInstalled(f"{name} could not be installed: {re.sub(r'https?://[^ ]+', '…', last)}")


def newer_python() -> str | None:
    """A Python from 3.12 on: on the PATH, or installed beside others by pyenv."""
    beside = sorted((Path.home() / ".pyenv" / "versions").glob("3.1[2-9]*/bin/python3"))
    for word in [*OTHER_PYTHONS, *map(str, beside)]:
        found = shutil.which(word)
        # A name on the PATH may be a shim for a version that is not chosen.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False, timeout=30).returncode == 0:
            return found
    return None


def node_with(name: str, packages: Sequence[str]) -> Path:
    """A directory whose `node_modules` has these packages; made where it is missing. Raises NotInstalled, one line."""
    directory = cache() / name
    if directory.exists():
        return directory
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled(f"{name} wants Node.js, which is not installed")
    aside = cache() / f"{name}.new"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    (aside / "package.json").write_text("{}")
    run(["npm", "install", "--silent", *packages], name, cwd=aside)
    aside.rename(directory)
    return directory


def node_version_of(directory: Path, package: str) -> str:
    """The version of a package in that directory."""
    version: str = json.loads((directory / "node_modules" / package / "package.json").read_text())["version"]
    return version


def version_of(python: Path, package: str) -> str:
    """The version of a package in that environment."""
    words = [str(python), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout.strip()

"""Databases without a schema, directories that the server's unprivileged user can reach, and small houses to be killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).resolve().parents[2]


def with_our_modules() -> dict[str, str]:
    """This process' environment, for a child that imports switchboard from wherever it is started."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A directory of mode 0755: pytest's own is closed to other users, and the server of root's house is one."""
    path = Path(tempfile.mkdtemp(prefix="sb-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def empty_database(postgres: str) -> Iterator[Callable[[], str]]:
    """Makes a database nobody has used and returns its connection string."""
    names: list[str] = []
    with psycopg.connect(postgres, autocommit=True) as connection:

        def make() -> str:
            names.append(f"t_{uuid4().hex}")
            connection.execute(f"create database {names[-1]}")
            return make_conninfo(postgres, dbname=names[-1])

        yield make
        for name in names:
            connection.execute(f"drop database {name} with (force)")


class House:
    """A starter in a process of its own: what it said, and two ways to end it."""

    def __init__(self, *words: str | Path) -> None:
        starter = Path(__file__).with_name("embedded_starter.py")
        self.process = subprocess.Popen(
            [sys.executable, starter, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=with_our_modules(),
        )

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def leave(self) -> int:
        self.process.communicate()
        return self.process.returncode


@pytest.fixture
def houses() -> Iterator[Callable[..., House]]:
    """Starts houses; whatever is left of them at the end of the test leaves in order."""
    started: list[House] = []

    def start_one(*words: str | Path) -> House:
        started.append(House(*words))
        return started[-1]

    yield start_one
    for house in started:
        if house.process.returncode is None:
            house.leave()

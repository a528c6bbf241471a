"""What the store's tests share: a desk on a transaction that is rolled back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from switchboard.database.border import Session
from tests.store.desk import Desk


@pytest.fixture
def desk(session: Session) -> Desk:
    """The store's verbs on a session whose transaction is rolled back."""
    return Desk(session)


@pytest.fixture(scope="session")
def commons(new_database: Callable[[], str]) -> str:
    """A database in which tests commit. Each keeps to endpoints of its own; sweeps, which see all, do not belong here."""
    return new_database()
